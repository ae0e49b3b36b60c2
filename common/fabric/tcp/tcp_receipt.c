/* tcp_receipt.c - what has arrived in PM is fenced, and acknowledged when it is durable (see tcp.h). */
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

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

void receipts_fence(struct tcp_endpoint *endpoint)
{
    struct poll_fence fence = {.pm = endpoint->zone->base.pm};

    for (CONN_EACH(tcp_conn, conn, &endpoint->base, LIST_FENCING)) {
        struct tcp_receipt *receipt = landing_receipt(conn);

        if (!move_on(receipt, &conn->blocks, &fence))
            conn_break(&conn->base, ROWAN_EIO, false);
        else if (receipt->acknowledged == receipt->received)
            conn_list_remove(&conn->base, LIST_FENCING);
    }
}
