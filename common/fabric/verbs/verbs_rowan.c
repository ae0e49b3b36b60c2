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
 * 1. landed <= sent <= posted <= added <= landed + VERBS_BLOCKS, in blocks since the beginning.
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
    WRITES = 64,              /* bulk writes waiting or in flight */
    WRITE_BYTES = 64 << 10,   /* of one piece */
    FLYING_BYTES = 512 << 10, /* pieces in flight: what a block may have to share the wire with */
};

struct block {
    const uint8_t *data;
    uint32_t bytes;
    uint32_t key;
};

struct mark { /* the end of a batch */
    uint64_t end;
    uint64_t context;
};

struct write {
    const uint8_t *data;
    uint64_t address; /* at the peer */
    uint64_t context;
    uint32_t key, remote_key;
    uint32_t bytes;
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
    uint64_t added, posted, sent, landed; /* blocks */
    uint64_t mark_head, mark_tail;
    uint64_t write_head, write_landed, write_sent, write_tail;
    uint32_t write_at; /* bytes of write number write_sent that were handed over */
    uint32_t flying;   /* bytes of writes in flight */
    struct lane block_lane, write_lane;
    uint32_t reads;       /* 0: not started */
    uint32_t write_bytes; /* of one piece, a multiple of 64 */
    struct block blocks[VERBS_BLOCKS];
    struct mark marks[VERBS_MARKS];
    struct write writes[WRITES];
};

int verbs_sender_create(struct verbs_conn *conn, uint32_t send_queue)
{
    struct verbs_sender *sender = calloc(1, sizeof *sender);

    if (!sender)
        return ROWAN_ENOMEM;
    sender->block_lane.queue = send_queue;
    sender->write_lane.queue = VERBS_RC_WRITE_QUEUE;
    conn->rc->sender = sender;
    return 0;
}

void verbs_sender_destroy(struct verbs_sender *sender)
{
    free(sender);
}

void verbs_sender_start(struct verbs_conn *conn, uint32_t reads)
{
    struct verbs_sender *sender = conn->rc->sender;
    const uint32_t limit = conn->endpoint->device->port_attributes.max_msg_sz;

    ASSERT(reads > 0 && reads <= VERBS_RC_READS);
    sender->reads = reads;
    sender->write_bytes = limit >= FABRIC_STRIDE && limit < WRITE_BYTES
                              ? limit / FABRIC_STRIDE * FABRIC_STRIDE
                              : WRITE_BYTES;
}

static struct verbs_sender *sender_of(const struct fabric_conn *base)
{
    const struct verbs_conn *conn = (const struct verbs_conn *)base;

    return conn->rc ? conn->rc->sender : NULL;
}

static bool is_open(const struct fabric_conn *base)
{
    return ((const struct verbs_conn *)base)->state == VCONN_OPEN;
}

/* --- add, post, write --- */

static uint32_t room(const struct verbs_sender *sender)
{
    if (sender->mark_tail - sender->mark_head == VERBS_MARKS)
        return 0;
    return VERBS_BLOCKS - (uint32_t)(sender->added - sender->landed); /* 1 */
}

uint32_t verbs_rowan_room(const struct fabric_conn *base)
{
    const struct verbs_sender *sender = sender_of(base);

    return is_open(base) && sender ? room(sender) : 0;
}

int verbs_rowan_add(struct fabric_conn *base, const void *block, uint32_t bytes)
{
    const struct verbs_conn *conn = (struct verbs_conn *)base;
    const struct verbs_fabric *fabric = conn->endpoint->fabric;
    struct verbs_sender *sender = sender_of(base);
    const struct verbs_region *region;

    if (!is_open(base))
        return ROWAN_ECLOSED;
    if (!sender || bytes == 0 || bytes % FABRIC_STRIDE != 0 ||
        bytes > fabric->base.caps.block_limit)
        return ROWAN_EINVALID;
    region = verbs_region_of(fabric, block, bytes);
    /* Only for such a peer is the block looked at: it lies in PM, past the caches. */
    if (!region || (conn->theirs.rc.whole_segments && !verbs_mlx5_may_land(block)))
        return ROWAN_EINVALID;
    if (room(sender) == 0)
        return ROWAN_EAGAIN;
    sender->blocks[sender->added++ % VERBS_BLOCKS] =
        (struct block){.data = block, .bytes = bytes, .key = region->mr->lkey};
    return 0;
}

int verbs_rowan_post(struct fabric_conn *base, uint64_t context)
{
    struct verbs_sender *sender = sender_of(base);

    if (!is_open(base))
        return ROWAN_ECLOSED;
    if (!sender || sender->posted == sender->added)
        return 0;
    sender->posted = sender->added;
    sender->marks[sender->mark_tail++ % VERBS_MARKS] =
        (struct mark){.end = sender->posted, .context = context};
    verbs_list_add((struct verbs_conn *)base, VLIST_DIRTY);
    return 0;
}

/* The words came from the peer: key, address, bytes. The device there checks the same once more. */
static bool is_granted(const struct fabric_grant *grant, uint64_t at, uint32_t bytes)
{
    const uint64_t address = grant->words[1], granted = grant->words[2];

    return grant->words[0] <= UINT32_MAX && granted <= UINT64_MAX - address && at <= granted &&
           bytes <= granted - at;
}

int verbs_write(struct fabric_conn *base, const struct fabric_grant *grant, uint64_t at,
                const void *data, uint32_t bytes, uint64_t context)
{
    struct verbs_sender *sender = sender_of(base);
    const struct verbs_region *region;

    if (!is_open(base))
        return ROWAN_ECLOSED;
    if (!sender || at % FABRIC_STRIDE != 0 || bytes % FABRIC_STRIDE != 0 || bytes == 0 ||
        bytes > FABRIC_MAX_WRITE_BYTES)
        return ROWAN_EINVALID;
    region = verbs_region_of(((struct verbs_conn *)base)->endpoint->fabric, data, bytes);
    if (!region)
        return ROWAN_EINVALID;
    if (sender->write_tail - sender->write_head == WRITES)
        return ROWAN_EAGAIN;
    if (!is_granted(grant, at, bytes)) { /* F10 */
        verbs_conn_break((struct verbs_conn *)base, ROWAN_EINVALID);
        return 0;
    }
    sender->writes[sender->write_tail++ % WRITES] =
        (struct write){.data = data,
                       .address = grant->words[1] + at,
                       .context = context,
                       .key = region->mr->lkey,
                       .remote_key = (uint32_t)grant->words[0],
                       .bytes = bytes};
    verbs_list_add((struct verbs_conn *)base, VLIST_DIRTY);
    return 0;
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
    while (chain->blocks < sender->posted && chain->count < limit) {
        const struct block *block = &sender->blocks[chain->blocks++ % VERBS_BLOCKS];

        add_request(chain, IBV_WR_SEND, block->data, block->bytes, block->key);
    }
}

static void add_writes(const struct verbs_sender *sender, struct chain *chain, uint32_t limit)
{
    while (chain->writes < sender->write_tail && chain->count < limit &&
           sender->flying + chain->bytes < FLYING_BYTES) {
        const struct write *write = &sender->writes[chain->writes % WRITES];
        const uint32_t left = write->bytes - chain->write_at;
        const uint32_t bytes = left < sender->write_bytes ? left : sender->write_bytes;
        struct ibv_send_wr *request =
            add_request(chain, IBV_WR_RDMA_WRITE, write->data + chain->write_at, bytes, write->key);

        request->wr.rdma.remote_addr = write->address + chain->write_at;
        request->wr.rdma.rkey = write->remote_key;
        chain->bytes += bytes;
        chain->write_at += bytes;
        if (chain->write_at == write->bytes) {
            chain->write_at = 0;
            chain->writes++;
        }
    }
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
        verbs_conn_break(conn, ROWAN_EIO);
        return false;
    }
    lane->used += chain->count;
    lane->fences[lane->tail++ % VERBS_RC_READS] = (struct fence){.blocks = chain->blocks,
                                                                 .writes = chain->writes,
                                                                 .bytes = chain->bytes,
                                                                 .requests = chain->count};
    return true;
}

static bool push_blocks(struct verbs_conn *conn, struct verbs_sender *sender, struct chain *chain)
{
    if (sender->sent == sender->posted || is_busy(sender, &sender->block_lane))
        return true;
    add_blocks(sender, chain, limit_of(&sender->block_lane));
    if (!hand_over(conn, conn->rc->qp, &sender->block_lane, chain))
        return false;
    sender->sent = chain->blocks;
    return true;
}

static bool push_writes(struct verbs_conn *conn, struct verbs_sender *sender, struct chain *chain)
{
    if (sender->write_sent == sender->write_tail || sender->flying >= FLYING_BYTES ||
        is_busy(sender, &sender->write_lane))
        return true;
    add_writes(sender, chain, limit_of(&sender->write_lane));
    if (!hand_over(conn, conn->rc->write_qp, &sender->write_lane, chain))
        return false;
    sender->write_sent = chain->writes;
    sender->write_at = chain->write_at;
    sender->flying += chain->bytes;
    return true;
}

void verbs_rc_push(struct verbs_conn *conn)
{
    struct verbs_sender *sender = sender_of(&conn->base);
    struct chain chain;

    if (conn->state != VCONN_OPEN || !sender)
        return;
    chain.wr_id = verbs_work(VERBS_WORK_RC, conn->number, VERBS_RC_UNSIGNALLED);
    chain.count = chain.bytes = 0;
    chain.write_at = sender->write_at;
    chain.blocks = sender->sent;
    chain.writes = sender->write_sent;
    if (!push_blocks(conn, sender, &chain))
        return;
    chain.count = 0;
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
        sender->write_landed = fence->writes;
        sender->flying -= fence->bytes;
    } else {
        sender->landed = fence->blocks;
    }
    lane->used -= fence->requests;
    lane->head++;
    verbs_list_add(conn, VLIST_ACTIVE);
    return true;
}

static bool has_landed(const struct verbs_sender *sender)
{
    return sender->mark_head < sender->mark_tail &&
           sender->marks[sender->mark_head % VERBS_MARKS].end <= sender->landed;
}

bool verbs_rc_has_events(const struct verbs_conn *conn)
{
    const struct verbs_sender *sender = sender_of(&conn->base);

    return sender && (has_landed(sender) || sender->write_head < sender->write_landed);
}

unsigned verbs_rc_poll(struct verbs_conn *conn, struct fabric_event *events, unsigned max)
{
    struct verbs_sender *sender;
    unsigned count = 0;

    verbs_rc_push(conn);
    sender = sender_of(&conn->base); /* the push may have broken it */
    if (!sender || conn->state != VCONN_OPEN)
        return 0;
    for (; count < max && has_landed(sender); sender->mark_head++)
        events[count++] =
            (struct fabric_event){.kind = FABRIC_LANDED,
                                  .conn = &conn->base,
                                  .context = sender->marks[sender->mark_head % VERBS_MARKS].context,
                                  .peer = conn->peer};
    for (; count < max && sender->write_head < sender->write_landed; sender->write_head++)
        events[count++] =
            (struct fabric_event){.kind = FABRIC_WRITTEN,
                                  .conn = &conn->base,
                                  .context = sender->writes[sender->write_head % WRITES].context,
                                  .peer = conn->peer};
    return count;
}
