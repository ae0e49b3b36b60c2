/* Who is polled when a server's roles sleep on reactors of their own, and how one is found that was forgotten. */
#include "test/sim/cluster.h" /* first: it brings client/rowan.h, which common/base/error.h wants to see */

#include "server/digest/digest.h"
#include "test/lib/unit.h"
#include "test/sim/digests.h"

/* --- one reactor --- */

struct polled {
    unsigned polls;
    enum poll_result result;
    uint64_t wake_ns;
};

static enum poll_result poll_role(void *argument, uint64_t now_ns, uint64_t *wake_ns)
{
    struct polled *role = argument;
    (void)now_ns;
    role->polls++;
    *wake_ns = role->wake_ns;
    return role->result;
}

static void put_to_sleep(struct reactor *reactor)
{
    sim_reactor_begin(reactor, false);
    for (uint32_t i = 0; i < reactor->role_count; i++) {
        struct sim_role *role = &reactor->roles[i];
        role->turn = false;
        sim_reactor_poll(reactor, role, 0, &role->wake_ns);
    }
}

TEST(a_reactor_is_awake_for_a_reason_only)
{
    struct reactor *reactor = calloc(1, sizeof *reactor);
    struct polled role = {.wake_ns = WAKE_NEVER};
    assert_non_null(reactor);
    reactor_add_poller(reactor, &(struct poller){"role", poll_role, &role, NULL});
    assert_true(sim_reactor_is_awake(reactor, 1)); /* nobody was polled yet */
    put_to_sleep(reactor);
    assert_false(sim_reactor_is_awake(reactor, WAKE_NEVER - 1));
    reactor_wake(reactor);
    assert_true(sim_reactor_is_awake(reactor, 1));
    role.result = POLL_BUSY;
    put_to_sleep(reactor);
    assert_true(sim_reactor_is_awake(reactor, 1));
    role.result = POLL_IDLE;
    role.wake_ns = 100;
    put_to_sleep(reactor);
    assert_false(sim_reactor_is_awake(reactor, 99));
    assert_true(sim_reactor_is_awake(reactor, 100));
    assert_int_equal(role.polls, 3);
    free(reactor);
}

TEST(a_turn_that_is_late_keeps_its_reason)
{
    struct reactor *reactor = calloc(1, sizeof *reactor);
    struct polled role = {.wake_ns = WAKE_NEVER};
    assert_non_null(reactor);
    reactor_add_poller(reactor, &(struct poller){"role", poll_role, &role, NULL});
    sim_reactor_begin(reactor, true);
    assert_true(reactor->roles[0].for_nothing);
    sim_reactor_begin(reactor, false);
    assert_false(reactor->roles[0].for_nothing);
    sim_reactor_begin(reactor, true);
    assert_false(reactor->roles[0].for_nothing);
    free(reactor);
}

/* --- a cluster --- */

/* Two reactors: the digest role has one for itself. Everybody wakes for nothing, all the time. */
static struct sim_cluster *create(void)
{
    fabric_segment_bytes = 64 << 10;
    return sim_cluster_create(&(struct sim_cluster_options){.seed = 3,
                                                            .shards = 4,
                                                            .reactors = 2,
                                                            .idle_wakes = 1,
                                                            .early_seal = 4,
                                                            .max_delay_ns = 100 * NS_PER_US,
                                                            .fence_ns = 100 * NS_PER_US,
                                                            .pm_bytes = 32 << 20});
}

TEST(nobody_is_forgotten)
{
    struct sim_cluster *cluster = create();
    struct sim_digests digests;
    for (unsigned i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%u", i);
        assert_int_equal(sim_put(cluster, 0, key, strlen(key), "value", 5, NULL), 0);
        sim_cluster_run_for(cluster, 20 * NS_PER_MS);
    }
    sim_cluster_run_for(cluster, NS_PER_S);
    assert_true(sim_digests_agree(cluster, NS_PER_S, NULL, NULL, &digests));
    assert_null(cluster->sleeper.role);
    sim_cluster_destroy(cluster);
}

TEST(a_role_that_nobody_wakes_is_found)
{
    struct sim_cluster *cluster = create();
    struct sim_digests digests;
    sim_cluster_run_for(cluster, NS_PER_S);
    assert_null(cluster->sleeper.role);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        inbox_set_reactor(&digest_role(server_poller(cluster->servers[i].server, 2).role)->inbox,
                          NULL);
    sim_digests_agree(cluster, NS_PER_S, NULL, NULL, &digests);
    assert_string_equal(cluster->sleeper.role, "digest");
    assert_true(cluster->sleeper.late_ns == WAKE_NEVER);
    sim_cluster_destroy(cluster);
}

/* Without wakes for nothing it sleeps on. */
TEST(a_role_that_nobody_wakes_sleeps)
{
    struct sim_cluster *cluster = create();
    struct sim_digests digests;
    cluster->options.idle_wakes = 0;
    sim_cluster_run_for(cluster, NS_PER_S);
    for (uint32_t i = 0; i < cluster->options.servers; i++)
        inbox_set_reactor(&digest_role(server_poller(cluster->servers[i].server, 2).role)->inbox,
                          NULL);
    assert_false(sim_digests_agree(cluster, NS_PER_S, NULL, NULL, &digests));
    assert_true(digests.late);
    sim_cluster_destroy(cluster);
}

UNIT_MAIN(NULL, NULL)
