/* conn.c - lists, life, poll and sleep of every backend's connections; see conn.h. */
#include "common/fabric/conn.h"

#include <stdlib.h>
#include <sys/timerfd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/endpoint.h"
#include "common/fabric/shut_out.h"

enum { SHARE = 32 /* events of one connection in one poll */ };

/* --- sleep --- */

/* A SHUT_OUT event is to come. */
static inline bool waits_for_shut_out(const struct endpoint *endpoint)
{
    return endpoint->zone && endpoint->zone->base.shut_out_waiting > 0;
}

static void set_timer(struct endpoint *endpoint)
{
    uint64_t after_ns = endpoint->backend->interval_ns(endpoint);
    struct itimerspec spec = {0};

    if (after_ns > SHUT_OUT_LOOK_NS && waits_for_shut_out(endpoint))
        after_ns = SHUT_OUT_LOOK_NS;
    if (after_ns > ACCEPT_PAUSE_NS && endpoint->lists[LIST_GUEST].first)
        after_ns = ACCEPT_PAUSE_NS;
    if (after_ns == UINT64_MAX)
        return;
    endpoint->timer_on = true;
    spec.it_value.tv_sec = (time_t)(after_ns / NS_PER_S);
    spec.it_value.tv_nsec = (long)(after_ns % NS_PER_S);
    timerfd_settime(endpoint->timer_fd, 0, &spec, NULL);
}

static void endpoint_arm(void *context)
{
    struct endpoint *endpoint = context;

    endpoint->armed = true;
    if (endpoint->backend->arm)
        endpoint->backend->arm(endpoint);
    set_timer(endpoint);
}

static void endpoint_disarm(void *context)
{
    static const struct itimerspec never;
    struct endpoint *endpoint = context;

    endpoint->armed = false;
    if (endpoint->backend->disarm)
        endpoint->backend->disarm(endpoint);
    if (endpoint->timer_on) {
        timerfd_settime(endpoint->timer_fd, 0, &never, NULL); /* takes an expiry back, too */
        endpoint->timer_on = false;
    }
}

void endpoint_source(struct fabric_endpoint *base, struct event_source *out)
{
    struct endpoint *endpoint = (struct endpoint *)base;

    *out = (struct event_source){.fd = endpoint->epoll_fd,
                                 .arm = endpoint_arm,
                                 .disarm = endpoint_disarm,
                                 .context = endpoint};
}

/* --- lists --- */

void conn_list_append(struct conn *conn, unsigned kind)
{
    struct endpoint *endpoint = conn_endpoint(conn);
    struct conn_list *list = &endpoint->lists[kind];

    conn->listed |= UINT32_C(1) << kind;
    LIST_APPEND(list, conn, links[kind]);
    endpoint->counts[kind]++;
    if (endpoint->armed && !endpoint->timer_on && !endpoint->polling) /* 4 */
        set_timer(endpoint);
}

void conn_list_visit(struct endpoint *endpoint, unsigned kind, void (*visit)(struct conn *conn))
{
    uint32_t left = endpoint->counts[kind];
    struct conn *conn;

    while (left-- > 0 && (conn = conn_list_take(endpoint, kind)))
        visit(conn);
}

/* --- life --- */

int conn_create(struct endpoint *endpoint, bool active, struct conn **out)
{
    uint32_t number = 0;
    struct conn *conn;

    while (number < endpoint->backend->most_conns && endpoint->conns[number])
        number++;
    if (number == endpoint->backend->most_conns)
        return ROWAN_ETOOMANY;
    conn = calloc(1, endpoint->backend->conn_bytes);
    if (!conn)
        return ROWAN_ENOMEM;
    *conn = (struct conn){.base = {.ops = endpoint->base.ops, .endpoint = &endpoint->base},
                          .state = active ? CONN_CONNECTING : CONN_EXPECTING,
                          .active = active,
                          .kept = !active && endpoint->accepts_kept,
                          .number = number};
    endpoint->conns[number] = conn;
    conn_list_add(conn, LIST_ALL);
    conn_list_add(conn, LIST_HANDSHAKE);
    *out = conn;
    return 0;
}

void conn_opened(struct conn *conn)
{
    conn_list_remove(conn, LIST_HANDSHAKE);
    conn->state = CONN_OPEN;
    conn->was_open = true;
    conn_list_add(conn, LIST_ACTIVE);
}

/* 2 */
static void stop(struct conn *conn, enum conn_state state, unsigned next)
{
    conn->state = state;
    conn_endpoint(conn)->backend->stop(conn);
    for (unsigned kind = LIST_HANDSHAKE; kind < CONN_LISTS; kind++) {
        if (kind != LIST_ACTIVE)
            conn_list_remove(conn, kind);
    }
    conn_list_add(conn, next);
}

void conn_break(struct conn *conn, int error, bool drain)
{
    if (conn->state >= CONN_BREAKING)
        return;
    if (!conn->active && !conn->was_open) { /* 1 */
        conn_end(conn);
        return;
    }
    conn->drain = drain && conn->was_open;
    conn->error = error;
    stop(conn, CONN_BREAKING, LIST_ACTIVE);
}

void conn_end(struct conn *conn)
{
    if (conn->state == CONN_DEAD)
        return;
    conn->base.has_zone = false;
    stop(conn, CONN_DEAD, LIST_DEAD);
}

void conn_close(struct fabric_conn *base)
{
    conn_end((struct conn *)base);
}

void conn_supersede(struct conn *newer)
{
    struct endpoint *endpoint = conn_endpoint(newer);

    for (CONN_EACH(conn, older, endpoint, LIST_ALL)) {
        if (older != newer && !older->active && fabric_is_same_sender(&older->peer, &newer->peer))
            conn_break(older, ROWAN_ECLOSED, false);
    }
}

void conn_check_handshakes(struct endpoint *endpoint, uint64_t limit_ns)
{
    for (CONN_EACH(conn, conn, endpoint, LIST_HANDSHAKE)) {
        if (conn->since_ns == 0)
            conn->since_ns = endpoint->now_ns;
        else if (endpoint->now_ns - conn->since_ns > limit_ns)
            conn_break(conn, ROWAN_EUNREACHABLE, false);
    }
}

static void reap(struct endpoint *endpoint)
{
    const struct conn_backend *backend = endpoint->backend;

    for (CONN_EACH(conn, conn, endpoint, LIST_DEAD)) {
        if (backend->release && !backend->release(conn))
            continue;
        for (unsigned kind = 0; kind < CONN_LISTS; kind++)
            conn_list_remove(conn, kind);
        ASSERT(conn->listed == 0);
        backend->destroy(conn);
        window_close(conn);
        endpoint->conns[conn->number] = NULL;
        free(conn);
    }
}

/* --- messages that have come in part --- */

void partial_begin(struct conn *conn)
{
    conn->partial.grown_ns = conn->partial.begun_ns = conn_endpoint(conn)->now_ns;
    conn_list_add(conn, LIST_BEGUN);
}

bool partial_grow(struct conn *conn, uint32_t bytes)
{
    struct partial *partial = &conn->partial;

    partial->got += bytes;
    partial->grown_ns = conn_endpoint(conn)->now_ns;
    if (partial->got < partial->need)
        return false;
    conn_list_remove(conn, LIST_BEGUN);
    return true;
}

static bool is_slow(const struct partial *partial, uint64_t now_ns)
{
    const uint64_t age_ns = now_ns - partial->begun_ns;

    return now_ns - partial->grown_ns >= PARTIAL_STALL_NS ||
           (age_ns >= 2 * PARTIAL_STALL_NS &&
            partial->got * PARTIAL_PACE_NS < partial->need * age_ns);
}

void partial_check(struct endpoint *endpoint, partial_helps *helps)
{
    const bool others_wait = endpoint->lists[LIST_NO_MEMORY].first;
    bool more = others_wait || helps;

    for (CONN_EACH(conn, conn, endpoint, LIST_BEGUN)) { /* 5 */
        const struct partial *partial = &conn->partial;
        const bool is_late = endpoint->now_ns - partial->begun_ns >= PARTIAL_NS;

        if (!is_late && !more)
            return;
        if (!is_late && (!(others_wait || helps(conn)) || !is_slow(partial, endpoint->now_ns)))
            continue;
        log_event(LOG_WARN, is_late ? "message_overdue" : "connection_stalled",
                  "endpoint=%u peer=%u bytes=%u of=%u", endpoint->index, conn->peer.id,
                  partial->got, partial->need);
        conn_break(conn, ROWAN_ECLOSED, true);
        more &= is_late; /* one at a time */
    }
}

/* --- endpoint --- */

void endpoint_end(struct endpoint *endpoint)
{
    endpoint->closing = true;
    for (CONN_EACH(conn, conn, endpoint, LIST_ALL))
        conn_end(conn);
    reap(endpoint);
    ASSERT(!endpoint->lists[LIST_ALL].first);
}

/* --- poll and flush --- */

static struct fabric_event make_event(struct conn *conn, enum fabric_event_kind kind, int error)
{
    return (struct fabric_event){.kind = kind,
                                 .error = error,
                                 .conn = &conn->base,
                                 .context = conn->context,
                                 .peer = conn->peer};
}

static struct fabric_event announce(struct conn *conn)
{
    conn->announced = true;
    if (!conn->base.layout) /* a backend over another asks that one */
        conn->base.layout = fabric_layout(conn->base.endpoint, &conn->peer);
    guest_enter(conn);
    return make_event(conn, conn->active ? FABRIC_CONNECTED : FABRIC_ACCEPTED, 0);
}

static unsigned poll_conn(const struct conn_backend *backend, struct conn *conn,
                          struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    ASSERT(max > 0);
    if (conn->was_open && !conn->announced) /* even if it broke since: its messages need a name */
        events[count++] = announce(conn);
    if (conn_moves(conn))
        count += backend->move(conn, events + count, max - count);
    if (conn->state == CONN_BREAKING && count < max &&
        (!conn->drain || backend->is_drained(conn))) {
        events[count++] = make_event(conn, FABRIC_CLOSED, conn->error);
        conn_end(conn);
    }
    if (conn_moves(conn) ? backend->has_work(conn) : conn->state == CONN_BREAKING)
        conn_list_add(conn, LIST_ACTIVE);
    return count;
}

/* 3 */
static unsigned poll_active(struct endpoint *endpoint, struct fabric_event *events, unsigned max)
{
    const struct conn *last = endpoint->lists[LIST_ACTIVE].last;
    unsigned count = 0;
    bool is_last = false;
    struct conn *conn;

    while (!is_last && count < max && (conn = conn_list_take(endpoint, LIST_ACTIVE))) {
        const unsigned left = max - count;

        is_last = conn == last;
        if (conn->state != CONN_DEAD)
            count +=
                poll_conn(endpoint->backend, conn, events + count, left < SHARE ? left : SHARE);
    }
    return count;
}

unsigned endpoint_poll(struct fabric_endpoint *base, uint64_t now_ns, struct fabric_event *events,
                       unsigned max)
{
    struct endpoint *endpoint = (struct endpoint *)base;
    unsigned count = 0;

    endpoint->now_ns = now_ns;
    endpoint->polling = true;
    if (endpoint->lists[LIST_DEAD].first)
        reap(endpoint);
    if (endpoint->lists[LIST_GUEST].first)
        guests_check(endpoint);
    if (waits_for_shut_out(endpoint))
        count = shut_out_events(&endpoint->zone->base, endpoint->zone->pm, endpoint->zone->sealed,
                                events, max);
    count += endpoint->backend->step(endpoint, events + count, max - count);
    if (endpoint->lists[LIST_ACTIVE].first)
        count += poll_active(endpoint, events + count, max - count);
    if (endpoint->lists[LIST_DIRTY].first && !base->holds)
        endpoint_flush(base);
    endpoint->polling = false;
    if (endpoint->armed)
        set_timer(endpoint);
    return count;
}

static void push(struct conn *conn)
{
    if (conn->state == CONN_OPEN)
        conn_endpoint(conn)->backend->push(conn);
}

void endpoint_flush(struct fabric_endpoint *base)
{
    struct endpoint *endpoint = (struct endpoint *)base;

    conn_list_visit(endpoint, LIST_DIRTY, push);
    if (!endpoint->backend->flush)
        return;
    endpoint->backend->flush(endpoint);
    if (endpoint->armed && !endpoint->polling) /* what was sent may need a sooner poll */
        set_timer(endpoint);
}
