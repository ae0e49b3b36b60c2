/* checks_stage.h - a cluster with clients, and checkers if they are wanted, for the tests of these. */
#ifndef SIM_CHECKS_STAGE_H
#define SIM_CHECKS_STAGE_H

#include "server/store/store.h"
#include "test/sim/checks_state.h"
#include "test/sim/nemesis.h"

enum {
    CHECKS_STAGE_FAULTS = 1, /* everybody ends, with and without their hosts; connections are cut */
    CHECKS_STAGE_STOPS = 2,  /* and servers stand still */
};

struct checks_stage {
    struct sim_cluster *cluster;
    struct history history;
    struct failure failure;
    struct load *load;
    struct checks *checks;   /* NULL: none */
    struct nemesis *nemesis; /* a test's own, stepped before each round; NULL: none */
    struct journal *journal;
    struct random random;
    uint64_t next_fault_ns;
    uint32_t crashes, power_losses;
    enum segment_state hole_state;
    /* Where checks_stage_store stores next: bytes from the start of a segment in that state, the last of a backup log
     * that was posted. */
    uint64_t hole;
};

extern const struct sim_cluster_options CHECKS_STAGE_SHAPE;

/* Three servers with all shards each, and checkers. `shape` NULL: CHECKS_STAGE_SHAPE. */
void checks_stage_open(struct checks_stage *at, uint64_t seed,
                       const struct sim_cluster_options *shape);

/* Without checkers, in segments of so many bytes. */
void checks_stage_open_load(struct checks_stage *at, uint64_t seed, uint32_t segment_bytes,
                            const struct sim_cluster_options *shape,
                            const struct load_options *load);
void checks_stage_add_checks(struct checks_stage *at);
void checks_stage_close(struct checks_stage *at);

/* The stage of a test; the fixture is one that is quiet after a run without faults. */
extern struct checks_stage stage;
int checks_stage_set_up(void **state);
int checks_stage_tear_down(void **state);

/* One round. False: something failed. */
bool checks_stage_step(struct checks_stage *at);
/* Until every call has its answer; false: something failed. */
bool checks_stage_settle(struct checks_stage *at);

/* Clients do all their operations, then all is quiet; ends early with a failure. */
void checks_stage_run(struct checks_stage *at, unsigned faults);
void checks_stage_rounds(struct checks_stage *at, uint32_t rounds);
void checks_stage_run_for(struct checks_stage *at, uint64_t ns);

/* The first failure must be of this checker; NULL: there must be none. */
void checks_stage_expect(struct checks_stage *at, const char *checker);

struct checks_stage_entry {
    struct entry_header header;
    uint32_t key;
    uint32_t server; /* where it lies, from 1 */
    uint64_t offset;
    uint32_t bytes;
    uint8_t block[1024];
};

/* The last put of one block of 128 bytes. */
struct checks_stage_entry checks_stage_last_entry(const struct checks_stage *at);

/* The same as if another operation, whose client wants no record, had put it later. */
struct checks_stage_entry checks_stage_new_entry(const struct checks_stage *at);

/* Where the hole is in the map of that server. */
uint64_t checks_stage_hole(const struct checks_stage *at, uint32_t server);

/* Stores bytes [from, from + bytes) of the entry, with its header as it is now, in the hole. Its checksum becomes wrong,
 * so no server takes it in. */
void checks_stage_store(struct checks_stage *at, uint32_t server, struct checks_stage_entry *entry,
                        uint32_t from, uint32_t bytes);
void checks_stage_store_whole(struct checks_stage *at, uint32_t server,
                              struct checks_stage_entry *entry);

/* Until all fences are done. */
void checks_stage_fence(struct checks_stage *at);

struct worker *checks_stage_worker(const struct checks_stage *at, uint32_t server);

#endif
