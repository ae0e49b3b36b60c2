/* comeback.h - kept members that come back as new processes, while others run: they lead again what nobody serves (design,
 * section 6, "Failover"). Pure. */
#ifndef CM_COMEBACK_H
#define CM_COMEBACK_H

#include "cm/join.h"
#include "common/cluster/cluster.h"

/* Reports of kept members of a configuration, by processes that are not those it names. */
struct comeback {
    uint32_t came;
    uint32_t count; /* those that return come first */
    const struct cm_join *joins[CLUSTER_MAX_MEMBERS];
};

/* Decides who of those that came can return now. A kept shard can be served if one of its full replicas returns with whole data
 * of it: every full replica has every acknowledged write. It also can if all of them came, none is whole, and one with the best
 * that there is returns, if that is any data. Who is a full replica of a shard that cannot be served waits. */
void comeback_admit(struct comeback *comeback, const struct cluster_config *old);

/* In `config`, a copy of `old` whose members are in order, those that can return do:
 *  - they are members as their reports say, not kept ones;
 *  - the full replicas of a shard that they held are those of them with whole data of it; if none is whole, those with
 *    possibly incomplete or damaged data, and the shard is marked `possibly_incomplete` for good. Filling ones stay. The
 *    primary stays if it is among them; else it is the one that leads fewest shards. The shard is the worker's that owns fewest;
 *  - the epoch of such a shard is one more. */
void comeback_apply(const struct comeback *comeback, const struct cluster_config *old,
                    struct cluster_config *config);

#endif
