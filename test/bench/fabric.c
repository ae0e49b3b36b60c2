/* bench_fabric - what the calls of the shm and tcp fabrics cost, both ends polled by one thread, so
 * that no figure has a second core's speed or a wake-up in it. Each figure is the best of many rounds:
 * on a busy host the mean tells about the host.
 */
#include "common/base/assert.h"
#include "test/lib/asserts.h"
#include "test/unit/fabric/fabric_host.h"

enum { CONNS = 64, PER_ROUND = 960, BYTES = 100, BLOCK = 128, SEGMENTS = 8 };
enum { OWNER = 0, SENDER = 1, EVENTS = 256, PM_BYTES = 64 << 20 };

static unsigned rounds;
static struct world world;
static struct fabric_conn *active[CONNS], *passive[CONNS];
static struct fabric_event events[EVENTS];
static uint64_t poll_ns; /* stands still, so that each poll of tcp looks at its sockets */

static uint64_t now(void)
{
    return clock_now_ns(clock_system());
}

static struct fabric_endpoint *endpoint(unsigned side)
{
    return world.sides[side].endpoint;
}

/* Returns the nanoseconds of one round of PER_ROUND. */
typedef uint64_t bench_round(uint32_t argument);

static void bench(const char *what, bench_round *round, uint32_t argument)
{
    uint64_t best = UINT64_MAX;

    for (unsigned i = 0; i < rounds; i++) {
        const uint64_t ns = round(argument);

        if (ns < best)
            best = ns;
    }
    printf("%-44s %7.1f ns\n", what, (double)best / PER_ROUND);
}

static uint64_t idle_polls(uint32_t unused)
{
    const uint64_t start_ns = now();

    (void)unused;
    for (unsigned i = 0; i < PER_ROUND; i++)
        fabric_poll(endpoint(OWNER), poll_ns, events, EVENTS);
    return now() - start_ns;
}

/* One connection can hold them all on both fabrics. */
static void send_all(void)
{
    static const uint8_t data[BYTES] = {1};
    const struct fabric_iov iov = {.data = data, .bytes = BYTES};

    for (unsigned i = 0; i < PER_ROUND; i++)
        ASSERT(fabric_send(active[0], &iov, 1) == 0);
    fabric_flush(endpoint(SENDER));
}

static void receive_all(void)
{
    for (unsigned got = 0; got < PER_ROUND;) {
        const unsigned count = fabric_poll(endpoint(OWNER), poll_ns, events, EVENTS);

        for (unsigned i = 0; i < count; i++)
            fabric_message_release(events[i].conn, events[i].message);
        got += count;
    }
    fabric_flush(endpoint(OWNER));
}

static uint64_t sends(uint32_t unused)
{
    const uint64_t start_ns = now();
    uint64_t end_ns;

    (void)unused;
    send_all();
    end_ns = now();
    receive_all();
    return end_ns - start_ns;
}

static uint64_t receives(uint32_t unused)
{
    uint64_t start_ns;

    (void)unused;
    send_all();
    start_ns = now();
    receive_all();
    return now() - start_ns;
}

static bool owner_works; /* blocks do not land without it */

static void post_again(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        ASSERT(fabric_zone_post(world.sides[OWNER].zone, events[i].context * FABRIC_SEGMENT_BYTES,
                                events[i].context) == 0);
}

/* A question and its answer. */
static uint64_t round_trips(uint32_t unused)
{
    static const uint8_t data[BYTES] = {1};
    const struct fabric_iov iov = {.data = data, .bytes = BYTES};
    const uint64_t start_ns = now();

    (void)unused;
    for (unsigned i = 0; i < PER_ROUND; i++) {
        for (unsigned side = 0; side < 2; side++) {
            struct fabric_conn *from = side ? passive[0] : active[0];

            ASSERT(fabric_send(from, &iov, 1) == 0);
            fabric_flush(from->endpoint);
            while (fabric_poll(endpoint(side ? SENDER : OWNER), poll_ns, events, EVENTS) == 0)
                continue;
            fabric_message_release(events[0].conn, events[0].message);
        }
    }
    return now() - start_ns;
}

/* A batch is handed over, and its completion taken, before the next. */
static uint64_t lands(uint32_t batch)
{
    static uint64_t number;
    const uint8_t *blocks = world.sides[SENDER].pm->base;
    uint64_t start_ns = now(), end_ns;
    unsigned count;

    for (unsigned sent = 0; sent < PER_ROUND; sent += batch) {
        for (uint32_t i = 0; i < batch; i++)
            ASSERT(fabric_rowan_add(active[0], blocks + number++ % 4096 * BLOCK, BLOCK) == 0);
        ASSERT(fabric_rowan_post(active[0], 0) == 0);
        fabric_flush(endpoint(SENDER));
        while (fabric_poll(endpoint(SENDER), poll_ns, events, EVENTS) == 0) {
            count = owner_works ? fabric_poll(endpoint(OWNER), poll_ns, events, EVENTS) : 0;
            post_again(count);
        }
    }
    end_ns = now();
    post_again(fabric_poll(endpoint(OWNER), poll_ns, events, EVENTS));
    return end_ns - start_ns;
}

static void bench_all(const struct fabric_backend *backend, const char *name)
{
    printf("%s\n", name);
    world_open(&world, backend, 2, PM_BYTES);
    side_open_zone(&world, OWNER, SEGMENTS, SEGMENTS);
    for (unsigned i = 0; i < CONNS; i++)
        world_connect(&world, SENDER, OWNER, i, &active[i], &passive[i]);
    poll_ns = now() + NS_PER_MS; /* behind the wait that the last poll may have begun */
    bench("poll, idle, 64 connections", idle_polls, 0);
    bench("send 100 B", sends, 0);
    bench("receive and release 100 B", receives, 0);
    bench("question and answer of 100 B", round_trips, 0);
    bench("land a 128 B block, batches of 1", lands, 1);
    bench("land a 128 B block, batches of 4", lands, 4);
    bench("land a 128 B block, batches of 16", lands, 16);
    bench("land a 128 B block, batches of 240", lands, 240);
    world_close(&world);
}

int main(void)
{
    static struct fabric_host host;

    host_init(&host, OVER_SHM);
    rounds = 2000;
    bench_all(&host.backend, "shm");
    host_fini(&host);
    host_init(&host, OVER_TCP);
    rounds = 60; /* a call of the system costs what a hundred of shm's do */
    owner_works = true;
    bench_all(&host.backend, "tcp");
    host_fini(&host);
    return 0;
}
