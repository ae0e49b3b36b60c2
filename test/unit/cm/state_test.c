/* state_test.c - the configuration manager's decisions on who joins and who is told what. What may
 * never be sent is checked with every message by world.c. */
#define TEST_FIXTURE world_setup, world_teardown

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/world.h"

TEST(the_first_configuration_waits_for_every_server)
{
    struct world *world = world_empty(world_store, 3);
    for (uint32_t server = 3; server >= 1; server--) {
        assert_false(world->storing);
        struct cm_join join = world_join_of(server);
        world_join(world, server, 40 + server, &join);
        assert_configuration(world_last(world, server), 40 + server, 0, false);
        assert_int_equal(world_last(world, server)->waiting_count, server - 1);
        for (uint32_t i = 0; i < server - 1; i++)
            assert_int_equal(world_last(world, server)->waiting_for[i], i + 1);
    }
    assert_true(world->storing);
    assert_int_equal(world->expected_version, 0);
}

TEST(nothing_is_sent_before_it_is_stored)
{
    struct world *world = world_empty(world_store, 3);
    world_join_all(world, 3);
    world_get(world, 20, 7, 0);
    assert_configuration(world_last(world, 20), 7, 0, false);
    world_forget(world);
    assert_true(world->storing);
    assert_null(cm_state_config(world->state));

    world_answer_store(world, WORLD_OK);
    for (uint32_t server = 1; server <= 3; server++)
        assert_configuration(world_last(world, server), 0, 1, true);
    assert_configuration(world_last(world, 20), 0, 1, false);
    assert_int_equal(world->sent_count, 4);

    const struct cluster_config *config = cm_state_config(world->state);
    assert_int_equal(config->cluster, 77);
    assert_int_equal(config->replicas, 3);
    assert_int_equal(config->shard_count, 24);
    assert_int_equal(config->block_limit, 65536);
    assert_int_equal(config->secret[0], 0x5e);
    assert_int_equal(cluster_member(config, 2)->incarnation, 1002);
    assert_string_equal(cluster_member(config, 2)->address, "shm:/run/server-2");
}

TEST(the_block_limit_is_the_smallest_that_joined)
{
    struct world *world = world_empty(world_store, 3);
    for (uint32_t server = 1; server <= 3; server++) {
        struct cm_join join = world_join_of(server);
        join.block_limit = server == 2 ? 4096 : 65536;
        world_join(world, server, 1, &join);
    }
    world_settle(world);
    assert_int_equal(cm_state_config(world->state)->block_limit, 4096);
}

TEST(a_server_that_leaves_early_is_waited_for_again)
{
    struct world *world = world_empty(world_store, 2);
    struct cm_join one = world_join_of(1), two = world_join_of(2);
    world_join(world, 1, 1, &one);
    world_close(world, 1);
    world_join(world, 2, 1, &two);
    assert_false(world->storing);
    assert_int_equal(world_last(world, 2)->waiting_count, 1);
    assert_int_equal(world_last(world, 2)->waiting_for[0], 1);

    one.incarnation = 5555; /* its next process */
    world_join(world, 1, 1, &one);
    world_settle(world);
    assert_int_equal(cluster_member(cm_state_config(world->state), 1)->incarnation, 5555);
}

TEST(a_server_that_is_not_listed_is_refused)
{
    struct world *world = world_empty(world_store, 3);
    struct cm_join join = world_join_of(4);
    world_join(world, 1, 6, &join);
    assert_failure(world_last(world, 1), ROWAN_EREFUSED, "not in the list");
    assert_int_equal(world_last(world, 1)->tag, 6);
    world_destroy(world);

    world = world_cluster(world_store, 3);
    world_join(world, 10, 6, &join);
    assert_failure(world_last(world, 10), ROWAN_EREFUSED, "not among the servers");
}

TEST(a_server_that_reconnects_gets_the_configuration_again)
{
    struct world *world = world_cluster(world_store, 3);
    struct cm_join join = world_join_of(2);
    world_join(world, 30, 6, &join);
    assert_configuration(world_last(world, 30), 6, 1, true);
    world_close(world, 2);
    world_join(world, 30, 8, &join);
    assert_configuration(world_last(world, 30), 8, 1, true);
}

TEST(servers_of_another_fabric_or_durability_are_refused)
{
    struct world *world = world_empty(world_store, 3);
    struct cm_join join = world_join_of(1);
    world_join(world, 1, 1, &join);
    join = world_join_of(2);
    snprintf(join.fabric, sizeof join.fabric, "tcp");
    world_join(world, 2, 1, &join);
    assert_failure(world_last(world, 2), ROWAN_EREFUSED, "server 2 has fabric tcp and server 1");
    join = world_join_of(2);
    snprintf(join.durability, sizeof join.durability, "none");
    world_join(world, 2, 1, &join);
    assert_failure(world_last(world, 2), ROWAN_EREFUSED,
                   "server 2 has durability none and server 1");
}

TEST(a_second_process_with_a_taken_number_is_refused)
{
    struct world *world = world_empty(world_store, 2);
    struct cm_join join = world_join_of(1);
    world_join(world, 1, 1, &join);
    join.incarnation++;
    world_join(world, 2, 1, &join);
    assert_failure(world_last(world, 2), ROWAN_EAGAIN, "has this number");

    join = world_join_of(2);
    world_join(world, 1, 2, &join);
    assert_failure(world_last(world, 1), ROWAN_EINVALID, "another server");
    join = world_join_of(1);
    join.incarnation++; /* a connection does not outlive its process */
    world_join(world, 1, 3, &join);
    assert_failure(world_last(world, 1), ROWAN_EINVALID, "another server");
}

#define REFUSED(change)                                                                            \
    do {                                                                                           \
        struct cm_join join = world_join_of(1);                                                    \
        change;                                                                                    \
        world_forget(world);                                                                       \
        world_join(world, 1, 9, &join);                                                            \
        assert_failure(world_last(world, 1), ROWAN_EINVALID, "out of range");                      \
    } while (0)

TEST(reports_out_of_range_are_refused)
{
    struct world *world = world_empty(world_store, 3);
    REFUSED(join.server = 0);
    REFUSED(join.server = CLUSTER_MAX_SERVER + 1);
    REFUSED(join.incarnation = 0);
    REFUSED(join.workers = 0);
    REFUSED(join.workers = CLUSTER_MAX_WORKERS + 1);
    REFUSED(join.block_limit = 0);
    REFUSED(join.block_limit = 100);
    REFUSED(join.address[0] = '\0');
    REFUSED(memset(join.address, 'a', sizeof join.address));
    REFUSED(join.address[2] = '\n');
    REFUSED(join.fabric[0] = '\0');
    REFUSED(join.durability[0] = '\0');
}

TEST(only_a_newer_configuration_is_sent)
{
    struct world *world = world_cluster(world_store, 3);
    world_get(world, 10, 5, 0);
    assert_configuration(world_last(world, 10), 5, 1, false);
    assert_int_equal(world_last(world, 10)->waiting_count, 0);
    world_get(world, 10, 6, 1);
    assert_configuration(world_last(world, 10), 6, 0, false);
    world_get(world, 1, 7, 0); /* a server's connection */
    assert_configuration(world_last(world, 1), 7, 1, true);
}

#define REFUSED_OPTION(change)                                                                     \
    do {                                                                                           \
        struct cm_state_options options = world_options(3, 3, 0);                                  \
        struct cm_state *made = NULL;                                                              \
        change;                                                                                    \
        assert_int_equal(cm_state_create(&options, &made), ROWAN_EINVALID);                        \
        assert_null(made);                                                                         \
    } while (0)

TEST(options_out_of_range_are_refused)
{
    REFUSED_OPTION(options.server_count = 0);
    REFUSED_OPTION(options.server_count = CLUSTER_MAX_MEMBERS + 1);
    REFUSED_OPTION(options.servers[0] = 0);
    REFUSED_OPTION(options.servers[1] = 1);
    REFUSED_OPTION(options.servers[2] = CLUSTER_MAX_SERVER + 1);
    REFUSED_OPTION(options.replicas = 0);
    REFUSED_OPTION(options.replicas = 4);
    REFUSED_OPTION(options.shards = CLUSTER_MAX_SHARDS + 1);
    REFUSED_OPTION(options.cluster = 0);
    REFUSED_OPTION(options.incarnation = 0);
    REFUSED_OPTION(options.lease_ms = CLUSTER_MIN_LEASE_MS - 1);
    REFUSED_OPTION(options.lease_ms = CLUSTER_MAX_LEASE_MS + 1);
}

UNIT_MAIN(NULL, NULL)
