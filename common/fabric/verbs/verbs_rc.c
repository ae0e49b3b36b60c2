/* verbs_rc.c - the reliable queue pair (RC) of a connection between servers: made, connected, destroyed; who gets its
 * completions; Rowan sends. The active end sends, the passive one receives as its zone's way to receive wants it
 * (verbs_zone.h).
 *
 * What waits at a flush leaves in one ibv_post_send: a SEND for each block, unsignalled, and behind them one signalled
 * READ of one byte, the fence. A read's answer cannot pass what was written before it (PCIe), and the requests of a
 * connection are executed in their order (IB specification 9.5), so when the READ completes, all before it lies in the
 * peer's memory, not in its NIC (paper, section 3.2.2).
 *
 * Blocks go straight from registered memory, never inline: they were written past the caches, so that the processor
 * would have to read them from PM.
 *
 * 1. The places of all that can complete were taken from the completion queue before the pair existed.
 * 2. conn->rc is NULL from the moment that the pair is destroyed: completions that come later, or that carry
 *    another pair's number, are passed over.
 * 3. landed <= sent <= posted (window.h), in blocks since the beginning.
 * 4. Every request that was handed to the device has a fence behind it that was handed over with it; so all
 *    places of the send queue come back, and nothing that the device does goes unnoticed.
 * 5. At most `reads` fences are in flight: while the peer is slow the next ones cover more.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/fabric/verbs/verbs_mlx5.h"
#include "common/fabric/verbs/verbs_pair.h"
#include "common/fabric/verbs/verbs_zone.h"

enum { SEND_QUEUE = 256, CHAIN = 256 /* requests in one call */, NUMBER_24_BITS = 0xffffff };

struct fence { /* what has landed when it comes back */
    uint64_t blocks;
    uint32_t requests;
};

/* The active end: the connection's `window`. */
struct sender {
    struct send_window window;
    uint64_t sent;        /* blocks */
    uint32_t queue, used; /* places of the send queue */
    uint32_t reads;
    uint64_t head, tail; /* fences */
    struct fence fences[VERBS_RC_READS];
};

static struct sender *sender_of(const struct verbs_conn *conn)
{
    ASSERT(conn->base.active);
    return (struct sender *)conn->base.window;
}

/* --- making it --- */

int verbs_refused(const char *what, int system_errno)
{
    log_event(LOG_ERROR, "verbs_refused", "what=%s reason=\"%s\"", what, strerror(system_errno));
    return system_errno == ENOMEM ? ROWAN_ENOMEM : ROWAN_EUNSUPPORTED;
}

int verbs_rc_make(struct verbs_conn *conn, struct ibv_qp_init_attr *init, int access)
{
    struct verbs_endpoint *endpoint = conn->endpoint;
    struct ibv_qp *qp;
    const uint32_t places = init->cap.max_send_wr + (init->srq ? 0 : init->cap.max_recv_wr);
    int error;

    if (places > endpoint->cq_free)
        return ROWAN_ETOOMANY;
    endpoint->cq_free -= places; /* 1 */
    init->qp_type = IBV_QPT_RC;
    init->qp_context = endpoint;
    init->send_cq = endpoint->cq;
    if (!init->recv_cq) /* a zone's own (verbs_slots.c) */
        init->recv_cq = endpoint->cq;
    init->cap.max_send_sge = 1;
    init->cap.max_recv_sge = init->srq ? 0 : 1;
    qp = ibv_create_qp(endpoint->device->pd, init);
    if (!qp) {
        error = verbs_refused("rc_queue_pair", errno);
        goto release;
    }
    error = verbs_pair_init(qp, endpoint->device->port, access);
    if (error) {
        error = verbs_refused("rc_init", error);
        goto destroy;
    }
    conn->rc->places = places;
    conn->rc->qp = qp;
    conn->rc->qp_number = qp->qp_num;
    return 0;

destroy:
    ibv_destroy_qp(qp);
release:
    endpoint->cq_free += places;
    return error;
}

static int open_active(struct verbs_conn *conn)
{
    const struct ibv_device_attr *limits = &conn->endpoint->device->attributes.orig_attr;
    const uint32_t queue = verbs_at_most(SEND_QUEUE, limits->max_qp_wr);
    struct ibv_qp_init_attr init = {.cap = {.max_send_wr = queue, .max_recv_wr = 1}};
    int error = verbs_rc_make(conn, &init, 0); /* the peer may do nothing here */

    if (!error)
        error = window_open(&conn->base, sizeof(struct sender), VERBS_BLOCKS);
    if (!error)
        sender_of(conn)->queue = queue;
    return error;
}

static int open_passive(struct verbs_conn *conn)
{
    struct verbs_zone *zone = conn->endpoint->zone;
    int error;

    if (zone->member_count == FABRIC_MAX_ZONE_SENDERS)
        return ROWAN_ETOOMANY;
    error = zone->ops->attach(zone, conn);
    if (error)
        return error;
    conn->rc->zone = zone;
    zone->member_count++;
    return 0;
}

static void say_hello(const struct verbs_conn *conn, struct verbs_rc_hello *ours)
{
    const struct verbs_device *device = conn->endpoint->device;
    const struct verbs_rc *rc = conn->rc;
    const struct verbs_zone *zone = rc->zone;

    *ours = (struct verbs_rc_hello){.qp_number = rc->qp_number, .psn = rc->psn, .reads = 1};
    if (!zone)
        return;
    ours->zone = zone->ops->whole_segments ? VERBS_ZONE_OF_SEGMENTS : VERBS_ZONE_OF_SLOTS;
    ours->timeout = zone->ops->whole_segments ? VERBS_RC_SEGMENTS_TIMEOUT : VERBS_RC_TIMEOUT;
    ours->block_limit = conn->endpoint->fabric->base.base.caps.block_limit;
    ours->reads = verbs_at_most(VERBS_RC_READS, device->attributes.orig_attr.max_qp_rd_atom);
    ours->fence_address = (uintptr_t)device->fence.data;
    ours->fence_key = device->fence.mr->rkey;
}

int verbs_rc_open(struct verbs_conn *conn, struct verbs_rc_hello *ours)
{
    const struct fabric_endpoint *own = &conn->endpoint->base.base;
    int error;

    ASSERT(!conn->rc);
    *ours = (struct verbs_rc_hello){0};
    if (own->error)
        return own->error;
    if (conn->base.peer.kind != FABRIC_SERVER || own->identity.kind != FABRIC_SERVER ||
        (!conn->base.active && !conn->endpoint->zone))
        return 0;
    conn->rc = calloc(1, sizeof *conn->rc);
    if (!conn->rc)
        return ROWAN_ENOMEM;
    random_entropy(&conn->rc->psn, sizeof conn->rc->psn); /* packets of a former life do not fit */
    conn->rc->psn &= NUMBER_24_BITS;
    error = conn->base.active ? open_active(conn) : open_passive(conn);
    if (error) {
        verbs_rc_close(conn);
        return error;
    }
    say_hello(conn, ours);
    return 0;
}

/* --- connecting --- */

/* What is sound (verbs_hello.c) and yet cannot be. */
static int check_hello(const struct verbs_conn *conn)
{
    const struct verbs_rc_hello *theirs = &conn->theirs.rc;
    const uint32_t limit = conn->endpoint->fabric->base.base.caps.block_limit;
    const uint32_t slot = conn->endpoint->device->slot_bytes;

    if (theirs->qp_number == 0 || (conn->base.active && theirs->zone == VERBS_NO_ZONE))
        return ROWAN_EFORMAT;
    /* A message longer than a packet could stay half received for ever. */
    if (!conn->base.active && conn->theirs.mtu < slot) {
        log_event(LOG_ERROR, "verbs_packet_limit",
                  "ours=%u theirs=%u advice=\"give all servers the same MTU\"", slot,
                  conn->theirs.mtu);
        return ROWAN_EUNSUPPORTED;
    }
    if (conn->base.active && theirs->block_limit < limit) { /* one constant of a cluster */
        log_event(LOG_ERROR, "verbs_block_limit",
                  "ours=%u theirs=%u advice=\"give all servers the same slot_bytes and MTU\"",
                  limit, theirs->block_limit);
        return ROWAN_EUNSUPPORTED;
    }
    return 0;
}

void verbs_rc_address(const struct verbs_conn *conn, struct ibv_ah_attr *out)
{
    verbs_address(conn->endpoint->device, conn->theirs.gid, (uint16_t)conn->theirs.lid, out);
}

/* How many of our reads may be in flight: as many as both devices can. */
static uint32_t reads_in_flight(const struct verbs_conn *conn)
{
    const uint32_t ours = verbs_at_most(
        VERBS_RC_READS, conn->endpoint->device->attributes.orig_attr.max_qp_init_rd_atom);

    return conn->theirs.rc.reads < ours ? conn->theirs.rc.reads : ours;
}

/* To RTS. */
static int connect_pair(struct verbs_conn *conn)
{
    const struct verbs_device *device = conn->endpoint->device;
    struct verbs_rc *rc = conn->rc;
    const bool active = conn->base.active;
    const uint32_t mtu =
        conn->theirs.mtu < device->mtu_bytes ? conn->theirs.mtu : device->mtu_bytes;
    const int reads_answered = active ? 1 : device->attributes.orig_attr.max_qp_rd_atom;
    struct ibv_qp_attr to = {
        .path_mtu = (enum ibv_mtu)__builtin_ctz(mtu / 128), /* IBV_MTU_256 is 1 */
        .dest_qp_num = conn->theirs.rc.qp_number,
        .rq_psn = conn->theirs.rc.psn,
        .sq_psn = rc->psn,
        .max_dest_rd_atomic = (uint8_t)verbs_at_most(VERBS_RC_READS, reads_answered),
        .max_rd_atomic = active ? (uint8_t)reads_in_flight(conn) : 1,
        .min_rnr_timer = VERBS_RC_RNR_TIMER,
        /* Blocks are tried as long as the zone's owner waits for them. */
        .timeout = active ? (uint8_t)conn->theirs.rc.timeout : VERBS_RC_TIMEOUT,
        .retry_cnt = VERBS_RC_RETRIES,
        .rnr_retry = VERBS_RC_RNR_FOR_EVER};

    verbs_rc_address(conn, &to.ah_attr);
    /* If a zone's way to receive has its own objects, rc->qp is NULL. */
    return (rc->zone && rc->zone->ops->connect ? rc->zone->ops->connect(conn, &to)
                                               : verbs_pair_connect(rc->qp, &to))
               ? ROWAN_EIO
               : 0;
}

int verbs_rc_connect(struct verbs_conn *conn)
{
    int error;

    conn->base.base.has_zone = false;
    if (!conn->rc)
        return 0;
    if (conn->base.active && conn->theirs.rc.qp_number == 0) {
        verbs_rc_close(conn);
        return 0;
    }
    error = check_hello(conn);
    if (!error)
        error = connect_pair(conn);
    if (!error && conn->base.active) {
        sender_of(conn)->reads = reads_in_flight(conn);
        conn->base.base.has_zone = true;
    }
    return error;
}

/* --- its end --- */

void verbs_rc_close(struct verbs_conn *conn)
{
    struct verbs_rc *rc = conn->rc;

    if (!rc)
        return;
    verbs_pair_destroy(rc->qp);
    rc->qp = NULL;
    if (rc->zone) {
        rc->zone->ops->detach(conn);
        rc->zone->member_count--;
    }
    conn->endpoint->cq_free += rc->places;
    window_close(&conn->base);
    free(rc);
    conn->rc = NULL; /* 2 */
}

void verbs_rc_break(struct verbs_conn *conn, const struct ibv_wc *wc)
{
    log_event(LOG_WARN, "verbs_broken",
              "connection=%u queue_pair=%u work=%u status=\"%s\" vendor=%u", conn->base.number,
              wc->qp_num, verbs_work_number(wc->wr_id), ibv_wc_status_str(wc->status),
              wc->vendor_err);
    conn_break(&conn->base, ROWAN_ECLOSED, true);
}

struct verbs_conn *verbs_rc_of_number(struct verbs_endpoint *endpoint, uint32_t qp_number)
{
    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_ALL)) {
        if (conn->rc && conn->rc->qp_number == qp_number)
            return conn;
    }
    return NULL;
}

void verbs_rc_failed(struct verbs_endpoint *endpoint, uint32_t qp_number)
{
    struct verbs_conn *conn = verbs_rc_of_number(endpoint, qp_number);

    if (!conn) /* it was closed since */
        return;
    log_event(LOG_WARN, "verbs_broken", "connection=%u queue_pair=%u reason=asynchronous_event",
              conn->base.number, qp_number);
    conn_break(&conn->base, ROWAN_ECLOSED, true);
}

/* --- completions --- */

/* The oldest fence has come back: all before it has landed. False: there was none. */
static bool take_fence(struct verbs_conn *conn)
{
    struct sender *sender = sender_of(conn);
    const struct fence *fence = &sender->fences[sender->head % VERBS_RC_READS];

    if (sender->head == sender->tail)
        return false;
    sender->window.landed = fence->blocks;
    sender->used -= fence->requests;
    sender->head++;
    conn_list_add(&conn->base, LIST_ACTIVE);
    return true;
}

void verbs_rc_completion(struct verbs_conn *conn, const struct ibv_wc *wc)
{
    const uint32_t work = verbs_work_number(wc->wr_id);
    struct verbs_rc *rc = conn->rc;

    if (!rc || rc->qp_number != wc->qp_num) /* 2 */
        return;
    if (wc->status != IBV_WC_SUCCESS)
        verbs_rc_break(conn, wc);
    else if (work == VERBS_RC_FENCE && (!conn->base.active || !take_fence(conn)))
        conn_break(&conn->base, ROWAN_EFORMAT, true);
}

/* --- Rowan sends --- */

int verbs_rowan_add(struct fabric_conn *base, const void *block, uint32_t bytes)
{
    const struct verbs_conn *conn = (const struct verbs_conn *)base;

    /* Only for such a peer the block is read: it lies in PM, past the caches. */
    if (conn->theirs.rc.zone == VERBS_ZONE_OF_SEGMENTS && bytes >= FABRIC_STRIDE &&
        !verbs_mlx5_may_land(block))
        return conn->base.state == CONN_OPEN ? ROWAN_EINVALID : ROWAN_ECLOSED;
    return window_rowan_add(base, block, bytes);
}

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

static void add_blocks(const struct sender *sender, struct chain *chain, uint32_t limit)
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

    request->wr_id = verbs_work(VERBS_WORK_RC, conn->base.number, VERBS_RC_FENCE);
    request->send_flags = IBV_SEND_SIGNALED;
    request->wr.rdma.remote_addr = theirs->fence_address;
    request->wr.rdma.rkey = theirs->fence_key;
}

/* Fences are in flight, or places are lacking. */
static bool is_busy(const struct sender *sender)
{
    return sender->queue - sender->used < 2 || sender->tail - sender->head == sender->reads; /* 5 */
}

/* How many requests may go before the fence (4). */
static uint32_t limit_of(const struct sender *sender)
{
    const uint32_t left = sender->queue - sender->used;

    return (left < CHAIN ? left : CHAIN) - 1;
}

static void hand_over(struct verbs_conn *conn, struct chain *chain)
{
    struct sender *sender = sender_of(conn);
    struct ibv_send_wr *bad;
    int error;

    add_fence(conn, chain);
    error = ibv_post_send(conn->rc->qp, chain->requests, &bad);
    if (error) {
        log_event(LOG_ERROR, "verbs_send_refused", "connection=%u requests=%u reason=\"%s\"",
                  conn->base.number, chain->count, strerror(abs(error)));
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
    const struct sender *sender = sender_of(conn);
    struct chain chain;

    if (sender->sent == sender->window.posted || is_busy(sender))
        return;
    chain.wr_id = verbs_work(VERBS_WORK_RC, conn->base.number, VERBS_RC_UNSIGNALLED);
    chain.count = 0;
    chain.blocks = sender->sent;
    add_blocks(sender, &chain, limit_of(sender));
    hand_over(conn, &chain);
}
