/* worker_reconcile_take.h - the inside of a log reconciliation: its state, and taking in what a backup shows. Calls no other
 * file of the worker.
 */
#ifndef SERVER_WORKER_RECONCILE_TAKE_H
#define SERVER_WORKER_RECONCILE_TAKE_H

#include "server/worker/worker_state.h"

enum reconcile_step { RECONCILE_FIGURES, RECONCILE_BELOW, RECONCILE_SUFFIXES, RECONCILE_SPREAD };

/* One backup's part. */
struct part {
    bool done;    /* in this step */
    uint32_t tag; /* of what is on its way to it: a question, or entries; 0: nothing */
    uint64_t retry_ns;

    /* SUFFIXES */
    uint64_t cursor; /* and the block: of the last answer */
    uint32_t block;
    struct incoming incoming; /* skipped: it is here already */

    uint64_t complete; /* U7; or its contiguous prefix. What of it was superseded it cannot show */
    struct suffix has; /* versions of its entries above `from`; their places are not told */

    /* SPREAD: the first entry of the suffix that is not confirmed, and its first block; and likewise once the message on
     * its way is. */
    uint32_t next, next_block, sent, sent_block;
};

struct reconciliation {
    struct shard_state *shard; /* NULL: free */
    enum reconcile_step step;
    uint64_t commit, from;
    uint64_t asked;       /* FIGURES: the commit version that was told to all */
    uint64_t settled;     /* the highest of any replica */
    uint64_t retry_ns;    /* BELOW */
    uint64_t local_batch; /* the last in which something was stored here */
    uint32_t taken;       /* entries that were not here */
    uint32_t holes; /* entries that a commit version covers, and that were brought to a replica */
    struct suffix extra; /* those of the current backup */
    struct part parts[CLUSTER_MAX_REPLICAS - 1];
};

/* The next block that the backup shows; the entry is applied with its last one. Errors: ROWAN_EFORMAT (not what was asked
 * for), EDAMAGED, ENOMEM; those of incoming_take. */
int worker_reconcile_take(struct worker *worker, struct reconciliation *it, struct part *part,
                          const ProtobufCBinaryData *block);

#endif
