/* fabric_faults_test.c - what the backends on sockets make of each call to the allocator or the system that fails: an
 * error, or the end of the connection, and the next connection works. */
#include "test/lib/fail_call.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/fabric_host.h"

/* Two processes and their connection. */
struct pair {
    const struct fabric_backend *backend;
    uint64_t *skipped_ns; /* of the backend's clock */
    struct side sides[2];
    struct fabric_conn *conns[2]; /* NULL: there is none, or it has closed */
    uint32_t counts[SIDE_EVENT_KINDS];
};

static bool open_sides(struct pair *pair)
{
    for (unsigned i = 0; i < 2; i++) {
        struct side *side = &pair->sides[i];

        if (pair->backend->fabric_make(pair->backend->context, i, &side->fabric) ||
            fabric_register(side->fabric, side->pm) ||
            fabric_endpoint_open(side->fabric, 0, &side->endpoint))
            return false;
        fabric_endpoint_identity(side->endpoint,
                                 &(struct fabric_identity){.id = i, .kind = FABRIC_SERVER});
    }
    return fabric_zone_open(pair->sides[1].endpoint, pair->sides[1].pm, 2, &pair->sides[1].zone) ==
               0 &&
           fabric_zone_post(pair->sides[1].zone, 0, 0) == 0;
}

static void poll_sides(struct pair *pair)
{
    *pair->skipped_ns += NS_PER_MS;
    for (unsigned i = 0; i < 2; i++) {
        struct fabric_event events[16];
        const unsigned count = fabric_poll(
            pair->sides[i].endpoint, pair->backend->now_ns(pair->backend->context), events, 16);

        for (unsigned e = 0; e < count; e++) {
            pair->counts[events[e].kind]++;
            if (events[e].kind == FABRIC_ACCEPTED)
                pair->conns[i] = events[e].conn;
            else if (events[e].kind == FABRIC_CLOSED)
                pair->conns[i] = NULL;
            else if (events[e].kind == FABRIC_MESSAGE)
                fabric_message_release(events[e].conn, events[e].message);
        }
        fabric_flush(pair->sides[i].endpoint);
    }
}

/* Waits for an event of the kind; false: a connection was closed instead. */
static bool comes(struct pair *pair, enum fabric_event_kind kind)
{
    const uint64_t end_ns = pair->backend->now_ns(pair->backend->context) + 20 * NS_PER_S;

    while (!pair->counts[kind] && !pair->counts[FABRIC_CLOSED]) {
        assert_true(pair->backend->now_ns(pair->backend->context) < end_ns);
        poll_sides(pair);
    }
    return pair->counts[kind] && !pair->counts[FABRIC_CLOSED];
}

/* A connection that carries one of everything; false: it could not. */
static bool connects_and_carries(struct pair *pair)
{
    static uint8_t message[FABRIC_MAX_MESSAGE_BYTES];
    const struct fabric_iov iov = {message, sizeof message};
    const uint8_t *block = pm_at(pair->sides[0].pm, 0);

    memset(pair->counts, 0, sizeof pair->counts);
    memset(pair->conns, 0, sizeof pair->conns);
    bool carried =
        fabric_connect(pair->sides[0].endpoint, pair->backend->address(pair->backend->context, 1),
                       0, 1, &pair->conns[0]) == 0 &&
        comes(pair, FABRIC_CONNECTED) && comes(pair, FABRIC_ACCEPTED) &&
        fabric_send(pair->conns[0], &iov, 1) == 0 && comes(pair, FABRIC_MESSAGE) &&
        fabric_rowan_add(pair->conns[0], block, 256) == 0 &&
        fabric_rowan_post(pair->conns[0], 1) == 0 && comes(pair, FABRIC_LANDED);
    for (unsigned i = 0; i < 2; i++)
        fabric_conn_close(pair->conns[i]);
    return carried;
}

static void sweep(const struct fabric_backend *backend, uint64_t *skipped_ns)
{
    bool more = true;

    for (uint32_t nth = 1; more; nth++) {
        struct pair pair = {.backend = backend, .skipped_ns = skipped_ns};

        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(
                backend->pm_make(backend->context, 2 * FABRIC_SEGMENT_BYTES, &pair.sides[i].pm), 0);
        pm_store(pair.sides[0].pm, 1, "block", 5);
        fail_call(nth);
        const bool opened = open_sides(&pair), carried = opened && connects_and_carries(&pair);

        more = fail_stop();
        assert_true(more || carried);
        assert_true(!opened || connects_and_carries(&pair));
        for (unsigned i = 0; i < 2; i++) {
            fabric_endpoint_close(pair.sides[i].endpoint);
            fabric_close(pair.sides[i].fabric);
            pm_close(pair.sides[i].pm);
        }
    }
}

TEST(a_call_that_fails_costs_a_connection_and_no_more)
{
    for (enum host_kind kind = OVER_SHM; kind <= OVER_TCP; kind++) {
        struct fabric_host host;

        host_init(&host, kind);
        sweep(&host.backend, &host.skipped_ns);
        host_fini(&host);
    }
}

UNIT_MAIN(NULL, NULL)
