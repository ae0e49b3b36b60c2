/* All hosts of a cluster lose their power after a run that fenced less than the one before: what the first one
 * acknowledged is there. Power losses of runs that fence are rowan-sim's, and shapes_test.c's. */
#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/sim/sim_fault.h"
#include "test/sim/sim_log.h"

enum { KEYS = 60, VALUE_BYTES = 700 };

static void make_value(uint32_t key, uint32_t round, uint8_t *value)
{
    struct random random;
    random_init(&random, (uint64_t)round << 32 | key);
    for (uint32_t i = 0; i < VALUE_BYTES; i += 4) {
        uint32_t word = (uint32_t)random_u64(&random);
        memcpy(value + i, &word, 4);
    }
}

static void put_keys(struct sim_cluster *cluster, uint32_t from, uint32_t to, uint32_t round)
{
    for (uint32_t key = from; key < to; key++) {
        char name[16];
        uint8_t value[VALUE_BYTES];
        size_t name_bytes = (size_t)snprintf(name, sizeof name, "key-%u", key);
        make_value(key, round, value);
        assert_int_equal(sim_put(cluster, 0, name, name_bytes, value, sizeof value, NULL), 0);
    }
}

/* The round that the key's value is of; 0: it is not there. A value of no round is half. */
static uint32_t round_of(struct sim_cluster *cluster, uint32_t key, uint32_t rounds)
{
    char name[16];
    uint8_t got[VALUE_BYTES], value[VALUE_BYTES];
    size_t bytes = 0, name_bytes = (size_t)snprintf(name, sizeof name, "key-%u", key);
    int error = sim_get(cluster, 0, name, name_bytes, got, sizeof got, &bytes, NULL);
    if (error == ROWAN_ENOTFOUND)
        return 0;
    assert_int_equal(error, 0);
    assert_int_equal(bytes, VALUE_BYTES);
    for (uint32_t round = 1; round <= rounds; round++) {
        make_value(key, round, value);
        if (memcmp(got, value, sizeof value) == 0)
            return round;
    }
    fail_msg("key %u has a value that nobody put", key);
    return 0;
}

static struct sim_cluster *open_cluster(uint64_t seed, enum pm_durability durability)
{
    fabric_segment_bytes = 128 << 10;
    sim_fault_begin(NULL);
    struct sim_cluster_options options = {.seed = seed,
                                          .replicas = 2,
                                          .shards = 6,
                                          .block_limit = 256,
                                          .pm_bytes = 32 << 20,
                                          .durability = durability,
                                          .max_delay_ns = 50 * NS_PER_US,
                                          .fence_ns = 100 * NS_PER_US};
    options.journal = journal_create(NULL, getenv("SIM_LOG") ? stderr : NULL);
    sim_log_journal(options.journal);
    return sim_cluster_create(&options);
}

/* Its replicas agree and hold so many objects, and it is destroyed. */
static void finish(struct sim_cluster *cluster, uint64_t objects)
{
    struct journal *journal = cluster->options.journal;
    stage_finish(cluster, objects);
    sim_log_journal(NULL);
    journal_destroy(journal);
}

static void lose_power(struct sim_cluster *cluster, struct random *random)
{
    for (uint32_t i = 1; i <= cluster->options.servers; i++)
        sim_cluster_kill_server(cluster, i, random);
    sim_cluster_kill_cm(cluster);
    sim_cluster_restart(cluster, false);
}

/* Keys of a run with fences, of one without and of both; then all hosts lose their power. Whether keys were lost. */
static bool lose_an_unfenced_run(uint64_t seed, enum pm_durability weak)
{
    struct random random;
    random_init(&random, seed);
    struct sim_cluster *cluster = open_cluster(seed, PM_FENCE);
    put_keys(cluster, 0, 2 * KEYS / 3, 1);
    sim_cluster_crash(cluster);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        cluster->servers[i].pm->pm.durability = weak;
    sim_cluster_restart(cluster, false);
    put_keys(cluster, KEYS / 3, KEYS, 2);
    lose_power(cluster, &random);
    uint64_t objects = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        uint32_t round = round_of(cluster, key, 2);
        assert_true(round == 1 || key >= KEYS / 3);
        assert_true(round != 0 || key >= 2 * KEYS / 3);
        assert_true(round != 1 || key < 2 * KEYS / 3);
        objects += round != 0;
    }
    finish(cluster, objects);
    return objects < KEYS;
}

/* Of how many seeds; SIM_SEEDS=1:TO in the environment says fewer. */
static uint64_t last_seed(void)
{
    uint64_t to = 20;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "1:%lu", &to), 1);
    return to;
}

TEST(what_was_fenced_survives_the_loss_of_a_later_run_without_fences)
{
    uint32_t lost = 0;
    for (uint64_t seed = 1; seed <= last_seed(); seed++)
        lost += lose_an_unfenced_run(seed, seed % 2 ? PM_NONE : PM_ASYNC);
    assert_true(lost > 0);
}

/* However often, and whatever of the first bytes of the map was not written back. */
TEST(servers_that_never_fenced_start_again_after_each_loss_of_power)
{
    for (uint64_t seed = 1; seed <= last_seed(); seed++) {
        struct random random;
        random_init(&random, seed);
        struct sim_cluster *cluster = open_cluster(seed, seed % 2 ? PM_NONE : PM_ASYNC);
        lose_power(cluster, &random);
        put_keys(cluster, 0, KEYS, 1);
        lose_power(cluster, &random);
        lose_power(cluster, &random);
        uint64_t objects = 0;
        for (uint32_t key = 0; key < KEYS; key++)
            objects += round_of(cluster, key, 1);
        finish(cluster, objects);
    }
}

UNIT_MAIN(NULL, NULL)
