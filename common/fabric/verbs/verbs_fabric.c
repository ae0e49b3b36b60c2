/* verbs_fabric.c - the verbs backend: peers over RDMA. A fabric is one device with its registered memory, and
 * a fabric of the tcp backend at the same address that sets connections up; an endpoint is a completion
 * queue, a queue pair for datagrams, and an endpoint of tcp.
 *
 * 1. A fabric does not change after its endpoints are open, but for the notes of verbs_async.c; so endpoints
 *    on different threads share it without a lock.
 * 2. The completion queue has a place for all that can complete: datagrams have theirs from the start,
 *    whoever makes another queue that completes here takes his from `cq_free`.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "common/base/log.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_stream.h"

enum { CQ_PLACES = 65536, HOST_BYTES = 128 };

/* --- fabric --- */

/* The host of "verbs:HOST:PORT", which tcp has found sound, as verbs_device_open wants it. */
static void find_host(const char *address, char host[HOST_BYTES])
{
    const char *from = address + strlen("verbs:");
    const bool bracketed = *from == '[';

    from += bracketed;
    snprintf(host, HOST_BYTES, "%.*s", (int)strcspn(from, bracketed ? "]" : ":"), from);
    if (!bracketed && strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
}

static int open_control(struct verbs_fabric *fabric, const char *address, char host[HOST_BYTES])
{
    char text[VERBS_ADDRESS_BYTES];
    int error;

    if (!address)
        return fabric_open("tcp", NULL, &fabric->control);
    error = verbs_control_address(address, text);
    if (!error)
        error = fabric_open(NULL, text, &fabric->control);
    if (!error)
        find_host(address, host);
    return error;
}

static void set_caps(struct verbs_fabric *fabric)
{
    const struct verbs_device *device = fabric->device;
    const bool is_packed = device->receive == FABRIC_RECEIVE_MULTI_PACKET;

    fabric->base.base.caps = (struct fabric_caps){
        .backend = "verbs",
        .block_limit = is_packed ? device->mtu_bytes : device->slot_bytes,
        .landing_stride = is_packed ? FABRIC_STRIDE : device->slot_bytes,
        .max_batch_blocks = VERBS_BLOCKS,
    };
}

static void verbs_close(struct fabric *base)
{
    struct verbs_fabric *fabric = (struct verbs_fabric *)base;

    verbs_resolver_fini(fabric);
    verbs_unregister_all(fabric);
    pthread_mutex_destroy(&fabric->async_mutex);
    verbs_device_close(fabric->device);
    fabric_close(fabric->control);
    free(fabric);
}

static const struct fabric_ops verbs_ops = {
    ENDPOINT_OPS,
    .close = verbs_close,
    .register_memory = verbs_register,
    .connect = verbs_connect,
    .send = verbs_send,
    .message_release = verbs_message_release,
    .rowan_add = verbs_rowan_add,
};

int fabric_open_verbs(const char *address, const struct fabric_verbs_options *options,
                      struct fabric **out)
{
    struct verbs_fabric *fabric;
    char host[HOST_BYTES];
    int error;

    fabric = calloc(1, sizeof *fabric);
    if (!fabric)
        return ROWAN_ENOMEM;
    fabric->base.base.ops = &verbs_ops;
    fabric->base.backend = &verbs_backend;
    error = open_control(fabric, address, host);
    if (error)
        goto free_fabric;
    error = verbs_device_open(address ? host : NULL, options, &fabric->device);
    if (error)
        goto close_control;
    error = fd_set_nonblocking(fabric->device->context->async_fd);
    if (error)
        goto close_device;
    pthread_mutex_init(&fabric->async_mutex, NULL);
    verbs_resolver_init(&fabric->resolver);
    set_caps(fabric);
    *out = &fabric->base.base;
    return 0;

close_device:
    verbs_device_close(fabric->device);
close_control:
    fabric_close(fabric->control);
free_fabric:
    free(fabric);
    return error;
}

/* --- endpoint --- */

static int watch(struct verbs_endpoint *endpoint, int fd)
{
    return endpoint_watch(&endpoint->base, fd, EPOLLIN, 0);
}

/* 2 */
static int open_completions(struct verbs_endpoint *endpoint)
{
    const struct verbs_device *device = endpoint->device;
    const int most = device->attributes.orig_attr.max_cqe;
    const int places = most > 0 && most < CQ_PLACES ? most : CQ_PLACES;
    const uint32_t datagrams = verbs_packets_places(device);
    int error;

    if ((uint32_t)places < datagrams)
        return ROWAN_EUNSUPPORTED;
    endpoint->channel = ibv_create_comp_channel(device->context);
    if (!endpoint->channel)
        return error_from_errno(errno);
    error = fd_set_nonblocking(endpoint->channel->fd);
    if (error)
        return error;
    endpoint->cq = ibv_create_cq(device->context, places, endpoint, endpoint->channel, 0);
    if (!endpoint->cq)
        return verbs_refused("completion_queue", errno);
    endpoint->cq_free = (uint32_t)places - datagrams;
    return watch(endpoint, endpoint->channel->fd);
}

static int open_endpoint_control(struct verbs_endpoint *endpoint)
{
    int error =
        fabric_endpoint_open(endpoint->fabric->control, endpoint->base.index, &endpoint->control);

    if (error)
        return error;
    fabric_endpoint_admit(endpoint->control, verbs_connect_admit, endpoint);
    fabric_endpoint_source(endpoint->control, &endpoint->control_source);
    return watch(endpoint, endpoint->control_source.fd);
}

void verbs_endpoint_free(struct endpoint *base)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;

    verbs_packets_close(endpoint);
    verbs_messages_close(endpoint);
    if (endpoint->cq)
        ibv_destroy_cq(endpoint->cq);
    if (endpoint->channel)
        ibv_destroy_comp_channel(endpoint->channel);
    fabric_endpoint_close(endpoint->control);
    close_fd(endpoint->wake_fd);
}

int verbs_endpoint_open(struct endpoint *base)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    uint64_t seed;
    int error;

    endpoint->fabric = (struct verbs_fabric *)base->fabric;
    endpoint->device = endpoint->fabric->device;
    random_entropy(&seed, sizeof seed);
    random_init(&endpoint->random, seed);
    endpoint->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    error = watch(endpoint, endpoint->wake_fd); /* -1: EIO */
    if (!error)
        error = watch(endpoint, endpoint->device->context->async_fd);
    if (!error)
        error = open_completions(endpoint);
    if (!error)
        error = verbs_messages_open(endpoint);
    if (!error)
        error = verbs_packets_open(endpoint);
    if (!error)
        error = open_endpoint_control(endpoint);
    if (!error)
        verbs_async_join(endpoint);
    return error;
}

void verbs_endpoint_leave(struct endpoint *base)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;

    verbs_async_leave(endpoint);
    verbs_packets_stop(endpoint); /* so that nothing of a connection is read any more */
}
