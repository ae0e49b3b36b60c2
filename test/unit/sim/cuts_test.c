/* Connections are cut at random, between everybody, all the time: no operation fails, none is lost
 * and none takes effect twice. Conditional puts as counters prove it, because one that met itself
 * would fail, and one that took effect twice would count twice. */
#include "common/base/log.h"
#include "stage.h"
#include "test/lib/unit.h"

enum { MAX_CLERKS = 64, KEY_ROOM = 24 };

/* Reads a counter and puts the next value on condition that nobody else did meanwhile, again and
 * again. Its key's counter may be other clerks' too. */
struct clerk {
    struct office *office;
    uint32_t client;
    char key[KEY_ROOM];
    bool busy, has_read;
    uint64_t version;
    uint64_t value; /* as read; then as put */
    uint32_t left;  /* increments to be made */
    uint32_t done, lost, unknown, timed_out;
};

struct office {
    struct sim_cluster *cluster;
    struct random random;
    struct clerk clerks[MAX_CLERKS];
    uint32_t count;
    uint32_t cuts, cut_one_in; /* rounds; 0: never */
};

static void on_answer(const struct rowan_completion *completion)
{
    struct clerk *clerk = completion->context;
    clerk->busy = false;
    switch (completion->status) {
    case 0:
        if (clerk->has_read) {
            clerk->done++;
            clerk->left--;
        }
        clerk->version = completion->version;
        clerk->has_read = !clerk->has_read;
        return;
    case ROWAN_ENOTFOUND:
        assert_false(clerk->has_read);
        clerk->value = 0;
        clerk->version = 0;
        clerk->has_read = true;
        return;
    case ROWAN_EVERSION:
        clerk->lost++;
        break;
    case ROWAN_EUNKNOWN:
        assert_true(clerk->has_read);
        clerk->unknown++;
        clerk->left--;
        break;
    default:
        assert_int_equal(completion->status, ROWAN_ETIMEDOUT);
        clerk->timed_out++;
    }
    clerk->has_read = false;
}

static void go_on(struct clerk *clerk)
{
    struct session_request request = {.type = MESSAGE_GET,
                                      .key = clerk->key,
                                      .key_bytes = strlen(clerk->key),
                                      .room = &clerk->value,
                                      .room_bytes = sizeof clerk->value,
                                      .callback = on_answer,
                                      .context = clerk};
    if (clerk->busy || clerk->left == 0)
        return;
    uint64_t value = clerk->value;
    if (clerk->has_read) {
        clerk->value++;
        request.type = MESSAGE_PUT_IF;
        request.room = NULL;
        request.room_bytes = 0;
        request.value = &clerk->value;
        request.value_bytes = sizeof clerk->value;
        request.expected = clerk->version;
    }
    int error = session_post(clerk->office->cluster->clients[clerk->client].session, &request);
    clerk->busy = !error;
    if (error) {
        assert_int_equal(error, ROWAN_EAGAIN);
        clerk->value = value;
    }
}

static bool office_step(void *context)
{
    struct office *office = context;
    uint32_t left = 0;
    if (office->cut_one_in && random_below(&office->random, office->cut_one_in) == 0) {
        sim_cluster_cut(office->cluster, &office->random);
        office->cuts++;
    }
    for (uint32_t i = 0; i < office->count; i++) {
        go_on(&office->clerks[i]);
        left += office->clerks[i].left;
    }
    return left == 0;
}

static void open_office(struct office *office, struct sim_cluster *cluster, uint32_t clerks,
                        uint32_t counters, uint32_t increments)
{
    *office = (struct office){.cluster = cluster, .count = clerks};
    random_init(&office->random, cluster->options.seed);
    for (uint32_t i = 0; i < clerks; i++) {
        struct clerk *clerk = &office->clerks[i];
        *clerk = (struct clerk){
            .office = office, .client = i % cluster->options.clients, .left = increments};
        snprintf(clerk->key, sizeof clerk->key, "counter-%u", i % counters);
    }
}

/* Each counter is what was acknowledged, and of what is unknown each increment or not. */
static void check_counters(const struct office *office, uint32_t counters)
{
    struct sim_cluster *cluster = office->cluster;
    for (uint32_t i = 0; i < counters; i++) {
        const char *key = office->clerks[i].key;
        uint64_t value = 0, done = 0, unknown = 0;
        for (uint32_t k = i; k < office->count; k += counters) {
            done += office->clerks[k].done;
            unknown += office->clerks[k].unknown;
        }
        int error = sim_get(cluster, 0, key, strlen(key), &value, sizeof value, NULL, NULL);
        assert_true(error == 0 || (error == ROWAN_ENOTFOUND && done == 0));
        assert_in_range(value, done, done + unknown);
    }
}

static void count_through_cuts(const struct sim_cluster_options *options)
{
    struct office office;
    struct sim_cluster *cluster = sim_cluster_create(options);
    enum { CLERKS = 32, COUNTERS = 12, INCREMENTS = 60 };
    open_office(&office, cluster, CLERKS, COUNTERS, INCREMENTS);
    office.cut_one_in = 40;
    assert_true(sim_cluster_run(cluster, office_step, &office, 600 * NS_PER_S));
    uint32_t lost = 0;
    for (uint32_t i = 0; i < CLERKS; i++) {
        assert_int_equal(office.clerks[i].done, INCREMENTS);
        assert_int_equal(office.clerks[i].unknown + office.clerks[i].timed_out, 0);
        lost += office.clerks[i].lost;
    }
    print_message("# seed %lu: %u cuts, %u lost races, %lu connections\n", options->seed,
                  office.cuts, lost, sim_network_counts(cluster->network).connected);
    assert_true(office.cuts > 20 && lost > 0);
    check_counters(&office, COUNTERS);
    stage_finish(cluster, COUNTERS);
}

TEST(counters_are_exact_whatever_is_cut)
{
    uint64_t from = 1, to = 8;
    const char *seeds = getenv("SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%lu:%lu", &from, &to), 2);
    for (uint64_t seed = from; seed <= to; seed++)
        count_through_cuts(
            &(struct sim_cluster_options){.seed = seed,
                                          .clients = 1 + (uint32_t)(seed % 4),
                                          .workers = 1 + (uint32_t)(seed % 3),
                                          .shards = 12,
                                          .max_delay_ns = (seed % 5) * 100 * NS_PER_US,
                                          .fence_ns = (seed % 3) * 100 * NS_PER_US,
                                          .max_messages = seed % 2 ? 0 : 3});
}

TEST(counters_are_exact_while_clients_change_their_ids)
{
    count_through_cuts(&(struct sim_cluster_options){.seed = 71,
                                                     .clients = 3,
                                                     .shards = 12,
                                                     .max_delay_ns = 100 * NS_PER_US,
                                                     .operations_per_id = 50,
                                                     .span = 20});
}

struct ends {
    uint32_t unknown, timed_out;
};

static struct ends count_ends(const struct office *office)
{
    struct ends ends = {0};
    for (uint32_t i = 0; i < office->count; i++) {
        ends.unknown += office->clerks[i].unknown;
        ends.timed_out += office->clerks[i].timed_out;
    }
    return ends;
}

/* A client that is cut off for longer than its timeout does not know of what it had sent; what it
 * had not sent did not happen. */
TEST(only_after_the_horizon_a_write_is_unknown)
{
    struct office office;
    struct sim_cluster *cluster =
        sim_cluster_create(&(struct sim_cluster_options){.seed = 5,
                                                         .clients = 2,
                                                         .shards = 12,
                                                         .max_delay_ns = 5 * NS_PER_MS,
                                                         .timeout_ns = NS_PER_S});
    open_office(&office, cluster, 24, 12, 1000000);
    for (uint32_t round = 0; round < 6; round++) {
        sim_cluster_run(cluster, office_step, &office, 1500 * NS_PER_MS);
        struct ends before = count_ends(&office);
        sim_network_part(cluster->network, cluster->clients[round % 2].process.address,
                         cluster->servers[round % 3].process.address);
        sim_cluster_run(cluster, office_step, &office, 900 * NS_PER_MS);
        struct ends after = count_ends(&office);
        assert_int_equal(after.unknown, before.unknown);
        assert_int_equal(after.timed_out, before.timed_out);
        sim_cluster_run(cluster, office_step, &office, NS_PER_S);
        sim_network_join(cluster->network);
    }
    sim_cluster_run_for(cluster, 3 * NS_PER_S); /* to the end of what is outstanding */
    struct ends ends = count_ends(&office);
    print_message("# %u unknown, %u timed out\n", ends.unknown, ends.timed_out);
    assert_true(ends.unknown > 0 && ends.timed_out > 0);
    check_counters(&office, 12);
    sim_cluster_destroy(cluster);
}

int main(void)
{
    log_set_level(getenv("SIM_LOG") ? LOG_DEBUG : LOG_ERROR);
    if (getenv("SIM_SEEDS"))
        cmocka_set_test_filter("counters_are_exact_whatever*");
    return unit_run(NULL, NULL);
}
