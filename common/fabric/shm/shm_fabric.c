/* shm_fabric.c - the shm backend: processes of one host that write into each other's memory. A
 * fabric is an address and a list of registered memory; an endpoint is a listening socket, a
 * doorbell, and the nested epoll that a reactor sleeps on.
 *
 * 1. A fabric does not change after its endpoints are open, so endpoints on different threads share
 *    it without a lock.
 * 2. While an endpoint is armed its `sleeping` word holds the number of this sleep, which no other
 *    sleep has (shm_conn.c, 3).
 * 3. While armed, whatever must go on by time alone (a handshake's limit, a fence, a claim to void)
 *    sets the timer, so a reactor may sleep without a deadline for us.
 * 4. Whoever rang set a bell, and takes the sleep's number away; if neither is so after a sleep, the
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
#include <sys/timerfd.h>
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

/* --- endpoint --- */

int shm_watch(struct shm_endpoint *endpoint, int fd, uint64_t tag)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = tag};

    return epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? ROWAN_EIO : 0;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* What endpoint_open made so far, in any order. */
static void endpoint_free(struct shm_endpoint *endpoint)
{
    const struct shm_fabric *fabric = endpoint->fabric;

    if (endpoint->listen_fd >= 0) {
        socket_unlink(fabric->directory_fd, fabric->name, endpoint->index);
        close(endpoint->listen_fd);
    }
    close_fd(endpoint->epoll_fd);
    close_fd(endpoint->event_fd);
    close_fd(endpoint->timer_fd);
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

    endpoint->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    endpoint->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    endpoint->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (endpoint->epoll_fd < 0 || endpoint->event_fd < 0 || endpoint->timer_fd < 0)
        return ROWAN_EIO;
    if (memory_create("rowan-doorbell", sizeof *endpoint->door, &endpoint->door_fd, &door))
        return ROWAN_ENOMEM;
    endpoint->door = door;
    if (shm_watch(endpoint, endpoint->event_fd, SHM_TAG_WAKE) ||
        shm_watch(endpoint, endpoint->timer_fd, SHM_TAG_WAKE))
        return ROWAN_EIO;
    return 0;
}

static int start_listening(struct shm_endpoint *endpoint)
{
    const struct shm_fabric *fabric = endpoint->fabric;
    int error;

    if (!fabric->has_address)
        return 0;
    error =
        socket_listen(fabric->directory_fd, fabric->name, endpoint->index, &endpoint->listen_fd);
    if (error)
        return error;
    return shm_watch(endpoint, endpoint->listen_fd, SHM_TAG_LISTENER);
}

static int shm_endpoint_open(struct fabric *base, uint32_t index, struct fabric_endpoint **out)
{
    struct shm_endpoint *endpoint = calloc(1, sizeof *endpoint);
    int error;

    if (!endpoint)
        return ROWAN_ENOMEM;
    endpoint->base.ops = base->ops;
    endpoint->fabric = (struct shm_fabric *)base;
    endpoint->index = index;
    endpoint->listen_fd = endpoint->epoll_fd = endpoint->event_fd = -1;
    endpoint->timer_fd = endpoint->door_fd = -1;
    endpoint->woken = true;
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

static void shm_endpoint_close(struct fabric_endpoint *base)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;

    for (unsigned i = 0; i < SHM_MAX_CONNS; i++) {
        if (endpoint->conns[i])
            conn_bury(endpoint->conns[i]);
    }
    conn_reap(endpoint, true);
    if (endpoint->zone)
        shm_zone_close((struct fabric_zone *)endpoint->zone);
    endpoint_free(endpoint);
}

/* --- sleep --- */

void shm_drain(struct shm_endpoint *endpoint)
{
    uint64_t count;
    const ssize_t got = read(endpoint->event_fd, &count, sizeof count);

    ASSERT(got == (ssize_t)sizeof count || errno == EAGAIN);
}

static void endpoint_arm(void *context)
{
    struct shm_endpoint *endpoint = context;

    endpoint->armed = true;
    if (++endpoint->sleep_number == 0)
        endpoint->sleep_number = 1;
    atomic_exchange_explicit(&endpoint->door->sleeping, endpoint->sleep_number,
                             memory_order_seq_cst);
    shm_timer_set(endpoint);
}

static void endpoint_disarm(void *context)
{
    static const struct itimerspec never;
    struct shm_endpoint *endpoint = context;
    struct shm_doorbell *door = endpoint->door;

    endpoint->armed = false;
    /* Rung: what the bell tells is most likely all there is, and the sockets have their turn soon. */
    if (atomic_exchange_explicit(&door->sleeping, 0, memory_order_seq_cst) !=
            endpoint->sleep_number ||
        atomic_load_explicit(&door->summary, memory_order_seq_cst))
        shm_drain(endpoint);
    else
        endpoint->slept = true;
    if (endpoint->timer_on) {
        timerfd_settime(endpoint->timer_fd, 0, &never, NULL); /* takes an expiry back, too */
        endpoint->timer_on = false;
    }
}

static void shm_endpoint_source(struct fabric_endpoint *base, struct event_source *out)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;

    *out = (struct event_source){.fd = endpoint->epoll_fd,
                                 .arm = endpoint_arm,
                                 .disarm = endpoint_disarm,
                                 .context = endpoint};
}

const struct fabric_ops shm_ops = {
    .close = shm_close,
    .register_memory = shm_register,
    .endpoint_open = shm_endpoint_open,
    .endpoint_close = shm_endpoint_close,
    .endpoint_source = shm_endpoint_source,
    .poll = shm_poll,
    .connect = shm_connect,
    .conn_close = shm_conn_close,
    .send = shm_send,
    .message_release = shm_message_release,
    .rowan_room = shm_rowan_room,
    .rowan_add = shm_rowan_add,
    .rowan_post = shm_rowan_post,
    .flush = shm_flush,
    .zone_open = shm_zone_open,
    .zone_post = shm_zone_post,
    .grant = shm_grant,
    .revoke = shm_revoke,
    .write = shm_write,
};
