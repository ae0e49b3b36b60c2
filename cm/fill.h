/* fill.h - the configuration with more members, and with other replicas: servers that came or came back are added, shards that
 * lack replicas get members that fill, and replicas that have all are full backups; drained members hand over what they hold,
 * and a backup that its primary does not reach leaves (design, section 6, "Filling" and "Failover"). Pure. */
#ifndef CM_FILL_H
#define CM_FILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cm/comeback.h"
#include "cm/lease.h"
#include "cm/loads.h"
#include "common/cluster/cluster.h"

struct fill_from {
    const struct cluster_config
        *old;            /* in force and committed, and every member that is not kept is present */
    uint32_t join_count; /* servers that are no members of it: all are added */
    const struct cm_join *joins[CLUSTER_MAX_MEMBERS];
    struct comeback back; /* comeback_admit */
    const uint8_t *
        filled; /* by id of the shard: a bit for each place in `filling` that has all; of one that is split as in split.h */
    const struct leases *leases; /* leases_are_cut; NULL: nobody says so */
    const struct loads *loads;   /* NULL: all have space without end */
    uint32_t *
        lacking; /* where nothing is to change: shards that nobody has the space to fill; may be NULL */
};

/* From there to the configuration that is proposed:
 *  - the term is one more; servers that join are members, and replicas of nothing before;
 *  - kept members return, and a kept member that is no replica any more is no member (comeback.h);
 *  - a replica that has all is a full backup, the last in their order;
 *  - a backup, full or filling, that its primary says it does not reach leaves that shard; but a primary that reaches nobody swaps
 *    roles with a full backup that all others reach;
 *  - a primary that could not read an entry swaps roles with a full backup of which nobody knows such a thing; a backup that could
 *    not, beside a primary that could, leaves as a drained one does, or if nobody else can fill begins to fill itself;
 *  - who runs short of space leaves the shards that it fills, and who is full one that two others hold in full (loads.h);
 *  - a drained primary and the full backup that leads fewest shards, and is not drained, swap roles; a drained backup leaves when
 *    the shard has `replicas` full ones without it, or at once if it fills. So does another one that fills then;
 *  - a move whose target is full, and whose source is needed still, is over: the source stays;
 *  - a shard with fewer replicas than `replicas`, drained ones not counted, gets more, as long as there are members that are none,
 *    are not drained, and are within its primary's reach, and have room for it and all that is to come: of those with at least half
 *    of the most room the one that is a replica of fewest shards, of equals the one with the lowest number. They fill;
 *  - a shard that is split goes once its children have all (split.h);
 *  - the epoch of each shard that changed is one more. One that has no epoch left, or whose full replicas are kept members,
 *    is left as it is.
 * It is finished. NULL: there is nothing to change, or no memory. */
struct cluster_config *fill_make(const struct fill_from *from);

#endif
