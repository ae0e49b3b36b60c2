/* shm_fabric.c - the shm backend: processes of one host that write into each other's memory. A
 * fabric is an address and a list of registered memory; an endpoint is a listening socket, a
 * doorbell, and the nested epoll that a reactor sleeps on.
 *
 * 1. A fabric does not change after its endpoints are open, so endpoints on different threads share
 *    it without a lock.
 * 2. While an endpoint is armed its `sleeping` word holds the number of this sleep, which no other
 *    sleep has (shm_connect.c, 5).
 * 3. Whoever rang set a bell, and takes the sleep's number away; then the ring is looked for on the sockets of those who did
 *    (shm_connect.c, 5). One that comes too late for that, or over the eventfd of former layouts, stays readable and ends the next
 *    sleep at once; the look at the sockets that follows such sleeps reads it.
 * 4. The bell's bit is cleared before the ring is read. So a record that the read does not see sets
 *    the bit again.
 * 5. A faulty peer may clear the bits of others, or the sleep's number. So each look at the sockets is one at SWEPT rings, too, in
 *    turn, and who has accepted a connection sleeps no longer than SHM_SWEEP_NS: what no bell announced waits so long at most.
 *    Nobody sets a timer for that at each sleep: it goes on by itself.
 *
 * A poll of an endpoint with nothing to do reads the doorbell's summary, the zone's oldest segment and two list heads,
 * whatever the number of connections; the sockets are looked at once a millisecond, and after a sleep that no bell
 * ended, but not more often than every SHM_SLEPT_CHECK_NS: a readable one ends each sleep at once until then.
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

enum {
    EPOLL_EVENTS = 64,
    SWEPT = 64, /* 5 */
    RINGS = 16, /* of one peer, in one look: more than wait in a socket but by accident */
};

/* --- sleep --- */

/* Takes what was rung off the eventfd, or the timer's ticks, which goes on only then. */
static void drain(int fd)
{
    uint64_t count;
    const ssize_t got = read(fd, &count, sizeof count);

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
        endpoint->rung = true;
    else
        endpoint->slept = true;
}

/* The owner rings when it has posted a segment, and the reactor is woken when the fence is done. */
static uint64_t conn_interval_ns(const struct shm_conn *conn)
{
    if (conn->base.state != CONN_OPEN || !shm_rowan_waits(conn->rowan))
        return 5 * NS_PER_MS;
    return shm_rowan_is_fencing(conn->rowan) && !conn->endpoint->base.base.reactor ? 100 * NS_PER_US
                                                                                   : 20 * NS_PER_MS;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t interval_ns(const struct endpoint *base)
{
    const struct shm_endpoint *endpoint = (const struct shm_endpoint *)base;
    uint64_t interval_ns = UINT64_MAX;

    if (base->lists[LIST_HANDSHAKE].first)
        interval_ns = 5 * NS_PER_MS;
    if (endpoint->zone)
        interval_ns = earlier(interval_ns, zone_interval_ns(endpoint->zone));
    if (base->listen_ready && !base->listen_paused)
        return 1;
    if (base->listen_ready || base->lists[LIST_DEAD].first)
        interval_ns = earlier(interval_ns, ACCEPT_PAUSE_NS);
    for (CONN_EACH(shm_conn, conn, base, LIST_ACTIVE))
        interval_ns = earlier(interval_ns, conn_interval_ns(conn));
    return interval_ns;
}

/* --- sockets --- */

/* Of an open connection. Nothing but rings may come after the handshake: else the peer is gone, or faulty. */
static bool take_ring(struct shm_conn *conn)
{
    int fds[SHM_MAX_FDS];
    unsigned fd_count;
    char byte;
    const int error = socket_receive(conn->socket_fd, &byte, sizeof byte, fds, &fd_count);

    if (error == ROWAN_EAGAIN)
        return false;
    if (!error && fd_count == 0 && conn->base.layout >= VERSION_SHM_RING)
        return true;
    while (fd_count > 0)
        close(fds[--fd_count]);
    if (error == ROWAN_ECLOSED)
        conn_break(&conn->base, ROWAN_ECLOSED, true);
    else
        conn_break(&conn->base, ROWAN_EFORMAT, false);
    return false;
}

static void socket_readable(struct shm_conn *conn)
{
    if (conn->base.state < CONN_OPEN)
        connect_step(conn);
    for (unsigned i = 0; i < RINGS && conn->base.state == CONN_OPEN && take_ring(conn); i++)
        ;
}

/* 5 */
void shm_sweep(struct shm_endpoint *endpoint, bool sweeps)
{
    const struct timespec every = {.tv_nsec = sweeps ? (long)SHM_SWEEP_NS : 0};
    const struct itimerspec spec = {every, every};

    if (endpoint->sweeps != sweeps)
        timerfd_settime(endpoint->sweep_fd, 0, &spec, NULL);
    endpoint->sweeps = sweeps;
}

static void look_at_rings(struct shm_endpoint *endpoint)
{
    uint32_t left = endpoint->base.counts[LIST_SWEPT];

    if (left == 0)
        shm_sweep(endpoint, false);
    for (left = left < SWEPT ? left : SWEPT; left > 0; left--) {
        struct conn *conn = conn_list_take(&endpoint->base, LIST_SWEPT);

        conn_list_append(conn, LIST_SWEPT);
        if (!in_is_empty((const struct shm_conn *)conn))
            conn_list_add(conn, LIST_ACTIVE);
    }
}

static void check_sockets(struct shm_endpoint *endpoint)
{
    struct epoll_event events[EPOLL_EVENTS];
    int found = epoll_wait(endpoint->base.epoll_fd, events, EPOLL_EVENTS, 0);

    endpoint->checked_ns = endpoint->base.now_ns;
    endpoint->woken = found == EPOLL_EVENTS;
    endpoint->slept = false;
    for (int i = 0; i < found; i++) {
        const uint64_t tag = events[i].data.u64;
        struct shm_conn *conn;

        if (tag == SHM_TAG_WAKE) {
            drain(endpoint->event_fd);
            continue;
        }
        if (tag == SHM_TAG_SWEEP) {
            drain(endpoint->sweep_fd);
            continue;
        }
        if (tag == ENDPOINT_LISTENER) {
            endpoint->base.listen_ready = true;
            continue;
        }
        if (tag == ENDPOINT_TIMER)
            continue;
        conn = (struct shm_conn *)endpoint->base.conns[tag & 0xffff];
        if (conn && conn->serial == tag >> 16)
            socket_readable(conn);
    }
    if (endpoint->base.listen_ready)
        endpoint_accept(&endpoint->base);
    endpoint->woken |= endpoint->base.listen_ready && !endpoint->base.listen_paused;
    conn_check_handshakes(&endpoint->base, SHM_HANDSHAKE_NS);
    for (CONN_EACH(shm_conn, conn, &endpoint->base, LIST_HANDSHAKE))
        connect_step(conn);
    if (endpoint->zone)
        zone_check(endpoint->zone);
    look_at_rings(endpoint);
}

/* --- doorbell --- */

static void take_bells(struct shm_endpoint *endpoint)
{
    struct shm_doorbell *door = endpoint->door;
    uint64_t words = atomic_exchange_explicit(&door->summary, 0, memory_order_seq_cst);

    while (words) {
        const uint32_t word = (uint32_t)__builtin_ctzll(words);
        uint64_t bits = atomic_exchange_explicit(&door->ready[word], 0, memory_order_seq_cst);

        words &= words - 1;
        while (bits) {
            struct conn *conn = endpoint->base.conns[word * 64 + (uint32_t)__builtin_ctzll(bits)];

            bits &= bits - 1;
            if (!conn || !conn->was_open)
                continue;
            conn_list_add(conn, LIST_ACTIVE);
            if (endpoint->rung && conn->state == CONN_OPEN)
                endpoint->rung = !take_ring((struct shm_conn *)conn); /* 3 */
        }
    }
    endpoint->slept |= endpoint->rung;
    endpoint->rung = false;
}

/* --- connections --- */

static unsigned move(struct conn *base, struct fabric_event *events, unsigned max)
{
    struct shm_conn *conn = (struct shm_conn *)base;
    unsigned count = 0;

    if (conn->unheard)
        conn_break(base, ROWAN_EIO, false);
    if (conn->rowan && base->state == CONN_OPEN)
        shm_rowan_push(conn);
    if (conn->rowan && conn_moves(base))
        count += shm_rowan_poll(conn, events, max);
    if (conn_moves(base))
        out_poll(conn);
    if (conn_moves(base))
        count += in_poll(conn, events + count, max - count);
    return count;
}

static bool is_drained(const struct conn *conn)
{
    return in_is_empty((const struct shm_conn *)conn);
}

static bool has_work(const struct conn *base)
{
    const struct shm_conn *conn = (const struct shm_conn *)base;

    return base->state == CONN_BREAKING || shm_rowan_waits(conn->rowan) || !out_is_idle(conn) ||
           !in_is_empty(conn);
}

static unsigned step(struct endpoint *base, struct fabric_event *events, unsigned max)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    const uint64_t since_ns = base->now_ns - endpoint->checked_ns;

    if (endpoint->woken || since_ns >= SHM_CHECK_NS ||
        (endpoint->slept && since_ns >= SHM_SLEPT_CHECK_NS))
        check_sockets(endpoint);
    if (atomic_load_explicit(&endpoint->door->summary, memory_order_seq_cst))
        take_bells(endpoint);
    return endpoint->zone ? zone_poll(endpoint->zone, events, max) : 0;
}

static void push(struct conn *base)
{
    struct shm_conn *conn = (struct shm_conn *)base;
    bool ring = out_publish(conn);

    ring |= in_publish(conn);
    if (ring)
        conn_ring(conn);
    if (conn->rowan)
        shm_rowan_push(conn);
    if (base->state == CONN_OPEN && shm_rowan_waits(conn->rowan))
        conn_list_add(base, LIST_ACTIVE);
}

/* --- endpoint --- */

static void shm_endpoint_free(struct endpoint *base)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    const struct shm_fabric *fabric = (const struct shm_fabric *)base->fabric;

    if (base->listen_fd >= 0)
        socket_unlink(fabric->directory_fd, fabric->name, base->index);
    close_fd(endpoint->event_fd);
    close_fd(endpoint->sweep_fd);
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
    endpoint->sweep_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (endpoint->sweep_fd < 0 ||
        endpoint_watch(&endpoint->base, endpoint->sweep_fd, EPOLLIN, SHM_TAG_SWEEP))
        return ROWAN_EIO;
    return endpoint_watch(&endpoint->base, endpoint->event_fd, SHM_WATCHED, SHM_TAG_WAKE);
}

static int shm_endpoint_open(struct endpoint *base)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    const struct shm_fabric *fabric = (const struct shm_fabric *)base->fabric;
    int error;

    endpoint->event_fd = endpoint->sweep_fd = endpoint->door_fd = -1;
    endpoint->woken = true;
    error = open_descriptors(endpoint);
    if (error || fabric->directory_fd < 0)
        return error;
    return socket_listen(fabric->directory_fd, fabric->name, base->index, &base->listen_fd);
}

static const struct conn_backend backend = {
    .endpoint_bytes = sizeof(struct shm_endpoint),
    .conn_bytes = sizeof(struct shm_conn),
    .most_conns = SHM_MAX_CONNS,
    .open = shm_endpoint_open,
    .free = shm_endpoint_free,
    .zone_bytes = sizeof(struct shm_zone),
    .zone_open = shm_zone_open,
    .zone_posted = shm_zone_posted,
    .zone_close = shm_zone_close,
    .close_segment = shm_close_segment,
    .begun = shm_zone_begun,
    .shut_out = shm_shut_out,
    .accepted = shm_accepted,
    .step = step,
    .move = move,
    .has_work = has_work,
    .is_drained = is_drained,
    .push = push,
    .stop = shm_conn_stop,
    .guest_came = shm_guest_came,
    .guest_went = shm_guest_went,
    .release = shm_conn_release,
    .destroy = shm_conn_destroy,
    .interval_ns = interval_ns,
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
    int error = 0;

    if (!fabric)
        return ROWAN_ENOMEM;
    fabric->base.base.ops = &shm_ops;
    fabric->base.backend = &backend;
    fabric->base.base.caps = (struct fabric_caps){
        .backend = "shm",
        .shares_messages = true,
        .block_limit = SHM_BLOCK_BYTES,
        .landing_stride = FABRIC_STRIDE,
        .max_batch_blocks = SHM_BLOCKS,
    };
    fabric->directory_fd = -1;
    if (address)
        error = open_directory(fabric, address);
    if (error) {
        free(fabric);
        return error;
    }
    *out = &fabric->base.base;
    return 0;
}
