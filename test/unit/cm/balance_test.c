/* balance_test.c - which shard moves, by what the members say of its load. Loads are in thousandths of a core here. */
#define TEST_FIXTURE setup, teardown

#include "cm/balance.h"

#include "cm/plan.h"
#include "common/base/random.h"
#include "test/lib/unit.h"
#include "test/unit/cm/lease_fixture.h"

enum { MEMBERS = 3, SHARDS = 6, SLOTS_OF = 100 };

/* A cluster whose loads the test gives. */
struct field {
    struct cluster_config *config;
    struct loads *loads;
    struct balance balance;
    uint64_t now_ns;
    uint64_t free_bytes;
    struct cm_plan plans[BALANCE_STEPS], plan; /* decided; the next of them */
    uint32_t count, at;
};

/* Shard i is led by server i mod MEMBERS + 1 and backed by the next one. */
static void open_field(struct field *field, uint32_t members, uint32_t shards)
{
    *field = (struct field){.config = config_by_hand(members, shards, 2),
                            .loads = calloc(1, sizeof *field->loads),
                            .now_ns = 100 * NS_PER_S,
                            .balance = {.since_ns = 1}, /* it lasts */
                            .free_bytes = 1 << 30};
    assert_non_null(field->loads);
    for (uint32_t i = 0; i < shards; i++) {
        struct shard *shard = &field->config->shards[i];
        shard->primary = i % MEMBERS + 1;
        shard->backup_count = 1;
        shard->backups[0] = (i + 1) % MEMBERS + 1;
    }
    assert_int_equal(cluster_finish(field->config), 0);
}

static void close_field(struct field *field)
{
    cluster_release(field->config);
    free(field->loads);
}

/* Each server reports what its shards cost: `led[i]` where it leads, a tenth of it where it backs. */
static void tell(struct field *field, const uint32_t *led, uint32_t servers, uint32_t cores)
{
    for (uint32_t server = 1; server <= servers; server++) {
        struct load_row rows[CLUSTER_MAX_WORKERS * SHARDS];
        struct load_report report = {.cores = cores, .free_bytes = field->free_bytes, .rows = rows};
        for (uint32_t i = 0; i < field->config->shard_count; i++) {
            const struct shard *shard = &field->config->shards[i];
            if (shard_names(shard, server))
                rows[report.count++] =
                    (struct load_row){.shard = shard->id,
                                      .epoch = shard->epoch,
                                      .load = led[i] * (shard->primary == server ? 1000 : 100),
                                      .bytes = 1 << 20};
        }
        loads_told(field->loads, field->config, server, &report, field->now_ns);
    }
}

/* The next step of the decision that was made, or of a new one. */
static enum balance_found next(struct field *field)
{
    if (field->at == field->count) {
        const enum balance_found found =
            balance_decide(&field->balance, field->config, field->loads, field->now_ns,
                           field->plans, &field->count);
        field->at = 0;
        if (found != BALANCE_DECIDED) {
            field->plan = field->plans[0];
            field->count = 0;
            return found;
        }
    }
    field->plan = field->plans[field->at++];
    return BALANCE_DECIDED;
}

/* The plan becomes the configuration; what it fills is full at once. */
static void carry_out(struct field *field)
{
    struct cluster_config *after;
    char why[256];
    assert_null(plan_refusal(&field->plan, field->config, why, sizeof why));
    after = plan_make(&field->plan, field->config);
    struct shard *shard =
        &after->shards[cluster_shard(after, (uint16_t)field->plan.shard) - after->shards];
    if (shard->move_to) {
        if (shard->primary == shard->move_from)
            shard->primary = shard->move_to;
        else
            shard->backups[0] = shard->move_to;
        shard->filling_count = 0;
        shard->filling[0] = shard->move_from = shard->move_to = 0;
        assert_int_equal(cluster_finish(after), 0);
    }
    loads_follow(field->loads, field->config, after, field->now_ns);
    cluster_release(field->config);
    field->config = after;
}

static uint32_t load_of(const struct field *field, const uint32_t *led, uint32_t server)
{
    uint32_t load = 0;
    for (uint32_t i = 0; i < field->config->shard_count; i++) {
        const struct shard *shard = &field->config->shards[i];
        if (shard_names(shard, server))
            load += led[i] * (shard->primary == server ? 10 : 1);
    }
    return load;
}

/* As tell; and shard 0 is a hot one whose load is halved there; 0: at no slot. */
static void tell_hot(struct field *field, uint32_t slot)
{
    const uint32_t led[] = {500, 10, 10, 100, 10, 10};
    tell(field, led, MEMBERS, 1);
    const struct load_row row = {0, cluster_shard(field->config, 0)->epoch, 500000, slot, 1};
    loads_told(field->loads, field->config, 1,
               &(struct load_report){
                   .cores = 1, .free_bytes = field->free_bytes, .count = 1, .rows = &row},
               field->now_ns);
}

static struct field field; /* of the case; MEMBERS and SHARDS unless it opens another */

static int setup(void **state)
{
    open_field(&field, MEMBERS, SHARDS);
    return world_setup(state);
}

static int teardown(void **state)
{
    close_field(&field);
    return world_teardown(state);
}

/* In its place. */
static void open_another(uint32_t members, uint32_t shards)
{
    close_field(&field);
    open_field(&field, members, shards);
}

/* Four and five servers: those that are there already have 25 % more than the average then. */
TEST(a_server_that_was_added_gets_shards_though_nobody_is_overloaded)
{
    enum { MANY = 24 };
    uint32_t led[MANY], moves = 0;
    open_another(5, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        struct shard *shard = &field.config->shards[i];
        shard->primary = i % 4 + 1;
        shard->backups[0] = (i + 1) % 4 + 1;
        led[i] = 20;
    }
    assert_int_equal(cluster_finish(field.config), 0);
    for (; moves < 2; moves++) {
        tell(&field, led, 5, 1);
        assert_int_equal(next(&field), BALANCE_DECIDED);
        assert_int_equal(field.plan.to, 5);
        carry_out(&field);
        field.now_ns += 2 * NS_PER_S;
    }
}

/* As its new manager sees it, whom not everyone has told of every shard. */
TEST(nothing_is_decided_before_all_is_known)
{
    const uint32_t led[] = {900, 900, 100, 900, 100, 100};
    tell(&field, led, MEMBERS - 1, 1);
    loads_told(field.loads, field.config, MEMBERS, &(struct load_report){.cores = 1}, field.now_ns);
    assert_int_equal(next(&field), BALANCE_NOTHING);
    tell(&field, led, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_DECIDED);
}

TEST(nothing_moves_where_nobody_is_busy_or_much_above_the_average)
{
    tell(&field, (const uint32_t[]){90, 0, 0, 0, 0, 0}, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_NOTHING); /* less than 10 % */
    tell(&field, (const uint32_t[]){120, 90, 90, 120, 90, 90}, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_NOTHING); /* less than 30 % above the average */
    tell(&field, (const uint32_t[]){300, 0, 0, 0, 0, 0}, MEMBERS, 4);
    assert_int_equal(next(&field), BALANCE_NOTHING); /* of four cores */
}

TEST(nothing_moves_before_every_member_has_said_its_load)
{
    const uint32_t led[] = {500, 10, 10, 200, 10, 10};
    tell(&field, led, MEMBERS - 1, 1);
    assert_int_equal(next(&field), BALANCE_NOTHING);
    tell(&field, led, MEMBERS, 1);
    field.now_ns += 4 * NS_PER_S; /* and lately */
    assert_int_equal(next(&field), BALANCE_NOTHING);
    tell(&field, led, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_DECIDED);
}

/* Server 1 leads shards 0 and 3; server 2 backs both. */
TEST(the_shard_that_lowers_the_highest_load_most_goes_to_its_full_backup)
{
    tell(&field, (const uint32_t[]){600, 100, 300, 250, 10, 300}, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_DECIDED);
    assert_int_equal(field.plan.kind, CM_PLAN_MOVE);
    assert_int_equal(field.plan.server, 1);
    assert_int_equal(field.plan.to, 2);
    assert_int_equal(field.plan.shard, 3);
}

TEST(a_server_that_has_nothing_of_it_is_taken_where_the_backups_are_hot_too)
{
    tell(&field, (const uint32_t[]){300, 500, 10, 300, 10, 10}, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_DECIDED);
    assert_int_equal(field.plan.server, 1);
    assert_int_equal(field.plan.to, 3);
}

TEST(a_target_without_space_is_passed_over_and_told_once)
{
    const uint32_t led[] = {330, 500, 10, 330, 10, 10};
    field.free_bytes = 1 << 10;
    tell(&field, led, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_PASSED);
    assert_int_equal(field.plan.to, 3);
    assert_int_equal(next(&field), BALANCE_NOTHING);
}

TEST(a_threshold_that_is_set_decides_from_when_on_a_server_is_overloaded)
{
    const uint32_t led[] = {300, 150, 150, 60, 130, 130}; /* server 1 is 15 % above the average */
    tell(&field, led, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_NOTHING);
    field.now_ns += 3 * NS_PER_S;
    tell(&field, led, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_NOTHING);
    field.balance.above = 10;
    for (unsigned i = 0; i < 6 && next(&field) != BALANCE_DECIDED; i++) {
        field.now_ns += NS_PER_S / 2;
        tell(&field, led, MEMBERS, 1);
    }
    assert_int_equal(field.plan.server, 1);
}

TEST(a_shard_rests_behind_a_change)
{
    const uint32_t led[] = {600, 0, 0, 0, 0, 0};
    tell(&field, led, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_NOTHING); /* it would only be hot elsewhere */
    const uint32_t two[] = {400, 0, 0, 400, 0, 0};
    tell(&field, two, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_DECIDED);
    carry_out(&field);
    const uint32_t turned[] = {0,   400, 0,
                               400, 0,   0}; /* the one that moved, and one of its new server */
    for (uint32_t i = 0; i < 10; i++) {
        tell(&field, turned, MEMBERS, 1);
        if (next(&field) == BALANCE_DECIDED)
            assert_int_not_equal(field.plan.shard, 3);
        field.now_ns += NS_PER_S;
    }
}

TEST(a_worker_with_too_much_gives_a_shard_to_the_one_with_least)
{
    for (uint32_t i = 0; i < MEMBERS; i++)
        field.config->members[i].workers = 3;
    field.config->shards[0].worker = field.config->shards[3].worker = 1;
    const uint32_t led[] = {300, 400, 400, 200, 250, 250};
    tell(&field, led, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_NOTHING); /* one core */
    for (uint32_t i = 1; i < SHARDS; i++)
        field.config->shards[i].worker = i == 3 ? 1 : i / MEMBERS;
    field.config->shards[0].worker = 1;
    tell(&field, led, MEMBERS, 3);
    assert_int_equal(next(&field), BALANCE_DECIDED);
    assert_int_equal(field.plan.kind, CM_PLAN_WORKER);
    assert_int_equal(field.plan.server, 1);
    assert_int_equal(field.plan.shard, 0);
    assert_int_equal(field.plan.to, 0);
}

TEST(a_shard_hotter_than_what_a_server_should_have_is_split_where_its_load_is_halved)
{
    tell_hot(&field, 30);
    assert_int_equal(next(&field), BALANCE_DECIDED);
    assert_true(field.plan.kind == CM_PLAN_SPLIT && field.plan.shard == 0 && field.plan.to == 30);
    struct cluster_config *after;
    after = plan_make(&field.plan, field.config);
    loads_follow(field.loads, field.config, after, field.now_ns);
    cluster_release(field.config);
    field.config = after;
    const uint32_t led[] = {250, 250, 0, 0, 0, 0, 0, 0}; /* the children, and the parent last */
    tell(&field, led, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_NOTHING); /* until they have all */
}

TEST(a_slot_that_is_hot_by_itself_and_what_cannot_be_split_do_not_keep_others_from_moving)
{
    tell_hot(&field, 0);
    assert_int_equal(next(&field), BALANCE_DECIDED);
    assert_true(field.plan.kind == CM_PLAN_MOVE && field.plan.shard == 3);
    field.balance = (struct balance){.split_ns = field.now_ns + 1, .since_ns = 1};
    tell_hot(&field, 30);
    assert_int_equal(next(&field), BALANCE_DECIDED);
    assert_true(field.plan.kind == CM_PLAN_MOVE && field.plan.shard == 3);
}

/* Of a thousand bytes, in which shards have a hundred. */
static void tell_used(struct field *of, const uint64_t used[], uint32_t load)
{
    for (uint32_t i = 0; i < of->config->member_count; i++) {
        const uint32_t server = of->config->members[i].server;
        struct load_row rows[SHARDS];
        struct load_report report = {
            .cores = 1, .all_bytes = 1000, .live_bytes = used[i], .rows = rows};
        for (uint32_t k = 0; k < SHARDS; k++) {
            const struct shard *shard = &of->config->shards[k];
            if (shard_names(shard, server))
                rows[report.count++] = (struct load_row){shard->id, shard->epoch, load, 0, 100};
        }
        loads_told(of->loads, of->config, server, &report, of->now_ns);
    }
}

TEST(a_shard_moves_off_the_server_that_is_fuller_than_another_by_a_fifth)
{
    close_field(&field);
    open_field(&field, 4, SHARDS);
    tell_used(&field, (const uint64_t[]){590, 400, 400, 0}, 10);
    assert_int_equal(next(&field), BALANCE_NOTHING); /* nobody is short of it */
    tell_used(&field, (const uint64_t[]){650, 560, 700, 520}, 10);
    assert_int_equal(next(&field), BALANCE_NOTHING); /* 520 is not a fifth below 700 */
    tell_used(&field, (const uint64_t[]){650, 550, 740, 530}, 10);
    assert_int_equal(next(&field), BALANCE_DECIDED);
    assert_true(field.plan.kind == CM_PLAN_MOVE && field.plan.server == 3 && field.plan.to == 4);
    assert_true(shard_is_full_at(&field.config->shards[field.plan.shard], 3));
}

/* What is known of a shard has as many places as it may have replicas. */
TEST(who_fills_in_the_place_of_another_takes_its_place_in_what_is_known)
{
    close_field(&field);
    open_field(&field, 9, SHARDS);
    const uint32_t led[SHARDS] = {1, 1, 1, 1, 1, 1};
    for (uint32_t server = 3; server <= 9; server++) {
        struct cluster_config *after = cluster_copy(field.config);
        after->shards[0].filling_count = 1;
        after->shards[0].filling[0] = server;
        assert_int_equal(cluster_finish(after), 0);
        loads_follow(field.loads, field.config, after, field.now_ns);
        cluster_release(field.config);
        field.config = after;
        tell(&field, led, 9, 1);
    }
    assert_true(loads_knows(field.loads, 0, 9) && !loads_knows(field.loads, 0, 8));
}

/* The members' loads, of which shard 0 has most of the first one's. */
static void report_all(struct world *world)
{
    const struct cluster_config *config = cm_state_config(world->state);
    for (uint32_t server = 1; server <= SERVERS; server++) {
        struct load_row rows[64];
        struct load_report report = {.cores = 1, .free_bytes = 1 << 30, .rows = rows};
        for (uint32_t i = 0; i < config->shard_count; i++)
            rows[report.count++] = (struct load_row){config->shards[i].id, config->shards[i].epoch,
                                                     server > 1 ? 100
                                                     : i == 0   ? 500000
                                                                : 30000 * (i == 3),
                                                     50, 1};
        memset(world->store->moves, true, sizeof world->store->moves);
        world_step(world, &(struct cm_event){
                              .kind = CM_EVENT_LOAD, .connection = server, .load = &report});
    }
    world_settle(world);
}

TEST(with_as_many_shards_as_may_be_that_is_said_and_shards_move)
{
    struct cm_state_options options = options_of(7001);
    options.max_shards = 24; /* there are so many */
    struct world *world = world_create(world_store, &options);
    world->now_ns = NS_PER_S;
    world->tells_loads = true;
    memset(last, 0, sizeof last);
    world_elect(world);
    world_join_all(world, SERVERS);
    world_settle(world);
    adopt_all(world);
    run(world, ALL, world->now_ns + 3 * LEASE);
    report_all(world);
    assert_null(world_warning(world, "balance_cannot_split")); /* it may not last */
    run(world, ALL, world->now_ns + 2 * NS_PER_S);
    report_all(world);
    assert_non_null(strstr(world_warning(world, "balance_cannot_split"), "24 shards already"));
    report_all(world);
    assert_string_equal(world_warning(world, "balanced"), "term=2 what=move server=1 shard=3 to=2");
    assert_int_equal(world_warnings(world, "balance_cannot_split"), 1);
}

/* Loads that wander, with noise in every report: within 35 % nearly always, and few moves. */
TEST(days_of_changing_load_stay_balanced_with_few_moves)
{
    enum { HALF_SECONDS = 2 * 86400, MANY = 24, REPORTS_LATE = 40 };
    struct random random;
    uint32_t base[MANY], led[MANY], moves = 0, late = 0;
    random_init(&random, 7);
    open_another(MEMBERS, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        base[i] = 20 + (uint32_t)random_below(&random, 20);
    for (uint32_t at = 0, behind = 0; at < HALF_SECONDS; at++) {
        if (at % 7200 == 0) /* each hour some other shard becomes hot */
            base[random_below(&random, MANY)] = 20 + (uint32_t)random_below(&random, 150);
        for (uint32_t i = 0; i < MANY; i++)
            led[i] = base[i] * (90 + (uint32_t)random_below(&random, 21)) / 100;
        tell(&field, led, MEMBERS, 1);
        while (next(&field) == BALANCE_DECIDED) {
            carry_out(&field);
            moves++;
        }
        uint32_t most = 0, sum = 0;
        for (uint32_t server = 1; server <= MEMBERS; server++) {
            const uint32_t load = load_of(&field, base, server);
            most = load > most ? load : most;
            sum += load;
        }
        behind = most * MEMBERS * 100 > sum * 140 ? behind + 1 : 0;
        late += behind > REPORTS_LATE;
        field.now_ns += NS_PER_S / 2;
    }
    assert_int_equal(late, 0);
    assert_in_range(moves, 1, 24 * 6);
}

/* Servers that share processors, and clients that pause: all loads of one server are at times twice what they were. */
TEST(servers_that_swing_as_a_whole_move_nothing)
{
    enum { REPORTS = 7200, MANY = 9 };
    struct random random;
    uint32_t led[MANY], moves = 0;
    random_init(&random, 13);
    open_another(MEMBERS, MANY);
    for (uint32_t at = 0; at < REPORTS; at++) {
        for (uint32_t server = 0; server < MEMBERS; server++) {
            const uint32_t swing = 60 + (uint32_t)random_below(&random, 61);
            for (uint32_t i = server; i < MANY; i += MEMBERS)
                led[i] = swing * (90 + (uint32_t)random_below(&random, 21)) / 100;
        }
        tell(&field, led, MEMBERS, 1);
        moves += next(&field) == BALANCE_DECIDED;
        field.now_ns += NS_PER_S / 2;
    }
    assert_int_equal(moves, 0);
}

/* A saturated server has no more load than before; but another part of it is one shard's, and the others have less. */
TEST(one_report_tells_that_a_shard_of_a_saturated_server_is_hot)
{
    enum { MANY = 24 };
    uint32_t led[MANY];
    open_another(MEMBERS, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        led[i] = 40;
    tell(&field, led, MEMBERS, 1);
    field.now_ns += NS_PER_S / 2;
    for (uint32_t i = 0; i < MANY; i++)
        led[i] = i % MEMBERS == 1 ? i == 1 ? 170 : 20 : 18;
    tell(&field, led, MEMBERS, 1);
    assert_int_equal(next(&field), BALANCE_DECIDED);
    assert_int_equal(field.plan.server, 2);
}

/* One that was added takes part in one filling at a time. With 60 % of the average it is not done. */
TEST(what_was_begun_goes_on_until_all_have_as_much)
{
    enum { MANY = 48 };
    uint32_t led[MANY];
    open_another(4, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        led[i] = 20;
    for (uint32_t at = 0; at < 60; at++) {
        tell(&field, led, 4, 1);
        while (next(&field) == BALANCE_DECIDED)
            carry_out(&field);
        field.now_ns += NS_PER_S / 2;
    }
    for (uint32_t server = 1; server <= 4; server++)
        assert_in_range(load_of(&field, led, server), MANY * 20 * 11 / 4 * 85 / 100,
                        MANY * 20 * 11 / 4 * 105 / 100);
}

/* Eight shards on three servers: two have three of them, 12 % above the average. No move would lower that. */
TEST(an_hour_of_uniform_load_with_noise_moves_nothing)
{
    enum { REPORTS = 7200, MANY = 8 };
    struct random random;
    uint32_t led[MANY], moves = 0;
    random_init(&random, 11);
    open_another(MEMBERS, MANY);
    for (uint32_t at = 0; at < REPORTS; at++) {
        for (uint32_t i = 0; i < MANY; i++)
            led[i] = 70 + (uint32_t)random_below(&random, 61);
        tell(&field, led, MEMBERS, 1);
        while (next(&field) == BALANCE_DECIDED) {
            carry_out(&field);
            moves++;
        }
        field.now_ns += NS_PER_S / 2;
    }
    assert_int_equal(moves, 0);
}

UNIT_MAIN(NULL, NULL)
