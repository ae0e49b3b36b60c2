/* checks_stage.h - a cluster with clients and checkers, for the tests of these. */
#ifndef SIM_CHECKS_STAGE_H
#define SIM_CHECKS_STAGE_H

#include "server/store/store.h"
#include "test/sim/checks_state.h"

enum {
    CHECKS_STAGE_FAULTS = 1, /* everybody ends, with and without their hosts; connections are cut */
    CHECKS_STAGE_STOPS = 2,  /* and servers stand still */
};

struct checks_stage {
    struct sim_cluster *cluster;
    struct history history;
    struct failure failure;
    struct load *load;
    struct checks *checks;
    struct journal *journal;
    struct random random;
    uint64_t next_fault_ns;
    uint32_t crashes, power_losses;
    enum segment_state hole_state;
    uint64_t
        hole; /* where checks_stage_store stores next: bytes from the start of a segment in that state, the last
                       of a backup log that was posted */
};

extern const struct sim_cluster_options CHECKS_STAGE_SHAPE;

/* Three servers with all shards each. `shape` NULL: CHECKS_STAGE_SHAPE. */
void checks_stage_open(struct checks_stage *stage, uint64_t seed,
                       const struct sim_cluster_options *shape);
void checks_stage_close(struct checks_stage *stage);

/* Clients do all their operations, then all is quiet; ends early with a failure. */
void checks_stage_run(struct checks_stage *stage, unsigned faults);
void checks_stage_rounds(struct checks_stage *stage, uint32_t rounds);

/* The first failure must be of this checker; NULL: there must be none. */
void checks_stage_expect(struct checks_stage *stage, const char *checker);

struct checks_stage_entry {
    struct entry_header header;
    uint32_t key;
    uint32_t server; /* where it lies, from 1 */
    uint64_t offset;
    uint32_t bytes;
    uint8_t block[1024];
};

/* The last put of one block of 128 bytes. */
struct checks_stage_entry checks_stage_last_entry(const struct checks_stage *stage);

/* Where the hole is in the map of that server. */
uint64_t checks_stage_hole(const struct checks_stage *stage, uint32_t server);

/* Stores bytes [from, from + bytes) of the entry, with its header as it is now, in the hole. Its checksum becomes wrong,
 * so no server takes it in. */
void checks_stage_store(struct checks_stage *stage, uint32_t server,
                        struct checks_stage_entry *entry, uint32_t from, uint32_t bytes);

/* Until all fences are done. */
void checks_stage_fence(struct checks_stage *stage);

/* A backup's index points to an older entry of some key again. */
void checks_stage_turn_back(struct checks_stage *stage);

struct worker *checks_stage_worker(const struct checks_stage *stage, uint32_t server);

#endif
