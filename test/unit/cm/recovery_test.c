/* recovery_test.c - the configuration manager with --recover: what was lost is made anew from what the servers bring. */
#define TEST_FIXTURE world_setup, world_teardown

#include "cm/recovery.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

enum { CLIENT = 60, FIRST_AND_THIRD = 0xa };

static struct cluster_config *kept[SERVERS + 1]; /* by server: what it stored */
static struct world_store lost_store;

/* A cluster with clients lost what was stored; each server keeps its last term, and `older` the one before. */
static void lose(uint32_t older)
{
    struct world *world = world_cluster(world_store, SERVERS);
    for (uint32_t server = 1; server <= SERVERS; server++)
        kept[server] = cluster_copy(cm_state_config(world->state));
    world_have_clients(world);
    for (uint32_t server = 1; server <= SERVERS; server++) {
        if (server == older)
            continue;
        cluster_release(kept[server]);
        kept[server] = cluster_copy(cm_state_config(world->state));
    }
    world_destroy(world);
}

static void forget(void)
{
    world_store_fini(&lost_store);
    for (uint32_t server = 1; server <= SERVERS; server++) {
        cluster_release(kept[server]);
        kept[server] = NULL;
    }
}

static struct cm_join join_of(uint32_t server)
{
    struct cm_join join = world_join_of(server);
    join.incarnation = 100000 + server;
    join.data_cluster = 77;
    join.stored_term = kept[server]->term;
    return join;
}

static struct cm_join joins[SERVERS]; /* what the servers will report */

static struct world *recovering(uint32_t servers)
{
    struct cm_state_options options = world_options(servers, servers < 3 ? servers : 3, 0);
    options.recover = true;
    options.cluster = 999;
    struct world *world = world_create(&lost_store, &options);
    world->stored = kept;
    world_elect(world);
    for (uint32_t i = 0; i < SERVERS; i++)
        joins[i] = join_of(i + 1);
    return world;
}

/* Servers 1 to `servers` report, and bring what they stored as soon as they are asked. */
static void join_all(struct world *world, uint32_t servers)
{
    for (uint32_t i = 0; i < servers; i++)
        world_join(world, i + 1, 10 + i, &joins[i]);
}

static void assert_stopped(struct world *world, int error, const char *words)
{
    assert_true(world->stopped && !world->storing);
    assert_int_equal(world->stop_error, error);
    if (!strstr(world->stop_detail, words))
        fail_msg("\"%s\" does not say \"%s\"", world->stop_detail, words);
    forget();
}

TEST(the_newest_that_any_server_brings_is_started_again)
{
    lose(2);
    struct world *world = recovering(SERVERS);
    join_all(world, SERVERS);
    assert_true(world->storing && world->expected_version == 0);
    world_settle(world);
    const struct cluster_config *now = cm_state_config(world->state), *old = kept[1];
    assert_true(old->term > kept[2]->term);
    assert_true(now->term == old->term + RECOVERY_TERMS + 1 && now->cluster == 77);
    assert_memory_equal(now->secret, old->secret, sizeof now->secret);
    assert_int_equal(now->shard_count, old->shard_count);
    for (uint32_t i = 0; i < now->shard_count; i++) {
        assert_int_equal(now->shards[i].epoch, old->shards[i].epoch + 1);
        assert_int_equal(now->shards[i].primary, old->shards[i].primary);
        assert_int_equal(now->shards[i].backup_count, 2);
        assert_false(now->shards[i].possibly_incomplete);
    }
    for (uint32_t server = 1; server <= SERVERS; server++) {
        assert_int_equal(cluster_member(now, server)->incarnation, 100000 + server);
        assert_configuration(world_last(world, server), 0, now->term, true);
    }
    forget();
}

TEST(it_waits_for_every_server_and_for_what_each_has_stored)
{
    lose(1);
    struct world *world = recovering(SERVERS);
    struct cluster_config *third = kept[3];
    kept[3] = NULL;
    join_all(world, 2);
    assert_false(world->storing);
    join_all(world, SERVERS);
    assert_false(world->storing);
    assert_true(world->connections[3].bring && !world->connections[1].bring);
    assert_int_equal(world_last(world, 3)->waiting_count, 1);
    assert_int_equal(world_last(world, 3)->waiting_for[0], 3);
    kept[3] = third;
    world_repeat_joins(world);
    assert_true(world->storing);
    forget();
}

/* A server stores a configuration before it serves, and ids are given when all do: none is given twice, however many were
 * given that no server heard of, and however often this happens. */
TEST(client_ids_go_on_in_the_next_series_when_every_server_has_stored_it)
{
    lose(0);
    for (uint32_t times = 1; times <= 3; times++) {
        struct world *world = recovering(SERVERS);
        const uint32_t before = kept[1]->next_client_id;
        join_all(world, SERVERS);
        world_settle(world);
        const struct cluster_config *now = cm_state_config(world->state);
        assert_int_equal(now->next_client_id, ids_series_end(before));
        world_new_id(world, CLIENT, 5);
        assert_false(world->storing);
        for (uint32_t i = 0; i < SERVERS; i++) {
            assert_false(world->storing);
            joins[i].named = joins[i].formatted = true;
            world_join_once(world, i + 1, 300, &joins[i]);
        }
        assert_true(world->storing);
        cluster_release(kept[1]);
        kept[1] = cluster_copy(now); /* the others are older */
        world_settle(world);
        assert_int_equal(world_last(world, CLIENT)->kind, CM_ACTION_CLIENT_ID);
        assert_int_equal(world_last(world, CLIENT)->client_id, ids_series_end(before));
        world_destroy(world);
        world_store_fini(&lost_store);
    }
    forget();
}

TEST(a_series_ends_in_front_of_the_next_and_each_has_half_of_the_rest)
{
    static const struct {
        uint32_t next, end;
        bool is_new;
    } cases[] = {
        {0, 1u << 31, true},
        {1, 1u << 31, true},
        {1025, 1u << 31, false},
        {(1u << 31) - 1, 1u << 31, false},
        {1u << 31, 3u << 30, true},
        {(1u << 31) + 1024, 3u << 30, false},
        {3u << 30, 7u << 29, true},
        {UINT32_MAX - 2047, UINT32_MAX - 1023, true},
        {UINT32_MAX - 1, UINT32_MAX, true},
        {UINT32_MAX, UINT32_MAX, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ids_series_end(cases[i].next), cases[i].end);
        assert_int_equal(ids_series_is_new(cases[i].next), cases[i].is_new);
    }
}

TEST(a_server_with_an_empty_pm_counts_nowhere_and_holds_up_nothing)
{
    lose(0);
    struct world *world = recovering(SERVERS);
    joins[1].data_cluster = joins[1].stored_term = 0;
    join_all(world, SERVERS);
    world_settle(world);
    const struct cluster_config *now = cm_state_config(world->state);
    for (uint32_t i = 0; i < now->shard_count; i++)
        assert_true(now->shards[i].primary != 2 && !shard_has_backup(&now->shards[i], 2));
    assert_int_equal(world_warnings(world, "replicas_dropped"), 1);
    forget();
}

/* As lose(0), and there were leases and one replica of each shard. */
static void lose_single_replicas(void)
{
    lose(0);
    for (uint32_t server = 1; server <= SERVERS; server++) {
        struct cluster_config *config = kept[server];
        config->lease_ms = LEASE_MS;
        config->manager = 6001;
        config->replicas = 1;
        for (uint32_t i = 0; i < config->shard_count; i++) {
            config->shards[i].backup_count = 0;
            memset(config->shards[i].backups, 0, sizeof config->shards[i].backups);
        }
        assert_int_equal(cluster_finish(config), ROWAN_OK);
    }
}

/* The servers say what they have to say more often than the manager looks at the clock, until then. */
static void join_until(struct world *world, uint64_t until_ns)
{
    for (; world->now_ns < until_ns; world_round(world, world->now_ns + LEASE / 5)) {
        join_all(world, SERVERS);
        world_settle(world);
    }
}

/* The second one came with an empty PM. 1 and 3 serve what they have, under a manager that the configuration names. */
static struct world *recovered_without_the_second(void)
{
    lose_single_replicas();
    struct world *world = recovering(SERVERS);
    world->now_ns = 60 * NS_PER_S;
    joins[1].data_cluster = joins[1].stored_term = 0;
    join_all(world, SERVERS);
    assert_true(world->storing);
    world_settle(world);
    for (uint32_t i = 0; i < SERVERS; i++) {
        joins[i].nobody_leads = true;
        joins[i].without_ms = 3 * LEASE_MS;
    }
    join_until(world, world->now_ns + 8 * LEASE);
    assert_int_equal(in_force(world)->manager, 7001);
    joins[0].named = joins[0].formatted = joins[2].named = joins[2].formatted = true;
    join_all(world, SERVERS);
    memset(last, 0, sizeof last);
    commit_among(world, FIRST_AND_THIRD);
    assert_int_equal(run(world, FIRST_AND_THIRD, world->now_ns + 3 * LEASE), FIRST_AND_THIRD);
    return world;
}

TEST(with_leases_a_shard_that_nobody_brings_waits_and_the_others_are_served)
{
    struct world *world = recovered_without_the_second();
    const struct cluster_config *now = in_force(world), *old = kept[1];
    uint32_t waiting = 0;
    assert_true(now->member_count == SERVERS && cluster_member(now, 2)->kept);
    for (uint32_t i = 0; i < now->shard_count; i++) {
        const bool waits = old->shards[i].primary == 2;
        assert_int_equal(now->shards[i].primary, old->shards[i].primary);
        assert_int_equal(now->shards[i].epoch,
                         old->shards[i].epoch + (waits ? RECOVERY_EPOCHS : 1));
        assert_int_equal(shard_is_kept(now, &now->shards[i]), waits);
        waiting += waits;
    }
    assert_true(waiting > 0 && waiting < now->shard_count);
    assert_non_null(world_warning(world, "shards_wait"));
    world_new_id(world, CLIENT, 5); /* that does not wait for the second */
    assert_true(world->storing);
    world_settle(world);
    assert_int_equal(world_last(world, CLIENT)->kind, CM_ACTION_CLIENT_ID);
    assert_int_equal(world_last(world, CLIENT)->client_id, ids_series_end(old->next_client_id));
    forget();
}

/* `gives_up`: an operator does, or the server is started again with its data. */
static void check_that_the_second_returns(bool gives_up)
{
    struct world *world = recovered_without_the_second();
    if (gives_up) {
        world_store->gives_up = lost_store.gives_up = true;
        world_plan(world, CLIENT, 9, (struct cm_plan){.kind = CM_PLAN_GIVE_UP, .server = 2});
        assert_failure(world_last(world, CLIENT), ROWAN_EREFUSED, "is lost for good");
        world_plan(world, CLIENT, 10,
                   (struct cm_plan){.kind = CM_PLAN_GIVE_UP, .server = 2, .to = 1});
    } else {
        world_close(world, 2);
        joins[1] = join_of(2);
        joins[1].incarnation++;
    }
    for (uint32_t i = 0; i < 8; i++) {
        world_join(world, 2, 7, &joins[1]);
        run(world, FIRST_AND_THIRD, world->now_ns + LEASE / 4);
    }
    const struct cluster_config *now = in_force(world);
    assert_int_equal(cluster_member(now, 2)->incarnation, joins[1].incarnation);
    for (uint32_t i = 0; i < now->shard_count; i++) {
        const struct shard *shard = &now->shards[i];
        assert_int_equal(shard->epoch, kept[1]->shards[i].epoch + 1 +
                                           (kept[1]->shards[i].primary == 2 ? RECOVERY_EPOCHS : 0));
        assert_false(shard_is_kept(now, shard));
        assert_int_equal(shard->possibly_incomplete, gives_up && shard->primary == 2);
    }
    forget();
    world_destroy(world);
    world_store_fini(world_store);
}

TEST(what_waits_after_a_recovery_comes_back_with_its_data_or_is_given_up)
{
    check_that_the_second_returns(true);
    check_that_the_second_returns(false);
}

TEST(with_leases_a_recovery_after_which_nobody_would_serve_stops_the_manager_too)
{
    lose_single_replicas();
    struct world *world = recovering(SERVERS);
    for (uint32_t i = 0; i < kept[1]->shard_count; i++)
        kept[1]->shards[i].epoch = CLUSTER_MAX_EPOCH;
    kept[1]->term++;
    joins[0].stored_term++;
    join_all(world, SERVERS);
    assert_stopped(world, ROWAN_ETOOMANY, "has used up its");
}

TEST(what_cannot_be_recovered_stops_the_manager_with_a_sentence)
{
    enum { DAMAGED, FOREIGN, NOTHING, UNASKED, SMALL, CASES };
    static const struct {
        int error;
        const char *words;
    } expected[CASES] = {
        [DAMAGED] = {ROWAN_EDAMAGED, "server 2 holds data and no whole copy"},
        [FOREIGN] = {ROWAN_ECLUSTER, "data of two clusters"},
        [NOTHING] = {ROWAN_ENOTFOUND, "nothing to recover"},
        [UNASKED] = {ROWAN_EREFUSED, "server 3 belongs to the cluster and was not asked"},
        [SMALL] = {ROWAN_EREFUSED, "server 2 cannot be recovered"},
    };
    for (unsigned which = 0; which < CASES; which++) {
        lose(0);
        struct world *world = recovering(which == UNASKED ? 2 : SERVERS);
        if (which == DAMAGED)
            joins[1].stored_term = 0;
        if (which == FOREIGN)
            joins[1].data_cluster = kept[2]->cluster = 78;
        if (which == SMALL)
            joins[1].block_limit = 4096;
        for (uint32_t i = 0; which == NOTHING && i < SERVERS; i++)
            joins[i].data_cluster = joins[i].stored_term = 0;
        join_all(world, which == UNASKED ? 2 : SERVERS);
        assert_stopped(world, expected[which].error, expected[which].words);
        world_destroy(world);
        world_store_fini(world_store);
    }
}

TEST(a_configuration_that_makes_no_sense_is_not_taken)
{
    for (unsigned which = 0; which < 3; which++) {
        lose(0);
        struct world *world = recovering(SERVERS);
        if (which == 0)
            kept[2]->has_secret = false;
        else if (which == 1)
            kept[2]->cluster = 78; /* its data are not of that one */
        else
            kept[2]->term = UINT64_MAX;
        join_all(world, SERVERS);
        assert_false(world->storing || world->stopped);
        assert_true(world->connections[2].bring);
        world_destroy(world);
        forget();
        world_store_fini(world_store);
    }
}

TEST(a_configuration_that_is_still_stored_stops_the_manager)
{
    world_destroy(world_cluster(world_store, SERVERS));
    struct cm_state_options options = world_options(SERVERS, 3, 0);
    options.recover = true;
    struct world *world = world_create(world_store, &options);
    world_settle(world);
    assert_stopped(world, ROWAN_EEXISTS, "without --recover");
}

TEST(without_recover_servers_with_data_are_refused)
{
    lose(0);
    struct world *world =
        world_create(&lost_store, &(struct cm_state_options){.server_count = SERVERS,
                                                             .servers = {1, 2, 3},
                                                             .replicas = 3,
                                                             .incarnation = 7001,
                                                             .cluster = 999});
    world_elect(world);
    const struct cm_join join = join_of(1);
    world_join_once(world, 1, 5, &join);
    assert_failure(world_last(world, 1), ROWAN_EREFUSED, "rowan-cm --recover");
    forget();
}

UNIT_MAIN(NULL, NULL)
