/* shm_sleep_test.c - what ends the sleep of an endpoint, and that nothing else costs a system call.
 * No reactor runs: a case arms the endpoint's event source as a reactor would, lets a peer act, and
 * looks whether the descriptor is readable. */
#define TEST_FIXTURE open_all, close_host

#include <poll.h>

#include "common/base/error.h"
#include "common/fabric/shm/shm.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { OWNER, SENDER, OTHER, SIDES };
enum {
    PM_BYTES = 16 << 20,
    SEGMENT = FABRIC_SEGMENT_BYTES,
    BLOCK = 64 << 10,
    FIT = SEGMENT / BLOCK
};

static struct fabric_conn *conn, *passive;

static int open_all(void **state)
{
    (void)state;
    open_host(OVER_SHM, SIDES, PM_BYTES);
    side_open_zone(&world, OWNER, 4, 0);
    world_connect(&world, SENDER, OWNER, 0, &conn, &passive);
    world_poll_times(&world, 10);
    return 0;
}

static struct event_source source_of(unsigned side)
{
    struct event_source source;

    fabric_endpoint_source(world.sides[side].endpoint, &source);
    return source;
}

/* As a reactor: arms, polls once more, and would sleep now. */
static void fall_asleep(unsigned side)
{
    const struct event_source source = source_of(side);

    source.arm(source.context);
    side_poll(&world, side);
}

static bool is_woken(unsigned side)
{
    struct pollfd wait = {.fd = source_of(side).fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

static void wake_up(unsigned side)
{
    const struct event_source source = source_of(side);

    source.disarm(source.context);
}

/* By a bell, not by the timer that looks after what no bell announces. */
static bool is_rung(unsigned side)
{
    const struct shm_conn *own = (const struct shm_conn *)(side == OWNER ? passive : conn);
    char ring;

    return recv(own->socket_fd, &ring, 1, MSG_DONTWAIT) == 1;
}

static int send_one(struct fabric_conn *to, uint32_t bytes)
{
    static uint8_t data[60000];
    const struct fabric_iov iov = {.data = data, .bytes = bytes};

    return fabric_send(to, &iov, 1);
}

static void post_block(uint32_t number)
{
    assert_int_equal(
        world_add_block(&world, SENDER, conn, (uint64_t)number % 128 * BLOCK, number, BLOCK), 0);
    assert_int_equal(fabric_rowan_post(conn, number), 0);
    fabric_flush(world.sides[SENDER].endpoint);
}

TEST(a_message_wakes_a_sleeper_and_costs_no_call_when_awake)
{
    assert_int_equal(send_one(conn, 8), 0);
    fabric_flush(world.sides[SENDER].endpoint);
    assert_false(is_rung(OWNER));
    side_poll(&world, OWNER);
    assert_int_equal(side_count(&world.sides[OWNER], FABRIC_MESSAGE), 1);
    fall_asleep(OWNER);
    assert_false(is_woken(OWNER));
    assert_int_equal(send_one(conn, 8), 0);
    assert_false(is_woken(OWNER)); /* not flushed yet */
    fabric_flush(world.sides[SENDER].endpoint);
    assert_true(is_woken(OWNER));
    assert_true(is_rung(OWNER));
    wake_up(OWNER);
    assert_false(is_woken(OWNER));
    side_poll(&world, OWNER);
    assert_int_equal(side_count(&world.sides[OWNER], FABRIC_MESSAGE), 2);
    assert_int_equal(send_one(conn, 8), 0);
    fabric_flush(world.sides[SENDER].endpoint);
    assert_false(is_rung(OWNER));
}

/* A faulty peer can write there, too. */
static struct shm_doorbell *door_of_owner(void)
{
    return ((const struct shm_conn *)conn)->peer_door;
}

TEST(a_message_whose_bell_is_cleared_comes_with_a_look_at_the_rings)
{
    for (uint32_t i = 1; i <= 100; i++) {
        assert_int_equal(send_one(conn, 8), 0);
        fabric_flush(world.sides[SENDER].endpoint);
        memset(door_of_owner(), 0, sizeof *door_of_owner());
        host.skipped_ns += SHM_CHECK_NS;
        side_poll(&world, OWNER);
        assert_int_equal(side_count(&world.sides[OWNER], FABRIC_MESSAGE), i);
    }
}

TEST(who_is_said_to_be_awake_wakes_up_all_the_same)
{
    struct pollfd wait = {.fd = source_of(OWNER).fd, .events = POLLIN};

    for (uint32_t i = 1; i <= 5; i++) {
        fall_asleep(OWNER);
        atomic_store(&door_of_owner()->sleeping, 0);
        assert_int_equal(send_one(conn, 8), 0);
        fabric_flush(world.sides[SENDER].endpoint);
        assert_false(is_rung(OWNER));
        assert_int_equal(poll(&wait, 1, 20000), 1);
        wake_up(OWNER);
        side_poll(&world, OWNER);
        assert_int_equal(side_count(&world.sides[OWNER], FABRIC_MESSAGE), i);
    }
}

TEST(a_message_that_came_before_the_last_poll_is_seen_by_it)
{
    const struct event_source source = source_of(OWNER);

    assert_int_equal(send_one(conn, 8), 0);
    fabric_flush(world.sides[SENDER].endpoint);
    source.arm(source.context);
    side_poll(&world, OWNER);
    assert_int_equal(side_count(&world.sides[OWNER], FABRIC_MESSAGE), 1);
}

TEST(each_sleep_is_rung)
{
    for (unsigned i = 0; i < 100; i++) {
        fall_asleep(OWNER);
        assert_false(is_woken(OWNER));
        assert_int_equal(send_one(conn, 8), 0);
        fabric_flush(world.sides[SENDER].endpoint);
        assert_true(is_rung(OWNER));
        wake_up(OWNER);
        side_poll(&world, OWNER);
    }
}

TEST(room_wakes_a_sender_that_had_none)
{
    uint32_t sent = 0;

    while (send_one(conn, 1000) == 0)
        sent++;
    fall_asleep(SENDER);
    assert_false(is_woken(SENDER));
    side_poll(&world, OWNER);
    for (uint32_t i = 0; i < side_count(&world.sides[OWNER], FABRIC_MESSAGE); i++)
        fabric_message_release(passive,
                               side_event(&world.sides[OWNER], FABRIC_MESSAGE, i)->message);
    fabric_flush(world.sides[OWNER].endpoint);
    assert_true(is_rung(SENDER));
    wake_up(SENDER);
    assert_int_equal(send_one(conn, 1000), 0);
    assert_true(sent > 0);
}

TEST(a_segment_wakes_a_sender_that_had_none)
{
    post_block(0);
    fall_asleep(SENDER);
    assert_int_equal(fabric_zone_post(world.sides[OWNER].zone, 0, 0), 0);
    assert_true(is_rung(SENDER));
    wake_up(SENDER);
    side_poll(&world, SENDER);
    assert_int_equal(side_count(&world.sides[SENDER], FABRIC_LANDED), 1);
}

TEST(a_full_segment_wakes_its_owner)
{
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(fabric_zone_post(world.sides[OWNER].zone, (uint64_t)i * SEGMENT, i), 0);
    fall_asleep(OWNER);
    for (uint32_t i = 0; i < FIT; i++)
        post_block(i);
    assert_false(is_woken(OWNER)); /* landing wakes nobody */
    side_poll(&world, SENDER);
    post_block(FIT);
    assert_true(is_rung(OWNER));
    wake_up(OWNER);
    side_poll(&world, OWNER);
    assert_int_equal(side_count(&world.sides[OWNER], FABRIC_SEALED), 1);
}

TEST(a_connection_and_its_end_wake)
{
    struct fabric_conn *other;
    uint32_t accepted;

    accepted = side_count(&world.sides[OWNER], FABRIC_ACCEPTED);
    fall_asleep(OWNER);
    assert_int_equal(fabric_connect(world.sides[OTHER].endpoint, host.backend.address(&host, OWNER),
                                    0, 0, &other),
                     0);
    assert_true(is_woken(OWNER));
    wake_up(OWNER);
    host.skipped_ns += SHM_SLEPT_CHECK_NS;
    side_poll(&world, OWNER);
    assert_int_equal(side_count(&world.sides[OWNER], FABRIC_ACCEPTED), accepted + 1);
    fall_asleep(OWNER);
    assert_false(is_woken(OWNER));
    fabric_conn_close(conn);
    assert_true(is_woken(OWNER));
    wake_up(OWNER);
    host.skipped_ns += SHM_SLEPT_CHECK_NS;
    side_poll(&world, OWNER);
    assert_int_equal(side_count(&world.sides[OWNER], FABRIC_CLOSED), 1);
}

/* A peer that found the sleep's number and was stopped before it wrote. */
TEST(a_ring_too_late_for_its_sleep_ends_few_others)
{
    unsigned sleeps = 0;

    fall_asleep(OWNER);
    wake_up(OWNER);
    assert_int_equal(send(((struct shm_conn *)conn)->socket_fd, "", 1, 0), 1);
    for (fall_asleep(OWNER); is_woken(OWNER); fall_asleep(OWNER)) {
        assert_true(++sleeps < 3);
        wake_up(OWNER);
        host.skipped_ns += SHM_SLEPT_CHECK_NS;
        side_poll(&world, OWNER);
    }
    wake_up(OWNER);
}

TEST(what_only_time_brings_sets_the_timer)
{
    struct pollfd wait = {.fd = source_of(OTHER).fd, .events = POLLIN};
    struct fabric_conn *other;

    fall_asleep(OTHER); /* nothing to wait for */
    assert_int_equal(poll(&wait, 1, 30), 0);
    wake_up(OTHER);
    /* The owner is not polled: no answer will come, and the handshake has a limit. */
    assert_int_equal(fabric_connect(world.sides[OTHER].endpoint, host.backend.address(&host, OWNER),
                                    0, 0, &other),
                     0);
    fall_asleep(OTHER);
    assert_int_equal(poll(&wait, 1, 20000), 1);
    host.skipped_ns += 2 * SHM_HANDSHAKE_NS;
    wake_up(OTHER);
    side_poll(&world, OTHER);
    host.skipped_ns += 2 * SHM_HANDSHAKE_NS;
    fall_asleep(OTHER);
    side_poll(&world, OTHER);
    assert_int_equal(side_count(&world.sides[OTHER], FABRIC_CLOSED), 1);
}

UNIT_MAIN(NULL, NULL)
