/* claim_test.c - who is named in the place of a manager, when, and on whose word. Connection and server have the same number. */
#define TEST_FIXTURE world_setup, world_teardown

#include "cm/lease.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

#define WAY managers_takeover_ns(LONGEST) /* what a new manager may need before it grants */

TEST(a_manager_is_named_on_the_word_of_one_member_that_has_had_no_grant_for_six_leases)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    world_round(world, world->now_ns + WAY);
    say_without(world, 1, 0, false);
    say_without(world, 2, 6 * LONGEST - NS_PER_MS, false);
    assert_false(world->storing);
    assert_failure(world_last(world, 2), ROWAN_ENOTLEADING, "leads");
    say_without(world, 2, 6 * LONGEST + LONGEST / 4, false); /* with all that may be drawn */
    assert_true(world->storing);
    world_settle(world);
    assert_int_equal(world_stored()->manager, 7003);
    say_without(world, 1, 0, false);
    assert_configuration(world_last(world, 1), 5, 2, true);

    world_step(old, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(old);
    assert_int_equal(world_stored()->manager, 7003);
    assert_failure(world_last(old, 1), ROWAN_ENOTLEADING, "leads");
}

TEST(where_nobody_leads_at_any_address_two_leases_are_enough)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    say_without(world, 2, 2 * LONGEST - NS_PER_MS, true);
    assert_false(world->storing);
    say_without(world, 2, 2 * LONGEST + LONGEST / 4, true);
    assert_true(world->storing);
}

/* What is stored has gone back, and names server 2 again, which has missed that it was removed. */
TEST(no_word_counts_while_a_server_has_acted_on_a_later_configuration)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    world_round(world, world->now_ns + WAY);
    struct cm_join join = world_join_of(1);
    join.known_term = term(world) + 1;
    join.named = join.formatted = true;
    world_join(world, 1, 5, &join);
    world_settle(world);
    say_without(world, 2, 7 * LONGEST, false);
    assert_false(world->storing);
}

/* It was named on the word of server 2 before anybody else came. */
TEST(nothing_is_stored_or_granted_while_a_server_has_acted_on_a_later_configuration)
{
    struct world *world = committed_cluster();
    const uint64_t present = last_sign_of(world, 3);
    struct cm_join join = world_rejoin_of(world, 3, 1);
    join.known_term = term(world) + 1;
    world_join(world, 33, 5, &join);
    world_settle(world);
    assert_int_equal(run(world, FIRST_TWO, world->now_ns + LEASE / 4), 0);
    run(world, FIRST_TWO, present + 9 * LEASE);
    assert_false(world->storing || term(world) > 1);
}

/* A manager that was named behind an old value has given its configuration the term of the one that was lost. */
TEST(who_acts_on_another_configuration_of_the_same_term_knows_better)
{
    struct world *world = committed_cluster();
    struct cm_join join = world_join_of(1);
    join.known_term = term(world);
    join.known_manager = cm_state_config(world->state)->manager;
    join.named = join.formatted = true;
    world_join(world, 1, 5, &join);
    world_settle(world);
    assert_int_equal(run(world, ALL, world->now_ns + LEASE / 4), ALL);
    join.known_manager++;
    world_join(world, 1, 6, &join);
    world_settle(world);
    assert_failure(world_last(world, 1), ROWAN_ENOTLEADING, "");
    run(world, FIRST_TWO, world->now_ns + 9 * LEASE);
    assert_false(world->storing || term(world) > 1);
}

/* Nobody else than who wants a lease of this cluster can tell that it gets none. */
TEST(no_election_names_a_manager_nor_does_a_stranger)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns + NS_PER_S);
    world_format_all(old, SERVERS);
    world_have_clients(old);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(world);
    for (int i = 0; i < 3; i++) {
        world_lead(world, i % 2 == 0);
        world_settle(world);
    }
    struct cm_join join = world_join_of(2);
    join.incarnation++;
    join.without_ms = 900;
    join.nobody_leads = true;
    world_join(world, 2, 5, &join); /* of another cluster, or its PM is lost */
    assert_non_null(strstr(world_warning(world, "stranger"), "a path of its own"));
    join.data_cluster = 12345;
    world_join(world, 2, 5, &join);
    assert_failure(world_last(world, 2), ROWAN_EREFUSED, "holds data of cluster");
    join.data_cluster = 0;
    join.named = true; /* it was removed */
    world_join(world, 2, 5, &join);
    assert_int_equal(world_stored()->manager, 7001);

    join.data_cluster = world_stored()->cluster;
    join.named = false; /* it starts */
    world_join(world, 2, 5, &join);
    assert_true(world->storing);
}

TEST(a_reconnect_of_the_coordination_service_changes_nothing)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    for (int i = 0; i < 3; i++) {
        world_lead(old, false);
        world_lead(world, true);
        world_settle(world);
        world_lead(world, false);
        world_lead(old, true);
        world_settle(old);
        assert_int_equal(run(old, ALL, old->now_ns + LEASE), ALL);
    }
    assert_int_equal(world_stored()->term, 1);
}

/* The second manager waits for a member that died with the first one: nobody has a lease meanwhile. */
TEST(a_new_manager_is_not_deposed_for_what_members_said_on_their_way_to_it)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    world_round(world, world->now_ns + WAY);
    (void)manager_at(7002, world->now_ns);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(world);
    const uint64_t changed_ns = world->now_ns;
    for (uint64_t passed_ns = 0; passed_ns < WAY + 6 * LONGEST; passed_ns += LEASE / 4) {
        world_round(world, changed_ns + passed_ns);
        say_without(world, 1, passed_ns, false);
        assert_false(world->storing);
    }
    world_round(world, changed_ns + WAY + 6 * LONGEST + LONGEST / 4);
    say_without(world, 2, 0, false);
    assert_true(world->storing); /* by the last word of the first */
}

/* With leases as short as here it is named before it knows so itself, and members come by who have asked it just before. */
TEST(a_new_manager_has_the_time_of_a_store_before_nobody_leads_counts)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    (void)manager_at(7002, world->now_ns);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(world);
    const uint64_t changed_ns = world->now_ns;
    world_round(world, changed_ns + MANAGERS_STORE_NS + 2 * LONGEST - NS_PER_MS);
    say_without(world, 1, 4 * LONGEST, true);
    assert_false(world->storing);
    world_round(world, changed_ns + MANAGERS_STORE_NS + 2 * LONGEST + LONGEST / 4);
    say_without(world, 1, 4 * LONGEST, true);
    assert_true(world->storing);
}

/* The first of two standbys that hear a word is named; the other one's word was about the manager before. */
TEST(what_was_said_of_one_manager_does_not_depose_the_next)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    world_round(world, world->now_ns + WAY);
    say_without(world, 1, 6 * LONGEST - 2 * NS_PER_MS, false);
    (void)manager_at(7002, world->now_ns);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(world);
    world_round(world, world->now_ns + LONGEST / 2);
    world_get(world, 20, 5, 0);
    assert_false(world->storing);
}

TEST(who_has_found_a_manager_again_speaks_against_nobody)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    world_round(world, world->now_ns + WAY);
    say_without(world, 1, 6 * LONGEST - NS_PER_MS, false);
    world_round(world, world->now_ns + 2 * LONGEST);
    world_get(world, 20, 5, 0);
    assert_false(world->storing);
}

/* Nobody need say it once more. */
TEST(a_standby_wakes_when_a_word_is_enough)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    world_round(world, world->now_ns + WAY);
    say_without(world, 1, 6 * LONGEST - 2 * NS_PER_MS, false);
    assert_true(world->wake_ns > world->now_ns && world->wake_ns < world->now_ns + LONGEST);
    world_round(world, world->wake_ns);
    assert_true(world->storing);
}

/* All members are kept: there is nobody whom it could grant a lease, and so nobody to stay for. */
TEST(a_manager_without_members_and_coordination_lets_others_come_forward)
{
    struct world *world = cluster_with_a_kept_member();
    struct cluster_config *next = world_next(world);
    for (uint32_t i = 0; i < next->member_count; i++)
        next->members[i].kept = true;
    next->next_client_id -= CM_CLIENT_ID_BLOCK;
    world_change(world, next);
    world_forget(world);
    for (int i = 0; i < 100; i++)
        world_round(world, world->now_ns + LEASE / 4);
    assert_true(world->reading);
    world_open(world, 20);
    for (int i = 0; i < 100 && world->reading; i++)
        world_round(world, world->now_ns + LEASE / 4);
    assert_true(world->wake_ns == UINT64_MAX); /* it leads no more */
}

/* Each one's try may be in vain, as the members reach neither for long. */
TEST(tries_grow_rarer_until_something_is_committed)
{
    struct world *old = committed_cluster();
    struct world *world = standby(7003, old->now_ns);
    uint64_t last_ns = world->now_ns, longest_ns = 0;
    for (int tries = 0; tries < 12;) {
        world_round(world, world->now_ns + LEASE / 4);
        say_without(world, 1, 3600 * NS_PER_S, true);
        world_forget(world);
        if (world->reading)
            world_answer_read(world, ROWAN_OK);
        if (!world->storing)
            continue;
        world_answer_store(world, WORLD_ERROR);
        world_settle(world);
        if (world->now_ns - last_ns > longest_ns)
            longest_ns = world->now_ns - last_ns;
        last_ns = world->now_ns;
        tries++;
    }
    assert_true(longest_ns > 5 * LONGEST);
}

UNIT_MAIN(NULL, NULL)
