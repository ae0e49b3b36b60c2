/* loss.h - what the next configuration gives up that the last one had, as a sentence for the log. Pure. */
#ifndef CM_LOSS_H
#define CM_LOSS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/cluster/cluster.h"

/* True if there is something to tell; the sentence stands in `out` then. `before` NULL: nothing was known. */

/* Shards that `after` marks possibly incomplete, and `before` did not. */
bool loss_of_certainty(const struct cluster_config *before, const struct cluster_config *after,
                       char *out, size_t bytes);

/* Servers that are full replicas of fewer shards than before: until replicas are filled, for good. */
bool loss_of_replicas(const struct cluster_config *before, const struct cluster_config *after,
                      char *out, size_t bytes);

#endif
