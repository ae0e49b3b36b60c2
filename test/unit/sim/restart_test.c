/* A whole cluster that ends at any moment and is started again on the same PM: no acknowledged write
 * is lost, no write is done twice, and no answer is wrong. */
#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/entry/entry.h"
#include "test/lib/unit.h"

#define ANSWER_NS (30 * NS_PER_S)

/* --- random operations, crashes in between --- */

static uint32_t crashes;   /* of this test */
static uint32_t in_vain;   /* crashes since an operation was completed */
static uint64_t completed; /* operations, before the last crash */

/* A start may be cut short, but not for as long as an operation is asked again. */
static bool may_crash(const struct sim_cluster *cluster)
{
    uint64_t now_completed = 0;
    for (uint32_t i = 0; i < cluster->options.clients; i++)
        now_completed += session_completed(cluster->clients[i].session);
    in_vain = now_completed > completed ? 0 : in_vain + 1;
    completed = now_completed;
    return in_vain < 3;
}

/* Now and then everything ends, sometimes after a server stood still or a connection was cut; and
 * again while it starts. */
static void crash_and_restart(struct sim_cluster *cluster, struct random *random)
{
    uint32_t servers = cluster->options.servers;
    if (sim_cluster_is_down(cluster)) {
        if (random_below(random, 4) == 0)
            sim_cluster_restart(cluster, random_below(random, 8) == 0);
        return;
    }
    /* The fewer servers, the fewer rounds a run has. */
    uint64_t draw = random_below(random, 24 * servers), a = random_below(random, servers),
             b = random_below(random, servers);
    if (draw < 2 && may_crash(cluster)) {
        sim_cluster_crash(cluster);
        crashes++;
    } else if (draw < 8) {
        cluster->servers[a].process.stopped = !cluster->servers[a].process.stopped;
    } else if (draw < 12 && a != b) {
        sim_network_break(cluster->network, cluster->servers[a].process.address,
                          cluster->servers[b].process.address);
    }
}

static void survive(uint64_t seed, const struct sim_cluster_options *shape,
                    const struct sim_workload_options *work)
{
    struct sim_cluster_options options = *shape;
    struct sim_workload_options workload = *work;
    options.seed = workload.seed = seed;
    options.timeout_ns = 60 * NS_PER_S;
    options.pm_bytes = (uint64_t)768 << 20;
    workload.disturb = crash_and_restart;
    in_vain = 0;
    completed = 0;
    struct sim_cluster *cluster = sim_cluster_create(&options);
    stage_work(cluster, &workload);
}

TEST(crashes_lose_nothing_with_any_number_of_replicas)
{
    crashes = 0;
    for (uint32_t replicas = 1; replicas <= 3; replicas++)
        survive(replicas,
                &(struct sim_cluster_options){.servers = 3,
                                              .replicas = replicas,
                                              .clients = 2,
                                              .shards = 12,
                                              .max_delay_ns = 50 * NS_PER_US},
                &(struct sim_workload_options){.operations = 3000});
    assert_true(crashes >= 6);
}

TEST(crashes_lose_nothing_with_several_workers_and_digests)
{
    crashes = 0;
    survive(11,
            &(struct sim_cluster_options){.workers = 3,
                                          .digests = 2,
                                          .clients = 3,
                                          .shards = 36,
                                          .max_delay_ns = 100 * NS_PER_US,
                                          .fence_ns = 30 * NS_PER_US},
            &(struct sim_workload_options){.operations = 4000, .keys = 500, .side_by_side = 48});
    assert_true(crashes >= 3);
}

TEST(crashes_lose_nothing_of_long_values_in_parted_blocks)
{
    crashes = 0;
    static const uint32_t limits[] = {256, 1024, 65536};
    for (uint32_t i = 0; i < 3; i++)
        survive(20 + i,
                &(struct sim_cluster_options){.block_limit = limits[i],
                                              .workers = 2,
                                              .digests = 2,
                                              .clients = 2,
                                              .shards = 12,
                                              .max_delay_ns = 20 * NS_PER_US},
                &(struct sim_workload_options){
                    .operations = 800, .max_value_bytes = 20000, .large_in = 100});
    assert_true(crashes >= 6);
}

TEST(crashes_lose_nothing_of_one_server)
{
    crashes = 0;
    survive(31, &(struct sim_cluster_options){.servers = 1, .workers = 2, .shards = 8},
            &(struct sim_workload_options){.operations = 12000});
    assert_true(crashes >= 3);
}

/* SIM_SEEDS=FROM:TO in the environment chooses the seeds. */
TEST(any_shape_survives_crashes)
{
    crashes = 0;
    uint64_t from = 1, to = 3;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++) {
        struct random random;
        random_init(&random, seed);
        static const uint32_t limits[] = {256, 1024, 4096, 65536};
        uint32_t servers = 1 + (uint32_t)random_below(&random, 4);
        const struct sim_cluster_options shape = {
            .servers = servers,
            .replicas = 1 + (uint32_t)random_below(&random, servers < 3 ? servers : 3),
            .shards = servers * 4,
            .workers = 1 + (uint32_t)random_below(&random, 3),
            .digests = 1 + (uint32_t)random_below(&random, 2),
            .clients = 1 + (uint32_t)random_below(&random, 3),
            .max_messages = random_below(&random, 2) ? 3 : 0,
            .landing_segments = 2 + (uint32_t)random_below(&random, 3),
            .block_limit = limits[random_below(&random, 4)],
            .max_delay_ns = random_below(&random, 200) * NS_PER_US,
            .fence_ns = random_below(&random, 2) * 50 * NS_PER_US};
        if (seeds)
            print_message("# seed %lu\n", seed);
        survive(seed, &shape,
                &(struct sim_workload_options){
                    .operations = 2500,
                    .keys = 50 + (uint32_t)random_below(&random, 400),
                    .side_by_side = 4 + (uint32_t)random_below(&random, 60),
                    .max_value_bytes = 100 + (uint32_t)random_below(&random, 3000),
                    .large_in = random_below(&random, 4) ? 0 : 400});
    }
    assert_true(crashes > to - from);
}

int main(void)
{
    if (!getenv("SIM_LOG"))
        log_set_level(LOG_ERROR);
    return unit_run(NULL, NULL);
}
