/* soft_rc.c - packets of reliable connections (InfiniBand specification, 9.7).
 *
 * A step either moves one packet of the oldest request that was not carried out yet, at both ends, or
 * acknowledges what was. Between the two a failure leaves the requester in doubt, as it does in life.
 */
#include <string.h>

#include "test/lib/soft_verbs_impl.h"

enum { PSN_MASK = 0xffffff, MAX_UNACKNOWLEDGED = 64 };

static uint8_t packet[SOFT_MAX_MTU];

/* The responder, if it would answer. */
static struct soft_qp *peer_of(const struct soft_qp *qp)
{
    struct soft_qp *peer = soft_qp_find(qp->attr.dest_qp_num);

    if (!peer || peer->base.qp_type != IBV_QPT_RC ||
        (peer->state != IBV_QPS_RTR && peer->state != IBV_QPS_RTS) ||
        peer->attr.dest_qp_num != qp->base.qp_num || peer->psn_in != qp->psn_out ||
        !soft_reaches(soft_qp_device(qp), &qp->attr.ah_attr, soft_qp_device(peer)) ||
        !soft_reaches(soft_qp_device(peer), &peer->attr.ah_attr, soft_qp_device(qp)))
        return NULL;
    return peer;
}

/* No answer: after the time that the queue pair says, it gives up. Whoever sleeps waits no longer. With a retry
 * count of 7 it never does, as on rxe. */
static bool unanswered(struct soft_qp *qp, bool all)
{
    const uint64_t now_ns = soft_now_ns();
    uint64_t limit_ns = (UINT64_C(4096) << qp->attr.timeout) * (qp->attr.retry_cnt + 1U);

    if (qp->attr.retry_cnt == 7)
        return false;
    if (limit_ns > soft.config.retry_limit_ns)
        limit_ns = soft.config.retry_limit_ns;
    if (qp->unanswered_ns == 0)
        qp->unanswered_ns = now_ns;
    if (!all && now_ns - qp->unanswered_ns < limit_ns)
        return false;
    soft_qp_fail(qp, IBV_WC_RETRY_EXC_ERR);
    return true;
}

/* The peer has no receive: one more try in each poll. */
static bool not_ready(struct soft_qp *qp)
{
    if (qp->rnr_poll == soft.polls)
        return false;
    qp->rnr_poll = soft.polls;
    if (qp->attr.rnr_retry == 7 || qp->rnr_tries++ < qp->attr.rnr_retry)
        return false;
    soft_qp_fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
    return true;
}

static void acknowledge(struct soft_qp *qp)
{
    while (qp->done != qp->next)
        soft_send_done(qp, IBV_WC_SUCCESS);
    qp->reads = 0;
    if (qp->done == qp->head)
        soft_deactivate(qp);
}

/* A negative acknowledgement: what came before is acknowledged by it. */
static bool refuse(struct soft_qp *qp, struct soft_qp *peer, enum ibv_wc_status status)
{
    acknowledge(qp);
    soft_event(soft_context_of(peer->base.context),
               status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR,
               &peer->base);
    soft_qp_fail(peer, IBV_WC_WR_FLUSH_ERR);
    soft_qp_fail(qp, status);
    return true;
}

static void count_packet(struct soft_qp *qp, struct soft_qp *peer, uint32_t bytes)
{
    qp->moved += bytes;
    qp->psn_out = (qp->psn_out + 1) & PSN_MASK;
    peer->psn_in = (peer->psn_in + 1) & PSN_MASK;
    qp->rnr_tries = 0;
    qp->unanswered_ns = 0;
}

static void carried_out(struct soft_qp *qp)
{
    qp->next++;
    qp->moved = 0;
    if (soft.faults.rc_delay_polls > 0)
        qp->pause_until = soft.polls + random_below(&soft.random, soft.faults.rc_delay_polls);
}

static bool move_send(struct soft_qp *qp, struct soft_qp *peer, const struct soft_send *send,
                      uint32_t part)
{
    struct ibv_wc wc = {.opcode = IBV_WC_RECV, .byte_len = send->bytes, .src_qp = qp->base.qp_num};

    if (qp->moved == 0 && !soft_take_receive(peer))
        return not_ready(qp);
    if (part > peer->rx_room - peer->rx_bytes) {
        wc.status = IBV_WC_LOC_LEN_ERR;
        soft_receive_done(peer, &wc);
        return refuse(qp, peer, IBV_WC_REM_INV_REQ_ERR);
    }
    soft_send_bytes(qp, qp->next, qp->moved, packet, part);
    soft_scatter(peer->base.pd, peer->rx_sges, peer->rx.sge_count, peer->rx_bytes, packet, part);
    peer->rx_bytes += part;
    count_packet(qp, peer, part);
    if (qp->moved < send->bytes)
        return true;
    soft_receive_done(peer, &wc);
    carried_out(qp);
    return true;
}

static bool move_write(struct soft_qp *qp, struct soft_qp *peer, const struct soft_send *send,
                       uint32_t part)
{
    const bool is_last = qp->moved + part == send->bytes;
    uint8_t *to = NULL;

    if (send->bytes > 0) {
        if (peer->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)
            to = soft_remote(peer->base.pd, send->rkey, send->remote, send->bytes,
                             IBV_ACCESS_REMOTE_WRITE);
        if (!to)
            return refuse(qp, peer, IBV_WC_REM_ACCESS_ERR);
    }
    if (part > 0)
        soft_send_bytes(qp, qp->next, qp->moved, to + qp->moved, part);
    count_packet(qp, peer, part);
    if (is_last)
        carried_out(qp);
    return true;
}

static bool move_read(struct soft_qp *qp, struct soft_qp *peer, const struct soft_send *send,
                      uint32_t part)
{
    const uint8_t *from = NULL;

    if (qp->reads >= peer->attr.max_dest_rd_atomic)
        return refuse(qp, peer, IBV_WC_REM_INV_RD_REQ_ERR);
    if (send->bytes > 0) {
        if (peer->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ)
            from = soft_remote(peer->base.pd, send->rkey, send->remote, send->bytes,
                               IBV_ACCESS_REMOTE_READ);
        if (!from)
            return refuse(qp, peer, IBV_WC_REM_ACCESS_ERR);
    }
    if (part > 0) {
        memcpy(packet, from + qp->moved, part);
        soft_scatter(qp->base.pd, soft_send_sges(qp, qp->next), send->sge_count, qp->moved, packet,
                     part);
    }
    count_packet(qp, peer, part);
    if (qp->moved == send->bytes) {
        qp->reads++;
        carried_out(qp);
    }
    return true;
}

static bool transmit(struct soft_qp *qp, bool all)
{
    struct soft_qp *peer = peer_of(qp);
    const struct soft_send *send = &qp->sends[qp->next % qp->cap.max_send_wr];
    const uint32_t mtu = soft_mtu_bytes(qp->attr.path_mtu);
    const uint32_t part = send->bytes - qp->moved < mtu ? send->bytes - qp->moved : mtu;

    if (!peer)
        return unanswered(qp, all);
    if (peer->state == IBV_QPS_RTR && !peer->is_established) {
        peer->is_established = true;
        soft_event(soft_context_of(peer->base.context), IBV_EVENT_COMM_EST, &peer->base);
    }
    if (peer->attr.path_mtu != qp->attr.path_mtu && send->bytes > 256)
        return refuse(qp, peer, IBV_WC_REM_INV_REQ_ERR);
    switch (send->opcode) {
    case IBV_WR_RDMA_READ:
        return move_read(qp, peer, send, part);
    case IBV_WR_RDMA_WRITE:
        return move_write(qp, peer, send, part);
    default:
        return move_send(qp, peer, send, part);
    }
}

/* Whether nothing more can move, or need, before what was carried out is acknowledged. */
static bool must_acknowledge(const struct soft_qp *qp)
{
    const struct soft_send *send = &qp->sends[qp->next % qp->cap.max_send_wr];

    return qp->next == qp->head || qp->next - qp->done >= MAX_UNACKNOWLEDGED ||
           (send->opcode == IBV_WR_RDMA_READ && qp->reads >= qp->attr.max_rd_atomic);
}

bool soft_rc_step(struct soft_qp *qp, bool all)
{
    if (qp->state != IBV_QPS_RTS) {
        soft_deactivate(qp);
        return false;
    }
    if (qp->next != qp->done && (must_acknowledge(qp) || random_below(&soft.random, 4) == 0)) {
        /* with its peer gone, half of the time the acknowledgement is lost as well */
        if (peer_of(qp) || (qp->unanswered_ns == 0 && random_below(&soft.random, 2))) {
            acknowledge(qp);
            return true;
        }
        return unanswered(qp, all);
    }
    return transmit(qp, all);
}
