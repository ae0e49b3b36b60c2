/* verbs_rowan.c - Rowan sends at the sender. What waits at a flush leaves in one ibv_post_send: a SEND for each
 * block, unsignalled, and behind them one signalled READ of one byte, the fence. A read's answer cannot pass what
 * was written before it (PCIe), and the requests of a connection are executed in their order (IB specification
 * 9.5), so when the READ completes, all before it lies in the peer's memory, not in its NIC (paper, section 3.2.2).
 *
 * Blocks go straight from registered memory, never inline: they were written past the caches, so that the
 * processor would have to read them from PM.
 *
 * 1. landed <= sent <= posted (window.h), in blocks since the beginning.
 * 2. Every request that was handed to the device has a fence behind it that was handed over with it; so all
 *    places of the send queue come back, and nothing that the device does goes unnoticed.
 * 3. At most `reads` fences are in flight: while the peer is slow the next ones cover more.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_mlx5.h"
#include "common/fabric/verbs/verbs_rc.h"

enum { CHAIN = 256 /* requests in one call */ };

struct fence { /* what has landed when it comes back */
    uint64_t blocks;
    uint32_t requests;
};

struct verbs_sender {
    struct send_window window;
    uint64_t sent;        /* blocks */
    uint32_t queue, used; /* places of the send queue */
    uint32_t reads;       /* 0: not started */
    uint64_t head, tail;  /* fences */
    struct fence fences[VERBS_RC_READS];
};

int verbs_sender_create(struct verbs_conn *conn, uint32_t send_queue)
{
    struct verbs_sender *sender = calloc(1, sizeof *sender);

    if (!sender || window_init(&sender->window, VERBS_BLOCKS) != 0) {
        free(sender);
        return ROWAN_ENOMEM;
    }
    sender->queue = send_queue;
    conn->rc->sender = sender;
    return 0;
}

void verbs_sender_destroy(struct verbs_sender *sender)
{
    if (sender)
        window_fini(&sender->window);
    free(sender);
}

void verbs_sender_start(struct verbs_conn *conn, uint32_t reads)
{
    struct verbs_sender *sender = conn->rc->sender;

    ASSERT(reads > 0 && reads <= VERBS_RC_READS);
    conn->base.window = &sender->window;
    sender->reads = reads;
}

int verbs_rowan_add(struct fabric_conn *base, const void *block, uint32_t bytes)
{
    const struct verbs_conn *conn = (const struct verbs_conn *)base;

    /* Only for such a peer the block is read: it lies in PM, past the caches. */
    if (conn->theirs.rc.zone == VERBS_ZONE_OF_SEGMENTS && bytes >= FABRIC_STRIDE &&
        !verbs_mlx5_may_land(block))
        return conn->base.state == CONN_OPEN ? ROWAN_EINVALID : ROWAN_ECLOSED;
    return window_rowan_add(base, block, bytes);
}

/* --- handing over --- */

/* Requests chained one behind the other. */
struct chain {
    uint64_t wr_id;
    uint32_t count;
    uint64_t blocks; /* `sent`, with the chain handed over */
    struct ibv_send_wr requests[CHAIN];
    struct ibv_sge pieces[CHAIN];
};

static struct ibv_send_wr *add_request(struct chain *chain, enum ibv_wr_opcode opcode,
                                       const void *data, uint32_t bytes, uint32_t key)
{
    struct ibv_send_wr *request = &chain->requests[chain->count];
    struct ibv_sge *piece = &chain->pieces[chain->count];

    if (chain->count > 0)
        request[-1].next = request;
    *piece = (struct ibv_sge){.addr = (uintptr_t)data, .length = bytes, .lkey = key};
    *request = (struct ibv_send_wr){
        .wr_id = chain->wr_id, .sg_list = piece, .num_sge = 1, .opcode = opcode};
    chain->count++;
    return request;
}

static void add_blocks(const struct verbs_sender *sender, struct chain *chain, uint32_t limit)
{
    const struct window_ring ring = sender->window.ring;

    while (chain->blocks < sender->window.posted && chain->count < limit) {
        const struct window_block *block = window_block(&ring, chain->blocks++);

        add_request(chain, IBV_WR_SEND, block->data, block->bytes, block->key);
    }
}

static void add_fence(const struct verbs_conn *conn, struct chain *chain)
{
    const struct verbs_device *device = conn->endpoint->device;
    const struct verbs_rc_hello *theirs = &conn->theirs.rc;
    struct ibv_send_wr *request =
        add_request(chain, IBV_WR_RDMA_READ, (const void *)(uintptr_t)device->sink_address, 1,
                    device->sink_mr->lkey);

    request->wr_id = verbs_work(VERBS_WORK_RC, conn->number, VERBS_RC_FENCE);
    request->send_flags = IBV_SEND_SIGNALED;
    request->wr.rdma.remote_addr = theirs->fence_address;
    request->wr.rdma.rkey = theirs->fence_key;
}

/* Fences are in flight, or places are lacking. */
static bool is_busy(const struct verbs_sender *sender)
{
    return sender->queue - sender->used < 2 || sender->tail - sender->head == sender->reads; /* 3 */
}

/* How many requests may go before the fence (2). */
static uint32_t limit_of(const struct verbs_sender *sender)
{
    const uint32_t left = sender->queue - sender->used;

    return (left < CHAIN ? left : CHAIN) - 1;
}

static void hand_over(struct verbs_conn *conn, struct chain *chain)
{
    struct verbs_sender *sender = conn->rc->sender;
    struct ibv_send_wr *bad;
    int error;

    add_fence(conn, chain);
    error = ibv_post_send(conn->rc->qp, chain->requests, &bad);
    if (error) {
        log_event(LOG_ERROR, "verbs_send_refused", "connection=%u requests=%u reason=\"%s\"",
                  conn->number, chain->count, strerror(abs(error)));
        conn_break(&conn->base, ROWAN_EIO, true);
        return;
    }
    sender->sent = chain->blocks;
    sender->used += chain->count;
    sender->fences[sender->tail++ % VERBS_RC_READS] =
        (struct fence){.blocks = chain->blocks, .requests = chain->count};
}

void verbs_rc_push(struct verbs_conn *conn)
{
    const struct verbs_sender *sender = conn->rc->sender;
    struct chain chain;

    if (sender->sent == sender->window.posted || is_busy(sender))
        return;
    chain.wr_id = verbs_work(VERBS_WORK_RC, conn->number, VERBS_RC_UNSIGNALLED);
    chain.count = 0;
    chain.blocks = sender->sent;
    add_blocks(sender, &chain, limit_of(sender));
    hand_over(conn, &chain);
}

/* --- what has landed --- */

bool verbs_sender_fenced(struct verbs_conn *conn)
{
    struct verbs_sender *sender = conn->rc->sender;
    const struct fence *fence = &sender->fences[sender->head % VERBS_RC_READS];

    if (sender->head == sender->tail)
        return false;
    sender->window.landed = fence->blocks;
    sender->used -= fence->requests;
    sender->head++;
    conn_list_add(&conn->base, LIST_ACTIVE);
    return true;
}
