/* The clients of a run: every call has one answer, all kinds and outcomes occur, and what is read was written;
 * in a cluster that is well, and in one that breaks.
 *
 * SIM_SEEDS=FROM:TO in the environment: only the cluster that breaks, with these seeds. */
#include "client/rowan.h"

#include "client/session_internal.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/sim/linear.h"
#include "test/sim/load.h"
#include "test/sim/load_value.h"
#include "test/sim/nemesis.h"
#include "test/sim/sim_fault.h"

#define ANSWER_NS (120 * NS_PER_S) /* every operation has its answer in so long */

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
                                                 .pm_bytes = 16 << 20,
                                                 .max_delay_ns = 100 * NS_PER_US,
                                                 .fence_ns = 20 * NS_PER_US};

/* --- a run --- */

struct stage {
    struct sim_cluster *cluster;
    struct journal *journal;
    struct history history;
    struct failure failure;
    struct load *load;
    struct random random;
    uint64_t next_fault_ns, acknowledged;
    uint32_t crashes;
};

static void count_acknowledged(void *context, uint32_t key, uint64_t version)
{
    struct stage *stage = context;
    assert_true(key < load_keys(stage->load) && version > 0);
    stage->acknowledged++;
}

static void stage_open(struct stage *stage, uint64_t seed, const struct sim_cluster_options *shape,
                       const struct load_options *load)
{
    *stage = (struct stage){.failure = {.kind = FAILURE_NONE}};
    fabric_segment_bytes = 128 << 10;
    sim_fault_begin(NULL);
    random_init(&stage->random, seed);
    struct sim_cluster_options options = *shape;
    options.seed = seed;
    stage->journal = journal_create(NULL, NULL);
    options.journal = stage->journal;
    stage->cluster = sim_cluster_create(&options);
    history_init(&stage->history);
    struct load_options filled = *load;
    filled.seed = seed;
    stage->load = load_create(stage->cluster, &filled, &stage->history, &stage->failure);
    load_on_acknowledged(stage->load, count_acknowledged, stage);
    stage->next_fault_ns = stage->cluster->clock.now_ns;
}

static void stage_close(struct stage *stage)
{
    load_destroy(stage->load);
    sim_cluster_destroy(stage->cluster);
    history_fini(&stage->history);
    journal_destroy(stage->journal);
}

/* Everything ends and starts again, connections are cut, a server stands still. */
static void disturb(struct stage *stage)
{
    struct sim_cluster *cluster = stage->cluster;
    if (cluster->clock.now_ns < stage->next_fault_ns)
        return;
    stage->next_fault_ns = cluster->clock.now_ns + random_below(&stage->random, 400 * NS_PER_MS);
    uint64_t draw = random_below(&stage->random, 8);
    struct sim_server *server =
        &cluster->servers[random_below(&stage->random, cluster->options.servers)];
    if (sim_cluster_is_down(cluster)) {
        sim_cluster_restart(cluster, draw == 0);
    } else if (draw == 0) {
        sim_cluster_crash(cluster);
        stage->crashes++;
    } else if (draw == 1) {
        sim_cluster_kill_client(cluster,
                                (uint32_t)random_below(&stage->random, cluster->options.clients));
    } else if (draw < 6) {
        sim_cluster_cut(cluster, &stage->random);
    } else {
        sim_cluster_stop(cluster, &server->process, !server->process.stopped);
    }
}

static void stage_step(struct stage *stage)
{
    struct sim_cluster *cluster = stage->cluster;
    load_step(stage->load);
    uint64_t next_ns = load_next_ns(stage->load);
    cluster->until_ns = next_ns > cluster->clock.now_ns ? next_ns : cluster->clock.now_ns + 1;
    sim_cluster_step(cluster);
}

static void stage_heal(struct stage *stage)
{
    for (uint32_t i = 0; i < stage->cluster->options.servers; i++)
        sim_cluster_stop(stage->cluster, &stage->cluster->servers[i].process, false);
    if (sim_cluster_is_down(stage->cluster))
        sim_cluster_restart(stage->cluster, false);
}

static void stage_settle(struct stage *stage)
{
    uint64_t limit_ns = stage->cluster->clock.now_ns + ANSWER_NS;
    while (load_outstanding(stage->load) > 0 || !load_is_over(stage->load)) {
        assert_true(stage->cluster->clock.now_ns < limit_ns);
        stage_step(stage);
    }
}

static void stage_run(struct stage *stage, bool faults)
{
    while (!load_is_over(stage->load)) {
        if (faults)
            disturb(stage);
        stage_step(stage);
    }
    stage_heal(stage);
    stage_settle(stage);
    load_read_all(stage->load);
    stage_settle(stage);
    if (stage->failure.kind)
        print_error("%s: %s\n", stage->failure.checker, stage->failure.why);
    assert_int_equal(stage->failure.kind, FAILURE_NONE);
}

/* --- what a history must be --- */

static void assert_whole(const struct stage *stage)
{
    const struct history *history = &stage->history;
    assert_int_equal(history->count, load_posted(stage->load));
    assert_int_equal(history->events, 2 * history->count);
    uint64_t done = 0;
    for (size_t i = 0; i < history->count; i++) {
        const struct history_op *op = &history->ops[i];
        assert_true(op->outcome != HISTORY_OPEN && op->answered > op->called);
        assert_true(op->answered_ns >= op->called_ns);
        done += op->kind != HISTORY_GET && op->outcome == HISTORY_DONE;
    }
    assert_int_equal(done, stage->acknowledged);
}

static void assert_linearizable(const struct stage *stage)
{
    const struct history *history = &stage->history;
    struct history_op *ops = calloc(history->count, sizeof *ops);
    for (uint32_t key = 0; key < load_keys(stage->load); key++) {
        struct linear_result result;
        size_t count = 0;
        for (size_t i = 0; i < history->count; i++) {
            if (history->ops[i].key == key)
                ops[count++] = history->ops[i];
        }
        linear_check(ops, count, 0, &result);
        if (result.verdict != LINEAR_YES) {
            print_error("key %u: %s\n", key, result.why);
            journal_tell(stage->journal, key, JOURNAL_NO_SHARD, 60, stderr);
        }
        assert_int_equal(result.verdict, LINEAR_YES);
    }
    free(ops);
}

static void assert_right(const struct stage *stage)
{
    assert_whole(stage);
    assert_linearizable(stage);
}

static size_t count_ops(const struct stage *stage, enum history_kind kind,
                        enum history_outcome outcome)
{
    size_t count = 0;
    for (size_t i = 0; i < stage->history.count; i++)
        count += stage->history.ops[i].kind == kind && stage->history.ops[i].outcome == outcome;
    return count;
}

/* --- tests --- */

TEST(a_cluster_that_is_well_answers_everything)
{
    struct stage stage;
    stage_open(&stage, 1, &SHAPE, &LOAD);
    stage_run(&stage, false);
    assert_int_equal(load_posted(stage.load), LOAD.operations + LOAD.keys);
    assert_right(&stage);
    assert_true(count_ops(&stage, HISTORY_GET, HISTORY_DONE) > 500);
    assert_true(count_ops(&stage, HISTORY_GET, HISTORY_ABSENT) > 50);
    size_t unseen = 0; /* too small a room */
    for (size_t i = 0; i < stage.history.count; i++)
        unseen += stage.history.ops[i].kind == HISTORY_GET &&
                  stage.history.ops[i].outcome == HISTORY_DONE && stage.history.ops[i].value == 0;
    assert_in_range(unseen, 10, 200);
    assert_true(count_ops(&stage, HISTORY_PUT, HISTORY_DONE) > 500);
    assert_true(count_ops(&stage, HISTORY_PUT_IF, HISTORY_DONE) > 100);
    assert_true(count_ops(&stage, HISTORY_PUT_IF, HISTORY_MISMATCH) > 100);
    assert_true(count_ops(&stage, HISTORY_DELETE, HISTORY_DONE) > 100);
    assert_true(count_ops(&stage, HISTORY_DELETE, HISTORY_ABSENT) > 20);
    for (enum history_kind kind = HISTORY_GET; kind <= HISTORY_DELETE; kind++)
        assert_int_equal(count_ops(&stage, kind, HISTORY_UNKNOWN), 0);
    stage_close(&stage);
}

TEST(a_cluster_that_breaks_leaves_outcomes_open_and_nothing_wrong)
{
    uint64_t from = 1, to = 4;
    size_t unknown = 0, rejected = 0;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++) {
        print_message("# seed %lu\n", seed);
        struct sim_cluster_options shape = SHAPE;
        shape.timeout_ns = 300 * NS_PER_MS;
        struct stage stage;
        stage_open(&stage, seed, &shape, &LOAD);
        stage_run(&stage, true);
        assert_right(&stage);
        assert_true(stage.crashes > 0);
        for (enum history_kind kind = HISTORY_PUT; kind <= HISTORY_DELETE; kind++) {
            unknown += count_ops(&stage, kind, HISTORY_UNKNOWN);
            rejected += count_ops(&stage, kind, HISTORY_REJECTED);
        }
        assert_int_equal(count_ops(&stage, HISTORY_GET, HISTORY_UNKNOWN), 0);
        size_t tell = stage.history.count;
        for (enum history_kind kind = HISTORY_GET; kind <= HISTORY_DELETE; kind++)
            tell -= count_ops(&stage, kind, HISTORY_REJECTED);
        assert_int_equal(tell, LOAD.operations + LOAD.keys); /* others came for the rejected ones */
        stage_close(&stage);
    }
    print_message("# %zu unknown, %zu rejected\n", unknown, rejected);
    assert_true(unknown > 20 && rejected > 20);
}

TEST(a_full_cluster_rejects_writes)
{
    struct sim_cluster_options shape = SHAPE;
    shape.pm_bytes = 6 << 20;
    struct load_options load = LOAD;
    load.long_in = 2;
    load.may_fill = true;
    struct stage stage;
    stage_open(&stage, 1, &shape, &load);
    stage_run(&stage, false);
    assert_right(&stage);
    assert_true(count_ops(&stage, HISTORY_PUT, HISTORY_REJECTED) > 20);
    assert_true(count_ops(&stage, HISTORY_DELETE, HISTORY_REJECTED) > 5);
    stage_close(&stage);
}

TEST(a_cluster_that_says_falsely_that_it_is_full_is_found_out)
{
    for (int refused = 0; refused < 2; refused++) {
        struct sim_fault_options sites = {.seed = 1};
        sites.one_in[FAULT_NO_SEGMENT] = 20;
        struct sim_cluster_options shape = SHAPE;
        shape.pm_bytes = refused ? SHAPE.pm_bytes : 6 << 20;
        struct load_options load = LOAD;
        load.long_in = refused ? LOAD.long_in : 2;
        struct stage stage;
        stage_open(&stage, 1, &shape, &load);
        sim_fault_begin(refused ? &sites : NULL);
        while (!stage.failure.kind && !load_is_over(stage.load))
            stage_step(&stage);
        assert_int_equal(stage.failure.kind, refused ? FAILURE_NONE : FAILURE_CORRECTNESS);
        if (refused)
            assert_true(count_ops(&stage, HISTORY_PUT, HISTORY_REJECTED) > 20);
        else
            assert_non_null(strstr(stage.failure.why, "PM is not full"));
        sim_fault_begin(NULL);
        stage_close(&stage);
    }
}

TEST(equal_seeds_give_equal_histories)
{
    struct sim_cluster_options shape = SHAPE;
    shape.timeout_ns = 300 * NS_PER_MS;
    struct load_options load = LOAD;
    load.operations = 1500;
    struct stage a, b, other;
    stage_open(&a, 7, &shape, &load);
    stage_run(&a, true);
    stage_open(&b, 7, &shape, &load);
    stage_run(&b, true);
    stage_open(&other, 8, &shape, &load);
    stage_run(&other, true);
    assert_int_equal(a.history.count, b.history.count);
    assert_memory_equal(a.history.ops, b.history.ops, a.history.count * sizeof *a.history.ops);
    assert_true(journal_hash(a.journal) == journal_hash(b.journal));
    assert_true(journal_hash(a.journal) != journal_hash(other.journal));
    assert_true(journal_events(a.journal) >= 2 * a.history.count);
    stage_close(&a);
    stage_close(&b);
    stage_close(&other);
}

static int compare_values(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

TEST(values_are_different_and_half_of_the_keys_hot)
{
    struct stage stage;
    stage_open(&stage, 9, &SHAPE, &LOAD);
    stage_run(&stage, false);
    uint64_t *values = calloc(stage.history.count, sizeof *values);
    size_t writes = 0, equal = 0, hot = 0;
    for (size_t i = 0; i < stage.history.count; i++) {
        const struct history_op *op = &stage.history.ops[i];
        if (op->kind == HISTORY_PUT || op->kind == HISTORY_PUT_IF)
            values[writes++] = op->value;
        hot += op->key < LOAD.hot_keys;
    }
    qsort(values, writes, sizeof *values, compare_values);
    for (size_t i = 1; i < writes; i++)
        equal += values[i] == values[i - 1];
    assert_in_range(equal, 1, writes / 32); /* empty ones */
    assert_in_range(hot, LOAD.operations * 45 / 100, LOAD.operations * 60 / 100);
    free(values);
    stage_close(&stage);
}

TEST(pauses_have_the_mean_that_was_asked_for)
{
    struct stage stage;
    stage_open(&stage, 3, &SHAPE, &LOAD);
    uint64_t from_ns = stage.cluster->clock.now_ns;
    stage_run(&stage, false);
    uint64_t pause_ns = (stage.cluster->clock.now_ns - from_ns) * 3 / LOAD.operations;
    assert_in_range(pause_ns, LOAD.mean_pause_ns * 9 / 10, LOAD.mean_pause_ns * 5 / 4);
    stage_close(&stage);
}

TEST(a_load_that_is_stopped_posts_nothing_more)
{
    struct stage stage;
    stage_open(&stage, 4, &SHAPE, &LOAD);
    while (load_posted(stage.load) < 100)
        stage_step(&stage);
    uint64_t posted = load_posted(stage.load);
    load_stop(stage.load);
    assert_true(load_is_over(stage.load));
    assert_true(load_next_ns(stage.load) == WAKE_NEVER);
    stage_settle(&stage);
    assert_int_equal(load_posted(stage.load), posted);
    stage_close(&stage);
}

TEST(a_cluster_that_takes_no_writes_after_the_last_fault_is_found_out)
{
    struct stage stage;
    stage_open(&stage, 6, &SHAPE, &LOAD);
    while (load_posted(stage.load) < 100)
        stage_step(&stage);
    load_stop(stage.load);
    stage_settle(&stage);
    sim_cluster_stop(stage.cluster, &stage.cluster->servers[1].process, true);
    load_write_some(stage.load);
    stage_settle(&stage);
    assert_int_equal(stage.failure.kind, FAILURE_LIVENESS);
    assert_non_null(strstr(stage.failure.why, "long after the last fault"));
    stage_close(&stage);
}

/* A server stands still. One client gives its operations up at half of their timeout, or none does. */
static void run_into_timeouts(uint64_t seed, bool early)
{
    struct sim_cluster_options shape = SHAPE;
    shape.timeout_ns = 300 * NS_PER_MS;
    shape.drift_ppm = 10000;
    struct stage stage;
    stage_open(&stage, seed, &shape, &LOAD);
    while (load_posted(stage.load) < 100)
        stage_step(&stage);
    if (early)
        stage.cluster->clients[1].session->timeout_ns /= 2;
    sim_cluster_stop(stage.cluster, &stage.cluster->servers[1].process, true);
    while (!stage.failure.kind && load_posted(stage.load) < 400)
        stage_step(&stage);
    assert_int_equal(stage.failure.kind, early ? FAILURE_CORRECTNESS : FAILURE_NONE);
    if (early)
        assert_non_null(strstr(stage.failure.why, "client-2: "));
    if (early)
        assert_non_null(strstr(stage.failure.why, "its timeout is not over"));
    stage_close(&stage);
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
        struct stage stage;
        stage_open(&stage, 7, &SHAPE, &LOAD);
        sim_fault_mutant(broken ? MUTANT_TAKE_OVER_SKIPPED : MUTANT_COUNT);
        struct nemesis *nemesis = nemesis_create(stage.cluster, &none);
        while (load_posted(stage.load) < 200)
            stage_step(&stage);
        load_stop(stage.load);
        stage_settle(&stage);
        nemesis_heal(nemesis);
        size_t before = stage.history.count;
        load_write_all(stage.load, 20 * NS_PER_S);
        nemesis_cut_each(nemesis, 4 * SHAPE.max_delay_ns);
        while (load_outstanding(stage.load) > 0) {
            nemesis_step(nemesis);
            stage_step(&stage);
        }
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
        sim_fault_mutant(MUTANT_COUNT);
        nemesis_destroy(nemesis);
        stage_close(&stage);
    }
}

TEST(a_client_that_stands_still_posts_nothing)
{
    struct stage stage;
    stage_open(&stage, 5, &SHAPE, &LOAD);
    sim_cluster_stop(stage.cluster, &stage.cluster->clients[1].process, true);
    while (load_posted(stage.load) < 100)
        stage_step(&stage);
    for (size_t i = 0; i < stage.history.count; i++)
        assert_int_not_equal(stage.history.ops[i].client, 1);
    stage_close(&stage);
}

TEST(keys_are_different_and_short_enough)
{
    struct load_options many = LOAD;
    many.keys = 1000;
    struct stage stage;
    stage_open(&stage, 1, &SHAPE, &many);
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
    stage_close(&stage);
}

/* --- false entries --- */

static void put_foreign(struct stage *stage, const void *value, size_t bytes)
{
    char key[64];
    for (uint32_t i = 0; i < load_keys(stage->load); i++)
        assert_int_equal(
            sim_put(stage->cluster, 0, key, load_key(stage->load, i, key), value, bytes, NULL), 0);
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
        struct stage stage;
        stage_open(&stage, 1, &SHAPE, &gets);
        if (long_one)
            put_foreign(&stage, value, 1001);
        else
            put_foreign(&stage, value + at, 16);
        while (!stage.failure.kind && load_posted(stage.load) < 200)
            stage_step(&stage);
        assert_int_equal(stage.failure.kind, FAILURE_CORRECTNESS);
        assert_non_null(strstr(stage.failure.why, long_one ? "nobody wrote" : "false entry"));
        stage_close(&stage);
    }
}

int main(void)
{
    if (getenv("SIM_SEEDS"))
        cmocka_set_test_filter("a_cluster_that_breaks*");
    return unit_run(NULL, NULL);
}
