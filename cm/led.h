/* led.h - how many shards each member leads, so that one that gets another primary goes to who leads fewest. Pure. */
#ifndef CM_LED_H
#define CM_LED_H

#include "common/cluster/cluster.h"

/* All zeros but `config`: nobody leads any. Its members must stay where they are. */
struct led {
    const struct cluster_config *config;
    uint32_t shards[CLUSTER_MAX_MEMBERS][CLUSTER_MAX_WORKERS]; /* by position of the member */
};

/* Counts the shards of `config` that are not kept. */
void led_count(struct led *led, const struct cluster_config *config);

/* The position of the one of these `count` members, at least one, that leads fewest; of equals the first. One that is drained
 * only if all are. */
uint32_t led_fewest(const struct led *led, const uint32_t *servers, uint32_t count);

/* The shard is led by `server`, by the worker of it that owns fewest. */
void led_give(struct led *led, struct shard *shard, uint32_t server);

/* These are its full replicas from now on, at least one, none of them counted yet: the first leads it if it did, else the one of the
 * first `able` that leads fewest. */
void led_set(struct led *led, struct shard *shard, const uint32_t *servers, uint32_t able,
             uint32_t count);

/* Likewise by one of its backups, in whose place the primary of before backs it. */
void led_swap(struct led *led, struct shard *shard, uint32_t server);

#endif
