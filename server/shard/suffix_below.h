/* suffix_below.h - what one replica knows to be settled, another may lack: its settled version is lower, and it has a
 * hole above it, by damage. Then log reconciliation needs versions at or below the settled one, of which no list is kept:
 * those that the index names join the uncommitted suffix. What it does not name of them was superseded, by a version
 * that is committed, which the other one has or is brought as well.
 */
#ifndef SERVER_SUFFIX_BELOW_H
#define SERVER_SUFFIX_BELOW_H

#include "server/index/index.h"
#include "server/shard/suffix.h"

/* The walk over the index. All zeros: none. */
struct suffix_below {
    uint64_t after; /* versions above it are sought */
    uint64_t cursor;
    struct suffix found;
    int error;
};

/* suffix_below_step: a bounded step of lowering `above` of a sorted suffix to `after`. 1: it is no higher; 0: call again;
 * ROWAN_ENOMEM: call again later. The owner of the shard's. What the suffix names of such versions is to be held
 * (reclaim.h) from the first call on. */
int suffix_below_step(struct suffix_below *below, struct suffix *suffix, const struct index *index,
                      const struct pm *pm, uint64_t after);

#endif
