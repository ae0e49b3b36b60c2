/* A server is gone for good, and the others have not the space for all that it held: every shard goes on taking puts, some with
 * fewer replicas, and it gets them back when there is space again (design, section 6, "Space comes first"). */
#include "stage.h"

#include <stdio.h>

#include "test/lib/unit.h"

enum {
    SERVERS = 4,
    REPLICAS = 3,
    SHARDS = 24,
    SEGMENTS = 160,
    SEGMENT_BYTES = 64 << 10,
    VALUE = 4000
};

#define PM_BYTES(segments) ((UINT64_C(11) << 20) + (uint64_t)(segments)*SEGMENT_BYTES)

/* Two thirds of what all servers but the last, which may be smaller, have. */
static uint32_t keys_for(uint32_t last_segments)
{
    return (uint32_t)((uint64_t)SEGMENT_BYTES * ((SERVERS - 1) * SEGMENTS + last_segments) * 62 /
                      100 / REPLICAS / (VALUE + 96));
}

static void put_some(struct sim_cluster *cluster, uint32_t first, uint32_t count)
{
    static const uint8_t value[VALUE];
    char key[24];
    for (uint32_t i = first; i < first + count; i++) {
        const int bytes = snprintf(key, sizeof key, "key-%u", i);
        const int error = sim_put(cluster, 0, key, (size_t)bytes, value, VALUE, NULL);
        if (error)
            fail_msg("a put of %s after %lu ms: %d", key, cluster->clock.now_ns / NS_PER_MS, error);
    }
}

static struct sim_cluster *loaded(uint32_t last_segments, uint32_t keys)
{
    fabric_segment_bytes = SEGMENT_BYTES;
    struct sim_cluster *cluster =
        sim_cluster_create(&(struct sim_cluster_options){.seed = last_segments,
                                                         .servers = SERVERS,
                                                         .replicas = REPLICAS,
                                                         .shards = SHARDS,
                                                         .block_limit = 4096,
                                                         .pm_bytes = PM_BYTES(SEGMENTS),
                                                         .last_pm_bytes = PM_BYTES(last_segments),
                                                         .max_delay_ns = 100 * NS_PER_US,
                                                         .fence_ns = 50 * NS_PER_US,
                                                         .timeout_ns = 5 * NS_PER_S,
                                                         .lease_ms = 500});
    put_some(cluster, 0, keys);
    sim_cluster_run_for(cluster, 3 * NS_PER_S);
    return cluster;
}

static uint32_t lacking(const struct sim_cluster *cluster)
{
    const struct cluster_config *config = sim_cluster_config(cluster);
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->shard_count; i++)
        count += config->shards[i].backup_count + 1 < REPLICAS;
    return count;
}

static bool is_whole(void *context)
{
    return sim_cluster_is_whole(context);
}

static void lose_a_server(uint32_t last_segments)
{
    const uint32_t keys = keys_for(last_segments);
    struct sim_cluster *cluster = loaded(last_segments, keys);
    sim_cluster_kill_server(cluster, 1, NULL);
    sim_cluster_run_for(cluster, 3 * NS_PER_S);
    for (uint32_t i = 0; i < 40; i++) { /* two minutes */
        put_some(cluster, i * 37 % (keys - 120), 120);
        sim_cluster_run_for(cluster, 3 * NS_PER_S);
    }
    assert_in_range(lacking(cluster), 1,
                    SHARDS * 2 / 3); /* as many have all as there is space for */
    sim_cluster_empty_server(cluster, 1);
    sim_cluster_start_server(cluster, 1);
    assert_true(sim_cluster_run(cluster, is_whole, cluster, 120 * NS_PER_S));
    put_some(cluster, 0, 120);
    stage_finish(cluster, keys);
}

TEST(every_shard_takes_puts_for_as_long_as_a_server_is_gone_and_gets_its_replicas_back)
{
    lose_a_server(SEGMENTS);
}

/* With a third of the others' memory it takes what it has space for, and the others the rest. */
TEST(a_small_server_gets_no_more_than_it_has_space_for)
{
    lose_a_server(SEGMENTS / 3);
}

STAGE_MAIN
