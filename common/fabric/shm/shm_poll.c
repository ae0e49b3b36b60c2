/* shm_poll.c - poll and flush of an endpoint. A poll of an endpoint with nothing to do reads the
 * doorbell's summary, the zone's oldest segment and two list heads, whatever the number of
 * connections; the sockets are looked at once a millisecond, and after a sleep that no bell ended, but
 * not more often than every SHM_SLEPT_CHECK_NS: a readable one ends each sleep at once until then.
 *
 * 1. A connection is on the active list while it has work that no bell will announce again: records
 *    unread, a message or blocks on their way out, an event to deliver.
 * 2. The bell's bit is cleared before the ring is read. So a record that the read does not see sets
 *    the bit again.
 * 3. Each poll starts with another connection and takes at most SHARE events from each.
 */
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/shm/shm.h"

enum { SHARE = 32, EPOLL_EVENTS = 64 };

/* --- sockets --- */

/* Nothing may come after the handshake, so readable means: the peer is gone, or mad. */
static void socket_readable(struct shm_conn *conn)
{
    int fds[SHM_MAX_FDS];
    unsigned fd_count;
    char byte;
    int error;

    if (conn->state < CONN_OPEN)
        connect_step(conn);
    if (conn->state != CONN_OPEN)
        return;
    error = socket_receive(conn->socket_fd, &byte, sizeof byte, fds, &fd_count);
    if (error == ROWAN_EAGAIN)
        return;
    while (fd_count > 0)
        close(fds[--fd_count]);
    if (error == ROWAN_ECLOSED)
        conn_break(conn, ROWAN_ECLOSED, true);
    else
        conn_break(conn, ROWAN_EFORMAT, false);
}

static void step_handshakes(struct shm_endpoint *endpoint)
{
    for (uint32_t i = 0; i < SHM_MAX_CONNS && endpoint->handshakes > 0; i++) {
        if (endpoint->conns[i] && endpoint->conns[i]->state < CONN_OPEN)
            connect_step(endpoint->conns[i]);
    }
}

static void check_sockets(struct shm_endpoint *endpoint)
{
    struct epoll_event events[EPOLL_EVENTS];
    int found = epoll_wait(endpoint->epoll_fd, events, EPOLL_EVENTS, 0);

    endpoint->checked_ns = endpoint->now_ns;
    if (endpoint->listen_paused)
        connect_resume(endpoint);
    endpoint->woken = found == EPOLL_EVENTS;
    endpoint->slept = false;
    for (int i = 0; i < found; i++) {
        const uint64_t tag = events[i].data.u64;
        struct shm_conn *conn;

        if (tag == SHM_TAG_WAKE) {
            shm_drain(endpoint);
            continue;
        }
        if (tag == SHM_TAG_LISTENER) {
            connect_accept(endpoint);
            continue;
        }
        conn = endpoint->conns[tag & 0xffff];
        if (conn && conn->serial == tag >> 16)
            socket_readable(conn);
    }
    if (endpoint->handshakes > 0)
        step_handshakes(endpoint);
    if (endpoint->zone)
        zone_check(endpoint->zone);
}

/* --- doorbell --- */

static void take_bells(struct shm_endpoint *endpoint)
{
    struct shm_doorbell *door = endpoint->door;
    uint64_t words = atomic_exchange_explicit(&door->summary, 0, memory_order_seq_cst);

    while (words) {
        const uint32_t word = (uint32_t)__builtin_ctzll(words);
        uint64_t bits = atomic_exchange_explicit(&door->ready[word], 0, memory_order_seq_cst);

        words &= words - 1;
        while (bits) {
            struct shm_conn *conn = endpoint->conns[word * 64 + (uint32_t)__builtin_ctzll(bits)];

            bits &= bits - 1;
            if (conn && conn->usable)
                conn_list(conn, LIST_ACTIVE);
        }
    }
}

/* --- connections --- */

static unsigned announce(struct shm_conn *conn, struct fabric_event *event)
{
    conn->announced = true;
    *event = (struct fabric_event){.kind = conn->active ? FABRIC_CONNECTED : FABRIC_ACCEPTED,
                                   .conn = &conn->base,
                                   .context = conn->context,
                                   .peer = conn->peer};
    return 1;
}

static unsigned say_closed(struct shm_conn *conn, struct fabric_event *event)
{
    *event = (struct fabric_event){.kind = FABRIC_CLOSED,
                                   .error = conn->error,
                                   .conn = &conn->base,
                                   .context = conn->context,
                                   .peer = conn->peer};
    conn_bury(conn);
    return 1;
}

static bool moves_data(const struct shm_conn *conn)
{
    return conn->state == CONN_OPEN || (conn->state == CONN_BREAKING && conn->drain);
}

static unsigned poll_conn(struct shm_conn *conn, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    ASSERT(max > 0);
    if (conn->usable && !conn->announced) /* even if it broke since: its messages need a name */
        count += announce(conn, events);
    if (moves_data(conn)) {
        if (conn->rowan && conn->state == CONN_OPEN)
            shm_rowan_push(conn);
        if (conn->rowan && moves_data(conn))
            count += shm_rowan_poll(conn, events + count, max - count);
        if (conn->writer && conn->state == CONN_OPEN)
            shm_writer_push(conn);
        if (conn->writer && moves_data(conn))
            count += shm_writer_poll(conn, events + count, max - count);
        if (moves_data(conn))
            out_poll(conn);
        if (moves_data(conn))
            count += in_poll(conn, events + count, max - count);
    }
    if (conn->state == CONN_BREAKING && count < max && (!conn->drain || in_is_empty(conn)))
        count += say_closed(conn, events + count);
    return count;
}

static bool has_work(const struct shm_conn *conn)
{
    if (conn->state == CONN_BREAKING)
        return true;
    if (conn->state != CONN_OPEN)
        return false;
    return (conn->rowan && shm_rowan_rest(conn) != ROWAN_RESTS) || !shm_writer_rests(conn) ||
           !out_is_idle(conn) || !in_is_empty(conn);
}

static unsigned poll_active(struct shm_endpoint *endpoint, struct fabric_event *events,
                            unsigned max)
{
    const struct shm_conn *last = endpoint->lists[LIST_ACTIVE].last;
    struct shm_conn *conn;
    unsigned count = 0;

    while (count < max && (conn = conn_unlist(endpoint, LIST_ACTIVE))) {
        const unsigned room = max - count;
        const bool is_last = conn == last;

        if (conn->state != CONN_DEAD)
            count += poll_conn(conn, events + count, room < SHARE ? room : SHARE);
        if (has_work(conn))
            conn_list(conn, LIST_ACTIVE);
        if (is_last)
            break;
    }
    return count;
}

unsigned shm_poll(struct fabric_endpoint *base, uint64_t now_ns, struct fabric_event *events,
                  unsigned max)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    unsigned count = 0;

    endpoint->now_ns = now_ns;
    if (endpoint->lists[LIST_DEAD].first)
        conn_reap(endpoint, false);
    if (endpoint->woken || now_ns - endpoint->checked_ns >= SHM_CHECK_NS ||
        (endpoint->slept && now_ns - endpoint->checked_ns >= SHM_SLEPT_CHECK_NS))
        check_sockets(endpoint);
    if (atomic_load_explicit(&endpoint->door->summary, memory_order_seq_cst))
        take_bells(endpoint);
    if (endpoint->zone)
        count = zone_poll(endpoint->zone, events, max);
    if (endpoint->lists[LIST_ACTIVE].first)
        count += poll_active(endpoint, events + count, max - count);
    if (endpoint->lists[LIST_DIRTY].first)
        shm_flush(base);
    if (endpoint->armed)
        shm_timer_set(endpoint);
    return count;
}

void shm_flush(struct fabric_endpoint *base)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    struct shm_conn *conn;

    while ((conn = conn_unlist(endpoint, LIST_DIRTY))) {
        bool ring;

        if (conn->state != CONN_OPEN)
            continue;
        ring = out_publish(conn);
        ring |= in_publish(conn);
        if (ring)
            conn_ring(conn);
        if (conn->rowan && conn->state == CONN_OPEN)
            shm_rowan_push(conn);
        if (conn->writer && conn->state == CONN_OPEN)
            shm_writer_push(conn);
    }
}

/* --- sleep --- */

static uint64_t conn_interval_ns(const struct shm_conn *conn)
{
    if (conn->state == CONN_OPEN && !shm_writer_rests(conn))
        return shm_writer_is_syncing(conn) && !conn->endpoint->base.reactor ? 100 * NS_PER_US
                                                                            : NS_PER_MS;
    if (conn->state == CONN_OPEN && conn->rowan) {
        switch (shm_rowan_rest(conn)) {
        case ROWAN_FENCING: /* the reactor is woken when the fence is done */
            return conn->endpoint->base.reactor ? 20 * NS_PER_MS : 100 * NS_PER_US;
        case ROWAN_DRY: /* the owner rings when it has posted a segment */
            return 20 * NS_PER_MS;
        case ROWAN_RESTS:
            break;
        }
    }
    return 5 * NS_PER_MS;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void shm_timer_set(struct shm_endpoint *endpoint)
{
    uint64_t interval_ns = UINT64_MAX;
    struct itimerspec spec = {0};

    if (endpoint->handshakes > 0)
        interval_ns = 5 * NS_PER_MS;
    if (endpoint->zone)
        interval_ns = earlier(interval_ns, zone_interval_ns(endpoint->zone));
    if (endpoint->listen_paused || endpoint->lists[LIST_DEAD].first)
        interval_ns = earlier(interval_ns, SHM_PAUSE_NS);
    for (const struct shm_conn *c = endpoint->lists[LIST_ACTIVE].first; c; c = c->next[LIST_ACTIVE])
        interval_ns = earlier(interval_ns, conn_interval_ns(c));
    if (interval_ns == UINT64_MAX)
        return;
    endpoint->timer_on = true;
    spec.it_value.tv_nsec = (long)interval_ns;
    timerfd_settime(endpoint->timer_fd, 0, &spec, NULL);
}
