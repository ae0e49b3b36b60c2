/* led.c - see led.h. */
#include "cm/led.h"

#include <string.h>

void led_count(struct led *led, const struct cluster_config *config)
{
    *led = (struct led){.config = config};
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *shard = &config->shards[i];
        if (!shard_is_kept(config, shard))
            led->shards[cluster_position(config, shard->primary)][shard->worker]++;
    }
}

static uint32_t led_by(const struct led *led, uint32_t server)
{
    const uint32_t *shards = led->shards[cluster_position(led->config, server)];
    uint32_t count = cluster_wants(led->config, server) ? 0 : CLUSTER_MAX_SHARDS + 1;
    for (uint32_t i = 0; i < CLUSTER_MAX_WORKERS; i++)
        count += shards[i];
    return count;
}

uint32_t led_fewest(const struct led *led, const uint32_t *servers, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (led_by(led, servers[i]) < led_by(led, servers[best]))
            best = i;
    }
    return best;
}

void led_give(struct led *led, struct shard *shard, uint32_t server)
{
    uint32_t *shards = led->shards[cluster_position(led->config, server)];
    shard->primary = server;
    shard->worker = 0;
    for (uint32_t i = 1; i < cluster_member(led->config, server)->workers; i++) {
        if (shards[i] < shards[shard->worker])
            shard->worker = i;
    }
    shards[shard->worker]++;
}

void led_set(struct led *led, struct shard *shard, const uint32_t *servers, uint32_t able,
             uint32_t count)
{
    const uint32_t best = servers[0] == shard->primary ? 0 : led_fewest(led, servers, able);
    led_give(led, shard, servers[best]);
    shard->backup_count = 0;
    memset(shard->backups, 0, sizeof shard->backups);
    for (uint32_t i = 0; i < count; i++) {
        if (i != best)
            shard->backups[shard->backup_count++] = servers[i];
    }
}

void led_swap(struct led *led, struct shard *shard, uint32_t server)
{
    const uint32_t before = shard->primary;
    led_give(led, shard, server);
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        if (shard->backups[i] == server)
            shard->backups[i] = before;
    }
}
