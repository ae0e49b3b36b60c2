/* verbs_sleep_test.c - what ends the sleep of a landing zone's owner, with slots in a shared receive queue
 * (verbs_slots.c, notes 5 to 10): nothing for a block in the midst of others. No reactor runs: a case arms the
 * endpoint's event source as a reactor would, lets others act, and looks whether the descriptor is readable. Time is
 * the test's own; what timer a sleeper has set is read from it and then put off, so the host's time decides nothing. */
#define TEST_FIXTURE setup, close_landing

#include <poll.h>
#include <stdatomic.h>
#include <sys/timerfd.h>

#include "common/fabric/verbs/verbs_stream.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/verbs_landing.h"

enum { QUEUE = 4096 /* slots in the device */ };
#define LULL_NS (50 * NS_PER_MS)

static uint32_t sent;     /* blocks of SENDER */
static uint64_t timer_ns; /* what was left of the sleeper's timer when it was put off */

static void open_all(uint32_t posted, bool purges)
{
    sent = 0;
    open_landing(DEPTH, posted, purges);
    world_poll_times(&world, 20000); /* until nothing more is said of the handshake */
}

static int setup(void **state)
{
    (void)state;
    open_all(DEPTH, false);
    return 0;
}

static int setup_scarce(void **state)
{
    (void)state;
    open_all(1, false);
    return 0;
}

static struct event_source source(void)
{
    struct event_source source;

    fabric_endpoint_source(world.sides[OWNER].endpoint, &source);
    return source;
}

static bool is_woken(void)
{
    struct pollfd wait = {.fd = source().fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

static void wake_up(void)
{
    source().disarm(source().context);
}

/* As a reactor: arms, polls once more, and would sleep now. How long the zone lets it, at most; UINT64_MAX: for ever,
 * no timer runs. */
static uint64_t fall_asleep(void)
{
    struct verbs_endpoint *endpoint = endpoint_of(OWNER);
    struct itimerspec left, later = {.it_value = {.tv_sec = 100000}};

    source().arm(source().context);
    side_poll(&world, OWNER);
    timer_ns = UINT64_MAX;
    if (!endpoint->base.timer_on)
        return UINT64_MAX;
    assert_int_equal(timerfd_gettime(endpoint->base.timer_fd, &left), 0);
    assert_int_equal(timerfd_settime(endpoint->base.timer_fd, 0, &later, NULL), 0);
    timer_ns = (uint64_t)left.it_value.tv_sec * NS_PER_S + (uint64_t)left.it_value.tv_nsec;
    return verbs_zone_wait_ns(endpoint->zone) == UINT64_MAX ? 0
                                                            : verbs_zone_wait_ns(endpoint->zone);
}

/* Lands `count` blocks of SENDER while the owner does nothing. */
static void land(uint32_t count)
{
    land_blocks(SENDER, conn, sent, sent + count, false);
    sent += count;
}

/* Asleep in the midst of landings. */
static void fall_asleep_under_load(void)
{
    land(1);
    side_poll(&world, OWNER);
    assert_in_range(fall_asleep(), 1, LULL_NS);
}

/* --- a landing --- */

TEST(a_landing_in_the_midst_of_others_wakes_nobody)
{
    fall_asleep_under_load();
    assert_false(is_woken());
    land(1);
    assert_false(is_woken());
    land(1000);
    assert_false(is_woken());
    wake_up();
    side_poll(&world, OWNER);
    assert_in_range(fall_asleep(), 1, LULL_NS);
    land(1);
    assert_false(is_woken());
    wake_up();
}

TEST(the_first_landing_after_a_lull_wakes)
{
    assert_int_equal(fall_asleep(), UINT64_MAX);
    assert_false(is_woken());
    land(1);
    assert_true(is_woken());
    wake_up();
    side_poll(&world, OWNER);
    assert_false(is_woken());
}

TEST(a_landing_that_the_last_poll_saw_is_none_after_a_lull)
{
    land(1);
    assert_in_range(fall_asleep(), 1, LULL_NS);
    wake_up();
}

static int (*arm_queue)(struct ibv_cq *cq, int solicited_only);
static uint32_t queues_armed;

/* Arms a queue a moment too late for a block. */
static int land_and_arm(struct ibv_cq *cq, int solicited_only)
{
    if (++queues_armed == 2) /* the first is the endpoint's, before the look */
        land(1);
    return arm_queue(cq, solicited_only);
}

TEST(what_lands_before_the_arming_is_found_behind_it)
{
    struct ibv_context_ops *ops = &endpoint_of(OWNER)->device->context->ops;

    arm_queue = ops->req_notify_cq;
    ops->req_notify_cq = land_and_arm;
    queues_armed = 0;
    assert_int_equal(fall_asleep(), 0);
    ops->req_notify_cq = arm_queue;
    assert_int_equal(queues_armed, 2);
    wake_up();
}

/* --- the device's word --- */

TEST(half_of_the_slots_used_up_wakes_each_time)
{
    fall_asleep_under_load();
    for (unsigned round = 0; round < 4; round++) {
        land(QUEUE / 2 - 100);
        assert_false(is_woken());
        land(200);
        assert_true(is_woken());
        wake_up();
        for (unsigned i = 0; i < 20; i++) /* takes what came, hands over as much */
            side_poll(&world, OWNER);
        assert_in_range(fall_asleep(), 1, LULL_NS);
    }
    assert_true(sent > SLOTS);
}

TEST(whoever_hears_the_device_wakes_the_zones_owner)
{
    struct fabric_endpoint *second;
    struct fabric_event event;

    assert_int_equal(fabric_endpoint_open(world.sides[OWNER].fabric, 1, &second), 0);
    fall_asleep_under_load();
    land(QUEUE / 2 + 100);
    assert_int_equal(fabric_poll(second, tick(NULL), &event, 1), 0);
    assert_true(atomic_load(&endpoint_of(OWNER)->limit_reached));
    assert_true(is_woken());
    wake_up();
    assert_false(is_woken());
    fabric_endpoint_close(second);
}

/* The owner heard of it itself while it was awake: the sleep after that is no shorter. */
TEST(what_an_awake_owner_has_heard_ends_no_sleep)
{
    fall_asleep_under_load();
    wake_up();
    side_poll(&world, OWNER);
    land(QUEUE / 2 + 100);
    now_ns += VERBS_CHECK_NS;
    for (unsigned i = 0; i < 20; i++)
        side_poll(&world, OWNER);
    assert_in_range(fall_asleep(), 1, LULL_NS);
    assert_false(is_woken());
    land(QUEUE / 2 - 200);
    assert_false(is_woken());
    land(300);
    assert_true(is_woken());
    wake_up();
}

/* --- time --- */

TEST(a_sleeper_looks_after_a_while_though_nobody_tells_it)
{
    struct pollfd wait = {.events = POLLIN};

    land(1);
    side_poll(&world, OWNER);
    source().arm(source().context);
    side_poll(&world, OWNER);
    wait.fd = source().fd;
    assert_int_equal(poll(&wait, 1, 60000), 1); /* 50 ms are enough */
    wake_up();
}

TEST(an_idle_owner_sleeps_for_ever)
{
    fall_asleep_under_load();
    wake_up();
    now_ns += LULL_NS;
    side_poll(&world, OWNER);
    assert_int_equal(fall_asleep(), UINT64_MAX);
    land(1);
    assert_true(is_woken());
    wake_up();
}

TEST(nothing_is_looked_for_without_senders)
{
    fall_asleep_under_load();
    wake_up();
    fabric_conn_close(passive);
    fall_asleep();
    assert_int_equal(verbs_zone_wait_ns(endpoint_of(OWNER)->zone), UINT64_MAX);
    wake_up();
}

TEST(who_saw_a_part_of_what_landed_looks_again_at_once)
{
    land(QUEUE / 2);
    assert_int_equal(fall_asleep(), 0);
    wake_up();
}

/* --- when a completion must be seen soon --- */

/* Of the one segment that is posted. */
static void use_up_all_but(uint32_t slots)
{
    for (uint32_t left = SLOTS; left > slots; left -= 100) {
        land(100);
        world_poll_times(&world, 2);
    }
}

TEST_WITH(each_landing_wakes_when_few_slots_are_left, setup_scarce, close_landing)
{
    use_up_all_but(100);
    for (unsigned i = 0; i < 3; i++) {
        land(1);
        side_poll(&world, OWNER);
        assert_int_equal(fall_asleep(), UINT64_MAX);
        assert_false(is_woken());
        land(1);
        assert_true(is_woken());
        wake_up();
    }
}

/* The limit that suited few slots would be told much too late for many. */
TEST_WITH(more_slots_raise_the_limit_again, setup_scarce, close_landing)
{
    use_up_all_but(300);
    fall_asleep_under_load();
    wake_up();
    for (uint32_t i = 1; i < DEPTH; i++)
        assert_int_equal(
            fabric_zone_post(world.sides[OWNER].zone, (uint64_t)i * FABRIC_SEGMENT_BYTES, i), 0);
    fall_asleep_under_load();
    land(QUEUE / 2 + 100);
    assert_true(is_woken());
    wake_up();
}

/* All slots are with the device: the halves shrink, and the last slot is seen at once. */
TEST_WITH(the_last_slot_of_a_zone_that_runs_dry_is_seen_without_time, setup_scarce, close_landing)
{
    struct side *side = &world.sides[OWNER];
    bool asleep = false;
    uint32_t wakes = 0;

    for (uint32_t i = 0; i < SLOTS; i++) {
        land(1);
        if (asleep && is_woken()) {
            wake_up();
            asleep = false;
            wakes++;
        }
        if (!asleep) {
            world_poll_times(&world, 10);
            fall_asleep();
            asleep = true;
        }
    }
    assert_int_equal(side_count(side, FABRIC_SEALED), 1);
    assert_in_range(wakes, 5, 200);
    wake_up();
}

TEST(each_landing_wakes_when_the_device_tells_of_no_limit)
{
    land(1);
    side_poll(&world, OWNER);
    soft_verbs_fail_call(1, EOPNOTSUPP);
    assert_int_equal(fall_asleep(), UINT64_MAX);
    soft_verbs_fail_call(0, 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_false(is_woken());
        land(1);
        assert_true(is_woken());
        wake_up();
        side_poll(&world, OWNER);
        assert_int_equal(fall_asleep(), UINT64_MAX);
    }
    wake_up();
}

TEST(a_queue_pair_that_fails_wakes)
{
    fall_asleep_under_load();
    assert_true(soft_verbs_break_qp(((struct verbs_conn *)passive)->rc->qp_number));
    assert_true(is_woken());
    wake_up();
    world_wait(&world, OWNER, FABRIC_CLOSED, 1);
}

/* --- all of it, at random --- */

enum { SEALED = 24 };

struct sender {
    unsigned side;
    struct fabric_conn *conn;
    bool is_connected;
    uint32_t sent;
};

struct storm {
    struct random random;
    struct sender senders[2];
    bool is_asleep;
    uint64_t wake_ns;
    uint32_t sealed, sleeps, told, breaks;
    uint32_t next[SIDE_MAX]; /* block of each sender, where none is lost */
};

static void sender_events(struct sender *sender)
{
    struct side *side = &world.sides[sender->side];

    for (uint32_t i = 0; i < side->event_count; i++) {
        if (side->events[i].kind == FABRIC_CONNECTED)
            sender->is_connected = true;
        if (side->events[i].kind == FABRIC_CLOSED)
            sender->conn = NULL;
    }
    side_forget(side);
}

static void sender_step(struct storm *storm, struct sender *sender)
{
    uint64_t count = random_below(&storm->random, 4) == 0 ? random_below(&storm->random, 200) : 0;

    if (!sender->conn) {
        sender->is_connected = false;
        assert_int_equal(fabric_connect(world.sides[sender->side].endpoint,
                                        host.backend.address(&host, OWNER), 0, 0, &sender->conn),
                         0);
    }
    for (; sender->is_connected && count > 0; count--) {
        if (world_add_block(&world, sender->side, sender->conn,
                            (uint64_t)(sender->sent % (4 * SOURCES)) * SLOT, sender->sent,
                            BLOCK) != 0)
            break;
        sender->sent++;
    }
    if (sender->is_connected)
        fabric_rowan_post(sender->conn, 0); /* CLOSED comes if it has failed */
    side_poll(&world, sender->side);
    sender_events(sender);
}

/* Segments come back in order, each full but for slots that were lost, and go to the end of the zone. */
static void owner_events(struct storm *storm)
{
    struct side *side = &world.sides[OWNER];

    for (uint32_t i = 0; i < side->event_count; i++) {
        const uint64_t segment = side->events[i].context;

        if (side->events[i].kind != FABRIC_SEALED)
            continue;
        assert_int_equal(segment, storm->sealed++ % DEPTH);
        if (storm->breaks == 0)
            assert_int_equal(world_walk_segment(&world, OWNER, (uint32_t)segment, storm->next),
                             SLOTS);
        pm_zero(side->pm, segment * FABRIC_SEGMENT_BYTES, FABRIC_SEGMENT_BYTES);
        assert_int_equal(fabric_zone_post(side->zone, segment * FABRIC_SEGMENT_BYTES, segment), 0);
    }
    side_forget(side);
}

/* As a reactor that sleeps when it has been idle for a random time. */
static void owner_step(struct storm *storm)
{
    if (storm->is_asleep) {
        if (storm->wake_ns != UINT64_MAX && random_below(&storm->random, 2000) == 0)
            now_ns = now_ns < storm->wake_ns ? storm->wake_ns : now_ns; /* time flies */
        if (!is_woken() && now_ns < storm->wake_ns)
            return;
        storm->told += is_woken();
        wake_up();
        storm->is_asleep = false;
    }
    side_poll(&world, OWNER);
    owner_events(storm);
    if (random_below(&storm->random, 3) != 0)
        return;
    fall_asleep();
    storm->wake_ns = timer_ns == UINT64_MAX ? UINT64_MAX : now_ns + timer_ns;
    storm->is_asleep = world.sides[OWNER].event_count == 0;
    storm->sleeps += storm->is_asleep;
    if (!storm->is_asleep)
        wake_up();
    owner_events(storm);
}

static void sleep_in_a_storm(uint64_t seed, uint32_t break_of)
{
    struct storm *storm = calloc(1, sizeof *storm);

    assert_non_null(storm);
    print_message("# seed %lu\n", seed);
    open_all(DEPTH, break_of > 0);
    random_init(&storm->random, seed);
    storm->senders[0] = (struct sender){.side = SENDER, .conn = conn, .is_connected = true};
    storm->senders[1] = (struct sender){.side = OTHER};
    soft_verbs_faults(&(struct soft_faults){.rc_delay_polls = 4, .receive_pause = 5});
    for (uint32_t rounds = 0; storm->sealed < SEALED; rounds++) {
        assert_true(rounds < 4000000);
        now_ns += random_below(&storm->random, 10 * NS_PER_US);
        for (unsigned i = 0; i < 2; i++)
            sender_step(storm, &storm->senders[i]);
        owner_step(storm);
        if (break_of > 0 && random_below(&storm->random, break_of) == 0)
            storm->breaks += soft_verbs_break_any_qp(IBV_QPT_RC) != 0;
    }
    print_message("# %u sleeps, %u ended by word, %u queue pairs broken\n", storm->sleeps,
                  storm->told, storm->breaks);
    assert_true(storm->sleeps > SEALED);
    assert_true(break_of == 0 || storm->breaks > 3);
    free(storm);
    close_landing(NULL);
}

TEST_WITH(nothing_is_lost_by_who_sleeps_at_random, NULL, NULL)
{
    sleep_in_a_storm(1, 0);
    sleep_in_a_storm(2, 0);
}

TEST_WITH(nothing_is_lost_though_queue_pairs_take_completions_along, NULL, NULL)
{
    sleep_in_a_storm(3, 300);
    sleep_in_a_storm(4, 300);
}

UNIT_MAIN(NULL, NULL)
