/* load.h - the clients of a run: random operations of all kinds, by all sessions, recorded in a history.
 *
 * It knows no right answer: several clients may have operations on one key under way, and outcomes may be
 * unknown. Few keys are hot, many are cold. Values have any length from 0 B to several blocks;
 * those of 8 B and more begin with a number of their own. Some values imitate entries of other keys, with checksums as
 * somebody could make them who does not know the cluster's secret (hazard H6).
 *
 * Reads sometimes ask with too small a room, are recorded with the version alone then, and asked again; conditional
 * puts expect the version that the client saw last, none, or a wrong one; several operations of a client are
 * outstanding at a time.
 */
#ifndef SIM_LOAD_H
#define SIM_LOAD_H

#include "test/sim/cluster.h"
#include "test/sim/failure.h"
#include "test/sim/history.h"
#include "test/sim/journal.h"

enum { LOAD_SHORT_KEY_BYTES = 64, LOAD_KEY_BYTES = 1024 };

struct load_options {
    uint64_t seed;
    uint64_t operations;     /* then it stops by itself; what is rejected does not count */
    uint32_t keys, hot_keys; /* the first `hot_keys` take half of the operations */
    uint32_t depth;          /* of each client, at most */
    uint64_t mean_pause_ns;  /* between two operations of a client, on average */
    uint32_t burst;          /* a client asks so many at once, and pauses as much longer; 0: one */
    uint32_t max_key_bytes;  /* of one key in ten, up to LOAD_KEY_BYTES; 0: as of the others */
    uint32_t max_value_bytes;
    uint32_t
        long_in; /* one value in so many is of up to max_value_bytes, the others of up to 200 B */
    uint32_t forged_in;                    /* one value in so many imitates entries; 0: none */
    uint32_t gets, puts, put_ifs, deletes; /* weights */
    uint32_t
        readers; /* so many clients look at one hot key at a time, a second long: by gets, or by put_ifs that expect what never was */
    bool may_fill; /* PM is so small that it may be full for a while: ROWAN_EFULL is no failure */
};

struct load;

/* Told of every write that is answered "done": checks.h. */
typedef void load_acknowledged(void *context, uint32_t key, uint64_t version);

/* Told of every version that another answer tells: what a read or a judgement saw. */
typedef void load_seen(void *context, uint32_t key, uint64_t version);

/* `history` and `failure` outlive it. While operations are outstanding sessions point into it: after load_destroy the
 * cluster may only be destroyed. An answer that the SDK promises never to give, or that cannot be true by itself, is a correctness
 * failure. Calls and answers go to the cluster's journal. Aborts without memory. */
struct load *load_create(struct sim_cluster *cluster, const struct load_options *options,
                         struct history *history, struct failure *failure);
void load_destroy(struct load *load);
void load_on_acknowledged(struct load *load, load_acknowledged *acknowledged, void *context);
void load_on_seen(struct load *load, load_seen *seen, void *context);

/* Between two rounds of the cluster: posts what is due. */
void load_step(struct load *load);

bool load_may_fill(const struct load *load);

/* When the next operation is due; WAKE_NEVER if none is. */
uint64_t load_next_ns(const struct load *load);

/* No new operations. */
void load_stop(struct load *load);
/* Stopped; or all operations were posted, and as many more as were rejected. */

bool load_is_over(const struct load *load);
uint32_t load_outstanding(const struct load *load);
uint64_t load_posted(const struct load *load);

/* One get of every key, posted as clients have room, to be awaited like the others (load_outstanding counts them
 * from now on): what the end of a run reads. One that times out is a liveness failure. */
void load_read_all(struct load *load);

/* One put to one key in four. Likewise: faults are long over, so one that is not done is a liveness failure. */
void load_write_some(struct load *load);

/* A put, a put_if or a delete of every key, likewise, while the caller cuts connections: what is asked again has
 * an answer too, long before `timeout_ns`. That is the sessions' timeout from now on. */
void load_write_all(struct load *load, uint64_t timeout_ns);

/* A delete of every key, likewise, after load_write_all. */
void load_delete_all(struct load *load);

/* Of each client one put to each shard, one after another: of a client that has done so no shard needs to remember
 * more. Likewise. */
void load_write_shards(struct load *load);

/* A key's bytes; their number is returned. `out` has LOAD_KEY_BYTES, or LOAD_SHORT_KEY_BYTES where no key is longer.
 * The number and the first LOAD_SHORT_KEY_BYTES of them tell which key it is. */
uint32_t load_key(const struct load *load, uint32_t key, char *out);
uint32_t load_keys(const struct load *load);

#endif
