/* tcp_fabric.c - the tcp backend: peers on any network. A fabric is an address and a list of
 * registered memory; endpoint i listens on the address's port + i, and its epoll is what a reactor
 * sleeps on.
 *
 * A fabric does not change after its endpoints are open, so endpoints on different threads share it without a lock.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

/* --- endpoint --- */

static int tcp_endpoint_open(struct endpoint *base)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;
    union tcp_address address = ((const struct tcp_fabric *)base->fabric)->address;
    uint64_t seed;
    int error;

    endpoint->more_events = true; /* so the first poll looks */
    random_entropy(&seed, sizeof seed);
    random_init(&endpoint->random, seed);
    if (address.any.sa_family == 0)
        return 0;
    error = tcp_address_index(&address, base->index);
    if (!error)
        error = tcp_listen(&address, &base->listen_fd);
    if (!error)
        error = endpoint_watch(base, base->listen_fd, EPOLLIN | EPOLLET, ENDPOINT_LISTENER);
    return error;
}

static void tcp_endpoint_free(struct endpoint *base)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;

    slabs_fini(endpoint);
    free(endpoint->bounce);
}

static const struct conn_backend backend = {
    .endpoint_bytes = sizeof(struct tcp_endpoint),
    .open = tcp_endpoint_open,
    .free = tcp_endpoint_free,
    .zone_bytes = sizeof(struct tcp_zone),
    .zone_open = tcp_zone_open,
    .zone_posted = tcp_zone_posted,
    .close_segment = tcp_close_segment,
    .begun = tcp_zone_begun,
    .step = tcp_poll_step,
    .move = tcp_move,
    .has_work = tcp_has_work,
    .is_drained = tcp_is_drained,
    .push = tcp_push,
    .stop = tcp_conn_stop,
    .destroy = tcp_conn_destroy,
    .interval_ns = tcp_interval_ns,
};

/* --- fabric --- */

static void tcp_close(struct fabric *base)
{
    free(base);
}

static const struct fabric_ops tcp_ops = {
    ENDPOINT_OPS,
    .close = tcp_close,
    .register_memory = fabric_register_regions,
    .connect = tcp_connect,
    .send = tcp_send,
    .message_release = tcp_message_release,
    .rowan_add = window_rowan_add,
};

int fabric_open_tcp(const char *address, struct fabric **out)
{
    struct tcp_fabric *fabric = calloc(1, sizeof *fabric);
    int error;

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
    if (address) {
        error = tcp_address_parse(address, 0, &fabric->address);
        if (error) {
            free(fabric);
            return error;
        }
    }
    *out = &fabric->base.base;
    return 0;
}
