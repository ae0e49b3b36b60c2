/* tcp_durable_test.c - what LANDED promises on tcp: the receiver's PM is watched, and its fences are
 * done when the test says so. */
#define TEST_FIXTURE open_all, close_all

#include <poll.h>

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"
#include "test/lib/tcp_raw.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { OWNER, FIRST, SECOND, SIDES };
enum { PM_BYTES = 16 << 20, BYTES = 64 << 10, WAIT_MS = 5000 };

static struct fabric_conn *conns[SIDES];

/* The owner's PM: which bytes were stored or flushed, and which of them before the last fence. */
static struct pm_ops ops;
static const struct pm_ops *file_ops;
static uint8_t *written, *fenced;
static uint64_t flushes, fences;
static int done; /* what pm_fence_done answers for fences after `done_fences` */
static uint64_t done_fences;

static void watch_store(struct pm *pm, uint64_t offset, const void *source, size_t bytes)
{
    file_ops->store(pm, offset, source, bytes);
    memset(written + offset, 1, bytes);
}

static void watch_flush(struct pm *pm, uint64_t offset, size_t bytes)
{
    (void)pm;
    memset(written + offset, 1, bytes);
    flushes++;
}

static struct pm_ticket watch_fence_start(struct pm *pm)
{
    (void)pm;
    memcpy(fenced, written, PM_BYTES);
    return (struct pm_ticket){++fences};
}

static int watch_fence_done(struct pm *pm, struct pm_ticket ticket)
{
    (void)pm;
    return ticket.number <= done_fences ? 1 : done;
}

static int open_all(void **state)
{
    struct pm *pm;
    struct fabric_conn *passive;

    (void)state;
    open_host(OVER_TCP, SIDES, PM_BYTES);
    pm = world.sides[OWNER].pm;
    file_ops = pm->ops;
    ops = *file_ops;
    ops.store = watch_store;
    ops.flush = watch_flush;
    ops.fence_start = watch_fence_start;
    ops.fence_done = watch_fence_done;
    pm->ops = &ops;
    written = calloc(1, PM_BYTES);
    fenced = calloc(1, PM_BYTES);
    flushes = fences = done_fences = 0;
    done = 1;
    side_open_zone(&world, OWNER, 4, 4);
    for (unsigned side = FIRST; side < SIDES; side++)
        world_connect(&world, side, OWNER, side, &conns[side], &passive);
    return 0;
}

static int close_all(void **state)
{
    world.sides[OWNER].pm->ops = file_ops;
    free(written);
    free(fenced);
    return close_host(state);
}

static void post(unsigned side, uint32_t number, uint32_t bytes)
{
    assert_int_equal(
        world_add_block(&world, side, conns[side], (uint64_t)(number % 200) * BYTES, number, bytes),
        0);
    assert_int_equal(fabric_rowan_post(conns[side], number), 0);
}

TEST(what_landed_was_stored_or_flushed_before_its_fence)
{
    enum { BLOCKS = 150 };
    uint64_t at = 0;

    for (uint32_t i = 0; i < BLOCKS; i++)
        post(FIRST, i, i % 3 == 0 ? BYTES : 64 * (1 + i));
    for (uint32_t landed = 0; landed < BLOCKS;) {
        world_poll(&world);
        for (; landed < side_count(&world.sides[FIRST], FABRIC_LANDED); landed++) {
            const uint32_t bytes = landed % 3 == 0 ? BYTES : 64 * (1 + landed);

            if (bytes > FABRIC_SEGMENT_BYTES - at % FABRIC_SEGMENT_BYTES)
                at += FABRIC_SEGMENT_BYTES - at % FABRIC_SEGMENT_BYTES;
            assert_null(memchr(fenced + at, 0, bytes));
            at += bytes;
        }
    }
    assert_true(flushes > 0); /* most went straight to its place */
    assert_int_equal(world_walk_zone(&world, OWNER, 4, (uint32_t[SIDE_MAX]){0}), BLOCKS);
}

TEST(nothing_is_acknowledged_before_the_fence_is_done)
{
    done = 0;
    post(FIRST, 0, 64);
    post(SECOND, 0, 64);
    world_poll_times(&world, 200);
    assert_true(fences > 0);
    assert_int_equal(side_count(&world.sides[FIRST], FABRIC_LANDED), 0);
    post(FIRST, 1, 64); /* behind the first fence */
    world_poll_times(&world, 200);
    done_fences = 1;
    world_wait(&world, FIRST, FABRIC_LANDED, 1);
    world_poll_times(&world, 200);
    assert_int_equal(side_count(&world.sides[FIRST], FABRIC_LANDED), 1);
    assert_int_equal(side_event(&world.sides[FIRST], FABRIC_LANDED, 0)->context, 0);
    done = 1;
    world_wait(&world, FIRST, FABRIC_LANDED, 2);
    world_wait(&world, SECOND, FABRIC_LANDED, 1);
}

TEST(one_fence_covers_what_a_poll_has_read)
{
    enum { ROUNDS = 100, BATCHES = 5 };

    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < BATCHES; i++) {
            post(FIRST, round * BATCHES + i, 128);
            post(SECOND, round * BATCHES + i, 128);
        }
        fabric_flush(world.sides[FIRST].endpoint);
        fabric_flush(world.sides[SECOND].endpoint);
        world_wait(&world, FIRST, FABRIC_LANDED, (round + 1) * BATCHES);
        world_wait(&world, SECOND, FABRIC_LANDED, (round + 1) * BATCHES);
    }
    assert_in_range(fences, ROUNDS, 2 * ROUNDS); /* twice where the kernel came late with one */
}

TEST(a_sync_that_failed_acknowledges_nothing_and_ends_the_connections)
{
    done = ROWAN_EIO;
    post(FIRST, 0, 64);
    world_wait(&world, OWNER, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[OWNER], FABRIC_CLOSED, 0)->error, ROWAN_EIO);
    world_wait(&world, FIRST, FABRIC_CLOSED, 1);
    assert_int_equal(side_count(&world.sides[FIRST], FABRIC_LANDED), 0);
}

/* Nobody wakes an endpoint without a reactor when a fence is done. */
static bool wakes_by_itself(struct fabric_endpoint *endpoint)
{
    struct event_source source;
    struct pollfd fd;

    fabric_endpoint_source(endpoint, &source);
    source.arm(source.context);
    fd = (struct pollfd){.fd = source.fd, .events = POLLIN};
    const bool woken = poll(&fd, 1, WAIT_MS) == 1;
    source.disarm(source.context);
    return woken;
}

TEST(f12_what_landed_of_one_shut_out_is_durable_when_that_is_told)
{
    done = 0;
    post(FIRST, 0, 64);
    while (world_count_blocks(&world, OWNER, 1, FIRST) == 0)
        world_poll(&world);
    assert_int_equal(fabric_shut_out(world.sides[OWNER].zone, FIRST, 100 + FIRST, 3), 0);
    world_poll_times(&world, 100);
    assert_int_equal(side_count(&world.sides[OWNER], FABRIC_SHUT_OUT), 0);
    assert_true(wakes_by_itself(world.sides[OWNER].endpoint));
    done = 1;
    world_wait(&world, OWNER, FABRIC_SHUT_OUT, 1);
    assert_null(memchr(fenced, 0, 64));
}

TEST(an_acknowledgement_of_what_was_not_sent_ends_the_connection)
{
    struct sockaddr_in address = host_sockaddr(&host, SIDES, 0);
    const int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct tcp_greeting hello, answer = raw_hello(0, 0);
    struct side *side = &world.sides[SECOND];
    const uint32_t connected = side_count(side, FABRIC_CONNECTED);
    struct fabric_conn *conn;
    int messages, blocks;
    uint64_t ack = 2;

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 4), 0);
    answer.kind = GREETING_WELCOME;
    answer.zone = 1;
    answer.token = 99;
    assert_int_equal(fabric_connect(side->endpoint, host_address(&host, SIDES), 0, 0, &conn), 0);
    messages = accept(listener, NULL, NULL);
    while (raw_receive(messages, &hello, sizeof hello) == 0)
        world_poll(&world);
    assert_true(raw_send(messages, &answer, sizeof answer));
    for (const struct tcp_conn *tcp = (struct tcp_conn *)conn; tcp->blocks.fd < 0;)
        world_poll(&world);
    blocks = accept(listener, NULL, NULL);
    while (raw_receive(blocks, &hello, sizeof hello) == 0)
        world_poll(&world);
    assert_int_equal(hello.token, 99);
    assert_true(raw_send(blocks, &answer, sizeof answer));
    world_wait(&world, SECOND, FABRIC_CONNECTED, connected + 1);
    assert_int_equal(world_add_block(&world, SECOND, conn, 0, 0, 64), 0);
    assert_int_equal(fabric_rowan_post(conn, 0), 0);
    world_poll_times(&world, 5);
    assert_true(raw_send(blocks, &ack, sizeof ack)); /* one block was sent */
    world_wait(&world, SECOND, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(side, FABRIC_CLOSED, 0)->error, ROWAN_EFORMAT);
    assert_int_equal(side_count(side, FABRIC_LANDED), 0);
    close(messages);
    close(blocks);
    close(listener);
}

UNIT_MAIN(NULL, NULL)
