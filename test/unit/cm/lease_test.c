/* lease_test.c - what a manager grants, removes and commits, and when. Connection and server have the same number. */
#define TEST_FIXTURE world_setup, world_teardown

#include "cm/lease.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

TEST(without_leases_nothing_is_granted_removed_or_committed)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world->now_ns = NS_PER_S;
    assert_false(renew(world, 1));
    assert_false(renew(world, 1));
    assert_int_equal(last[1].manager_ns, NS_PER_S);
    assert_true(world->wake_ns == UINT64_MAX);
    adopt_all(world);
    world_round(world, 3600 * NS_PER_S);
    world_step(world, &(struct cm_event){.kind = CM_EVENT_TIME});
    assert_int_equal(committed(world, 1), 0);
    assert_false(world->storing);
}

TEST(leases_are_granted_when_every_member_has_brought_back_a_time)
{
    struct world *world = cluster();
    for (uint32_t server = 1; server <= SERVERS; server++)
        assert_false(renew(world, server));
    assert_false(renew(world, 1));
    assert_false(renew(world, 2));
    assert_true(renew(world, 3));
    assert_true(renew(world, 1));
}

static void assert_shows_nothing(uint64_t manager, uint64_t later_ns)
{
    struct world *world = cluster();
    run(world, ALL, world->now_ns + LEASE);
    const uint64_t end = world->now_ns - LEASE / 4 + LEASE; /* of what they brought back so far */
    while (world->now_ns < end + LEASE / 2) {
        last[3].manager = manager;
        last[3].manager_ns += later_ns;
        const uint32_t granted = run(world, ALL, world->now_ns + LEASE / 4);
        assert_int_equal(granted, world->now_ns <= end ? ALL : 0);
    }
}

TEST(what_another_manager_said_shows_nothing)
{
    assert_shows_nothing(7002, 0);
}

TEST(what_was_never_said_shows_nothing)
{
    assert_shows_nothing(7001, 3600 * NS_PER_S);
}

TEST(one_member_without_a_sign_for_a_lease_stops_all_grants)
{
    struct world *world = committed_cluster();
    const uint64_t present = last_sign_of(world, 3); /* brings that back */
    assert_int_equal(run(world, FIRST_TWO, present + LEASE), FIRST_TWO);
    assert_int_equal(run(world, FIRST_TWO, present + LEASE + 1), 0);
    assert_false(renew(world, 3)); /* its sign is as old as the lease */
    assert_true(renew(world, 3));
}

TEST(only_members_that_know_nothing_newer_are_granted_leases)
{
    struct world *world = committed_cluster();
    const struct world_renewal newer = {.term = 2, .manager = 7001, .manager_ns = world->now_ns},
                               right = {.term = 1, .manager = 7001, .manager_ns = world->now_ns};
    world_renew(world, 1, 9, &newer);
    world_open(world, 20);
    world_renew(world, 20, 9, &right);
    world_round(world, world->now_ns);
    assert_int_equal(world_last(world, 1)->kind, CM_ACTION_LEASE);
    assert_false(world_last(world, 1)->granted || world_last(world, 20)->granted);
}

/* The manager is stopped between its look at the clock and the Renew, which was sent while it stood. */
TEST(a_clock_that_was_read_before_the_renewal_came_grants_nothing)
{
    struct world *world = committed_cluster();
    last[1].term = 1;
    world_renew(world, 1, 9, &last[1]);
    assert_int_equal(world->wake_ns, 0);
    world_round(world, world->now_ns + 10 * NS_PER_S);
    assert_false(world_last(world, 1)->granted);
    assert_int_equal(world_last(world, 1)->manager_ns, world->now_ns);
}

TEST(a_second_renewal_answers_the_first)
{
    struct world *world = committed_cluster();
    world_renew(world, 1, 8, &last[1]);
    world_renew(world, 1, 9, &last[1]);
    assert_int_equal(world_last(world, 1)->tag, 8);
    assert_false(world_last(world, 1)->granted);
    world_close(world, 1); /* nobody answers that */
    world_round(world, world->now_ns);
}

/* --- silence --- */

TEST(a_member_that_is_silent_for_two_leases_is_removed)
{
    struct world *world = committed_cluster();
    const uint64_t present = last_sign_of(world, 3);
    run(world, FIRST_TWO, present + 2 * LEASE - 1);
    assert_false(world->storing || term(world) > 1);
    world_round(world, present + 2 * LEASE);
    assert_true(world->storing);
    world_settle(world);
    assert_int_equal(cm_state_config(world->state)->member_count, 2);
    assert_int_equal(cm_state_config(world->state)->shards[0].epoch, 2);
    assert_configuration(world_last(world, 1), 0, 2, true);
    assert_failure(world_last(world, 3), ROWAN_EREMOVED, "was removed");
    assert_string_equal(world_warning(world, "server_silent"), "server=3(no_word)");
    assert_string_equal(world_warning(world, "failover"),
                        "term=2 ms=200 removed=3 kept=- promoted=8 unserved=0");
}

/* Its last lease was granted only now: nobody waits for the end of that either. */
TEST(a_member_that_leaves_is_removed_at_once_and_its_lease_is_not_waited_for)
{
    struct world *world = committed_cluster();
    run(world, ALL, world->now_ns + LEASE / 4);
    const uint64_t now_ns = world->now_ns;
    const struct world_renewal leaves = {
        .term = 1, .manager = 7001, .manager_ns = now_ns, .leaves = true};
    world_renew(world, 3, 9, &leaves);
    world_round(world, now_ns);
    assert_true(world->storing);
    world_settle(world);
    assert_int_equal(cm_state_config(world->state)->member_count, 2);
    assert_failure(world_last(world, 3), ROWAN_EREMOVED, "was removed");
    assert_string_equal(world_warning(world, "server_silent"), "server=3(leaves)");
    world_adopt(world, 1, 2);
    world_adopt(world, 2, 2);
    world_round(world, now_ns);
    assert_int_equal(committed(world, 2), FIRST_TWO);
}

/* Else the second would get shards of the first, and be removed next. */
TEST(nobody_is_removed_while_another_one_may_be_silent_too)
{
    struct world *world = committed_cluster();
    const uint64_t present = last_sign_of(world, 3);
    run(world, FIRST_TWO, present + LEASE / 2);
    const uint64_t second = last[2].manager_ns;
    renew(world, 2);
    run(world, 1u << 1, second + 2 * LEASE - 1);
    assert_int_equal(term(world), 1);
    assert_int_equal(world_warnings(world, "server_silent"), 1);
    world_round(world, second + 2 * LEASE);
    world_settle(world);
    assert_int_equal(term(world), 2);
    assert_int_equal(cm_state_config(world->state)->member_count, 1);
}

/* A break at each renewal of 2, and none that is a spell: nobody is steady, and 3 is gone. */
TEST(one_that_limps_keeps_no_dead_one_for_ever)
{
    struct world *world = committed_cluster();
    const uint64_t since_ns = last_sign_of(world, 3);
    while (cm_state_config(world->state)->member_count == 3 &&
           world->now_ns < since_ns + 20 * LEASE) {
        run(world, 1u << 1, world->now_ns + LEASE);
        renew(world, 2);
        world_round(world, world->now_ns + LEASE / 10);
        renew(world, 2);
        world_settle(world);
    }
    assert_int_equal(cm_state_config(world->state)->member_count, 2);
    assert_true(world->now_ns >= since_ns + (LEASE_SILENT_AFTER + LEASE_STEADY_WITHIN) * LEASE);
}

/* It is there for half a lease, and away for more than one: too often to be silent, and too rarely for anybody to have a lease. */
static void limp(struct world *world)
{
    run(world, ALL, world->now_ns + LEASE / 2);
    run(world, FIRST_TWO, world->now_ns + 5 * LEASE / 4);
    world_settle(world);
}

TEST(who_takes_all_leases_again_and_again_is_removed_sooner_and_waits_before_it_is_added)
{
    struct world *world = committed_cluster();
    for (int i = 0; i < LEASE_SPELLS; i++)
        limp(world);
    assert_int_equal(cm_state_config(world->state)->member_count, 3);
    limp(world);
    assert_int_equal(cm_state_config(world->state)->member_count, 2);
    assert_non_null(world_warning(world, "server_unsteady"));

    struct cm_join join = world_rejoin_of(world, 3, 1);
    uint64_t waits_ns = 8 * LEASE;
    for (uint32_t round = 1; round < 8; round++) {
        const uint64_t since_ns = world->now_ns;
        join.incarnation = round * 100000 + 3;
        world_close(world, 3);
        while (!cluster_member(cm_state_config(world->state), 3)) {
            adopt_all(world);
            world_join(world, 3, 6, &join);
            run(world, FIRST_TWO, world->now_ns + LEASE / 4);
            world_forget(world);
        }
        assert_in_range(world->now_ns - since_ns, waits_ns - LEASE, waits_ns + LEASE);
        waits_ns = round < 4 ? 2 * waits_ns : LEASE_STEADY_AFTER * LEASE;
        memset(&last[3], 0, sizeof last[3]);
        adopt_all(world);
        limp(world);
        assert_null(cluster_member(cm_state_config(world->state), 3));
    }

    /* One that was well for long may have a spell again. */
    join.incarnation++;
    world_close(world, 3);
    for (uint64_t until_ns = world->now_ns + 300 * LEASE; world->now_ns < until_ns;) {
        adopt_all(world);
        if (!cluster_member(cm_state_config(world->state), 3))
            world_join(world, 3, 6, &join);
        run(world, cluster_member(cm_state_config(world->state), 3) ? ALL : FIRST_TWO,
            world->now_ns + LEASE);
        world_forget(world);
    }
    limp(world);
    assert_non_null(cluster_member(cm_state_config(world->state), 3));
}

/* It may have had the same trouble, and lead what the third one did next. */
TEST(who_had_a_break_is_present_for_a_lease_before_another_one_is_removed)
{
    struct world *world = committed_cluster();
    const uint64_t present = last_sign_of(world, 3);
    run(world, FIRST_TWO, present + LEASE / 2);
    run(world, 1u << 1, present + 2 * LEASE - LEASE / 4);
    run(world, FIRST_TWO, present + 3 * LEASE - LEASE / 4);
    assert_true(last[2].manager_ns >= present + 2 * LEASE); /* the third one was silent then */
    assert_int_equal(term(world), 1);
    run(world, FIRST_TWO, present + 3 * LEASE + LEASE / 4);
    world_settle(world);
    assert_int_equal(term(world), 2);
    assert_int_equal(cm_state_config(world->state)->member_count, 2);
}

TEST(where_everybody_is_silent_nobody_is_removed)
{
    struct world *world = committed_cluster();
    for (int i = 0; i < 40; i++)
        run(world, 0, world->now_ns + LEASE);
    assert_int_equal(term(world), 1);
    assert_int_equal(world_warnings(world, "server_silent"), 1);
    assert_string_equal(world_warning(world, "server_silent"),
                        "server=1(no_word),2(no_word),3(no_word)");
}

/* What they have not adopted may wait for what they sent to the third one. */
TEST(where_nobody_is_present_who_renews_stays)
{
    struct world *world = committed_cluster();
    world_format_all(world, SERVERS);
    world_have_clients(world);
    const uint64_t since = world->now_ns;
    world_change(world, world_next(world));
    const uint64_t changed = term(world);
    world_adopt(world, 3, changed);
    run(world, ALL, since + 4 * LEASE + LEASE / 2);
    const uint64_t present = last_sign_of(world, 3);
    run(world, FIRST_TWO, present + 2 * LEASE - 1);
    assert_int_equal(term(world), changed);
    run(world, FIRST_TWO, present + 2 * LEASE + LEASE / 4);
    world_settle(world);
    const struct cluster_config *config = cm_state_config(world->state);
    assert_int_equal(config->member_count, 2);
    assert_int_equal(config->members[0].server, 1);
    assert_int_equal(config->members[1].server, 2);
}

TEST(a_manager_that_stood_still_gives_all_their_time_again)
{
    struct world *world = committed_cluster();
    world_round(world, world->now_ns + 10 * NS_PER_S);
    renew(world, 1); /* the others' wait to be read */
    renew(world, 1);
    assert_false(world->storing);
    run(world, ALL, world->now_ns + 3 * LEASE);
    assert_int_equal(term(world), 1);
}

TEST(a_member_that_never_comes_has_some_time_longer)
{
    struct world *world = cluster();
    const uint64_t since = world->now_ns;
    run(world, FIRST_TWO, since + lease_first_word_ns(LEASE) - 1);
    assert_int_equal(term(world), 1);
    run(world, FIRST_TWO, since + lease_first_word_ns(LEASE));
    world_settle(world);
    assert_int_equal(term(world), 2);
}

/* It goes on as long as it may grant, and then tells all that it does not lead any more. */
TEST(a_manager_without_coordination_leads_while_all_members_are_there)
{
    struct world *world = committed_cluster();
    for (int i = 0; i < 600; i++) {
        world_round(world, world->now_ns + LEASE / 4);
        for (uint32_t server = 1; server <= SERVERS; server++)
            assert_true(renew(world, server));
    }
    assert_true(world->reading); /* it looks now and then */
    world_round(world, world->now_ns + 6 * LONGEST);
    assert_int_equal(world_last(world, 1)->kind, CM_ACTION_LEASE);
    world_round(world, world->now_ns + LONGEST);
    assert_failure(world_last(world, 1), ROWAN_ENOTLEADING, "leads");
}

TEST(a_manager_that_leads_again_gives_all_time_to_come_back)
{
    struct world *world = committed_cluster();
    world_round(world, world->now_ns + 4 * LEASE);
    assert_true(world->reading);
    world_round(world, world->now_ns + 4 * LEASE);
    assert_failure(world_last(world, 1), ROWAN_ENOTLEADING, "leads");
    assert_true(term(world) == 1);
    world_settle(world); /* it is still named */
    struct cm_join join = world_join_of(1);
    world_join(world, 1, 1, &join);
    const uint64_t since = world->now_ns;
    run(world, 1u << 1, since + lease_first_word_ns(LEASE) - 1);
    assert_int_equal(term(world), 1);
}

/* --- commits --- */

TEST(the_first_configuration_is_committed_when_all_have_adopted_and_two_leases_have_passed)
{
    struct world *world = cluster();
    run(world, ALL, world->now_ns + 3 * LEASE);
    for (uint32_t server = 1; server <= 2; server++)
        world_adopt(world, server, 1);
    run(world, ALL, world->now_ns + 3 * LEASE);
    assert_int_equal(committed(world, 1), 0);
    world_adopt(world, 3, 1);
    assert_int_equal(committed(world, 1), ALL);
    assert_non_null(world_warning(world, "configuration_committed"));

    world_forget(world);
    world_adopt(world, 2, 1);
    assert_int_equal(committed(world, 1), 1u << 2);
    struct cm_join join = world_join_of(3);
    world_join(world, 30, 1, &join);
    assert_int_equal(committed(world, 1), 1u << 2 | 1u << 30);
}

TEST(two_longest_leases_pass_from_the_last_first_answer_on)
{
    struct world *world = cluster();
    world_adopt(world, 1, 1);
    world_adopt(world, 3, 1);
    run(world, 1u << 1 | 1u << 3, world->now_ns + 3 * LEASE);
    world_adopt(world, 2, 1); /* it may have been sent as late as at the next look at the clock */
    world_round(world, world->now_ns + LEASE / 4);
    const uint64_t answered = world->now_ns;
    run(world, ALL, answered + 2 * LONGEST - 1);
    assert_int_equal(committed(world, 1), 0);
    world_round(world, answered + 2 * LONGEST);
    assert_int_equal(committed(world, 1), ALL);
}

TEST(a_commit_waits_for_the_lease_of_who_was_removed)
{
    struct world *world = committed_cluster();
    run(world, ALL, world->now_ns + LEASE);
    uint64_t granted = world->now_ns; /* all were, at that time */
    /* It goes on renewing and adopts nothing, so its lease is as long as can be. */
    world_format_all(world, SERVERS);
    world_have_clients(world);
    const uint64_t since = world->now_ns;
    run(world, ALL, since + 2 * LEASE);
    world_change(world, world_next(world)); /* gives it no more time */
    world_adopt(world, 1, 3);
    world_adopt(world, 2, 3);
    while (term(world) == 3) {
        granted = world->now_ns;
        assert_true(granted <= since + 6 * LEASE);
        run(world, ALL, granted + LEASE / 4);
    }
    assert_string_equal(world_warning(world, "server_silent"), "server=3(not_adopted)");
    assert_int_equal(world->now_ns, since + 6 * LEASE);
    world_adopt(world, 1, 4);
    world_adopt(world, 2, 4);
    run(world, FIRST_TWO, granted + LONGEST - 1);
    assert_int_equal(committed(world, 4), 0);
    world_round(world, granted + LONGEST);
    assert_int_equal(committed(world, 4), FIRST_TWO);
    assert_int_equal(committed(world, 2) | committed(world, 3), 0);
}

TEST(who_has_never_served_may_take_its_time_to_adopt)
{
    struct world *world = cluster();
    run(world, ALL, world->now_ns + 100 * LEASE);
    assert_int_equal(term(world), 1);
    struct cm_join join = world_join_of(2);
    join.named = join.formatted = true; /* it serves */
    world_join(world, 2, 1, &join);
    run(world, ALL, world->now_ns + 6 * LEASE - 1);
    assert_int_equal(term(world), 1);
    run(world, ALL, world->now_ns + LEASE / 4);
    assert_int_equal(term(world), 2);
    assert_null(cluster_member(cm_state_config(world->state), 2));
}

TEST(only_the_newest_of_several_configurations_is_committed)
{
    struct world *world = committed_cluster();
    fall_silent(world);
    const uint64_t second = last[2].manager_ns;
    renew(world, 2);
    world_adopt(world, 1, 2);
    run(world, 1u << 1, second + 2 * LEASE);
    world_settle(world);
    assert_int_equal(term(world), 3);
    world_adopt(world, 1, 3);
    run(world, 1u << 1, world->now_ns + 2 * LEASE);
    assert_int_equal(committed(world, 2), 0);
    assert_int_equal(committed(world, 3), 1u << 1);
}

TEST(clients_get_their_first_ids_when_all_that_are_left_have_formatted)
{
    struct world *world = committed_cluster();
    world_format_all(world, SERVERS);
    const uint64_t present = last_sign_of(world, 1);
    run(world, 1u << 2 | 1u << 3, present + 2 * LEASE);
    world_settle(world);
    assert_null(cluster_member(cm_state_config(world->state), 1));
    world_have_clients(world);
}

/* --- managers, and servers that return --- */

TEST(another_manager_stores_its_name_before_it_does_anything_else)
{
    struct world *old = committed_cluster();
    struct world *world = manager_at(7002, old->now_ns + NS_PER_S);
    assert_true(term(world) == 2 && world_stored()->manager == 7002);
    assert_int_equal(world_stored()->shards[0].epoch, 1);
    assert_string_equal(world_warning(world, "manager_took_over"), "term=2 ms=0");
    world_join_all(world, SERVERS);
    world_forget(world);

    /* What they say before they know of it is no answer: they may turn back. */
    for (uint32_t server = 1; server <= SERVERS; server++)
        world_renew(world, server, 5, &last[server]);
    run(world, FIRST_TWO, world->now_ns + 3 * LEASE);
    world_renew(world, 3, 5, &(struct world_renewal){.term = 1});
    adopt_all(world);
    world_round(world, world->now_ns + 1);
    const uint64_t answered = world->now_ns;
    run(world, ALL, answered + 2 * LONGEST - 1);
    assert_int_equal(committed(world, 2), 0);
    world_round(world, answered + 2 * LONGEST);
    assert_int_equal(committed(world, 2), ALL);

    /* The old one finds another's name, and none of its own grants. */
    world_step(old, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(old);
    assert_int_equal(world_stored()->manager, 7002); /* its election is used up */
    assert_true(old->wake_ns == UINT64_MAX);
    assert_failure(world_last(old, 1), ROWAN_ENOTLEADING, "leads");
}

/* Two servers, one replica each: what is silent holds the last one of its shards. */
TEST(a_kept_member_is_done_with_until_a_cold_start)
{
    struct world *world = cluster_with_a_kept_member();
    assert_failure(world_last(world, 3), ROWAN_EREMOVED, "was removed");
    world_adopt(world, 1, term(world));
    world_adopt(world, 2, term(world));
    assert_int_equal(run(world, FIRST_TWO, world->now_ns + 2 * LEASE), FIRST_TWO);
    assert_int_equal(committed(world, term(world)), FIRST_TWO);

    struct cm_join join = world_join_of(3);
    world_join(world, 3, 6, &join);
    assert_failure(world_last(world, 3), ROWAN_EREMOVED, "was removed");

    const uint64_t before = term(world);
    world_cold_start(world, SERVERS, world_rejoin_all(world, SERVERS, (uint32_t)before));
    assert_int_equal(term(world), before + 1);
    assert_false(cluster_member(cm_state_config(world->state), 3)->kept);
}

TEST(a_cold_start_is_committed_when_the_leases_of_the_old_processes_are_over)
{
    struct world *world = committed_cluster();
    const uint64_t granted = world->now_ns;
    world_cold_start(world, SERVERS, world_rejoin_all(world, SERVERS, 1));
    assert_int_equal(term(world), 2);
    assert_false(renew(world, 1)); /* only who is added counts as present */
    adopt_all(world);
    run(world, ALL, granted + LONGEST - 1);
    assert_int_equal(committed(world, 2), 0);
    world_round(world, granted + LONGEST);
    assert_int_equal(committed(world, 2), ALL);
}

/* A fourth server joins, and is slow to start: nobody waits for it, and it gets nothing to hold. */
/* L4. While it was away the former manager may have granted to others because it was present there. */
TEST(a_commit_waits_for_who_comes_back_and_never_answered_this_manager)
{
    struct leases leases = {0};
    struct cluster_config *config = config_by_hand(2, 2, 1), *next, *again;
    config->shards[0].primary = 1;
    config->shards[1].primary = 2;
    config->members[1].kept = true;
    leases_follow(&leases, cluster_finished(config), config->manager, 1, 1);
    leases_adopted(&leases, leases_of(&leases, 1), config->term, 2);
    leases_tick(&leases, 2);
    leases_committed(&leases);

    const uint64_t now_ns = 10 * NS_PER_S;
    next = cluster_copy(config);
    next->term++;
    next->members[1].kept = false;
    next->members[1].incarnation += 100;
    leases_follow(&leases, cluster_finished(next), config->manager, now_ns, now_ns);
    for (uint32_t server = 1; server <= 2; server++)
        leases_adopted(&leases, leases_of(&leases, server), next->term, now_ns);
    leases_tick(&leases, now_ns);
    assert_int_equal(leases_commit_at(&leases), now_ns + 2 * lease_longest_ns(leases.lease_ns));
    leases_committed(&leases);

    again = cluster_copy(next); /* once more: it has answered */
    again->term++;
    again->members[1].incarnation += 100;
    leases_follow(&leases, cluster_finished(again), config->manager, now_ns, now_ns);
    for (uint32_t server = 1; server <= 2; server++)
        leases_adopted(&leases, leases_of(&leases, server), again->term, now_ns);
    leases_tick(&leases, now_ns);
    assert_true(leases_commit_at(&leases) <= now_ns);
    cluster_release(again);
    cluster_release(next);
    cluster_release(config);
}

TEST(who_joins_holds_up_nothing_before_it_has_adopted)
{
    struct leases leases = {0};
    struct cluster_config *config = config_by_hand(2, 2, 1), *next;
    config->shards[0].primary = config->shards[1].primary = 1;
    cluster_finished(config);
    leases_follow(&leases, config, config->manager, 1, 1);
    for (uint32_t server = 1; server <= 2; server++)
        leases_adopted(&leases, leases_of(&leases, server), config->term, 2);
    leases_tick(&leases, 2);
    leases_committed(&leases);

    const struct cm_join third = world_join_of(3);
    next = cluster_copy_for(config, 3, 2);
    next->members[2] = join_member(&third);
    next->term++;
    const uint64_t now_ns = 10 * NS_PER_S;
    leases_follow(&leases, cluster_finished(next), config->manager, now_ns, now_ns);
    for (uint32_t server = 1; server <= 2; server++) {
        leases_adopted(&leases, leases_of(&leases, server), next->term, now_ns);
        leases_renewed(&leases, leases_of(&leases, server), next->term, now_ns, now_ns);
    }
    assert_in_range(leases_commit_at(&leases), 1, now_ns);
    const uint64_t later_ns = now_ns + leases.lease_ns;
    for (uint32_t server = 1; server <= 2; server++)
        leases_renewed(&leases, leases_of(&leases, server), next->term, later_ns, later_ns);
    assert_true(leases_may_grant(&leases, later_ns + leases.lease_ns / 2));
    leases_adopted(&leases, leases_of(&leases, 3), next->term, later_ns);
    assert_false(leases_may_grant(&leases, later_ns + leases.lease_ns / 2));

    /* Another manager does not know who had adopted, but hears who starts; who holds a shard is waited for. */
    struct leases other = {0};
    next->manager++;
    leases_follow(&other, next, next->manager, later_ns, later_ns);
    assert_false(leases_of(&other, 3)->joins);
    for (uint32_t server = 1; server <= 3; server += 2)
        leases_opens(leases_of(&other, server), next);
    assert_true(leases_of(&other, 3)->joins && !leases_of(&other, 1)->joins);
    cluster_release(next);
    cluster_release(config);
}

UNIT_MAIN(NULL, NULL)
