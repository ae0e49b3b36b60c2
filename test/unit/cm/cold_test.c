/* cold_test.c - the configuration manager when servers come back: who waits and who is refused. The
 * configuration after a cold start is tested by cold_data_test.c. That a cold start replaces nobody who
 * runs, raises every epoch and counts the right replicas is checked by world.c whenever one is
 * stored. */
#define TEST_FIXTURE world_setup, world_teardown

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/world.h"

enum { SERVERS = 3 };

TEST(servers_that_return_wait_for_all_of_them)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_close_all(world, SERVERS);
    for (uint32_t server = 1; server <= SERVERS; server++) {
        assert_false(world->storing);
        struct cm_join join = world_rejoin_of(world, server, 1);
        world_join(world, server, 40, &join);
        assert_configuration(world_last(world, server), 40, 0, false);
        assert_int_equal(world_last(world, server)->waiting_count, SERVERS - server);
        for (uint32_t i = 0; i < SERVERS - server; i++)
            assert_int_equal(world_last(world, server)->waiting_for[i], server + 1 + i);
    }
    assert_true(world->storing);
    world_forget(world);
    world_settle(world);
    for (uint32_t server = 1; server <= SERVERS; server++)
        assert_configuration(world_last(world, server), 0, 2, true);
    assert_int_equal(world_store->cold_starts, 1);
    assert_int_equal(world->warning_count, 0);
    for (uint32_t i = 0; i < world_stored()->shard_count; i++) {
        assert_int_equal(world_stored()->shards[i].epoch, 2);
        assert_int_equal(world_stored()->shards[i].backup_count, 2);
    }
}

TEST(whoever_asks_meanwhile_is_told_what_is_missing)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_close_all(world, SERVERS);
    world_get(world, 20, 5, 0); /* nobody came back yet: it may be the manager that restarted */
    assert_configuration(world_last(world, 20), 5, 1, false);
    assert_int_equal(world_last(world, 20)->waiting_count, 0);

    struct cm_join join = world_rejoin_of(world, 2, 1);
    world_join(world, 2, 40, &join);
    for (uint64_t known = 0; known <= 1; known++) {
        world_get(world, 20, 6, known);
        assert_configuration(world_last(world, 20), 6, known == 0 ? 1 : 0, false);
        assert_int_equal(world_last(world, 20)->waiting_count, 2);
        assert_int_equal(world_last(world, 20)->waiting_for[0], 1);
        assert_int_equal(world_last(world, 20)->waiting_for[1], 3);
    }
    world_get(world, 2, 7, 0); /* it waits: no secret for it */
    assert_configuration(world_last(world, 2), 7, 1, false);
}

TEST(a_server_that_waits_may_say_so_again_and_again)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_close_all(world, SERVERS);
    struct cm_join join = world_rejoin_of(world, 2, 1);
    for (uint32_t i = 0; i < 2 * CLUSTER_MAX_MEMBERS; i++) {
        world_join(world, 2, i, &join);
        assert_configuration(world_last(world, 2), i, 0, false);
        assert_int_equal(world_last(world, 2)->waiting_count, 2);
    }
    world_close(world, 2);
    world_get(world, 2, 5, 0);
    assert_int_equal(world_last(world, 2)->waiting_count, 0); /* nobody waits any more */
}

TEST(a_server_cannot_return_while_another_kept_running)
{
    struct world *world = world_cluster(world_store, SERVERS);
    struct cm_join join = world_rejoin_of(world, 2, 1);
    world_close(world, 2);
    world_join(world, 2, 6, &join);
    assert_failure(world_last(world, 2), ROWAN_EAGAIN, "stop all servers and start them again");
    assert_int_equal(world_last(world, 2)->tag, 6);
    assert_int_equal(world->sent_count, 1);
}

/* Server 3 runs; a second process with its number brings an empty PM. Were it put off until all others have ended, it
 * would take server 3's place, and every replica that it has. */
TEST(a_process_without_data_is_not_put_off_once_there_were_clients)
{
    struct world *world = world_cluster(world_store, SERVERS);
    struct cm_join empty = world_rejoin_of(world, 3, 1);
    empty.data_cluster = 0;
    world_join_once(world, 13, 6, &empty);
    assert_failure(world_last(world, 13), ROWAN_EAGAIN, "keep running"); /* nothing can be lost */
    world_have_clients(world);
    world_join_once(world, 13, 7, &empty);
    assert_failure(world_last(world, 13), ROWAN_EREFUSED, "keep running");

    world_close_all(world, SERVERS);
    struct cm_join whole = world_rejoin_of(world, 3, 2);
    world_join_once(world, 3, 8, &whole);
    world_join_once(world, 13, 9, &empty);
    assert_failure(world_last(world, 13), ROWAN_EREFUSED, "has this number");
}

/* The same of one that waits already, when a member turns out to be running. */
TEST(one_that_waits_without_data_is_refused_for_good_when_a_member_comes)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_have_clients(world);
    world_destroy(world);
    world = world_empty(world_store, SERVERS); /* the manager restarted as well */
    for (uint32_t server = 2; server <= 3; server++) {
        struct cm_join join = world_rejoin_of(world, server, 1);
        join.data_cluster = server == 2 ? 0 : join.data_cluster;
        world_join_once(world, server, 6, &join);
    }
    struct cm_join kept = world_join_of(1);
    world_join_once(world, 1, 7, &kept);
    assert_failure(world_last(world, 2), ROWAN_EREFUSED, "keep running");
    assert_failure(world_last(world, 3), ROWAN_EAGAIN, "keep running");
}

TEST(those_that_wait_are_refused_when_one_that_kept_running_comes)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_destroy(world);
    world = world_empty(world_store, SERVERS); /* the manager restarted as well */
    struct cm_join join = world_rejoin_of(world, 2, 1);
    world_join(world, 2, 6, &join);
    assert_configuration(world_last(world, 2), 6, 0, false);

    struct cm_join kept = world_join_of(1);
    world_join(world, 1, 7, &kept);
    assert_configuration(world_last(world, 1), 7, 1, true);
    assert_failure(world_last(world, 2), ROWAN_EAGAIN, "keep running");
    assert_int_equal(world_last(world, 2)->tag, 6);
    world_get(world, 1, 8, 1);
    assert_int_equal(world_last(world, 1)->waiting_count, 0);
}

/* It was cut off while all others were started again, with another process in its place. */
TEST(a_server_that_was_replaced_is_refused_for_good)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_cold_start(world, SERVERS, world_rejoin_all(world, SERVERS, 1));
    struct cm_join old = world_join_of(1);
    old.named = true;
    old.data_cluster = 77;
    world_join_once(world, 10, 6, &old);
    assert_failure(world_last(world, 10), ROWAN_EREFUSED, "another process");
    world_close_all(world, SERVERS);
    world_join_once(world, 10, 7, &old); /* and is not waited for, either */
    assert_failure(world_last(world, 10), ROWAN_EREFUSED, "another process");
}

TEST(a_member_that_comes_while_its_successor_is_being_stored_is_replaced)
{
    struct world *world = world_cluster(world_store, SERVERS);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    world_restart_all(world, SERVERS, joins);
    assert_true(world->storing);
    struct cm_join old = world_join_of(1);
    world_join(world, 10, 6, &old);
    assert_configuration(world_last(world, 10), 6, 1, true); /* still in force */
    world_forget(world);
    world_settle(world);
    assert_failure(world_last(world, 10), ROWAN_EREFUSED, "another process");
    for (uint32_t server = 1; server <= SERVERS; server++)
        assert_configuration(world_last(world, server), 0, 2, true);
}

TEST(a_lost_answer_to_a_cold_start_is_read_again)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_have_clients(world);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    world_restart_all(world, SERVERS, joins);
    world_answer_store(world, WORLD_UNKNOWN_LOST);
    world_settle(world); /* reads, and asks all once more */
    world_repeat_joins(world);
    world_settle(world);
    assert_int_equal(world_store->version, 3);

    joins = world_rejoin_all(world, SERVERS, 2);
    world_restart_all(world, SERVERS, joins);
    world_answer_store(world, WORLD_UNKNOWN_WON);
    world_forget(world);
    world_settle(world);
    assert_int_equal(world_store->version, 4);
    for (uint32_t server = 1; server <= SERVERS; server++)
        assert_configuration(world_last(world, server), 0, 4, true);
    world_open(world, 20); /* the block that it reserved is not ours (S3), the one before it is */
    world_new_id(world, 20, 9);
    assert_int_equal(world_last(world, 20)->client_id, 1 + CM_CLIENT_ID_BLOCK);
}

TEST(a_cold_start_reserves_client_ids_and_gives_none_twice)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_new_id(world, 20, 9);
    world_settle(world);
    uint32_t before = world_last(world, 20)->client_id;
    world_cold_start(world, SERVERS, world_rejoin_all(world, SERVERS, 1));
    world_new_id(world, 20, 10);
    assert_false(world->storing);
    assert_int_equal(world_last(world, 20)->client_id, before + CM_CLIENT_ID_BLOCK);
}

TEST(data_of_another_cluster_is_refused_with_both_names)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_close_all(world, SERVERS);
    struct cm_join join = world_rejoin_of(world, 2, 1);
    join.data_cluster = 0xabcdef;
    world_join(world, 2, 6, &join);
    assert_failure(world_last(world, 2), ROWAN_EREFUSED,
                   "server 2 holds data of cluster "
                   "0000000000abcdef, and this is cluster "
                   "000000000000004d");
}

TEST(data_without_a_cluster_is_refused)
{
    struct world *world = world_empty(world_store, SERVERS);
    struct cm_join join = world_join_of(2);
    join.data_cluster = 0xabcdef;
    world_join(world, 2, 6, &join);
    assert_failure(world_last(world, 2), ROWAN_EREFUSED, "knows no cluster");
    assert_failure(world_last(world, 2), ROWAN_EREFUSED, "cluster 0000000000abcdef");
}

TEST(a_fabric_with_smaller_blocks_is_refused)
{
    struct world *world = world_cluster(world_store, SERVERS);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    joins[0].block_limit *= 2; /* changes nothing */
    joins[2].block_limit /= 2;
    world_restart_all(world, SERVERS, joins);
    assert_false(world->storing);
    assert_failure(world_last(world, 3), ROWAN_EREFUSED, "smaller blocks");
    joins[2].block_limit *= 2;
    world_join(world, 3, 7, &joins[2]);
    world_settle(world);
    assert_int_equal(world_stored()->block_limit, 65536);
    assert_int_equal(world_store->cold_starts, 1);
}

TEST(one_that_waits_is_refused_when_a_cluster_appears_that_it_does_not_fit)
{
    struct world *follower = world_empty(world_store, SERVERS);
    struct cm_join join = world_join_of(1);
    join.incarnation = 5;
    join.block_limit /= 2;
    world_join(follower, 1, 6, &join);
    struct world *leader = world_cluster(world_store, SERVERS);
    world_step(follower, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(follower);
    assert_failure(world_last(follower, 1), ROWAN_EREFUSED, "smaller blocks");
    world_destroy(leader);
    world_destroy(follower);
}

TEST(two_processes_with_one_number_do_not_both_wait)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_close_all(world, SERVERS);
    for (uint32_t round = 1; round <= 2; round++) {
        struct cm_join join = world_rejoin_of(world, 2, round);
        world_join(world, 10 + round, 6, &join);
    }
    assert_configuration(world_last(world, 11), 6, 0, false);
    assert_failure(world_last(world, 12), ROWAN_EAGAIN, "has this number");

    world_close(world, 11); /* the first had ended */
    struct cm_join join = world_rejoin_of(world, 2, 2);
    world_join(world, 12, 7, &join);
    assert_configuration(world_last(world, 12), 7, 0, false);
}

/* What its old connection still brings is read after the report by its new one; then the old one ends. */
TEST(a_server_whose_place_went_with_its_old_connection_may_report_again)
{
    struct world *world = world_cluster(world_store, SERVERS);
    struct cm_join join = world_rejoin_of(world, 2, 1);
    world_close_all(world, SERVERS);
    world_join(world, 2, 6, &join);
    world_join(world, 12, 7, &join);
    world_join(world, 2, 6, &join);
    world_close(world, 2);
    struct cluster_config *next = world_next(world);
    world_change(world, next);
    assert_configuration(world_last(world, 12), 7, 0, false); /* not refused */
    world_join(world, 12, 8, &join);
    assert_configuration(world_last(world, 12), 8, 0, false);
    assert_int_equal(world_last(world, 12)->waiting_count, SERVERS - 1);
}

TEST(a_change_by_another_manager_keeps_those_that_wait)
{
    struct world *world = world_cluster(world_store, SERVERS);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    world_close_all(world, SERVERS);
    world_join(world, 1, 6, &joins[0]);
    struct cluster_config *next = world_next(world);
    world_change(world, next);
    assert_configuration(world_last(world, 1), 6, 0, false); /* nothing since */
    for (uint32_t server = 2; server <= SERVERS; server++) {
        world_join(world, server, 7, &joins[server - 1]);
    }
    world_settle(world);
    assert_int_equal(world_store->version, 3);
    assert_int_equal(world_store->cold_starts, 1);
    assert_configuration(world_last(world, 1), 0, 3, true);
}

UNIT_MAIN(NULL, NULL)
