/* verbs_limits_test.c - what is bounded in the verbs backend: the time of a message, how often memory is asked for
 * in vain; and what happens when the device itself has failed. Time goes on as the test wants it. */
#define TEST_FIXTURE open_limits, close_ends

#include <poll.h>

#include "test/lib/unit.h"
#include "test/unit/fabric/verbs_ends.h"

enum { MESSAGE = 100000 };

#define MOST_S (PARTIAL_NS / NS_PER_S)

static uint32_t sequence; /* of the next datagram that is made by hand */

static int open_limits(void **state)
{
    sequence = 0;
    return open_ends(state);
}

static uint32_t closed(unsigned side)
{
    return side_count(&world.sides[side], FABRIC_CLOSED);
}

static void poll_receiver(void)
{
    for (unsigned i = 0; i < 300; i++) /* longer than VERBS_CHECK_NS */
        side_poll(&world, 0);
}

/* --- the time of a message --- */

/* A datagram of side 1, which is not polled any more: only this comes of it. */
static void datagram(unsigned flags, uint32_t bytes, uint32_t message_bytes)
{
    const struct packet_head head = {.connection = near->theirs.connection,
                                     .token = near->theirs.token,
                                     .sequence = sequence++,
                                     .limit = STREAM_WINDOW,
                                     .flags = (uint16_t)(PACKET_DATA | flags),
                                     .bytes = (uint16_t)bytes,
                                     .message_bytes = message_bytes};

    verbs_packet_add(near, &head, pm_at(world.sides[1].pm, 0), bytes,
                     endpoint_of(1)->fabric->base.regions.all[0].key);
    verbs_packets_push(near->endpoint);
}

/* A second goes by, in which the message grows. */
static void drip(void)
{
    clock_ns += NS_PER_S;
    datagram(0, 100, MESSAGE);
    poll_receiver();
}

TEST(a_message_that_drips_for_10_s_ends_its_connection)
{
    datagram(PACKET_FIRST, 100, MESSAGE);
    poll_receiver();
    assert_int_equal(far->base.partial.need, MESSAGE);
    for (uint64_t s = 1; s < MOST_S; s++)
        drip();
    assert_int_equal(closed(0), 0);
    assert_int_equal(far->base.partial.got, 100 * MOST_S);
    drip();
    assert_int_equal(closed(0), 1);
    assert_int_equal(side_event(&world.sides[0], FABRIC_CLOSED, 0)->error, ROWAN_ECLOSED);
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 0);
}

TEST(messages_one_after_the_other_take_as_long_as_they_like)
{
    for (unsigned i = 0; i < 3; i++) {
        datagram(PACKET_FIRST, 100, 700);
        for (unsigned s = 0; s < 5; s++) {
            clock_ns += NS_PER_S;
            datagram(0, 100, 700);
            poll_receiver();
        }
        datagram(PACKET_LAST, 100, 700);
        poll_receiver();
    }
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 3);
    clock_ns += 2 * PARTIAL_NS;
    poll_receiver();
    assert_int_equal(closed(0), 0);
}

static void release_all(void)
{
    for (uint32_t i = 0; i < side_count(&world.sides[0], FABRIC_MESSAGE); i++)
        fabric_message_release(passive, side_event(&world.sides[0], FABRIC_MESSAGE, i)->message);
}

TEST(while_the_owner_holds_too_much_no_time_counts)
{
    const uint32_t whole = far->stream->payload, count = STREAM_HELD_BYTES / whole + 1;

    for (uint32_t i = 0; i < count; i++) {
        datagram(PACKET_FIRST | PACKET_LAST, whole, whole);
        if (i % 16 == 15)
            poll_receiver();
    }
    poll_receiver();
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), count);
    datagram(PACKET_FIRST, 100, MESSAGE);
    poll_receiver();
    assert_int_equal(far->base.partial.got, 100);
    for (uint64_t s = 0; s < 3 * MOST_S; s++) {
        clock_ns += NS_PER_S;
        poll_receiver();
    }
    assert_int_equal(closed(0), 0);
    release_all();
    for (uint64_t s = 1; s < MOST_S; s++)
        drip();
    assert_int_equal(closed(0), 0); /* it has its time from when there was room */
    drip();
    assert_int_equal(closed(0), 1);
}

/* --- memory that is refused --- */

static uint64_t refused(void)
{
    struct soft_stats stats;

    soft_verbs_stats(&stats);
    return stats.unlocked;
}

static int send_large(void)
{
    static uint8_t data[MESSAGE];
    const struct fabric_iov iov = {data, sizeof data};

    return fabric_send(active, &iov, 1);
}

TEST(a_sender_asks_for_memory_that_was_refused_after_a_pause_only)
{
    soft_verbs_lock_limit("soft1", 1);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(send_large(), ROWAN_EAGAIN);
        side_poll(&world, 1);
    }
    assert_int_equal(refused(), 1);
    clock_ns += STREAM_REFUSED_NS;
    poll_receiver();
    side_poll(&world, 1);
    assert_int_equal(send_large(), ROWAN_EAGAIN);
    assert_int_equal(refused(), 2);
    soft_verbs_lock_limit("soft1", 0);
    assert_int_equal(send_large(), ROWAN_EAGAIN);
    clock_ns += STREAM_REFUSED_NS;
    side_poll(&world, 1);
    assert_int_equal(send_large(), 0);
    world_wait(&world, 0, FABRIC_MESSAGE, 1);
}

/* Whoever releases a message wakes those that wait for memory. */
TEST(a_receiver_asks_for_memory_that_was_refused_after_a_pause_only)
{
    const struct fabric_iov small = {"abc", 3};
    struct fabric_conn *other, *others;
    uint64_t began_ns = 0;

    world_connect(&world, 1, 0, 0, &other, &others);
    for (uint32_t i = 0; i < 100; i++) {
        if (i == 1) {
            assert_int_equal(send_large(), 0); /* the sender has its memory */
            soft_verbs_lock_limit("soft1", 1);
            began_ns = clock_ns;
        }
        assert_int_equal(fabric_send(other, &small, 1), 0);
        world_wait(&world, 0, FABRIC_MESSAGE, i + 1);
        fabric_message_release(others, side_event(&world.sides[0], FABRIC_MESSAGE, i)->message);
        world_poll_times(&world, 10);
    }
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 100);
    assert_true(refused() >= 1 && refused() <= 1 + (clock_ns - began_ns) / STREAM_REFUSED_NS);
    soft_verbs_lock_limit("soft1", 0);
    clock_ns += STREAM_REFUSED_NS;
    world_wait(&world, 0, FABRIC_MESSAGE, 101);
    assert_int_equal(side_event(&world.sides[0], FABRIC_MESSAGE, 100)->bytes, MESSAGE);
}

TEST(who_found_no_memory_is_asked_again_after_a_pause)
{
    assert_int_equal(send_large(), 0);
    soft_verbs_lock_limit("soft1", 1);
    for (unsigned i = 0; !conn_is_listed(&far->base, LIST_NO_MEMORY); i++) {
        assert_true(i < 10000);
        world_poll(&world);
    }
    poll_receiver();
    assert_true(conn_is_listed(&far->base, LIST_NO_MEMORY));
    clock_ns += STREAM_REFUSED_NS;
    poll_receiver();
    assert_false(conn_is_listed(&far->base, LIST_NO_MEMORY));
}

/* --- a device that has failed --- */

static void assert_failed(unsigned side)
{
    struct fabric_conn *conn;

    assert_int_equal(fabric_endpoint_error(world.sides[side].endpoint), ROWAN_EIO);
    assert_int_equal(closed(side), 1);
    assert_int_equal(side_event(&world.sides[side], FABRIC_CLOSED, 0)->error, ROWAN_EIO);
    assert_int_equal(
        fabric_connect(world.sides[side].endpoint, host_address(&host, !side), 0, 0, &conn),
        ROWAN_EIO);
}

TEST(an_endpoint_whose_completions_cannot_be_read_has_failed)
{
    struct fabric_conn *late;

    assert_int_equal(fabric_endpoint_error(world.sides[1].endpoint), 0);
    soft_verbs_break_cq(endpoint_of(1)->cq);
    side_poll(&world, 1);
    assert_failed(1);
    world_wait(&world, 0, FABRIC_CLOSED, 1);
    assert_int_equal(fabric_endpoint_error(world.sides[0].endpoint), 0); /* it is of no other's */
    assert_int_equal(fabric_connect(world.sides[0].endpoint, host_address(&host, 1), 0, 0, &late),
                     0);
    world_wait(&world, 0, FABRIC_CLOSED, 2);
    assert_int_equal(side_event(&world.sides[0], FABRIC_CLOSED, 1)->error, ROWAN_EIO);
    world_poll_times(&world, 100);
    assert_int_equal(closed(1), 1);
}

/* What lands would never be seen any more. */
TEST(an_endpoint_whose_landings_cannot_be_seen_has_failed)
{
    struct fabric_conn *sender, *receiver;

    side_open_zone(&world, 1, 2, 1);
    world_connect(&world, 0, 1, 0, &sender, &receiver);
    assert_int_equal(world_add_block(&world, 0, sender, 0, 0, 64), 0);
    assert_int_equal(fabric_rowan_post(sender, 0), 0);
    world_wait(&world, 0, FABRIC_LANDED, 1);
    soft_verbs_break_cq(((struct verbs_conn *)receiver)->rc->qp->recv_cq);
    side_poll(&world, 1);
    assert_int_equal(fabric_endpoint_error(world.sides[1].endpoint), ROWAN_EIO);
    world_wait(&world, 0, FABRIC_CLOSED, 2);
    assert_int_equal(closed(1), 2);
    assert_int_equal(fabric_endpoint_error(world.sides[0].endpoint), 0);
    assert_int_equal(side_count(&world.sides[1], FABRIC_SEALED), 0);
}

TEST(endpoints_of_a_device_that_says_so_have_failed)
{
    static const enum ibv_event_type events[] = {IBV_EVENT_DEVICE_FATAL, IBV_EVENT_CQ_ERR,
                                                 IBV_EVENT_SRQ_ERR};

    for (unsigned i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (i > 0)
            open_limits(state);
        soft_verbs_device_event("soft1", events[i]);
        clock_ns += VERBS_CHECK_NS;
        side_poll(&world, 1);
        side_poll(&world, 1);
        assert_int_equal(fabric_endpoint_error(world.sides[1].endpoint), ROWAN_EIO);
        world_wait(&world, 0, FABRIC_CLOSED, 1);
        clock_ns += VERBS_CHECK_NS;
        side_poll(&world, 0);
        assert_int_equal(fabric_endpoint_error(world.sides[0].endpoint), ROWAN_EIO);
        if (i + 1 < sizeof events / sizeof events[0])
            close_ends(state);
    }
}

/* Asleep, too: what the device says wakes the endpoint, and the role's poll finds it. */
TEST(the_failure_of_a_device_wakes_who_sleeps)
{
    struct event_source source;

    fabric_endpoint_source(world.sides[1].endpoint, &source);
    world_poll_times(&world, 1000);
    source.arm(source.context);
    side_poll(&world, 1);
    assert_int_equal(poll(&(struct pollfd){.fd = source.fd, .events = POLLIN}, 1, 0), 0);
    soft_verbs_device_event("soft1", IBV_EVENT_CQ_ERR);
    assert_int_equal(poll(&(struct pollfd){.fd = source.fd, .events = POLLIN}, 1, 20000), 1);
    source.disarm(source.context);
    side_poll(&world, 1);
    side_poll(&world, 1);
    assert_failed(1);
}

TEST(a_queue_pair_that_cannot_be_replaced_is_a_failure)
{
    assert_true(soft_verbs_break_qp(endpoint_of(1)->packets->qp->qp_num));
    soft_verbs_fail_call(1, EIO);
    for (unsigned i = 0; fabric_endpoint_error(world.sides[1].endpoint) == 0; i++) {
        assert_true(i < 100); /* all that was flushed is polled first */
        side_poll(&world, 1);
    }
    assert_int_equal(closed(1), 1);
}

UNIT_MAIN(NULL, NULL)
