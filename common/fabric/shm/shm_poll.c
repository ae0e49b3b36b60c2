/* shm_poll.c - the steps of a poll and of a flush. A poll of an endpoint with nothing to do reads the doorbell's
 * summary, the zone's oldest segment and two list heads, whatever the number of connections; the sockets are looked
 * at once a millisecond, and after a sleep that no bell ended, but not more often than every SHM_SLEPT_CHECK_NS: a
 * readable one ends each sleep at once until then.
 *
 * 1. The bell's bit is cleared before the ring is read. So a record that the read does not see sets
 *    the bit again.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/shm/shm.h"

enum { EPOLL_EVENTS = 64 };

/* --- sockets --- */

/* Nothing may come after the handshake, so readable means: the peer is gone, or faulty. */
static void socket_readable(struct shm_conn *conn)
{
    int fds[SHM_MAX_FDS];
    unsigned fd_count;
    char byte;
    int error;

    if (conn->base.state < CONN_OPEN)
        connect_step(conn);
    if (conn->base.state != CONN_OPEN)
        return;
    error = socket_receive(conn->socket_fd, &byte, sizeof byte, fds, &fd_count);
    if (error == ROWAN_EAGAIN)
        return;
    while (fd_count > 0)
        close(fds[--fd_count]);
    if (error == ROWAN_ECLOSED)
        conn_break(&conn->base, ROWAN_ECLOSED, true);
    else
        conn_break(&conn->base, ROWAN_EFORMAT, false);
}

static void step_handshakes(struct shm_endpoint *endpoint)
{
    conn_check_handshakes(&endpoint->base, SHM_HANDSHAKE_NS);
    for (CONN_EACH(shm_conn, conn, &endpoint->base, LIST_HANDSHAKE))
        connect_step(conn);
}

static void check_sockets(struct shm_endpoint *endpoint)
{
    struct epoll_event events[EPOLL_EVENTS];
    int found = epoll_wait(endpoint->base.epoll_fd, events, EPOLL_EVENTS, 0);

    endpoint->checked_ns = endpoint->base.now_ns;
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
        if (tag == ENDPOINT_LISTENER) {
            connect_accept(endpoint);
            continue;
        }
        if (tag == ENDPOINT_TIMER)
            continue;
        conn = endpoint->conns[tag & 0xffff];
        if (conn && conn->serial == tag >> 16)
            socket_readable(conn);
    }
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
            if (conn && conn->base.was_open)
                conn_list_add(&conn->base, LIST_ACTIVE);
        }
    }
}

/* --- connections --- */

unsigned shm_move(struct conn *base, struct fabric_event *events, unsigned max)
{
    struct shm_conn *conn = (struct shm_conn *)base;
    unsigned count = 0;

    if (conn->rowan && base->state == CONN_OPEN)
        shm_rowan_push(conn);
    if (conn->rowan && conn_moves(base))
        count += shm_rowan_poll(conn, events, max);
    if (conn_moves(base))
        out_poll(conn);
    if (conn_moves(base))
        count += in_poll(conn, events + count, max - count);
    return count;
}

bool shm_is_drained(const struct conn *conn)
{
    return in_is_empty((const struct shm_conn *)conn);
}

/* Blocks wait for a segment, or for a fence. */
static bool waits_for_peer(const struct shm_conn *conn)
{
    return conn->rowan && shm_rowan_rest(conn) != ROWAN_RESTS;
}

bool shm_has_work(const struct conn *base)
{
    const struct shm_conn *conn = (const struct shm_conn *)base;

    return base->state == CONN_BREAKING || waits_for_peer(conn) || !out_is_idle(conn) ||
           !in_is_empty(conn);
}

unsigned shm_poll_step(struct endpoint *base, struct fabric_event *events, unsigned max)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    const uint64_t since_ns = base->now_ns - endpoint->checked_ns;

    if (endpoint->woken || since_ns >= SHM_CHECK_NS ||
        (endpoint->slept && since_ns >= SHM_SLEPT_CHECK_NS))
        check_sockets(endpoint);
    if (atomic_load_explicit(&endpoint->door->summary, memory_order_seq_cst))
        take_bells(endpoint);
    return endpoint->zone ? zone_poll(endpoint->zone, events, max) : 0;
}

void shm_push(struct conn *base)
{
    struct shm_conn *conn = (struct shm_conn *)base;
    bool ring = out_publish(conn);

    ring |= in_publish(conn);
    if (ring)
        conn_ring(conn);
    if (conn->rowan)
        shm_rowan_push(conn);
    if (base->state == CONN_OPEN && waits_for_peer(conn))
        conn_list_add(base, LIST_ACTIVE);
}

/* --- sleep --- */

static uint64_t conn_interval_ns(const struct shm_conn *conn)
{
    if (conn->base.state == CONN_OPEN && conn->rowan) {
        switch (shm_rowan_rest(conn)) {
        case ROWAN_FENCING: /* the reactor is woken when the fence is done */
            return conn->endpoint->base.base.reactor ? 20 * NS_PER_MS : 100 * NS_PER_US;
        case ROWAN_NO_SEGMENT: /* the owner rings when it has posted a segment */
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

uint64_t shm_interval_ns(const struct endpoint *base)
{
    const struct shm_endpoint *endpoint = (const struct shm_endpoint *)base;
    uint64_t interval_ns = UINT64_MAX;

    if (base->lists[LIST_HANDSHAKE].first)
        interval_ns = 5 * NS_PER_MS;
    if (endpoint->zone)
        interval_ns = earlier(interval_ns, zone_interval_ns(endpoint->zone));
    if (endpoint->listen_paused || base->lists[LIST_DEAD].first)
        interval_ns = earlier(interval_ns, SHM_PAUSE_NS);
    for (CONN_EACH(shm_conn, conn, base, LIST_ACTIVE))
        interval_ns = earlier(interval_ns, conn_interval_ns(conn));
    return interval_ns;
}
