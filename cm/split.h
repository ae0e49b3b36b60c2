/* split.h - a shard is split in two (design, section 6, "Resharding"). Pure.
 *
 * Its row becomes that of a parent, which nobody writes any more, behind those that are served; two children with new ids have
 * its slots, its replicas and its worker. Their replicas copy what the parent holds, each for itself, and say so (Filled). Once all
 * have, the parent's row is ended; and it goes when that is committed. Meanwhile the three are one: they get no replicas, do
 * not move, are not split again, and what a failover or a start does to the parent is done to its children.
 */
#ifndef CM_SPLIT_H
#define CM_SPLIT_H

#include "cm/loads.h"
#include "cm/state.h"

/* Bits of who has copied all of a parent: of backups by their place, and of the primary. */
enum { SPLIT_COPIED_PRIMARY = 1 << (CLUSTER_MAX_REPLICAS - 1) };

/* Is the shard one of the three? */
bool split_concerns(const struct cluster_config *config, const struct shard *shard);

/* The first slot of the second child where the plan names none: it halves the load, as far as that is known, else the
 * slots. 0: the shard is not there, or is a single slot. */
uint32_t split_slot(const struct cluster_config *config, const struct loads *loads, uint32_t shard);

/* Why not, as a sentence; NULL: it may be, or is under way. `max_shards`: with it there are so many at most. */
const char *split_refusal(const struct cm_plan *plan, const struct cluster_config *config,
                          const struct loads *loads, uint32_t max_shards, char *why,
                          size_t why_bytes);

/* One term later; plan.h. NULL: no memory. */
struct cluster_config *split_make(const struct cm_plan *plan, const struct cluster_config *config);

/* split_follow: children get the replicas and the worker of their parent, for whoever has changed that. */
void split_follow(struct cluster_config *config);

/* split_is_due: is there a parent to be ended, or the row of an ended one, in a configuration that is committed? split_advance
 * does it, in a copy of it, `config`. `filled`: by id of the shard, as above. */
bool split_is_due(const struct cluster_config *config, const uint8_t *filled);
void split_advance(const struct cluster_config *old, struct cluster_config *config,
                   const uint8_t *filled);

/* split_drop_ended: no server holds them. */
void split_drop_ended(struct cluster_config *config);

#endif
