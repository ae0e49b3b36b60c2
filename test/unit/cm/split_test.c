/* split_test.c - what the manager makes of a shard that is split, by hand: shard 1 of three, slots 100 to 199. */
#include "cm/split.h"

#include "cm/cold.h"
#include "cm/failover.h"
#include "cm/fill.h"
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

enum { MEMBERS = 4, SHARDS = 3 };

static struct loads loads; /* nothing is known */
static uint8_t filled[CLUSTER_MAX_SHARDS];

static struct cluster_config *three_shards(void)
{
    struct cluster_config *config = config_by_hand(MEMBERS, SHARDS, 3);
    for (uint32_t i = 0; i < SHARDS; i++) {
        config->shards[i].primary = i + 1;
        config->shards[i].backup_count = 2;
        config->shards[i].backups[0] = (i + 1) % 4 + 1;
        config->shards[i].backups[1] = (i + 2) % 4 + 1;
    }
    config->next_shard = SHARDS - 1;
    assert_int_equal(cluster_finish(config), 0);
    return config;
}

static struct cluster_config *split_at(struct cluster_config *config, uint16_t shard, uint32_t slot)
{
    const struct cm_plan plan = {.kind = CM_PLAN_SPLIT, .shard = shard, .to = slot};
    struct cluster_config *next;
    char why[256];
    assert_null(split_refusal(&plan, config, &loads, 0, why, sizeof why));
    next = split_make(&plan, config);
    cluster_release(config);
    return next;
}

/* Shard 1 is the parent, 3 and 4 are its children; servers 2, 3 and 4 hold them. */
static struct cluster_config *split_one(void)
{
    memset(filled, 0, sizeof filled);
    return split_at(three_shards(), 1, 130);
}

static struct cluster_config *next_of(struct cluster_config *config,
                                      const struct cm_join *const *back)
{
    struct fill_from from = {.old = config, .filled = filled};
    struct cluster_config *next;
    for (; back && back[from.back.came]; from.back.came++)
        from.back.joins[from.back.came] = back[from.back.came];
    comeback_admit(&from.back, config);
    next = fill_make(&from);
    if (next)
        cluster_release(config);
    return next;
}

static struct cluster_config *without(struct cluster_config *config, uint32_t servers)
{
    bool silent[MEMBERS], waits[MEMBERS] = {false};
    const struct cm_join *reports[MEMBERS] = {NULL};
    struct cluster_config *next;
    char why[200];
    for (uint32_t i = 0; i < config->member_count; i++)
        silent[i] = servers >> config->members[i].server & 1;
    assert_int_equal(failover_make(config, silent, waits, reports, &next, why, sizeof why), 0);
    cluster_release(config);
    return next;
}

#define REFUSED(words, slot, limit, ...)                                                           \
    do {                                                                                           \
        struct cluster_config *c = three_shards();                                                 \
        struct cm_plan plan = {.kind = CM_PLAN_SPLIT, .shard = 1, .to = (slot)};                   \
        char why[256] = "";                                                                        \
        __VA_ARGS__;                                                                               \
        assert_int_equal(cluster_finish(c), 0);                                                    \
        split_refusal(&plan, c, &loads, limit, why, sizeof why);                                   \
        if (!strstr(why, words))                                                                   \
            fail_msg("'%s' is not '%s'", why, words);                                              \
        cluster_release(c);                                                                        \
    } while (0)

TEST(a_split_that_cannot_be_is_refused_with_the_reason)
{
    REFUSED("no shard 9", 130, 0, plan.shard = 9);
    REFUSED("no shard 70000", 130, 0, plan.shard = 70000);
    REFUSED("at slots 101 to 199", 100, 0, );
    REFUSED("at slots 101 to 199", 200, 0, );
    REFUSED("single slot", 199, 0, c->shards[1].last_slot = c->shards[1].first_slot;
            c->shards[2].first_slot = 101);
    REFUSED("epochs are used up", 130, 0, c->shards[1].epoch = CLUSTER_MAX_EPOCH - 1);
    REFUSED("epochs are used up", 130, 0, c->epoch_floor = CLUSTER_MAX_EPOCH - 1);
    REFUSED("not served", 130, 0, c->shards[1].backup_count = 0; c->members[1].kept = true;
            c->shards[0].backup_count = c->shards[2].backup_count = 0);
    REFUSED("moved or filled", 130, 0, c->shards[1].filling[c->shards[1].filling_count++] = 1);
    REFUSED("3 shards already, and no more than 3", 130, 3, );
    REFUSED("being split", 110, 0, c = split_at(c, 1, 130); plan.shard = 3);
    loads.shards[1].at[0].server = 2;
    loads.shards[1].at[0].bytes = 1 << 20;
    loads.members[4] = (struct load_member){.incarnation = 100004, .cores = 1};
    REFUSED("server 4 has no space", 130, 0,
            loads.members[4].incarnation = c->members[3].incarnation);
    memset(&loads, 0, sizeof loads);
}

TEST(the_slot_that_no_plan_names_halves_the_load_or_else_the_slots)
{
    struct cluster_config *config = three_shards();
    loads.shards[1].split = 110;
    assert_int_equal(split_slot(config, &loads, 1), 110);
    loads.shards[1].split = 100; /* of before another split */
    assert_int_equal(split_slot(config, &loads, 1), 150);
    memset(&loads, 0, sizeof loads);
    cluster_release(config);
}

static void assert_row(const struct cluster_config *config, uint16_t id, uint32_t primary,
                       uint32_t backups, uint32_t epoch)
{
    const struct shard *row = cluster_shard(config, id);
    assert_int_equal(row->primary, primary);
    assert_int_equal(row->backup_count, backups);
    assert_int_equal(row->epoch, epoch);
    assert_int_equal(row->filling_count, 0);
}

/* Else the parent's epoch might never end, which the children wait for. */
TEST(a_backup_out_of_reach_of_the_primary_leaves_all_three)
{
    static struct leases leases;
    struct cluster_config *config = split_one(), *next;
    leases = (struct leases){.count = 1, .entries = {{.server = 2, .cut_count = 1, .cut = {4}}}};
    const struct fill_from from = {.old = config, .filled = filled, .leases = &leases};
    const uint32_t epoch = cluster_shard(config, 1)->epoch;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct shard *row = &config->shards[i];
        row->move_from = row->primary == 2 ? 3 : 0;
        row->move_to = row->primary == 2 ? 4 : 0;
    }
    assert_int_equal(cluster_finish(config), 0);
    next = fill_make(&from);
    assert_non_null(next);
    for (uint16_t id = 1; id <= 4; id++) {
        const struct shard *row = cluster_shard(next, id);
        if (id != 2)
            assert_true(row->primary == 2 && row->backup_count == 1 && row->backups[0] == 3 &&
                        row->move_to == 0);
    }
    assert_row(next, 1, 2, 1, epoch + 1);
    cluster_release(config);
    cluster_release(next);
}

/* What it cannot read it cannot copy either. */
TEST(a_damaged_backup_leaves_the_parent_and_its_children)
{
    struct cluster_config *config = split_one(), *next;
    struct cm_join primary = world_join_of(2), backup = world_join_of(4);
    damage_found(&backup.damage, 1);
    struct fill_from from = {.old = config, .filled = filled};
    from.back.present = 2;
    from.back.run[0] = &primary;
    from.back.run[1] = &backup;
    next = fill_make(&from);
    assert_non_null(next);
    for (uint16_t id = 1; id <= 4; id++) {
        const struct shard *row = cluster_shard(next, id);
        if (id != 2)
            assert_true(row->primary == 2 && row->backup_count == 1 && row->backups[0] == 3);
    }
    damage_found(&primary.damage, 1); /* the backup may have what that cannot read */
    assert_null(fill_make(&from));
    cluster_release(config);
    cluster_release(next);
}

TEST(children_have_new_ids_and_epochs_above_all_that_had_them)
{
    struct cluster_config *config = three_shards();
    config->next_shard = CLUSTER_MAX_SHARDS - 2; /* the ids begin anew: 0 to 2 are taken */
    config->epoch_floor = 40;
    config = split_at(config, 1, 130);
    assert_row(config, CLUSTER_MAX_SHARDS - 1, 2, 2, 41);
    assert_row(config, 3, 2, 2, 41);
    assert_row(config, 1, 2, 2, 8);
    assert_int_equal(cluster_shard_of_slot(config, 129)->id, CLUSTER_MAX_SHARDS - 1);
    assert_int_equal(cluster_shard_of_slot(config, 130)->id, 3);
    assert_int_equal(cluster_shard_of_slot(config, 200)->id, 2);
    assert_int_equal(config->term, 11);
    cluster_release(config);
}

TEST(a_parent_is_ended_by_its_last_replica_and_its_row_goes_when_that_is_committed)
{
    struct cluster_config *config = split_one();
    assert_null(next_of(config, NULL)); /* and nothing of it fills */
    filled[1] = SPLIT_COPIED_PRIMARY | 1;
    assert_null(next_of(config, NULL));
    filled[1] |= 2;
    config = next_of(config, NULL);
    assert_int_equal(cluster_shard(config, 1)->split, SPLIT_ENDED);
    assert_row(config, 1, 2, 0, 9);
    assert_row(config, 3, 2, 2, 8);
    config = without(config, 1 << 2); /* whom its row names */
    assert_row(config, 1, 1, 0, 10);
    config = next_of(config, NULL);
    assert_true(config->shard_count == 4 && config->epoch_floor == 10);
    assert_true(shard_has_filling(cluster_shard(config, 3), 1)); /* for the one that left */
    cluster_release(config);
}

/* Of seed 748 of the simulator: the one that came is full, and the one that leaves for it has not left. */
TEST(a_move_that_the_parent_was_in_stays_its_childrens)
{
    struct cluster_config *config = three_shards();
    memset(filled, 0, sizeof filled);
    config->shards[1].move_from = config->shards[1].backups[0];
    config->shards[1].move_to = config->shards[1].backups[1];
    config = split_at(config, 1, 130);
    assert_null(next_of(config, NULL)); /* nobody leaves while the parent is copied */
    filled[1] = SPLIT_COPIED_PRIMARY | 3;
    config = next_of(config, NULL);
    assert_row(config, 1, 2, 0, 9);
    assert_int_equal(cluster_shard(config, 1)->move_to, 0);
    assert_int_equal(cluster_shard(config, 3)->move_to, 4);
    cluster_release(config);
}

TEST(a_failover_does_to_the_children_what_it_does_to_their_parent)
{
    struct cluster_config *config = without(split_one(), 1 << 2);
    const uint32_t heir = cluster_shard(config, 1)->primary;
    assert_row(config, 1, heir, 1, 9);
    assert_row(config, 3, heir, 1, 9);
    assert_row(config, 4, heir, 1, 9);
    config = next_of(config, NULL); /* server 1 fills in other shards, in none of these */
    assert_row(config, 1, heir, 1, 9);
    assert_row(config, 3, heir, 1, 9);
    cluster_release(config);
}

static struct cm_join report(uint32_t server)
{
    struct cm_join join = world_join_of(server);
    join.incarnation += 1000;
    join.data_cluster = 77;
    return join;
}

/* Who copied in the epoch before says nothing of those who hold it now: places of backups are others. */
TEST(a_group_that_comes_back_is_as_its_parent_and_copies_anew)
{
    struct cluster_config *config = split_one();
    filled[1] = SPLIT_COPIED_PRIMARY | 1; /* server 4 had not */
    config = without(config, 1 << 2 | 1 << 3 | 1 << 4);
    const struct cm_join third = report(3), fourth = report(4);
    config = next_of(config, (const struct cm_join *[]){&third, &fourth, NULL});
    const struct shard *parent = cluster_shard(config, 1);
    assert_int_equal(parent->split, SPLIT_PARENT);
    assert_int_equal(parent->backup_count, 1);
    assert_ptr_equal(cluster_parent(config, cluster_shard(config, 4)), parent); /* K6 */
    cluster_release(config);
}

TEST(damage_of_any_of_the_group_counts_at_a_cold_start_for_all_and_an_ended_row_does_not)
{
    struct cluster_config *config = split_one(), *next;
    struct cm_join joins[MEMBERS];
    struct comeback back = {0};
    char why[200];
    for (uint32_t i = 0; i < MEMBERS; i++) {
        joins[i] = report(i + 1);
        if (i == 1)
            damage_add(&joins[i].damage, 4, 150);
        back.joins[back.came++] = &joins[i];
    }
    assert_int_equal(cold_start(config, &back, false, &next, why, sizeof why), 0);
    for (uint16_t id = 0; id <= 4; id++)
        assert_int_equal(shard_names(cluster_shard(next, id), 2), id == 0);
    cluster_release(next);
    config->shards[4].split = SPLIT_ENDED;
    config->shards[4].primary = 1;
    config->shards[4].backup_count = 0;
    joins[0].data_cluster = 0; /* it has nothing of that */
    assert_int_equal(cold_start(config, &back, false, &next, why, sizeof why), 0);
    assert_true(next->shard_count == 4 && next->epoch_floor == 8);
    assert_true(shard_names(cluster_shard(next, 3), 2) && !shard_names(cluster_shard(next, 4), 2));
    cluster_release(next);
    cluster_release(config);
}

UNIT_MAIN(NULL, NULL)
