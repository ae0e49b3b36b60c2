/* Random operations against a cluster in one thread, each answer checked against a model, and at
 * the end the digests of all replicas. Each test is one shape of a cluster. */
#include "stage.h"

#include "common/base/log.h"
#include "test/lib/unit.h"

TEST(many_operations_have_the_right_answers)
{
    struct sim_cluster *cluster =
        sim_cluster_create(&(struct sim_cluster_options){.seed = 11,
                                                         .shards = 64,
                                                         .workers = 3,
                                                         .digests = 2,
                                                         .clients = 2,
                                                         .max_delay_ns = 50 * NS_PER_US});
    struct sim_workload_result result =
        stage_work(cluster, &(struct sim_workload_options){
                                .seed = 12, .operations = 20000, .keys = 1000, .side_by_side = 48});
    assert_true(result.gets > 5000 && result.puts > 3000 && result.conditional_puts > 1500 &&
                result.deletes > 1500);
}

TEST(any_number_of_replicas_agrees)
{
    for (uint32_t replicas = 1; replicas <= 5; replicas++) {
        struct sim_cluster *cluster =
            sim_cluster_create(&(struct sim_cluster_options){.seed = replicas,
                                                             .servers = replicas < 3 ? 3 : 5,
                                                             .replicas = replicas,
                                                             .max_delay_ns = 20 * NS_PER_US});
        stage_work(cluster, &(struct sim_workload_options){.seed = replicas, .operations = 1500});
    }
}

TEST(one_server_is_a_cluster)
{
    struct sim_cluster *cluster =
        sim_cluster_create(&(struct sim_cluster_options){.seed = 5, .servers = 1, .workers = 2});
    stage_work(cluster, &(struct sim_workload_options){.seed = 5});
}

TEST(long_entries_of_several_senders_are_joined)
{
    static const uint32_t limits[] = {256, 1024};
    for (uint32_t i = 0; i < 2; i++) {
        struct sim_cluster *cluster =
            sim_cluster_create(&(struct sim_cluster_options){.seed = i,
                                                             .block_limit = limits[i],
                                                             .workers = 2,
                                                             .digests = 2,
                                                             .clients = 2,
                                                             .pm_bytes = 512 << 20});
        struct sim_workload_options options = {
            .seed = i, .operations = 1500, .max_value_bytes = 20000, .large_in = 100};
        struct sim_workload_result result;
        sim_workload_run(cluster, &options, &result);
        if (!result.right)
            print_error("%s\n", result.why);
        assert_true(result.right);
        assert_true(sim_network_counts(cluster->network).mixed > 1000);
        stage_finish(cluster, result.objects);
    }
}

TEST(fences_that_take_time_hold_nothing_up)
{
    struct sim_cluster *cluster = sim_cluster_create(&(struct sim_cluster_options){
        .seed = 8, .fence_ns = 200 * NS_PER_US, .max_delay_ns = 30 * NS_PER_US});
    stage_work(cluster, &(struct sim_workload_options){.seed = 8, .operations = 3000});
}

static void cut_connections(struct sim_cluster *cluster, struct random *random)
{
    if (random_below(random, 8) == 0)
        sim_cluster_cut(cluster, random);
}

TEST(connections_may_break)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct sim_cluster *cluster =
            sim_cluster_create(&(struct sim_cluster_options){.seed = seed,
                                                             .workers = 2,
                                                             .clients = 2,
                                                             .max_delay_ns = 100 * NS_PER_US,
                                                             .block_limit = 1024,
                                                             .fence_ns = 10 * NS_PER_US});
        stage_work(cluster, &(struct sim_workload_options){.seed = seed,
                                                           .operations = 2000,
                                                           .max_value_bytes = 3000,
                                                           .disturb = cut_connections});
    }
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

TEST(servers_may_stand_still)
{
    struct sim_cluster *cluster = sim_cluster_create(&(struct sim_cluster_options){
        .seed = 3, .landing_segments = 2, .max_delay_ns = 100 * NS_PER_US, .pm_bytes = 1 << 30});
    stage_work(cluster, &(struct sim_workload_options){.seed = 3,
                                                       .operations = 3000,
                                                       .max_value_bytes = 50000,
                                                       .disturb = stop_and_go_on});
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

TEST(small_queues_slow_down_and_fail_nothing)
{
    struct sim_cluster *cluster = sim_cluster_create(&(struct sim_cluster_options){
        .seed = 4, .max_messages = 2, .clients = 3, .max_delay_ns = 20 * NS_PER_US});
    stage_work(cluster,
               &(struct sim_workload_options){.seed = 4, .operations = 3000, .side_by_side = 64});
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

static uint64_t hash_of_a_run(uint64_t seed)
{
    struct sim_cluster *cluster =
        sim_cluster_create(&(struct sim_cluster_options){.seed = seed,
                                                         .workers = 2,
                                                         .digests = 2,
                                                         .clients = 2,
                                                         .max_delay_ns = 100 * NS_PER_US,
                                                         .fence_ns = 10 * NS_PER_US});
    struct sim_workload_result result;
    sim_workload_run(
        cluster, &(struct sim_workload_options){.seed = seed, .disturb = cut_connections}, &result);
    assert_true(result.right);
    uint64_t hash = result.hash ^ sim_network_trace(cluster->network) ^ cluster->clock.now_ns;
    sim_cluster_destroy(cluster);
    return hash;
}

TEST(equal_seeds_give_equal_runs)
{
    uint64_t hash = hash_of_a_run(21);
    print_message("# hash %lx\n", hash);
    assert_true(hash == hash_of_a_run(21));
    assert_true(hash != hash_of_a_run(22));
}

int main(void)
{
    log_set_level(getenv("SIM_LOG") ? LOG_DEBUG : LOG_ERROR);
    if (getenv("SIM_SEEDS"))
        cmocka_set_test_filter("every_shape*");
    return unit_run(NULL, NULL);
}
