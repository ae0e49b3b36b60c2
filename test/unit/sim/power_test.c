/* A cluster whose hosts lose their power at any moment, all of them or some, and are started again on what
 * the PM held: no acknowledged write is lost, none is done twice, none comes back, no answer is
 * wrong, and the replicas agree. */
#define TEST_FIXTURE begin, NULL

#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/sim/sim_fault.h"
#include "test/sim/sim_log.h"

#define PM_BYTES  ((uint64_t)512 << 20)
#define NOTICE_NS (50 * NS_PER_MS) /* the end of a connection travels shorter */

/* --- the end of everything, now and then --- */

static struct {
    uint32_t crashes;  /* of this test */
    uint32_t in_start; /* of these, before any operation was completed */
    uint32_t in_vain;  /* crashes since an operation was completed */
    uint64_t completed;
    uint64_t wait;           /* until the next crash, in calls of disturb */
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
    return tally.in_vain < 4;
}

static void kill(struct sim_cluster *cluster, uint32_t server, bool power, struct random *random)
{
    struct sim_pm_loss loss = sim_cluster_kill_server(cluster, server, power ? random : NULL);
    tally.loss.fences += loss.fences;
    tally.loss.stores += loss.stores;
    tally.loss.words += loss.words;
    tally.loss.old += loss.old;
}

/* All at one moment, or one after another, while the others go on without. */
static void kill_all(struct sim_cluster *cluster, struct random *random)
{
    uint32_t servers = cluster->options.servers;
    uint32_t first = (uint32_t)random_below(random, servers);
    bool all_lose = random_below(random, 4) != 0, apart = random_below(random, 3) == 0;
    tally.crashes++;
    tally.in_start += tally.in_vain > 0;
    for (uint32_t i = 0; i < servers; i++) {
        kill(cluster, 1 + (first + i) % servers, all_lose || random_below(random, 2), random);
        if (apart)
            sim_cluster_run_for(cluster, random_below(random, 5 * NS_PER_MS));
    }
    if (random_below(random, 2))
        sim_cluster_kill_cm(cluster);
    else /* a CM that does not know yet that one has ended starts the others without it */
        sim_cluster_run_for(cluster, NOTICE_NS);
    if (random_below(random, 2))
        sim_cluster_run_for(cluster, random_below(random, 50 * NS_PER_MS));
}

static void start_all(struct sim_cluster *cluster, struct random *random)
{
    bool apart = random_below(random, 2);
    for (uint32_t i = 1; i <= cluster->options.servers; i++) {
        sim_cluster_start_server(cluster, i);
        if (apart)
            sim_cluster_run_for(cluster, random_below(random, 10 * NS_PER_MS));
    }
    if (!cluster->cm)
        sim_cluster_start_cm(cluster);
}

static void disturb(struct sim_cluster *cluster, struct random *random)
{
    uint32_t servers = cluster->options.servers;
    uint64_t draw = random_below(random, 24 * servers), a = random_below(random, servers),
             b = random_below(random, servers);
    if (tally.wait-- == 0) {
        /* Each start has many rounds at its beginning, and a crash should find any part of it. */
        tally.wait = random_below(random, UINT64_C(4) << random_below(random, 9));
        if (may_crash(cluster)) {
            kill_all(cluster, random);
            start_all(cluster, random);
        }
    } else if (draw < 4) {
        sim_cluster_stop(cluster, &cluster->servers[a].process,
                         !cluster->servers[a].process.stopped);
    } else if (draw < 6 && a != b) {
        sim_network_break(cluster->network, cluster->servers[a].process.address,
                          cluster->servers[b].process.address);
    }
}

/* What makes rare moments common, and refuses nothing. */
static void begin_faults(uint64_t seed, struct random *random)
{
    struct sim_fault_options faults = {.seed = seed};
    if (random_below(random, 2)) {
        faults.one_in[FAULT_SHORT_BATCH] = 2 + (uint32_t)random_below(random, 20);
        faults.one_in[FAULT_LATE_ROLE] = 2 + (uint32_t)random_below(random, 20);
        faults.one_in[FAULT_EARLY_ROLL] = 200;
    }
    sim_fault_begin(&faults);
}

static void survive(uint64_t seed, uint32_t segment_bytes, const struct sim_cluster_options *shape,
                    const struct sim_workload_options *work)
{
    struct sim_cluster_options options = *shape;
    struct sim_workload_options workload = *work;
    struct random random;
    options.seed = workload.seed = seed;
    options.timeout_ns = 60 * NS_PER_S;
    options.pm_bytes = segment_bytes == 4 << 20 ? PM_BYTES : 400 * (uint64_t)segment_bytes;
    workload.disturb = disturb;
    tally.in_vain = 0;
    tally.completed = 0;
    tally.wait = 10;
    random_init(&random, seed);
    fabric_segment_bytes = segment_bytes;
    begin_faults(seed, &random);
    options.journal = journal_create(NULL, getenv("SIM_LOG") ? stderr : NULL);
    sim_log_journal(options.journal);
    struct sim_cluster *cluster = sim_cluster_create(&options);
    stage_work(cluster, &workload);
    sim_fault_begin(NULL);
    sim_log_journal(NULL);
    journal_destroy(options.journal);
}

static int begin(void **state)
{
    (void)state;
    memset(&tally, 0, sizeof tally);
    return 0;
}

/* --- shapes --- */

/* A draw that is a statement: compilers evaluate the members of one initializer in any order. */
static uint32_t draw(struct random *random, uint32_t bound)
{
    return (uint32_t)random_below(random, bound);
}

static void any_seed(uint64_t seed)
{
    static const uint32_t limits[] = {256, 1024, 4096, 65536},
                          segments[] = {64 << 10, 128 << 10, 256 << 10, 4 << 20},
                          fences_us[] = {1, 20, 200, 2000};
    struct sim_cluster_options shape = {0};
    struct sim_workload_options work = {.operations = 1500};
    struct random random;
    random_init(&random, seed);
    uint32_t segment_bytes = segments[draw(&random, 4)];
    shape.servers = 1 + draw(&random, 4);
    shape.replicas = 1 + draw(&random, shape.servers < 3 ? shape.servers : 3);
    shape.shards = shape.servers * 4;
    shape.workers = 1 + draw(&random, 3);
    shape.digests = 1 + draw(&random, 2);
    shape.clients = 1 + draw(&random, 3);
    shape.max_messages = draw(&random, 2) ? 3 : 0;
    shape.landing_segments = 2 + draw(&random, 3);
    shape.block_limit = limits[draw(&random, segment_bytes > 128 << 10 ? 4 : 3)];
    shape.max_delay_ns = draw(&random, 200) * NS_PER_US;
    shape.fence_ns = fences_us[draw(&random, 4)] * NS_PER_US;
    shape.drift_ppm = draw(&random, 2) * 10000;
    shape.one_sided = draw(&random, 2);
    work.keys = 50 + draw(&random, 400);
    work.side_by_side = 4 + draw(&random, 60);
    work.max_value_bytes = 100 + draw(&random, 6000);
    work.large_in = segment_bytes == 4 << 20 && draw(&random, 2) ? 400 : 0;
    survive(seed, segment_bytes, &shape, &work);
}

/* SIM_SEEDS=FROM:TO in the environment chooses the seeds. */
TEST(any_shape_survives_power_losses)
{
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
    if (!seeds)
        assert_true(tally.crashes > to - from && tally.loss.old > 0);
}

/* --- runs that fence less --- */

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

/* Keys of a run with fences, of one without and of both; then all hosts lose their power. */
static void lose_an_unfenced_run(uint64_t seed, enum pm_durability weak)
{
    fabric_segment_bytes = 128 << 10;
    sim_fault_begin(NULL);
    struct random random;
    random_init(&random, seed);
    struct sim_cluster_options options = {.seed = seed,
                                          .replicas = 2,
                                          .shards = 6,
                                          .block_limit = 256,
                                          .pm_bytes = 32 << 20,
                                          .max_delay_ns = 50 * NS_PER_US,
                                          .fence_ns = 100 * NS_PER_US};
    options.journal = journal_create(NULL, getenv("SIM_LOG") ? stderr : NULL);
    sim_log_journal(options.journal);
    struct sim_cluster *cluster = sim_cluster_create(&options);
    put_keys(cluster, 0, 2 * KEYS / 3, 1);
    sim_cluster_crash(cluster);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        cluster->servers[i].pm->pm.durability = weak;
    sim_cluster_restart(cluster, false);
    put_keys(cluster, KEYS / 3, KEYS, 2);
    for (uint32_t i = 1; i <= cluster->options.servers; i++)
        kill(cluster, i, true, &random);
    sim_cluster_kill_cm(cluster);
    sim_cluster_restart(cluster, false);
    uint64_t objects = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        uint32_t round = round_of(cluster, key, 2);
        assert_true(round == 1 || key >= KEYS / 3);
        assert_true(round != 0 || key >= 2 * KEYS / 3);
        assert_true(round != 1 || key < 2 * KEYS / 3);
        objects += round != 0;
    }
    tally.crashes += objects < KEYS;
    stage_finish(cluster, objects);
    sim_log_journal(NULL);
    journal_destroy(options.journal);
}

TEST(what_was_fenced_survives_the_loss_of_a_later_run_without_fences)
{
    for (uint64_t seed = 1; seed <= 20; seed++)
        lose_an_unfenced_run(seed, seed % 2 ? PM_NONE : PM_ASYNC);
    assert_true(tally.crashes > 0); /* some keys were lost */
}

int main(void)
{
    if (getenv("SIM_SEEDS"))
        cmocka_set_test_filter("any_shape*");
    return unit_run(NULL, NULL);
}
