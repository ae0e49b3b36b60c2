/* verbs_rowan.c - Rowan sends and bulk writes at the sender. What waits at a flush leaves in one
 * ibv_post_send: a SEND for each block, unsignalled, and behind them one signalled READ of one byte, the fence;
 * bulk writes likewise, a WRITE for each piece, over a queue pair of their own, so that they need no slot
 * of the zone. A read's answer cannot pass what was written before it
 * (PCIe), and the requests of a connection are executed in their order (IB specification 9.5), so when the
 * READ completes, all before it lies in the peer's memory, not in its NIC (paper, section 3.2.2).
 *
 * Blocks go straight from registered memory, never inline: they were written past the caches, so that the
 * processor would have to read them from PM.
 *
 * 1. landed <= sent <= posted (window.h), in blocks since the beginning; written <= flushed, in bulk writes, of which
 *    `write_at` bytes of the one behind `flushed` were handed over, too.
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

enum {
    CHAIN = 256,              /* requests in one call */
    WRITE_BYTES = 64 << 10,   /* of one piece */
    FLYING_BYTES = 512 << 10, /* pieces in flight: what a block may have to share the wire with */
};

struct fence { /* what has landed when it comes back */
    uint64_t blocks, writes;
    uint32_t bytes; /* of writes */
    uint32_t requests;
};

struct lane {             /* of one queue pair */
    uint32_t queue, used; /* places of the send queue */
    uint64_t head, tail;  /* fences */
    struct fence fences[VERBS_RC_READS];
};

struct verbs_sender {
    struct send_window window;
    uint64_t sent;     /* blocks */
    uint32_t write_at; /* 1 */
    uint32_t flying;   /* bytes of writes in flight */
    struct lane block_lane, write_lane;
    uint32_t reads;       /* 0: not started */
    uint32_t write_bytes; /* of one piece, a multiple of 64 */
};

int verbs_sender_create(struct verbs_conn *conn, uint32_t send_queue)
{
    struct verbs_sender *sender = calloc(1, sizeof *sender);

    if (!sender || window_init(&sender->window, VERBS_BLOCKS) != 0) {
        free(sender);
        return ROWAN_ENOMEM;
    }
    sender->block_lane.queue = send_queue;
    sender->write_lane.queue = VERBS_RC_WRITE_QUEUE;
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
    const uint32_t limit = conn->endpoint->device->port_attributes.max_msg_sz;

    ASSERT(reads > 0 && reads <= VERBS_RC_READS);
    conn->base.window = &sender->window;
    sender->reads = reads;
    sender->write_bytes = limit >= FABRIC_STRIDE && limit < WRITE_BYTES
                              ? limit / FABRIC_STRIDE * FABRIC_STRIDE
                              : WRITE_BYTES;
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
    uint32_t bytes;    /* of writes among them */
    uint32_t write_at; /* as in the sender, with the chain handed over */
    uint64_t blocks, writes;
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

/* The words came from the peer (verbs_give). The device there checks the same once more. */
static bool is_granted(const struct window_write *write)
{
    const uint64_t *words = write->grant.words, granted = words[1];

    return words[0] <= UINT32_MAX && granted <= UINT64_MAX - words[2] && write->at <= granted &&
           write->bytes <= granted - write->at;
}

/* False: one is outside of its grant (F10). */
static bool add_writes(const struct verbs_sender *sender, struct write_window *writes,
                       struct chain *chain, uint32_t limit)
{
    while (chain->writes < writes->added && chain->count < limit &&
           sender->flying + chain->bytes < FLYING_BYTES) {
        const struct window_write *write = window_write(writes, chain->writes);
        const uint32_t left = write->bytes - chain->write_at;
        const uint32_t bytes = left < sender->write_bytes ? left : sender->write_bytes;
        struct ibv_send_wr *request;

        if (!is_granted(write))
            return false;
        request =
            add_request(chain, IBV_WR_RDMA_WRITE, write->data + chain->write_at, bytes, write->key);
        request->wr.rdma.remote_addr = write->grant.words[2] + write->at + chain->write_at;
        request->wr.rdma.rkey = (uint32_t)write->grant.words[0];
        chain->bytes += bytes;
        chain->write_at += bytes;
        if (chain->write_at == write->bytes) {
            chain->write_at = 0;
            chain->writes++;
        }
    }
    return true;
}

static void add_fence(const struct verbs_conn *conn, struct chain *chain, enum verbs_rc_work work)
{
    const struct verbs_device *device = conn->endpoint->device;
    const struct verbs_rc_hello *theirs = &conn->theirs.rc;
    struct ibv_send_wr *request =
        add_request(chain, IBV_WR_RDMA_READ, (const void *)(uintptr_t)device->sink_address, 1,
                    device->sink_mr->lkey);

    request->wr_id = verbs_work(VERBS_WORK_RC, conn->number, work);
    request->send_flags = IBV_SEND_SIGNALED;
    request->wr.rdma.remote_addr = theirs->fence_address;
    request->wr.rdma.rkey = theirs->fence_key;
}

/* Fences are in flight, or places are lacking. */
static bool is_busy(const struct verbs_sender *sender, const struct lane *lane)
{
    return lane->queue - lane->used < 2 || lane->tail - lane->head == sender->reads; /* 3 */
}

/* How many requests may go before the fence (2). */
static uint32_t limit_of(const struct lane *lane)
{
    const uint32_t left = lane->queue - lane->used;

    return (left < CHAIN ? left : CHAIN) - 1;
}

/* False: the connection is broken. */
static bool hand_over(struct verbs_conn *conn, struct ibv_qp *qp, struct lane *lane,
                      struct chain *chain)
{
    struct ibv_send_wr *bad;
    int error;

    add_fence(conn, chain, qp == conn->rc->qp ? VERBS_RC_FENCE : VERBS_RC_WRITE_FENCE);
    error = ibv_post_send(qp, chain->requests, &bad);
    if (error) {
        log_event(LOG_ERROR, "verbs_send_refused", "connection=%u requests=%u reason=\"%s\"",
                  conn->number, chain->count, strerror(abs(error)));
        conn_break(&conn->base, ROWAN_EIO, true);
        return false;
    }
    lane->used += chain->count;
    lane->fences[lane->tail++ % VERBS_RC_READS] = (struct fence){.blocks = chain->blocks,
                                                                 .writes = chain->writes,
                                                                 .bytes = chain->bytes,
                                                                 .requests = chain->count};
    return true;
}

/* False: the connection is broken. */
static bool push_blocks(struct verbs_conn *conn, struct verbs_sender *sender, struct chain *chain)
{
    if (sender->sent == sender->window.posted || is_busy(sender, &sender->block_lane))
        return true;
    add_blocks(sender, chain, limit_of(&sender->block_lane));
    if (!hand_over(conn, conn->rc->qp, &sender->block_lane, chain))
        return false;
    sender->sent = chain->blocks;
    return true;
}

static void push_writes(struct verbs_conn *conn, struct verbs_sender *sender, struct chain *chain)
{
    struct write_window *writes = conn->base.writes;

    if (writes->flushed == writes->added || sender->flying >= FLYING_BYTES ||
        is_busy(sender, &sender->write_lane))
        return;
    chain->count = chain->bytes = 0;
    chain->write_at = sender->write_at;
    chain->writes = writes->flushed;
    if (!add_writes(sender, writes, chain, limit_of(&sender->write_lane))) {
        conn_break(&conn->base, ROWAN_EINVALID, true);
        return;
    }
    if (!hand_over(conn, conn->rc->write_qp, &sender->write_lane, chain))
        return;
    writes->flushed = chain->writes;
    sender->write_at = chain->write_at;
    sender->flying += chain->bytes;
}

void verbs_rc_push(struct verbs_conn *conn)
{
    struct verbs_sender *sender = conn->rc->sender;
    struct chain chain;

    chain.wr_id = verbs_work(VERBS_WORK_RC, conn->number, VERBS_RC_UNSIGNALLED);
    chain.count = chain.bytes = 0;
    chain.blocks = sender->sent;
    chain.writes = 0;
    if (push_blocks(conn, sender, &chain) && conn->base.writes)
        push_writes(conn, sender, &chain);
}

/* --- what has landed --- */

bool verbs_sender_fenced(struct verbs_conn *conn, bool of_writes)
{
    struct verbs_sender *sender = conn->rc->sender;
    struct lane *lane = of_writes ? &sender->write_lane : &sender->block_lane;
    const struct fence *fence = &lane->fences[lane->head % VERBS_RC_READS];

    if (lane->head == lane->tail)
        return false;
    if (of_writes) {
        conn->base.writes->written = fence->writes;
        sender->flying -= fence->bytes;
    } else {
        sender->window.landed = fence->blocks;
    }
    lane->used -= fence->requests;
    lane->head++;
    conn_list_add(&conn->base, LIST_ACTIVE);
    return true;
}
