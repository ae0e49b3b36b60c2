/* tcp_conn.c - a connection's life, and the lists that say what waits.
 *
 * 1. A connection that the owner knows of ends in exactly one CLOSED event, unless the owner closed
 *    it. One that the owner never heard of (a handshake that failed at the passive side) ends
 *    silently.
 * 2. A dead connection's sockets are closed at once, so nothing lands any more. All else is given
 *    back by the next poll, because messages that were handed out together with CLOSED lie in its
 *    memory, and events of its sockets may be in the batch that is being worked off. Calls on it
 *    answer ECLOSED.
 * 3. While the endpoint is armed, whoever puts a connection on a list of work sets the timer.
 *
 *   active:  CONNECTING -> GREETING -> [JOINING] --+--> OPEN -- tcp_conn_break --> BREAKING
 *   passive: EXPECTING --------------> [JOINING] --+                            | CLOSED
 *   an active one that fails: CONNECTING, GREETING, JOINING -- tcp_conn_break       v
 *   any state -- fabric_conn_close, or a passive handshake that fails -------> DEAD
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/list.h"
#include "common/fabric/tcp/tcp.h"

/* --- lists --- */

void list_add(struct tcp_conn *conn, enum tcp_list_kind kind)
{
    struct tcp_endpoint *endpoint = conn->endpoint;
    struct tcp_list *list = &endpoint->lists[kind];

    if (is_listed(conn, kind))
        return;
    conn->listed |= UINT32_C(1) << kind;
    LIST_APPEND(list, conn, links[kind]);
    endpoint->counts[kind]++;
    if (endpoint->armed && !endpoint->timer_on) /* 3 */
        tcp_timer_set(endpoint);
}

void list_remove(struct tcp_conn *conn, enum tcp_list_kind kind)
{
    struct tcp_list *list = &conn->endpoint->lists[kind];

    if (!is_listed(conn, kind))
        return;
    LIST_REMOVE(list, conn, links[kind]);
    conn->listed &= ~(UINT32_C(1) << kind);
    conn->endpoint->counts[kind]--;
}

struct tcp_conn *list_take(struct tcp_endpoint *endpoint, enum tcp_list_kind kind)
{
    struct tcp_conn *conn = endpoint->lists[kind].first;

    if (conn)
        list_remove(conn, kind);
    return conn;
}

/* --- life --- */

int tcp_conn_create(struct tcp_endpoint *endpoint, bool active, struct tcp_conn **out)
{
    struct tcp_conn *conn = calloc(1, sizeof *conn);

    if (!conn)
        return ROWAN_ENOMEM;
    conn->base.ops = endpoint->base.ops;
    conn->base.endpoint = &endpoint->base;
    conn->endpoint = endpoint;
    conn->state = active ? CONN_CONNECTING : CONN_EXPECTING;
    conn->active = active;
    conn->messages.fd = conn->blocks.fd = conn->bulk.fd = -1;
    conn->in.held_first = MESSAGE_NONE;
    list_add(conn, LIST_ALL);
    list_add(conn, LIST_HANDSHAKE);
    if (!active)
        list_add(conn, LIST_HALF_OPEN);
    *out = conn;
    return 0;
}

int tcp_conn_watch(struct tcp_conn *conn, int fd, enum tcp_socket_kind kind, bool again)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.u64 = (uint64_t)(uintptr_t)conn | kind};
    const int operation = again ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    return epoll_ctl(conn->endpoint->epoll_fd, operation, fd, &event) < 0 ? ROWAN_ETOOMANY : 0;
}

static void leave_handshake(struct tcp_conn *conn)
{
    list_remove(conn, LIST_HANDSHAKE);
    list_remove(conn, LIST_HALF_OPEN);
    list_remove(conn, LIST_JOINING);
}

void tcp_conn_opened(struct tcp_conn *conn)
{
    leave_handshake(conn);
    conn->state = CONN_OPEN;
    conn->was_open = true;
    list_add(conn, LIST_ACTIVE);
}

/* A forked process may hold copies of the socket and of the epoll. As long as copies live a close
 * tells the peer nothing and leaves the socket in the epoll: so both are done here. But not when the
 * whole endpoint is closed: it is the other process that goes on with it then. */
static void drop_socket(struct tcp_endpoint *endpoint, struct tcp_socket *socket)
{
    if (socket->fd >= 0 && !endpoint->closing) {
        epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_DEL, socket->fd, NULL);
        shutdown(socket->fd, SHUT_RDWR);
    }
    if (socket->fd >= 0)
        close(socket->fd);
    *socket = (struct tcp_socket){.fd = -1};
}

static void drop_sockets(struct tcp_conn *conn)
{
    leave_handshake(conn);
    landing_end(conn);
    grants_end(conn);
    drop_socket(conn->endpoint, &conn->messages);
    drop_socket(conn->endpoint, &conn->blocks);
    drop_socket(conn->endpoint, &conn->bulk);
    list_remove(conn, LIST_BLOCKED);
    list_remove(conn, LIST_DIRTY);
    list_remove(conn, LIST_HUNGRY);
    list_remove(conn, LIST_PARTIAL);
    list_remove(conn, LIST_BEGUN);
}

void tcp_conn_break(struct tcp_conn *conn, int error, bool drain)
{
    if (conn->state >= CONN_BREAKING)
        return;
    if (!conn->active && !conn->was_open) { /* 1 */
        tcp_conn_bury(conn);
        return;
    }
    conn->drain = drain && conn->was_open;
    conn->state = CONN_BREAKING;
    conn->error = error;
    drop_sockets(conn);
    list_add(conn, LIST_ACTIVE);
}

void tcp_conn_bury(struct tcp_conn *conn)
{
    if (conn->state == CONN_DEAD)
        return;
    conn->state = CONN_DEAD;
    conn->base.has_zone = false;
    drop_sockets(conn);
    list_add(conn, LIST_DEAD);
}

void tcp_conn_reap(struct tcp_endpoint *endpoint)
{
    struct tcp_conn *conn;

    while ((conn = list_take(endpoint, LIST_DEAD))) {
        tcp_in_fini(conn);
        tcp_out_fini(conn);
        landing_destroy(conn);
        sender_destroy(conn->sender);
        free(conn->writer);
        free(conn->bulk_in);
        for (unsigned kind = 0; kind < LIST_COUNT; kind++)
            list_remove(conn, (enum tcp_list_kind)kind);
        ASSERT(conn->listed == 0);
        free(conn);
    }
}

void tcp_conn_close(struct fabric_conn *base)
{
    tcp_conn_bury((struct tcp_conn *)base);
}
