/* receiver.c - the side that is written to. Everything runs in receiver_poll, on one thread.
 *
 * A sealed segment is zeroed, fenced and posted again at once. The CPU time of that is counted apart
 * (`zeroing_ns`), because a store spends it in its cleaner, once for each segment, whichever fabric
 * filled it. What remains is the cost of receiving.
 *
 * 1. A segment is posted, or waits for QUIET, or for the fence after zeroing (`zeroed`).
 * 2. A message is released when its echo was sent; until then it waits in `echoes`, in the order of arrival.
 * 3. A connection's `user` is its role; NULL: it was dropped in this batch of events.
 */
#include "test/bench/fabric/receiver.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/reactor/wait.h"
#include "test/bench/fabric/bench.h"

enum { EVENTS = 256 };

#define CHECK_NS (50 * NS_PER_MS)
#define RETRY_NS NS_PER_MS

struct echo {
    struct fabric_conn *conn; /* NULL: it has gone */
    uint64_t message;
    struct fabric_iov iov;
};

struct zeroed {
    struct pm_ticket ticket;
    uint64_t segment;
};

struct receiver {
    struct pm *pm;
    uint32_t segments;
    struct fabric_endpoint *endpoint;
    struct fabric_zone *zone;
    struct event_source source;
    struct fabric_event events[EVENTS];

    uint32_t zeroed_head, zeroed_count; /* a ring */
    struct zeroed *zeroed;              /* as many as there are segments */

    uint32_t echo_head, echo_count; /* a ring */
    struct echo echoes[RECEIVER_MAX_ECHOES];

    uint64_t data_connections, segments_sealed, busy_polls, zeroing_ns;
};

/* --- the landing zone --- */

static void zero_segment(struct receiver *receiver, uint64_t segment)
{
    const uint64_t start_ns = cpu_time_all_ns();
    uint32_t at = (receiver->zeroed_head + receiver->zeroed_count) % receiver->segments;

    ASSERT(receiver->zeroed_count < receiver->segments);
    pm_zero(receiver->pm, segment * FABRIC_SEGMENT_BYTES, FABRIC_SEGMENT_BYTES);
    receiver->zeroed[at] =
        (struct zeroed){.ticket = pm_fence_start(receiver->pm), .segment = segment};
    receiver->zeroed_count++;
    receiver->zeroing_ns += cpu_time_all_ns() - start_ns;
}

static void post_zeroed(struct receiver *receiver)
{
    while (receiver->zeroed_count > 0) {
        const struct zeroed *zeroed = &receiver->zeroed[receiver->zeroed_head];
        int done = pm_fence_done(receiver->pm, zeroed->ticket);

        if (done == 0)
            return;
        bench_check(done < 0 ? done : 0, "the receiver's memory");
        bench_check(fabric_zone_post(receiver->zone, zeroed->segment * FABRIC_SEGMENT_BYTES,
                                     zeroed->segment),
                    "landing zone");
        receiver->zeroed_head = (receiver->zeroed_head + 1) % receiver->segments;
        receiver->zeroed_count--;
    }
}

/* --- messages --- */

static struct echo *echo_at(struct receiver *receiver, uint32_t number)
{
    return &receiver->echoes[(receiver->echo_head + number) % RECEIVER_MAX_ECHOES];
}

/* Ends what is left of a connection here. */
static void forget_conn(struct receiver *receiver, struct fabric_conn *conn)
{
    if (!conn->user)
        return;
    receiver->data_connections -= (uintptr_t)conn->user != WIRE_CONTROL;
    conn->user = NULL;
    for (uint32_t i = 0; i < receiver->echo_count; i++) {
        if (echo_at(receiver, i)->conn == conn)
            echo_at(receiver, i)->conn = NULL;
    }
}

/* Ends the connection of a peer that breaks the protocol. */
static void drop_conn(struct receiver *receiver, struct fabric_conn *conn)
{
    forget_conn(receiver, conn);
    fabric_conn_close(conn);
}

/* One that has no room holds up the others: its sender makes some with its next poll. */
static bool send_echoes(struct receiver *receiver)
{
    const uint32_t before = receiver->echo_count;

    while (receiver->echo_count > 0) {
        struct echo *echo = echo_at(receiver, 0);

        if (echo->conn) {
            if (fabric_send(echo->conn, &echo->iov, 1) == ROWAN_EAGAIN)
                break;
            fabric_message_release(echo->conn, echo->message); /* CLOSED tells of another error */
        }
        receiver->echo_head = (receiver->echo_head + 1) % RECEIVER_MAX_ECHOES;
        receiver->echo_count--;
    }
    return receiver->echo_count < before;
}

static void queue_echo(struct receiver *receiver, const struct fabric_event *event)
{
    if (receiver->echo_count == RECEIVER_MAX_ECHOES) {
        drop_conn(receiver, event->conn);
        return;
    }
    *echo_at(receiver, receiver->echo_count++) =
        (struct echo){.conn = event->conn,
                      .message = event->message,
                      .iov = {.data = event->data, .bytes = event->bytes}};
}

static void send_facts(struct receiver *receiver, const struct fabric_event *event)
{
    const struct wire_facts facts = {.user_ns = cpu_time_user_ns(),
                                     .all_ns = cpu_time_all_ns(),
                                     .zeroing_ns = receiver->zeroing_ns,
                                     .segments = receiver->segments_sealed,
                                     .busy_polls = receiver->busy_polls,
                                     .users = receiver->data_connections};
    const struct fabric_iov iov = {.data = &facts, .bytes = sizeof facts};

    fabric_message_release(event->conn, event->message);
    if (fabric_send(event->conn, &iov, 1) == ROWAN_EAGAIN)
        drop_conn(receiver, event->conn); /* asks more than it reads */
}

/* --- events --- */

static void accepted(struct receiver *receiver, const struct fabric_event *event)
{
    const uint32_t role = event->peer.role;

    if (role < WIRE_CONTROL || role > WIRE_ECHO) {
        fabric_conn_close(event->conn);
        return;
    }
    event->conn->user = (void *)(uintptr_t)role;
    receiver->data_connections += role != WIRE_CONTROL;
}

static void handle_message(struct receiver *receiver, const struct fabric_event *event)
{
    const uintptr_t role = (uintptr_t)event->conn->user;

    if (role == WIRE_ECHO)
        queue_echo(receiver, event);
    else if (role == WIRE_CONTROL)
        send_facts(receiver, event);
    else if (role == WIRE_BLOCKS)
        drop_conn(receiver, event->conn);
}

static void handle_event(struct receiver *receiver, const struct fabric_event *event)
{
    switch (event->kind) {
    case FABRIC_ACCEPTED:
        accepted(receiver, event);
        break;
    case FABRIC_CLOSED:
        forget_conn(receiver, event->conn);
        break;
    case FABRIC_MESSAGE:
        handle_message(receiver, event);
        break;
    case FABRIC_SEALED:
        receiver->segments_sealed++;
        if (event->quiet)
            zero_segment(receiver, event->context);
        break;
    case FABRIC_QUIET:
        zero_segment(receiver, event->context);
        break;
    default:
        break;
    }
}

static enum poll_result receiver_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct receiver *receiver = role;
    unsigned count = fabric_poll(receiver->endpoint, now_ns, receiver->events, EVENTS);

    for (unsigned i = 0; i < count; i++)
        handle_event(receiver, &receiver->events[i]);
    const bool busy = send_echoes(receiver) || count > 0;

    post_zeroed(receiver);
    bench_check(fabric_endpoint_error(receiver->endpoint), "receiver");
    fabric_flush(receiver->endpoint);
    if (receiver->echo_count > 0 || receiver->zeroed_count > 0)
        wake_at(wake_ns, now_ns + RETRY_NS);
    receiver->busy_polls += busy;
    return busy ? POLL_BUSY : POLL_IDLE;
}

/* No reactor, which yields its core once before it sleeps: on a busy machine an echo then takes the time that another
 * program has the core. */
void receiver_run(struct receiver *receiver, const atomic_bool *stop)
{
    struct clock *clock = clock_system();

    while (!atomic_load_explicit(stop, memory_order_acquire)) {
        uint64_t now_ns = clock_now_ns(clock), wake_ns = WAKE_NEVER;

        if (receiver_poll(receiver, now_ns, &wake_ns) == POLL_IDLE)
            bench_check(event_source_wait(&receiver->source, clock, receiver_poll, receiver,
                                          now_ns + CHECK_NS),
                        "receiver");
    }
}

/* --- open and close --- */

struct receiver *receiver_open(struct fabric *fabric, struct pm *pm, uint32_t segments)
{
    const struct fabric_identity identity = {
        .cluster = 1, .term = 1, .incarnation = 1, .id = 1, .kind = FABRIC_SERVER};
    struct receiver *receiver = calloc(1, sizeof *receiver);

    bench_check(receiver ? 0 : ROWAN_ENOMEM, "receiver");
    receiver->pm = pm;
    receiver->segments = segments;
    receiver->zeroed = calloc(segments, sizeof *receiver->zeroed);
    bench_check(receiver->zeroed ? 0 : ROWAN_ENOMEM, "receiver");
    bench_check(fabric_endpoint_open(fabric, 0, &receiver->endpoint), "receiver");
    fabric_endpoint_identity(receiver->endpoint, &identity);
    fabric_endpoint_source(receiver->endpoint, &receiver->source);
    bench_check(fabric_zone_open(receiver->endpoint, pm, segments, &receiver->zone), "receiver");
    for (uint64_t i = 0; i < segments; i++)
        bench_check(fabric_zone_post(receiver->zone, i * FABRIC_SEGMENT_BYTES, i), "receiver");
    return receiver;
}

void receiver_close(struct receiver *receiver)
{
    fabric_endpoint_close(receiver->endpoint);
    free(receiver->zeroed);
    free(receiver);
}
