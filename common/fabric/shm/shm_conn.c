/* shm_conn.c - a connection's life, from its slot to its grave, and the doorbell of its peer.
 *
 * 1. A connection that the owner knows of ends in exactly one CLOSED event, unless the owner closed
 *    it. One that the owner never heard of (a handshake that failed at the passive side) ends
 *    silently.
 * 2. A dead connection's socket is closed at once. All else is given back by the next poll, because
 *    messages that were handed out together with CLOSED lie in its memory; and not before a sync that
 *    is under way has ended, because nothing waits for it. Calls on it answer ECLOSED.
 * 3. A doorbell rung by one peer is never lost by another that was stopped in the middle: the one
 *    who wakes a sleeper writes the eventfd first and only then takes the sleep's number away, and
 *    takes away no other sleep's number. A peer that finds the number writes, too.
 *
 *   active:  CONNECTING -> GREETING --+--> OPEN -- conn_break --> BREAKING -- CLOSED --> DEAD
 *   passive: EXPECTING ---------------+                              ^
 *   an active one that fails: CONNECTING, GREETING -- conn_break ----+
 *   any state -- fabric_conn_close, or 1's silent end --> DEAD
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

int conn_create(struct shm_endpoint *endpoint, bool active, struct shm_conn **out)
{
    struct shm_conn *conn;
    uint32_t slot;

    if (!find_slot(endpoint, &slot))
        return ROWAN_ETOOMANY;
    conn = calloc(1, sizeof *conn);
    if (!conn)
        return ROWAN_ENOMEM;
    conn->base.ops = endpoint->base.ops;
    conn->base.endpoint = &endpoint->base;
    conn->endpoint = endpoint;
    conn->state = active ? CONN_CONNECTING : CONN_EXPECTING;
    conn->active = active;
    conn->zone_member = -1;
    conn->slot = slot;
    conn->serial = endpoint->serial++;
    conn->socket_fd = -1;
    conn->channel_fd = -1;
    conn->peer_event_fd = -1;
    endpoint->conns[slot] = conn;
    endpoint->handshakes++;
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
    unsigned out = conn->active ? 0 : 1, in = 1 - out;
    void *memory;
    int error;

    if (!conn->active) {
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

void conn_list(struct shm_conn *conn, enum shm_list_kind kind)
{
    struct shm_list *list = &conn->endpoint->lists[kind];

    if (conn->listed[kind])
        return;
    conn->listed[kind] = true;
    conn->next[kind] = NULL;
    if (list->last)
        list->last->next[kind] = conn;
    else
        list->first = conn;
    list->last = conn;
}

struct shm_conn *conn_unlist(struct shm_endpoint *endpoint, enum shm_list_kind kind)
{
    struct shm_list *list = &endpoint->lists[kind];
    struct shm_conn *conn = list->first;

    if (!conn)
        return NULL;
    list->first = conn->next[kind];
    if (!list->first)
        list->last = NULL;
    conn->listed[kind] = false;
    return conn;
}

static bool in_handshake(const struct shm_conn *conn)
{
    return conn->state == CONN_CONNECTING || conn->state == CONN_GREETING ||
           conn->state == CONN_EXPECTING;
}

static void end_handshake(struct shm_conn *conn)
{
    if (in_handshake(conn)) {
        ASSERT(conn->endpoint->handshakes > 0);
        conn->endpoint->handshakes--;
    }
}

/* A closed socket tells the peer that we store no more: the state has been set before. */
static void drop_socket(struct shm_conn *conn)
{
    struct shm_zone *zone = conn->endpoint->zone;

    if (conn->socket_fd < 0)
        return;
    if (zone && conn->zone_member >= 0) {
        epoll_ctl(conn->endpoint->epoll_fd, EPOLL_CTL_DEL, conn->socket_fd, NULL);
        zone_leave(zone, conn->zone_member, conn->socket_fd);
    } else {
        close(conn->socket_fd);
    }
    conn->zone_member = -1;
    conn->socket_fd = -1;
}

void conn_break(struct shm_conn *conn, int error, bool drain)
{
    if (conn->state >= CONN_BREAKING)
        return;
    if (conn->state == CONN_EXPECTING) {
        conn_bury(conn);
        return;
    }
    end_handshake(conn);
    conn->drain = drain && conn->usable;
    conn->state = CONN_BREAKING;
    conn->error = error;
    drop_socket(conn);
    conn_list(conn, LIST_ACTIVE);
}

void conn_bury(struct shm_conn *conn)
{
    if (conn->state == CONN_DEAD)
        return;
    end_handshake(conn);
    conn->state = CONN_DEAD;
    conn->base.has_zone = false;
    drop_socket(conn);
    conn->endpoint->conns[conn->slot] = NULL;
    conn_list(conn, LIST_DEAD);
}

static void conn_free(struct shm_conn *conn)
{
    free(conn->writer);
    shm_rowan_destroy(conn->rowan);
    if (conn->channel)
        munmap(conn->channel, channel_bytes(SHM_RING_BYTES));
    if (conn->channel_fd >= 0)
        close(conn->channel_fd);
    if (conn->peer_door)
        munmap(conn->peer_door, sizeof *conn->peer_door);
    if (conn->peer_event_fd >= 0)
        close(conn->peer_event_fd);
    free(conn->out.staging);
    free(conn->directory);
    free(conn);
}

static void remove_from(struct shm_list *list, enum shm_list_kind kind, struct shm_conn *conn)
{
    struct shm_conn *before = NULL;

    if (!conn->listed[kind])
        return;
    for (struct shm_conn *c = list->first; c != conn; c = c->next[kind])
        before = c;
    if (before)
        before->next[kind] = conn->next[kind];
    else
        list->first = conn->next[kind];
    if (list->last == conn)
        list->last = before;
    conn->listed[kind] = false;
}

void conn_reap(struct shm_endpoint *endpoint, bool wait)
{
    const struct shm_conn *last = endpoint->lists[LIST_DEAD].last;
    struct shm_conn *conn;

    while ((conn = conn_unlist(endpoint, LIST_DEAD))) {
        const bool is_last = conn == last;

        remove_from(&endpoint->lists[LIST_ACTIVE], LIST_ACTIVE, conn);
        remove_from(&endpoint->lists[LIST_DIRTY], LIST_DIRTY, conn);
        in_free_buffers(conn);
        if (!wait && conn->rowan &&
            (shm_rowan_is_syncing(conn->rowan) || shm_writer_is_syncing(conn)))
            conn_list(conn, LIST_DEAD);
        else
            conn_free(conn);
        if (is_last)
            break;
    }
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
    written = write(conn->peer_event_fd, &one, sizeof one);    /* 3 */
    ASSERT(written == (ssize_t)sizeof one || errno == EAGAIN); /* full is readable, too */
    atomic_compare_exchange_strong_explicit(&door->sleeping, &sleep, 0, memory_order_seq_cst,
                                            memory_order_relaxed);
}

void shm_conn_close(struct fabric_conn *base)
{
    struct shm_conn *conn = (struct shm_conn *)base;

    conn_bury(conn);
}
