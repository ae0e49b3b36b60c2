/* cold.h - the configuration after a cold start: no server of the cluster kept running, so the last configuration's full replicas
 * are admitted again (design, section 6, "Cold start").
 */
#ifndef CM_COLD_H
#define CM_COLD_H

#include "cm/comeback.h"
#include "common/cluster/cluster.h"

/* cold_start: from the last configuration, and the reports of those of its members that came (`back`: nobody runs), to the one
 * that is proposed:
 *  - the term is one more; who came has its new incarnation, address and workers; who did not is a kept member as long as a shard
 *    waits for it, or none;
 *  - each shard is led again as comeback.h says. A filling replica is dropped;
 *  - a shard that cannot be served yet waits, if `partly`; else this is an error;
 *  - all else stays, also the block limit, which every server's must reach, and the ids reserved.
 *
 * *out is finished; NULL: nothing changes. Pure. A server's data is of this cluster, or it brings none.
 * Errors, the first two with a sentence in `why`: ROWAN_ENOTFOUND (nobody brings data of some
 * shard), ROWAN_ETOOMANY (a shard has no epoch left), ROWAN_ENOMEM. */
int cold_start(const struct cluster_config *old, struct comeback *back, bool partly,
               struct cluster_config **out, char *why, size_t why_bytes);

#endif
