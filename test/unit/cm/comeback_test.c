/* comeback_test.c - kept members that come back while others run. */
#define TEST_FIXTURE world_setup, world_teardown

#include "cm/fill.h"
#include "common/base/error.h"
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
    assert_true(row->epoch == 8 && row->primary == 3 && row->worker == 1);
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

UNIT_MAIN(NULL, NULL)
