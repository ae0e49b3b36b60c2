/* cold.h - the configuration after a cold start: all servers of the cluster have been started again
 * and none kept running, so the last configuration's full replicas are admitted again (design,
 * section 6).
 */
#ifndef CM_COLD_H
#define CM_COLD_H

#include "cm/registrations.h"
#include "common/cluster/cluster.h"

/* cold_start: from the last configuration, whose members are all registered, to the one that is
 * proposed:
 *  - the term is one more, every member has its new incarnation, address and workers;
 *  - every shard's epoch is one more. Its full replicas are those of `old` whose server brings whole
 *    data of it. If there is none, they are those whose server brings possibly incomplete or damaged data, and the shard
 *    is marked `possibly_incomplete` for good. While nothing was ever written (cluster_is_unwritten)
 *    all data is whole, even of a server that was never formatted. A filling replica is dropped;
 *  - the primary stays if it is among them; else it is the one of them that leads fewest shards. A
 *    shard is the worker's that owns fewest;
 *  - all else stays, also the block limit, which every server's must reach, and the ids reserved.
 *
 * *out is finished. Pure. A server's data is of this cluster, or it brings none.
 * Errors, the first two with a sentence in `why`: ROWAN_ENOTFOUND (nobody brings data of some
 * shard), ROWAN_ETOOMANY (a shard has no epoch left), ROWAN_ENOMEM. */
int cold_start(const struct cluster_config *old, const struct registrations *registrations,
               struct cluster_config **out, char *why, size_t why_bytes);

#endif
