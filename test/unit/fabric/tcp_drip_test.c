/* tcp_drip_test.c - messages that come a few bytes at a time, from a peer made of a plain socket. Time goes on as the
 * test wants it. */
#define TEST_FIXTURE open_client, close_client

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"
#include "test/lib/tcp_raw.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { PM_BYTES = 1 << 20, SOME = 100, MOST_S = PARTIAL_NS / NS_PER_S };

static uint64_t clock_ns;
static int fd; /* the peer */
static const struct partial *in;

static uint64_t ticking_ns(void *context)
{
    (void)context;
    return clock_ns += NS_PER_US;
}

static struct tcp_endpoint *endpoint(void)
{
    return (struct tcp_endpoint *)world.sides[0].endpoint;
}

static int open_client(void **state)
{
    struct tcp_greeting hello = raw_hello(1000, 0);
    struct sockaddr_in address;

    (void)state;
    host_init(&host, OVER_TCP);
    host.backend.now_ns = ticking_ns;
    clock_ns = NS_PER_S;
    world_open(&world, &host.backend, 1, PM_BYTES);
    address = host_sockaddr(&host, 0, 0);
    fd = raw_connect(&address);
    hello.identity.kind = FABRIC_CLIENT;
    if (fd < 0 || !raw_send(fd, &hello, sizeof hello))
        return -1;
    world_wait(&world, 0, FABRIC_ACCEPTED, 1);
    in = &((struct tcp_conn *)side_event(&world.sides[0], FABRIC_ACCEPTED, 0)->conn)->base.partial;
    return 0;
}

static int close_client(void **state)
{
    close(fd);
    return close_host(state);
}

static void poll_for_a_while(void)
{
    world_poll_times(&world, 2 * TCP_CHECK_NS / NS_PER_US);
}

/* Sends, and polls until it is there: `got` bytes of a cut message. */
static void send_part(const void *data, uint32_t bytes, uint32_t got)
{
    assert_true(raw_send(fd, data, bytes));
    for (uint32_t i = 0; in->got != got; i++) {
        assert_true(i < 10 * 1000 * 1000 && side_count(&world.sides[0], FABRIC_CLOSED) == 0);
        side_poll(&world, 0);
    }
}

static void begin(uint64_t number, uint32_t bytes)
{
    const struct tcp_message_head head = {
        .magic = TCP_MESSAGE_MAGIC, .bytes = bytes, .number = number};

    send_part(&head, sizeof head, sizeof head);
}

/* Until `s` seconds have gone by since the message was begun; it grows once in each. */
static void drip(uint64_t s)
{
    static const uint8_t some[SOME];
    const uint64_t began_ns = in->begun_ns;

    for (uint64_t i = 1; i <= s; i++) {
        clock_ns = began_ns + i * NS_PER_S - NS_PER_S / 2;
        send_part(some, SOME, in->got + SOME);
    }
    clock_ns = began_ns + s * NS_PER_S;
}

TEST(a_message_that_drips_for_10_s_ends_its_connection)
{
    begin(0, 1 << 20);
    drip(MOST_S);
    clock_ns -= NS_PER_S / 2;
    poll_for_a_while();
    assert_int_equal(side_count(&world.sides[0], FABRIC_CLOSED), 0);
    clock_ns += NS_PER_S / 2;
    poll_for_a_while();
    assert_int_equal(side_count(&world.sides[0], FABRIC_CLOSED), 1);
    assert_int_equal(side_event(&world.sides[0], FABRIC_CLOSED, 0)->error, ROWAN_ECLOSED);
    assert_int_equal(side_count(&world.sides[0], FABRIC_MESSAGE), 0);
    assert_int_equal(endpoint()->base.counts[LIST_BEGUN], 0);
}

TEST(messages_one_after_the_other_take_as_long_as_they_like)
{
    static const uint8_t some[SOME];

    for (uint32_t i = 0; i < 3; i++) {
        begin(i, 5 * SOME + 4);
        drip(4);
        assert_true(raw_send(fd, some, SOME));
        assert_true(raw_send(fd, some, 4));
        world_wait(&world, 0, FABRIC_MESSAGE, i + 1);
        assert_int_equal(endpoint()->base.counts[LIST_BEGUN], 0);
    }
    clock_ns += 2 * PARTIAL_NS;
    poll_for_a_while();
    assert_int_equal(side_count(&world.sides[0], FABRIC_CLOSED), 0);
}

TEST(what_is_cut_while_we_find_no_memory_has_its_time_afterwards)
{
    struct tcp_slabs *slabs = &endpoint()->slabs;
    struct tcp_slab *taken[TCP_CHUNKS];
    uint32_t count = 0;
    static const uint8_t some[SOME];

    begin(0, 1 << 20);
    struct tcp_slab *const full = slabs->chunk;
    full->used = TCP_CHUNK_BYTES; /* as if it were full, and others had all the rest */
    full->refs++;
    while (count < TCP_CHUNKS && (taken[count] = slab_take(endpoint(), SLAB_CHUNK)))
        count++;
    assert_true(raw_send(fd, some, SOME));
    while (endpoint()->base.counts[LIST_NO_MEMORY] == 0)
        side_poll(&world, 0);
    for (unsigned s = 0; s < 3 * MOST_S; s++) {
        clock_ns += NS_PER_S;
        poll_for_a_while();
    }
    assert_int_equal(side_count(&world.sides[0], FABRIC_CLOSED), 0);
    for (uint32_t i = 0; i < count; i++)
        slab_unref(endpoint(), taken[i]);
    slab_unref(endpoint(), full);
    poll_for_a_while();
    assert_int_equal(in->got, sizeof(struct tcp_message_head) + SOME);
    drip(MOST_S - 1);
    poll_for_a_while();
    assert_int_equal(side_count(&world.sides[0], FABRIC_CLOSED), 0);
    clock_ns += NS_PER_S;
    poll_for_a_while();
    assert_int_equal(side_count(&world.sides[0], FABRIC_CLOSED), 1);
}

/* Who has begun a message of 1 MiB brings `some_bytes` of it ten times a second, and somebody else waits for such memory. After how
 * many tenths of a second it is closed; `most`: not yet. */
static unsigned closed_after(uint32_t some_bytes, unsigned most)
{
    const struct tcp_message_head head = {.magic = TCP_MESSAGE_MAGIC, .bytes = 1 << 20};
    static const uint8_t some[64 << 10];
    const struct sockaddr_in address = host_sockaddr(&host, 0, 0);
    const struct tcp_greeting hello = raw_hello(1001, 0);
    const int other = raw_connect(&address);
    struct tcp_slab *taken[TCP_LARGES];
    unsigned count = 0, tenths = 0;

    begin(0, 1 << 20);
    while (count < TCP_LARGES && (taken[count] = slab_take(endpoint(), SLAB_LARGE)))
        count++;
    assert_true(raw_send(other, &hello, sizeof hello) && raw_send(other, &head, sizeof head));
    while (endpoint()->base.counts[LIST_NO_MEMORY] == 0)
        side_poll(&world, 0);
    for (; tenths < most && side_count(&world.sides[0], FABRIC_CLOSED) == 0; tenths++) {
        clock_ns += NS_PER_S / 10;
        assert_true(raw_send(fd, some, some_bytes));
        poll_for_a_while();
    }
    for (unsigned i = 0; i < count; i++)
        slab_unref(endpoint(), taken[i]);
    close(other);
    return tenths;
}

TEST(who_brings_nothing_for_half_a_second_goes_while_others_wait)
{
    const unsigned tenths = closed_after(0, 20);

    assert_true(tenths >= 4 && tenths <= 6);
}

TEST(who_drips_goes_after_a_second_while_others_wait)
{
    const unsigned tenths = closed_after(SOME, 20);

    assert_true(tenths >= 9 && tenths <= 11);
}

TEST(who_is_slow_and_comes_to_an_end_has_his_time_though_others_wait)
{
    assert_int_equal(closed_after((1 << 20) / 40, 35), 35);
}

/* Who has begun a message of so many bytes brings no more, and an answer finds no large piece of memory, again and again. After how
 * many tenths of a second it is closed; 20: not yet. */
static unsigned closed_for_an_answer(uint32_t begun_bytes)
{
    struct tcp_slab *taken[TCP_LARGES];
    unsigned count = 0, tenths = 0;

    begin(0, begun_bytes);
    while (count < TCP_LARGES && (taken[count] = slab_take(endpoint(), SLAB_LARGE)))
        count++;
    for (; tenths < 20 && side_count(&world.sides[0], FABRIC_CLOSED) == 0; tenths++) {
        clock_ns += NS_PER_S / 10;
        assert_null(slab_take(endpoint(), SLAB_LARGE));
        poll_for_a_while();
    }
    for (unsigned i = 0; i < count; i++)
        slab_unref(endpoint(), taken[i]);
    return tenths;
}

TEST(who_stalls_with_what_an_answer_wants_goes)
{
    const unsigned tenths = closed_for_an_answer(1 << 20);

    assert_true(tenths >= 4 && tenths <= 6);
}

TEST(who_stalls_with_other_memory_than_an_answer_wants_has_his_time)
{
    assert_int_equal(closed_for_an_answer(60 << 10), 20);
}

UNIT_MAIN(NULL, NULL)
