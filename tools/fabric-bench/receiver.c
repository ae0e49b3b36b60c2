/* receiver.c - the side that is written to. Everything runs in receiver_poll, on one thread.
 *
 * A sealed segment is zeroed, fenced and posted again at once. The CPU time of that is counted apart
 * (`zeroing_ns`), because a store spends it in its cleaner, once for each segment, whichever fabric
 * filled it. What remains is the cost of receiving.
 *
 * 1. A segment is posted, or waits for QUIET, or for the fence after zeroing (`zeroed`).
 * 2. A message is released when its echo was sent; until then it waits in `echoes`, in the order of arrival.
 */
#include "tools/fabric-bench/receiver.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/reactor/wait.h"
#include "tools/fabric-bench/wire.h"

enum { EVENTS = 256, LINKS = 1024 };

#define CHECK_NS (50 * NS_PER_MS)
#define RETRY_NS NS_PER_MS

struct bench_link {
    enum wire_role role;   /* 0: free */
    uint64_t blocked_pass; /* the pass over `echoes` in which this connection could not send */
};

struct echo {
    struct fabric_conn *conn; /* NULL: it has gone */
    uint64_t message;
    const void *data;
    uint32_t bytes;
};

struct zeroed {
    struct pm_ticket ticket;
    uint64_t segment;
};

struct receiver {
    struct receiver_options options;
    struct fabric_endpoint *endpoint;
    struct fabric_zone *zone;
    struct event_source source;
    struct fabric_event events[EVENTS];

    uint32_t zeroed_head, zeroed_count; /* a ring */
    struct zeroed *zeroed;              /* as many as there are segments */

    uint32_t echo_head, echo_count; /* a ring */
    uint64_t echo_pass;
    struct echo *echoes;

    uint64_t write_offset; /* bytes of the area for grants that are granted */
    uint32_t grants;       /* live ones */
    uint64_t data_connections, segments_sealed, sleeps, busy_polls, zeroing_ns;
    int error; /* ends receiver_run */
    struct bench_link links[LINKS];
};

/* --- the landing zone --- */

static void zero_segment(struct receiver *receiver, uint64_t segment)
{
    const uint64_t start_ns = cpu_time_all_ns();
    struct pm *pm = receiver->options.pm;
    uint32_t at = (receiver->zeroed_head + receiver->zeroed_count) % receiver->options.segments;

    ASSERT(receiver->zeroed_count < receiver->options.segments);
    pm_zero(pm, segment * FABRIC_SEGMENT_BYTES, FABRIC_SEGMENT_BYTES);
    receiver->zeroed[at] = (struct zeroed){.ticket = pm_fence_start(pm), .segment = segment};
    receiver->zeroed_count++;
    receiver->zeroing_ns += cpu_time_all_ns() - start_ns;
}

/* Errors: ROWAN_EIO: a sync has failed. */
static int post_zeroed(struct receiver *receiver)
{
    while (receiver->zeroed_count > 0) {
        const struct zeroed *zeroed = &receiver->zeroed[receiver->zeroed_head];
        int done = pm_fence_done(receiver->options.pm, zeroed->ticket);

        if (done <= 0)
            return done;
        int error = fabric_zone_post(receiver->zone, zeroed->segment * FABRIC_SEGMENT_BYTES,
                                     zeroed->segment);

        if (error)
            return error == ROWAN_EAGAIN ? 0 : error;
        receiver->zeroed_head = (receiver->zeroed_head + 1) % receiver->options.segments;
        receiver->zeroed_count--;
    }
    return 0;
}

/* --- messages --- */

static bool send_echo(const struct echo *echo)
{
    const struct fabric_iov iov = {.data = echo->data, .bytes = echo->bytes};

    if (fabric_send(echo->conn, &iov, 1) == ROWAN_EAGAIN)
        return false;
    fabric_message_release(echo->conn,
                           echo->message); /* the end of a closed one comes as an event */
    return true;
}

/* Tries each echo that waits once; the order of each connection is kept. */
static bool send_echoes(struct receiver *receiver)
{
    const uint32_t count = receiver->echo_count;
    uint32_t kept = 0;

    receiver->echo_pass++;
    for (uint32_t i = 0; i < count; i++) {
        struct echo echo = receiver->echoes[(receiver->echo_head + i) % RECEIVER_MAX_ECHOES];

        if (!echo.conn)
            continue;
        struct bench_link *link = echo.conn->user;

        if (link->blocked_pass != receiver->echo_pass && send_echo(&echo))
            continue;
        link->blocked_pass = receiver->echo_pass;
        receiver->echoes[(receiver->echo_head + kept++) % RECEIVER_MAX_ECHOES] = echo;
    }
    receiver->echo_count = kept;
    return kept < count;
}

static void forget_echoes(struct receiver *receiver, const struct fabric_conn *conn)
{
    for (uint32_t i = 0; i < receiver->echo_count; i++) {
        struct echo *echo = &receiver->echoes[(receiver->echo_head + i) % RECEIVER_MAX_ECHOES];

        if (echo->conn == conn)
            echo->conn = NULL;
    }
}

static void forget_conn(struct receiver *receiver, struct fabric_conn *conn)
{
    struct bench_link *link = conn->user;

    if (!link)
        return;
    receiver->data_connections -= link->role != WIRE_CONTROL;
    forget_echoes(receiver, conn);
    link->role = 0;
    conn->user = NULL;
}

/* Ends the connection of a peer that breaks the protocol. */
static void drop_conn(struct receiver *receiver, struct fabric_conn *conn)
{
    forget_conn(receiver, conn);
    fabric_conn_close(conn);
}

static void queue_echo(struct receiver *receiver, const struct fabric_event *event)
{
    struct echo echo = {
        .conn = event->conn, .message = event->message, .data = event->data, .bytes = event->bytes};

    if (receiver->echo_count == 0 && send_echo(&echo))
        return;
    if (receiver->echo_count == RECEIVER_MAX_ECHOES) {
        drop_conn(receiver, event->conn);
        return;
    }
    receiver->echoes[(receiver->echo_head + receiver->echo_count++) % RECEIVER_MAX_ECHOES] = echo;
}

static void answer(struct receiver *receiver, const struct fabric_event *event, const void *data,
                   uint32_t bytes)
{
    const struct fabric_iov iov = {.data = data, .bytes = bytes};

    fabric_message_release(event->conn, event->message);
    if (fabric_send(event->conn, &iov, 1) == ROWAN_EAGAIN)
        drop_conn(receiver, event->conn); /* asks more than it reads */
}

static void send_facts(struct receiver *receiver, const struct fabric_event *event, uint64_t number)
{
    struct wire_facts facts = {.magic = WIRE_MAGIC,
                               .number = number,
                               .cpu = cpu_time_now(),
                               .zeroing_ns = receiver->zeroing_ns,
                               .segments = receiver->segments_sealed,
                               .sleeps = receiver->sleeps,
                               .busy_polls = receiver->busy_polls,
                               .users = receiver->data_connections + receiver->grants};

    strncpy(facts.memory, receiver->options.pm->backend, sizeof facts.memory - 1);
    strncpy(facts.durability, pm_durability_name(receiver->options.pm->durability),
            sizeof facts.durability - 1);
    answer(receiver, event, &facts, sizeof facts);
}

static void give_grant(struct receiver *receiver, const struct fabric_event *event, uint64_t bytes)
{
    const uint64_t first = (uint64_t)receiver->options.segments * FABRIC_SEGMENT_BYTES;
    struct wire_grant reply = {.magic = WIRE_MAGIC};

    if (receiver->grants == 0)
        receiver->write_offset = 0;
    if (!event->conn->ops->grant)
        reply.error = ROWAN_EUNSUPPORTED;
    else if (bytes > RECEIVER_WRITE_BYTES - receiver->write_offset)
        reply.error = ROWAN_ENOSPACE;
    else
        reply.error =
            fabric_grant(event->conn, first + receiver->write_offset, bytes, 0, &reply.grant);
    if (!reply.error) {
        receiver->write_offset += bytes;
        receiver->grants++;
    }
    answer(receiver, event, &reply, sizeof reply);
}

/* --- events --- */

static void accepted(struct receiver *receiver, const struct fabric_event *event)
{
    const uint32_t role = event->peer.role;
    uint32_t i = 0;

    while (i < LINKS && receiver->links[i].role)
        i++;
    if (i == LINKS || role < WIRE_CONTROL || role > WIRE_ECHO) {
        fabric_conn_close(event->conn);
        return;
    }
    receiver->links[i] = (struct bench_link){.role = (enum wire_role)role};
    event->conn->user = &receiver->links[i];
    receiver->data_connections += role != WIRE_CONTROL;
}

static void handle_message(struct receiver *receiver, const struct fabric_event *event)
{
    const struct bench_link *link = event->conn->user;
    struct wire_ask ask = {0};

    if (!link) /* dropped in this batch of events */
        return;
    if (link->role == WIRE_ECHO) {
        queue_echo(receiver, event);
        return;
    }
    if (event->bytes == sizeof ask)
        memcpy(&ask, event->data, sizeof ask);
    if (ask.magic != WIRE_MAGIC)
        drop_conn(receiver, event->conn);
    else if (link->role == WIRE_CONTROL)
        send_facts(receiver, event, ask.value);
    else
        give_grant(receiver, event, ask.value);
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
    case FABRIC_REVOKED:
        receiver->grants--;
        break;
    default:
        break;
    }
}

static enum poll_result receiver_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct receiver *receiver = role;
    unsigned count = fabric_poll(receiver->endpoint, now_ns, receiver->events, EVENTS);
    bool echoed = false;

    for (unsigned i = 0; i < count; i++)
        handle_event(receiver, &receiver->events[i]);
    if (receiver->echo_count > 0)
        echoed = send_echoes(receiver);
    receiver->error = post_zeroed(receiver);
    if (!receiver->error)
        receiver->error = fabric_endpoint_error(receiver->endpoint);
    fabric_flush(receiver->endpoint);
    if (receiver->echo_count > 0 || receiver->zeroed_count > 0)
        wake_at(wake_ns, now_ns + RETRY_NS);
    receiver->busy_polls += count > 0 || echoed;
    return count > 0 || echoed || receiver->error ? POLL_BUSY : POLL_IDLE;
}

int receiver_run(struct receiver *receiver, const atomic_bool *stop)
{
    struct clock *clock = clock_system();
    uint64_t busy_ns = clock_now_ns(clock);

    while (!receiver->error && !atomic_load_explicit(stop, memory_order_acquire)) {
        uint64_t now_ns = clock_now_ns(clock), wake_ns = WAKE_NEVER;

        if (receiver_poll(receiver, now_ns, &wake_ns) == POLL_BUSY) {
            busy_ns = now_ns;
        } else if (now_ns - busy_ns >= receiver->options.spin_ns) {
            receiver->sleeps++;
            int error = event_source_wait(&receiver->source, clock, receiver_poll, receiver,
                                          now_ns + CHECK_NS);
            if (!receiver->error)
                receiver->error = error;
            busy_ns = clock_now_ns(clock);
        }
    }
    return receiver->error;
}

/* --- open and close --- */

static int open_zone(struct receiver *receiver)
{
    const struct receiver_options *options = &receiver->options;
    int error =
        fabric_zone_open(receiver->endpoint, options->pm, options->segments, &receiver->zone);

    for (uint64_t i = 0; i < options->segments && !error; i++)
        error = fabric_zone_post(receiver->zone, i * FABRIC_SEGMENT_BYTES, i);
    return error;
}

int receiver_open(const struct receiver_options *options, struct receiver **out)
{
    const struct fabric_identity identity = {
        .cluster = 1, .term = 1, .incarnation = 1, .id = 1, .kind = FABRIC_SERVER};
    struct receiver *receiver = calloc(1, sizeof *receiver);
    if (!receiver)
        return ROWAN_ENOMEM;
    receiver->options = *options;
    receiver->zeroed = calloc(options->segments, sizeof *receiver->zeroed);
    receiver->echoes = calloc(RECEIVER_MAX_ECHOES, sizeof *receiver->echoes);
    int error = receiver->zeroed && receiver->echoes
                    ? fabric_endpoint_open(options->fabric, 0, &receiver->endpoint)
                    : ROWAN_ENOMEM;
    if (!error) {
        fabric_endpoint_identity(receiver->endpoint, &identity);
        fabric_endpoint_source(receiver->endpoint, &receiver->source);
        error = open_zone(receiver);
    }
    if (error) {
        receiver_close(receiver);
        return error;
    }
    *out = receiver;
    return 0;
}

void receiver_close(struct receiver *receiver)
{
    if (!receiver)
        return;
    fabric_endpoint_close(receiver->endpoint);
    free(receiver->echoes);
    free(receiver->zeroed);
    free(receiver);
}
