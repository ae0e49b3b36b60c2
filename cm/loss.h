/* loss.h - what a configuration gives up that the one before had, as a sentence for the log. Pure. */
#ifndef CM_LOSS_H
#define CM_LOSS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/cluster/cluster.h"

/* Both: true if something is given up; then `out` has the sentence. `before` NULL: there was none. */

/* Shards that `after` marks possibly incomplete, and `before` did not. */
bool loss_of_certainty(const struct cluster_config *before, const struct cluster_config *after,
                       char *out, size_t bytes);

/* Servers that are no full replicas any more of shards that they held. */
bool loss_of_replicas(const struct cluster_config *before, const struct cluster_config *after,
                      char *out, size_t bytes);

#endif
