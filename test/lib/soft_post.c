/* soft_post.c - work requests: what may be posted, how it is kept, how it completes. */
#include <string.h>

#include "test/lib/soft_verbs_impl.h"

static uint32_t slot_of(const struct soft_qp *qp, uint32_t number)
{
    return number % qp->cap.max_send_wr;
}

struct ibv_sge *soft_send_sges(const struct soft_qp *qp, uint32_t number)
{
    return qp->send_sges + (size_t)slot_of(qp, number) * qp->cap.max_send_sge;
}

uint8_t *soft_inline_data(const struct soft_qp *qp, uint32_t number)
{
    return qp->inline_data + (size_t)slot_of(qp, number) * qp->cap.max_inline_data;
}

void soft_send_bytes(const struct soft_qp *qp, uint32_t number, uint32_t at, uint8_t *to,
                     uint32_t bytes)
{
    const struct soft_send *send = &qp->sends[slot_of(qp, number)];

    if (send->flags & IBV_SEND_INLINE)
        memcpy(to, soft_inline_data(qp, number) + at, bytes);
    else
        soft_gather(qp->base.pd, soft_send_sges(qp, number), send->sge_count, at, to, bytes);
}

static void check_opcode(const struct soft_qp *qp, const struct ibv_send_wr *wr)
{
    const bool is_send = wr->opcode == IBV_WR_SEND;

    if (qp->base.qp_type == IBV_QPT_UD) {
        if (!is_send || !wr->wr.ud.ah)
            soft_mistake("opcode %d, or no address handle, on a UD queue pair", wr->opcode);
        if (wr->wr.ud.ah->pd != qp->base.pd)
            soft_mistake("an address handle of another protection domain");
    } else if (!is_send && wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_READ) {
        soft_mistake("opcode %d is not there", wr->opcode);
    }
    if (wr->opcode == IBV_WR_RDMA_READ && (wr->send_flags & IBV_SEND_INLINE))
        soft_mistake("an RDMA read with inline data");
    if (wr->opcode == IBV_WR_RDMA_READ && qp->attr.max_rd_atomic == 0)
        soft_mistake("an RDMA read where max_rd_atomic is 0");
}

/* What it asks for is allowed, or it is a mistake; the bytes. */
static uint32_t check_send(const struct soft_qp *qp, const struct ibv_send_wr *wr)
{
    const uint32_t sges = (uint32_t)wr->num_sge;
    uint64_t bytes = 0;

    if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR)
        soft_mistake("a send is posted in state %d", qp->state);
    if (wr->num_sge < 0 || sges > qp->cap.max_send_sge)
        soft_mistake("a send of %d pieces, at most %u", wr->num_sge, qp->cap.max_send_sge);
    check_opcode(qp, wr);
    if (wr->send_flags & IBV_SEND_INLINE) {
        for (uint32_t i = 0; i < sges; i++)
            bytes += wr->sg_list[i].length;
        if (bytes > qp->cap.max_inline_data)
            soft_mistake("%lu bytes inline, at most %u", bytes, qp->cap.max_inline_data);
    } else if (qp->state == IBV_QPS_RTS) {
        bytes =
            soft_check_sges(qp->base.pd, wr->sg_list, sges,
                            wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0, "a send");
    }
    if (bytes > SOFT_MAX_MESSAGE)
        soft_mistake("a message of %lu bytes", bytes);
    if (qp->base.qp_type == IBV_QPT_UD && bytes > soft_qp_device(qp)->config.mtu_bytes)
        soft_mistake("a datagram of %lu bytes, the MTU is %u", bytes,
                     soft_qp_device(qp)->config.mtu_bytes);
    return (uint32_t)bytes;
}

static void send_take(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t bytes)
{
    const uint32_t number = qp->head;
    struct soft_send *send = &qp->sends[slot_of(qp, number)];
    uint8_t *to = soft_inline_data(qp, number);

    *send = (struct soft_send){.wr_id = wr->wr_id,
                               .opcode = wr->opcode,
                               .flags = wr->send_flags |
                                        (qp->signals_all ? (unsigned)IBV_SEND_SIGNALED : 0),
                               .bytes = bytes};
    if (qp->base.qp_type == IBV_QPT_UD) {
        send->ah = SOFT_CONTAINER(wr->wr.ud.ah, struct soft_ah, base)->attr;
        send->remote_qp = wr->wr.ud.remote_qpn;
        send->remote_key = wr->wr.ud.remote_qkey;
    } else {
        send->remote = wr->wr.rdma.remote_addr;
        send->rkey = wr->wr.rdma.rkey;
    }
    if (!(wr->send_flags & IBV_SEND_INLINE)) {
        send->sge_count = (uint32_t)wr->num_sge;
        for (uint32_t i = 0; i < send->sge_count; i++)
            soft_send_sges(qp, number)[i] = wr->sg_list[i];
    }
    for (int i = 0; i < wr->num_sge && (wr->send_flags & IBV_SEND_INLINE); i++) {
        if (wr->sg_list[i].length > 0)
            memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        to += wr->sg_list[i].length;
    }
    qp->head++;
}

int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct soft_qp *it = soft_qp_of(qp);
    int error = 0;

    soft_lock();
    for (; wr; wr = wr->next) {
        const uint32_t bytes = check_send(it, wr);

        if (it->head - it->tail >= it->cap.max_send_wr) {
            *bad = wr;
            error = ENOMEM;
            break;
        }
        send_take(it, wr, bytes);
        if (it->state == IBV_QPS_ERR) {
            soft_send_done(it, IBV_WC_WR_FLUSH_ERR);
            it->next = it->head;
        }
    }
    if (it->state == IBV_QPS_RTS && it->done != it->head)
        soft_activate(it);
    soft_unlock();
    return error;
}

static enum ibv_wc_opcode completion_opcode(enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    default:
        return IBV_WC_SEND;
    }
}

void soft_send_done(struct soft_qp *qp, enum ibv_wc_status status)
{
    const struct soft_send *send = &qp->sends[slot_of(qp, qp->done)];
    struct soft_completion completion = {.wc = {.wr_id = send->wr_id,
                                                .status = status,
                                                .opcode = completion_opcode(send->opcode),
                                                .byte_len = send->bytes,
                                                .qp_num = qp->base.qp_num},
                                         .of_send = true,
                                         .qp = qp};

    qp->done++;
    qp->silent++;
    if (status == IBV_WC_SUCCESS && !(send->flags & IBV_SEND_SIGNALED))
        return;
    completion.sends = qp->silent;
    qp->silent = 0;
    soft_cq_add(qp->base.send_cq, &completion);
}

/* --- receives --- */

static int receive_post(struct soft_receives *receives, const struct ibv_pd *pd,
                        const struct ibv_recv_wr *wr)
{
    uint32_t slot;

    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > receives->max_sge)
        soft_mistake("a receive of %d pieces, at most %u", wr->num_sge, receives->max_sge);
    soft_check_sges(pd, wr->sg_list, (uint32_t)wr->num_sge, IBV_ACCESS_LOCAL_WRITE, "a receive");
    if (receives->used >= receives->max_wr)
        return ENOMEM;
    slot = (receives->head + receives->count++) % receives->max_wr;
    receives->used++;
    receives->ring[slot] =
        (struct soft_receive){.wr_id = wr->wr_id, .sge_count = (uint32_t)wr->num_sge};
    for (uint32_t i = 0; i < (uint32_t)wr->num_sge; i++)
        receives->sges[(size_t)slot * receives->max_sge + i] = wr->sg_list[i];
    return 0;
}

int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct soft_qp *it = soft_qp_of(qp);
    const struct ibv_wc flushed = {.status = IBV_WC_WR_FLUSH_ERR};
    int error = 0;

    soft_lock();
    if (qp->srq)
        soft_mistake("a receive for a queue pair with a shared receive queue");
    if (it->state == IBV_QPS_RESET)
        soft_mistake("a receive is posted in state RESET");
    for (; wr; wr = wr->next) {
        error = receive_post(&it->own, qp->pd, wr);
        if (error) {
            *bad = wr;
            break;
        }
        if (it->state == IBV_QPS_ERR && soft_take_receive(it))
            soft_receive_done(it, &flushed);
    }
    soft_unlock();
    return error;
}

int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct soft_srq *it = soft_srq_of(srq);
    int error = 0;

    soft_lock();
    for (; wr; wr = wr->next) {
        error = receive_post(&it->receives, srq->pd, wr);
        if (error) {
            *bad = wr;
            break;
        }
    }
    soft_unlock();
    return error;
}

bool soft_take_receive(struct soft_qp *qp)
{
    struct soft_receives *receives = qp->receives;
    const struct ibv_sge *sges;

    if (receives->count == 0)
        return false;
    sges = receives->sges + (size_t)receives->head * receives->max_sge;
    qp->receiving = true;
    qp->rx = receives->ring[receives->head];
    memcpy(qp->rx_sges, sges, qp->rx.sge_count * sizeof *sges);
    qp->rx_bytes = 0;
    qp->rx_room = 0;
    for (uint32_t i = 0; i < qp->rx.sge_count; i++)
        qp->rx_room += sges[i].length;
    receives->head = (receives->head + 1) % receives->max_wr;
    receives->count--;
    if (receives->count < receives->limit) {
        receives->limit = 0;
        soft_event(soft_context_of(qp->base.context), IBV_EVENT_SRQ_LIMIT_REACHED, qp->base.srq);
    }
    return true;
}

void soft_receive_done(struct soft_qp *qp, const struct ibv_wc *wc)
{
    struct soft_completion completion = {.wc = *wc, .qp = qp, .receives = qp->receives};

    completion.wc.wr_id = qp->rx.wr_id;
    completion.wc.qp_num = qp->base.qp_num;
    qp->receiving = false;
    soft_cq_add(qp->base.recv_cq, &completion);
}
