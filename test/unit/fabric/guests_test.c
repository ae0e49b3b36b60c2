/* guests_test.c - F13: what a peer gets that has not shown who it is. Over tcp, guests are plain sockets, from addresses of
 * this host's network. */
#define TEST_FIXTURE open_tcp, close_host

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"
#include "common/reactor/descriptors.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { OWNER, OTHER, SIDES, PM_BYTES = 16 << 20 };

static struct side *owner(void)
{
    return &world.sides[OWNER];
}

static struct endpoint *endpoint(void)
{
    return (struct endpoint *)owner()->endpoint;
}

static int open_with_guests(enum host_kind kind)
{
    open_host(kind, SIDES, PM_BYTES);
    fabric_endpoint_guests(owner()->endpoint, true);
    return 0;
}

static int open_tcp(void **state)
{
    (void)state;
    return open_with_guests(OVER_TCP);
}

static int open_shm(void **state)
{
    (void)state;
    return open_with_guests(OVER_SHM);
}

static struct fabric_conn *accepted(uint32_t nth)
{
    return side_event(owner(), FABRIC_ACCEPTED, nth)->conn;
}

static uint64_t ended(void)
{
    return counter_get(&owner()->endpoint->ended.guests);
}

static void release(uint32_t nth)
{
    const struct fabric_event *event = side_event(owner(), FABRIC_MESSAGE, nth);

    fabric_message_release(event->conn, event->message);
}

/* A client from 127.0.0.`host_number`, which has its welcome. */
static int guest_from(uint8_t host_number)
{
    const struct sockaddr_in to = host_sockaddr(&host, OWNER, 0),
                             from = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host_number)};
    const uint32_t before = side_count(owner(), FABRIC_ACCEPTED);
    const struct linger none = {.l_onoff = 1};
    struct tcp_greeting hello = raw_hello(before, 0);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && bind(fd, (const struct sockaddr *)&from, sizeof from) == 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    hello.identity.kind = FABRIC_CLIENT;
    assert_true(raw_send(fd, &hello, sizeof hello));
    world_wait(&world, OWNER, FABRIC_ACCEPTED, before + 1);
    assert_int_equal(recv(fd, &hello, sizeof hello, MSG_WAITALL), sizeof hello);
    return fd;
}

static void wait_until_closed(uint32_t nth_conn, uint32_t count, int error)
{
    world_wait(&world, OWNER, FABRIC_CLOSED, count);
    assert_ptr_equal(side_event(owner(), FABRIC_CLOSED, count - 1)->conn, accepted(nth_conn));
    assert_int_equal(side_event(owner(), FABRIC_CLOSED, count - 1)->error, error);
}

/* --- any backend --- */

static void trust_goes_on_and_silence_ends(void)
{
    struct fabric_conn *conns[2], *passive[2];
    const struct fabric_iov iov = {.data = "hello", .bytes = 5};

    for (unsigned i = 0; i < 2; i++) {
        const struct fabric_identity identity = {.cluster = 7, .id = 1 + i, .kind = FABRIC_CLIENT};

        fabric_endpoint_identity(world.sides[OTHER].endpoint, &identity);
        assert_int_equal(fabric_connect(world.sides[OTHER].endpoint, host_address(&host, OWNER), 0,
                                        i, &conns[i]),
                         0);
        world_wait(&world, OTHER, FABRIC_CONNECTED, i + 1);
        world_wait(&world, OWNER, FABRIC_ACCEPTED, i + 1);
        passive[i] = accepted(i);
        assert_true(passive[i]->guest);
        assert_int_equal(fabric_send(conns[i], &iov, 1), 0);
        world_wait(&world, OWNER, FABRIC_MESSAGE, i + 1);
        release(i);
        assert_int_equal(fabric_send(passive[i], &iov, 1), 0);
        world_wait(&world, OTHER, FABRIC_MESSAGE, i + 1);
    }
    fabric_conn_trust(passive[1]);
    assert_false(passive[1]->guest);
    host.skipped_ns += FABRIC_GUEST_NS;
    world_wait(&world, OTHER, FABRIC_CLOSED, 1);
    wait_until_closed(0, 1, ROWAN_ELOGIN);
    assert_int_equal(ended(), 1);
    assert_int_equal(fabric_send(conns[1], &iov, 1), 0);
    world_wait(&world, OWNER, FABRIC_MESSAGE, 3);
    assert_ptr_equal(side_event(owner(), FABRIC_MESSAGE, 2)->conn, passive[1]);
    release(2);
    assert_int_equal(side_count(owner(), FABRIC_CLOSED), 1);
}

TEST(over_tcp_who_is_trusted_stays_and_who_is_not_has_5_s)
{
    trust_goes_on_and_silence_ends();
}

TEST_WITH(over_shm_who_is_trusted_stays_and_who_is_not_has_5_s, open_shm, close_host)
{
    trust_goes_on_and_silence_ends();
}

/* Of guests, in a few polls at one instant. */
static uint32_t messages_at(uint64_t now_ns)
{
    uint32_t count = 0;

    for (unsigned polls = 0; polls < 10; polls++) {
        struct fabric_event events[64];
        const unsigned got = fabric_poll(owner()->endpoint, now_ns, events, 64);

        for (unsigned i = 0; i < got; i++) {
            assert_int_equal(events[i].kind, FABRIC_MESSAGE);
            fabric_message_release(events[i].conn, events[i].message);
            count++;
        }
    }
    return count;
}

/* So they take little time, however many they are. */
TEST(guests_are_looked_at_a_few_times_in_a_ms)
{
    enum { GUESTS = 40, IN_A_MS = 16 };
    int fds[GUESTS];
    uint8_t bytes[64];
    const uint32_t count = raw_message(bytes, 0, "hello", 5);

    for (unsigned i = 0; i < GUESTS; i++)
        fds[i] = guest_from(1);
    for (unsigned i = 0; i < GUESTS; i++)
        assert_true(raw_send(fds[i], bytes, count));
    const uint64_t then_ns = endpoint()->now_ns + 5 * NS_PER_MS;

    assert_int_equal(messages_at(then_ns), IN_A_MS);
    assert_int_equal(messages_at(then_ns + NS_PER_MS / 2), 0);
    assert_int_equal(messages_at(then_ns + NS_PER_MS), IN_A_MS);
    assert_int_equal(messages_at(then_ns + 2 * NS_PER_MS), GUESTS - 2 * IN_A_MS);
    for (unsigned i = 0; i < GUESTS; i++)
        close(fds[i]);
}

TEST(where_there_are_no_guests_any_more_all_are_trusted)
{
    struct fabric_conn *passive;
    int fds[2];

    fds[0] = guest_from(1);
    assert_true(accepted(0)->guest);
    fabric_endpoint_guests(owner()->endpoint, false);
    fds[1] = guest_from(1);
    for (unsigned i = 0; i < 2; i++) {
        passive = accepted(i);
        assert_false(passive->guest);
    }
    host.skipped_ns += 2 * FABRIC_GUEST_NS;
    world_poll_times(&world, 100);
    assert_int_equal(side_count(owner(), FABRIC_CLOSED), 0);
    for (unsigned i = 0; i < 2; i++)
        close(fds[i]);
}

/* --- tcp: memory --- */

static uint32_t slabs_in_use(void)
{
    const struct tcp_slabs *slabs = &((struct tcp_endpoint *)endpoint())->slabs;
    uint32_t count = 0;

    for (unsigned kind = 0; kind < SLAB_KINDS; kind++)
        count += slabs->counts[kind] - slabs->free_count[kind];
    return count;
}

TEST(a_guest_has_one_message_at_a_time_in_a_buffer_of_its_own)
{
    enum { MESSAGES = 5 };
    static const uint32_t bytes[MESSAGES] = {FABRIC_GUEST_BYTES, 0, 1, 700, 701};
    static uint8_t data[FABRIC_GUEST_BYTES], wire[MESSAGES * sizeof(data) * 2];
    const int fd = guest_from(1);
    uint32_t at = 0;

    for (uint32_t i = 0; i < MESSAGES; i++) {
        pattern_fill(data, bytes[i], i);
        at += raw_message(wire + at, i, data, bytes[i]);
    }
    assert_true(raw_send(fd, wire, at));
    for (uint32_t i = 0; i < MESSAGES; i++) {
        world_wait(&world, OWNER, FABRIC_MESSAGE, i + 1);
        world_poll_times(&world, 50);
        assert_int_equal(side_count(owner(), FABRIC_MESSAGE), i + 1); /* until it is released */
        const struct fabric_event *event = side_event(owner(), FABRIC_MESSAGE, i);
        assert_int_equal(event->bytes, bytes[i]);
        assert_true(pattern_is(event->data, bytes[i], i));
        assert_int_equal(slabs_in_use(), 0);
        release(i);
    }
    close(fd);
    wait_until_closed(0, 1, ROWAN_ECLOSED);
}

TEST(a_guest_that_sends_more_than_1_KiB_is_closed_at_its_head)
{
    const struct tcp_message_head head = {.magic = TCP_MESSAGE_MAGIC,
                                          .bytes = FABRIC_GUEST_BYTES + 1};
    const int fd = guest_from(1);

    assert_true(raw_send(fd, &head, sizeof head));
    wait_until_closed(0, 1, ROWAN_ELOGIN);
    assert_int_equal(slabs_in_use(), 0);
    assert_int_equal(ended(), 1);
    close(fd);
}

TEST_WITH(over_shm_a_guest_sends_1_KiB_at_most, open_shm, close_host)
{
    static uint8_t data[FABRIC_GUEST_BYTES + 1];
    const struct fabric_identity identity = {.cluster = 7, .id = 1, .kind = FABRIC_CLIENT};
    struct fabric_conn *conn;

    fabric_endpoint_identity(world.sides[OTHER].endpoint, &identity);
    assert_int_equal(
        fabric_connect(world.sides[OTHER].endpoint, host_address(&host, OWNER), 0, 0, &conn), 0);
    world_wait(&world, OTHER, FABRIC_CONNECTED, 1);
    assert_int_equal(fabric_send(conn, &(struct fabric_iov){data, FABRIC_GUEST_BYTES}, 1), 0);
    world_wait(&world, OWNER, FABRIC_MESSAGE, 1);
    release(0);
    /* Of two that lie there, one in a poll. */
    struct fabric_event events[4];
    unsigned got = 0;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(fabric_send(conn, &(struct fabric_iov){data, 8}, 1), 0);
    fabric_flush(world.sides[OTHER].endpoint);
    while (got == 0)
        got = fabric_poll(owner()->endpoint, host_now_ns(&host), events, 4);
    assert_int_equal(got, 1);
    fabric_message_release(events[0].conn, events[0].message);
    assert_int_equal(fabric_send(conn, &(struct fabric_iov){data, sizeof data}, 1), 0);
    world_wait(&world, OTHER, FABRIC_CLOSED, 1);
}

TEST(garbage_of_a_guest_ends_it)
{
    const struct tcp_message_head head = {.magic = TCP_MESSAGE_MAGIC, .number = 7};
    const int fd = guest_from(1);

    assert_true(raw_send(fd, &head, sizeof head));
    wait_until_closed(0, 1, ROWAN_EFORMAT);
    close(fd);
}

TEST(what_follows_the_message_that_made_a_guest_trusted_goes_on_behind_it)
{
    enum { LARGE = 100000, SPLIT = 500 };
    static uint8_t data[LARGE], wire[LARGE + 4096];
    static const uint32_t bytes[] = {16, 30, 0, LARGE};
    const int fd = guest_from(1);
    uint32_t at = 0;

    for (uint32_t i = 0; i < 4; i++) {
        pattern_fill(data, bytes[i], i);
        at += raw_message(wire + at, i, data, bytes[i]);
    }
    assert_true(raw_send(fd, wire, SPLIT));
    world_wait(&world, OWNER, FABRIC_MESSAGE, 1);
    fabric_conn_trust(accepted(0));
    world_poll_times(&world, 50);
    assert_int_equal(side_count(owner(), FABRIC_MESSAGE), 1);
    release(0);
    world_wait(&world, OWNER, FABRIC_MESSAGE, 3);
    assert_true(raw_send(fd, wire + SPLIT, at - SPLIT));
    world_wait(&world, OWNER, FABRIC_MESSAGE, 4);
    for (uint32_t i = 1; i < 4; i++) {
        const struct fabric_event *event = side_event(owner(), FABRIC_MESSAGE, i);

        assert_int_equal(event->bytes, bytes[i]);
        assert_true(pattern_is(event->data, bytes[i], i));
        release(i);
    }
    close(fd);
    wait_until_closed(0, 1, ROWAN_ECLOSED);
}

TEST(a_guest_that_does_not_take_its_answers_is_closed)
{
    static const uint8_t answer[1000];
    const struct fabric_iov iov = {.data = answer, .bytes = sizeof answer};
    const int fd = guest_from(1);

    for (unsigned i = 0; side_count(owner(), FABRIC_CLOSED) == 0; i++) {
        assert_true(i < 100000);
        while (fabric_send(accepted(0), &iov, 1) == 0)
            ;
        side_poll(&world, OWNER);
    }
    wait_until_closed(0, 1, ROWAN_ETOOMANY);
    world_poll_times(&world, 3);
    assert_int_equal(slabs_in_use(), 0);
    close(fd);
}

/* --- tcp: places --- */

TEST(the_oldest_guest_of_an_address_goes_for_one_more_and_others_stay)
{
    enum { FROM_ONE = FABRIC_MAX_GUESTS_OF_ONE, MORE = 3 };
    static int fds[FROM_ONE + MORE];
    const int other = guest_from(2); /* older than all of them */

    for (unsigned i = 0; i < FROM_ONE + MORE; i++)
        fds[i] = guest_from(1);
    world_wait(&world, OWNER, FABRIC_CLOSED, MORE);
    for (unsigned i = 0; i < MORE; i++)
        assert_ptr_equal(side_event(owner(), FABRIC_CLOSED, i)->conn, accepted(1 + i));
    assert_int_equal(endpoint()->counts[LIST_GUEST], FROM_ONE + 1);
    assert_false(raw_is_closed(other));
    fabric_conn_trust(accepted(MORE + 1)); /* it takes no place of a guest any more */
    close(guest_from(1));
    assert_int_equal(side_count(owner(), FABRIC_CLOSED), MORE);
    for (unsigned i = 0; i < FROM_ONE + MORE; i++)
        close(fds[i]);
    close(other);
}

TEST(the_oldest_guest_of_all_goes_when_there_are_too_many)
{
    enum { MORE = 3 };
    static int fds[FABRIC_MAX_GUESTS + MORE];

    for (unsigned i = 0; i < FABRIC_MAX_GUESTS + MORE; i++)
        fds[i] = guest_from((uint8_t)(1 + i % 5));
    world_wait(&world, OWNER, FABRIC_CLOSED, MORE);
    for (unsigned i = 0; i < MORE; i++)
        assert_ptr_equal(side_event(owner(), FABRIC_CLOSED, i)->conn, accepted(i));
    assert_int_equal(endpoint()->counts[LIST_GUEST], FABRIC_MAX_GUESTS);
    for (unsigned i = 0; i < FABRIC_MAX_GUESTS + MORE; i++)
        close(fds[i]);
}

int main(void)
{
    descriptors_raise();
    return unit_run(NULL, NULL);
}
