/* story.h - what a configuration changes or gives up that the one before had, for the log. Pure. */
#ifndef CM_STORY_H
#define CM_STORY_H

#include <stdbool.h>
#include <stddef.h>

#include "common/cluster/cluster.h"

/* Shards that `after` marks possibly incomplete, and `before` (NULL: there was none) did not; and, likewise, servers that are no full
 * replicas any more of shards that they held. True if there are: then `out` has a sentence. */
bool story_of_certainty(const struct cluster_config *before, const struct cluster_config *after,
                        char *out, size_t bytes);
bool story_of_replicas(const struct cluster_config *before, const struct cluster_config *after,
                       char *out, size_t bytes);

/* What a failover did: "removed=1,4 kept=2 promoted=8 unserved=0": servers, or "-", and shards that have got another primary, or
 * that nobody serves. False: `after` is no failover; nothing is written. */
bool story_of_failover(const struct cluster_config *before, const struct cluster_config *after,
                       char *out, size_t bytes);

/* Shards that nobody serves, and for whom they wait, as a sentence. False: as many as in `before` (NULL: none). */
bool story_of_waiting(const struct cluster_config *before, const struct cluster_config *after,
                      char *out, size_t bytes);

struct story_fill {
    uint32_t joined;  /* servers that are members now, or again */
    char servers[80]; /* the first of them: "3,4" */
    uint32_t began,
        ended; /* shards that have a replica which fills now; which is a full backup now, and filled before */
    uint32_t left; /* shards with replicas that fill */
    uint32_t swapped,
        dropped; /* shards led by another member now; that members which stay hold no more */
};

/* False: nothing of that kind, but for `left`. */
bool story_of_fill(const struct cluster_config *before, const struct cluster_config *after,
                   struct story_fill *out);

#endif
