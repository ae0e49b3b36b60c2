/* guests.c - who has connected and not shown who it is (F13): how many, and for how long; see conn.h, 6. What a backend
 * gives a guest to receive with is its own. */
#include "common/base/log.h"
#include "common/fabric/endpoint.h"

void guest_end(struct conn *conn, int error)
{
    counter_add(&conn->base.endpoint->ended.guests, 1);
    log_event(LOG_WARN, "guests_ended",
              "endpoint=%u reason=\"they did not log in, or there were too many\"",
              conn_endpoint(conn)->index);
    conn_break(conn, error, false);
}

/* Whoever connects often loses his own: the oldest from its address goes before the oldest of all. */
static void make_place(struct endpoint *endpoint, uint64_t source)
{
    struct conn *oldest = NULL;
    uint32_t count = 0;

    for (CONN_EACH(conn, conn, endpoint, LIST_GUEST)) {
        if (!source || conn->source != source)
            continue;
        if (count++ == 0)
            oldest = conn;
    }
    if (count >= FABRIC_MAX_GUESTS_OF_ONE)
        guest_end(oldest, ROWAN_ETOOMANY);
    else if (endpoint->counts[LIST_GUEST] >= FABRIC_MAX_GUESTS)
        guest_end(endpoint->lists[LIST_GUEST].first, ROWAN_ETOOMANY);
}

/* Over shm and verbs the directory and the network say who is a server: nobody there is unproved. */
static bool is_proved(const struct conn *conn)
{
    return conn->peer.kind == FABRIC_SERVER && conn_endpoint(conn)->zone && !conn->base.unproved;
}

void guest_enter(struct conn *conn)
{
    struct endpoint *endpoint = conn_endpoint(conn);
    int error;

    if (!endpoint->base.has_guests || conn->active || conn->state != CONN_OPEN || is_proved(conn))
        return;
    make_place(endpoint, conn->source);
    conn->base.guest = true;
    conn->since_ns = endpoint->now_ns;
    conn_list_add(conn, LIST_GUEST);
    error = endpoint->backend->guest_came ? endpoint->backend->guest_came(conn) : 0;
    if (error)
        conn_break(conn, error, false);
}

static void leave(struct conn *conn)
{
    const struct conn_backend *backend = conn_endpoint(conn)->backend;

    if (!conn_is_listed(conn, LIST_GUEST)) /* it has ended */
        return;
    conn->base.guest = false;
    conn_list_unlink(conn, LIST_GUEST);
    if (backend->guest_went)
        backend->guest_went(conn);
}

void conn_trust(struct fabric_endpoint *base, struct fabric_conn *one)
{
    if (one) {
        leave((struct conn *)one);
        return;
    }
    for (CONN_EACH(conn, conn, (struct endpoint *)base, LIST_GUEST))
        leave(conn);
}

void guests_check(struct endpoint *endpoint)
{
    struct conn *oldest;

    while ((oldest = endpoint->lists[LIST_GUEST].first) &&
           endpoint->now_ns - oldest->since_ns >= FABRIC_GUEST_NS)
        guest_end(oldest, ROWAN_ELOGIN);
}
