/* fill_test.c - which replicas fill, and which leave. */
#include "cm/fill.h"
#include "cm/story.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

/* --- the configuration --- */

enum { SHARDS = 4 };

/* Servers 1 to 3, shards as in `rows`: primary, a full backup, one that fills; 0: none. */
static struct cluster_config *make(const uint32_t rows[SHARDS][3])
{
    struct cluster_config *config = config_by_hand(3, SHARDS, 2);
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &config->shards[i];
        shard->primary = rows[i][0];
        if (rows[i][1])
            shard->backups[shard->backup_count++] = rows[i][1];
        if (rows[i][2])
            shard->filling[shard->filling_count++] = rows[i][2];
    }
    assert_int_equal(cluster_finish(config), ROWAN_OK);
    return config;
}

/* NULL: nothing changes. Servers with their bits set join. Ends `old`. */
static struct leases leases; /* of the test */

static struct cluster_config *after(struct cluster_config *old, uint32_t joining,
                                    const uint8_t filled[SHARDS])
{
    struct cm_join joins[8];
    struct fill_from from = {.old = old, .filled = filled, .leases = &leases};
    for (uint32_t server = 1; server < 8; server++) {
        joins[server] = world_join_of(server);
        if (joining & 1u << server)
            from.joins[from.join_count++] = &joins[server];
    }
    struct cluster_config *config;
    config = fill_make(&from);
    assert_true(!config || config->term == old->term + 1);
    cluster_release(old);
    return config;
}

static void assert_row(const struct cluster_config *config, uint16_t shard, uint32_t epoch,
                       uint32_t backup, uint32_t filling)
{
    const struct shard *row = cluster_shard(config, shard);
    assert_int_equal(row->epoch, epoch);
    assert_int_equal(row->backup_count, backup != 0);
    assert_int_equal(row->backups[0], backup);
    assert_int_equal(row->filling_count, filling != 0);
    assert_int_equal(row->filling[0], filling);
}

static const uint8_t none[SHARDS] = {0};

TEST(members_that_are_replicas_of_fewest_shards_fill_what_lacks_some)
{
    struct cluster_config *config = after(
        make((const uint32_t[][3]){{1, 2, 0}, {1, 0, 0}, {2, 0, 0}, {1, 0, 0}}), 1u << 4, none);
    assert_int_equal(config->member_count, 4);
    assert_string_equal(cluster_member(config, 4)->address, "shm:/run/server-4");
    assert_row(config, 0, 7, 2, 0);
    assert_row(config, 1, 8, 0, 3); /* 3 and 4 are none's */
    assert_row(config, 2, 8, 0, 4);
    assert_row(config, 3, 8, 0, 3);
    cluster_release(config);
}

TEST(a_replica_that_has_all_is_a_full_backup_and_the_others_go_on)
{
    struct cluster_config *old =
        make((const uint32_t[][3]){{1, 0, 2}, {1, 0, 2}, {2, 3, 0}, {3, 1, 0}});
    struct cluster_config *config = after(cluster_hold(old), 0, (const uint8_t[SHARDS]){[1] = 1});
    assert_row(config, 0, 7, 0, 2);
    assert_row(config, 1, 8, 2, 0);
    assert_row(config, 2, 7, 3, 0);
    struct story_fill story;
    assert_true(story_of_fill(old, config, &story));
    assert_true(story.joined == 0 && story.began == 0 && story.ended == 1 && story.left == 1);
    cluster_release(old);
    cluster_release(config);
}

TEST(nothing_changes_where_nobody_is_left_to_fill)
{
    const uint32_t rows[][3] = {{1, 2, 0}, {1, 3, 0}, {2, 0, 3}, {3, 1, 0}};
    assert_null(after(make(rows), 0, none));
    struct cluster_config *old = make(rows);
    old->replicas = 5; /* all members are replicas of it */
    for (uint32_t i = 0; i < SHARDS; i++)
        old->shards[i].backups[old->shards[i].backup_count++] = i == 0   ? 3
                                                                : i == 1 ? 2
                                                                : i == 2 ? 1
                                                                         : 2;
    assert_null(after(old, 0, none));
}

TEST(a_shard_without_an_epoch_left_or_that_is_kept_stays_as_it_is)
{
    struct cluster_config *old =
        make((const uint32_t[][3]){{1, 0, 2}, {3, 0, 0}, {2, 1, 0}, {1, 2, 0}});
    old->shards[0].epoch = CLUSTER_MAX_EPOCH;
    old->members[2].kept = true;
    assert_null(after(old, 0, (const uint8_t[SHARDS]){[0] = 1}));
}

/* Server 1 is drained. */
static struct cluster_config *drained(const uint32_t rows[SHARDS][3])
{
    struct cluster_config *config = make(rows);
    config->wanted_count = 2;
    config->wanted[0] = 2;
    config->wanted[1] = 3;
    return config;
}

TEST(a_drained_primary_becomes_a_backup_and_leaves_when_there_are_enough_without_it)
{
    struct cluster_config *old =
        drained((const uint32_t[][3]){{1, 2, 0}, {2, 1, 0}, {1, 3, 0}, {2, 3, 0}});
    struct cluster_config *config = after(cluster_hold(old), 0, none);
    struct story_fill story;
    assert_true(story_of_fill(old, config, &story) && story.swapped == 2 && story.dropped == 0);
    assert_int_equal(cluster_shard(config, 0)->primary, 2);
    assert_row(config, 0, 8, 1, 3);
    assert_row(config, 1, 8, 1, 3);
    assert_int_equal(cluster_shard(config, 2)->primary, 3);
    assert_row(config, 2, 8, 1, 2);
    assert_row(config, 3, 7, 3, 0);
    assert_null(after(cluster_hold(config), 0, none));
    struct cluster_config *last_one =
        after(cluster_hold(config), 0, (const uint8_t[SHARDS]){1, 1, 0, 0});
    assert_true(story_of_fill(config, last_one, &story) && story.swapped == 0 &&
                story.dropped == 2);
    assert_row(last_one, 0, 9, 3, 0);
    assert_row(last_one, 1, 9, 3, 0);
    assert_row(last_one, 2, 8, 1, 2);
    cluster_release(last_one);
    cluster_release(config);
    cluster_release(old);
}

TEST(a_drained_primary_goes_on_until_another_full_replica_is_there_and_fills_nothing)
{
    struct cluster_config *config =
        after(drained((const uint32_t[][3]){{1, 0, 2}, {2, 0, 1}, {1, 0, 0}, {2, 3, 0}}), 0,
              (const uint8_t[SHARDS]){1, 1, 0, 0});
    assert_int_equal(cluster_shard(config, 0)->primary, 1); /* 2 was not full before */
    assert_row(config, 0, 8, 2, 3);
    assert_row(config, 1, 8, 1, 3); /* 1 has all, and is one of two until 3 does */
    assert_int_equal(cluster_shard(config, 2)->filling_count, 2);
    cluster_release(config);
}

TEST(a_backup_out_of_its_primarys_reach_leaves_and_is_not_chosen_for_it)
{
    leases = (struct leases){.count = 1, .entries = {{.server = 1, .cut_count = 1, .cut = {2}}}};
    struct cluster_config *config =
        after(make((const uint32_t[][3]){{1, 2, 0}, {2, 1, 0}, {1, 3, 0}, {1, 3, 2}}), 0, none);
    assert_row(config, 0, 8, 0, 3);
    assert_row(config, 1, 7, 1, 0);
    assert_row(config, 2, 7, 3, 0);
    assert_row(config, 3, 8, 3, 0);
    assert_null(after(config, 0, none));
    leases = (struct leases){0};
}

TEST(a_primary_that_reaches_nobody_swaps_roles_with_a_backup_that_all_others_reach)
{
    const uint32_t rows[][3] = {{1, 2, 0}, {2, 3, 0}, {1, 3, 0}, {3, 2, 0}};
    leases = (struct leases){.count = 1, .entries = {{.server = 1, .cut_count = 2, .cut = {2, 3}}}};
    struct cluster_config *config = after(make(rows), 0, none);
    assert_int_equal(cluster_shard(config, 0)->primary, 2);
    assert_row(config, 0, 8, 1, 0);
    assert_row(config, 1, 7, 3, 0);
    assert_int_equal(cluster_shard(config, 2)->primary, 3);
    assert_row(config, 2, 8, 1, 0);
    leases.entries[1] = (struct lease){.server = 2, .cut_count = 1, .cut = {1}};
    leases.count = 2; /* what the new one says decides */
    struct cluster_config *later = after(config, 0, none);
    assert_int_equal(cluster_shard(later, 0)->primary, 2);
    assert_row(later, 0, 9, 0, 3);
    assert_row(later, 2, 8, 1, 0);
    cluster_release(later);
    leases.entries[1] = (struct lease){.server = 3, .cut_count = 1, .cut = {2}};
    config = after(make(rows), 0, none); /* 3 does not reach 2 either */
    assert_int_equal(cluster_shard(config, 0)->primary, 1);
    assert_row(config, 0, 8, 0, 0);
    cluster_release(config);
    leases = (struct leases){0};
}

TEST(a_primary_that_could_not_read_an_entry_swaps_roles_with_a_backup_that_could)
{
    struct cm_join first = world_join_of(1), second = world_join_of(2);
    const uint32_t rows[][3] = {{1, 2, 0}, {1, 3, 0}, {2, 1, 0}, {1, 2, 0}};
    struct cluster_config *old = make(rows);
    damage_found(&first.damage, 0);
    damage_add(&first.damage, 1, DAMAGE_NO_SLOT); /* not reconciled yet: no reason */
    damage_found(&first.damage, 3);
    damage_found(&second.damage, 3); /* nobody is better */
    struct fill_from from = {.old = old, .filled = none, .leases = &leases};
    from.back.run[from.back.present++] = &first;
    from.back.run[from.back.present++] = &second;
    struct cluster_config *config = fill_make(&from);
    assert_non_null(config);
    assert_int_equal(cluster_shard(config, 0)->primary, 2);
    assert_row(config, 0, 8, 1, 0);
    for (uint16_t i = 1; i < SHARDS; i++)
        assert_row(config, i, 7, rows[i][1], 0);
    first.damage.count = 0; /* what becomes of 1 as a backup is shown below */
    damage_found(&first.damage, 3);
    from.old = config;
    assert_null(fill_make(&from)); /* it stays so */

    config->shards[3].backups[config->shards[3].backup_count++] = 3; /* one more than is wanted: */
    struct cm_join third = world_join_of(3);
    damage_found(&third.damage, 3);
    from.back.run[from.back.present++] = &third;
    assert_null(fill_make(&from)); /* it may have what the primary cannot read */
    cluster_release(config);
    cluster_release(old);
}

/* From there on, with what the backup, server 1, was found to have damaged. Ends `old`. */
static struct cluster_config *after_damage(struct cluster_config *old, uint16_t shard,
                                           const uint8_t filled[SHARDS], bool all_of_it)
{
    struct cm_join first = world_join_of(1), second = world_join_of(2);
    damage_found(&first.damage, shard);
    if (all_of_it)
        damage_found(&second.damage, shard);
    struct fill_from from = {.old = old, .filled = filled, .leases = &leases};
    from.back = (struct comeback){.present = 2, .run = {&second, &first}};
    struct cluster_config *config = fill_make(&from);
    cluster_release(old);
    return config;
}

TEST(a_backup_that_could_not_read_an_entry_leaves_when_another_has_filled)
{
    const uint32_t rows[][3] = {{2, 1, 0}, {2, 1, 0}, {2, 3, 0}, {1, 3, 0}};
    assert_null(after_damage(make(rows), 0, none, true)); /* nobody is better */
    struct cluster_config *config = after_damage(make(rows), 0, none, false);
    assert_non_null(config);
    assert_row(config, 0, 8, 1, 3);
    assert_null(after_damage(cluster_hold(config), 0, none, false));
    struct cluster_config *worse = after_damage(cluster_hold(config), 0, none, true);
    assert_non_null(worse); /* what is damaged at the primary came out by that */
    assert_row(worse, 0, 9, 1, 0);
    cluster_release(worse);
    config = after_damage(config, 0, (const uint8_t[SHARDS]){1}, false);
    assert_row(config, 0, 9, 3, 0);
    assert_null(after_damage(config, 0, none, false));
}

TEST(a_backup_that_could_not_read_an_entry_fills_anew_where_nobody_else_can)
{
    const uint32_t rows[][3] = {{2, 1, 0}, {2, 1, 0}, {2, 3, 0}, {1, 3, 0}};
    struct cluster_config *old = make(rows);
    old->replicas = 3;
    for (uint32_t i = 0; i < SHARDS; i++)
        old->shards[i].backups[old->shards[i].backup_count++] =
            i < 2 ? 3 : 3 - old->shards[i].primary;
    struct cluster_config *config = after_damage(old, 0, none, false);
    assert_row(config, 0, 8, 3, 1);
    assert_null(after_damage(cluster_hold(config), 0, none, false));
    config = after_damage(config, 1, (const uint8_t[SHARDS]){1}, false); /* the new row has none */
    assert_int_equal(config->shards[0].backup_count, 2);
    assert_row(config, 1, 8, 3, 1);
    cluster_release(config);
}

/* --- space --- */

/* Shards of 100 bytes, of which who fills has 30; the room of each server by its number. */
static struct loads *space_of(const struct cluster_config *config, const uint64_t room[],
                              uint32_t full)
{
    struct loads *loads = calloc(1, sizeof *loads);
    assert_non_null(loads);
    for (uint32_t i = 0; i < config->member_count; i++) {
        const uint32_t server = config->members[i].server;
        struct load_row rows[SHARDS];
        struct load_report report = {.cores = 1,
                                     .all_bytes = 10000,
                                     .live_bytes = 7500 - room[server],
                                     .full = full >> server & 1,
                                     .rows = rows};
        for (uint32_t k = 0; k < SHARDS; k++) {
            const struct shard *shard = &config->shards[k];
            if (shard_names(shard, server))
                rows[report.count++] = (struct load_row){
                    shard->id, shard->epoch, 0, 0, shard_is_full_at(shard, server) ? 100 : 30};
        }
        loads_told(loads, config, server, &report, NS_PER_S);
    }
    return loads;
}

/* `left`: a shard left them for space. */
static struct cluster_config *after_space(struct cluster_config *old, const uint64_t room[],
                                          uint32_t full, uint32_t left, uint32_t *lacking)
{
    struct loads *loads = space_of(old, room, full);
    struct cluster_config *config = fill_make(
        &(struct fill_from){.old = old, .filled = none, .loads = loads, .lacking = lacking});
    if (config)
        loads_follow(loads, old, config, 2 * NS_PER_S);
    for (uint32_t i = 0; config && i < old->member_count; i++) {
        const uint32_t server = old->members[i].server;
        assert_int_equal(loads->members[server].left_ns > 0, left >> server & 1);
        loads->members[server].full = false; /* it has space again, and is not chosen at once */
        assert_true(!(left >> server & 1) || loads_room(loads, config, &old->members[i]) == 0);
    }
    free(loads);
    cluster_release(old);
    return config;
}

TEST(who_has_no_room_for_all_that_is_to_come_is_not_chosen)
{
    const uint32_t rows[][3] = {{1, 2, 0}, {1, 0, 3}, {1, 0, 0}, {1, 0, 0}};
    uint32_t lacking = 0;
    /* 70 bytes of what 3 fills are to come */
    struct cluster_config *config =
        after_space(make(rows), (const uint64_t[]){0, 500, 101, 171}, 0, 0, &lacking);
    assert_row(config, 1, 7, 0, 3);
    assert_row(config, 2, 8, 0, 2);
    assert_row(config, 3, 8, 0, 3);
    cluster_release(config);
    config = after_space(make(rows), (const uint64_t[]){0, 500, 201, 170}, 0, 0, &lacking);
    assert_row(config, 2, 8, 0, 2);
    assert_row(config, 3, 8, 0, 2);
    cluster_release(config);
    assert_null(after_space(make(rows), (const uint64_t[]){0, 500, 100, 170}, 0, 0, &lacking));
    assert_int_equal(lacking, 2);
}

/* Shard 0: 2, then 1, which could not read an entry, and 3, if it is a replica, which is full. */
static struct cluster_config *after_damage_of_one(uint32_t members, uint32_t replicas)
{
    struct cluster_config *old = config_by_hand(members, SHARDS, replicas);
    for (uint32_t i = 0; i < SHARDS; i++) {
        old->shards[i].primary = 2;
        old->shards[i].backups[old->shards[i].backup_count++] = 1;
        if (members == 3)
            old->shards[i].backups[old->shards[i].backup_count++] = 3;
    }
    assert_int_equal(cluster_finish(old), ROWAN_OK);
    struct loads *loads = space_of(old, (const uint64_t[]){0, 5000, 0, 0}, 1 << 3);
    struct cm_join first = world_join_of(1);
    damage_found(&first.damage, 0);
    struct fill_from from = {.old = old, .filled = none, .leases = &leases, .loads = loads};
    from.back = (struct comeback){.present = 1, .run = {&first}};
    struct cluster_config *config = fill_make(&from);
    free(loads);
    cluster_release(old);
    return config;
}

TEST(no_primary_is_left_alone_for_a_backup_that_could_not_read_an_entry)
{
    struct cluster_config *config = after_damage_of_one(3, 3);
    assert_row(config, 0, 8, 3, 1); /* what is full stays in this shard */
    assert_int_equal(config->shards[1].backup_count, 1);
    cluster_release(config);
    assert_null(after_damage_of_one(2, 2)); /* nobody knows whether the primary could read all */
}

TEST(what_fills_at_a_full_server_goes_elsewhere_or_nowhere)
{
    const uint32_t rows[][3] = {{1, 0, 2}, {3, 0, 2}, {2, 3, 0}, {3, 2, 0}};
    uint32_t lacking;
    struct cluster_config *config =
        after_space(make(rows), (const uint64_t[]){0, 0, 500, 500}, 1 << 2, 1 << 2, &lacking);
    assert_row(config, 0, 8, 0, 3);
    assert_row(config, 1, 8, 0, 0);
    assert_row(config, 2, 7, 3, 0);
    assert_row(config, 3, 7, 2, 0); /* the second full one of two stays */
    cluster_release(config);
}

TEST(one_full_backup_at_a_time_leaves_a_full_server_where_two_others_have_all)
{
    struct cluster_config *old =
        make((const uint32_t[][3]){{1, 2, 0}, {1, 2, 0}, {3, 2, 0}, {2, 1, 0}});
    for (uint32_t i = 0; i < SHARDS; i++)
        old->shards[i].backups[old->shards[i].backup_count++] = i == 2 ? 1 : 3;
    old->replicas = 3;
    uint32_t lacking;
    struct cluster_config *config =
        after_space(old, (const uint64_t[]){0, 0, 500, 0}, 1 << 2, 1 << 2, &lacking);
    assert_row(config, 0, 8, 3, 0);
    for (uint16_t i = 1; i < SHARDS; i++)
        assert_int_equal(cluster_shard(config, i)->epoch, 7);
    cluster_release(config);
}

/* No time goes by with fewer replicas than there is space for. */
TEST(another_server_with_room_fills_in_the_place_of_a_full_one_in_the_same_change)
{
    for (uint64_t room = 100; room <= 101; room++) {
        struct cluster_config *old = config_by_hand(4, SHARDS, 3);
        for (uint32_t i = 0; i < SHARDS; i++) {
            old->shards[i].primary = 1;
            old->shards[i].backup_count = 2;
            old->shards[i].backups[0] = 2;
            old->shards[i].backups[1] = 3;
        }
        uint32_t lacking;
        struct cluster_config *config =
            after_space(cluster_finished(old), (const uint64_t[]){0, 500, 0, 500, room}, 1 << 2,
                        1 << 2, &lacking);
        assert_row(config, 0, 8, 3, room > 100 ? 4 : 0);
        cluster_release(config);
    }
}

TEST(replicas_beyond_those_wanted_leave_the_newest_first)
{
    struct cluster_config *old =
        make((const uint32_t[][3]){{1, 2, 3}, {1, 2, 0}, {2, 3, 0}, {3, 1, 0}});
    old->shards[1].backups[old->shards[1].backup_count++] = 3;
    struct cluster_config *config = after(old, 0, none);
    assert_row(config, 0, 8, 2, 0);
    assert_row(config, 1, 8, 2, 0);
    cluster_release(config);
}

UNIT_MAIN(NULL, NULL)
