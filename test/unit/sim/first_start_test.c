/* first_start_test.c - a cluster that ends while it starts for the first time, at any moment from the storing of the
 * first configuration on: with none, some or all of its PMs formatted. Nothing was acknowledged, so it must start
 * again, however often it ends, with all its replicas, and serve. Clients ask for ids all the while: none is given
 * before every PM is formatted. */
#include "stage.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "server/store/store.h"
#include "test/lib/unit.h"

enum { SEEDS = 40, MOST_ENDS = 3, KEYS = 12, SERVERS = 3, REPLICAS = 2 };

#define SERVES_NS (20 * NS_PER_S)

struct reached {
    uint32_t ends, formatted[SERVERS + 1]; /* ends, by how many PMs were formatted then */
    uint32_t possibly_incomplete;          /* ends that leave doubt, before there were clients */
};

static uint64_t stored_version(const struct sim_cluster *cluster)
{
    const void *value;
    size_t bytes;
    return sim_registry_value(cluster->registry, &value, &bytes);
}

static bool is_unwritten(const struct sim_cluster *cluster)
{
    const void *value;
    size_t bytes;
    struct cluster_config *config;
    sim_registry_value(cluster->registry, &value, &bytes);
    assert_int_equal(cluster_decode(value, bytes, &config), 0);
    bool unwritten = cluster_is_unwritten(config);
    cluster_release(config);
    return unwritten;
}

static uint32_t count_formatted(const struct sim_cluster *cluster)
{
    struct store_identity identity;
    uint32_t count = 0;
    for (uint32_t i = 0; i < SERVERS; i++)
        count += store_read_identity(&cluster->servers[i].pm->pm, &identity) == 0;
    return count;
}

/* Whoever has an id may write. */
static void look(const struct sim_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->options.clients; i++) {
        if (session_ready(cluster->clients[i].session))
            assert_int_equal(count_formatted(cluster), SERVERS);
    }
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (cluster->servers[i].server)
            assert_int_equal(server_error(cluster->servers[i].server), 0);
    }
    if (cluster->cm)
        assert_int_equal(cm_error(cluster->cm), 0);
}

/* Until another configuration is stored, and some rounds more. */
static void run_into_start(struct sim_cluster *cluster, struct random *random)
{
    uint64_t version = stored_version(cluster), end_ns = cluster->clock.now_ns + SERVES_NS;
    while (stored_version(cluster) == version) {
        sim_cluster_step(cluster);
        look(cluster);
        assert_true(cluster->clock.now_ns < end_ns);
    }
    static const uint64_t most[] = {20, 100, 400};
    for (uint64_t rounds = random_below(random, most[random_below(random, 3)]); rounds; rounds--) {
        sim_cluster_step(cluster);
        look(cluster);
    }
}

static bool is_ready(void *context)
{
    struct sim_cluster *cluster = context;
    look(cluster);
    return sim_cluster_is_started(cluster) && session_ready(cluster->clients[0].session) &&
           session_ready(cluster->clients[1].session);
}

static void write_and_read(struct sim_cluster *cluster)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        char key[24], value[8] = "";
        size_t bytes;
        snprintf(key, sizeof key, "key-%u", i);
        assert_int_equal(sim_put(cluster, 0, key, strlen(key), "seven", 5, NULL), 0);
        assert_int_equal(sim_get(cluster, 1, key, strlen(key), value, sizeof value, &bytes, NULL),
                         0);
        assert_true(bytes == 5 && memcmp(value, "seven", 5) == 0);
    }
}

static void run_seed(uint64_t seed, struct reached *reached)
{
    struct random random;
    random_init(&random, seed);
    struct sim_cluster_options options = {.seed = seed,
                                          .servers = SERVERS,
                                          .replicas = REPLICAS,
                                          .clients = 2,
                                          .shards = 6,
                                          .pm_bytes = 88 << 20,
                                          .timeout_ns = SERVES_NS};
    options.max_delay_ns = random_below(&random, NS_PER_MS);
    options.fence_ns = random_below(&random, 2) * 200 * NS_PER_US;
    options.durability = random_below(&random, 3) ? PM_FENCE : PM_NONE;
    struct sim_cluster *cluster = sim_cluster_begin(&options);
    bool whole = true; /* all replicas count at every end */
    uint64_t ends = 1 + random_below(&random, MOST_ENDS);
    for (uint64_t i = 0; i < ends; i++) {
        run_into_start(cluster, &random);
        reached->ends++;
        reached->formatted[count_formatted(cluster)]++;
        reached->possibly_incomplete += is_unwritten(cluster) && options.durability == PM_NONE;
        whole &= is_unwritten(cluster) || options.durability == PM_FENCE;
        sim_cluster_crash(cluster);
        sim_cluster_restart(cluster, random_below(&random, 2));
    }
    assert_true(sim_cluster_run(cluster, is_ready, cluster, SERVES_NS));
    const struct cluster_config *config = sim_cluster_config(cluster);
    for (uint32_t i = 0; whole && i < config->shard_count; i++)
        assert_int_equal(1 + config->shards[i].backup_count, REPLICAS);
    write_and_read(cluster);

    /* What was written lasts. */
    sim_cluster_crash(cluster);
    sim_cluster_restart(cluster, false);
    assert_true(sim_cluster_run(cluster, is_ready, cluster, SERVES_NS));
    write_and_read(cluster);
    stage_finish(cluster, KEYS);
}

/* SIM_SEEDS=FROM:TO in the environment chooses the seeds. */
TEST(a_cluster_that_ends_in_its_first_start_starts_again)
{
    struct reached reached = {0};
    uint64_t from = 1, to = SEEDS;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++) {
        if (seeds)
            print_message("# seed %lu\n", seed);
        run_seed(seed, &reached);
    }
    print_message("# %u ends, with no PM formatted %u, with 1 %u, with 2 %u, with all %u; %u that "
                  "leave doubt\n",
                  reached.ends, reached.formatted[0], reached.formatted[1], reached.formatted[2],
                  reached.formatted[3], reached.possibly_incomplete);
    for (uint32_t i = 0; !seeds && i <= SERVERS; i++)
        assert_true(reached.formatted[i] > 0 && reached.possibly_incomplete > 0);
}

STAGE_MAIN
