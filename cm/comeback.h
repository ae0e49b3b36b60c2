/* comeback.h - kept members that come back as new processes: they lead again what nobody serves (design, section 6, "Cold start"
 * and "Failover"). After a cold start every member is a kept one. Pure. */
#ifndef CM_COMEBACK_H
#define CM_COMEBACK_H

#include "cm/join.h"
#include "common/cluster/cluster.h"

/* Reports of kept members of a configuration by processes that are not those it names, and of its members that run. */
struct comeback {
    uint32_t came;
    uint32_t count; /* those that return come first */
    const struct cm_join *joins[CLUSTER_MAX_MEMBERS];
    uint32_t present;
    const struct cm_join *run[CLUSTER_MAX_MEMBERS];
    bool mixes; /* all read a configuration that is mixed */
    /* By position of the member: where one with whole data runs, this one, which is kept, has been waited for. */
    bool over[CLUSTER_MAX_MEMBERS];
    /* Given up: who is away, as to one shard (one above its id); or one server, away or empty, as to all shards that others have, and
     * it leaves these; 0: none is. */
    uint32_t given_shard, given_server;
};

/* Decides who of those that came can return now. A kept shard can be served if
 *  - one of its full replicas returns with whole data of it: every full replica has every acknowledged write. If it is the only
 *    one here, and others are away, it runs beside them first (B3);
 *  - or one that runs has whole data, and who is kept has been waited for;
 *  - or all of them run or came, but for those given up, and the best of all that they have returns, or runs; that is any data, or
 *    the shard is given up.
 * Who brings nothing of a shard that cannot be served waits, and who may find the rest of it at one that is away (JOIN_TORN). One
 * whose data are in doubt returns for its other shards, if `mixes`. */
void comeback_admit(struct comeback *comeback, const struct cluster_config *old);

/* Is there anything to apply? */
bool comeback_is_due(const struct comeback *comeback, const struct cluster_config *old);

/* In `config`, a copy of `old` whose members are in order, those that can return do:
 *  - they are members as their reports say, not kept ones;
 *  - the full replicas of a shard that can be served are those of them with whole data of it; if none is whole, those with the
 *    best there is, and the shard is marked `possibly_incomplete` for good. Filling ones stay. The
 *    primary stays if it is among them; else it is the one that leads fewest shards. The shard is the worker's that owns fewest;
 *  - the epoch of such a shard is one more, and of one that goes on waiting beside a replica that returned. */
void comeback_apply(const struct comeback *comeback, const struct cluster_config *old,
                    struct cluster_config *config);

/* Of a shard that waits: a kept replica is named as its primary (K4 in common/cluster/cluster.c). */
void comeback_keep(const struct cluster_config *config, struct shard *shard);

/* A kept member that no shard names is none any more. */
void comeback_drop_kept(struct cluster_config *config);

#endif
