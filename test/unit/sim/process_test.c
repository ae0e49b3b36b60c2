/* Processes of a simulated cluster: clocks of their own, stopped, slow, ended alone and started again. */
#include "test/sim/cluster.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "common/base/error.h"
#include "server/control/control_state.h"
#include "test/lib/unit.h"

#define START_NS (5 * NS_PER_S)

static struct sim_cluster *create(const struct sim_cluster_options *shape)
{
    struct sim_cluster_options options = *shape;
    fabric_segment_bytes = 128 << 10;
    options.shards = 6;
    options.pm_bytes = 32 << 20;
    if (!options.seed)
        options.seed = 1;
    return sim_cluster_create(&options);
}

static int put(struct sim_cluster *cluster, const char *key, const char *value)
{
    return sim_put(cluster, 0, key, strlen(key), value, strlen(value), NULL);
}

static void assert_is(struct sim_cluster *cluster, const char *key, const char *value)
{
    char room[64];
    size_t bytes;
    assert_int_equal(sim_get(cluster, 0, key, strlen(key), room, sizeof room, &bytes, NULL), 0);
    assert_int_equal(bytes, strlen(value));
    assert_memory_equal(room, value, bytes);
}

static const struct shard *shard_of(const struct sim_cluster *cluster, const char *key)
{
    return cluster_shard_of_slot(sim_cluster_config(cluster),
                                 slot_of_key(key, (uint32_t)strlen(key)));
}

static struct sim_process *primary_of(struct sim_cluster *cluster, const char *key)
{
    return &cluster->servers[shard_of(cluster, key)->primary - 1].process;
}

static uint64_t time_of_put(struct sim_cluster *cluster, const char *key)
{
    uint64_t began_ns = cluster->clock.now_ns;
    assert_int_equal(put(cluster, key, "1"), 0);
    return cluster->clock.now_ns - began_ns;
}

/* --- clocks --- */

TEST(a_time_a_process_asks_for_is_the_first_at_which_its_clock_shows_it)
{
    static const int32_t rates[] = {-10000, -333, -1, 0, 1, 77, 10000};
    struct random random;
    random_init(&random, 5);
    for (unsigned i = 0; i < 7000; i++) {
        const uint64_t ahead_ns = i % 3 ? random_below(&random, 3 * 86400 * NS_PER_S) : 0;
        const struct sim_process process = {.rate_ppm = rates[i % 7], .ahead_ns = ahead_ns};
        uint64_t at_ns = random_below(&random, UINT64_C(1) << (10 + i % 50));
        uint64_t until_ns = sim_process_until_ns(&process, at_ns);
        assert_true(sim_process_now_ns(&process, until_ns) >= at_ns);
        if (until_ns > 0)
            assert_true(sim_process_now_ns(&process, until_ns - 1) < at_ns);
    }
    const struct sim_process ahead = {.ahead_ns = NS_PER_S};
    assert_int_equal(sim_process_now_ns(&ahead, 3), NS_PER_S + 3);
    assert_int_equal(sim_process_until_ns(&ahead, NS_PER_S + 3), 3);
    assert_int_equal(sim_process_until_ns(&ahead, 3), 0);
    const struct sim_process fast = {.rate_ppm = 10000};
    assert_int_equal(sim_process_now_ns(&fast, 100 * NS_PER_S), 101 * NS_PER_S);
    assert_true(sim_process_until_ns(&fast, WAKE_NEVER) == WAKE_NEVER);
}

TEST(a_client_whose_clock_is_fast_gives_up_sooner)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){.timeout_ns = NS_PER_S});
    cluster->clients[0].process.rate_ppm = 10000;
    assert_int_equal(put(cluster, "key", "1"), 0);
    sim_cluster_crash(cluster);
    uint64_t began_ns = cluster->clock.now_ns;
    int error = put(cluster, "key", "2");
    assert_true(error == ROWAN_ETIMEDOUT || error == ROWAN_EUNKNOWN);
    uint64_t took_ns = cluster->clock.now_ns - began_ns;
    assert_in_range(took_ns, 985 * NS_PER_MS, 995 * NS_PER_MS); /* 1 s / 1.01 */
    sim_cluster_destroy(cluster);
}

TEST(a_server_that_goes_on_polls_once_with_the_time_of_its_stop_though_its_clock_has_run_on)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){.clocks_apart = true});
    struct sim_process *process = &cluster->servers[0].process;
    const struct control *control = server_poller(cluster->servers[0].server, 0).role;
    const uint64_t stopped_ns = clock_now_ns(&process->clock);
    sim_cluster_stop(cluster, process, true);
    sim_cluster_run_for(cluster, NS_PER_S);
    sim_cluster_stop(cluster, process, false);
    sim_cluster_step(cluster);
    assert_int_equal(control->now_ns, stopped_ns);
    assert_true(clock_now_ns(&process->clock) >= stopped_ns + NS_PER_S);
    sim_cluster_run_for(cluster, NS_PER_MS);
    assert_true(control->now_ns >= stopped_ns + NS_PER_S);
    sim_cluster_destroy(cluster);
}

TEST(clocks_may_begin_long_before_a_run_and_apart)
{
    uint64_t last_ns = 0, longest_ns = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct sim_cluster *cluster = create(&(struct sim_cluster_options){
            .seed = seed, .servers = 5, .clients = 4, .clocks_apart = seed > 1});
        for (uint32_t i = 0; i < sim_cluster_processes(cluster); i++) {
            const struct sim_process *process = sim_cluster_process(cluster, i);
            if (seed == 1)
                assert_int_equal(process->ahead_ns, 0);
            else
                assert_in_range(process->ahead_ns, NS_PER_S, 4 * 86400 * NS_PER_S);
            assert_true(seed == 1 || process->ahead_ns != last_ns);
            last_ns = process->ahead_ns;
            longest_ns = last_ns > longest_ns ? last_ns : longest_ns;
        }
        assert_int_equal(put(cluster, "key", "1"), 0);
        sim_cluster_run_for(cluster, 5 * NS_PER_S);
        assert_is(cluster, "key", "1");
        sim_cluster_destroy(cluster);
    }
    assert_true(longest_ns > 86400 * NS_PER_S);
}

TEST(clocks_differ_by_no_more_than_they_may)
{
    struct sim_cluster *cluster =
        create(&(struct sim_cluster_options){.servers = 5, .clients = 4, .drift_ppm = 10000});
    uint32_t different = 0;
    for (uint32_t i = 0; i < sim_cluster_processes(cluster); i++) {
        int32_t rate = sim_cluster_process(cluster, i)->rate_ppm;
        assert_in_range(rate + 10000, 0, 20000);
        different += rate != sim_cluster_process(cluster, 0)->rate_ppm;
    }
    assert_int_equal(different, 9);
    assert_int_equal(put(cluster, "key", "1"), 0);
    sim_cluster_run_for(cluster, 60 * NS_PER_S);
    assert_is(cluster, "key", "1");
    sim_cluster_destroy(cluster);
}

/* --- stopped, slow, late --- */

TEST(a_stopped_primary_answers_when_it_goes_on)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){.timeout_ns = NS_PER_S});
    struct sim_process *primary = primary_of(cluster, "key");
    assert_int_equal(put(cluster, "key", "1"), 0);
    sim_cluster_stop(cluster, primary, true);
    int error = put(cluster, "key", "2");
    assert_true(error == ROWAN_ETIMEDOUT || error == ROWAN_EUNKNOWN);
    sim_cluster_stop(cluster, primary, false);
    assert_int_equal(put(cluster, "key", "3"), 0);
    assert_is(cluster, "key", "3");
    sim_cluster_destroy(cluster);
}

TEST(a_slow_server_takes_its_time)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){0});
    assert_int_equal(put(cluster, "key", "0"), 0);
    uint64_t fast_ns = time_of_put(cluster, "key");
    assert_true(fast_ns < NS_PER_MS);
    primary_of(cluster, "key")->slow_ns = 10 * NS_PER_MS;
    uint64_t slow_ns = time_of_put(cluster, "key");
    assert_in_range(slow_ns, 10 * NS_PER_MS, 100 * NS_PER_MS);
    primary_of(cluster, "key")->slow_ns = 0;
    sim_cluster_run_for(cluster, 20 * NS_PER_MS);
    assert_true(time_of_put(cluster, "key") < NS_PER_MS);
    sim_cluster_destroy(cluster);
}

TEST(a_late_control_role_lets_its_landing_zone_run_dry)
{
    struct sim_cluster *cluster =
        create(&(struct sim_cluster_options){.landing_segments = 2, .one_sided = true});
    static char value[30000];
    struct sim_server *backup = &cluster->servers[shard_of(cluster, "key")->backups[0] - 1];
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(sim_put(cluster, 0, "key", 3, value, sizeof value, NULL), 0);
    assert_int_equal(sim_network_counts(cluster->network).dry, 0);
    backup->late[0].every_ns = 100 * NS_PER_MS;
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(sim_put(cluster, 0, "key", 3, value, sizeof value, NULL), 0);
    assert_true(sim_network_counts(cluster->network).dry > 0);
    sim_cluster_destroy(cluster);
}

/* --- ends and starts --- */

static void start_all(struct sim_cluster *cluster)
{
    for (uint32_t i = 1; i <= cluster->options.servers; i++)
        sim_cluster_start_server(cluster, i);
}

/* Without failover nobody takes it back before all others have ended too. */
TEST(a_server_that_returns_alone_waits_for_the_end_of_the_others)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){0});
    assert_int_equal(put(cluster, "key", "1"), 0);
    uint64_t term = sim_cluster_config(cluster)->term;
    sim_cluster_kill_server(cluster, 1, NULL);
    sim_cluster_start_server(cluster, 1);
    sim_cluster_run_for(cluster, START_NS);
    assert_int_equal(sim_cluster_config(cluster)->term, term);
    sim_cluster_kill_server(cluster, 2, NULL);
    sim_cluster_kill_server(cluster, 3, NULL);
    sim_cluster_start_server(cluster, 2);
    sim_cluster_start_server(cluster, 3);
    assert_is(cluster, "key", "1");
    assert_int_equal(sim_cluster_config(cluster)->term, term + 1);
    assert_int_equal(server_error(cluster->servers[0].server), 0);
    sim_cluster_destroy(cluster);
}

TEST(a_rival_leads_only_while_the_cm_does_not)
{
    struct sim_cluster *cluster = create(&(struct sim_cluster_options){
        .registry = {.max_delay_ns = NS_PER_MS, .session_ns = NS_PER_S}});
    assert_int_equal(put(cluster, "key", "1"), 0);
    sim_cluster_start_rival(cluster);
    sim_cluster_run_for(cluster, NS_PER_S);
    assert_int_equal(cm_config(cluster->rival.cm)->term, sim_cluster_config(cluster)->term);
    uint64_t before = sim_cluster_config(cluster)->term;
    sim_coord_expire(cluster->coord); /* the rival leads now */
    sim_cluster_run_for(cluster, NS_PER_S);
    assert_true(session_ready(cluster->rival.guest.session));
    assert_int_equal(cm_config(cluster->rival.cm)->term, before + 1);
    for (uint32_t i = 1; i <= 3; i++)
        sim_cluster_kill_server(cluster, i, NULL);
    sim_cluster_run_for(cluster, 10 * NS_PER_MS);
    start_all(cluster); /* the servers go on to it */
    sim_cluster_run_for(cluster, START_NS);
    assert_is(cluster, "key", "1");
    uint64_t term = cm_config(cluster->rival.cm)->term;
    assert_true(term > before + 1);
    sim_cluster_kill_rival(cluster); /* its session ends, and the CM leads again */
    for (uint32_t i = 1; i <= 3; i++)
        sim_cluster_kill_server(cluster, i, NULL);
    sim_cluster_run_for(cluster, 10 * NS_PER_MS);
    start_all(cluster);
    sim_cluster_run_for(cluster, START_NS);
    assert_true(sim_cluster_config(cluster)->term > term);
    assert_is(cluster, "key", "1");
    sim_cluster_destroy(cluster);
}

UNIT_MAIN(NULL, NULL)
