/* joining_test.c - servers that come, or come back, while others run: when they are added, and what they fill. */
#define TEST_FIXTURE world_setup, world_teardown

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

/* Server 3 fell silent and was removed, and that is committed. */
static struct world *without_three(void)
{
    struct world *world = committed_cluster();
    fall_silent(world);
    assert_int_equal(term(world), 2);
    world_adopt(world, 1, 2);
    world_adopt(world, 2, 2);
    run(world, FIRST_TWO, world->now_ns + 2 * LEASE);
    assert_int_equal(committed(world, 2), FIRST_TWO);
    world_close(world, 3);
    memset(&last[3], 0, sizeof last[3]);
    world_forget(world);
    return world;
}

/* The next process of server 3 has come. It fills when it has adopted that, and said what space it has. */
static struct world *with_three_again(void)
{
    struct world *world = without_three();
    struct cm_join join = world_rejoin_of(world, 3, 1);
    world_join(world, 3, 6, &join);
    run(world, FIRST_TWO, world->now_ns + LEASE / 4);
    assert_configuration(world_last(world, 3), 0, 3, true);
    return world;
}

static const struct shard *row(const struct world *world)
{
    return &cm_state_config(world->state)->shards[0];
}

static void commit(struct world *world)
{
    adopt_all(world);
    run(world, ALL, world->now_ns + 2 * LEASE);
    assert_int_equal(committed(world, term(world)), ALL);
}

static struct world *filling_three(void)
{
    struct world *world = with_three_again();
    adopt_all(world);
    run(world, ALL, world->now_ns + LEASE);
    assert_int_equal(term(world), 4);
    return world;
}

TEST(a_server_that_was_removed_comes_back_and_fills)
{
    struct world *world = filling_three();
    assert_int_equal(cluster_member(cm_state_config(world->state), 3)->incarnation, 100003);
    assert_true(row(world)->epoch == 3 &&
                shard_has_filling(cm_state_config(world->state)->shards, 3));
    assert_string_equal(world_warning(world, "server_joined"), "term=3 server=3 ms=25");
    assert_string_equal(world_warning(world, "filling"), "term=4 shards=24 ms=0");

    commit(world);
    world_filled(world, row(world)->primary, 0, 3, 3, true);
    run(world, ALL, world->now_ns + LEASE / 4);
    assert_true(row(world)->epoch == 4 && row(world)->filling_count == 0 &&
                row(world)->backup_count == 2);
    assert_string_equal(world_warning(world, "filled"), "term=5 shards=1 left=23 ms=275");
    assert_int_equal(cm_state_config(world->state)->shards[1].epoch, 3);
}

TEST(grants_go_on_while_a_server_comes_and_when_it_does_not)
{
    struct world *world = with_three_again();
    const uint64_t since = world->now_ns - LEASE / 4; /* of the look at the clock before */
    assert_int_equal(run(world, FIRST_TWO, since + LEASE), FIRST_TWO);
    assert_int_equal(run(world, FIRST_TWO, since + LEASE + LEASE / 2), FIRST_TWO);
    run(world, FIRST_TWO, since + 3 * LEASE);
    world_settle(world);
    assert_null(cluster_member(cm_state_config(world->state), 3));
}

TEST(nobody_is_added_before_the_configuration_in_force_is_committed)
{
    struct world *world = committed_cluster();
    fall_silent(world);
    world_close(world, 3);
    struct cm_join join = world_rejoin_of(world, 3, 1);
    world_join(world, 3, 6, &join);
    for (int i = 0; i < 8; i++) {
        run(world, FIRST_TWO, world->now_ns + LEASE / 4);
        world_repeat_joins(world);
    }
    assert_int_equal(term(world), 2);
    world_adopt(world, 1, 2);
    world_adopt(world, 2, 2);
    run(world, FIRST_TWO, world->now_ns + LEASE);
    assert_int_equal(term(world), 3);
}

TEST(nobody_is_added_while_a_member_may_be_silent)
{
    struct world *world = without_three();
    run(world, 1u << 1, world->now_ns + LEASE + LEASE / 2);
    struct cm_join join = world_rejoin_of(world, 3, 1);
    world_join(world, 3, 6, &join);
    run(world, 1u << 1, world->now_ns + LEASE / 4 - 1);
    assert_false(world->storing);
}

/* Servers 1 and 2 renew, and nothing is answered by the coordination service. */
static void pass(struct world *world, uint64_t ns)
{
    for (uint64_t end = world->now_ns + ns; world->now_ns < end;) {
        world_round(world, world->now_ns + LEASE / 4);
        renew(world, 1);
        renew(world, 2);
    }
}

TEST(a_server_whose_coming_took_long_to_store_has_its_time_from_then_on)
{
    struct world *world = without_three();
    struct cm_join join = world_rejoin_of(world, 3, 1);
    world_join(world, 3, 6, &join);
    pass(world, 4 * LEASE);
    world_settle(world);
    assert_int_equal(term(world), 3);
    run(world, FIRST_TWO, world->now_ns + 2 * LEASE - 1);
    assert_int_equal(term(world), 3);
}

TEST(only_a_server_that_has_just_reported_is_added)
{
    struct world *world = without_three();
    struct cm_join join = world_rejoin_of(world, 3, 1);
    world_join_once(world, 3, 6, &join); /* before it knows the registration epoch */
    run(world, FIRST_TWO, world->now_ns + LEASE);
    assert_int_equal(term(world), 2);
    world_step(world, &(struct cm_event){
                          .kind = CM_EVENT_CHANGED}); /* until it is read nothing is proposed */
    world_repeat_joins(world);
    pass(world, NS_PER_S + LEASE);
    world_settle(world);
    run(world, FIRST_TWO, world->now_ns + LEASE);
    assert_int_equal(term(world), 2);
}

TEST(a_server_that_waits_to_be_added_holds_up_no_cold_start)
{
    struct world *world = without_three();
    struct cm_join join = world_rejoin_of(world, 3, 1);
    world_join_once(world, 3, 6, &join); /* and never again */
    world->connections[3].waits = false;
    world_cold_start(world, 2, world_rejoin_all(world, 2, 2));
    assert_int_equal(term(world), 3);
    assert_int_equal(cluster_member(cm_state_config(world->state), 1)->incarnation, 200001);
    assert_int_equal(cm_state_config(world->state)->member_count, 2);
}

TEST(only_servers_of_the_list_are_added_and_no_process_a_second_time)
{
    struct world *world = without_three();
    struct cm_join join = world_rejoin_of(world, SERVERS + 1, 1);
    world_join(world, 30, 6, &join);
    assert_failure(world_last(world, 30), ROWAN_EREFUSED, "not among the servers");
    join = world_join_of(3); /* it was not told that it is a member */
    world_join(world, 31, 6, &join);
    assert_failure(world_last(world, 31), ROWAN_EREMOVED, "was removed");
}

TEST(a_server_waits_while_its_last_process_is_a_member_also_without_data)
{
    struct world *world = committed_cluster();
    world_format_all(world, SERVERS);
    world_have_clients(world);
    struct cm_join join = world_rejoin_of(world, 3, 1);
    join.data_cluster = 0;
    world_join(world, 33, 6, &join);
    assert_failure(world_last(world, 33), ROWAN_EAGAIN, "with leases it waits");
}

TEST(what_fills_is_full_only_by_the_word_of_its_primary_on_the_row_in_force)
{
    struct world *world = filling_three();
    commit(world);
    const uint32_t primary = row(world)->primary, backup = row(world)->backups[0];
    world_filled(world, backup, 0, 3, 3, false);
    world_filled(world, primary, 0, 2, 3, false);
    world_filled(world, primary, 0, 4, 3, false);
    world_filled(world, primary, 0, 3, backup, false);
    world_filled(world, primary, UINT16_MAX, 3, 3, false);
    run(world, ALL, world->now_ns + LEASE);
    assert_int_equal(term(world), 4);
}

UNIT_MAIN(NULL, NULL)
