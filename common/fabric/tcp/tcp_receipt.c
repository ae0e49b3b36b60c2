/* tcp_receipt.c - what has arrived in PM is fenced, and acknowledged when it is durable: blocks by the socket that
 * brought them, bulk writes by theirs (see tcp.h).
 */
#include <string.h>

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

enum { COUNTS_READ_BYTES = 1024 };

/* Takes in what is done. False: a sync has failed. */
static bool end_fences(struct tcp_receipt *receipt, struct pm *pm)
{
    while (receipt->fence_count > 0) {
        const int done = pm_fence_done(pm, receipt->fences[0].ticket);

        if (done < 0)
            return false;
        if (done == 0)
            break;
        receipt->durable = receipt->fences[0].received;
        receipt->fences[0] = receipt->fences[1];
        receipt->fence_count--;
    }
    return true;
}

static bool wants_fence(const struct tcp_receipt *receipt)
{
    const uint64_t fenced = receipt->fence_count > 0
                                ? receipt->fences[receipt->fence_count - 1].received
                                : receipt->durable;

    return receipt->received > fenced;
}

static void add_fence(struct tcp_receipt *receipt, struct pm_ticket ticket)
{
    if (receipt->fence_count > 0 &&
        receipt->fences[receipt->fence_count - 1].ticket.number == ticket.number)
        receipt->fence_count--; /* the same one, grown */
    else if (receipt->fence_count == RECEIPT_FENCES)
        return; /* until one is done */
    receipt->fences[receipt->fence_count].received = receipt->received;
    receipt->fences[receipt->fence_count].ticket = ticket;
    receipt->fence_count++;
}

/* Sends the newest count, behind what is left of an older one. */
static void acknowledge(struct tcp_receipt *receipt, struct tcp_socket *socket)
{
    while (socket->writable && (receipt->ack_left > 0 || receipt->ack < receipt->durable)) {
        struct iovec piece;
        ssize_t sent;

        if (receipt->ack_left == 0) {
            receipt->ack = receipt->durable;
            receipt->ack_left = sizeof receipt->ack;
        }
        piece = (struct iovec){(uint8_t *)&receipt->ack + sizeof receipt->ack - receipt->ack_left,
                               receipt->ack_left};
        sent = tcp_write(socket->fd, &piece, 1);
        if (sent > 0)
            receipt->ack_left -= (uint32_t)sent;
        if (sent != (ssize_t)piece.iov_len)
            socket->writable = false;
    }
    receipt->acknowledged = receipt->ack_left == 0 ? receipt->ack : receipt->acknowledged;
}

/* One fence for all of a poll. */
struct poll_fence {
    struct pm *pm;
    struct pm_ticket ticket;
    bool taken;
};

/* False: a sync has failed. */
static bool move_on(struct tcp_receipt *receipt, struct tcp_socket *socket,
                    struct poll_fence *fence)
{
    if (!receipt)
        return true;
    if (!end_fences(receipt, fence->pm))
        return false;
    if (wants_fence(receipt)) {
        if (!fence->taken)
            fence->ticket = pm_fence_start(fence->pm);
        fence->taken = true;
        add_fence(receipt, fence->ticket);
        if (!end_fences(receipt, fence->pm)) /* where it is done at once */
            return false;
    }
    acknowledge(receipt, socket);
    return true;
}

static bool is_settled(const struct tcp_receipt *receipt)
{
    return !receipt || receipt->acknowledged == receipt->received;
}

void receipts_fence(struct tcp_endpoint *endpoint)
{
    struct poll_fence fence = {.pm = endpoint->zone ? endpoint->zone->base.pm : NULL};

    for (CONN_EACH(tcp_conn, conn, &endpoint->base, LIST_FENCING)) {
        struct tcp_receipt *blocks = landing_receipt(conn), *bulk = bulk_receipt(conn);

        if (!move_on(blocks, &conn->blocks, &fence) || !move_on(bulk, &conn->bulk, &fence))
            conn_break(&conn->base, ROWAN_EIO, false);
        else if (is_settled(blocks) && is_settled(bulk))
            conn_list_remove(&conn->base, LIST_FENCING);
    }
}

/* --- at the sender --- */

/* False: nonsense. */
static bool take_counts(struct tcp_count *count, const uint8_t *data, size_t bytes, uint64_t *value,
                        uint64_t limit)
{
    while (bytes > 0) {
        size_t part = sizeof count->bytes - count->got;
        uint64_t next;

        part = bytes < part ? bytes : part;
        memcpy(count->bytes + count->got, data, part);
        count->got += (uint32_t)part;
        data += part;
        bytes -= part;
        if (count->got < sizeof count->bytes)
            break;
        count->got = 0;
        memcpy(&next, count->bytes, sizeof next);
        if (next <= *value || next > limit)
            return false;
        *value = next;
    }
    return true;
}

void tcp_conn_read_count(struct tcp_conn *conn, struct tcp_socket *socket, struct tcp_count *count,
                         uint64_t *value, uint64_t limit)
{
    uint8_t data[COUNTS_READ_BYTES];
    const struct iovec piece = {data, sizeof data};
    const ssize_t got = tcp_read(socket->fd, &piece, 1);

    socket_was_read(socket, got, sizeof data);
    if (got > 0 && !take_counts(count, data, (size_t)got, value, limit))
        conn_break(&conn->base, ROWAN_EFORMAT, false);
    else if (got == ROWAN_ECLOSED)
        conn_break(&conn->base, ROWAN_ECLOSED, true);
}

uint64_t tcp_conn_write(struct tcp_conn *conn, struct tcp_socket *socket,
                        const struct iovec *pieces, unsigned count, uint64_t asked)
{
    const ssize_t sent = tcp_write(socket->fd, pieces, count);

    if (sent < 0 || (uint64_t)sent < asked)
        socket->writable = false;
    if (sent == ROWAN_ECLOSED) { /* what had arrived is read before CLOSED */
        socket->readable = true;
        conn_list_add(&conn->base, LIST_ACTIVE);
    }
    return sent > 0 ? (uint64_t)sent : 0;
}
