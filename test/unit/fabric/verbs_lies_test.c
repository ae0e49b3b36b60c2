/* verbs_lies_test.c - datagrams of a peer that lies, on devices made of software: they end its connection
 * and nothing else. And what must wake an endpoint that sleeps. */
#define TEST_FIXTURE open_ends, close_ends

#include <sys/timerfd.h>

#include "test/lib/unit.h"
#include "test/unit/fabric/verbs_ends.h"

/* Side 1 says so to side 0. */
static void forge(struct packet_head head)
{
    head.connection = near->theirs.connection;
    head.token = near->theirs.token;
    verbs_packet_add(near, &head, NULL, 0, 0);
    verbs_packets_push(near->endpoint);
}

static void expect_refused(void)
{
    world_wait(&world, 0, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[0], FABRIC_CLOSED, 0)->error, ROWAN_EFORMAT);
    assert_int_equal(fabric_send(passive, NULL, 0), ROWAN_ECLOSED);
}

/* A peer of another version: its tcp is ours, its hello is not. Both are told why they cannot talk. */
TEST(a_hello_of_other_layouts_is_answered_with_the_reason)
{
    struct verbs_hello hello = verbs_hello_make(VERBS_HELLO), answer;
    const struct fabric_iov piece = {&hello, sizeof hello};
    struct verbs_endpoint *peer = far->endpoint;
    struct fabric_conn *control;
    const uint64_t end_ns = ticking_ns(NULL) + 60 * NS_PER_S;
    struct fabric_event event;
    char address[64];

    hello.layouts = (struct greeting_layouts){VERSION_VERBS_HIGHEST + 1, VERSION_VERBS_HIGHEST + 2};
    snprintf(address, sizeof address, "tcp%s", strchr(host_address(&host, 1), ':'));
    assert_int_equal(fabric_connect(peer->control, address, 0, 0, &control), 0);
    for (event.kind = FABRIC_ACCEPTED; event.kind != FABRIC_MESSAGE;) {
        assert_true(ticking_ns(NULL) < end_ns);
        side_poll(&world, 1);
        if (fabric_poll(peer->control, ticking_ns(NULL), &event, 1) == 0)
            event.kind = FABRIC_ACCEPTED;
        if (event.kind == FABRIC_CONNECTED)
            assert_int_equal(fabric_send(control, &piece, 1), 0);
        assert_int_not_equal(event.kind, FABRIC_CLOSED);
        fabric_flush(peer->control);
    }
    memcpy(&answer, event.data, sizeof answer);
    assert_int_equal(answer.kind, VERBS_REFUSAL);
    assert_int_equal(answer.error, ROWAN_EINCOMPATIBLE);
    assert_int_equal(answer.layouts.highest, VERSION_VERBS_HIGHEST);
    fabric_conn_close(control);
    assert_int_equal(side_count(&world.sides[1], FABRIC_ACCEPTED), 0);
}

/* Of what was not sent; half of all numbers away: neither behind what was sent nor before it. */
TEST(an_acknowledgement_of_nonsense_is_garbage)
{
    static const uint32_t ahead[] = {1, UINT32_C(1) << 31};

    for (unsigned i = 0; i < 2; i++) {
        const uint32_t acked = far->stream->acked + ahead[i];

        forge((struct packet_head){.acked = acked, .limit = acked + 63});
        expect_refused();
        if (i == 0) {
            close_ends(state);
            open_ends(state);
        }
    }
}

/* Likewise, with head.bytes of payload, as the next datagram that side 0 expects. */
static void forge_data(struct packet_head head, uint32_t ahead)
{
    struct verbs_slab *slab = verbs_slab_get(&near->endpoint->messages.out, head.bytes + 1);

    head.flags |= PACKET_DATA;
    head.connection = near->theirs.connection;
    head.token = near->theirs.token;
    head.sequence = far->stream->expected + ahead;
    head.acked = far->stream->acked;
    head.limit = head.acked + STREAM_WINDOW;
    verbs_packet_add(near, &head, slab->data, head.bytes, slab->key);
    verbs_packets_push(near->endpoint);
}

/* Behind 600 of 1000 bytes. */
TEST(pieces_that_do_not_make_up_their_message_are_garbage)
{
    static const struct packet_head lies[] = {
        {.message_bytes = 1000, .bytes = 900},                       /* longer than the rest */
        {.message_bytes = 1000, .bytes = 900, .flags = PACKET_LAST}, /* likewise */
        {.message_bytes = 1000, .bytes = 300, .flags = PACKET_LAST}, /* shorter */
        {.message_bytes = 1000, .bytes = 400},                       /* and more will come */
        {.message_bytes = 1001, .bytes = 100},                       /* of another message */
        {.message_bytes = 1000, .bytes = 0},
        {.message_bytes = 1000, .bytes = 600, .flags = PACKET_FIRST}, /* which has come */
        {.message_bytes = 400, .bytes = 400, .flags = PACKET_FIRST | PACKET_LAST},
    };
    enum { COUNT = sizeof lies / sizeof lies[0] };

    for (unsigned i = 0; i < COUNT; i++) {
        if (i > 0)
            open_ends(state);
        forge_data((struct packet_head){.message_bytes = 1000, .bytes = 600, .flags = PACKET_FIRST},
                   0);
        forge_data(lies[i], 1);
        expect_refused();
        assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 0);
        if (i + 1 < COUNT)
            close_ends(state);
    }
}

/* What the cases of lies are told from: the same first piece, and a right second one. */
TEST(pieces_that_make_up_their_message_arrive)
{
    forge_data((struct packet_head){.message_bytes = 1000, .bytes = 600, .flags = PACKET_FIRST}, 0);
    forge_data((struct packet_head){.message_bytes = 1000, .bytes = 400, .flags = PACKET_LAST}, 1);
    world_wait(&world, 0, FABRIC_MESSAGE, 1);
    assert_int_equal(side_event(&world.sides[0], FABRIC_MESSAGE, 0)->bytes, 1000);
    assert_int_equal(side_count(&world.sides[0], FABRIC_CLOSED), 0);
}

static uint64_t timer_ns(const struct verbs_endpoint *endpoint)
{
    struct itimerspec left;

    assert_int_equal(timerfd_gettime(endpoint->base.timer_fd, &left), 0);
    if (left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0) /* on a slow host it has run out */
        return endpoint->base.timer_on;
    return (uint64_t)left.it_value.tv_sec * NS_PER_S + (uint64_t)left.it_value.tv_nsec;
}

/* The datagram's own completion may come behind its acknowledgement, in a poll that looks at no deadlines: then
 * nothing of the device says any more that the message's memory is free. */
TEST(a_message_that_was_acknowledged_first_keeps_the_timer_running)
{
    struct verbs_endpoint *endpoint = far->endpoint;
    struct event_source source;

    assert_int_equal(fabric_send(passive, NULL, 0), 0);
    fabric_flush(&endpoint->base.base);
    far->stream->first->last_post = endpoint->packets->posted + 1; /* sent again a moment ago */
    while (!conn_is_listed(&far->base, LIST_DRAINING))
        world_poll(&world);
    fabric_endpoint_source(&endpoint->base.base, &source);
    source.arm(source.context);
    side_poll(&world, 0);
    assert_in_range(timer_ns(endpoint), 1, VERBS_CHECK_NS);
    far->stream->first->last_post--;
    for (unsigned i = 0; far->stream->first; i++) {
        assert_true(i < 100000);
        world_poll(&world);
    }
    source.disarm(source.context);
}

/* A timer that was set for later does not keep a datagram that is sent in a sleep from being sent again. */
TEST(what_is_sent_while_armed_sets_an_earlier_timer)
{
    struct verbs_endpoint *endpoint = far->endpoint;
    const struct itimerspec later = {.it_value = {.tv_sec = 1000}};
    struct event_source source;

    fabric_endpoint_source(&endpoint->base.base, &source);
    source.arm(source.context);
    side_poll(&world, 0);
    assert_int_equal(timerfd_settime(endpoint->base.timer_fd, 0, &later, NULL), 0);
    endpoint->base.timer_on = true;
    assert_int_equal(fabric_send(passive, NULL, 0), 0);
    fabric_flush(&endpoint->base.base);
    assert_in_range(timer_ns(endpoint), 1, NS_PER_S);
    source.disarm(source.context);
}

UNIT_MAIN(NULL, NULL)
