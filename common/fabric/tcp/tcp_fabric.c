/* tcp_fabric.c - the tcp backend: peers on any network. A fabric is an address and a list of
 * registered memory; endpoint i listens on the address's port + i, and its epoll is what a reactor
 * sleeps on.
 *
 * 1. A fabric does not change after its endpoints are open, so endpoints on different threads share
 *    it without a lock.
 * 2. While armed, whatever must go on by time alone (a handshake's limit, a fence, a cut block) or is
 *    left over from a poll sets the timer, so a reactor may sleep without a deadline for us. The poll
 *    behind the arming always looks at the sockets.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

/* --- fabric --- */

int fabric_open_tcp(const char *address, struct fabric **out)
{
    struct tcp_fabric *fabric = calloc(1, sizeof *fabric);
    int error;

    if (!fabric)
        return ROWAN_ENOMEM;
    fabric->base.ops = &tcp_ops;
    fabric->base.caps = (struct fabric_caps){
        .backend = "tcp",
        .block_limit = TCP_BLOCK_BYTES,
        .landing_stride = FABRIC_STRIDE,
        .max_batch_blocks = TCP_BLOCKS,
        .bytes_per_connection = sizeof(struct tcp_conn),
    };
    if (address) {
        error = tcp_address_parse(address, 0, &fabric->address);
        if (error) {
            free(fabric);
            return error;
        }
        fabric->has_address = true;
    }
    *out = &fabric->base;
    return 0;
}

static void tcp_close(struct fabric *base)
{
    free(base);
}

static int tcp_register(struct fabric *base, struct pm *pm)
{
    return regions_add(&((struct tcp_fabric *)base)->regions, pm);
}

/* --- endpoint --- */

static int watch(struct tcp_endpoint *endpoint, int *fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = fd};

    return epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, *fd, &event) < 0 ? ROWAN_EIO : 0;
}

static int start_listening(struct tcp_endpoint *endpoint)
{
    union tcp_address address = endpoint->fabric->address;
    int error;

    if (!endpoint->fabric->has_address)
        return 0;
    error = tcp_address_index(&address, endpoint->index);
    if (!error)
        error = tcp_listen(&address, &endpoint->listen_fd);
    if (!error)
        error = watch(endpoint, &endpoint->listen_fd, EPOLLIN | EPOLLET);
    return error;
}

static int open_descriptors(struct tcp_endpoint *endpoint)
{
    endpoint->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    endpoint->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (endpoint->epoll_fd < 0 || endpoint->timer_fd < 0)
        return ROWAN_EIO;
    return watch(endpoint, &endpoint->timer_fd, EPOLLIN);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void endpoint_free(struct tcp_endpoint *endpoint)
{
    close_fd(endpoint->listen_fd);
    close_fd(endpoint->timer_fd);
    close_fd(endpoint->epoll_fd);
    tcp_outs_fini(endpoint);
    slabs_fini(endpoint);
    free(endpoint->grants);
    free(endpoint);
}

static int tcp_endpoint_open(struct fabric *base, uint32_t index, struct fabric_endpoint **out)
{
    struct tcp_endpoint *endpoint = calloc(1, sizeof *endpoint);
    uint64_t seed;
    int error;

    if (!endpoint)
        return ROWAN_ENOMEM;
    endpoint->base.ops = base->ops;
    endpoint->fabric = (struct tcp_fabric *)base;
    endpoint->index = index;
    endpoint->listen_fd = endpoint->epoll_fd = endpoint->timer_fd = -1;
    endpoint->more_events = true; /* so the first poll looks */
    random_entropy(&seed, sizeof seed);
    random_init(&endpoint->random, seed);
    error = open_descriptors(endpoint);
    if (!error)
        error = start_listening(endpoint);
    if (error) {
        endpoint_free(endpoint);
        return error;
    }
    *out = &endpoint->base;
    return 0;
}

static void tcp_endpoint_close(struct fabric_endpoint *base)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;

    endpoint->closing = true;
    for (struct tcp_conn *conn = endpoint->lists[LIST_ALL].first; conn;
         conn = conn->links[LIST_ALL].next)
        tcp_conn_bury(conn);
    tcp_conn_reap(endpoint);
    ASSERT(!endpoint->lists[LIST_ALL].first);
    if (endpoint->zone)
        tcp_zone_close((struct fabric_zone *)endpoint->zone);
    endpoint_free(endpoint);
}

/* --- sleep --- */

static void endpoint_arm(void *context)
{
    struct tcp_endpoint *endpoint = context;

    endpoint->armed = true;
    tcp_timer_set(endpoint);
}

static void endpoint_disarm(void *context)
{
    static const struct itimerspec never;
    struct tcp_endpoint *endpoint = context;

    endpoint->armed = false;
    if (endpoint->timer_on) {
        timerfd_settime(endpoint->timer_fd, 0, &never, NULL); /* takes an expiry back, too */
        endpoint->timer_on = false;
    }
}

static void tcp_endpoint_source(struct fabric_endpoint *base, struct event_source *out)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;

    *out = (struct event_source){.fd = endpoint->epoll_fd,
                                 .arm = endpoint_arm,
                                 .disarm = endpoint_disarm,
                                 .context = endpoint};
}

const struct fabric_ops tcp_ops = {
    .close = tcp_close,
    .register_memory = tcp_register,
    .endpoint_open = tcp_endpoint_open,
    .endpoint_close = tcp_endpoint_close,
    .endpoint_source = tcp_endpoint_source,
    .poll = tcp_poll,
    .connect = tcp_connect,
    .conn_close = tcp_conn_close,
    .send = tcp_send,
    .message_release = tcp_message_release,
    .rowan_room = tcp_rowan_room,
    .rowan_add = tcp_rowan_add,
    .rowan_post = tcp_rowan_post,
    .flush = tcp_flush,
    .zone_open = tcp_zone_open,
    .zone_post = tcp_zone_post,
    .grant = tcp_grant,
    .revoke = tcp_revoke,
    .write = tcp_write_bulk,
};
