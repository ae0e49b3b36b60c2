/* tcp_fabric.c - the tcp backend: peers on any network. A fabric is an address and a list of
 * registered memory; endpoint i listens on the address's port + i, and its epoll is what a reactor
 * sleeps on.
 *
 * A fabric does not change after its endpoints are open, so endpoints on different threads share it without a lock.
 *
 * A poll asks one epoll which sockets have something, and works off the connections on the lists; one that has nothing
 * costs nothing.
 *
 * 1. Sockets are watched edge-triggered from their first to their last day: no call is made to change
 *    that. What an edge said is kept in `readable` and `writable` until a read or send comes back
 *    short.
 * 2. Each poll reads once from each connection.
 * 3. Blocks are read, fenced and acknowledged in every poll, whatever room there is for events.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"
#include "common/reactor/names.h"

enum { EPOLL_EVENTS = 256 };

/* --- sockets --- */

static void blocks_event(struct tcp_conn *conn)
{
    if (conn->landing && conn->blocks.readable && !conn_is_listed(&conn->base, LIST_NO_SEGMENT))
        conn_list_add(&conn->base, LIST_LANDING);
    if (conn->base.window && conn->blocks.readable)
        conn_list_add(&conn->base, LIST_ACTIVE);
    if (conn->base.window && conn->blocks.writable)
        conn_list_add(&conn->base, LIST_DIRTY);
}

static void socket_event(uint64_t tag, uint32_t what)
{
    struct tcp_conn *conn = (struct tcp_conn *)(uintptr_t)(tag & ~UINT64_C(1));
    const enum tcp_socket_kind kind = (enum tcp_socket_kind)(tag & 1);
    struct tcp_socket *socket = kind == SOCKET_BLOCKS ? &conn->blocks : &conn->messages;

    if (conn->base.state >= CONN_BREAKING)
        return;
    if (what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        socket->readable = true;
    if (what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        socket->ended = true;
    if (what & EPOLLOUT)
        socket->writable = true;
    if (conn->base.state < CONN_OPEN)
        tcp_connect_step(conn);
    if (conn->base.state != CONN_OPEN)
        return;
    if (socket == &conn->blocks) {
        blocks_event(conn);
        return;
    }
    if (socket->readable && !conn->in.stopped)
        conn_list_add(&conn->base, LIST_ACTIVE);
    else if (conn->guest)
        tcp_guest_event(conn);
    if (socket->writable && conn->out.slab)
        conn_list_add(&conn->base, LIST_DIRTY);
}

static void look_at_sockets(struct tcp_endpoint *endpoint)
{
    struct epoll_event events[EPOLL_EVENTS];
    const int found = epoll_wait(endpoint->base.epoll_fd, events, EPOLL_EVENTS, 0);

    endpoint->waited_ns = endpoint->base.now_ns;
    endpoint->more_events = found == EPOLL_EVENTS;
    for (int i = 0; i < found; i++) {
        if (events[i].data.u64 == ENDPOINT_LISTENER)
            endpoint->base.listen_ready = true;
        else if (events[i].data.u64 != ENDPOINT_TIMER)
            socket_event(events[i].data.u64, events[i].events);
    }
}

/* What was wanted in vain since the last check may be for an answer, which waits on no list. */
static bool has_what_is_wanted(const struct conn *conn)
{
    const struct tcp_slab *slab = ((const struct tcp_conn *)conn)->in.buffer;

    return slab && ((const struct tcp_conn *)conn)->endpoint->slabs.wanted & 1u << slab->kind;
}

static void check_deadlines(struct tcp_endpoint *endpoint)
{
    endpoint->checked_ns = endpoint->base.now_ns;
    conn_check_handshakes(&endpoint->base, TCP_HANDSHAKE_NS);
    landing_check(endpoint);
    partial_check(&endpoint->base, endpoint->slabs.wanted ? has_what_is_wanted : NULL);
    slabs_try_again(endpoint); /* perhaps it was the system that had none */
    tcp_out_check(endpoint);
}

static void poll_sockets(struct tcp_endpoint *endpoint)
{
    const uint64_t now_ns = endpoint->base.now_ns;
    const uint64_t since_ns = now_ns - endpoint->waited_ns;
    const bool looks =
        endpoint->base.armed || endpoint->more_events || since_ns == 0 || since_ns >= TCP_WAIT_NS;

    if (looks)
        look_at_sockets(endpoint);
    if (endpoint->base.listen_ready)
        endpoint_accept(&endpoint->base);
    if (endpoint->base.lists[LIST_LANDING].first)
        landing_poll(endpoint);
    if (looks && !endpoint->more_events && now_ns - endpoint->checked_ns >= TCP_CHECK_NS)
        check_deadlines(endpoint);
    if (endpoint->base.lists[LIST_FENCING].first)
        receipts_fence(endpoint);
}

/* --- connections --- */

static unsigned move(struct conn *base, struct fabric_event *events, unsigned max)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    unsigned count = 0;

    if (conn->base.window)
        count += sender_poll(conn, events, max);
    if (conn_moves(base))
        count += tcp_in_poll(conn, events + count, max - count);
    return count;
}

static bool is_drained(const struct conn *conn)
{
    return !tcp_in_has_work((const struct tcp_conn *)conn);
}

static bool has_work(const struct conn *base)
{
    const struct tcp_conn *conn = (const struct tcp_conn *)base;
    const bool may_read = !conn->in.stopped && !conn_is_listed(base, LIST_NO_MEMORY);

    if (base->state == CONN_BREAKING)
        return may_read;
    return (may_read && tcp_in_has_work(conn)) || sender_has_events(conn);
}

static unsigned step(struct endpoint *base, struct fabric_event *events, unsigned max)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;
    unsigned count = 0;

    poll_sockets(endpoint);
    if (endpoint->zone)
        count = zone_poll_sealed(endpoint->zone, events, max);
    if (base->lists[LIST_GUEST_IN].first)
        count += tcp_guests_poll(endpoint, events + count, max - count);
    return count;
}

static void push(struct conn *base)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;

    if (conn->out.slab)
        tcp_out_push(conn);
    if (base->window && base->state == CONN_OPEN)
        sender_push(conn);
}

/* --- sleep --- */

static uint64_t interval_ns(const struct endpoint *base)
{
    const struct tcp_endpoint *endpoint = (const struct tcp_endpoint *)base;
    const struct conn_list *lists = base->lists;

    if (lists[LIST_ACTIVE].first || lists[LIST_LANDING].first || lists[LIST_DIRTY].first ||
        endpoint->more_events ||
        (base->listen_ready && !base->listen_paused &&
         base->counts[LIST_HALF_OPEN] < TCP_MAX_HALF_OPEN))
        return 1;
    if (lists[LIST_GUEST_IN].first)
        return tcp_guests_wait_ns(endpoint);
    if (lists[LIST_FENCING].first) /* the owner of the PM is woken, who may be another */
        return 500 * NS_PER_US;
    if (lists[LIST_CUT].first || lists[LIST_HANDSHAKE].first || lists[LIST_NO_MEMORY].first ||
        lists[LIST_BEGUN].first || lists[LIST_DEAD].first || base->listen_ready ||
        endpoint->slabs.wanted)
        return ACCEPT_PAUSE_NS;
    return UINT64_MAX;
}

/* --- endpoint --- */

static int tcp_endpoint_open(struct endpoint *base)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;
    int error;

    endpoint->address = ((const struct tcp_fabric *)base->fabric)->address;
    endpoint->more_events = true; /* so the first poll looks */
    if (endpoint->address.any.sa_family == 0)
        return 0;
    error = tcp_address_index(&endpoint->address, base->index);
    return error ? error : tcp_listen(&endpoint->address, &base->listen_fd);
}

static void tcp_endpoint_free(struct endpoint *base)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;

    slabs_fini(endpoint);
    free(endpoint->bounce);
}

static const struct conn_backend backend = {
    .endpoint_bytes = sizeof(struct tcp_endpoint),
    .conn_bytes = sizeof(struct tcp_conn),
    .most_conns = TCP_MAX_CONNS + TCP_MAX_HALF_OPEN + 1, /* who is refused */
    .open = tcp_endpoint_open,
    .free = tcp_endpoint_free,
    .zone_bytes = sizeof(struct tcp_zone),
    .zone_open = tcp_zone_open,
    .zone_posted = tcp_zone_posted,
    .close_segment = tcp_close_segment,
    .begun = tcp_zone_begun,
    .make_room = tcp_make_room,
    .accepted = tcp_accepted,
    .step = step,
    .move = move,
    .has_work = has_work,
    .guest_came = tcp_guest_came,
    .guest_went = tcp_guest_went,
    .is_drained = is_drained,
    .push = push,
    .stop = tcp_conn_stop,
    .destroy = tcp_conn_destroy,
    .interval_ns = interval_ns,
};

/* --- fabric --- */

static void tcp_close(struct fabric *base)
{
    free(base);
}

#define TCP_OPS                                                                                    \
    ENDPOINT_OPS, .close = tcp_close, .register_memory = fabric_register_regions,                  \
                  .connect = tcp_connect, .send = tcp_send, .rowan_add = window_rowan_add,         \
                  .proof_again = tcp_proof_again

static const struct fabric_ops tcp_ops = {TCP_OPS, .message_release = tcp_message_release};
const struct fabric_ops tcp_guest_ops = {TCP_OPS, .message_release = tcp_guest_release};

int fabric_open_tcp(const char *address, struct fabric **out)
{
    struct tcp_fabric *fabric = calloc(1, sizeof *fabric);
    int error = 0;

    if (!fabric)
        return ROWAN_ENOMEM;
    fabric->base.base.ops = &tcp_ops;
    fabric->base.backend = &backend;
    fabric->base.base.caps = (struct fabric_caps){
        .backend = "tcp",
        .block_limit = TCP_BLOCK_BYTES,
        .landing_stride = FABRIC_STRIDE,
        .max_batch_blocks = TCP_BLOCKS,
    };
    if (address)
        while ((error = tcp_address_parse(address, 0, &fabric->address)) == ROWAN_EAGAIN)
            names_wait();
    if (error) {
        free(fabric);
        return error;
    }
    *out = &fabric->base.base;
    return 0;
}
