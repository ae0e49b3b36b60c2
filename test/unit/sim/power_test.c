/* A cluster whose hosts lose their power at any moment, all of them or some, and are started again on what
 * the PM held: no acknowledged write is lost, none is done twice, none comes back, no answer is
 * wrong, and the replicas agree. */
#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/error.h"
#include "test/sim/sim_fault.h"

#define PM_BYTES ((uint64_t)512 << 20)

/* --- the end of everything, now and then --- */

static struct {
    uint32_t crashes;  /* of this test */
    uint32_t in_start; /* of these, before any operation was completed */
    uint32_t in_vain;  /* crashes since an operation was completed */
    uint64_t completed;
    struct sim_pm_loss loss; /* over all */
} tally;

/* A start may be cut short, but not for as long as an operation is asked again. */
static bool may_crash(const struct sim_cluster *cluster)
{
    uint64_t completed = 0;
    for (uint32_t i = 0; i < cluster->options.clients; i++)
        completed += session_completed(cluster->clients[i].session);
    tally.in_vain = completed > tally.completed ? 0 : tally.in_vain + 1;
    tally.completed = completed;
    return tally.in_vain < 3;
}

static void lose_power(struct sim_cluster *cluster, struct random *random)
{
    bool all = random_below(random, 4) != 0;
    sim_cluster_crash(cluster);
    tally.crashes++;
    tally.in_start += tally.in_vain > 0;
    for (uint32_t i = 0; i < cluster->options.servers; i++) {
        struct sim_server *server = &cluster->servers[i];
        if (!all && random_below(random, 2))
            continue;
        struct sim_pm_loss loss = sim_pm_power_loss(server->pm, random, NULL, NULL);
        server->boots++;
        tally.loss.fences += loss.fences;
        tally.loss.stores += loss.stores;
        tally.loss.words += loss.words;
        tally.loss.old += loss.old;
    }
    sim_cluster_run_for(cluster, random_below(random, 100) * NS_PER_MS);
    sim_cluster_restart(cluster, false);
}

static void disturb(struct sim_cluster *cluster, struct random *random)
{
    uint32_t servers = cluster->options.servers;
    uint64_t draw = random_below(random, 24 * servers), a = random_below(random, servers),
             b = random_below(random, servers);
    if (draw < 4 && may_crash(cluster))
        lose_power(cluster, random);
    else if (draw < 8)
        cluster->servers[a].process.stopped = !cluster->servers[a].process.stopped;
    else if (draw < 10 && a != b)
        sim_network_break(cluster->network, cluster->servers[a].process.address,
                          cluster->servers[b].process.address);
}

static void survive(uint64_t seed, uint32_t segment_bytes, const struct sim_cluster_options *shape,
                    const struct sim_workload_options *work)
{
    struct sim_cluster_options options = *shape;
    struct sim_workload_options workload = *work;
    options.seed = workload.seed = seed;
    options.timeout_ns = 60 * NS_PER_S;
    options.pm_bytes = segment_bytes == 4 << 20 ? PM_BYTES : PM_BYTES / 8;
    workload.disturb = disturb;
    tally.in_vain = 0;
    tally.completed = 0;
    fabric_segment_bytes = segment_bytes;
    sim_fault_begin(NULL);
    struct sim_cluster *cluster = sim_cluster_create(&options);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        cluster->servers[i].pm->seed = seed + i;
    stage_work(cluster, &workload);
}

static int begin(void **state)
{
    (void)state;
    memset(&tally, 0, sizeof tally);
    return 0;
}

/* --- shapes --- */

static void power_losses_cost_nothing_with_any_number_of_replicas(void **state)
{
    (void)state;
    for (uint32_t replicas = 1; replicas <= 3; replicas++)
        survive(100 + replicas, 256 << 10,
                &(struct sim_cluster_options){.servers = 3,
                                              .replicas = replicas,
                                              .clients = 2,
                                              .shards = 12,
                                              .max_delay_ns = 50 * NS_PER_US,
                                              .fence_ns = 100 * NS_PER_US},
                &(struct sim_workload_options){.operations = 2000});
    assert_true(tally.crashes >= 6 && tally.loss.old > 0);
}

static void power_losses_cost_nothing_of_values_in_many_blocks(void **state)
{
    (void)state;
    static const uint32_t limits[] = {256, 1024, 4096};
    for (uint32_t i = 0; i < 3; i++)
        survive(110 + i, 128 << 10,
                &(struct sim_cluster_options){.block_limit = limits[i],
                                              .workers = 2,
                                              .digests = 2,
                                              .clients = 2,
                                              .shards = 12,
                                              .max_delay_ns = 20 * NS_PER_US,
                                              .fence_ns = 200 * NS_PER_US},
                &(struct sim_workload_options){.operations = 600, .max_value_bytes = 20000});
    assert_true(tally.crashes >= 6 && tally.loss.old > 0);
}

static void power_losses_cost_nothing_of_one_server(void **state)
{
    (void)state;
    survive(120, 64 << 10,
            &(struct sim_cluster_options){
                .servers = 1, .workers = 2, .shards = 8, .fence_ns = 50 * NS_PER_US},
            &(struct sim_workload_options){.operations = 6000});
    assert_true(tally.crashes >= 3 && tally.loss.old > 0);
}

static void any_seed(uint64_t seed)
{
    static const uint32_t limits[] = {256, 1024, 4096, 65536},
                          segments[] = {64 << 10, 128 << 10, 256 << 10, 4 << 20},
                          fences_us[] = {1, 20, 200, 2000};
    struct random random;
    random_init(&random, seed);
    uint32_t servers = 1 + (uint32_t)random_below(&random, 4);
    uint32_t segment_bytes = segments[random_below(&random, 4)];
    const struct sim_cluster_options shape = {
        .servers = servers,
        .replicas = 1 + (uint32_t)random_below(&random, servers < 3 ? servers : 3),
        .shards = servers * 4,
        .workers = 1 + (uint32_t)random_below(&random, 3),
        .digests = 1 + (uint32_t)random_below(&random, 2),
        .clients = 1 + (uint32_t)random_below(&random, 3),
        .max_messages = random_below(&random, 2) ? 3 : 0,
        .landing_segments = 2 + (uint32_t)random_below(&random, 3),
        .block_limit = limits[random_below(&random, segment_bytes > 128 << 10 ? 4 : 3)],
        .max_delay_ns = random_below(&random, 200) * NS_PER_US,
        .fence_ns = fences_us[random_below(&random, 4)] * NS_PER_US};
    survive(seed, segment_bytes, &shape,
            &(struct sim_workload_options){
                .operations = 1500,
                .keys = 50 + (uint32_t)random_below(&random, 400),
                .side_by_side = 4 + (uint32_t)random_below(&random, 60),
                .max_value_bytes = 100 + (uint32_t)random_below(&random, 6000),
                .large_in = segment_bytes == 4 << 20 && random_below(&random, 2) ? 400 : 0});
}

/* SIM_SEEDS=FROM:TO in the environment chooses the seeds. */
static void any_shape_survives_power_losses(void **state)
{
    (void)state;
    uint64_t from = 1, to = 4;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++) {
        if (seeds)
            print_message("# seed %lu\n", seed);
        any_seed(seed);
    }
    print_message("# %u power losses, %u of them in a start; %lu fences, %lu stores, %lu of %lu "
                  "words lost\n",
                  tally.crashes, tally.in_start, tally.loss.fences, tally.loss.stores,
                  tally.loss.old, tally.loss.words);
    assert_true(tally.crashes > to - from && tally.loss.old > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin)
    const struct CMUnitTest tests[] = {
        TEST(power_losses_cost_nothing_with_any_number_of_replicas),
        TEST(power_losses_cost_nothing_of_values_in_many_blocks),
        TEST(power_losses_cost_nothing_of_one_server),
        TEST(any_shape_survives_power_losses),
    };
    if (getenv("SIM_SEEDS"))
        cmocka_set_test_filter("any_shape*");
    return cmocka_run_group_tests_name("power", tests, NULL, NULL);
}
