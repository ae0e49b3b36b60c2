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

static const struct conn_backend backend = {
    .step = tcp_poll_step,
    .move = tcp_move,
    .has_work = tcp_has_work,
    .is_drained = tcp_is_drained,
    .push = tcp_push,
    .stop = tcp_conn_stop,
    .destroy = tcp_conn_destroy,
    .revoked = tcp_revoked,
    .interval_ns = tcp_interval_ns,
};

static int start_listening(struct tcp_endpoint *endpoint)
{
    union tcp_address address = endpoint->fabric->address;
    int error;

    if (!endpoint->fabric->has_address)
        return 0;
    error = tcp_address_index(&address, endpoint->base.index);
    if (!error)
        error = tcp_listen(&address, &endpoint->base.listen_fd);
    if (!error)
        error = endpoint_watch(&endpoint->base, endpoint->base.listen_fd, EPOLLIN | EPOLLET,
                               ENDPOINT_LISTENER);
    return error;
}

static void endpoint_free(struct tcp_endpoint *endpoint)
{
    endpoint_fini(&endpoint->base);
    tcp_outs_fini(endpoint);
    slabs_fini(endpoint);
    free(endpoint);
}

static int tcp_endpoint_open(struct fabric *base, uint32_t index, struct fabric_endpoint **out)
{
    struct tcp_endpoint *endpoint = calloc(1, sizeof *endpoint);
    uint64_t seed;
    int error;

    if (!endpoint)
        return ROWAN_ENOMEM;
    endpoint->fabric = (struct tcp_fabric *)base;
    endpoint->more_events = true; /* so the first poll looks */
    random_entropy(&seed, sizeof seed);
    random_init(&endpoint->random, seed);
    error = endpoint_init(&endpoint->base, base, &endpoint->fabric->regions, index, &backend);
    if (!error)
        error = start_listening(endpoint);
    if (error) {
        endpoint_free(endpoint);
        return error;
    }
    *out = &endpoint->base.base;
    return 0;
}

static void tcp_endpoint_close(struct fabric_endpoint *base)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;

    endpoint_end(&endpoint->base);
    if (endpoint->zone)
        tcp_zone_close((struct fabric_zone *)endpoint->zone);
    endpoint_free(endpoint);
}

const struct fabric_ops tcp_ops = {
    .close = tcp_close,
    .register_memory = tcp_register,
    .endpoint_open = tcp_endpoint_open,
    .endpoint_close = tcp_endpoint_close,
    .endpoint_source = endpoint_source,
    .poll = endpoint_poll,
    .connect = tcp_connect,
    .conn_close = conn_close,
    .send = tcp_send,
    .message_release = tcp_message_release,
    .rowan_room = window_rowan_room,
    .rowan_add = window_rowan_add,
    .rowan_post = window_rowan_post,
    .flush = endpoint_flush,
    .zone_open = tcp_zone_open,
    .zone_post = tcp_zone_post,
    .grant = grants_give,
    .revoke = grants_revoke,
    .write = window_bulk_write,
};
