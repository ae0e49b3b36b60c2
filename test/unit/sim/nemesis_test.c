/* The nemesis: every fault it knows comes and goes, within the promise, and after the last one the cluster works. */
#include "test/sim/nemesis.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include <xxhash.h>

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/sim/digests.h"
#include "test/sim/journal.h"
#include "test/sim/sim_log.h"

#define ANSWER_NS (60 * NS_PER_S)
#define POST_NS   (20 * NS_PER_MS)

enum { CLIENTS = 2, KEYS = 16, DEPTH = 4 };

struct operation;

static FILE *told; /* what the journal says goes there too; NULL: nowhere */

/* Clients that put ever higher numbers, each to keys of its own. */
struct writer {
    uint64_t asked[KEYS], answered[KEYS]; /* numbers */
    struct operation *busy[KEYS];
    uint64_t lost
        [KEYS]; /* the first number whose session ended; 0: none. It may still be done, at any time */
    uint64_t number;
    uint32_t ended; /* sessions */
};

struct stage {
    struct journal *journal;
    struct sim_cluster *cluster;
    struct nemesis *nemesis;
    struct writer writers[CLIENTS];
    uint32_t outstanding;
    uint64_t good, unknown;
    uint64_t post_ns; /* when clients post next */
    bool starts;      /* servers were seen to be down */
};

struct operation {
    struct stage *stage;
    uint32_t client, key;
    uint64_t number;
};

static void done(const struct rowan_completion *completion)
{
    struct operation *operation = completion->context;
    struct stage *stage = operation->stage;
    struct writer *writer = &stage->writers[operation->client];
    stage->outstanding--;
    stage->good += completion->status == 0;
    stage->unknown += completion->status != 0;
    writer->busy[operation->key] = NULL;
    if (completion->status == 0)
        writer->answered[operation->key] = operation->number;
    free(operation);
}

static void post(struct stage *stage, uint32_t client, uint32_t key)
{
    struct writer *writer = &stage->writers[client];
    struct operation *operation = malloc(sizeof *operation);
    assert_non_null(operation);
    *operation = (struct operation){stage, client, key, ++writer->number};
    writer->asked[key] = operation->number;
    char name[16];
    const struct session_request request = {
        .type = MESSAGE_PUT,
        .key = name,
        .key_bytes = (size_t)snprintf(name, sizeof name, "%u/%u", client, key),
        .value = &operation->number,
        .value_bytes = sizeof operation->number,
        .callback = done,
        .context = operation};
    if (session_post(stage->cluster->clients[client].session, &request)) {
        writer->asked[key] = writer->answered[key];
        free(operation);
        return;
    }
    writer->busy[key] = operation;
    stage->outstanding++;
}

/* To keys of which no put is under way. */
static void post_some(struct stage *stage, uint32_t client)
{
    for (uint32_t i = 0; i < DEPTH; i++) {
        uint32_t key = (uint32_t)(stage->writers[client].number * 5 + i) % KEYS;
        if (!stage->writers[client].busy[key])
            post(stage, client, key);
    }
}

/* Its session has ended: nobody hears of what was outstanding. */
static void give_up(struct stage *stage, struct writer *writer)
{
    for (uint32_t key = 0; key < KEYS; key++) {
        if (!writer->busy[key])
            continue;
        if (!writer->lost[key])
            writer->lost[key] = writer->busy[key]->number;
        free(writer->busy[key]);
        writer->busy[key] = NULL;
        stage->outstanding--;
        stage->unknown++;
    }
}

static void step(struct stage *stage, bool posts)
{
    struct sim_cluster *cluster = stage->cluster;
    nemesis_step(stage->nemesis);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (stage->writers[i].ended != cluster->clients[i].ended)
            give_up(stage, &stage->writers[i]);
        stage->writers[i].ended = cluster->clients[i].ended;
    }
    if (posts && cluster->clock.now_ns >= stage->post_ns) {
        for (uint32_t client = 0; client < CLIENTS; client++)
            post_some(stage, client);
        stage->post_ns = cluster->clock.now_ns + POST_NS;
    }
    uint64_t until_ns = nemesis_next_ns(stage->nemesis);
    cluster->until_ns = posts && stage->post_ns < until_ns ? stage->post_ns : until_ns;
    sim_cluster_step(cluster);
    for (uint32_t i = 0; i < cluster->options.servers; i++) {
        const struct server *server = cluster->servers[i].server;
        stage->starts |= !server;
        if (server && server_error(server))
            fail_msg("server %u ended: %s", i + 1, server_why(server));
    }
    if (cluster->cm && cm_error(cluster->cm))
        fail_msg("the CM ended: %s", error_name(cm_error(cluster->cm)));
    cluster->until_ns = WAKE_NEVER;
}

static void open_stage(struct stage *stage, const struct sim_cluster_options *shape,
                       const struct nemesis_options *faults)
{
    struct sim_cluster_options options = *shape;
    *stage = (struct stage){.journal = journal_create(NULL, getenv("SIM_LOG") ? stdout : told)};
    sim_log_journal(stage->journal);
    fabric_segment_bytes = 64 << 10;
    options.clients = CLIENTS;
    options.journal = stage->journal;
    options.pm_bytes = 48 << 20;
    options.shards = 6;
    options.timeout_ns = 2 * NS_PER_S;
    options.max_delay_ns = 200 * NS_PER_US;
    options.fence_ns = 100 * NS_PER_US;
    options.silence_ns = 300 * NS_PER_MS;
    options.drift_ppm = 10000;
    options.registry =
        (struct sim_registry_options){.max_delay_ns = 2 * NS_PER_MS, .session_ns = NS_PER_S};
    stage->cluster = sim_cluster_create(&options);
    stage->nemesis = nemesis_create(stage->cluster, faults);
}

static void close_stage(struct stage *stage)
{
    nemesis_destroy(stage->nemesis);
    sim_cluster_destroy(stage->cluster);
    sim_log_journal(NULL);
    journal_destroy(stage->journal);
}

/* Every key of every client holds what was acknowledged last, or something newer that was asked for. */
static void check_keys(struct stage *stage)
{
    for (uint32_t client = 0; client < CLIENTS; client++) {
        for (uint32_t key = 0; key < KEYS; key++) {
            const struct writer *writer = &stage->writers[client];
            char name[16];
            size_t bytes = 0;
            uint64_t number = 0;
            int name_bytes = snprintf(name, sizeof name, "%u/%u", client, key);
            int error = sim_get(stage->cluster, 0, name, (size_t)name_bytes, &number, sizeof number,
                                &bytes, NULL);
            if (error == ROWAN_ENOTFOUND)
                number = 0;
            else
                assert_int_equal(error, 0);
            uint64_t least = writer->answered[key];
            if (writer->lost[key] && writer->lost[key] < least)
                least = writer->lost[key];
            assert_in_range(number, least, writer->asked[key]);
        }
    }
}

static void run_faults(struct stage *stage, uint64_t ns)
{
    uint64_t end_ns = stage->cluster->clock.now_ns + ns;
    while (stage->cluster->clock.now_ns < end_ns)
        step(stage, true);
}

static void heal(struct stage *stage)
{
    struct sim_cluster *cluster = stage->cluster;
    nemesis_heal(stage->nemesis);
    assert_true(nemesis_next_ns(stage->nemesis) == WAKE_NEVER);
    for (uint32_t i = 0; i < sim_cluster_processes(cluster); i++) {
        assert_false(sim_cluster_process(cluster, i)->stopped);
        assert_int_equal(sim_cluster_process(cluster, i)->slow_ns, 0);
    }
    assert_non_null(cluster->cm);
    assert_null(cluster->rival.cm);
    uint64_t end_ns = cluster->clock.now_ns + ANSWER_NS;
    while (stage->outstanding > 0 && cluster->clock.now_ns < end_ns)
        step(stage, false);
    assert_int_equal(stage->outstanding, 0);
}

/* After the last fault: puts work, what was acknowledged is there, replicas agree. */
static void work_on(struct stage *stage)
{
    struct sim_cluster *cluster = stage->cluster;
    int error = -1;
    uint64_t number = 0, end_ns = cluster->clock.now_ns + ANSWER_NS;
    while (error && cluster->clock.now_ns < end_ns)
        error = sim_put(cluster, 0, "after", 5, &number, sizeof number, NULL);
    assert_int_equal(error, 0);
    check_keys(stage);
    struct sim_digests digests;
    if (!sim_digests_agree(cluster, 30 * NS_PER_S, NULL, NULL, &digests))
        fail_msg("%s", digests.why);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        assert_int_equal(server_error(cluster->servers[i].server), 0);
}

static struct nemesis_options all_faults(uint64_t seed)
{
    struct nemesis_options options = {.seed = seed,
                                      .mean_pause_ns = 500 * NS_PER_MS,
                                      .max_length_ns = NS_PER_S,
                                      .power_loss_in = 2};
    for (unsigned i = 0; i < NEMESIS_FAULTS; i++)
        options.weights[i] = 1;
    return options;
}

/* --- the tests --- */

TEST(each_fault_comes_and_goes_and_leaves_a_cluster_that_works)
{
    for (unsigned fault = 0; fault < NEMESIS_FAULTS; fault++) {
        struct stage stage;
        struct nemesis_options options = all_faults(fault);
        memset(options.weights, 0, sizeof options.weights);
        options.weights[fault] = 1;
        open_stage(&stage, &(struct sim_cluster_options){.seed = 100 + fault}, &options);
        run_faults(&stage, 6 * NS_PER_S);
        struct nemesis_counts counts = nemesis_counts(stage.nemesis);
        assert_true(counts.injected[fault] >= 3);
        assert_int_equal(counts.faults, counts.injected[fault]);
        bool kills_servers = fault == NEMESIS_KILL_ALL || fault == NEMESIS_KILL_ONE;
        assert_int_equal(stage.starts, kills_servers);
        assert_int_equal(counts.crashes > 0,
                         kills_servers || fault == NEMESIS_KILL_CM || fault == NEMESIS_KILL_CLIENT);
        assert_int_equal(counts.partitions > 0,
                         fault == NEMESIS_PART_ONE_WAY || fault == NEMESIS_PART_BOTH_WAYS);
        heal(&stage);
        work_on(&stage);
        print_message("# %s: %lu times, %lu puts, %lu not done\n",
                      nemesis_name((enum nemesis_fault)fault), counts.injected[fault], stage.good,
                      stage.unknown);
        assert_true(stage.good > 50);
        close_stage(&stage);
    }
}

TEST(all_faults_together_lose_nothing)
{
    uint64_t from = 1, to = 3;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    struct nemesis_counts sum = {0};
    for (uint64_t seed = from; seed <= to; seed++) {
        struct stage stage;
        struct nemesis_options options = all_faults(seed);
        print_message("# seed %lu\n", seed);
        open_stage(&stage,
                   &(struct sim_cluster_options){.seed = seed,
                                                 .servers = 3 + (uint32_t)(seed % 3),
                                                 .one_sided = seed % 2,
                                                 .workers = 1 + seed % 2},
                   &options);
        run_faults(&stage, 20 * NS_PER_S);
        struct nemesis_counts counts = nemesis_counts(stage.nemesis);
        sum.crashes += counts.crashes;
        sum.power_losses += counts.power_losses;
        sum.lost_words += counts.lost_words;
        heal(&stage);
        work_on(&stage);
        close_stage(&stage);
    }
    assert_true(sum.crashes > 0 && sum.power_losses > 0 && sum.lost_words > 0);
}

TEST(no_host_loses_power_where_writes_are_not_behind_fences)
{
    struct stage stage;
    struct nemesis_options options = all_faults(3);
    options.power_loss_in = 1;
    open_stage(&stage, &(struct sim_cluster_options){.seed = 3, .durability = PM_NONE}, &options);
    run_faults(&stage, 20 * NS_PER_S);
    assert_true(nemesis_counts(stage.nemesis).crashes > 0);
    assert_int_equal(nemesis_counts(stage.nemesis).power_losses, 0);
    heal(&stage);
    work_on(&stage);
    close_stage(&stage);
}

static uint64_t hash_of_run(uint64_t seed)
{
    struct stage stage;
    struct nemesis_options options = all_faults(seed);
    open_stage(&stage, &(struct sim_cluster_options){.seed = seed}, &options);
    run_faults(&stage, 5 * NS_PER_S);
    heal(&stage);
    const uint64_t words[] = {journal_hash(stage.journal),
                              sim_network_trace(stage.cluster->network),
                              stage.cluster->clock.now_ns, stage.cluster->rounds, stage.good};
    close_stage(&stage);
    return XXH3_64bits(words, sizeof words);
}

TEST(after_the_last_fault_each_pair_of_processes_can_be_parted_once)
{
    enum { SERVERS = 3, PAIRS = SERVERS * (SERVERS - 1) / 2 + SERVERS * CLIENTS };
    const uint64_t span_ns = 10 * NS_PER_MS;
    struct stage stage;
    struct nemesis_options none = all_faults(1);
    char *lines = NULL;
    size_t bytes = 0;
    memset(none.weights, 0, sizeof none.weights);
    told = open_memstream(&lines, &bytes);
    open_stage(&stage, &(struct sim_cluster_options){.seed = 5, .servers = SERVERS}, &none);
    run_faults(&stage, NS_PER_S);
    heal(&stage);
    const uint64_t from_ns = stage.cluster->clock.now_ns;
    uint64_t next_ns, last_ns = 0;
    nemesis_cut_each(stage.nemesis, span_ns);
    while ((next_ns = nemesis_next_ns(stage.nemesis)) != WAKE_NEVER) {
        last_ns = next_ns;
        step(&stage, true);
    }
    assert_in_range(last_ns - from_ns, span_ns / 2, span_ns);
    fflush(told);
    uint32_t cuts = 0;
    for (const char *at = lines; (at = strstr(at, "loses its connections with ")); at++) {
        cuts++;
        /* The same two are not parted again. */
        const char *node = at - 1;
        while (node > lines && node[-1] != '\n')
            node--;
        node = strstr(node, "server-");
        char pair[128];
        snprintf(pair, sizeof pair, "%.*s", (int)(strchr(at, '\n') - node), node);
        assert_null(strstr(at + 1, pair));
    }
    assert_int_equal(cuts, PAIRS);
    heal(&stage);
    work_on(&stage);
    assert_int_equal(stage.unknown, 0);
    assert_int_equal(nemesis_counts(stage.nemesis).faults, 0);
    close_stage(&stage);
    fclose(told);
    told = NULL;
    free(lines);
}

TEST(equal_seeds_give_equal_faults)
{
    uint64_t hash = hash_of_run(9);
    print_message("# hash %016lx\n", hash);
    assert_true(hash == hash_of_run(9));
    assert_false(hash == hash_of_run(10));
}

UNIT_MAIN(NULL, NULL)
