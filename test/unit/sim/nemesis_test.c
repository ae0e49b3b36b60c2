/* The nemesis: every fault it knows comes and goes, within the promise, and after the last one the cluster works. */
#include "checks_stage.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/sim/digests.h"
#include "test/sim/sim_log.h"

enum { SERVERS = 3, CLIENTS = 2 };

static const struct load_options LOAD = {.operations = 1000000,
                                         .keys = 40,
                                         .hot_keys = 4,
                                         .depth = 4,
                                         .mean_pause_ns = 10 * NS_PER_MS,
                                         .max_value_bytes = 1000,
                                         .long_in = 20,
                                         .gets = 20,
                                         .puts = 60};

static uint64_t first_incarnations; /* their sum */

static uint64_t sum_incarnations(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < SERVERS; i++)
        sum += stage.cluster->servers[i].incarnation;
    return sum;
}

static void open_stage(uint64_t seed, enum pm_durability durability,
                       const struct nemesis_options *faults)
{
    const struct sim_cluster_options shape = {
        .servers = SERVERS,
        .clients = CLIENTS,
        .shards = 6,
        .block_limit = 1024,
        .durability = durability,
        .lease_ms = (uint32_t)(faults->lease_ns / NS_PER_MS),
        .pm_bytes = 48 << 20,
        .timeout_ns = 2 * NS_PER_S,
        .max_delay_ns = 200 * NS_PER_US,
        .fence_ns = 100 * NS_PER_US,
        .silence_ns = 300 * NS_PER_MS,
        .drift_ppm = 10000,
        .registry = {.max_delay_ns = 2 * NS_PER_MS, .session_ns = NS_PER_S}};
    checks_stage_open_load(&stage, seed, 64 << 10, &shape, &LOAD);
    checks_stage_add_checks(&stage);
    sim_log_journal(stage.journal);
    stage.nemesis = nemesis_create(stage.cluster, faults);
    first_incarnations = sum_incarnations();
}

static void close_stage(void)
{
    sim_log_journal(NULL);
    checks_stage_close(&stage);
}

static void heal(void)
{
    struct sim_cluster *cluster = stage.cluster;
    load_stop(stage.load);
    nemesis_heal(stage.nemesis);
    assert_true(nemesis_next_ns(stage.nemesis) == WAKE_NEVER);
    for (uint32_t i = 0; i < sim_cluster_processes(cluster); i++) {
        assert_false(sim_cluster_process(cluster, i)->stopped);
        assert_int_equal(sim_cluster_process(cluster, i)->slow_ns, 0);
    }
    assert_non_null(cluster->cm);
    assert_null(cluster->rival.cm);
    checks_stage_settle(&stage);
}

/* After the last fault: writes work, what was acknowledged is there, replicas agree. */
static void work_on(void)
{
    struct sim_digests digests;
    load_write_shards(stage.load);
    checks_stage_settle(&stage);
    load_read_all(stage.load);
    checks_stage_settle(&stage);
    checks_stage_expect(&stage, NULL);
    if (!sim_digests_agree(stage.cluster, 30 * NS_PER_S, NULL, NULL, &digests))
        fail_msg("%s", digests.why);
}

static struct nemesis_options all_faults(uint64_t seed)
{
    struct nemesis_options options = {.seed = seed,
                                      .mean_pause_ns = 500 * NS_PER_MS,
                                      .max_length_ns = NS_PER_S,
                                      .deaf_ns = NS_PER_S,
                                      .power_loss_in = 2};
    for (unsigned i = 0; i < NEMESIS_PLAN; i++)
        options.weights[i] = 1;
    return options;
}

/* --- the tests --- */

TEST(each_fault_comes_and_goes_and_leaves_a_cluster_that_works)
{
    for (unsigned fault = 0; fault < NEMESIS_PLAN; fault++) { /* that one needs leases */
        struct nemesis_options options = all_faults(fault);
        memset(options.weights, 0, sizeof options.weights);
        options.weights[fault] = 1;
        options.lease_ns = fault == NEMESIS_SPLIT ? 100 * NS_PER_MS : 0;
        open_stage(100 + fault, PM_FENCE, &options);
        checks_stage_run_for(&stage, 12 * NS_PER_S);
        checks_stage_expect(&stage, NULL);
        struct nemesis_counts counts = nemesis_counts(stage.nemesis);
        assert_true(counts.injected[fault] >= 3);
        assert_int_equal(counts.faults, counts.injected[fault]);
        /* In a split one is removed while it runs, and starts again. */
        const bool kills_servers = fault == NEMESIS_KILL_ALL || fault == NEMESIS_KILL_ONE ||
                                   fault == NEMESIS_DEAF || fault == NEMESIS_SPLIT;
        assert_int_equal(sum_incarnations() != first_incarnations, kills_servers);
        assert_int_equal(counts.crashes > 0,
                         kills_servers || fault == NEMESIS_KILL_CM || fault == NEMESIS_KILL_CLIENT);
        assert_int_equal(counts.partitions > 0,
                         fault == NEMESIS_PART_ONE_WAY || fault == NEMESIS_PART_BOTH_WAYS ||
                             fault == NEMESIS_DEAF || fault == NEMESIS_SPLIT);
        heal();
        work_on();
        print_message("# %s: %lu times, %lu operations\n", nemesis_name((enum nemesis_fault)fault),
                      counts.injected[fault], load_posted(stage.load));
        assert_true(checks_counts(stage.checks).acknowledged > 50);
        close_stage();
    }
}

/* A server ends now and then, or there was never an older configuration. */
static void open_back_stage(void)
{
    struct nemesis_options options = all_faults(7);
    memset(options.weights, 0, sizeof options.weights);
    options.weights[NEMESIS_BACK] = 4;
    options.weights[NEMESIS_KILL_ONE] = 1;
    options.lease_ns = 100 * NS_PER_MS;
    open_stage(7, PM_FENCE, &options);
}

/* Nobody stores anything behind the old one (C7), and what acted on it ends. */
TEST(a_stored_configuration_that_goes_back_ends_managers_and_all_goes_on_once_it_is_the_newest)
{
    open_back_stage();
    checks_stage_run_for(&stage, 20 * NS_PER_S);
    checks_stage_expect(&stage, NULL);
    struct nemesis_counts counts = nemesis_counts(stage.nemesis);
    assert_in_range(counts.injected[NEMESIS_BACK], 2, 100);
    assert_int_equal(counts.injected[NEMESIS_BACK], stage.cluster->went_back);
    assert_true(counts.refusers > 0);
    heal();
    assert_int_equal(stage.cluster->back_version, 0);
    work_on();
    close_stage();
}

TEST(what_is_stored_behind_an_old_configuration_is_found)
{
    open_back_stage();
    for (uint32_t i = 0; i < 20000 && !stage.cluster->back_version; i++)
        checks_stage_run_for(&stage, NS_PER_MS);
    assert_int_not_equal(stage.cluster->back_version, 0);
    const void *value;
    size_t bytes;
    sim_registry_value(stage.cluster->registry, &value, &bytes);
    void *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, value, bytes);
    sim_registry_store(stage.cluster->registry, copy, bytes);
    checks_stage_rounds(&stage, 1);
    checks_stage_expect(&stage, "C7");
    close_stage();
}

TEST(where_hosts_lose_power_together_none_does_so_alone)
{
    struct nemesis_options options = all_faults(3);
    options.power_loss_in = 1;
    options.power_together = true;
    open_stage(3, PM_NONE, &options);
    checks_stage_run_for(&stage, 20 * NS_PER_S);
    checks_stage_expect(&stage, NULL);
    assert_true(nemesis_counts(stage.nemesis).power_losses > 0);
    for (uint32_t i = 1; i < SERVERS; i++)
        assert_int_equal(stage.cluster->servers[i].boots, stage.cluster->servers[0].boots);
    assert_true(checks_counts(stage.checks).losses > 0);
    heal();
    work_on();
    close_stage();
}

/* Of all that were partitioned; no two were so twice. */
static uint32_t count_pairs(void)
{
    static const char words[] = "loses its connections with ";
    char *lines = NULL;
    size_t bytes = 0;
    uint32_t pairs = 0;
    FILE *out = open_memstream(&lines, &bytes);
    journal_tell(stage.journal, JOURNAL_NO_KEY, JOURNAL_NO_SHARD, 1000, out);
    fclose(out);
    for (const char *at = lines; (at = strstr(at, words)); at++, pairs++) {
        const char *node = at - 1;
        while (node > lines && node[-1] != '\n')
            node--;
        node = strstr(node, "server-");
        char pair[128];
        snprintf(pair, sizeof pair, "%.*s", (int)(strchr(at, '\n') - node), node);
        assert_null(strstr(at + 1, pair));
    }
    free(lines);
    return pairs;
}

TEST(after_the_last_fault_each_pair_of_processes_can_be_partitioned_once)
{
    enum { PAIRS = SERVERS * (SERVERS - 1) / 2 + SERVERS * CLIENTS };
    const uint64_t span_ns = 10 * NS_PER_MS;
    const struct nemesis_options none = {.mean_pause_ns = NS_PER_S};
    open_stage(5, PM_FENCE, &none);
    checks_stage_run_for(&stage, NS_PER_S);
    const uint64_t from_ns = stage.cluster->clock.now_ns;
    uint64_t next_ns, last_ns = 0;
    nemesis_heal(stage.nemesis);
    nemesis_cut_each(stage.nemesis, span_ns);
    while ((next_ns = nemesis_next_ns(stage.nemesis)) != WAKE_NEVER) {
        last_ns = next_ns;
        checks_stage_step(&stage);
    }
    assert_in_range(last_ns - from_ns, span_ns / 2, span_ns);
    assert_int_equal(count_pairs(), PAIRS);
    heal();
    work_on();
    assert_int_equal(nemesis_counts(stage.nemesis).faults, 0);
    close_stage();
}

UNIT_MAIN(NULL, NULL)
