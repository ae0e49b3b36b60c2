/* failover_test.c - the configuration without members that fell silent. */
#include "cm/failover.h"
#include "cm/story.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

enum { MEMBERS = 4, SHARDS = 6 };

/* Primary, full backups, filling ones; 0: no more. */
struct row {
    uint32_t primary;
    uint32_t backups[3], filling[2];
};

static const struct row rows[SHARDS] = {
    {1, {2, 3}, {0}}, {1, {3, 2}, {4}}, {1, {2}, {3, 4}},
    {2, {1, 3}, {0}}, {3, {4}, {1}},    {4, {0}, {0}},
};

static struct cluster_config *make(const struct row *from)
{
    struct cluster_config *config = config_by_hand(MEMBERS, SHARDS, 3);
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &config->shards[i];
        shard->primary = from[i].primary;
        while (from[i].backups[shard->backup_count]) {
            shard->backups[shard->backup_count] = from[i].backups[shard->backup_count];
            shard->backup_count++;
        }
        while (shard->filling_count < 2 && from[i].filling[shard->filling_count]) {
            shard->filling[shard->filling_count] = from[i].filling[shard->filling_count];
            shard->filling_count++;
        }
    }
    assert_int_equal(cluster_finish(config), ROWAN_OK);
    return config;
}

static const bool none[MEMBERS];
static const struct cm_join *const no_reports[MEMBERS];

static struct cluster_config *after(const struct cluster_config *old, uint32_t one, uint32_t other)
{
    bool silent[MEMBERS] = {false};
    for (uint32_t i = 0; i < old->member_count; i++)
        silent[i] = old->members[i].server == one || old->members[i].server == other;
    struct cluster_config *config;
    char why[200];
    assert_int_equal(failover_make(old, silent, none, no_reports, &config, why, sizeof why),
                     ROWAN_OK);
    assert_int_equal(config->term, old->term + 1);
    return config;
}

static void assert_row(const struct cluster_config *config, uint16_t shard, struct row row,
                       uint32_t epoch)
{
    const struct shard *found = cluster_shard(config, shard);
    assert_int_equal(found->primary, row.primary);
    assert_int_equal(found->epoch, epoch);
    uint32_t backups = 0, filling = 0;
    while (row.backups[backups])
        backups++;
    while (filling < 2 && row.filling[filling])
        filling++;
    assert_int_equal(found->backup_count, backups);
    assert_int_equal(found->filling_count, filling);
    assert_memory_equal(found->backups, row.backups, backups * sizeof row.backups[0]);
    assert_memory_equal(found->filling, row.filling, filling * sizeof row.filling[0]);
}

TEST(full_backups_lead_the_shards_of_one_that_is_silent_and_those_that_lead_fewest_come_first)
{
    struct cluster_config *old = make(rows), *config = after(old, 1, 0);
    assert_int_equal(config->member_count, 3);
    assert_null(cluster_member(config, 1));
    assert_row(config, 0, (struct row){2, {3}, {0}}, 8); /* 2 and 3 lead one each */
    assert_row(config, 1, (struct row){3, {2}, {4}}, 8); /* now 2 leads two */
    assert_row(config, 2, (struct row){2, {0}, {3, 4}}, 8);
    assert_row(config, 3, (struct row){2, {3}, {0}}, 8);
    assert_row(config, 4, (struct row){3, {4}, {0}}, 8);
    assert_row(config, 5, rows[5], 7);
    assert_int_equal(cluster_shard(config, 0)->worker, 1); /* shard 3 is worker 0's */
    char story[200];
    assert_true(story_of_failover(old, config, story, sizeof story));
    assert_string_equal(story, "removed=1 kept=- promoted=3 unserved=0");
    assert_false(story_of_failover(old, old, story, sizeof story));
    cluster_release(config);
    cluster_release(old);
}

TEST(a_drained_backup_leads_only_what_no_other_one_can)
{
    struct cluster_config *old = make(rows);
    old->wanted_count = 3;
    old->wanted[0] = 1;
    old->wanted[1] = 3;
    old->wanted[2] = 4;
    struct cluster_config *config = after(old, 1, 0);
    assert_row(config, 0, (struct row){3, {2}, {0}}, 8);
    assert_row(config, 1, (struct row){3, {2}, {4}}, 8);
    assert_row(config, 2, (struct row){2, {0}, {3, 4}}, 8);
    cluster_release(config);
    cluster_release(old);
}

TEST(the_last_full_replicas_are_kept_for_their_shards_and_for_nothing_else)
{
    struct cluster_config *old = make(rows), *config = after(old, 1, 2);
    assert_int_equal(config->member_count, 4);
    assert_true(cluster_member(config, 1)->kept && cluster_member(config, 2)->kept);
    assert_false(cluster_member(config, 3)->kept || cluster_member(config, 4)->kept);
    assert_row(config, 0, (struct row){3, {0}, {0}}, 8);
    assert_row(config, 1, (struct row){3, {0}, {4}}, 8);
    assert_row(config, 2, rows[2], 7); /* the filling ones are never promoted */
    assert_row(config, 3, (struct row){3, {0}, {0}}, 8);
    assert_row(config, 4, (struct row){3, {4}, {0}}, 8);
    char story[200];
    story_of_failover(old, config, story, sizeof story);
    assert_string_equal(story, "removed=- kept=1,2 promoted=3 unserved=1");

    struct cluster_config *next = after(config, 4, 0);
    assert_row(next, 2, (struct row){1, {2}, {3}}, 8);
    assert_row(next, 5, rows[5], 7);
    assert_true(cluster_member(next, 1)->kept && cluster_member(next, 4)->kept);
    cluster_release(next);
    cluster_release(config);
    cluster_release(old);
}

/* 1 said goodbye shortly after another one did. */
TEST(who_may_be_stopping_with_all_others_is_waited_for_rather_than_replaced_by_a_single_one)
{
    const bool silent[MEMBERS] = {true, false, false, true}, waits[MEMBERS] = {true};
    struct cluster_config *old = make(rows), *config, *next;
    char why[200];
    assert_int_equal(failover_make(old, silent, waits, no_reports, &config, why, sizeof why),
                     ROWAN_OK);
    assert_true(cluster_member(config, 1)->kept && config->mixed);
    assert_row(config, 0, (struct row){2, {3}, {0}}, 8); /* two are left */
    assert_row(config, 2, (struct row){1, {2}, {3}}, 8); /* 2 alone: it serves nothing */
    assert_row(config, 3, (struct row){2, {3}, {0}}, 8);
    assert_row(config, 4, (struct row){3, {0}, {0}}, 8); /* 4 was silent, and 1 filled */

    /* A shard that waits loses nobody any more. */
    const bool both[MEMBERS] = {false, true, true, false};
    assert_int_equal(failover_make(config, both, none, no_reports, &next, why, sizeof why),
                     ROWAN_OK);
    assert_row(next, 2, (struct row){1, {2}, {0}}, 9);
    assert_true(cluster_member(next, 2)->kept && !next->mixed);
    cluster_release(next);
    cluster_release(config);
    cluster_release(old);
}

/* Of a power-off of all in turn the goodbye of 1, which leads, was lost. */
TEST(a_primary_that_is_silent_is_not_waited_for_with_those_that_said_goodbye)
{
    static const struct row same[SHARDS] = {
        {1, {2, 3}, {0}}, {1, {3, 2}, {0}}, {3, {1, 2}, {0}},
        {2, {1, 3}, {0}}, {4, {0}, {0}},    {4, {0}, {0}},
    };
    const bool silent[MEMBERS] = {true, true}, waits[MEMBERS] = {false, true};
    struct cluster_config *old = make(same), *config;
    char why[200];
    old->shards[0].worker = 1;
    assert_int_equal(failover_make(old, silent, waits, no_reports, &config, why, sizeof why),
                     ROWAN_OK);
    assert_null(cluster_member(config, 1));
    assert_true(cluster_member(config, 2)->kept);
    for (uint16_t i = 0; i < 4; i++) {
        assert_row(config, i, (struct row){2, {3}, {0}}, 8);
        assert_int_equal(cluster_shard(config, i)->worker, 0);
    }
    cluster_release(config);
    cluster_release(old);
}

/* 1 may have what 2 lacks: it may not be reconciled yet. */
TEST(a_shard_is_not_left_to_those_whose_data_are_in_doubt)
{
    const bool silent[MEMBERS] = {true};
    struct cm_join second = world_join_of(2);
    const struct cm_join *const reports[MEMBERS] = {NULL, &second};
    struct cluster_config *old = make(rows), *config;
    second.data_cluster = old->cluster;
    damage_add(&second.damage, 5,
               DAMAGE_NO_SLOT); /* of shard 2 it has all: that was served since */
    char why[200];
    assert_int_equal(failover_make(old, silent, none, reports, &config, why, sizeof why), ROWAN_OK);
    assert_row(config, 2, (struct row){2, {0}, {3, 4}}, 8);
    cluster_release(config);

    damage_add(&second.damage, 2, DAMAGE_NO_SLOT);
    assert_int_equal(failover_make(old, silent, none, reports, &config, why, sizeof why), ROWAN_OK);
    assert_row(config, 2, (struct row){1, {2}, {3, 4}}, 8);
    assert_row(config, 0, (struct row){2, {3}, {0}}, 8); /* 3 is whole */
    assert_true(cluster_member(config, 1)->kept && config->mixed);
    cluster_release(config);

    damage_add(&second.damage, 0, DAMAGE_NO_SLOT);
    assert_int_equal(failover_make(old, silent, none, reports, &config, why, sizeof why), ROWAN_OK);
    assert_row(config, 0, (struct row){3, {2}, {0}}, 8); /* so it leads */
    cluster_release(config);
    cluster_release(old);
}

/* It has all but an entry: nobody who has that will come, perhaps. */
TEST(one_that_found_an_entry_damaged_leads_where_no_other_is_left)
{
    const bool silent[MEMBERS] = {true};
    struct cm_join second = world_join_of(2);
    const struct cm_join *const reports[MEMBERS] = {NULL, &second};
    struct cluster_config *old = make(rows), *config;
    second.data_cluster = old->cluster;
    damage_found(&second.damage, 2);
    damage_found(&second.damage, 0);
    char why[200];
    assert_int_equal(failover_make(old, silent, none, reports, &config, why, sizeof why), ROWAN_OK);
    assert_row(config, 2, (struct row){2, {0}, {3, 4}}, 8);
    assert_row(config, 0, (struct row){3, {2}, {0}}, 8); /* 3 is sound */
    assert_false(config->mixed);
    cluster_release(config);
    cluster_release(old);
}

TEST(a_shard_without_an_epoch_left_is_said)
{
    struct cluster_config *old = make(rows), *config = NULL;
    const bool silent[MEMBERS] = {true};
    char why[200];
    old->shards[3].epoch = CLUSTER_MAX_EPOCH;
    assert_int_equal(failover_make(old, silent, none, no_reports, &config, why, sizeof why),
                     ROWAN_ETOOMANY);
    assert_non_null(strstr(why, "shard 3 has used up"));
    assert_null(config);
    cluster_release(old);
}

TEST(as_many_shards_as_a_cluster_has_are_told_of_one_by_one)
{
    struct damage damage = {0};
    for (uint16_t i = 0; i < 1000; i++)
        damage_add(&damage, i, DAMAGE_NO_SLOT);
    damage_found(&damage, 1000);
    assert_false(damage.all);
    assert_true(damage_was_found(&damage, 1000));
}

UNIT_MAIN(NULL, NULL)
