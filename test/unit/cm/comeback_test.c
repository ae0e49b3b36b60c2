/* comeback_test.c - kept members that come back while others run. */
#define TEST_FIXTURE world_setup, world_teardown

#include "cm/fill.h"
#include "common/base/error.h"
#include "common/base/version.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

enum { SHARDS = 3, KEPT = 3, MEMBERS = 4 };

/* Member 1 runs. 2, 3 and 4 are kept: for shards 0 (2 leads, 3 and 4 back it, 1 fills) and 1 (3 leads alone). 1 leads shard 2. */
static struct cluster_config *make(void)
{
    struct cluster_config *config = config_by_hand(MEMBERS, SHARDS, 3);
    for (uint32_t i = 1; i < MEMBERS; i++)
        config->members[i].kept = true;
    config->shards[0].primary = 2;
    config->shards[0].backup_count = 2;
    config->shards[0].backups[0] = 3;
    config->shards[0].backups[1] = 4;
    config->shards[0].filling_count = 1;
    config->shards[0].filling[0] = 1;
    config->shards[1].primary = 3;
    config->shards[2].primary = 1;
    assert_int_equal(cluster_finish(config), ROWAN_OK);
    return config;
}

static struct cm_join joins[MEMBERS + 1];

/* The next process of the server, with whole data. */
static struct cm_join *back(uint32_t server)
{
    joins[server] = world_join_of(server);
    joins[server].incarnation = 5000 + server;
    joins[server].data_cluster = 77;
    return &joins[server];
}

static struct comeback admitted(const struct cluster_config *old, uint32_t servers)
{
    struct comeback comeback = {0};
    for (uint32_t server = 1; server <= MEMBERS; server++) {
        if (servers & 1u << server)
            comeback.joins[comeback.came++] = &joins[server];
    }
    comeback_admit(&comeback, old);
    return comeback;
}

static struct cluster_config *after(const struct cluster_config *old, uint32_t servers)
{
    static const uint8_t none[SHARDS];
    const struct fill_from from = {.old = old, .back = admitted(old, servers), .filled = none};
    struct cluster_config *config;
    config = fill_make(&from);
    return config;
}

TEST(one_with_whole_data_leads_its_shards_again_and_the_others_leave)
{
    struct cluster_config *old = make();
    back(3);
    struct cluster_config *config = after(old, 1u << 3);
    assert_int_equal(config->term, 11);
    assert_int_equal(config->member_count, 2); /* 2 and 4 are named no more */
    assert_false(cluster_member(config, 3)->kept);
    assert_int_equal(cluster_member(config, 3)->incarnation, 5003);
    const struct shard *row = &config->shards[0];
    assert_true(row->epoch == 8 && row->primary == 3 && row->backup_count == 0);
    assert_true(row->filling_count == 1 && row->filling[0] == 1 && !row->possibly_incomplete);
    row = &config->shards[1];
    assert_true(row->epoch == 8 && row->primary == 3 && row->worker == 0);
    assert_true(row->filling_count == 1 && row->filling[0] == 1);
    assert_true(config->shards[2].epoch == 8 && config->shards[2].filling[0] == 3);
    cluster_release(config);
    cluster_release(old);
}

TEST(who_still_holds_another_shard_stays_kept)
{
    struct cluster_config *old = make();
    back(2);
    struct cluster_config *config = after(old, 1u << 2);
    assert_true(cluster_member(config, 3)->kept);
    assert_null(cluster_member(config, 4));
    assert_int_equal(config->shards[0].primary, 2);
    assert_memory_equal(&config->shards[1], &old->shards[1], sizeof old->shards[1]);
    cluster_release(config);
    cluster_release(old);
}

TEST(several_that_come_back_are_replicas_together_and_the_primary_stays)
{
    struct cluster_config *old = make();
    back(2);
    back(3);
    back(4)->possibly_incomplete = true;
    struct cluster_config *config = after(old, 0x1c);
    const struct shard *row = &config->shards[0];
    assert_true(row->primary == 2 && row->backup_count == 1 && row->backups[0] == 3);
    assert_false(row->possibly_incomplete);
    assert_false(cluster_member(config, 4)->kept);
    cluster_release(config);
    cluster_release(old);
}

/* Another one may still bring the whole, or what it lacks. */
TEST(one_in_doubt_runs_beside_a_shard_that_waits_and_one_that_is_torn_or_empty_does_not)
{
    struct cluster_config *old = make();
    struct comeback comeback = {.mixes = true, .came = 1, .joins = {back(2)}};
    joins[2].possibly_incomplete = true;
    comeback_admit(&comeback, old);
    assert_int_equal(comeback.count, 1);
    struct cluster_config *config = cluster_copy(old), *next;
    comeback_apply(&comeback, old, config);
    assert_false(cluster_member(cluster_finished(config), 2)->kept);
    const struct shard *row = &config->shards[0];
    assert_true(row->primary == 3 && row->backup_count == 2 && row->epoch == 8 && config->mixed);
    assert_memory_equal(&config->shards[1], &old->shards[1], sizeof old->shards[1]);

    /* 3 comes whole: 2 counts no more. Or 3 and 4 bring no more than 2 has. */
    struct comeback later = {
        .mixes = true, .present = 1, .run = {&joins[2]}, .over = {true, true, true, true}};
    assert_false(comeback_is_due(&later, config)); /* it is in doubt: no time makes it whole */
    for (uint32_t whole = 0; whole < 2; whole++) {
        later.came = 2;
        later.joins[0] = back(3);
        later.joins[1] = back(4);
        joins[4].possibly_incomplete = joins[3].possibly_incomplete = !whole;
        comeback_admit(&later, config);
        assert_int_equal(later.count, 2);
        next = cluster_copy(config);
        comeback_apply(&later, config, next);
        row = &cluster_finished(next)->shards[0];
        assert_int_equal(row->backup_count, whole ? 1 : 2);
        assert_int_equal(shard_is_full_at(row, 2), !whole);
        assert_int_equal(row->possibly_incomplete, !whole);
        cluster_release(next);
    }

    joins[3].torn = true;
    struct comeback torn = {.mixes = true, .came = 1, .joins = {&joins[3]}};
    joins[3].possibly_incomplete = false;
    comeback_admit(&torn, old);
    assert_int_equal(torn.count, 0); /* of shard 0 there may be more; shard 1 waits with it */
    cluster_release(config);
    cluster_release(old);
}

/* It has not shown yet that it can open what it says it has. */
TEST(a_single_one_with_whole_data_first_runs_beside_those_that_are_away)
{
    struct cluster_config *old = make();
    struct comeback comeback = {
        .mixes = true, .came = 1, .joins = {back(3)}, .over = {true, true, true, true}};
    comeback_admit(&comeback, old);
    assert_int_equal(comeback.count, 1);
    struct cluster_config *config = cluster_copy(old);
    comeback_apply(&comeback, old, config);
    assert_false(cluster_member(cluster_finished(config), 3)->kept);
    const struct shard *row = &config->shards[0];
    assert_true(shard_is_kept(config, row) && row->backup_count == 2 && shard_is_full_at(row, 3));

    struct comeback later = {
        .mixes = true, .present = 1, .run = {&joins[3]}, .over = {true, true, true, true}};
    assert_true(comeback_is_due(&later, config));
    struct cluster_config *next = cluster_copy(config);
    comeback_apply(&later, config, next);
    row = &cluster_finished(next)->shards[0];
    assert_true(row->primary == 3 && row->backup_count == 0);
    cluster_release(next);

    /* It ends before that: another one that has the same is still a replica. Two at once need not be tried. */
    struct comeback other = {.mixes = true, .came = 2, .joins = {back(2), back(4)}};
    comeback_admit(&other, config);
    next = cluster_copy(config);
    comeback_apply(&other, config, next);
    assert_false(shard_is_kept(cluster_finished(next), &next->shards[0]));
    cluster_release(next);
    cluster_release(config);
    cluster_release(old);
}

TEST(who_is_kept_is_waited_for_beside_one_that_runs_whole_until_that_is_over)
{
    struct cluster_config *old = make(), *config;
    old->members[2].kept = false; /* 3 runs, and waits for 2 and 4 */
    old->shards[0].primary = 3;
    old->shards[0].backups[0] = 2;
    assert_int_equal(cluster_finish(old), ROWAN_EFORMAT); /* K4: 3 would serve it */
    comeback_keep(old, &old->shards[0]);
    cluster_finished(old);
    assert_true(old->mixed && shard_is_kept(old, &old->shards[0]));
    struct comeback comeback = {.mixes = true, .present = 1, .run = {back(3)}};
    assert_false(comeback_is_due(&comeback, old));
    comeback.over[1] = true;
    assert_false(comeback_is_due(&comeback, old)); /* 4 */
    comeback.over[3] = true;
    config = cluster_copy(old);
    comeback_apply(&comeback, old, config);
    const struct shard *row = &config->shards[0];
    assert_true(row->primary == 3 && row->backup_count == 0 && row->epoch == 8);
    cluster_release(config);

    comeback = (struct comeback){.came = 1, .joins = {back(2)}, .present = 1, .run = {&joins[3]}};
    comeback_admit(&comeback, old);
    config = cluster_copy(old);
    comeback_apply(&comeback, old, config);
    row = &config->shards[0];
    assert_true(row->primary == 2 && row->backup_count == 1 && row->backups[0] == 3);
    cluster_release(config);
    cluster_release(old);
}

TEST(who_is_given_up_is_not_waited_for)
{
    struct cluster_config *old = make(), *config;
    struct comeback comeback = {.came = 1, .joins = {back(2)}};
    joins[2].data_cluster = 0;
    comeback.given_shard = 2; /* another shard */
    comeback_admit(&comeback, old);
    assert_int_equal(comeback.count, 0);
    comeback.given_shard = 1;
    comeback_admit(&comeback, old);
    assert_int_equal(comeback.count, 1);
    config = cluster_copy(old);
    comeback_apply(&comeback, old, config);
    const struct shard *row = &config->shards[0];
    assert_true(row->primary == 2 && row->backup_count == 0 && row->possibly_incomplete);
    cluster_release(config);

    /* A server leaves what waits for others, too, and stays where it is the only one. */
    comeback = (struct comeback){.given_server = 3};
    config = cluster_copy(old);
    comeback_apply(&comeback, old, config);
    row = &cluster_finished(config)->shards[0];
    assert_true(row->primary == 2 && row->backup_count == 1 && row->backups[0] == 4);
    assert_int_equal(config->shards[1].primary, 3);
    assert_false(comeback_is_due(&comeback, config));
    cluster_release(config);
    cluster_release(old);
}

TEST(one_without_whole_data_waits_until_all_are_back)
{
    struct cluster_config *old = make();
    back(2)->possibly_incomplete = true;
    damage_add(&back(4)->damage, 0, 5);
    assert_int_equal(admitted(old, 1u << 2 | 1u << 4).count, 0);
    assert_null(after(old, 0)); /* while shard 2 has 1 alone, nobody fills it */

    /* 3, whole as to shard 0 only, would return, but for shard 1. */
    damage_add(&back(3)->damage, 1, 105);
    joins[3].damage.count = 1;
    struct cluster_config *config = after(old, 0x1c);
    assert_int_equal(config->shards[0].primary, 3);
    assert_true(config->shards[1].possibly_incomplete && !config->shards[0].possibly_incomplete);
    cluster_release(config);

    back(3)->data_cluster = 0;
    assert_int_equal(admitted(old, 0x1c).count, 2); /* 3 waits, and nobody for it */
    damage_add(&back(3)->damage, 0, 5);
    joins[2].data_cluster = 0;
    assert_int_equal(admitted(old, 0x1c).count, 3);
    assert_int_equal(admitted(old, 0x0c).count, 0);
    cluster_release(old);
}

/* 3, which has whole data of shard 0, cannot return because of shard 1. */
TEST(nobody_returns_in_doubt_while_one_that_waits_has_whole_data)
{
    struct cluster_config *old = make();
    old->shards[1].epoch = CLUSTER_MAX_EPOCH;
    back(2)->possibly_incomplete = true;
    back(4)->possibly_incomplete = true;
    back(3);
    assert_int_equal(admitted(old, 0x1c).count, 0);
    cluster_release(old);
}

TEST(a_shard_that_all_bring_in_doubt_is_marked)
{
    struct cluster_config *old = make();
    back(2)->possibly_incomplete = true;
    back(4)->possibly_incomplete = true;
    back(3)->possibly_incomplete = true;
    struct cluster_config *config = after(old, 0x1c);
    const struct shard *row = &config->shards[0];
    assert_true(row->possibly_incomplete && row->primary == 2 && row->backup_count == 2);
    cluster_release(config);
    old->shards[0].epoch = CLUSTER_MAX_EPOCH;
    assert_int_equal(admitted(old, 0x1c).count, 0);
    cluster_release(old);
}

/* --- a start of all --- */

/* All have stopped; these come, a process of each that says as much as joins[] has of it, and report until then, more often than the
 * manager wants to look at the clock. */
static void report_until(struct world *world, uint32_t servers, uint64_t until_ns)
{
    for (; world->now_ns < until_ns; world_round(world, world->now_ns + LEASE / 5)) {
        for (uint32_t server = 1; server <= SERVERS; server++) {
            joins[server].registration_epoch = world->connections[server].registration_epoch;
            if (servers >> server & 1 && !world->storing)
                world_join(world, server, 7, &joins[server]);
        }
        world_settle(world);
    }
}

static struct world *stopped_cluster(void)
{
    struct world *world = committed_cluster();
    world_format_all(world, SERVERS);
    world_have_clients(world);
    world_close_all(world, SERVERS);
    for (uint32_t server = 1; server <= SERVERS; server++)
        joins[server] = world_rejoin_of(world, server, 1);
    return world;
}

#define START_WAIT (CM_START_WAIT_MS * NS_PER_MS)

TEST(a_start_waits_for_all_for_a_while_and_serves_what_came_whole_then)
{
    struct world *world = stopped_cluster();
    const uint64_t before = term(world), since_ns = world->now_ns;
    report_until(world, FIRST_TWO, since_ns + START_WAIT - LEASE);
    assert_int_equal(term(world), before);
    report_until(world, FIRST_TWO, since_ns + START_WAIT + LEASE);
    const struct cluster_config *config = cm_state_config(world->state);
    assert_int_equal(config->member_count, 2); /* nothing waits for the third */
    for (uint32_t i = 0; i < config->shard_count; i++)
        assert_true(config->shards[i].backup_count == 1 && !config->shards[i].possibly_incomplete);
    assert_int_equal(world_store->cold_starts, 1);
}

/* It belongs to the cluster, was removed as it fell silent, and so holds no shard. */
TEST(a_start_does_not_wait_for_a_server_that_is_no_member)
{
    struct world *world = committed_cluster();
    world_format_all(world, SERVERS);
    world_have_clients(world);
    adopt_all(world);
    run(world, FIRST_TWO, world->now_ns + 8 * LEASE);
    world_settle(world);
    assert_null(cluster_member(cm_state_config(world->state), 3));
    assert_int_equal(cm_state_config(world->state)->wanted_count, SERVERS);
    world_close_all(world, SERVERS);
    for (uint32_t server = 1; server < SERVERS; server++)
        joins[server] = world_rejoin_of(world, server, 1);
    const uint64_t since_ns = world->now_ns;
    report_until(world, FIRST_TWO, since_ns + 3 * LEASE);
    const struct cluster_config *config = cm_state_config(world->state);
    assert_int_equal(world_store->cold_starts, 1);
    assert_true(config->member_count == 2 && !config->mixed);
    for (uint32_t i = 0; i < config->shard_count; i++)
        assert_int_equal(config->shards[i].backup_count, 1);
}

TEST(a_start_with_one_that_is_torn_waits_as_long_again)
{
    struct world *world = stopped_cluster();
    const uint64_t since_ns = world->now_ns;
    joins[1].torn = true;
    joins[2].format = VERSION_CONFIGURATION_USERS; /* it would not say so */
    report_until(world, FIRST_TWO, since_ns + START_WAIT + LEASE);
    const struct cluster_config *config = cm_state_config(world->state);
    assert_true(config->members[0].kept && config->members[1].kept && config->members[2].kept);
    assert_non_null(world_warning(world, "shards_wait"));
    report_until(world, FIRST_TWO, since_ns + 2 * START_WAIT + LEASE);
    config = cm_state_config(world->state);
    assert_int_equal(config->member_count, 2);
    assert_false(config->shards[0].possibly_incomplete);
}

/* By a tool that connects now, which is not told that the cluster waits to be started; 1 and 2 go on with what they have. */
static void give_up_third(struct world *world)
{
    struct cm_plan plan = {.kind = CM_PLAN_GIVE_UP, .server = 3};
    world_get(world, 20, 8, 0);
    assert_configuration(world_last(world, 20), 8, term(world), false);
    assert_int_equal(world_last(world, 20)->waiting_count, 0);
    world_plan(world, 20, 9, plan);
    assert_failure(world_last(world, 20), ROWAN_EREFUSED, "is lost for good");
    plan.to = 1;
    world_store->gives_up = true;
    world_plan(world, 20, 10, plan);
    report_until(world, FIRST_TWO, world->now_ns + 4 * LEASE);
    const struct cluster_config *config = cm_state_config(world->state);
    assert_null(cluster_member(config, 3));
    for (uint32_t i = 0; i < config->shard_count; i++) {
        assert_false(shard_is_kept(config, &config->shards[i]));
        assert_int_equal(config->shards[i].backup_count, 1);
        assert_int_equal(config->shards[i].possibly_incomplete, !joins[1].torn);
    }
    assert_string_equal(world_last(world, 20)->detail, "");
}

TEST(who_is_away_can_be_given_up_while_one_that_is_torn_waits_as_long_again)
{
    struct world *world = stopped_cluster();
    const uint64_t since_ns = world->now_ns;
    joins[1].torn = joins[2].torn = true;
    report_until(world, FIRST_TWO, since_ns + START_WAIT - LEASE);
    world_get(world, 20, 7, 0);
    assert_int_equal(world_last(world, 20)->waiting_count, 1);
    assert_int_equal(world_last(world, 20)->waiting_for[0], 3);
    report_until(world, FIRST_TWO, since_ns + START_WAIT + LEASE);
    give_up_third(world);
}

TEST(who_is_away_can_be_given_up_when_all_that_came_are_empty)
{
    struct world *world = stopped_cluster();
    joins[1].data_cluster = joins[2].data_cluster = 0;
    report_until(world, FIRST_TWO, world->now_ns + START_WAIT + LEASE);
    give_up_third(world);
}

/* The start is over, for every manager. */
TEST(who_is_away_can_be_given_up_at_once_at_a_manager_that_finds_all_kept)
{
    struct world *world = stopped_cluster();
    joins[1].torn = joins[2].torn = true;
    report_until(world, FIRST_TWO, world->now_ns + START_WAIT + LEASE);
    world_destroy(world);
    world = standby(7002, 2 * START_WAIT);
    joins[1].nobody_leads = joins[2].nobody_leads = true;
    joins[1].without_ms = joins[2].without_ms = 3 * LEASE_MS;
    report_until(world, FIRST_TWO, world->now_ns + 8 * LEASE);
    assert_int_equal(cm_state_config(world->state)->manager, 7002);
    give_up_third(world);
}

TEST(what_nobody_brings_whole_waits_and_can_be_given_up)
{
    struct world *world = stopped_cluster();
    const uint64_t since_ns = world->now_ns;
    joins[1].data_cluster = 0;
    joins[2].possibly_incomplete = true;
    report_until(world, FIRST_TWO, since_ns + START_WAIT + LEASE);
    const struct cluster_config *config = cm_state_config(world->state);
    assert_false(cluster_member(config, 2)->kept);
    assert_true(cluster_member(config, 1)->kept && cluster_member(config, 3)->kept);
    assert_true(config->mixed && shard_is_kept(config, &config->shards[0]));

    world_open(world, 20);
    world_store->gives_up = true;
    struct cm_plan plan = {.kind = CM_PLAN_GIVE_UP, .server = 3};
    world_plan(world, 20, 9, plan);
    assert_failure(world_last(world, 20), ROWAN_EREFUSED, "is lost for good");
    plan.to = 1;
    world_plan(world, 20, 10, plan);
    memset(last, 0, sizeof last);
    world_adopt(world, 2, term(world));
    for (uint32_t i = 0; i < 20; i++) {
        world_adopt(world, 2, term(world));
        world_round(world, world->now_ns + 1);
        renew(world, 2);
        report_until(world, 1 << 1, world->now_ns + LEASE / 4);
    }
    assert_string_equal(world_last(world, 20)->detail, "");
    config = cm_state_config(world->state);
    assert_false(shard_is_kept(config, &config->shards[0]));
    assert_true(config->shards[0].primary == 2 && config->shards[0].possibly_incomplete);
    assert_null(cluster_member(config, 3));
}

/* Three servers, one replica each. */
TEST(a_kept_member_comes_back_and_the_lease_of_its_last_process_is_waited_for)
{
    struct world *world = cluster_with_a_kept_member();
    world_adopt(world, 1, term(world));
    world_adopt(world, 2, term(world));
    run(world, FIRST_TWO, world->now_ns + 2 * LEASE);
    world_close(world, 3);
    memset(&last[3], 0, sizeof last[3]);

    struct cm_join join = world_rejoin_of(world, 3, 1);
    join.possibly_incomplete = true;
    damage_add(&join.damage, 0, 0);
    world_join(world, 3, 6, &join);
    run(world, FIRST_TWO, world->now_ns + LEASE / 4);
    const struct cluster_config *config = cm_state_config(world->state);
    assert_int_equal(cluster_member(config, 3)->incarnation, 100003);
    assert_false(cluster_member(config, 3)->kept);
    assert_non_null(world_warning(world, "server_joined"));
    assert_non_null(world_warning(world, "possible_loss"));
    adopt_all(world);
    run(world, ALL, world->now_ns + 2 * LEASE);
    assert_int_equal(committed(world, term(world)), ALL);
}

static bool is_kept(const struct world *world)
{
    return cluster_member(cm_state_config(world->state), 3)->kept;
}

/* Each time it takes all leases away, which those who lead the other shards have for some time in between; and shards wait for it. */
TEST(a_kept_member_that_ends_after_each_return_waits_for_a_few_leases_each_time)
{
    struct world *world = cluster_with_a_kept_member();
    struct cm_join join = world_rejoin_of(world, 3, 1);
    uint64_t waits_ns = 0;
    for (uint32_t round = 1; round < 9; round++) {
        const uint64_t since_ns = world->now_ns;
        join.incarnation = round * 100000 + 3;
        world_close(world, 3);
        while (is_kept(world)) {
            adopt_all(world);
            world_join(world, 3, 6, &join);
            run(world, FIRST_TWO, world->now_ns + LEASE / 4);
            world_forget(world);
        }
        if (waits_ns > 0)
            assert_in_range(world->now_ns - since_ns, waits_ns - 2 * LEASE, waits_ns + LEASE);
        waits_ns = LEASE << LEASE_SPELLS;
        memset(&last[3], 0, sizeof last[3]);
        while (!is_kept(world)) {
            world_adopt(world, 1, term(world));
            world_adopt(world, 2, term(world));
            run(world, FIRST_TWO, world->now_ns + LEASE / 4);
            world_settle(world);
        }
    }
    assert_non_null(world_warning(world, "server_unsteady"));
}

/* It has no lease any more, and asks to be removed. */
static void say_goodbye(struct world *world, uint32_t server)
{
    last[server].leaves = true;
    renew(world, server);
    last[server].leaves = false;
    world_settle(world);
    world_close(world, server);
}

/* 3 and 2 have said goodbye: the shards wait for 2. */
static struct world *half_stopped_cluster(void)
{
    struct world *world = committed_cluster();
    world_format_all(world, SERVERS);
    world_have_clients(world);
    adopt_all(world);
    run(world, ALL, world->now_ns + LEASE);
    say_goodbye(world, 3);
    say_goodbye(world, 2);
    assert_true(cluster_member(cm_state_config(world->state), 2)->kept);
    return world;
}

TEST(a_server_that_does_not_read_the_configuration_waits_and_is_told_why)
{
    struct world *world = half_stopped_cluster();
    const uint64_t since_ns = world->now_ns;
    struct cm_join join = world_rejoin_of(world, 3, 1);
    join.format = VERSION_CONFIGURATION_USERS;
    adopt_all(world);
    run(world, 1 << 1, world->now_ns + NS_PER_S);
    world_join(world, 3, 6, &join);
    assert_failure(world_last(world, 3), ROWAN_EAGAIN, "does not read");
    run(world, 1 << 1, since_ns + CM_GOODBYE_WAIT_MS * NS_PER_MS + LEASE);
    assert_null(cluster_member(cm_state_config(world->state), 3));
    assert_false(cm_state_config(world->state)->mixed);
    adopt_all(world);
    run(world, 1 << 1, world->now_ns + LEASE);
    world_join(world, 3, 7, &join);
    run(world, 1 << 1, world->now_ns + LEASE);
    assert_non_null(cluster_member(cm_state_config(world->state), 3));
}

TEST(a_shard_waits_from_the_goodbye_of_who_is_kept_for_it_whoever_stops_later)
{
    struct world *world = half_stopped_cluster();
    const uint64_t since_ns = world->now_ns;
    struct cm_join join = world_rejoin_of(world, 3, 1);
    world_join(world, 3, 6, &join);
    memset(&last[3], 0, sizeof last[3]);
    for (int i = 0; i < 8; i++) {
        adopt_all(world);
        run(world, 1 << 1 | 1 << 3, world->now_ns + NS_PER_S);
    }
    say_goodbye(world, 3);
    assert_null(cluster_member(cm_state_config(world->state), 3));
    adopt_all(world);
    run(world, 1 << 1, since_ns + CM_GOODBYE_WAIT_MS * NS_PER_MS - LEASE);
    assert_true(cluster_member(cm_state_config(world->state), 2)->kept);
    run(world, 1 << 1, since_ns + CM_GOODBYE_WAIT_MS * NS_PER_MS + LEASE);
    const struct cluster_config *config = cm_state_config(world->state);
    assert_null(cluster_member(config, 2));
    assert_int_equal(config->shards[0].primary, 1);
}

UNIT_MAIN(NULL, NULL)
