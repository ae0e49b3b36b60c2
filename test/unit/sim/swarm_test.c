/* What seeds draw: every run is as large as promised, and runs differ in what they have. */
#include "test/sim/swarm.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "test/lib/unit.h"

enum { SEEDS = 2000 };

TEST(every_seed_draws_a_run_of_the_promised_size)
{
    unsigned keys = 0, values = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct swarm swarm;
        swarm_draw(seed, 50, &swarm);
        const struct sim_cluster_options *cluster = &swarm.cluster;
        assert_in_range(cluster->servers, 3, 7);
        assert_in_range(cluster->replicas, 2, 3);
        assert_in_range(cluster->workers, 1, 3);
        assert_in_range(cluster->digests, 1, 2);
        assert_in_range(cluster->clients, 2, 6);
        assert_true(swarm.load.operations >= 2000);
        assert_true(swarm.load.keys > swarm.load.hot_keys && swarm.load.hot_keys > 0);
        assert_true(swarm.safety_ns >= 20 * NS_PER_S);
        assert_true(swarm.load.max_value_bytes <= ROWAN_MAX_VALUE_BYTES && swarm.load.long_in > 0);
        assert_true(swarm.load.max_key_bytes <= ROWAN_MAX_KEY_BYTES);
        keys += swarm.load.max_key_bytes > LOAD_SHORT_KEY_BYTES;
        values += swarm.load.max_value_bytes == ROWAN_MAX_VALUE_BYTES;
        assert_true(swarm.chunk_buckets > 0 && swarm.cluster.shards > 0);
        /* A block fits a segment, and a power of two is what the rooms are built for. */
        assert_true(cluster->block_limit < swarm.segment_bytes);
        assert_int_equal(swarm.segment_bytes & (swarm.segment_bytes - 1), 0);
    }
    assert_true(values > SEEDS / 100 && keys > SEEDS / 10);
}

TEST(power_is_lost_with_each_durability)
{
    unsigned lost[PM_NONE + 1] = {0}, together = 0, none = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct swarm swarm;
        swarm_draw(seed, 50, &swarm);
        lost[swarm.cluster.durability] += swarm.nemesis.power_loss_in > 0;
        together += swarm.nemesis.power_together;
        none += swarm.nemesis.power_loss_in == 0;
        assert_true(swarm.cluster.durability != PM_FENCE || !swarm.nemesis.power_together);
    }
    assert_true(lost[PM_FENCE] > SEEDS / 2 && lost[PM_ASYNC] > SEEDS / 50);
    assert_true(lost[PM_NONE] > SEEDS / 50 && together > SEEDS / 50 && none > SEEDS / 50);
}

TEST(each_fault_and_site_is_in_some_runs_and_not_in_others)
{
    unsigned faults[NEMESIS_FAULTS] = {0}, sites[FAULT_SITE_COUNT] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct swarm swarm;
        bool any = false;
        swarm_draw(seed, 50, &swarm);
        for (unsigned i = 0; i < NEMESIS_FAULTS; i++) {
            faults[i] += swarm.nemesis.weights[i] > 0;
            any |= swarm.nemesis.weights[i] > 0;
        }
        for (unsigned i = 0; i < FAULT_SITE_COUNT; i++)
            sites[i] += swarm.faults.one_in[i] > 0;
        assert_true(any);
    }
    for (unsigned i = 0; i < NEMESIS_PLAN; i++) /* that one comes with --failovers */
        assert_in_range(faults[i], SEEDS / 10, SEEDS * 9 / 10);
    for (unsigned i = 0; i < FAULT_SITE_COUNT; i++)
        assert_in_range(sites[i], SEEDS / 10, SEEDS * 9 / 10);
}

TEST(runs_with_leases_differ_in_how_they_end_and_in_what_they_have)
{
    unsigned living = 0, gone = 0, third = 0, unequal = 0, back = 0, leases = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct swarm swarm;
        swarm_draw(seed, 100, &swarm);
        const bool has = swarm.cluster.lease_ms > 0;
        leases += has;
        living += swarm.living;
        gone += swarm.gone > 0;
        third += swarm.cluster.third;
        unequal += swarm.cluster.last_pm_bytes > 0;
        back += swarm.nemesis.weights[NEMESIS_BACK] > 0;
        assert_in_range(swarm.gone, 0, swarm.cluster.servers);
        assert_true(has || (!swarm.gone && !swarm.cluster.third && !swarm.cluster.last_pm_bytes));
        assert_true(swarm.cluster.last_pm_bytes < swarm.cluster.pm_bytes);
    }
    print_message("# %u %u %u %u %u %u\n", leases, living, gone, third, unequal, back);
    assert_in_range(living, SEEDS / 3, SEEDS * 2 / 3);
    assert_in_range(gone, leases / 4, leases / 2);
    assert_in_range(third, leases / 4, leases / 2);
    assert_in_range(unequal, leases / 10, leases / 2);
    assert_in_range(back, leases / 4, leases / 2);
}

UNIT_MAIN(NULL, NULL)
