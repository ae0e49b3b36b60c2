/* The clients of a run, in a cluster that is well: every call has one answer, and all kinds and outcomes occur. In one
 * that breaks rowan-sim judges them. */
#include "checks_stage.h"
#include "client/session_internal.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/sim/load_value.h"
#include "test/sim/mutant.h"
#include "test/sim/sim_fault.h"

static const struct load_options LOAD = {.operations = 4000,
                                         .keys = 60,
                                         .hot_keys = 4,
                                         .depth = 8,
                                         .mean_pause_ns = 2 * NS_PER_MS,
                                         .max_value_bytes = 20000,
                                         .long_in = 40,
                                         .forged_in = 20,
                                         .gets = 40,
                                         .puts = 30,
                                         .put_ifs = 20,
                                         .deletes = 10};

static const struct sim_cluster_options SHAPE = {.shards = 6,
                                                 .clients = 3,
                                                 .block_limit = 4096,
                                                 .pm_bytes = 23 << 20,
                                                 .max_delay_ns = 100 * NS_PER_US,
                                                 .fence_ns = 20 * NS_PER_US};

/* --- a run --- */

static uint64_t acknowledged;

static void count_acknowledged(void *context, uint32_t key, uint64_t version)
{
    (void)context;
    assert_true(key < load_keys(stage.load) && version > 0);
    acknowledged++;
}

static void open_stage(uint64_t seed, const struct sim_cluster_options *shape,
                       const struct load_options *load)
{
    checks_stage_open_load(&stage, seed, 128 << 10, shape, load);
    load_on_acknowledged(stage.load, count_acknowledged, NULL);
    acknowledged = 0;
}

static void run_stage(void)
{
    while (!load_is_over(stage.load))
        checks_stage_step(&stage);
    assert_true(checks_stage_settle(&stage));
    load_read_all(stage.load);
    assert_true(checks_stage_settle(&stage));
}

static void run_until_posted(uint64_t operations)
{
    while (!stage.failure.kind && load_posted(stage.load) < operations)
        checks_stage_step(&stage);
}

/* --- what a history must be --- */

static void assert_whole(void)
{
    const struct history *history = &stage.history;
    assert_int_equal(history->count, load_posted(stage.load));
    assert_int_equal(history->events, 2 * history->count);
    uint64_t done = 0;
    for (size_t i = 0; i < history->count; i++) {
        const struct history_op *op = &history->ops[i];
        assert_true(op->outcome != HISTORY_OPEN && op->answered > op->called);
        assert_true(op->answered_ns >= op->called_ns);
        done += op->kind != HISTORY_GET && op->outcome == HISTORY_DONE;
    }
    assert_int_equal(done, acknowledged);
}

static size_t count_ops(enum history_kind kind, enum history_outcome outcome)
{
    size_t count = 0;
    for (size_t i = 0; i < stage.history.count; i++)
        count += stage.history.ops[i].kind == kind && stage.history.ops[i].outcome == outcome;
    return count;
}

/* --- tests --- */

TEST(a_cluster_that_is_well_answers_everything)
{
    open_stage(1, &SHAPE, &LOAD);
    uint64_t from_ns = stage.cluster->clock.now_ns;
    run_stage();
    uint64_t pause_ns = (stage.cluster->clock.now_ns - from_ns) * SHAPE.clients / LOAD.operations;
    assert_int_equal(load_posted(stage.load), LOAD.operations + LOAD.keys);
    assert_whole();
    assert_true(count_ops(HISTORY_GET, HISTORY_DONE) > 500);
    assert_true(count_ops(HISTORY_GET, HISTORY_ABSENT) > 50);
    size_t unseen = 0, hot = 0, same = 0; /* too small a buffer; of few keys; values */
    uint64_t last = 0;
    for (size_t i = 0; i < stage.history.count; i++) {
        const struct history_op *op = &stage.history.ops[i];
        unseen += op->kind == HISTORY_GET && op->outcome == HISTORY_DONE && op->value == 0;
        hot += op->key < LOAD.hot_keys;
        if (op->kind == HISTORY_PUT || op->kind == HISTORY_PUT_IF) {
            same += op->value == last;
            last = op->value;
        }
    }
    assert_in_range(same, 0, 20); /* empty ones, or one put again */
    assert_in_range(unseen, 10, 200);
    assert_in_range(hot, LOAD.operations * 45 / 100, LOAD.operations * 60 / 100);
    assert_in_range(pause_ns, LOAD.mean_pause_ns * 9 / 10, LOAD.mean_pause_ns * 5 / 4);
    assert_true(count_ops(HISTORY_PUT, HISTORY_DONE) > 500);
    assert_true(count_ops(HISTORY_PUT_IF, HISTORY_DONE) > 100);
    assert_true(count_ops(HISTORY_PUT_IF, HISTORY_MISMATCH) > 100);
    assert_true(count_ops(HISTORY_DELETE, HISTORY_DONE) > 100);
    assert_true(count_ops(HISTORY_DELETE, HISTORY_ABSENT) > 20);
    for (enum history_kind kind = HISTORY_GET; kind <= HISTORY_DELETE; kind++)
        assert_int_equal(count_ops(kind, HISTORY_UNKNOWN), 0);
    checks_stage_close(&stage);
}

TEST(a_cluster_that_says_falsely_that_it_is_full_is_found_out)
{
    for (int refused = 0; refused < 2; refused++) {
        struct sim_fault_options sites = {.seed = 1};
        sites.one_in[FAULT_NO_SEGMENT] = 20;
        struct sim_cluster_options shape = SHAPE;
        shape.pm_bytes = refused ? SHAPE.pm_bytes : 13 << 20;
        struct load_options load = LOAD;
        load.long_in = refused ? LOAD.long_in : 2;
        load.keys = refused ? LOAD.keys : 2000; /* more than there is space for */
        open_stage(1, &shape, &load);
        sim_fault_begin(refused ? &sites : NULL);
        while (!stage.failure.kind && !load_is_over(stage.load))
            checks_stage_step(&stage);
        assert_int_equal(stage.failure.kind, refused ? FAILURE_NONE : FAILURE_CORRECTNESS);
        if (refused)
            assert_true(sim_fault_count(FAULT_NO_SEGMENT) > 20);
        else
            assert_non_null(strstr(stage.failure.why, "PM is not full"));
        sim_fault_begin(NULL);
        checks_stage_close(&stage);
    }
}

TEST(a_load_that_is_stopped_posts_nothing_more)
{
    open_stage(4, &SHAPE, &LOAD);
    run_until_posted(100);
    uint64_t posted = load_posted(stage.load);
    load_stop(stage.load);
    assert_true(load_is_over(stage.load));
    assert_true(load_next_ns(stage.load) == WAKE_NEVER);
    checks_stage_settle(&stage);
    assert_int_equal(load_posted(stage.load), posted);
    checks_stage_close(&stage);
}

TEST(a_cluster_that_takes_no_writes_after_the_last_fault_is_found_out)
{
    open_stage(6, &SHAPE, &LOAD);
    run_until_posted(100);
    load_stop(stage.load);
    checks_stage_settle(&stage);
    sim_cluster_stop(stage.cluster, &stage.cluster->servers[1].process, true);
    load_write_some(stage.load);
    checks_stage_settle(&stage);
    assert_int_equal(stage.failure.kind, FAILURE_LIVENESS);
    assert_non_null(strstr(stage.failure.why, "long after the last fault"));
    checks_stage_close(&stage);
}

/* A server stands still. One client gives its operations up at half of their timeout, or none does. */
static void run_into_timeouts(uint64_t seed, bool early)
{
    struct sim_cluster_options shape = SHAPE;
    shape.timeout_ns = 300 * NS_PER_MS;
    shape.drift_ppm = 10000;
    open_stage(seed, &shape, &LOAD);
    run_until_posted(100);
    if (early)
        stage.cluster->clients[1].session->timeout_ns /= 2;
    sim_cluster_stop(stage.cluster, &stage.cluster->servers[1].process, true);
    run_until_posted(400);
    assert_int_equal(stage.failure.kind, early ? FAILURE_CORRECTNESS : FAILURE_NONE);
    if (early)
        assert_non_null(strstr(stage.failure.why, "client-2: "));
    if (early)
        assert_non_null(strstr(stage.failure.why, "its timeout is not over"));
    checks_stage_close(&stage);
}

TEST(a_client_that_gives_up_before_its_timeout_is_found_out)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        run_into_timeouts(seed, true);
        run_into_timeouts(seed, false);
    }
}

TEST(what_is_asked_again_after_the_last_fault_must_be_answered)
{
    const struct nemesis_options none = {.mean_pause_ns = NS_PER_S};
    for (int broken = 0; broken < 2; broken++) {
        open_stage(7, &SHAPE, &LOAD);
        sim_mutant_set(broken ? MUTANT_TAKE_OVER_SKIPPED : MUTANT_COUNT);
        stage.nemesis = nemesis_create(stage.cluster, &none);
        run_until_posted(200);
        load_stop(stage.load);
        checks_stage_settle(&stage);
        nemesis_heal(stage.nemesis);
        size_t before = stage.history.count;
        load_write_all(stage.load, 20 * NS_PER_S);
        nemesis_cut_each(stage.nemesis, 4 * SHAPE.max_delay_ns);
        while (load_outstanding(stage.load) > 0)
            checks_stage_step(&stage);
        assert_int_equal(stage.history.count, before + LOAD.keys);
        assert_int_equal(stage.failure.kind, broken ? FAILURE_LIVENESS : FAILURE_NONE);
        uint32_t kinds[4] = {0}, clients[3] = {0};
        for (size_t i = before; i < stage.history.count; i++) {
            kinds[stage.history.ops[i].kind]++;
            clients[stage.history.ops[i].client]++;
        }
        for (enum history_kind kind = HISTORY_PUT; kind <= HISTORY_DELETE; kind++)
            assert_int_equal(kinds[kind], LOAD.keys / 3);
        for (uint32_t i = 0; i < SHAPE.clients; i++)
            assert_true(clients[i] >= LOAD.depth);
        sim_mutant_set(MUTANT_COUNT);
        checks_stage_close(&stage);
    }
}

TEST(a_client_that_stands_still_posts_nothing)
{
    open_stage(5, &SHAPE, &LOAD);
    sim_cluster_stop(stage.cluster, &stage.cluster->clients[1].process, true);
    run_until_posted(100);
    for (size_t i = 0; i < stage.history.count; i++)
        assert_int_not_equal(stage.history.ops[i].client, 1);
    checks_stage_close(&stage);
}

TEST(keys_are_different_and_short_enough)
{
    struct load_options many = LOAD;
    many.keys = 1000;
    open_stage(1, &SHAPE, &many);
    char keys[1000][64];
    uint32_t bytes[1000];
    bool longest = false, shortest = false;
    for (uint32_t i = 0; i < 1000; i++) {
        bytes[i] = load_key(stage.load, i, keys[i]);
        assert_in_range(bytes[i], 1, 64);
        longest |= bytes[i] == 64;
        shortest |= bytes[i] == 1;
        for (uint32_t j = 0; j < i; j++)
            assert_true(bytes[j] != bytes[i] || memcmp(keys[j], keys[i], bytes[i]) != 0);
    }
    assert_true(longest && shortest);
    checks_stage_close(&stage);
}

/* --- false entries --- */

static void put_foreign(const void *value, size_t bytes)
{
    char key[64];
    for (uint32_t i = 0; i < load_keys(stage.load); i++)
        assert_int_equal(
            sim_put(stage.cluster, 0, key, load_key(stage.load, i, key), value, bytes, NULL), 0);
}

TEST(what_nobody_wrote_is_a_failure)
{
    struct load_options gets = LOAD;
    gets.puts = gets.put_ifs = gets.deletes = 0;
    gets.max_value_bytes = 1000;
    const struct load_false_entry entry = {
        .type = ENTRY_PUT, .version = 1, .key_bytes = 1, .key = "k"};
    uint8_t value[1001];
    load_value_make(&(struct random){.s = {1}}, 1, value, sizeof value);
    assert_true(load_value_forge(&entry, 4096, 32, 0, value, sizeof value, 8) > 0);
    uint32_t at = 0;
    while (at < 1000 && !load_value_is_false(value + at, 16))
        at++;
    assert_true(at < 1000);
    for (int long_one = 0; long_one < 2; long_one++) {
        open_stage(1, &SHAPE, &gets);
        if (long_one)
            put_foreign(value, 1001);
        else
            put_foreign(value + at, 16);
        run_until_posted(200);
        assert_int_equal(stage.failure.kind, FAILURE_CORRECTNESS);
        assert_non_null(strstr(stage.failure.why, long_one ? "nobody wrote" : "false entry"));
        checks_stage_close(&stage);
    }
}

UNIT_MAIN(NULL, NULL)
