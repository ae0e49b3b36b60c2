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

/* --- fabric --- */

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
    fabric->base.ops = &shm_ops;
    fabric->base.caps = (struct fabric_caps){
        .backend = "shm",
        .block_limit = SHM_BLOCK_BYTES,
        .landing_stride = FABRIC_STRIDE,
        .max_batch_blocks = SHM_BLOCKS,
        .bytes_per_connection = (uint32_t)(channel_bytes(SHM_RING_BYTES) + sizeof(struct shm_conn)),
    };
    fabric->directory_fd = -1;
    if (address) {
        error = open_directory(fabric, address);
        if (error) {
            free(fabric);
            return error;
        }
        fabric->has_address = true;
    }
    *out = &fabric->base;
    return 0;
}

static void shm_close(struct fabric *base)
{
    struct shm_fabric *fabric = (struct shm_fabric *)base;

    if (fabric->has_address)
        close(fabric->directory_fd);
    free(fabric);
}

static int shm_register(struct fabric *base, struct pm *pm)
{
    return regions_add(&((struct shm_fabric *)base)->regions, pm);
}

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

static const struct conn_backend backend = {
    .step = shm_poll_step,
    .move = shm_move,
    .has_work = shm_has_work,
    .is_drained = shm_is_drained,
    .push = shm_push,
    .stop = shm_conn_stop,
    .release = shm_conn_release,
    .destroy = shm_conn_destroy,
    .give = shm_give,
    .take_back = shm_take_back,
    .interval_ns = shm_interval_ns,
    .arm = arm,
    .disarm = disarm,
};

/* --- endpoint --- */

int shm_watch(struct shm_endpoint *endpoint, int fd, uint64_t tag)
{
    return endpoint_watch(&endpoint->base, fd, EPOLLIN | EPOLLRDHUP, tag);
}

/* What endpoint_open made so far, in any order. */
static void endpoint_free(struct shm_endpoint *endpoint)
{
    const struct shm_fabric *fabric = endpoint->fabric;

    if (endpoint->base.listen_fd >= 0)
        socket_unlink(fabric->directory_fd, fabric->name, endpoint->base.index);
    endpoint_fini(&endpoint->base);
    close_fd(endpoint->event_fd);
    close_fd(endpoint->door_fd);
    if (endpoint->door)
        munmap(endpoint->door, sizeof *endpoint->door);
    for (unsigned i = 0; i < SHM_BUFFERS; i++)
        free(endpoint->buffers[i].data);
    free(endpoint);
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
    return shm_watch(endpoint, endpoint->event_fd, SHM_TAG_WAKE);
}

static int start_listening(struct shm_endpoint *endpoint)
{
    const struct shm_fabric *fabric = endpoint->fabric;
    int error;

    if (!fabric->has_address)
        return 0;
    error = socket_listen(fabric->directory_fd, fabric->name, endpoint->base.index,
                          &endpoint->base.listen_fd);
    if (error)
        return error;
    return shm_watch(endpoint, endpoint->base.listen_fd, ENDPOINT_LISTENER);
}

static int shm_endpoint_open(struct fabric *base, uint32_t index, struct fabric_endpoint **out)
{
    struct shm_endpoint *endpoint = calloc(1, sizeof *endpoint);
    int error;

    if (!endpoint)
        return ROWAN_ENOMEM;
    endpoint->fabric = (struct shm_fabric *)base;
    endpoint->event_fd = endpoint->door_fd = -1;
    endpoint->woken = true;
    error = endpoint_init(&endpoint->base, base, &endpoint->fabric->regions, index, &backend);
    if (!error)
        error = open_descriptors(endpoint);
    if (!error)
        error = start_listening(endpoint);
    if (error) {
        endpoint_free(endpoint);
        return error;
    }
    *out = &endpoint->base.base;
    return 0;
}

static void shm_endpoint_close(struct fabric_endpoint *base)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;

    endpoint_end(&endpoint->base);
    if (endpoint->zone)
        shm_zone_close((struct fabric_zone *)endpoint->zone);
    endpoint_free(endpoint);
}

const struct fabric_ops shm_ops = {
    .close = shm_close,
    .register_memory = shm_register,
    .endpoint_open = shm_endpoint_open,
    .endpoint_close = shm_endpoint_close,
    .endpoint_source = endpoint_source,
    .poll = endpoint_poll,
    .connect = shm_connect,
    .conn_close = conn_close,
    .send = shm_send,
    .message_release = shm_message_release,
    .rowan_room = window_rowan_room,
    .rowan_add = window_rowan_add,
    .rowan_post = window_rowan_post,
    .flush = endpoint_flush,
    .zone_open = shm_zone_open,
    .zone_post = shm_zone_post,
    .grant = grants_give,
    .revoke = grants_revoke,
    .write = window_bulk_write,
};
