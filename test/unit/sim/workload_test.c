/* Random operations against a cluster in one thread, each answer checked against a model, and at
 * the end the digests of all replicas. Each test is one shape of a cluster. */
#include "stage.h"

#include "common/base/log.h"
#include "test/lib/unit.h"

static void cut_connections(struct sim_cluster *cluster, struct random *random)
{
    if (random_below(random, 8) == 0)
        sim_cluster_cut(cluster, random);
}

/* Each server stands still now and then, two at a time at most. */
static void stop_and_go_on(struct sim_cluster *cluster, struct random *random)
{
    struct sim_server *server = &cluster->servers[random_below(random, cluster->options.servers)];
    if (server->process.stopped)
        server->process.stopped = random_below(random, 4) != 0;
    else
        server->process.stopped = random_below(random, 16) == 0;
}

TEST(a_cluster_that_fills_up_stays_right)
{
    static const uint32_t limits[] = {65536, 1024};
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_cluster *cluster =
            sim_cluster_create(&(struct sim_cluster_options){.seed = i,
                                                             .pm_bytes = 128 << 20,
                                                             .workers = 2,
                                                             .clients = 2,
                                                             .block_limit = limits[i],
                                                             .max_delay_ns = 20 * NS_PER_US});
        struct sim_workload_result result =
            stage_work(cluster, &(struct sim_workload_options){.seed = i,
                                                               .operations = 3000,
                                                               .max_value_bytes = 100000,
                                                               .large_in = 50,
                                                               .may_be_full = true});
        assert_true(result.full > 100);
    }
}

static void disturb_at_random(struct sim_cluster *cluster, struct random *random)
{
    cut_connections(cluster, random);
    stop_and_go_on(cluster, random);
}

static void draw_shape(uint64_t seed, struct sim_cluster_options *cluster,
                       struct sim_workload_options *workload)
{
    static const uint32_t limits[] = {256, 512, 1024, 4096, 65536};
    static const uint64_t times_ns[] = {0, NS_PER_US, 50 * NS_PER_US, NS_PER_MS};
    struct random random;
    random_init(&random, seed);
    cluster->seed = seed;
    cluster->servers = 1 + (uint32_t)random_below(&random, 5);
    cluster->replicas = 1 + (uint32_t)random_below(&random, cluster->servers);
    cluster->shards = cluster->servers * (1 + (uint32_t)random_below(&random, 12));
    cluster->workers = 1 + (uint32_t)random_below(&random, 4);
    cluster->digests = 1 + (uint32_t)random_below(&random, 3);
    cluster->clients = 1 + (uint32_t)random_below(&random, 4);
    cluster->landing_segments = 2 + (uint32_t)random_below(&random, 6);
    cluster->block_limit = limits[random_below(&random, 5)];
    cluster->max_messages = 1 + (uint32_t)random_below(&random, 40);
    cluster->max_delay_ns = times_ns[random_below(&random, 4)];
    cluster->fence_ns = times_ns[random_below(&random, 4)];
    cluster->pm_bytes = (192 + random_below(&random, 600)) << 20;
    workload->seed = seed;
    workload->keys = 1 + (uint32_t)random_below(&random, 300);
    workload->side_by_side = 1 + (uint32_t)random_below(&random, 64);
    workload->max_value_bytes =
        1 + (uint32_t)(random_u64(&random) >> (44 + random_below(&random, 15)));
    workload->large_in = random_below(&random, 2) ? 0 : 100;
    workload->may_be_full = true;
    workload->disturb = random_below(&random, 3) ? disturb_at_random : NULL;
}

/* SIM_SEEDS=FROM:TO in the environment chooses the seeds. */
TEST(every_shape_of_cluster_has_the_right_answers)
{
    uint64_t from = 1, to = 12;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++) {
        struct sim_cluster_options options = {0};
        struct sim_workload_options workload = {0};
        draw_shape(seed, &options, &workload);
        print_message("# seed %lu\n", seed);
        stage_work(sim_cluster_create(&options), &workload);
    }
}

int main(void)
{
    log_set_level(getenv("SIM_LOG") ? LOG_DEBUG : LOG_ERROR);
    if (getenv("SIM_SEEDS"))
        cmocka_set_test_filter("every_shape*");
    return unit_run(NULL, NULL);
}
