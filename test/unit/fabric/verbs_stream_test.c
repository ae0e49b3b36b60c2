/* verbs_stream_test.c - messages over datagrams, where the network loses what the test wants lost and time goes
 * on as the test wants it. */
#define TEST_FIXTURE open_stream, close_ends

#include "test/lib/unit.h"
#include "test/unit/fabric/verbs_ends.h"

enum { MANY_POLLS = 2000 };

static uint32_t checked; /* messages at side 0 */

static int open_stream(void **state)
{
    checked = 0;
    return open_ends(state);
}

static void lose(uint32_t of_1000)
{
    soft_verbs_faults(&(struct soft_faults){.drop = of_1000});
}

static void time_passes(uint64_t ns)
{
    clock_ns += ns;
}

static int try_send(uint32_t number, uint32_t bytes)
{
    static uint8_t data[FABRIC_MAX_MESSAGE_BYTES];
    const struct fabric_iov iov = {data, bytes};

    pattern_fill(data, bytes, number);
    return fabric_send(active, &iov, 1);
}

static void send_one(uint32_t number, uint32_t bytes)
{
    assert_int_equal(try_send(number, bytes), 0);
    fabric_flush(world.sides[1].endpoint);
}

/* All that came to side 0 since the last call is whole and in order; is released or held. */
static void check_messages(bool release)
{
    for (; checked < side_count(&world.sides[0], FABRIC_MESSAGE); checked++) {
        const struct fabric_event *event = side_event(&world.sides[0], FABRIC_MESSAGE, checked);

        assert_true(pattern_is(event->data, event->bytes, checked));
        if (release)
            fabric_message_release(event->conn, event->message);
    }
}

static const struct verbs_packets *packets_of(unsigned side)
{
    return ((const struct verbs_endpoint *)world.sides[side].endpoint)->packets;
}

/* --- loss --- */

static void lose_the_first_of(uint32_t count)
{
    lose(1000);
    send_one(0, 100);
    side_poll(&world, 1);
    lose(0);
    tick_ns = 0; /* no timer runs out */
    for (uint32_t i = 1; i < count; i++)
        send_one(i, 100);
    side_poll(&world, 0);
}

TEST(what_is_overtaken_is_sent_again_before_any_timer_runs_out)
{
    struct soft_stats stats;

    lose_the_first_of(40);
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 0);
    assert_int_equal(packets_of(0)->in_place, 39); /* they wait where they lie */
    world_poll_times(&world, MANY_POLLS);
    check_messages(true);
    assert_int_equal(checked, 40);
    assert_int_equal(packets_of(0)->in_place, 0);
    soft_verbs_stats(&stats);
    assert_int_equal(stats.ud_lost, 1);
}

TEST(what_is_sent_again_and_lost_again_is_sent_once_more)
{
    struct soft_stats stats;

    lose_the_first_of(20);
    assert_int_equal(near->stream->order[0], 1);
    side_poll(&world, 1); /* the answer comes, and the second copy is posted */
    assert_int_equal(near->stream->order[0], 21);
    lose(1000);
    side_poll(&world, 1); /* it leaves */
    lose(0);
    for (uint32_t i = 20; i < 50; i++)
        send_one(i, 100);
    world_poll_times(&world, MANY_POLLS);
    check_messages(true);
    assert_int_equal(checked, 50);
    soft_verbs_stats(&stats);
    assert_int_equal(stats.ud_lost, 2);
}

TEST(what_came_early_is_given_back_when_the_connection_ends)
{
    lose_the_first_of(30);
    assert_int_equal(packets_of(0)->in_place, 29);
    tick_ns = 1000;
    fabric_conn_close(active);
    world_wait(&world, 0, FABRIC_CLOSED, 1);
    world_poll_times(&world, 10);
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 0);
    assert_int_equal(packets_of(0)->in_place, 0);
}

TEST(numbers_go_on_behind_the_last_one)
{
    const uint32_t number = UINT32_MAX - 40;
    struct verbs_stream *out = near->stream, *in = far->stream;
    struct random random;
    uint32_t sent = 0;

    out->next_sequence = out->send_next = out->sent = out->acked = number;
    out->posts = out->newest = number;
    in->expected = number;
    out->limit = in->told_limit = number + STREAM_WINDOW;
    random_init(&random, 1);
    soft_verbs_faults(
        &(struct soft_faults){.drop = 50, .duplicate = 50, .reorder = 100, .delay_polls = 4});
    while (sent < 300 || checked < 300) {
        if (sent < 300 && try_send(sent, 1 + (uint32_t)random_below(&random, 5000)) == 0)
            sent++;
        world_poll(&world);
        check_messages(true);
        assert_int_equal(side_count(&world.sides[1], FABRIC_CLOSED), 0);
        assert_true(clock_ns < 100 * NS_PER_S);
    }
    assert_true(out->acked < number);
}

/* --- acknowledgements and windows --- */

static uint32_t fill(uint32_t from)
{
    for (unsigned idle = 0; idle < MANY_POLLS; idle++) {
        while (try_send(from, 2000) == 0) {
            from++;
            idle = 0;
        }
        world_poll(&world);
    }
    return from;
}

TEST(a_peer_that_answers_may_keep_its_window_shut)
{
    uint32_t sent;

    sent = fill(0);
    assert_true(near->stream->cursor != NULL); /* more waits than the peer takes */
    for (unsigned i = 0; i < 600; i++) {       /* a minute */
        time_passes(NS_PER_S / 10);
        world_poll_times(&world, 5);
    }
    assert_int_equal(side_count(&world.sides[1], FABRIC_CLOSED), 0);
    assert_true(side_count(&world.sides[0], FABRIC_MESSAGE) < sent);
    check_messages(true); /* opens it */
    for (unsigned i = 0; checked < sent && i < MANY_POLLS; i++) {
        world_poll(&world);
        check_messages(true);
    }
    assert_int_equal(checked, sent);
    assert_true(fill(sent) > sent);
}

/* --- silence --- */

TEST(a_peer_that_leaves_messages_unanswered_is_gone_after_5_s)
{
    send_one(0, 100);
    for (unsigned i = 0; i < 48; i++) {
        time_passes(NS_PER_S / 10);
        side_poll(&world, 1);
        side_poll(&world, 1);
    }
    assert_int_equal(side_count(&world.sides[1], FABRIC_CLOSED), 0);
    for (unsigned i = 0; i < 10; i++) {
        time_passes(NS_PER_S / 10);
        side_poll(&world, 1);
        side_poll(&world, 1);
    }
    assert_int_equal(side_count(&world.sides[1], FABRIC_CLOSED), 1);
    assert_int_equal(side_event(&world.sides[1], FABRIC_CLOSED, 0)->error, ROWAN_ECLOSED);
}

TEST(a_peer_that_is_asked_nothing_may_be_silent)
{
    send_one(0, 100);
    world_poll_times(&world, MANY_POLLS);
    for (unsigned i = 0; i < 100; i++) {
        time_passes(NS_PER_S);
        side_poll(&world, 1);
    }
    assert_int_equal(side_count(&world.sides[1], FABRIC_CLOSED), 0);
}

TEST(who_stood_still_himself_closes_nobody)
{
    lose(1000);
    send_one(0, 100);
    side_poll(&world, 1);
    lose(0);
    time_passes(60 * NS_PER_S);
    world_wait(&world, 0, FABRIC_MESSAGE, 1);
    world_poll_times(&world, MANY_POLLS);
    assert_int_equal(side_count(&world.sides[1], FABRIC_CLOSED), 0);
}

/* --- what is not of this connection --- */

static void inject(uint32_t token, uint32_t sequence)
{
    const struct packet_head head = {.connection = near->theirs.connection,
                                     .token = token,
                                     .sequence = sequence,
                                     .limit = STREAM_WINDOW,
                                     .flags = PACKET_DATA | PACKET_FIRST | PACKET_LAST};

    verbs_packet_add(near, &head, NULL, 0, 0);
    verbs_packets_push(near->endpoint);
    world_poll_times(&world, 100);
}

TEST(datagrams_of_an_earlier_connection_of_that_number_are_dropped)
{
    const uint32_t number = far->base.number, token = far->token;

    fabric_conn_close(active);
    world_wait(&world, 0, FABRIC_CLOSED, 1);
    world_poll_times(&world, 100);
    connect_ends();
    assert_int_equal(far->base.number, number);
    assert_int_equal(near->theirs.connection, number);
    inject(token, 0);
    inject(near->theirs.token ^ 1, 0);
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 0);
    inject(near->theirs.token, 0); /* else it would have come */
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 1);
    inject(near->theirs.token, 0); /* twice */
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 1);
}

/* --- broken queue pairs --- */

static void break_datagrams_of(unsigned side)
{
    uint32_t messages;

    for (uint32_t i = 0; i < 60; i++)
        send_one(i, 3000);
    side_poll(&world, 0);
    assert_true(soft_verbs_break_qp(packets_of(side)->qp->qp_num));
    world_wait(&world, 1, FABRIC_CLOSED, 1);
    world_wait(&world, 0, FABRIC_CLOSED, 1);
    check_messages(false); /* they are the first ones, each once */
    messages = checked;
    assert_true(messages < 60);
    connect_ends();
    for (uint32_t i = messages; i < 60; i++) {
        send_one(i, 3000);
        world_wait(&world, 0, FABRIC_MESSAGE, i + 1);
        check_messages(true);
    }
    assert_int_equal(side_count(&world.sides[0], FABRIC_CLOSED), 1);
}

TEST(when_the_senders_datagrams_fail_the_next_connection_works)
{
    break_datagrams_of(1);
}

TEST(when_the_receivers_datagrams_fail_the_next_connection_works)
{
    break_datagrams_of(0);
}

/* --- many --- */

TEST(idle_connections_cost_a_poll_nothing)
{
    enum { IDLE = 64 };

    for (unsigned i = 0; i < IDLE; i++) {
        connect_ends();
        send_one(checked, 100);
        world_wait(&world, 0, FABRIC_MESSAGE, i + 1);
        check_messages(true);
    }
    world_poll_times(&world, MANY_POLLS);
    for (unsigned side = 0; side < 2; side++) {
        const struct verbs_endpoint *endpoint =
            (const struct verbs_endpoint *)world.sides[side].endpoint;

        assert_int_equal(endpoint->base.counts[LIST_ALL], IDLE + 1);
        for (unsigned kind = LIST_ALL + 1; kind < VERBS_LISTS; kind++)
            assert_int_equal(endpoint->base.counts[kind], 0);
        assert_true(verbs_stream_wake_ns(endpoint) == UINT64_MAX);
    }
}

UNIT_MAIN(NULL, NULL)
