/* plan.h - what an operator wants changed: who may be a member, who is drained, and which replica of a shard leaves in favour of
 * another server (design, section 6, "Resharding"). The configuration keeps it, as the list `wanted` and in the shard's row;
 * fill.h does the rest. A move to a full backup is the swap of roles alone. Pure. */
#ifndef CM_PLAN_H
#define CM_PLAN_H

#include <stddef.h>

#include "cm/state.h"

/* Why not, as a sentence; NULL: it may be, or is so already. */
const char *plan_refusal(const struct cm_plan *plan, const struct cluster_config *config, char *why,
                         size_t why_bytes);

/* False: `config` says so already. */
bool plan_is_due(const struct cm_plan *plan, const struct cluster_config *config);

/* `config` with the plan, which is due and not refused, one term later. NULL: no memory. */
struct cluster_config *plan_make(const struct cm_plan *plan, const struct cluster_config *config);

/* May the server be a member? `config` NULL: there is none yet. Where it has no list, the options have it. */
bool plan_wants(const struct cm_state_options *options, const struct cluster_config *config,
                uint32_t server);

#endif
