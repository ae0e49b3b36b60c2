/* plan_test.c - what operators want of servers: added, drained, removed; and of shards: moved, or split. */
#define TEST_FIXTURE world_setup, world_teardown

#include "cm/loads.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

enum { TOOL = 20, TAG = 7 };

static bool keyless;

/* As committed_cluster, with two replicas of each shard. */
static struct world *two_replicas(void)
{
    struct cm_state_options options = options_of(7001);
    options.replicas = 2;
    options.keyed = !keyless;
    memset(last, 0, sizeof last);
    struct world *world = world_create(world_store, &options);
    world->now_ns = NS_PER_S;
    world_elect(world);
    world_join_all(world, SERVERS);
    world_settle(world);
    adopt_all(world);
    assert_int_equal(run(world, ALL, world->now_ns + 3 * LEASE), ALL);
    world_forget(world);
    return world;
}

static void plan(struct world *world, enum cm_plan_kind kind, uint32_t server)
{
    world_plan(world, TOOL, TAG, (struct cm_plan){.kind = kind, .server = server});
    world_settle(world);
}

static void move(struct world *world, uint32_t shard, uint32_t from, uint32_t to)
{
    world_plan(world, TOOL, TAG,
               (struct cm_plan){.kind = CM_PLAN_MOVE, .server = from, .shard = shard, .to = to});
    world_settle(world);
    run(world, ALL, world->now_ns + LEASE / 4 + 1);
}

/* It is stored by now. */
static void assert_done(const struct world *world)
{
    assert_configuration(world_last(world, TOOL), TAG, term(world), false);
}

static void assert_refused(const struct world *world, const char *words)
{
    assert_failure(world_last(world, TOOL), ROWAN_EREFUSED, words);
}

static uint32_t held_by(const struct world *world, uint32_t server)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < in_force(world)->shard_count; i++)
        count += shard_names(&in_force(world)->shards[i], server);
    return count;
}

static void fill_all(struct world *world)
{
    for (uint32_t i = 0; i < in_force(world)->shard_count; i++) {
        const struct shard row = in_force(world)->shards[i];
        if (row.filling_count > 0)
            world_filled(world, row.primary, row.id, row.epoch, row.filling[0], true);
    }
    run(world, ALL, world->now_ns + LEASE / 4);
}

/* Server 3 holds nothing any more; that is stored, not committed. */
static struct world *drained(void)
{
    struct world *world = two_replicas();
    plan(world, CM_PLAN_DRAIN, 3);
    assert_done(world);
    commit_among(world, ALL);
    commit_among(world, ALL);
    for (uint32_t i = 0; i < in_force(world)->shard_count; i++)
        assert_true(in_force(world)->shards[i].primary != 3);
    assert_true(held_by(world, 3) > 0 && in_force(world)->shards[2].filling_count == 1);
    plan(world, CM_PLAN_REMOVE, 3);
    assert_refused(world, "server 3 holds 16 shards: drain it first");
    fill_all(world);
    assert_int_equal(held_by(world, 3), 0);
    assert_non_null(cluster_member(in_force(world), 3));
    return world;
}

TEST(a_drained_server_hands_over_what_it_holds_and_can_then_be_removed)
{
    struct world *world = drained();
    const uint64_t before = term(world);
    assert_string_equal(world_warning(world, "planned"), "term=2 what=drain server=3");
    assert_string_equal(world_warning(world, "shards_moved"), "term=4 led_by_others=0 left=16");
    world_forget(world);
    plan(world, CM_PLAN_REMOVE, 3);
    run(world, ALL, world->now_ns + LEASE);
    assert_null(world_last(world, TOOL)); /* what it held may still be served */
    assert_int_equal(term(world), before);
    adopt_all(world);
    run(world, FIRST_TWO, world->now_ns + LEASE / 4 + 1);
    assert_null(cluster_member(in_force(world), 3));
    assert_done(world);
    assert_failure(world_last(world, 3), ROWAN_EREFUSED, "rowan add");
}

TEST(a_server_that_was_removed_may_join_again_once_it_is_added)
{
    struct world *world = drained();
    commit_among(world, ALL);
    plan(world, CM_PLAN_REMOVE, 3);
    world_close(world, 3);
    struct cm_join join = world_rejoin_of(world, 3, 1);
    world_join(world, 3, 6, &join);
    assert_failure(world_last(world, 3), ROWAN_EREFUSED, "rowan add");
    plan(world, CM_PLAN_ADD, 3);
    assert_done(world);
    commit_among(world, FIRST_TWO);
    run(world, FIRST_TWO, world->now_ns + 2 * LEASE);
    world_join(world, 3, 6, &join);
    run(world, FIRST_TWO, world->now_ns + LEASE / 4);
    assert_int_equal(cluster_member(in_force(world), 3)->incarnation, 100003);
    assert_int_equal(held_by(world, 3), 0); /* no shard lacks replicas */
}

TEST(another_manager_goes_on_with_what_is_stored)
{
    struct world *world = two_replicas();
    plan(world, CM_PLAN_DRAIN, 3);
    struct world *other = manager_at(7002, world->now_ns);
    other->now_ns += 1;
    world_join_all(other, SERVERS);
    world_settle(other);
    assert_int_equal(in_force(other)->manager, 7002);
    adopt_all(other);
    memset(last, 0, sizeof last);
    run(other, ALL, other->now_ns + 4 * LEASE);
    for (uint32_t i = 0; i < in_force(other)->shard_count; i++)
        assert_true(in_force(other)->shards[i].primary != 3);
}

TEST(a_drain_ends_when_the_server_is_added_again)
{
    struct world *world = two_replicas();
    plan(world, CM_PLAN_DRAIN, 3);
    commit_among(world, ALL);
    commit_among(world, ALL);
    plan(world, CM_PLAN_ADD, 3);
    assert_done(world);
    commit_among(world, ALL);
    commit_among(world, ALL);
    for (uint32_t i = 0; i < in_force(world)->shard_count; i++) {
        const struct shard *row = &in_force(world)->shards[i];
        assert_true(row->backup_count == 1 && row->filling_count == 0);
    }
    assert_true(held_by(world, 3) > 0);
}

TEST(what_cannot_be_is_refused_with_the_reason)
{
    struct world *world = committed_cluster();
    plan(world, CM_PLAN_DRAIN, 3);
    assert_refused(world, "without server 3 there are 2 servers for the 3 replicas");
    plan(world, CM_PLAN_DRAIN, 9);
    assert_refused(world, "only a member");
    plan(world, CM_PLAN_REMOVE, 2);
    assert_refused(world, "server 2 holds 24 shards");
    plan(world, CM_PLAN_ADD, CLUSTER_MAX_SERVER + 1);
    assert_refused(world, "from 1 to 16383");
    move(world, 0, 2, 3);
    assert_refused(world, "server 3 has a replica of shard 0");
    assert_int_equal(term(world), 1);
    plan(world, CM_PLAN_REMOVE, 9); /* is so */
    plan(world, CM_PLAN_ADD, 2);
    assert_done(world);
    assert_int_equal(term(world), 1);

    for (uint32_t server = SERVERS + 1; server <= CLUSTER_MAX_MEMBERS; server++)
        plan(world, CM_PLAN_ADD, server);
    assert_done(world);
    plan(world, CM_PLAN_ADD, CLUSTER_MAX_MEMBERS + 1);
    assert_refused(world, "1 to 64 servers");
    const struct cm_state_options options = options_of(7002);
    struct world *standby = world_create(world_store, &options);
    world_settle(standby);
    plan(standby, CM_PLAN_ADD, 2);
    assert_failure(world_last(standby, TOOL), ROWAN_ENOTLEADING, "another");
}

/* Of two_replicas: shard i is led by server i % 3 + 1 and backed by the next one. */
static const struct shard *row_of(const struct world *world, uint16_t shard)
{
    return cluster_shard(in_force(world), shard);
}

static void assert_row(const struct world *world, uint16_t shard, uint32_t primary,
                       uint32_t backups, uint32_t filling)
{
    const struct shard *row = row_of(world, shard);
    assert_int_equal(row->primary, primary);
    assert_int_equal(row->backup_count, backups % 10 > 0 ? 1 + (backups > 10) : 0);
    for (uint32_t i = 0; i < row->backup_count; i++)
        assert_int_equal(row->backups[i], i == 0 && backups > 10 ? backups / 10 : backups % 10);
    assert_int_equal(row->filling_count, filling > 0);
    assert_int_equal(row->filling[0], filling);
}

TEST(a_primary_moves_to_a_server_that_was_filled_first)
{
    struct world *world = two_replicas();
    const struct shard before = *row_of(world, 0);
    const uint32_t third = 6 - before.primary - before.backups[0];
    move(world, 0, before.primary, third);
    assert_done(world);
    assert_string_equal(world_warning(world, "planned"), "term=2 what=move server=1 shard=0 to=3");
    assert_row(world, 0, before.primary, before.backups[0], third);
    commit_among(world, ALL);
    fill_all(world);
    assert_row(world, 0, before.primary, before.backups[0] * 10 + third, 0);
    commit_among(world, ALL);
    assert_row(world, 0, third, before.backups[0] * 10 + before.primary, 0);
    commit_among(world, ALL);
    assert_row(world, 0, third, before.backups[0], 0);
    assert_int_equal(row_of(world, 0)->epoch, before.epoch + 4);
    assert_true(row_of(world, 0)->move_from == 0 && row_of(world, 0)->move_to == 0);
    commit_among(world, ALL);
    memset(world->sent, 0, sizeof world->sent);
    move(world, 0, before.primary, third); /* is so */
    assert_int_equal(row_of(world, 0)->epoch, before.epoch + 4);
}

TEST(a_primary_moves_to_a_full_backup_at_once)
{
    struct world *world = two_replicas();
    const struct shard before = *row_of(world, 4);
    struct cm_join join = world_join_of(before.backups[0]), leads = world_join_of(before.primary);
    damage_found(&join.damage, 4);
    damage_found(&leads.damage, 4); /* else the backup would be replaced */
    world_join(world, before.backups[0], 2, &join);
    world_join(world, before.primary, 2, &leads);
    move(world, 4, before.primary, before.backups[0]);
    assert_refused(world, "could not read an object of shard 4");
    join.damage.count = leads.damage.count = 0;
    world_join(world, before.primary, 2, &leads);
    world_join(world, before.backups[0], 2, &join);
    move(world, 4, before.primary, before.backups[0]);
    assert_done(world);
    assert_row(world, 4, before.backups[0], before.primary, 0);
    assert_int_equal(row_of(world, 4)->epoch, before.epoch + 1);
}

/* Three servers, two replicas: with one of them drained, the one that was to leave for the third is needed. */
TEST(a_drain_ends_a_move_whose_source_is_needed)
{
    struct world *world = two_replicas();
    const struct shard before = *row_of(world, 0);
    const uint32_t third = 6 - before.primary - before.backups[0];
    move(world, 0, before.primary, third);
    commit_among(world, ALL);
    plan(world, CM_PLAN_DRAIN, before.backups[0]);
    for (uint32_t i = 0; i < 6; i++) {
        commit_among(world, ALL);
        fill_all(world);
    }
    assert_false(shard_names(row_of(world, 0), before.backups[0]));
    assert_true(row_of(world, 0)->move_from == 0 && row_of(world, 0)->backup_count == 1);
}

TEST(a_backup_moves_and_its_primary_stays)
{
    struct world *world = two_replicas();
    const struct shard before = *row_of(world, 0);
    const uint32_t third = 6 - before.primary - before.backups[0];
    move(world, 0, before.backups[0], third);
    commit_among(world, ALL);
    fill_all(world);
    commit_among(world, ALL);
    assert_row(world, 0, before.primary, third, 0);
}

TEST(a_move_ends_when_the_server_fails_that_was_to_come)
{
    struct world *world = two_replicas();
    const struct shard before = *row_of(world, 0);
    const uint32_t third = 6 - before.primary - before.backups[0];
    move(world, 0, before.primary, third);
    commit_among(world, ALL);
    run(world, ALL & ~(1u << third), world->now_ns + 3 * LEASE);
    assert_row(world, 0, before.primary, before.backups[0], 0);
    assert_true(row_of(world, 0)->move_to == 0);
}

TEST(who_was_to_come_for_a_server_that_fails_replaces_it)
{
    struct world *world = two_replicas();
    const struct shard before = *row_of(world, 0);
    const uint32_t third = 6 - before.primary - before.backups[0];
    move(world, 0, before.primary, third);
    commit_among(world, ALL);
    run(world, ALL & ~(1u << before.primary), world->now_ns + 3 * LEASE);
    assert_row(world, 0, before.backups[0], 0, third); /* which replaces it */
    assert_true(row_of(world, 0)->move_from == 0);
}

static void tell_space(struct world *world, uint32_t server, uint64_t bytes)
{
    const struct load_report report = {.cores = 1, .free_bytes = bytes};
    world_step(world,
               &(struct cm_event){.kind = CM_EVENT_LOAD, .connection = server, .load = &report});
}

TEST(a_move_that_cannot_be_is_refused_with_the_reason)
{
    struct world *world = two_replicas();
    const uint32_t primary = row_of(world, 0)->primary, backup = row_of(world, 0)->backups[0],
                   third = 6 - primary - backup;
    move(world, 900, primary, third);
    assert_refused(world, "there is no shard 900");
    move(world, 0, primary, 9);
    assert_refused(world, "server 9 cannot take a shard from server 1");
    move(world, 0, primary, primary);
    assert_refused(world, "cannot take a shard");
    move(world, 0, third, backup);
    assert_int_equal(term(world), 1); /* it left already, for all that the manager knows */
    tell_space(world, third, 0);
    move(world, 0, primary, third);
    assert_refused(world, "server 3 has no space for shard 0");
    tell_space(world, third, 2);
    move(world, 0, primary, third);
    commit_among(world, ALL);
    move(world, 0, backup, third);
    assert_refused(world, "shard 0 moves from server 1 to 3: wait");
}

TEST(a_shard_is_split_when_every_replica_of_it_says_that_it_has_copied)
{
    struct world *world = two_replicas();
    const struct shard before = *row_of(world, 4);
    const uint32_t count = in_force(world)->shard_count;
    world_plan(world, TOOL, TAG, (struct cm_plan){.kind = CM_PLAN_SPLIT, .shard = 4});
    world_settle(world);
    assert_done(world);
    assert_null(row_of(world, (uint16_t)(count + 2)));
    const uint16_t child = cluster_shard_of_slot(in_force(world), before.last_slot)->id;
    const uint32_t epoch = row_of(world, 4)->epoch;
    assert_int_equal(row_of(world, child)->first_slot,
                     (before.first_slot + before.last_slot + 1) / 2);
    move(world, child, before.primary, before.backups[0]);
    assert_refused(world, "is being split: wait");
    commit_among(world, ALL);
    world_filled(world, before.backups[0], 4, epoch - 1, before.backups[0], true);
    world_filled(world, before.primary, 4, epoch, before.primary, true);
    run(world, ALL, world->now_ns + LEASE / 4);
    assert_int_equal(row_of(world, 4)->split, SPLIT_PARENT);
    world_filled(world, before.backups[0], 4, epoch, before.backups[0], true);
    run(world, ALL, world->now_ns + LEASE / 4);
    assert_int_equal(row_of(world, 4)->split, SPLIT_ENDED);
    run(world, ALL, world->now_ns + LEASE); /* not everybody has adopted that */
    assert_int_equal(in_force(world)->shard_count, count + 2);
    commit_among(world, ALL);
    assert_true(in_force(world)->shard_count == count + 1 && !row_of(world, 4));
}

TEST(how_many_shards_there_may_be_changes_while_it_runs)
{
    struct world *world = two_replicas();
    struct cm_state_options options = {.max_shards = 24}; /* there are so many */
    const struct cm_plan split = {
        .kind = CM_PLAN_SPLIT, .shard = 5, .to = in_force(world)->shards[5].first_slot + 1};
    cm_state_tune(world->state, &options);
    world_plan(world, TOOL, TAG, split);
    world_settle(world);
    assert_refused(world, "24 shards already");
    options.max_shards = 25;
    cm_state_tune(world->state, &options);
    world_plan(world, TOOL, TAG, split);
    world_settle(world);
    assert_done(world);
    assert_int_equal(in_force(world)->served_count, 25);
}

TEST(the_last_server_of_the_list_stays)
{
    struct world *world = committed_cluster();
    struct cluster_config *next = world_next(world);
    next->wanted_count = 1;
    memset(next->wanted + 1, 0, 2 * sizeof next->wanted[0]);
    world_change(world, next);
    plan(world, CM_PLAN_DRAIN, 1);
    assert_refused(world, "server 1 is the last of the cluster");
    plan(world, CM_PLAN_REMOVE, 1);
    assert_refused(world, "server 1 is the last of the cluster");
}

TEST(kept_servers_are_not_removed_and_what_does_not_run_is)
{
    struct world *world = committed_cluster();
    const uint64_t present = last[3].manager_ns;
    run(world, 1u << 1, present + 3 * LEASE);
    world_settle(world);
    assert_null(cluster_member(in_force(world), 3));
    plan(world, CM_PLAN_REMOVE, 3);
    assert_done(world);
    assert_false(cluster_wants(in_force(world), 3));
    struct cluster_config *next = world_next(world);
    next->members[0].kept = true;
    for (uint32_t i = 0; i < next->shard_count; i++) {
        next->shards[i].primary = 1;
        next->shards[i].filling_count = next->shards[i].backup_count = 0;
    }
    world_change(world, next);
    plan(world, CM_PLAN_REMOVE, 1);
    assert_refused(world, "does not run and has the last full replicas of 24 shards");

    const struct cm_join second = world_join_of(2);
    next = cluster_copy_for(in_force(world), 2, in_force(world)->shard_count);
    next->term++;
    next->members[0].kept = false;
    next->members[1] = join_member(&second);
    next->members[1].kept = true;
    for (uint32_t i = 0; i < next->shard_count; i++) {
        next->shards[i].primary = 2;
        next->shards[i].backup_count = 0;
    }
    world_change(world, cluster_finished(next));
    plan(world, CM_PLAN_REMOVE, 1);
    assert_refused(world, "server 1 is the only one that runs");
}

TEST(a_cluster_without_leases_does_not_change_while_it_runs)
{
    struct world *world = world_cluster(world_store, 3);
    plan(world, CM_PLAN_DRAIN, 3);
    assert_refused(world, "a cluster with leases");
    assert_false(world->storing);
}

TEST(a_backup_that_its_primary_does_not_reach_leaves_that_shard_while_it_is_so)
{
    struct world *world = committed_cluster();
    last[1].cut[last[1].cut_count++] = 2;
    run(world, ALL, world->now_ns + LEASE);
    assert_string_equal(world_warning(world, "sends_incomplete"), "server=1 to=2");
    for (uint32_t i = 0; i < in_force(world)->shard_count; i++) {
        const struct shard *row = &in_force(world)->shards[i];
        assert_int_equal(shard_names(row, 2), row->primary != 1);
        assert_true(shard_names(row, 1) && shard_names(row, 3));
    }
    commit_among(world, ALL);
    run(world, ALL, world->now_ns + LEASE);
    assert_int_equal(term(world), 2);
    last[1].cut_count = 0;
    run(world, ALL, world->now_ns + LEASE);
    assert_string_equal(world_warning(world, "sends_incomplete"), "server=1 to=-");
    assert_true(shard_has_filling(&in_force(world)->shards[0], 2));
}

/* --- users --- */

static void plan_user(struct world *world, enum cm_plan_kind kind, const char *name, uint8_t role)
{
    struct cm_plan plan = {.kind = kind,
                           .user = {.role = role, .verifier.rounds = SCRAM_MIN_ROUNDS}};
    strcpy(plan.user.name, name);
    world_plan(world, TOOL, TAG, plan);
    world_settle(world);
}

static void plan_login(struct world *world, uint32_t required)
{
    world_plan(world, TOOL, TAG, (struct cm_plan){.kind = CM_PLAN_LOGIN, .to = required});
    world_settle(world);
}

TEST(users_are_stored_and_the_last_admin_stays_while_logins_are_required)
{
    struct world *world = two_replicas();
    plan_login(world, 1);
    assert_refused(world, "somebody must be an admin");
    plan_user(world, CM_PLAN_USER, "ann", USER_ADMIN);
    assert_done(world);
    plan_login(world, 1);
    assert_done(world);
    assert_true(in_force(world)->users->required);
    plan_user(world, CM_PLAN_NO_USER, "ann", 0);
    assert_refused(world, "without ann nobody would be an admin");
    plan_user(world, CM_PLAN_USER, "ann", USER_WRITE);
    assert_refused(world, "without ann nobody would be an admin");
    plan_user(world, CM_PLAN_USER, "bob", USER_ADMIN);
    plan_user(world, CM_PLAN_NO_USER, "ann", 0);
    assert_done(world);
    assert_null(users_find(in_force(world)->users, "ann"));
    const uint64_t before = term(world);
    plan_user(world, CM_PLAN_USER, "bob", USER_ADMIN); /* it is so */
    assert_done(world);
    assert_int_equal(term(world), before);
    plan_login(world, 0);
    plan_user(world, CM_PLAN_NO_USER, "bob", 0);
    assert_done(world);
    assert_null(in_force(world)->users);
}

TEST(without_a_key_for_servers_logins_are_not_required)
{
    keyless = true;
    struct world *world = two_replicas();
    keyless = false;
    plan_user(world, CM_PLAN_USER, "ann", USER_ADMIN);
    assert_done(world);
    plan_login(world, CM_LOGIN_REQUIRED);
    assert_refused(world, "cluster-key");
    plan_login(world, CM_LOGIN_ROTATE);
    assert_refused(world, "cluster-key");
}

TEST(no_users_while_a_server_runs_a_version_that_does_not_know_them)
{
    struct world *world = two_replicas();
    struct cm_join join = world_join_of(1);
    join.format = 2;
    join.data_cluster = in_force(world)->cluster;
    join.named = join.formatted = true;
    join.known_term = term(world);
    world_join_once(world, 0, 300, &join);
    world_settle(world);
    plan_user(world, CM_PLAN_USER, "ann", USER_ADMIN);
    assert_refused(world, "server 1 runs a version that knows no users");
}

UNIT_MAIN(NULL, NULL)
