/* tcp_debt_test.c - the memory that messages share, when peers pin it: an end is found without any, and who does not
 * read gives back what is pinned for it before others wait. */
#define TEST_FIXTURE open_all, close_host

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum {
    OWNER,
    OTHER,
    SIDES,
    PM_BYTES = 1 << 20,
    FILLER = 15000,
    A_CHUNK = TCP_CHUNK_BYTES / FILLER
};

HOST_FIXTURE(open_all, OVER_TCP, SIDES, PM_BYTES)

static struct side *owner(void)
{
    return &world.sides[OWNER];
}

static struct tcp_endpoint *endpoint(void)
{
    return (struct tcp_endpoint *)owner()->endpoint;
}

static struct conn *accepted(uint32_t nth)
{
    return (struct conn *)side_event(owner(), FABRIC_ACCEPTED, nth)->conn;
}

static int raw_client(uint32_t id)
{
    const uint32_t before = side_count(owner(), FABRIC_ACCEPTED);
    struct tcp_greeting hello = raw_hello(id, 0);
    const int fd = host_connect();

    hello.identity.kind = FABRIC_CLIENT;
    assert_true(raw_send(fd, &hello, sizeof hello));
    world_wait(&world, OWNER, FABRIC_ACCEPTED, before + 1);
    return fd;
}

static void send_raw(int fd, uint64_t number, uint32_t bytes)
{
    static const uint8_t data[FILLER];
    static uint8_t message[sizeof(struct tcp_message_head) + FILLER + 8];

    assert_true(raw_send(fd, message, raw_message(message, number, data, bytes)));
}

/* --- ends --- */

struct taken {
    struct tcp_slab *slabs[TCP_CHUNKS];
    uint32_t count;
};

/* As if other connections had all of a kind. */
static void take_all(struct taken *taken, enum slab_kind kind)
{
    struct tcp_slab *chunk = kind == SLAB_CHUNK ? slab_chunk(endpoint()) : NULL;

    taken->count = 0;
    if (chunk) {
        chunk->used = TCP_CHUNK_BYTES;
        chunk->refs++;
        taken->slabs[taken->count++] = chunk;
    }
    while (taken->count < TCP_CHUNKS && (taken->slabs[taken->count] = slab_take(endpoint(), kind)))
        taken->count++;
}

static void give(struct taken *taken, uint32_t count)
{
    while (count-- > 0)
        slab_unref(endpoint(), taken->slabs[--taken->count]);
}

/* Waits for CLOSED, while no memory comes free. */
static void ends_without_memory(int fd)
{
    assert_int_equal(side_count(owner(), FABRIC_CLOSED), 0);
    close(fd);
    world_wait(&world, OWNER, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(owner(), FABRIC_CLOSED, 0)->error, ROWAN_ECLOSED);
}

static void wait_until_listed(unsigned kind)
{
    while (!conn_is_listed(accepted(0), kind))
        side_poll(&world, OWNER);
}

TEST(an_end_is_found_though_there_is_no_memory_to_read_up_to_it)
{
    static struct taken taken;
    const int fd = raw_client(1);

    take_all(&taken, SLAB_CHUNK);
    send_raw(fd, 0, 100);
    wait_until_listed(LIST_NO_MEMORY);
    ends_without_memory(fd);
    give(&taken, taken.count);
}

TEST(an_end_is_found_though_a_message_waits_for_memory_that_it_is_put_together_in)
{
    static struct taken taken;
    const struct tcp_message_head head = {.magic = TCP_MESSAGE_MAGIC, .bytes = 1 << 20};
    const int fd = raw_client(1);

    take_all(&taken, SLAB_LARGE);
    assert_true(raw_send(fd, &head, sizeof head));
    wait_until_listed(LIST_NO_MEMORY);
    ends_without_memory(fd);
    give(&taken, taken.count);
}

/* --- debts --- */

/* The owner has sent it what it does not read, until there was no room. */
static void stop_reading(struct conn *conn)
{
    enum { QUIET_ROUNDS = 50, BYTES = 1000 };
    static const uint8_t answer[BYTES];
    const struct fabric_iov iov = {.data = answer, .bytes = BYTES};

    for (unsigned quiet = 0; quiet < QUIET_ROUNDS; side_poll(&world, OWNER))
        quiet = fabric_send(&conn->base, &iov, 1) == 0 ? 0 : quiet + 1;
    assert_true(conn_is_listed(conn, LIST_BLOCKED));
}

static void release_from(uint32_t nth)
{
    const struct fabric_event *event = side_event(owner(), FABRIC_MESSAGE, nth);

    fabric_message_release(event->conn, event->message);
}

/* The debtor has a small message in every chunk, and `busy` the rest of it, which the owner releases at once: until the debtor goes.
 * How many messages of `busy` came. */
static uint32_t pin_chunks(int debtor, int busy)
{
    uint32_t number = 0;

    for (uint64_t chunk = 0;; chunk++) {
        const uint32_t before = side_count(owner(), FABRIC_MESSAGE);

        send_raw(debtor, chunk, 16);
        while (side_count(owner(), FABRIC_MESSAGE) == before &&
               side_count(owner(), FABRIC_CLOSED) == 0)
            side_poll(&world, OWNER);
        for (uint32_t i = 0; i <= A_CHUNK; i++) {
            const uint32_t got = side_count(owner(), FABRIC_MESSAGE);

            if (side_count(owner(), FABRIC_CLOSED) > 0)
                return number;
            send_raw(busy, number, FILLER);
            world_wait(&world, OWNER, FABRIC_MESSAGE, got + 1);
            release_from(got);
            number++;
        }
    }
}

TEST(who_does_not_read_and_pins_most_goes_when_memory_is_short)
{
    enum { LEFT = 20 }; /* chunks: a peer that does not read for 5 s is the system's to end */
    static struct taken taken;
    int fds[3];

    take_all(&taken, SLAB_CHUNK);
    give(&taken, LEFT);
    for (uint32_t i = 0; i < 3; i++)
        fds[i] = raw_client(1 + i);
    stop_reading(accepted(0));
    send_raw(fds[1], 0, 16); /* a debt, too: but it reads */
    world_wait(&world, OWNER, FABRIC_MESSAGE, 1);
    const uint32_t number = pin_chunks(fds[0], fds[2]);
    world_wait(&world, OWNER, FABRIC_CLOSED, 1);
    assert_ptr_equal(side_event(owner(), FABRIC_CLOSED, 0)->conn, accepted(0));
    assert_int_equal(side_event(owner(), FABRIC_CLOSED, 0)->error, ROWAN_ETOOMANY);
    assert_true(number >= (LEFT - 2) * A_CHUNK);
    world_poll_times(&world, 3);
    assert_true(endpoint()->slabs.counts[SLAB_CHUNK] - endpoint()->slabs.free_count[SLAB_CHUNK] <=
                taken.count + 3);
    const uint32_t got = side_count(owner(), FABRIC_MESSAGE);
    send_raw(fds[2], number, FILLER);
    world_wait(&world, OWNER, FABRIC_MESSAGE, got + 1);
    assert_int_equal(side_count(owner(), FABRIC_CLOSED), 1);
    for (uint32_t i = 0; i < 3; i++)
        close(fds[i]);
    give(&taken, taken.count);
}

UNIT_MAIN(NULL, NULL)
