/* tcp_poll.c - poll and flush of an endpoint. A poll asks one epoll which sockets have something, and
 * works off the connections on the lists; one that has nothing costs nothing.
 *
 * 1. Sockets are watched edge-triggered from their first to their last day: no call is made to change
 *    that. What an edge said is kept in `readable` and `writable` until a read or send comes back
 *    short.
 * 2. A connection is on the active list while it has work that no edge will announce again.
 * 3. Each poll starts with another connection, takes at most SHARE events from each and reads once
 *    from each.
 * 4. Blocks are read, fenced and acknowledged in every poll, whatever room there is for events.
 */
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

enum { SHARE = 32, EPOLL_EVENTS = 256 };

/* --- sockets --- */

static void blocks_event(struct tcp_conn *conn)
{
    if (conn->landing && conn->blocks.readable && !is_listed(conn, LIST_DRY))
        list_add(conn, LIST_LANDING);
    if (conn->sender && conn->blocks.readable)
        list_add(conn, LIST_ACTIVE);
    if (conn->sender && conn->blocks.writable)
        list_add(conn, LIST_DIRTY);
}

static void bulk_event(struct tcp_conn *conn)
{
    if (conn->bulk_in && conn->bulk.readable)
        list_add(conn, LIST_BULK);
    if (conn->writer && conn->bulk.readable)
        list_add(conn, LIST_ACTIVE);
    if (conn->writer)
        list_add(conn, LIST_DIRTY);
}

static void socket_event(uint64_t tag, uint32_t what)
{
    struct tcp_conn *conn = (struct tcp_conn *)(uintptr_t)(tag & ~UINT64_C(3));
    const enum tcp_socket_kind kind = (enum tcp_socket_kind)(tag & 3);
    struct tcp_socket *socket = kind == SOCKET_BULK     ? &conn->bulk
                                : kind == SOCKET_BLOCKS ? &conn->blocks
                                                        : &conn->messages;

    if (conn->state >= CONN_BREAKING)
        return;
    if (what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        socket->readable = true;
    if (what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        socket->ended = true;
    if (what & EPOLLOUT)
        socket->writable = true;
    if (conn->state < CONN_OPEN)
        tcp_connect_step(conn);
    if (conn->state != CONN_OPEN)
        return;
    if (socket == &conn->blocks) {
        blocks_event(conn);
        return;
    }
    if (socket == &conn->bulk) {
        bulk_event(conn);
        return;
    }
    if (socket->readable && !conn->in.stopped)
        list_add(conn, LIST_ACTIVE);
    if (socket->writable && conn->out)
        list_add(conn, LIST_DIRTY);
}

static void look_at_sockets(struct tcp_endpoint *endpoint)
{
    struct epoll_event events[EPOLL_EVENTS];
    const int found = epoll_wait(endpoint->epoll_fd, events, EPOLL_EVENTS, 0);

    endpoint->waited_ns = endpoint->now_ns;
    endpoint->more_events = found == EPOLL_EVENTS;
    for (int i = 0; i < found; i++) {
        if (events[i].data.ptr == &endpoint->listen_fd)
            endpoint->listen_ready = true;
        else if (events[i].data.ptr != &endpoint->timer_fd)
            socket_event(events[i].data.u64, events[i].events);
    }
}

static void check_deadlines(struct tcp_endpoint *endpoint)
{
    endpoint->checked_ns = endpoint->now_ns;
    tcp_connect_check(endpoint);
    landing_check(endpoint);
    bulk_check(endpoint);
    tcp_in_check(endpoint);
    tcp_out_check(endpoint);
}

static void poll_sockets(struct tcp_endpoint *endpoint)
{
    const uint64_t now_ns = endpoint->now_ns;
    const uint64_t since_ns = now_ns - endpoint->waited_ns;
    const bool looks =
        endpoint->armed || endpoint->more_events || since_ns == 0 || since_ns >= TCP_WAIT_NS;

    if (looks)
        look_at_sockets(endpoint);
    if (endpoint->listen_ready)
        tcp_connect_accept(endpoint);
    if (endpoint->lists[LIST_LANDING].first)
        landing_poll(endpoint);
    if (endpoint->lists[LIST_BULK].first)
        bulk_poll(endpoint);
    if (looks && !endpoint->more_events && now_ns - endpoint->checked_ns >= TCP_CHECK_NS)
        check_deadlines(endpoint);
    if (endpoint->lists[LIST_FENCING].first)
        receipts_fence(endpoint);
}

/* --- connections --- */

static void announce(struct tcp_conn *conn, struct fabric_event *event)
{
    conn->announced = true;
    *event = (struct fabric_event){.kind = conn->active ? FABRIC_CONNECTED : FABRIC_ACCEPTED,
                                   .conn = &conn->base,
                                   .context = conn->context,
                                   .peer = conn->peer};
}

static void say_closed(struct tcp_conn *conn, struct fabric_event *event)
{
    *event = (struct fabric_event){.kind = FABRIC_CLOSED,
                                   .error = conn->error,
                                   .conn = &conn->base,
                                   .context = conn->context,
                                   .peer = conn->peer};
    tcp_conn_bury(conn);
}

static bool moves_data(const struct tcp_conn *conn)
{
    return conn->state == CONN_OPEN || (conn->state == CONN_BREAKING && conn->drain);
}

static unsigned poll_conn(struct tcp_conn *conn, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    ASSERT(max > 0);
    if (conn->was_open && !conn->announced) /* even if it broke since: its messages need a name */
        announce(conn, &events[count++]);
    if (moves_data(conn) && conn->sender)
        count += sender_poll(conn, events + count, max - count);
    if (moves_data(conn) && conn->writer)
        count += writer_poll(conn, events + count, max - count);
    if (moves_data(conn))
        count += tcp_in_poll(conn, events + count, max - count);
    if (conn->state == CONN_BREAKING && count < max && (!conn->drain || !tcp_in_has_work(conn)))
        say_closed(conn, &events[count++]);
    return count;
}

static bool has_work(const struct tcp_conn *conn)
{
    const bool may_read = !conn->in.stopped && !is_listed(conn, LIST_HUNGRY);

    if (conn->state == CONN_BREAKING)
        return may_read || !conn->drain;
    if (conn->state != CONN_OPEN)
        return false;
    return (may_read && tcp_in_has_work(conn)) || sender_has_events(conn) ||
           writer_has_events(conn);
}

static unsigned poll_active(struct tcp_endpoint *endpoint, struct fabric_event *events,
                            unsigned max)
{
    const struct tcp_conn *last = endpoint->lists[LIST_ACTIVE].last;
    struct tcp_conn *conn;
    unsigned count = 0;
    bool is_last = false;

    while (!is_last && count < max && (conn = list_take(endpoint, LIST_ACTIVE))) {
        const unsigned room = max - count;

        is_last = conn == last;
        if (conn->state != CONN_DEAD)
            count += poll_conn(conn, events + count, room < SHARE ? room : SHARE);
        if (has_work(conn))
            list_add(conn, LIST_ACTIVE);
    }
    return count;
}

unsigned tcp_poll(struct fabric_endpoint *base, uint64_t now_ns, struct fabric_event *events,
                  unsigned max)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;
    unsigned count = 0;

    endpoint->now_ns = now_ns;
    if (endpoint->lists[LIST_DEAD].first)
        tcp_conn_reap(endpoint);
    poll_sockets(endpoint);
    if (endpoint->zone)
        count = zone_poll_sealed(endpoint->zone, events, max);
    if (grants_have_events(endpoint))
        count += grants_poll(endpoint, events + count, max - count);
    if (endpoint->lists[LIST_ACTIVE].first)
        count += poll_active(endpoint, events + count, max - count);
    if (endpoint->lists[LIST_DIRTY].first)
        tcp_flush(base);
    if (endpoint->armed)
        tcp_timer_set(endpoint);
    return count;
}

void tcp_flush(struct fabric_endpoint *base)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;
    struct tcp_conn *conn;

    while ((conn = list_take(endpoint, LIST_DIRTY))) {
        if (conn->state == CONN_OPEN && conn->out)
            tcp_out_push(conn);
        if (conn->state == CONN_OPEN && conn->sender)
            sender_push(conn);
        if (conn->state == CONN_OPEN && conn->writer)
            writer_push(conn);
    }
}

/* --- sleep --- */

static bool slab_wanted(const struct tcp_slabs *slabs)
{
    bool wanted = false;

    for (unsigned kind = 0; kind < SLAB_KINDS; kind++)
        wanted |= slabs->wanted[kind];
    return wanted;
}

static uint64_t interval_ns(const struct tcp_endpoint *endpoint)
{
    const struct tcp_list *lists = endpoint->lists;

    if (lists[LIST_ACTIVE].first || lists[LIST_LANDING].first || lists[LIST_DIRTY].first ||
        lists[LIST_BULK].first || grants_have_events(endpoint) || endpoint->more_events ||
        tcp_may_accept(endpoint))
        return 1;
    if (lists[LIST_FENCING].first) /* the owner of the PM is woken, who may be another */
        return 500 * NS_PER_US;
    if (lists[LIST_CUT].first || lists[LIST_WRITING].first || lists[LIST_HANDSHAKE].first ||
        lists[LIST_HUNGRY].first || lists[LIST_BEGUN].first || lists[LIST_DEAD].first ||
        endpoint->listen_ready || slab_wanted(&endpoint->slabs))
        return TCP_PAUSE_NS;
    return UINT64_MAX;
}

void tcp_timer_set(struct tcp_endpoint *endpoint)
{
    const uint64_t after_ns = interval_ns(endpoint);
    struct itimerspec spec = {0};

    if (after_ns == UINT64_MAX)
        return;
    endpoint->timer_on = true;
    spec.it_value.tv_nsec = (long)after_ns;
    timerfd_settime(endpoint->timer_fd, 0, &spec, NULL);
}
