/* shm_fabric.c - the shm backend: processes of one host that write into each other's memory. A
 * fabric is an address and a list of registered memory; an endpoint is a listening socket, a
 * doorbell, and the nested epoll that a reactor sleeps on.
 *
 * 1. A fabric does not change after its endpoints are open, so endpoints on different threads share
 *    it without a lock.
 * 2. While an endpoint is armed its `sleeping` word holds the number of this sleep, which no other
 *    sleep has (shm_conn.c, 2).
 * 3. Whoever rang set a bell, and takes the sleep's number away; if neither is so after a sleep, the
 *    eventfd is not read. Written too late for that, it stays readable and ends the next sleep at once; the look at
 *    the sockets that follows such sleeps reads it (shm_poll.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/shm/shm.h"

/* --- sleep --- */

void shm_drain(struct shm_endpoint *endpoint)
{
    uint64_t count;
    const ssize_t got = read(endpoint->event_fd, &count, sizeof count);

    ASSERT(got == (ssize_t)sizeof count || errno == EAGAIN);
}

static void arm(struct endpoint *base)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;

    if (++endpoint->sleep_number == 0)
        endpoint->sleep_number = 1;
    atomic_exchange_explicit(&endpoint->door->sleeping, endpoint->sleep_number,
                             memory_order_seq_cst);
}

static void disarm(struct endpoint *base)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    struct shm_doorbell *door = endpoint->door;

    /* Rung: what the bell tells is most likely all there is, and the sockets have their turn soon. */
    if (atomic_exchange_explicit(&door->sleeping, 0, memory_order_seq_cst) !=
            endpoint->sleep_number ||
        atomic_load_explicit(&door->summary, memory_order_seq_cst))
        shm_drain(endpoint);
    else
        endpoint->slept = true;
}

/* --- endpoint --- */

static void shm_endpoint_free(struct endpoint *base)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    const struct shm_fabric *fabric = (const struct shm_fabric *)base->fabric;

    if (base->listen_fd >= 0)
        socket_unlink(fabric->directory_fd, fabric->name, base->index);
    close_fd(endpoint->event_fd);
    close_fd(endpoint->door_fd);
    if (endpoint->door)
        munmap(endpoint->door, sizeof *endpoint->door);
    for (unsigned i = 0; i < SHM_BUFFERS; i++)
        free(endpoint->buffers[i].data);
}

static int open_descriptors(struct shm_endpoint *endpoint)
{
    void *door;

    endpoint->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (endpoint->event_fd < 0)
        return ROWAN_EIO;
    if (memory_create("rowan-doorbell", sizeof *endpoint->door, &endpoint->door_fd, &door))
        return ROWAN_ENOMEM;
    endpoint->door = door;
    return endpoint_watch(&endpoint->base, endpoint->event_fd, SHM_WATCHED, SHM_TAG_WAKE);
}

static int shm_endpoint_open(struct endpoint *base)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    const struct shm_fabric *fabric = (const struct shm_fabric *)base->fabric;
    int error;

    endpoint->event_fd = endpoint->door_fd = -1;
    endpoint->woken = true;
    error = open_descriptors(endpoint);
    if (error || fabric->directory_fd < 0)
        return error;
    error = socket_listen(fabric->directory_fd, fabric->name, base->index, &base->listen_fd);
    return error ? error : endpoint_watch(base, base->listen_fd, SHM_WATCHED, ENDPOINT_LISTENER);
}

static const struct conn_backend backend = {
    .endpoint_bytes = sizeof(struct shm_endpoint),
    .open = shm_endpoint_open,
    .free = shm_endpoint_free,
    .zone_bytes = sizeof(struct shm_zone),
    .zone_open = shm_zone_open,
    .zone_posted = shm_zone_posted,
    .zone_close = shm_zone_close,
    .close_segment = shm_close_segment,
    .begun = shm_zone_begun,
    .shut_out = shm_shut_out,
    .step = shm_poll_step,
    .move = shm_move,
    .has_work = shm_has_work,
    .is_drained = shm_is_drained,
    .push = shm_push,
    .stop = shm_conn_stop,
    .release = shm_conn_release,
    .destroy = shm_conn_destroy,
    .interval_ns = shm_interval_ns,
    .arm = arm,
    .disarm = disarm,
};

/* --- fabric --- */

static void shm_close(struct fabric *base)
{
    struct shm_fabric *fabric = (struct shm_fabric *)base;

    close_fd(fabric->directory_fd);
    free(fabric);
}

static const struct fabric_ops shm_ops = {
    ENDPOINT_OPS,
    .close = shm_close,
    .register_memory = fabric_register_regions,
    .connect = shm_connect,
    .send = shm_send,
    .message_release = shm_message_release,
    .rowan_add = window_rowan_add,
};

static int open_directory(struct shm_fabric *fabric, const char *address)
{
    char *directory;
    int error = address_parse(address, &directory, fabric->name);

    if (error)
        return error;
    fabric->directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fabric->directory_fd < 0)
        error = errno == ENOENT || errno == ENOTDIR ? ROWAN_EINVALID : error_from_errno(errno);
    free(directory);
    return error;
}

int fabric_open_shm(const char *address, struct fabric **out)
{
    struct shm_fabric *fabric = calloc(1, sizeof *fabric);
    int error;

    if (!fabric)
        return ROWAN_ENOMEM;
    fabric->base.base.ops = &shm_ops;
    fabric->base.backend = &backend;
    fabric->base.base.caps = (struct fabric_caps){
        .backend = "shm",
        .block_limit = SHM_BLOCK_BYTES,
        .landing_stride = FABRIC_STRIDE,
        .max_batch_blocks = SHM_BLOCKS,
    };
    fabric->directory_fd = -1;
    if (address) {
        error = open_directory(fabric, address);
        if (error) {
            free(fabric);
            return error;
        }
    }
    *out = &fabric->base.base;
    return 0;
}
