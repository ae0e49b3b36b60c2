/* stage.h - what the tests on a cluster in one thread share. */
#ifndef SIM_STAGE_H
#define SIM_STAGE_H

#include "common/base/log.h"
#include "test/sim/cluster.h"

/* All replicas agree, and hold so many objects; then the cluster is destroyed. */
void stage_finish(struct sim_cluster *cluster, uint64_t objects);

/* The number-th key whose shard `server` leads; a string in `key`, which has 24 bytes. */
void stage_key(const struct sim_cluster *cluster, uint32_t server, uint32_t number, char *key);

/* The same operation again and again, its answers counted. */
struct stage_answers {
    uint32_t good;   /* status 0 */
    uint32_t failed; /* another */
    int status;      /* of the last that failed */
    uint32_t outstanding;
};

/* Posts a put; the answer is counted. `value` stays until then. */
void stage_post_put(struct sim_cluster *cluster, uint32_t client, const char *key,
                    const void *value, size_t value_bytes, struct stage_answers *answers);

/* Rounds until nothing is outstanding, 5 s of simulated time at most. */
void stage_settle(struct sim_cluster *cluster, const struct stage_answers *answers);

/* All cases; what the cluster logs is seen where SIM_LOG is set. */
#define STAGE_MAIN                                                                                 \
    int main(void)                                                                                 \
    {                                                                                              \
        log_set_level(getenv("SIM_LOG") ? LOG_DEBUG : LOG_ERROR);                                  \
        return unit_run(NULL, NULL);                                                               \
    }

#endif
