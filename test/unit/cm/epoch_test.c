/* epoch_test.c - which reports count when the configuration manager starts a cluster: only those of the current
 * registration epoch (S8 in cm/state.c). */
#define TEST_FIXTURE world_setup, world_teardown

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/world.h"

enum { SERVERS = 3 };

static struct cm_join *joins;

/* All servers' connections close, and their next processes report once each. */
static struct world *world_of_waiting_servers(void)
{
    struct world *world = world_cluster(world_store, SERVERS);
    joins = world_rejoin_all(world, SERVERS, 2);
    world_close_all(world, SERVERS);
    for (uint32_t server = 1; server <= SERVERS; server++) {
        world_join_once(world, server, 7, &joins[server - 1]);
        assert_false(world->storing);
    }
    return world;
}

/* A server is told the registration epoch, and its next report carries it. */
static void report_twice(struct world *world, uint32_t connection, const struct cm_join *join)
{
    for (int i = 0; i < 2; i++) {
        assert_false(world->storing);
        world_join_once(world, connection, 7, join);
    }
}

/* Server 1's process has died, and its connection does not tell so. */
TEST(a_start_waits_until_everybody_has_reported_after_the_last_came)
{
    struct world *world = world_of_waiting_servers();
    report_twice(world, 2, &joins[1]);
    report_twice(world, 3, &joins[2]);
    assert_false(world->storing);

    struct cm_join next = world_rejoin_of(world, 1, 3);
    world_join_once(world, 9, 8, &next);
    assert_int_equal(world_last(world, 9)->error, ROWAN_EAGAIN);
    assert_false(world->storing);
    world_close(world, 1);
    report_twice(world, 9, &next);
    report_twice(world, 2, &joins[1]);
    report_twice(world, 3, &joins[2]);
    assert_true(world->storing);
    world_settle(world);
    assert_int_equal(cluster_member(cm_state_config(world->state), 1)->incarnation,
                     next.incarnation);
}

/* The manager slept: what it reads of server 1 now was sent before server 3 came, by a process that has died since. */
TEST(a_report_that_was_sent_before_the_last_came_does_not_count)
{
    struct world *world = world_of_waiting_servers();
    for (uint32_t server = 2; server <= SERVERS; server++)
        report_twice(world, server, &joins[server - 1]);
    const uint64_t old = world->connections[1].registration_epoch;
    for (int i = 0; i < 3; i++) {
        world->connections[1].registration_epoch = old;
        world_join_once(world, 1, 7, &joins[0]);
        assert_false(world->storing);
    }
    world_join_once(world, 1, 7, &joins[0]);
    assert_true(world->storing);
}

TEST(reports_from_before_a_manager_led_do_not_count)
{
    struct world *world = world_of_waiting_servers();
    world_lead(world, false);
    world_lead(world, true);
    world_settle(world);
    assert_int_equal(world_store->cold_starts, 0); /* server 1 has died meanwhile */
    for (uint32_t server = 2; server <= SERVERS; server++)
        report_twice(world, server, &joins[server - 1]);
    assert_false(world->storing);
    for (uint32_t server = 1; server <= SERVERS; server++)
        report_twice(world, server, &joins[server - 1]);
    assert_true(world->storing);
}

/* It may take long to fail, and the next time too: then once in each epoch, not for each report. */
TEST(a_start_that_could_not_be_stored_waits_for_another_epoch)
{
    static const enum world_outcome outcomes[] = {WORLD_ERROR, WORLD_UNKNOWN_LOST};
    struct world *world = world_of_waiting_servers();
    world_repeat_joins(world);
    for (int i = 0; i < 2; i++) {
        assert_true(world->storing);
        world_answer_store(world, outcomes[i]);
        world_join_once(world, 1, 7, &joins[0]);
        world_settle(world);
        assert_int_equal(world_store->cold_starts, 0);
        for (uint32_t server = 1; server <= SERVERS; server++)
            report_twice(world, server, &joins[server - 1]);
    }
    world_settle(world);
    assert_int_equal(world_store->cold_starts, 1);
}

UNIT_MAIN(NULL, NULL)
