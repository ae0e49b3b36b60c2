/* Connections of the simulated network, and the messages on them.
 *
 * What has been sent waits in the sender's `outgoing` until it is flushed, then in the receiver's
 * `incoming` until it has arrived and is polled, then among the receiver's `unreleased`. The sender
 * counts all three against its room.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/sim_fabric_state.h"

/* --- queues --- */

static void queue_push(struct sim_queue *queue, struct sim_item *item)
{
    item->next = NULL;
    if (queue->last)
        queue->last->next = item;
    else
        queue->first = item;
    queue->last = item;
}

static struct sim_item *queue_pop(struct sim_queue *queue)
{
    struct sim_item *item = queue->first;
    queue->first = item->next;
    if (!queue->first)
        queue->last = NULL;
    return item;
}

static struct sim_item *item_create(enum fabric_event_kind kind, size_t bytes)
{
    struct sim_item *item = calloc(1, sizeof *item + bytes);
    ASSERT(item);
    item->event.kind = kind;
    return item;
}

/* The bytes of a message that was sent without FABRIC_COPY are fetched as late as possible, so that
 * a sender that changes them too early is found out. */
static void gather(struct sim_item *item)
{
    uint8_t *to = item->data;
    for (unsigned i = 0; i < item->iov_count; i++) {
        if (item->iov[i].bytes)
            memcpy(to, item->iov[i].data, item->iov[i].bytes);
        to += item->iov[i].bytes;
    }
    item->iov_count = 0;
}

/* --- life --- */

struct sim_conn *sim_conn_create(struct sim_endpoint *endpoint, uint64_t context)
{
    struct sim_conn *conn = calloc(1, sizeof *conn);
    ASSERT(conn);
    conn->head = (struct fabric_conn){.ops = endpoint->head.ops, .endpoint = &endpoint->head};
    conn->endpoint = endpoint;
    conn->context = context;
    conn->previous = endpoint->last_conn;
    if (endpoint->last_conn)
        endpoint->last_conn->next = conn;
    else
        endpoint->conns = conn;
    endpoint->last_conn = conn;
    return conn;
}

void sim_conn_free(struct sim_conn *conn)
{
    struct sim_endpoint *endpoint = conn->endpoint;
    ASSERT(!conn->peer);
    if (conn->previous)
        conn->previous->next = conn->next;
    else
        endpoint->conns = conn->next;
    if (conn->next)
        conn->next->previous = conn->previous;
    else
        endpoint->last_conn = conn->previous;
    while (conn->incoming.first)
        free(queue_pop(&conn->incoming));
    while (conn->outgoing.first)
        free(queue_pop(&conn->outgoing));
    while (conn->unreleased) {
        struct sim_item *item = conn->unreleased;
        conn->unreleased = item->next;
        free(item);
    }
    free(conn->blocks);
    free(conn);
}

static uint64_t arrival_ns(struct sim_conn *to)
{
    struct sim_network *network = sim_network_of(to);
    uint64_t at_ns = sim_network_now(network) + sim_network_delay(network);
    if (at_ns < to->last_at_ns)
        at_ns = to->last_at_ns;
    to->last_at_ns = at_ns;
    network->progress++;
    return at_ns;
}

void sim_conn_push(struct sim_conn *conn, enum fabric_event_kind kind, int error, uint64_t context)
{
    struct sim_item *item = item_create(kind, 0);
    item->event.error = error;
    item->event.context = context;
    item->at_ns = arrival_ns(conn);
    queue_push(&conn->incoming, item);
}

/* --- the end --- */

/* Keeps the first `keep` of what is on its way to the owner. */
static void cut_incoming(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    struct sim_queue old = conn->incoming;
    uint64_t count = 0;
    for (const struct sim_item *item = old.first; item; item = item->next)
        count++;
    uint64_t keep = random_below(&network->random, count + 1);
    /* An owner must know a connection before it hears of its end. */
    if (keep == 0 && old.first && old.first->event.kind == FABRIC_ACCEPTED)
        keep = 1;
    conn->incoming = (struct sim_queue){0};
    while (old.first) {
        struct sim_item *item = queue_pop(&old);
        if (keep > 0) {
            keep--;
            gather(item); /* the sender's memory may be gone by the time it arrives */
            queue_push(&conn->incoming, item);
        } else {
            network->counts.lost += item->event.kind == FABRIC_MESSAGE;
            free(item);
        }
    }
}

static void end_side(struct sim_conn *conn, bool tell)
{
    while (conn->outgoing.first)
        free(queue_pop(&conn->outgoing));
    conn->state = CONN_BROKEN;
    conn->peer = NULL;
    if (tell)
        sim_conn_push(conn, FABRIC_CLOSED, ROWAN_ECLOSED, conn->context);
}

void sim_conn_break(struct sim_conn *conn, bool to_owner)
{
    if (conn->state == CONN_CONNECTING) {
        sim_network_of(conn)->connecting--;
        end_side(conn, to_owner);
        return;
    }
    struct sim_conn *peer = conn->peer;
    if (!peer)
        return; /* it is broken already */
    sim_rowan_cut(conn);
    sim_rowan_cut(peer);
    cut_incoming(conn);
    cut_incoming(peer);
    end_side(peer, true);
    end_side(conn, to_owner);
}

void sim_conn_close(struct fabric_conn *head)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    sim_conn_break(conn, false);
    conn->over = true;
}

/* --- beginning --- */

int sim_connect(struct fabric_endpoint *head, const char *address, uint32_t index, uint64_t context,
                struct fabric_conn **out)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    struct sim_network *network = endpoint->fabric->network;
    if (!sim_address_is_valid(address))
        return ROWAN_EINVALID;
    struct sim_conn *conn = sim_conn_create(endpoint, context);
    conn->state = CONN_CONNECTING;
    conn->identity = head->identity;
    strcpy(conn->to, address);
    conn->to_index = index;
    conn->connect_at_ns = sim_network_now(network) + sim_network_delay(network);
    network->connecting++;
    network->progress++;
    *out = &conn->head;
    return 0;
}

/* --- messages --- */

int sim_send(struct fabric_conn *head, const struct fabric_iov *iov, unsigned count, unsigned flags,
             uint64_t context)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    struct sim_network *network = sim_network_of(conn);
    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (count == 0 || count > FABRIC_MAX_IOV)
        return ROWAN_EINVALID;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        bytes += iov[i].bytes;
        if (!(flags & FABRIC_COPY) &&
            !sim_fabric_registered(conn->endpoint->fabric, iov[i].data, iov[i].bytes))
            return ROWAN_EINVALID;
    }
    if (bytes > FABRIC_MAX_MESSAGE_BYTES)
        return ROWAN_EINVALID;
    if (conn->messages >= network->options.max_messages ||
        conn->message_bytes + bytes > SIM_MAX_UNRELEASED_BYTES) {
        network->counts.refused++;
        return ROWAN_EAGAIN;
    }
    conn->messages++;
    conn->message_bytes += bytes;
    struct sim_item *item = item_create(FABRIC_MESSAGE, bytes);
    item->event.bytes = (uint32_t)bytes;
    item->flags = flags;
    item->signal = context;
    item->iov_count = count;
    memcpy(item->iov, iov, count * sizeof iov[0]);
    if (flags & FABRIC_COPY)
        gather(item);
    queue_push(&conn->outgoing, item);
    return 0;
}

void sim_conn_flush(struct sim_conn *conn)
{
    while (conn->outgoing.first) {
        struct sim_item *item = queue_pop(&conn->outgoing);
        item->at_ns = arrival_ns(conn->peer);
        queue_push(&conn->peer->incoming, item);
    }
}

static void hand_out_message(struct sim_conn *conn, struct sim_item *item)
{
    gather(item);
    item->event.data = item->data;
    item->event.message = (uint64_t)(uintptr_t)item;
    item->previous = NULL;
    item->next = conn->unreleased;
    if (conn->unreleased)
        conn->unreleased->previous = item;
    conn->unreleased = item;
    if ((item->flags & FABRIC_SIGNAL) && conn->peer)
        sim_conn_push(conn->peer, FABRIC_SENT, 0, item->signal);
}

bool sim_conn_next(struct sim_conn *conn, struct fabric_event *event)
{
    struct sim_item *item = conn->incoming.first;
    if (!item || item->at_ns > sim_network_now(sim_network_of(conn)))
        return false;
    queue_pop(&conn->incoming);
    item->event.conn = &conn->head;
    bool message = item->event.kind == FABRIC_MESSAGE;
    if (message)
        hand_out_message(conn, item);
    *event = item->event;
    if (event->kind == FABRIC_CLOSED) {
        ASSERT(!conn->incoming.first); /* F3 */
        conn->over = true;
    }
    if (!message)
        free(item);
    return true;
}

void sim_message_release(struct fabric_conn *head, uint64_t message)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    struct sim_item *item = conn->unreleased;
    while (item && item != (struct sim_item *)(uintptr_t)message)
        item = item->next;
    ASSERT(item); /* released twice, or of another connection */
    if (item->previous)
        item->previous->next = item->next;
    else
        conn->unreleased = item->next;
    if (item->next)
        item->next->previous = item->previous;
    if (conn->peer) {
        conn->peer->messages--;
        conn->peer->message_bytes -= item->event.bytes;
    }
    free(item);
}
