/* failover.h - the configuration without members that fell silent (design, section 6, "Failover"). Pure. */
#ifndef CM_FAILOVER_H
#define CM_FAILOVER_H

#include <stdbool.h>
#include <stddef.h>

#include "cm/join.h"
#include "common/cluster/cluster.h"

/* failover_make: from the configuration in force and who of its members is silent (silent[i]: member i; no kept one, and not
 * all others), and of these is not to be replaced by a single one (waits[i]), and the last report of each (reports[i]; NULL: none is known), to the one that is
 * proposed:
 *  - the term is one more;
 *  - a shard loses its silent replicas, full and filling ones. One whose primary is silent is led by the full backup left that
 *    leads fewest shards, on the worker of it that owns fewest. One of which an entry was found damaged leads it
 *    only if those of all that are left were. One whose data are in doubt, or that fills, is never promoted;
 *  - a shard whose full replicas are all silent keeps them, and one that waits keeps all that it has: they are kept members. Where
 *    one is left, and others wait, or all that are left are in doubt, and so may lack what those have, these are kept, and nobody serves the shard (comeback.h ends that);
 *  - the epoch of each shard that changed is one more;
 *  - any other silent member is no member any more.
 * *out is finished. Errors: ROWAN_ETOOMANY (a shard has no epoch left; `why` says which), ROWAN_ENOMEM. */
int failover_make(const struct cluster_config *old, const bool *silent, const bool *waits,
                  const struct cm_join *const *reports, struct cluster_config **out, char *why,
                  size_t why_bytes);

#endif
