/* soft_qp.c - queue pairs and shared receive queues: life and states.
 *
 *   RESET -> INIT -> RTR -> RTS    ibv_modify_qp, with the attributes of the specification's table 91
 *   any   -> ERR                   ibv_modify_qp, soft_qp_fail
 *   any   -> RESET                 ibv_modify_qp
 */
#include <stdlib.h>
#include <string.h>

#include "test/lib/soft_verbs_impl.h"

enum { MAX_PSN = 0xffffff };

struct soft_qp *soft_qp_of(struct ibv_qp *qp)
{
    return SOFT_CONTAINER(qp, struct soft_qp, base);
}

struct soft_srq *soft_srq_of(struct ibv_srq *srq)
{
    return SOFT_CONTAINER(srq, struct soft_srq, base);
}

static struct soft_pd *pd_of(struct ibv_pd *pd)
{
    return SOFT_CONTAINER(pd, struct soft_pd, base);
}

struct soft_device *soft_qp_device(const struct soft_qp *qp)
{
    return soft_context_of(qp->base.context)->device;
}

struct soft_qp *soft_qp_find(uint32_t number)
{
    const uint32_t slot = number & (SOFT_MAX_QPS - 1);
    struct soft_qp *qp = soft.qps[slot];

    return qp && qp->base.qp_num == number ? qp : NULL;
}

/* --- receives --- */

static bool receives_init(struct soft_receives *receives, uint32_t max_wr, uint32_t max_sge)
{
    *receives = (struct soft_receives){.max_wr = max_wr, .max_sge = max_sge};
    receives->ring = calloc(max_wr + 1, sizeof *receives->ring);
    receives->sges = calloc((size_t)max_wr * max_sge + 1, sizeof *receives->sges);
    return receives->ring && receives->sges;
}

static void receives_fini(struct soft_receives *receives)
{
    free(receives->ring);
    free(receives->sges);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
    const struct soft_device *device = soft_context_of(pd->context)->device;
    struct soft_srq *srq = NULL;

    soft_lock();
    if (device->config.lacks_srq)
        errno = EOPNOTSUPP;
    else if (init->attr.max_wr == 0 || init->attr.max_wr > SOFT_MAX_QP_WR ||
             init->attr.max_sge == 0 || init->attr.max_sge > device->config.max_sge)
        errno = EINVAL;
    else if (!soft_call_fails())
        srq = calloc(1, sizeof *srq);
    if (srq && !receives_init(&srq->receives, init->attr.max_wr, init->attr.max_sge)) {
        receives_fini(&srq->receives);
        free(srq);
        srq = NULL;
    }
    if (srq) {
        srq->base =
            (struct ibv_srq){.context = pd->context, .srq_context = init->srq_context, .pd = pd};
        pd_of(pd)->children++;
        soft.stats.srqs++;
    }
    soft_unlock();
    return srq ? &srq->base : NULL;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    struct soft_srq *it = soft_srq_of(srq);
    int error = 0;

    soft_lock();
    if (mask != IBV_SRQ_LIMIT || attr->srq_limit > it->receives.max_wr)
        error = EINVAL;
    else if (soft_call_fails())
        error = errno;
    else
        it->receives.limit = attr->srq_limit;
    soft_unlock();
    return error;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
    struct soft_srq *it = soft_srq_of(srq);

    soft_lock();
    if (it->children > 0)
        soft_mistake("a shared receive queue is destroyed that %u queue pairs use", it->children);
    soft_cq_forget(soft_context_of(srq->context), NULL, &it->receives);
    soft_events_forget(soft_context_of(srq->context), srq);
    soft_wait_acknowledged(&it->events_unacked, "shared receive queue");
    pd_of(srq->pd)->children--;
    soft.stats.srqs--;
    soft_unlock();
    receives_fini(&it->receives);
    free(it);
    return 0;
}

/* --- creation --- */

static int check_init(const struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
    const struct soft_device_config *device = &soft_context_of(pd->context)->device->config;
    const struct ibv_qp_cap *cap = &init->cap;

    if (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UD)
        return EOPNOTSUPP;
    if (!init->send_cq || !init->recv_cq || init->send_cq->context != pd->context ||
        init->recv_cq->context != pd->context || (init->srq && init->srq->pd != pd))
        return EINVAL;
    if (cap->max_send_wr > SOFT_MAX_QP_WR || cap->max_send_sge > device->max_sge ||
        cap->max_inline_data > device->max_inline)
        return EINVAL;
    if (!init->srq && (cap->max_recv_wr > SOFT_MAX_QP_WR || cap->max_recv_sge > device->max_sge))
        return EINVAL;
    return 0;
}

/* A slot that was used least recently, and a tag in the number's upper bits, so that a number returns late. */
static bool number_take(struct soft_qp *qp)
{
    for (uint32_t i = 0; i < SOFT_MAX_QPS; i++) {
        const uint32_t slot = (soft.qp_next + i) % SOFT_MAX_QPS;

        if (slot < 16 || soft.qps[slot])
            continue;
        soft.qps[slot] = qp;
        soft.qp_tags[slot]++;
        soft.qp_next = slot + 1;
        qp->base.qp_num = slot | (uint32_t)soft.qp_tags[slot] << 16;
        return true;
    }
    errno = ENOMEM;
    return false;
}

static void qp_free(struct soft_qp *qp)
{
    receives_fini(&qp->own);
    free(qp->sends);
    free(qp->send_sges);
    free(qp->inline_data);
    free(qp->rx_sges);
    free(qp);
}

static struct soft_qp *qp_make(struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
    struct soft_qp *qp = calloc(1, sizeof *qp);
    const struct ibv_qp_cap *cap = &init->cap;
    bool made;

    if (!qp)
        return NULL;
    qp->base = (struct ibv_qp){.context = pd->context,
                               .qp_context = init->qp_context,
                               .pd = pd,
                               .send_cq = init->send_cq,
                               .recv_cq = init->recv_cq,
                               .srq = init->srq,
                               .qp_type = init->qp_type};
    qp->signals_all = init->sq_sig_all;
    qp->cap = *cap;
    qp->init = *init;
    made = receives_init(&qp->own, init->srq ? 0 : cap->max_recv_wr,
                         init->srq ? 0 : cap->max_recv_sge);
    qp->receives = init->srq ? &soft_srq_of(init->srq)->receives : &qp->own;
    qp->sends = calloc(cap->max_send_wr + 1, sizeof *qp->sends);
    qp->send_sges = calloc((size_t)cap->max_send_wr * cap->max_send_sge + 1, sizeof *qp->send_sges);
    qp->inline_data = calloc((size_t)cap->max_send_wr * cap->max_inline_data + 1, 1);
    qp->rx_sges = calloc(qp->receives->max_sge + 1, sizeof *qp->rx_sges);
    if (made && qp->sends && qp->send_sges && qp->inline_data && qp->rx_sges && number_take(qp))
        return qp;
    qp_free(qp);
    return NULL;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct soft_qp *qp = NULL;
    int error;

    soft_lock();
    error = check_init(pd, init);
    if (error)
        errno = error;
    else if (!soft_call_fails())
        qp = qp_make(pd, init);
    if (qp) {
        pd_of(pd)->children++;
        soft_cq_of(init->send_cq)->children++;
        soft_cq_of(init->recv_cq)->children++;
        if (init->srq)
            soft_srq_of(init->srq)->children++;
        soft.stats.qps++;
    }
    soft_unlock();
    return qp ? &qp->base : NULL;
}

/* Everything that was posted is forgotten; what the completion queues hold stays. */
static void qp_reset(struct soft_qp *qp)
{
    soft_deactivate(qp);
    if (qp->receiving && qp->base.srq)
        qp->receives->used--;
    qp->receiving = false;
    if (!qp->base.srq)
        qp->own.head = qp->own.count = qp->own.used = 0;
    qp->tail = qp->done = qp->next = qp->head = 0;
    qp->silent = qp->moved = qp->reads = qp->rnr_tries = 0;
    qp->unanswered_ns = 0;
    qp->was_last_wqe = qp->is_established = false;
    qp->state = IBV_QPS_RESET;
    soft_cq_forget(soft_context_of(qp->base.context), qp, NULL);
    if (!qp->base.srq)
        soft_cq_forget(soft_context_of(qp->base.context), NULL, &qp->own);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    struct soft_qp *it = soft_qp_of(qp);

    soft_lock();
    qp_reset(it);
    soft_events_forget(soft_context_of(qp->context), qp);
    soft_wait_acknowledged(&it->events_unacked, "queue pair");
    soft.qps[qp->qp_num & (SOFT_MAX_QPS - 1)] = NULL;
    pd_of(qp->pd)->children--;
    soft_cq_of(qp->send_cq)->children--;
    soft_cq_of(qp->recv_cq)->children--;
    if (qp->srq)
        soft_srq_of(qp->srq)->children--;
    soft.stats.qps--;
    soft_unlock();
    qp_free(it);
    return 0;
}

/* --- states --- */

struct transition {
    enum ibv_qp_type type;
    enum ibv_qp_state from, to;
    int must, may;
};

static const struct transition transitions[] = {
    {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
     0},
    {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0,
     IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

static bool is_allowed(const struct soft_qp *qp, enum ibv_qp_state to, int mask)
{
    mask &= ~IBV_QP_STATE;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return (mask & ~IBV_QP_CUR_STATE) == 0;
    for (unsigned i = 0; i < sizeof transitions / sizeof transitions[0]; i++) {
        const struct transition *it = &transitions[i];

        if (it->type == qp->base.qp_type && it->from == qp->state && it->to == to)
            return (mask & it->must) == it->must && (mask & ~(it->must | it->may)) == 0;
    }
    return false;
}

static bool are_values_valid(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    const struct soft_device *device = soft_qp_device(qp);

    if ((mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state) ||
        (mask & IBV_QP_PKEY_INDEX && attr->pkey_index != 0) ||
        (mask & IBV_QP_PORT && attr->port_num != 1) ||
        (mask & IBV_QP_AV && soft_check_ah(device, &attr->ah_attr) != 0) ||
        (mask & IBV_QP_DEST_QPN && attr->dest_qp_num > MAX_PSN) ||
        (mask & IBV_QP_RQ_PSN && attr->rq_psn > MAX_PSN) ||
        (mask & IBV_QP_SQ_PSN && attr->sq_psn > MAX_PSN))
        return false;
    if (mask & IBV_QP_PATH_MTU && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096 ||
                                   soft_mtu_bytes(attr->path_mtu) > device->config.mtu_bytes))
        return false;
    return !((mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > SOFT_MAX_READS) ||
             (mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > SOFT_MAX_READS) ||
             (mask & IBV_QP_TIMEOUT && attr->timeout > 31) ||
             (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) ||
             (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7) ||
             (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31));
}

static void attributes_take(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *to = &qp->attr;

#define TAKE(bit, member)                                                                          \
    if (mask & (bit))                                                                              \
    to->member = attr->member
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    TAKE(IBV_QP_PORT, port_num);
    TAKE(IBV_QP_QKEY, qkey);
    TAKE(IBV_QP_AV, ah_attr);
    TAKE(IBV_QP_PATH_MTU, path_mtu);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num);
    TAKE(IBV_QP_RQ_PSN, rq_psn);
    TAKE(IBV_QP_SQ_PSN, sq_psn);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    TAKE(IBV_QP_TIMEOUT, timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
#undef TAKE
    if (mask & IBV_QP_RQ_PSN)
        qp->psn_in = attr->rq_psn;
    if (mask & IBV_QP_SQ_PSN)
        qp->psn_out = attr->sq_psn;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct soft_qp *it = soft_qp_of(qp);
    int error = 0;

    soft_lock();
    {
        const enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : it->state;

        if (!is_allowed(it, to, mask) || !are_values_valid(it, attr, mask)) {
            error = EINVAL;
        } else if (soft_call_fails()) {
            error = errno;
        } else if (to == IBV_QPS_RESET) {
            qp_reset(it);
        } else if (to == IBV_QPS_ERR) {
            soft_qp_fail(it, IBV_WC_WR_FLUSH_ERR);
        } else {
            attributes_take(it, attr, mask);
            it->state = to;
        }
    }
    if (!error)
        qp->state = it->state;
    soft_unlock();
    return error;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    struct soft_qp *it = soft_qp_of(qp);

    (void)mask;
    soft_lock();
    *attr = it->attr;
    attr->qp_state = attr->cur_qp_state = qp->state = it->state;
    attr->cap = it->cap;
    *init = it->init;
    soft_unlock();
    return 0;
}

/* --- failure --- */

static void flush_receives(struct soft_qp *qp)
{
    const struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR};

    if (qp->receiving)
        soft_receive_done(qp, &wc);
    if (qp->base.srq) {
        if (!qp->was_last_wqe)
            soft_event(soft_context_of(qp->base.context), IBV_EVENT_QP_LAST_WQE_REACHED, &qp->base);
        qp->was_last_wqe = true;
        return;
    }
    while (soft_take_receive(qp))
        soft_receive_done(qp, &wc);
}

void soft_qp_fail(struct soft_qp *qp, enum ibv_wc_status status)
{
    qp->state = IBV_QPS_ERR;
    while (qp->done != qp->head) {
        soft_send_done(qp, status);
        status = IBV_WC_WR_FLUSH_ERR;
    }
    qp->next = qp->head;
    qp->moved = qp->reads = 0;
    soft_deactivate(qp);
    flush_receives(qp);
}

void soft_qp_break(struct soft_qp *qp)
{
    if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_ERR)
        return;
    soft_event(soft_context_of(qp->base.context), IBV_EVENT_QP_FATAL, &qp->base);
    soft_qp_fail(qp, IBV_WC_WR_FLUSH_ERR);
}
