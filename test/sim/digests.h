/* digests.h - do all replicas hold the same (design, C8)? Asks as `rowan verify` does: by messages
 * to the servers' control endpoints.
 */
#ifndef SIM_DIGESTS_H
#define SIM_DIGESTS_H

#include "test/sim/cluster.h"

struct sim_digests {
    uint64_t objects;  /* live ones, over all shards, each counted once */
    uint64_t replicas; /* compared, over all shards */
    bool late;         /* why false was returned: no common version in time */
    char why[160];     /* what does not agree, when false was returned */
};

/* One round of the cluster, and of whatever else belongs to the run. */
typedef void sim_digests_step(void *context);

/* sim_digests_agree: waits, up to `limit_ns` of simulated time a shard, until its replicas have
 * digested the same versions; then compares. `out` is filled either way. `step` NULL: sim_cluster_step. */
bool sim_digests_agree(struct sim_cluster *cluster, uint64_t limit_ns, sim_digests_step *step,
                       void *context, struct sim_digests *out);

#endif
