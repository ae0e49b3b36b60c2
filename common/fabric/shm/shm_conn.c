/* shm_conn.c - a connection's slot and memory, and the doorbell of its peer.
 *
 * 1. A dead connection's socket is closed at once. All else is given back by a later poll (conn.h), and not before a
 *    sync that is under way has ended, because nothing waits for it.
 * 2. A doorbell rung by one peer is never lost by another that was stopped in the middle: the one
 *    who wakes a sleeper writes the eventfd first and only then takes the sleep's number away, and
 *    takes away no other sleep's number. A peer that finds the number writes, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/shm/shm.h"

static bool find_slot(const struct shm_endpoint *endpoint, uint32_t *out)
{
    for (uint32_t i = 0; i < SHM_MAX_CONNS; i++) {
        if (!endpoint->conns[i]) {
            *out = i;
            return true;
        }
    }
    return false;
}

int shm_conn_create(struct shm_endpoint *endpoint, bool active, struct shm_conn **out)
{
    struct shm_conn *conn;
    uint32_t slot;

    if (!find_slot(endpoint, &slot))
        return ROWAN_ETOOMANY;
    conn = calloc(1, sizeof *conn);
    if (!conn)
        return ROWAN_ENOMEM;
    conn->endpoint = endpoint;
    conn->zone_member = -1;
    conn->slot = slot;
    conn->serial = endpoint->serial++;
    conn->socket_fd = -1;
    conn->channel_fd = -1;
    conn->peer_event_fd = -1;
    endpoint->conns[slot] = conn;
    conn_init(&conn->base, &endpoint->base, active);
    *out = conn;
    return 0;
}

int conn_attach(struct shm_conn *conn, int door_fd, int event_fd, uint32_t peer_slot)
{
    void *door;
    int error;

    if (peer_slot >= SHM_MAX_CONNS || !is_eventfd(event_fd))
        return ROWAN_EFORMAT;
    error = memory_map(door_fd, sizeof(struct shm_doorbell), &door);
    if (error)
        return error;
    close(door_fd);
    conn->peer_door = door;
    conn->peer_event_fd = event_fd;
    conn->peer_slot = peer_slot;
    return 0;
}

int conn_map_channel(struct shm_conn *conn, int fd, uint32_t ring_bytes)
{
    struct shm_channel *channel = conn->channel;
    unsigned out = conn->base.active ? 0 : 1, in = 1 - out;
    void *memory;
    int error;

    if (!conn->base.active) {
        if (ring_bytes != SHM_RING_BYTES)
            return ROWAN_EFORMAT;
        error = memory_map(fd, channel_bytes(ring_bytes), &memory);
        if (error)
            return error;
        close(fd);
        channel = memory;
    }
    conn->channel = channel;
    conn->out.ring = &channel->ring[out];
    conn->out.data = channel->data + out * (size_t)ring_bytes;
    conn->out.bytes = ring_bytes;
    conn->in.ring = &channel->ring[in];
    conn->in.data = channel->data + in * (size_t)ring_bytes;
    conn->in.bytes = ring_bytes;
    return 0;
}

/* A closed socket tells the peer that we store no more: the state has been set before. */
static void drop_socket(struct shm_conn *conn)
{
    struct shm_zone *zone = conn->endpoint->zone;

    if (conn->socket_fd < 0)
        return;
    if (zone && conn->zone_member >= 0) {
        epoll_ctl(conn->endpoint->base.epoll_fd, EPOLL_CTL_DEL, conn->socket_fd, NULL);
        zone_leave(zone, conn->zone_member, conn->socket_fd);
    } else {
        close(conn->socket_fd);
    }
    conn->zone_member = -1;
    conn->socket_fd = -1;
}

void shm_conn_stop(struct conn *base)
{
    struct shm_conn *conn = (struct shm_conn *)base;

    drop_socket(conn);
    if (base->state == CONN_DEAD)
        conn->endpoint->conns[conn->slot] = NULL;
}

/* 1 */
bool shm_conn_release(struct conn *base)
{
    struct shm_conn *conn = (struct shm_conn *)base;

    in_free_buffers(conn);
    return conn->endpoint->base.closing || !conn->rowan || !shm_rowan_is_syncing(conn->rowan);
}

void shm_conn_destroy(struct conn *base)
{
    struct shm_conn *conn = (struct shm_conn *)base;

    shm_rowan_destroy(conn->rowan);
    if (conn->channel)
        munmap(conn->channel, channel_bytes(SHM_RING_BYTES));
    close_fd(conn->channel_fd);
    if (conn->peer_door)
        munmap(conn->peer_door, sizeof *conn->peer_door);
    close_fd(conn->peer_event_fd);
    free(conn->out.staging);
    free(conn->directory);
    free(conn);
}

void conn_ring(struct shm_conn *conn)
{
    struct shm_doorbell *door = conn->peer_door;
    const uint32_t word = conn->peer_slot / 64;
    const uint64_t one = 1;
    ssize_t written;
    uint32_t sleep;

    atomic_fetch_or_explicit(&door->ready[word], one << (conn->peer_slot % 64),
                             memory_order_seq_cst);
    if (!(atomic_load_explicit(&door->summary, memory_order_seq_cst) & one << word))
        atomic_fetch_or_explicit(&door->summary, one << word, memory_order_seq_cst);
    sleep = atomic_load_explicit(&door->sleeping, memory_order_seq_cst);
    if (sleep == 0)
        return;
    written = write(conn->peer_event_fd, &one, sizeof one);    /* 2 */
    ASSERT(written == (ssize_t)sizeof one || errno == EAGAIN); /* full is readable, too */
    atomic_compare_exchange_strong_explicit(&door->sleeping, &sleep, 0, memory_order_seq_cst,
                                            memory_order_relaxed);
}
