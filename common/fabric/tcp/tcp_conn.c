/* tcp_conn.c - a connection's memory and sockets; its life is in conn.h. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

int tcp_conn_create(struct tcp_endpoint *endpoint, bool active, struct tcp_conn **out)
{
    struct tcp_conn *conn = calloc(1, sizeof *conn);

    if (!conn)
        return ROWAN_ENOMEM;
    conn->endpoint = endpoint;
    conn->messages.fd = conn->blocks.fd = -1;
    conn_init(&conn->base, &endpoint->base, active);
    if (!active)
        conn_list_add(&conn->base, LIST_HALF_OPEN);
    *out = conn;
    return 0;
}

int tcp_conn_watch(struct tcp_conn *conn, int fd, enum tcp_socket_kind kind, bool again)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.u64 = (uint64_t)(uintptr_t)conn | kind};
    const int operation = again ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    return epoll_ctl(conn->endpoint->base.epoll_fd, operation, fd, &event) < 0 ? ROWAN_ETOOMANY : 0;
}

/* A forked process may hold copies of the socket and of the epoll. As long as copies live a close
 * tells the peer nothing and leaves the socket in the epoll: so both are done here. But not when the
 * whole endpoint is closed: it is the other process that goes on with it then. */
static void drop_socket(struct tcp_endpoint *endpoint, struct tcp_socket *socket)
{
    if (socket->fd >= 0 && !endpoint->base.closing) {
        epoll_ctl(endpoint->base.epoll_fd, EPOLL_CTL_DEL, socket->fd, NULL);
        shutdown(socket->fd, SHUT_RDWR);
    }
    if (socket->fd >= 0)
        close(socket->fd);
    *socket = (struct tcp_socket){.fd = -1};
}

void tcp_conn_stop(struct conn *base)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;

    landing_end(conn);
    drop_socket(conn->endpoint, &conn->messages);
    drop_socket(conn->endpoint, &conn->blocks);
}

void tcp_conn_destroy(struct conn *base)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;

    tcp_in_fini(conn);
    tcp_out_fini(conn);
    landing_destroy(conn);
    sender_destroy(conn->sender);
    free(conn);
}
