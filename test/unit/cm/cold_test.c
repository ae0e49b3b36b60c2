/* cold_test.c - the configuration manager when servers come back: who waits, who is refused, and
 * the configuration after all of them were started again. That a cold start replaces nobody who
 * runs, raises every epoch and counts the right replicas is checked by world.c whenever one is
 * stored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/error.h"
#include "test/unit/cm/world.h"

enum { SERVERS = 3 };

static struct world_store *store;

static int make_store(void **state)
{
    (void)state;
    store = malloc(sizeof *store);
    world_store_init(store);
    return store ? 0 : -1;
}

static int drop_store(void **state)
{
    (void)state;
    world_store_fini(store);
    free(store);
    return 0;
}

/* The reports of all servers after a restart, with whole data. */
static void rejoin_all(const struct world *world, uint32_t round, struct cm_join *joins)
{
    for (uint32_t i = 0; i < SERVERS; i++)
        joins[i] = world_rejoin_of(world, i + 1, round);
}

static const struct cluster_config *stored(void)
{
    return store->history[store->version];
}

/* Stores a configuration in which every shard has a backup on the next server only. It had clients. */
static struct world *world_of_two_replicas(void)
{
    struct cm_state_options options = world_options(SERVERS, 2, 6);
    struct world *world = world_create(store, &options);
    world_settle(world);
    world_lead(world, true);
    world_settle(world);
    world_join_all(world, SERVERS);
    world_settle(world);
    world_format_all(world, SERVERS);
    world_have_clients(world);
    return world;
}

static void servers_that_return_wait_for_all_of_them(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    for (uint32_t server = 1; server <= SERVERS; server++)
        world_close(world, server);
    for (uint32_t server = 1; server <= SERVERS; server++) {
        assert_false(world->storing);
        struct cm_join join = world_rejoin_of(world, server, 1);
        world_open(world, server);
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
    assert_int_equal(store->cold_starts, 1);
    assert_int_equal(world->warning_count, 0);
    for (uint32_t i = 0; i < stored()->shard_count; i++) {
        assert_int_equal(stored()->shards[i].epoch, 2);
        assert_int_equal(stored()->shards[i].backup_count, 2);
    }
    world_destroy(world);
}

static void whoever_asks_meanwhile_is_told_what_is_missing(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    world_open(world, 20);
    for (uint32_t server = 1; server <= SERVERS; server++)
        world_close(world, server);
    world_get(world, 20, 5, 0); /* nobody came back yet: it may be the manager that restarted */
    assert_configuration(world_last(world, 20), 5, 1, false);
    assert_int_equal(world_last(world, 20)->waiting_count, 0);

    struct cm_join join = world_rejoin_of(world, 2, 1);
    world_open(world, 2);
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
    world_destroy(world);
}

static void a_server_that_leaves_while_it_waits_is_waited_for_again(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    for (uint32_t server = 1; server <= SERVERS; server++)
        world_close(world, server);
    for (uint32_t server = 1; server <= 2; server++) {
        world_open(world, server);
        world_join(world, server, 40, &joins[server - 1]);
    }
    world_close(world, 1);
    world_open(world, 3);
    world_join(world, 3, 40, &joins[2]);
    assert_false(world->storing);
    assert_int_equal(world_last(world, 3)->waiting_count, 1);
    world_open(world, 1);
    struct cm_join next = world_rejoin_of(world, 1, 2);
    world_join(world, 1, 41, &next);
    world_settle(world);
    assert_int_equal(cluster_member(stored(), 1)->incarnation, next.incarnation);
    world_destroy(world);
}

static void a_server_that_waits_may_say_so_again_and_again(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    for (uint32_t server = 1; server <= SERVERS; server++)
        world_close(world, server);
    struct cm_join join = world_rejoin_of(world, 2, 1);
    world_open(world, 2);
    for (uint32_t i = 0; i < 2 * CLUSTER_MAX_MEMBERS; i++) {
        world_join(world, 2, i, &join);
        assert_configuration(world_last(world, 2), i, 0, false);
        assert_int_equal(world_last(world, 2)->waiting_count, 2);
    }
    world_close(world, 2);
    world_open(world, 2);
    world_get(world, 2, 5, 0);
    assert_int_equal(world_last(world, 2)->waiting_count, 0); /* nobody waits any more */
    world_destroy(world);
}

static void a_server_cannot_return_while_another_kept_running(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    struct cm_join join = world_rejoin_of(world, 2, 1);
    world_close(world, 2);
    world_open(world, 2);
    world_join(world, 2, 6, &join);
    assert_failure(world_last(world, 2), ROWAN_EAGAIN, "stop all servers and start them again");
    assert_int_equal(world_last(world, 2)->tag, 6);
    assert_int_equal(world->sent_count, 1);
    world_destroy(world);
}

static void those_that_wait_are_refused_when_one_that_kept_running_comes(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    world_destroy(world);
    world = world_empty(store, SERVERS); /* the manager restarted as well */
    struct cm_join join = world_rejoin_of(world, 2, 1);
    world_open(world, 2);
    world_join(world, 2, 6, &join);
    assert_configuration(world_last(world, 2), 6, 0, false);

    struct cm_join kept = world_join_of(1);
    world_open(world, 1);
    world_join(world, 1, 7, &kept);
    assert_configuration(world_last(world, 1), 7, 1, true);
    assert_failure(world_last(world, 2), ROWAN_EAGAIN, "keep running");
    assert_int_equal(world_last(world, 2)->tag, 6);
    world_get(world, 1, 8, 1);
    assert_int_equal(world_last(world, 1)->waiting_count, 0);
    world_destroy(world);
}

static void a_manager_that_restarts_alone_gets_its_servers_back(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    world_destroy(world);
    world = world_empty(store, SERVERS);
    for (uint32_t server = 1; server <= SERVERS; server++) {
        struct cm_join join = world_join_of(server);
        join.data_cluster = 77; /* which it holds by now */
        world_open(world, server);
        world_join(world, server, 6, &join);
        assert_configuration(world_last(world, server), 6, 1, true);
    }
    assert_int_equal(store->version, 1);
    assert_int_equal(store->cold_starts, 0);
    world_destroy(world);
}

static void a_member_that_comes_while_its_successor_is_being_stored_is_replaced(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    world_restart_all(world, SERVERS, joins);
    assert_true(world->storing);
    struct cm_join old = world_join_of(1);
    world_open(world, 10);
    world_join(world, 10, 6, &old);
    assert_configuration(world_last(world, 10), 6, 1, true); /* still in force */
    world_forget(world);
    world_settle(world);
    assert_failure(world_last(world, 10), ROWAN_EREFUSED, "another process");
    for (uint32_t server = 1; server <= SERVERS; server++)
        assert_configuration(world_last(world, server), 0, 2, true);
    world_destroy(world);
}

static void a_lost_answer_to_a_cold_start_is_read_again(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    world_have_clients(world);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    world_restart_all(world, SERVERS, joins);
    world_answer_store(world, WORLD_UNKNOWN_LOST);
    world_settle(world); /* reads, and proposes it again */
    assert_int_equal(store->version, 3);

    rejoin_all(world, 2, joins);
    world_restart_all(world, SERVERS, joins);
    world_answer_store(world, WORLD_UNKNOWN_WON);
    world_forget(world);
    world_settle(world);
    assert_int_equal(store->version, 4);
    for (uint32_t server = 1; server <= SERVERS; server++)
        assert_configuration(world_last(world, server), 0, 4, true);
    world_open(world, 20); /* the block that it reserved is not ours (S3), the one before it is */
    world_new_id(world, 20, 9);
    assert_int_equal(world_last(world, 20)->client_id, 1 + CM_CLIENT_ID_BLOCK);
    world_destroy(world);
}

static void a_cold_start_reserves_client_ids_and_gives_none_twice(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    world_open(world, 20);
    world_new_id(world, 20, 9);
    world_settle(world);
    uint32_t before = world_last(world, 20)->client_id;
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    world_restart_all(world, SERVERS, joins);
    world_settle(world);
    world_new_id(world, 20, 10);
    assert_false(world->storing);
    assert_int_equal(world_last(world, 20)->client_id, before + CM_CLIENT_ID_BLOCK);
    world_destroy(world);
}

static void a_replica_that_comes_empty_or_in_doubt_does_not_count_beside_a_whole_one(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    world_have_clients(world);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    joins[0].data_cluster = 0;
    joins[1].doubtful = true;
    world_restart_all(world, SERVERS, joins);
    world_settle(world);
    assert_int_equal(stored()->member_count, SERVERS);
    for (uint32_t i = 0; i < stored()->shard_count; i++) {
        const struct shard *shard = &stored()->shards[i];
        assert_int_equal(shard->primary, 3);
        assert_int_equal(shard->backup_count, 0);
        assert_int_equal(shard->worker, i % 2); /* of two */
        assert_false(shard->doubtful);
    }
    assert_int_equal(world->warning_count, 0);
    assert_int_equal(world_last(world, 1)->term, 3); /* a member without a replica */

    rejoin_all(world, 2, joins); /* the others' data is of no use any more */
    world_restart_all(world, SERVERS, joins);
    world_settle(world);
    assert_int_equal(stored()->shards[0].backup_count, 0);
    world_destroy(world);
}

static void a_replica_that_was_filling_is_none_after_a_cold_start(void **state)
{
    (void)state;
    struct world *world = world_of_two_replicas();
    struct cluster_config *next = cluster_copy(cm_state_config(world->state));
    next->term++;
    next->next_client_id += CM_CLIENT_ID_BLOCK;
    assert_int_equal(next->shards[0].backups[0], 2);
    next->shards[0].filling[next->shards[0].filling_count++] = 3;
    store->history[++store->version] = next;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(world);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    world_restart_all(world, SERVERS, joins);
    world_settle(world);
    assert_int_equal(store->cold_starts, 1);
    assert_int_equal(stored()->shards[0].filling_count, 0); /* and world.c saw who is a replica */
    world_destroy(world);
}

static void a_shard_of_doubtful_replicas_only_is_started_and_marked_for_good(void **state)
{
    (void)state;
    struct world *world = world_of_two_replicas();
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    joins[0].doubtful = joins[1].doubtful = true;
    world_restart_all(world, SERVERS, joins);
    world_settle(world);
    uint32_t marked = 0, first = UINT32_MAX;
    for (uint32_t i = 0; i < stored()->shard_count; i++) {
        const struct shard *shard = &stored()->shards[i];
        bool has_third = shard->primary == 3 || shard_has_backup(shard, 3);
        assert_int_equal(shard->doubtful, !has_third);
        assert_int_equal(shard->backup_count, has_third ? 0 : 1);
        marked += shard->doubtful;
        if (shard->doubtful && first == UINT32_MAX)
            first = shard->id;
    }
    assert_int_equal(marked, 2);
    assert_int_equal(world->warning_count, 1);
    char words[64];
    snprintf(words, sizeof words, "possible loss: %u shards, the first of them %u", marked, first);
    assert_non_null(strstr(world->warning, words));

    rejoin_all(world, 2, joins);
    world_restart_all(world, SERVERS, joins);
    world_settle(world);
    uint32_t still = 0;
    for (uint32_t i = 0; i < stored()->shard_count; i++)
        still += stored()->shards[i].doubtful;
    assert_int_equal(still, marked);
    assert_int_equal(world->warning_count, 1);
    world_destroy(world);
}

static void leadership_moves_to_the_replica_that_leads_fewest(void **state)
{
    (void)state;
    struct cm_state_options options = world_options(SERVERS, 3, 12);
    struct world *world = world_create(store, &options);
    world_settle(world);
    world_lead(world, true);
    world_settle(world);
    world_join_all(world, SERVERS);
    world_settle(world);
    world_format_all(world, SERVERS);
    world_have_clients(world);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    joins[2].data_cluster = 0;
    joins[0].workers = 3;
    world_restart_all(world, SERVERS, joins);
    world_settle(world);
    uint32_t led[SERVERS + 1] = {0}, of_worker[3] = {0};
    for (uint32_t i = 0; i < stored()->shard_count; i++) {
        led[stored()->shards[i].primary]++;
        if (stored()->shards[i].primary == 1)
            of_worker[stored()->shards[i].worker]++;
    }
    assert_int_equal(led[1], 6);
    assert_int_equal(led[2], 6);
    for (int i = 0; i < 3; i++)
        assert_int_equal(of_worker[i], 2);
    world_destroy(world);
}

static void a_shard_that_nobody_brings_stops_the_manager(void **state)
{
    (void)state;
    struct world *world = world_of_two_replicas();
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    joins[1].data_cluster = joins[2].data_cluster = 0;
    world_restart_all(world, SERVERS, joins);
    assert_true(world->stopped);
    assert_int_equal(world->stop_error, ROWAN_ENOTFOUND);
    assert_non_null(strstr(world->stop_detail, "shard 1 is nowhere"));
    assert_non_null(strstr(world->stop_detail, "(server 2, 3)"));
    assert_int_equal(store->version, 2); /* nothing was decided */
    world_destroy(world);
}

static void a_shard_without_epochs_left_stops_the_manager(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    struct cluster_config *last = cluster_copy(cm_state_config(world->state));
    last->term++;
    last->next_client_id += CM_CLIENT_ID_BLOCK;
    last->shards[5].epoch = CLUSTER_MAX_EPOCH;
    store->history[++store->version] = last;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(world);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    world_restart_all(world, SERVERS, joins);
    assert_true(world->stopped);
    assert_int_equal(world->stop_error, ROWAN_ETOOMANY);
    assert_non_null(strstr(world->stop_detail, "shard 5 has used up"));
    world_destroy(world);
}

static void data_of_another_cluster_is_refused_with_both_names(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    for (uint32_t server = 1; server <= SERVERS; server++)
        world_close(world, server);
    struct cm_join join = world_rejoin_of(world, 2, 1);
    join.data_cluster = 0xabcdef;
    world_open(world, 2);
    world_join(world, 2, 6, &join);
    assert_failure(world_last(world, 2), ROWAN_EREFUSED,
                   "server 2 holds data of cluster "
                   "0000000000abcdef, and this is cluster "
                   "000000000000004d");
    world_destroy(world);
}

static void data_without_a_cluster_is_refused(void **state)
{
    (void)state;
    struct world *world = world_empty(store, SERVERS);
    struct cm_join join = world_join_of(2);
    join.data_cluster = 0xabcdef;
    world_open(world, 2);
    world_join(world, 2, 6, &join);
    assert_failure(world_last(world, 2), ROWAN_EREFUSED, "knows no cluster");
    assert_failure(world_last(world, 2), ROWAN_EREFUSED, "cluster 0000000000abcdef");
    world_destroy(world);
}

static void a_fabric_with_smaller_blocks_is_refused(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    joins[0].block_limit *= 2; /* changes nothing */
    joins[2].block_limit /= 2;
    world_restart_all(world, SERVERS, joins);
    assert_false(world->storing);
    assert_failure(world_last(world, 3), ROWAN_EREFUSED, "smaller blocks");
    joins[2].block_limit *= 2;
    world_join(world, 3, 7, &joins[2]);
    world_settle(world);
    assert_int_equal(stored()->block_limit, 65536);
    assert_int_equal(store->cold_starts, 1);
    world_destroy(world);
}

static void one_that_waits_is_refused_when_a_cluster_appears_that_it_does_not_fit(void **state)
{
    (void)state;
    struct world *follower = world_empty(store, SERVERS);
    struct cm_join join = world_join_of(1);
    join.incarnation = 5;
    join.block_limit /= 2;
    world_open(follower, 1);
    world_join(follower, 1, 6, &join);
    struct world *leader = world_cluster(store, SERVERS);
    world_step(follower, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(follower);
    assert_failure(world_last(follower, 1), ROWAN_EREFUSED, "smaller blocks");
    world_destroy(leader);
    world_destroy(follower);
}

static void servers_that_return_must_fit_each_other(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    snprintf(joins[1].durability, sizeof joins[1].durability, "none");
    world_restart_all(world, SERVERS, joins);
    assert_failure(world_last(world, 2), ROWAN_EREFUSED, "server 2 has durability none");
    world_destroy(world);
}

static void two_processes_with_one_number_do_not_both_wait(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    for (uint32_t server = 1; server <= SERVERS; server++)
        world_close(world, server);
    for (uint32_t round = 1; round <= 2; round++) {
        struct cm_join join = world_rejoin_of(world, 2, round);
        world_open(world, 10 + round);
        world_join(world, 10 + round, 6, &join);
    }
    assert_configuration(world_last(world, 11), 6, 0, false);
    assert_failure(world_last(world, 12), ROWAN_EAGAIN, "has this number");

    world_close(world, 11); /* the first had ended */
    struct cm_join join = world_rejoin_of(world, 2, 2);
    world_join(world, 12, 7, &join);
    assert_configuration(world_last(world, 12), 7, 0, false);
    world_destroy(world);
}

/* What its old connection still brings is read after the report by its new one; then the old one ends. */
static void a_server_whose_place_went_with_its_old_connection_may_report_again(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    struct cm_join join = world_rejoin_of(world, 2, 1);
    for (uint32_t server = 1; server <= SERVERS; server++)
        world_close(world, server);
    world_open(world, 2);
    world_open(world, 12);
    world_join(world, 2, 6, &join);
    world_join(world, 12, 7, &join);
    world_join(world, 2, 6, &join);
    world_close(world, 2);
    struct cluster_config *next = cluster_copy(cm_state_config(world->state));
    next->term++;
    next->next_client_id += CM_CLIENT_ID_BLOCK;
    store->history[++store->version] = next;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(world);
    assert_configuration(world_last(world, 12), 7, 0, false); /* not refused */
    world_join(world, 12, 8, &join);
    assert_configuration(world_last(world, 12), 8, 0, false);
    assert_int_equal(world_last(world, 12)->waiting_count, SERVERS - 1);
    world_destroy(world);
}

static void a_change_by_another_manager_keeps_those_that_wait(void **state)
{
    (void)state;
    struct world *world = world_cluster(store, SERVERS);
    struct cm_join joins[SERVERS];
    rejoin_all(world, 1, joins);
    for (uint32_t server = 1; server <= SERVERS; server++)
        world_close(world, server);
    world_open(world, 1);
    world_join(world, 1, 6, &joins[0]);
    struct cluster_config *next = cluster_copy(cm_state_config(world->state));
    next->term++;
    next->next_client_id += CM_CLIENT_ID_BLOCK;
    store->history[++store->version] = next;
    world_step(world, &(struct cm_event){.kind = CM_EVENT_CHANGED});
    world_settle(world);
    assert_configuration(world_last(world, 1), 6, 0, false); /* nothing since */
    for (uint32_t server = 2; server <= SERVERS; server++) {
        world_open(world, server);
        world_join(world, server, 7, &joins[server - 1]);
    }
    world_settle(world);
    assert_int_equal(store->version, 3);
    assert_int_equal(store->cold_starts, 1);
    assert_configuration(world_last(world, 1), 0, 3, true);
    world_destroy(world);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_store, drop_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(servers_that_return_wait_for_all_of_them),
        TEST(whoever_asks_meanwhile_is_told_what_is_missing),
        TEST(a_server_that_leaves_while_it_waits_is_waited_for_again),
        TEST(a_server_that_waits_may_say_so_again_and_again),
        TEST(a_server_cannot_return_while_another_kept_running),
        TEST(those_that_wait_are_refused_when_one_that_kept_running_comes),
        TEST(a_manager_that_restarts_alone_gets_its_servers_back),
        TEST(a_member_that_comes_while_its_successor_is_being_stored_is_replaced),
        TEST(a_lost_answer_to_a_cold_start_is_read_again),
        TEST(a_cold_start_reserves_client_ids_and_gives_none_twice),
        TEST(a_replica_that_comes_empty_or_in_doubt_does_not_count_beside_a_whole_one),
        TEST(a_replica_that_was_filling_is_none_after_a_cold_start),
        TEST(a_shard_of_doubtful_replicas_only_is_started_and_marked_for_good),
        TEST(leadership_moves_to_the_replica_that_leads_fewest),
        TEST(a_shard_that_nobody_brings_stops_the_manager),
        TEST(a_shard_without_epochs_left_stops_the_manager),
        TEST(data_of_another_cluster_is_refused_with_both_names),
        TEST(data_without_a_cluster_is_refused),
        TEST(a_fabric_with_smaller_blocks_is_refused),
        TEST(one_that_waits_is_refused_when_a_cluster_appears_that_it_does_not_fit),
        TEST(servers_that_return_must_fit_each_other),
        TEST(two_processes_with_one_number_do_not_both_wait),
        TEST(a_server_whose_place_went_with_its_old_connection_may_report_again),
        TEST(a_change_by_another_manager_keeps_those_that_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
