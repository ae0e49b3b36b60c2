/* store_test.c - the configuration manager's decisions around the coordination service: client ids,
 * answers that are lost, leaders that change. What may never be sent is checked with every message
 * by world.c. */
#define TEST_FIXTURE world_setup, world_teardown

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/world.h"

/* Takes ids by connection 50 until the configuration has to change, not for the first time. */
static void use_up_ids(struct world *world)
{
    world_new_id(world, 50, 3);
    world_settle(world);
    while (!world->storing) {
        world_forget(world);
        world_new_id(world, 50, 3);
    }
}

TEST(client_ids_come_from_reserved_blocks)
{
    struct world *world = world_cluster(world_store, 3);
    world_get(world, 10, 5, 0);
    use_up_ids(world);
    assert_int_equal(world_store->ids_given, CM_CLIENT_ID_BLOCK);
    world_new_id(world, 11, 4);
    assert_null(world_last(world, 50)); /* C7: the next block is not stored yet */
    assert_null(world_last(world, 11));

    world_settle(world);
    assert_int_equal(world_last(world, 50)->kind, CM_ACTION_CLIENT_ID);
    assert_int_equal(world_last(world, 11)->kind, CM_ACTION_CLIENT_ID);
    assert_int_equal(world_last(world, 11)->tag, 4);
    assert_int_equal(cm_state_config(world->state)->next_client_id, 1 + 2 * CM_CLIENT_ID_BLOCK);
    for (uint32_t server = 1; server <= 3; server++)
        assert_configuration(world_last(world, server), 0, 3, true);
    assert_configuration(world_last(world, 10), 0, 3, false);
    assert_int_equal(world->sent_count, 6); /* 50 never asked for the configuration */
}

TEST(a_block_stored_after_leadership_was_lost_is_given_up)
{
    struct world *world = world_cluster(world_store, 3);
    use_up_ids(world);
    assert_true(world->storing);
    world_lead(world, false);
    assert_failure(world_last(world, 50), ROWAN_ENOTLEADING, "leads");
    world_answer_store(world, WORLD_OK);
    world_elect(world);
    world_new_id(world, 50, 4);
    world_settle(world);
    assert_int_equal(world_last(world, 50)->client_id, 1 + 2 * CM_CLIENT_ID_BLOCK);
}

TEST(one_request_for_an_id_waits_on_a_connection)
{
    struct world *world = world_cluster(world_store, 3);
    use_up_ids(world);
    world_new_id(world, 50, 4);
    assert_failure(world_last(world, 50), ROWAN_EAGAIN, "already");
    assert_int_equal(world->warning_count, 0);
    world_settle(world);
    assert_int_equal(world_last(world, 50)->kind, CM_ACTION_CLIENT_ID);
    assert_int_equal(world_last(world, 50)->tag, 3);
}

TEST(a_closed_connection_gets_no_id)
{
    struct world *world = world_cluster(world_store, 3);
    use_up_ids(world);
    world_close(world, 50);
    world_open(world, 50); /* another client in its place */
    world_settle(world);
    assert_null(world_last(world, 50));
}

/* By connection 50. The answer. */
static enum cm_action_kind ask_for_id(struct world *world, const char *user, bool reader)
{
    world_forget(world);
    world->connections[50].wants_id = !reader;
    world->connections[50].id_tag = 3;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_NEW_CLIENT_ID,
                                         .connection = 50,
                                         .tag = 3,
                                         .user = user,
                                         .reader = reader});
    world_settle(world);
    return world_last(world, 50)->kind;
}

TEST(who_asks_for_ids_too_fast_comes_again_later_and_others_get_theirs)
{
    struct world *world = world_cluster(world_store, 3);
    world_open(world, 50);
    for (uint32_t i = 0; i < QUOTA_BURST; i++)
        assert_int_equal(ask_for_id(world, "eve", false), CM_ACTION_CLIENT_ID);
    for (uint32_t second = 0; second < 3; second++) {
        assert_int_equal(ask_for_id(world, "eve", false), CM_ACTION_FAILURE);
        assert_failure(world_last(world, 50), ROWAN_EAGAIN, "again later");
        assert_non_null(strstr(world_warning(world, "client_ids_refused"), "user eve"));
        assert_int_equal(ask_for_id(world, "ann", false), CM_ACTION_CLIENT_ID);
        assert_int_equal(ask_for_id(world, NULL, false), CM_ACTION_CLIENT_ID);
        world->now_ns += NS_PER_S;
        for (uint32_t i = 0; i < QUOTA_A_SECOND; i++)
            assert_int_equal(ask_for_id(world, "eve", false), CM_ACTION_CLIENT_ID);
    }
    assert_int_equal(cm_state_config(world->state)->next_client_id, 1 + CM_CLIENT_ID_BLOCK);
}

TEST(more_users_than_there_are_rows_share_one_quota)
{
    struct world *world = world_cluster(world_store, 3);
    char name[16];
    world_open(world, 50);
    for (uint32_t i = 0; i < QUOTA_ROWS + QUOTA_BURST; i++) {
        snprintf(name, sizeof name, "user %u", i);
        assert_int_equal(ask_for_id(world, name, false), CM_ACTION_CLIENT_ID);
    }
    assert_int_equal(ask_for_id(world, "one more", false), CM_ACTION_FAILURE);
    assert_int_equal(ask_for_id(world, "user 0", false), CM_ACTION_CLIENT_ID); /* has one */
    world->now_ns += NS_PER_S;
    assert_int_equal(ask_for_id(world, "one more", false), CM_ACTION_CLIENT_ID);
}

TEST(nobody_has_a_quota_where_nobody_logs_in)
{
    struct world *world = world_cluster(world_store, 3);
    world_open(world, 50);
    for (uint32_t i = 0; i < 2 * QUOTA_BURST; i++)
        assert_int_equal(ask_for_id(world, NULL, false), CM_ACTION_CLIENT_ID);
}

TEST(who_may_not_write_gets_no_id)
{
    struct world *world = world_cluster(world_store, 3);
    const uint64_t term = cm_state_config(world->state)->term;
    world_open(world, 50);
    for (uint32_t i = 0; i < 2 * QUOTA_BURST; i++) {
        assert_int_equal(ask_for_id(world, "ria", true), CM_ACTION_CLIENT_ID);
        assert_int_equal(world_last(world, 50)->client_id, 0);
    }
    assert_int_equal(cm_state_config(world->state)->term, term);
    assert_int_equal(ask_for_id(world, "ria", false), CM_ACTION_CLIENT_ID);
    assert_int_equal(world_last(world, 50)->client_id, 1);
}

TEST(ids_end_before_they_wrap)
{
    struct world *world = world_cluster(world_store, 3);
    struct cluster_config *last = cluster_copy(cm_state_config(world->state));
    last->term++;
    last->next_client_id = UINT32_MAX - CM_CLIENT_ID_BLOCK + 1;
    world_change(world, last);
    world_lead(world, false); /* gives up the block it has */
    world_lead(world, true);
    world_settle(world);
    world_new_id(world, 50, 3);
    assert_failure(world_last(world, 50), ROWAN_ETOOMANY, "all its client ids");
}

TEST(a_lost_compare_and_set_leads_to_the_stored_value)
{
    struct world *first = world_empty(world_store, 3), *second = world_empty(world_store, 3);
    world_join_all(first, 3);
    world_join_all(second, 3);
    assert_true(first->storing && second->storing);
    world_answer_store(first, WORLD_OK);
    world_forget(second);
    world_answer_store(second, WORLD_OK); /* by its version it has lost */
    assert_int_equal(second->sent_count, 0);
    assert_true(second->reading);
    world_settle(second);
    assert_int_equal(cm_state_config(second->state)->term, 1);
    assert_configuration(world_last(second, 1), 0, 1, true);

    world_format_all(first, 3);
    world_format_all(second, 3);
    for (int i = 0; i < 2; i++) {
        struct world *world = i == 0 ? first : second;
        world_new_id(world, 50, 3);
        assert_true(world->storing);
    }
    world_answer_store(first, WORLD_OK);
    assert_int_equal(world_last(first, 50)->client_id, 1);
    world_settle(second); /* loses by its version; the ids of term 2 are the first one's */
    assert_int_equal(world_last(second, 50)->client_id, 1 + CM_CLIENT_ID_BLOCK);
    world_destroy(first);
    world_destroy(second);
}

TEST(an_unknown_answer_is_read_again_whether_it_won_or_not)
{
    struct world *world = world_empty(world_store, 3);
    world_join_all(world, 3);
    world_forget(world);
    world_answer_store(world, WORLD_UNKNOWN_LOST);
    assert_int_equal(world->sent_count, 0);
    assert_true(world->reading);
    world_answer_read(world, ROWAN_OK);
    world_repeat_joins(world);
    assert_true(world->storing); /* nothing there: once more */
    world_answer_store(world, WORLD_UNKNOWN_WON);
    assert_int_equal(world->sent_count, 0);
    assert_true(world->reading);
    world_answer_read(world, ROWAN_OK);
    assert_configuration(world_last(world, 1), 0, 1, true);
    assert_false(world->storing);

    world_format_all(world, 3);
    world_new_id(world, 50, 3);
    world_answer_store(world,
                       WORLD_UNKNOWN_WON); /* that block's owner is not known: it is never given */
    world_settle(world);
    assert_int_equal(world_last(world, 50)->client_id, 1 + CM_CLIENT_ID_BLOCK);
}

/* H12: two leaders want the same next block, byte for byte. The one whose answer was lost must not
 * take the other's block for its own. */
TEST(a_block_that_may_be_another_leaders_is_never_given)
{
    struct world *first = world_cluster(world_store, 3);
    struct cm_state_options options = world_options(3, 3, 0);
    struct world *second = world_create(world_store, &options);
    world_elect(second);
    use_up_ids(first);
    world_step(second, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(second);
    world_new_id(second, 50, 3);
    assert_true(first->storing && second->storing);
    world_answer_store(second, WORLD_OK);
    world_answer_store(first, WORLD_UNKNOWN_LOST);
    world_settle(first); /* world.c sees to it that no id is given twice */
    assert_int_equal(world_last(first, 50)->client_id, 1 + 2 * CM_CLIENT_ID_BLOCK);
    world_destroy(first);
    world_destroy(second);
}

TEST(a_store_that_fails_is_answered_and_tried_again_when_asked)
{
    struct world *world = world_cluster(world_store, 3);
    use_up_ids(world);
    world_answer_store(world, WORLD_ERROR);
    assert_failure(world_last(world, 50), ROWAN_EIO, "did not store");
    assert_false(world->reading || world->storing); /* no loop while the reason lasts */
    world_new_id(world, 50, 4);
    assert_true(world->reading);
    world_settle(world);
    assert_int_equal(world_last(world, 50)->kind, CM_ACTION_CLIENT_ID);
}

TEST(a_first_configuration_that_failed_is_tried_again_in_the_next_round)
{
    struct world *world = world_empty(world_store, 3);
    world_join_all(world, 3);
    world_answer_store(world, WORLD_ERROR);
    assert_false(world->reading || world->storing);
    struct cm_join join = world_join_of(1);
    world_join(world, 1, 9, &join);
    world_settle(world);
    assert_null(
        cm_state_config(world->state)); /* the others have not said that they are still there */
    world_repeat_joins(world);
    world_settle(world);
    assert_non_null(cm_state_config(world->state));
}

TEST(only_a_leader_decides)
{
    struct cm_state_options options = world_options(2, 2, 0);
    struct world *world = world_create(world_store, &options);
    world_settle(world);
    world_join_all(world, 2);
    assert_failure(world_last(world, 2), ROWAN_ENOTLEADING, "leads");
    world_lead(world, true);
    assert_true(world->reading); /* a new leader looks first: what it knows may be old */
    world_join_all(world, 2);
    world_new_id(world, 50, 1);
    assert_failure(world_last(world, 2), ROWAN_ENOTLEADING, "leads");
    assert_failure(world_last(world, 50), ROWAN_ENOTLEADING, "leads");
    world_settle(world);
    world_join_all(world, 2);
    world_settle(world);
    assert_non_null(cm_state_config(world->state));
    world_lead(world, false);
    world_new_id(world, 50, 1);
    assert_false(world->storing);
    assert_failure(world_last(world, 50), ROWAN_ENOTLEADING, "leads");
}

TEST(a_standby_tells_what_is_stored_and_registers_nobody)
{
    struct cm_state_options options = world_options(3, 3, 0);
    struct world *standby = world_create(world_store, &options);
    world_settle(standby);
    world_get(standby, 20, 5, 0);
    struct world *leader = world_cluster(world_store, 3);
    world_forget(standby);
    world_step(standby, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(standby);
    assert_configuration(world_last(standby, 20), 0, 1, false);
    assert_true(world_last(standby, 20)->not_leading);
    world_get(leader, 20, 5, 0);
    assert_false(world_last(leader, 20)->not_leading);

    struct cm_join other = world_join_of(3);
    other.incarnation++; /* which the leader would put off */
    world_join(standby, 3, 61, &other);
    assert_failure(world_last(standby, 3), ROWAN_ENOTLEADING, "leads");
    assert_int_equal(world_last(standby, 3)->tag, 61);
    world_destroy(leader);
    world_destroy(standby);
}

/* Members, servers that wait, and clients: all go to the new leader, and it finds them there. */
TEST(who_ceases_to_lead_tells_all_and_counts_on_none)
{
    struct world *world = world_cluster(world_store, 2);
    world_get(world, 20, 5, 1);
    world_open(world, 21);
    world_forget(world);
    world_lead(world, false);
    for (uint32_t i = 0; i < 4; i++)
        assert_failure(world_last(world, i < 2 ? 1 + i : 18 + i), ROWAN_ENOTLEADING, "leads");
    assert_int_equal(world->sent_count, 4);

    world_lead(world, true);
    world_settle(world);
    struct cm_join *joins = world_rejoin_all(world, 2, 1);
    world_close_all(world, 2);
    world_join(world, 30, 7, &joins[0]); /* no member is here: it waits */
    assert_configuration(world_last(world, 30), 7, 0, false);
    world_lead(world, false);
    world_lead(world, true);
    world_settle(world);
    world_join(world, 31, 7, &joins[1]); /* and is not registered any more */
    assert_false(world->storing);
    assert_int_equal(world_last(world, 31)->waiting_count, 1);
    world_join(world, 30, 8, &joins[0]);
    assert_true(world->storing);
}

/* Another manager has started the cluster again meanwhile, and this one does not know yet. */
TEST(a_server_that_knows_a_later_configuration_is_not_refused_for_good)
{
    struct world *world = world_cluster(world_store, 2);
    struct cm_join join = world_rejoin_of(world, 1, 1);
    join.named = true;
    join.known_term = 2;
    world_join(world, 30, 7, &join);
    assert_failure(world_last(world, 30), ROWAN_ENOTLEADING, "leads");
    join.known_term = 1;
    world_join(world, 30, 8, &join);
    assert_failure(world_last(world, 30), ROWAN_EREFUSED, "another process");
}

TEST(a_configuration_that_vanished_stops_the_manager)
{
    struct world *world = world_cluster(world_store, 3);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    assert_true(world->reading);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_READ});
    assert_true(world->stopped);
    assert_int_equal(world->stop_error, ROWAN_ECLUSTER);
}

/* From a backup, say: the next compare-and-set would be in vain for ever. */
TEST(a_value_that_goes_back_stops_the_manager_with_what_to_do)
{
    struct world *world = world_cluster(world_store, 3);
    world_have_clients(world);
    struct cluster_config *before = world_store->history[1];
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_step(world, &(struct cm_event){.kind = CM_EVENT_READ, .version = 1, .config = before});
    assert_true(world->stopped);
    assert_int_equal(world->stop_error, ROWAN_ECLUSTER);
    assert_non_null(strstr(world->stop_detail, "--recover"));
}

/* As nobody serves by what is stored: servers that run know better, and those that start have kept it. */
TEST(a_start_on_an_old_value_is_said_and_starts_nothing)
{
    struct world *before = world_cluster(world_store, 1);
    world_have_clients(before);
    const uint64_t newest = world_store->version;
    struct cm_join join = world_rejoin_of(before, 1, 1);
    join.stored_term = cm_state_config(before->state)->term;
    world_store->version = 1;
    struct world *world = world_empty(world_store, 1);
    world_join(world, 1, 5, &join);
    world_settle(world);
    assert_non_null(strstr(world_warning(world, "configuration_is_old"), "term 1 is stored"));
    world_join(world, 1, 6, &join);
    assert_false(world->storing);
    assert_failure(world_last(world, 1), ROWAN_EAGAIN, "--recover");
    world_store->version = newest;
}

TEST(a_configuration_of_another_cluster_stops_the_manager)
{
    struct world *world = world_cluster(world_store, 3);
    struct cluster_config *other = cluster_copy(cm_state_config(world->state));
    other->cluster++;
    other->term++;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_step(world, &(struct cm_event){.kind = CM_EVENT_READ,
                                         .version = world_store->version + 1,
                                         .config = other});
    assert_true(world->stopped);
    assert_int_equal(world->stop_error, ROWAN_ECLUSTER);
    cluster_release(other);
}

TEST(a_first_read_that_fails_stops_the_manager)
{
    struct cm_state_options options = world_options(3, 3, 0);
    struct world *world = world_create(world_store, &options);
    world_answer_read(world, ROWAN_EIO);
    assert_true(world->stopped);
    assert_int_equal(world->stop_error, ROWAN_EIO);
}

TEST(a_later_read_that_fails_is_tried_at_the_next_event)
{
    struct world *world = world_cluster(world_store, 3);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_answer_read(world, ROWAN_EIO);
    assert_false(world->stopped || world->reading);
    world_open(world, 9);
    assert_true(world->reading);
}

UNIT_MAIN(NULL, NULL)
