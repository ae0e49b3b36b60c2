/* cold_data_test.c - the configuration after a cold start: which replicas count by the data that their servers
 * bring, and who leads; once there were clients, and before. world.c checks each that is stored, too. */
#define TEST_FIXTURE world_setup, world_teardown

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/world.h"

enum { SERVERS = 3 };

/* A cluster that had clients. With two replicas every shard has a backup on the next server only. */
static struct world *world_with_clients(uint32_t replicas, uint32_t shards)
{
    struct cm_state_options options = world_options(SERVERS, replicas, shards);
    struct world *world = world_create(world_store, &options);
    world_elect(world);
    world_join_all(world, SERVERS);
    world_settle(world);
    world_format_all(world, SERVERS);
    world_have_clients(world);
    return world;
}

TEST(a_replica_that_comes_empty_or_in_doubt_does_not_count_beside_a_whole_one)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_have_clients(world);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    joins[0].data_cluster = 0;
    joins[1].possibly_incomplete = true;
    world_cold_start(world, SERVERS, joins);
    assert_int_equal(world_stored()->member_count, SERVERS);
    uint32_t of_worker[2] = {0};
    for (uint32_t i = 0; i < world_stored()->shard_count; i++) {
        const struct shard *shard = &world_stored()->shards[i];
        assert_int_equal(shard->primary, 3);
        assert_int_equal(shard->backup_count, 0);
        assert_in_range(shard->worker, 0, 1);
        of_worker[shard->worker]++;
        assert_false(shard->possibly_incomplete);
    }
    assert_int_equal(of_worker[0], of_worker[1]);
    assert_int_equal(world_warnings(world, "possible_loss"), 0);
    const char *dropped = world_warning(world, "replicas_dropped");
    assert_non_null(dropped);
    assert_non_null(strstr(
        dropped, ": server 1 of 24 shards, the first 0, server 2 of 24 shards, the first 0"));
    assert_int_equal(world_last(world, 1)->term, 3); /* a member without a replica */

    world_cold_start(
        world, SERVERS,
        world_rejoin_all(world, SERVERS, 2)); /* the others' data is of no use any more */
    assert_int_equal(world_stored()->shards[0].backup_count, 0);
    assert_int_equal(world_warnings(world, "replicas_dropped"), 1);
}

/* A replica may have been planned away in between, and then its server started again. */
TEST(replicas_are_not_called_lost_by_a_manager_that_has_not_read_every_change)
{
    struct world *world = world_cluster(world_store, SERVERS);
    for (uint32_t i = 0; i < 2; i++) {
        struct cluster_config *next = world_next(world);
        next->term += i;
        struct shard *shard = &next->shards[0];
        shard->epoch++;
        const uint32_t gone = shard->backups[--shard->backup_count];
        next->members[gone - 1].incarnation++;
        world_change(world, next);
        assert_int_equal(world_warnings(world, "replicas_dropped"), 1);
    }
}

/* What is damaged at server 1 says that it is of shard 3, and has keys of these slots. */
static uint32_t replicas_of_server_1(uint32_t from_first, uint16_t last, bool *of_shard_3)
{
    struct world *world = world_cluster(world_store, SERVERS);
    world_have_clients(world);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    const uint16_t first = world_stored()->shards[3].first_slot;
    damage_add(&joins[0].damage, world_stored()->shards[3].id, (uint16_t)(first + from_first));
    if (last != DAMAGE_NO_SLOT)
        damage_add(&joins[0].damage, world_stored()->shards[3].id, last);
    world_cold_start(world, SERVERS, joins);
    uint32_t count = 0;
    for (uint32_t i = 0; i < world_stored()->shard_count; i++) {
        const struct shard *shard = &world_stored()->shards[i];
        const bool holds = shard->primary == 1 || shard_has_backup(shard, 1);
        assert_false(shard->possibly_incomplete);
        assert_int_equal(shard->backup_count + 1, holds ? 3 : 2);
        if (i == 3)
            *of_shard_3 = holds;
        count += holds;
    }
    return count;
}

TEST(a_damaged_replica_does_not_count_beside_a_whole_one)
{
    bool of_shard_3;
    assert_int_equal(replicas_of_server_1(7, DAMAGE_NO_SLOT, &of_shard_3), 23);
    assert_false(of_shard_3);
}

TEST(damage_that_may_be_of_any_shard_concerns_all)
{
    bool of_shard_3;
    assert_int_equal(replicas_of_server_1(0, 0, &of_shard_3), 0);
}

TEST(a_replica_that_was_filling_is_none_after_a_cold_start)
{
    struct world *world = world_with_clients(2, 6);
    struct cluster_config *next = world_next(world);
    assert_int_equal(next->shards[0].backups[0], 2);
    next->shards[0].filling[next->shards[0].filling_count++] = 3;
    world_change(world, next);
    world_cold_start(world, SERVERS, world_rejoin_all(world, SERVERS, 1));
    assert_int_equal(world_store->cold_starts, 1);
    assert_int_equal(world_stored()->shards[0].filling_count,
                     0); /* and world.c saw who is a replica */
}

TEST(a_shard_of_incomplete_replicas_only_is_started_and_marked_for_good)
{
    struct world *world = world_with_clients(2, 6);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    joins[0].possibly_incomplete = joins[1].possibly_incomplete = true;
    world_cold_start(world, SERVERS, joins);
    uint32_t marked = 0, first = UINT32_MAX;
    for (uint32_t i = 0; i < world_stored()->shard_count; i++) {
        const struct shard *shard = &world_stored()->shards[i];
        bool has_third = shard->primary == 3 || shard_has_backup(shard, 3);
        assert_int_equal(shard->possibly_incomplete, !has_third);
        assert_int_equal(shard->backup_count, has_third ? 0 : 1);
        marked += shard->possibly_incomplete;
        if (shard->possibly_incomplete && first == UINT32_MAX)
            first = shard->id;
    }
    assert_int_equal(marked, 2);
    assert_int_equal(world_warnings(world, "possible_loss"), 1);
    char words[64];
    snprintf(words, sizeof words, "possible loss: %u shards, the first of them %u", marked, first);
    assert_non_null(strstr(world_warning(world, "possible_loss"), words));

    world_cold_start(world, SERVERS, world_rejoin_all(world, SERVERS, 2));
    uint32_t still = 0;
    for (uint32_t i = 0; i < world_stored()->shard_count; i++)
        still += world_stored()->shards[i].possibly_incomplete;
    assert_int_equal(still, marked);
    assert_int_equal(world_warnings(world, "possible_loss"), 1);
}

TEST(leadership_moves_to_the_replica_that_leads_fewest)
{
    struct world *world = world_with_clients(3, 12);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    joins[2].data_cluster = 0;
    joins[0].workers = 3;
    world_cold_start(world, SERVERS, joins);
    uint32_t led[SERVERS + 1] = {0}, of_worker[3] = {0};
    for (uint32_t i = 0; i < world_stored()->shard_count; i++) {
        led[world_stored()->shards[i].primary]++;
        if (world_stored()->shards[i].primary == 1)
            of_worker[world_stored()->shards[i].worker]++;
    }
    assert_int_equal(led[1], 6);
    assert_int_equal(led[2], 6);
    for (int i = 0; i < 3; i++)
        assert_int_equal(of_worker[i], 2);
}

TEST(a_shard_that_nobody_brings_stops_the_manager)
{
    struct world *world = world_with_clients(2, 6);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    joins[1].data_cluster = joins[2].data_cluster = 0;
    world_restart_all(world, SERVERS, joins);
    assert_true(world->stopped);
    assert_int_equal(world->stop_error, ROWAN_ENOTFOUND);
    assert_non_null(strstr(world->stop_detail, "shard 1 is nowhere"));
    assert_non_null(strstr(world->stop_detail, "(server 2, 3)"));
    assert_int_equal(world_store->version, 2); /* nothing was decided */
}

TEST(a_shard_without_epochs_left_stops_the_manager)
{
    struct world *world = world_cluster(world_store, SERVERS);
    struct cluster_config *last = world_next(world);
    last->shards[5].epoch = CLUSTER_MAX_EPOCH;
    world_change(world, last);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    world_restart_all(world, SERVERS, joins);
    assert_true(world->stopped);
    assert_int_equal(world->stop_error, ROWAN_ETOOMANY);
    assert_non_null(strstr(world->stop_detail, "shard 5 has used up"));
}

/* --- before there was a client --- */

/* Every shard has all its replicas, none is in doubt, and ids still start at the first. */
static void assert_nothing_was_lost(uint64_t term)
{
    assert_int_equal(world_stored()->term, term);
    assert_true(cluster_is_unwritten(world_stored()));
    for (uint32_t i = 0; i < world_stored()->shard_count; i++) {
        assert_int_equal(world_stored()->shards[i].backup_count, SERVERS - 1);
        assert_int_equal(world_stored()->shards[i].epoch, term);
        assert_false(world_stored()->shards[i].possibly_incomplete);
    }
}

TEST(a_cluster_that_ended_before_it_was_formatted_is_started_with_all_replicas)
{
    struct world *world = world_empty(world_store, SERVERS);
    world_join_all(world, SERVERS);
    world_settle(world);
    for (uint32_t formatted = 0; formatted <= SERVERS; formatted++) {
        struct cm_join *joins = world_rejoin_all(world, SERVERS, 1 + formatted);
        for (uint32_t i = formatted; i < SERVERS; i++)
            joins[i].data_cluster = 0;
        world_cold_start(world, SERVERS, joins);
        assert_false(world->stopped);
        assert_nothing_was_lost(2 + formatted);
    }
    assert_int_equal(world_store->cold_starts, SERVERS + 1);
}

TEST(nothing_is_in_doubt_and_no_lost_pm_counts_before_there_was_a_client)
{
    struct world *world = world_cluster(world_store, SERVERS);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    joins[0].data_cluster = 0; /* it was formatted, and is lost */
    joins[1].possibly_incomplete = true;
    world_cold_start(world, SERVERS, joins);
    assert_nothing_was_lost(2);
    assert_int_equal(world->warning_count, 0);
}

/* A client that waits while the cluster starts gets its id when the last server has formatted its PM. */
TEST(the_first_client_waits_until_every_server_is_formatted)
{
    struct world *world = world_empty(world_store, SERVERS);
    world_new_id(world, 20, 9);
    world_join_all(world, SERVERS);
    world_settle(world);
    assert_null(world_last(world, 20));
    for (uint32_t server = 1; server <= SERVERS; server++) {
        assert_false(world->storing);
        assert_null(world_last(world, 20));
        struct cm_join join = world_join_of(server);
        join.data_cluster = 77; /* it has a superblock, but does not say that it is fenced */
        world_join(world, server, 7, &join);
        assert_false(world->storing);
        join.formatted = true;
        world_join(world, server, 8, &join);
    }
    assert_true(world->storing);
    world_settle(world);
    assert_int_equal(world_last(world, 20)->client_id, 1);
    assert_false(cluster_is_unwritten(world_stored()));

    /* From here on who comes empty has lost its data. */
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    for (uint32_t i = 0; i < SERVERS; i++)
        joins[i].data_cluster = 0;
    world_restart_all(world, SERVERS, joins);
    assert_int_equal(world->stop_error, ROWAN_ENOTFOUND);
}

TEST(who_keeps_the_first_client_waiting_is_named_once)
{
    struct world *world = world_empty(world_store, SERVERS);
    world_join_all(world, SERVERS);
    world_settle(world);
    struct cm_join join = world_join_of(2);
    join.formatted = true;
    world_join(world, 2, 7, &join);
    for (uint32_t connection = 20; connection <= 21; connection++)
        world_new_id(world, connection, 9);
    assert_int_equal(world->warning_count, 0); /* it is early yet */
    for (uint32_t tag = 10; tag < 14; tag++) {
        world_new_id(world, 20 + tag % 2, tag);
        assert_failure(world_last(world, 20 + tag % 2), ROWAN_EAGAIN, "not yet: server 1, 3");
        assert_int_equal(world_last(world, 20 + tag % 2)->tag, tag);
        assert_int_equal(world_warnings(world, "first_id_waits"), 1);
    }
    assert_non_null(strstr(world_warning(world, "first_id_waits"), "not yet: server 1, 3"));
}

/* The processes of before had formatted their PM; these bring nothing. */
TEST(the_first_client_waits_for_the_processes_in_force)
{
    struct world *world = world_cluster(world_store, SERVERS);
    struct cm_join *joins = world_rejoin_all(world, SERVERS, 1);
    joins[1].data_cluster = 0;
    world_cold_start(world, SERVERS, joins);
    assert_nothing_was_lost(2);
    world_new_id(world, 20, 9);
    assert_false(world->storing);
    world_close(world, 2); /* what it says is remembered, wherever it says it */
    joins[1].data_cluster = 77;
    for (uint32_t server = 1; server <= SERVERS; server++) {
        assert_false(world->storing);
        joins[server - 1].formatted = true;
        world_join(world, server == 2 ? 30 : server, 7, &joins[server - 1]);
    }
    world_join(world, 30, 7, &joins[1]);
    assert_true(world->storing);
    world_settle(world);
    assert_int_equal(world_last(world, 20)->client_id, 1);
}

UNIT_MAIN(NULL, NULL)
