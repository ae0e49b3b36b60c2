/* soft_pair.h - two processes with one queue pair each, on devices made of software. Include after
 * cmocka.h. */
#ifndef TEST_SOFT_PAIR_H
#define TEST_SOFT_PAIR_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/lib/soft_verbs.h"

enum { MEMORY_BYTES = 1 << 16, DEPTH = 16, QKEY = 0x1234 };

/* One process with one queue pair. */
struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory;
    union ibv_gid gid;
};

/* How the ends of a test are made, and what it changes. */
struct plan {
    unsigned device; /* of the default ones */
    enum ibv_qp_type type;
    bool has_srq;
    uint8_t rnr_retry;
    uint8_t max_rd_atomic;
    uint8_t gid_index;
    uint32_t receive_psn;
    int completions; /* room for them; 0: enough */
};

__attribute__((unused)) static const struct plan rc_plan = {
    .device = 1, .type = IBV_QPT_RC, .rnr_retry = 7, .max_rd_atomic = 4, .gid_index = 3};
__attribute__((unused)) static const struct plan srq_plan = {.device = 1,
                                                             .type = IBV_QPT_RC,
                                                             .has_srq = true,
                                                             .rnr_retry = 7,
                                                             .max_rd_atomic = 4,
                                                             .gid_index = 3};
__attribute__((unused)) static const struct plan ud_plan = {
    .device = 1, .type = IBV_QPT_UD, .gid_index = 3};

/* Each test begins with an empty world. */
static inline int pair_setup(void **state)
{
    (void)state;
    soft_verbs_configure(NULL);
    return 0;
}

static inline void end_open(struct end *end, const struct plan *plan)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 2}};
    struct ibv_qp_init_attr init = {.qp_type = plan->type,
                                    .cap = {.max_send_wr = DEPTH,
                                            .max_recv_wr = DEPTH,
                                            .max_send_sge = 2,
                                            .max_recv_sge = 2,
                                            .max_inline_data = 64}};

    *end = (struct end){0};
    end->context = ibv_open_device(list[plan->device]);
    ibv_free_device_list(list);
    assert_non_null(end->context);
    assert_int_equal(ibv_query_gid(end->context, 1, plan->gid_index, &end->gid), 0);
    end->pd = ibv_alloc_pd(end->context);
    end->channel = ibv_create_comp_channel(end->context);
    end->cq = ibv_create_cq(end->context, plan->completions ? plan->completions : 4 * DEPTH, end,
                            end->channel, 0);
    if (plan->has_srq)
        init.srq = end->srq = ibv_create_srq(end->pd, &srq);
    init.send_cq = init.recv_cq = end->cq;
    end->qp = ibv_create_qp(end->pd, &init);
    assert_non_null(end->qp);
    end->memory = calloc(1, MEMORY_BYTES);
    end->mr = ibv_reg_mr(end->pd, end->memory, MEMORY_BYTES,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    assert_non_null(end->mr);
}

static inline void end_close(struct end *end)
{
    if (end->qp)
        assert_int_equal(ibv_destroy_qp(end->qp), 0);
    if (end->srq)
        assert_int_equal(ibv_destroy_srq(end->srq), 0);
    assert_int_equal(ibv_destroy_cq(end->cq), 0);
    assert_int_equal(ibv_destroy_comp_channel(end->channel), 0);
    assert_int_equal(ibv_dereg_mr(end->mr), 0);
    assert_int_equal(ibv_dealloc_pd(end->pd), 0);
    assert_int_equal(ibv_close_device(end->context), 0);
    free(end->memory);
}

static inline void to_init(struct end *end, const struct plan *plan)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qkey = QKEY,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

    assert_int_equal(
        ibv_modify_qp(end->qp, &attr,
                      mask | (plan->type == IBV_QPT_RC ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY)),
        0);
}

static inline struct ibv_ah_attr path_to(const struct end *peer, const struct plan *plan)
{
    return (struct ibv_ah_attr){
        .is_global = 1,
        .port_num = 1,
        .grh = {.dgid = peer->gid, .sgid_index = plan->gid_index, .hop_limit = 64}};
}

static inline void to_rtr(struct end *end, const struct end *peer, const struct plan *plan)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = IBV_MTU_1024,
                               .dest_qp_num = peer->qp->qp_num,
                               .rq_psn = 7 + plan->receive_psn,
                               .max_dest_rd_atomic = 4,
                               .min_rnr_timer = 1,
                               .ah_attr = path_to(peer, plan)};

    assert_int_equal(ibv_modify_qp(end->qp, &attr,
                                   plan->type == IBV_QPT_UD
                                       ? IBV_QP_STATE
                                       : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                             IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                     0);
}

static inline void to_rts(struct end *end, const struct plan *plan)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = 8,
                               .retry_cnt = 1,
                               .rnr_retry = plan->rnr_retry,
                               .sq_psn = 7,
                               .max_rd_atomic = plan->max_rd_atomic};

    assert_int_equal(ibv_modify_qp(end->qp, &attr,
                                   plan->type == IBV_QPT_UD
                                       ? IBV_QP_STATE | IBV_QP_SQ_PSN
                                       : IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                                             IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                             IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

static inline void pair_open(struct end ends[2], const struct plan *plan)
{
    for (int i = 0; i < 2; i++)
        end_open(&ends[i], plan);
    for (int i = 0; i < 2; i++) {
        to_init(&ends[i], plan);
        to_rtr(&ends[i], &ends[1 - i], plan);
        to_rts(&ends[i], plan);
    }
}

static inline void pair_close(struct end ends[2])
{
    end_close(&ends[0]);
    end_close(&ends[1]);
}

static inline struct ibv_sge piece(const struct end *end, uint32_t at, uint32_t bytes)
{
    return (struct ibv_sge){
        .addr = (uintptr_t)end->memory + at, .length = bytes, .lkey = end->mr->lkey};
}

static inline int post_receive(struct end *end, uint64_t id, uint32_t at, uint32_t bytes)
{
    struct ibv_sge sge = piece(end, at, bytes);
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

    return end->srq ? ibv_post_srq_recv(end->srq, &wr, &bad) : ibv_post_recv(end->qp, &wr, &bad);
}

static inline int post(struct end *end, uint64_t id, enum ibv_wr_opcode opcode, unsigned flags,
                       uint32_t at, uint32_t bytes, const struct end *peer, uint64_t remote_at)
{
    struct ibv_sge sge = piece(end, at, bytes);
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = flags},
                       *bad;

    if (peer) {
        wr.wr.rdma.remote_addr = (uintptr_t)peer->memory + remote_at;
        wr.wr.rdma.rkey = peer->mr->rkey;
    }
    return ibv_post_send(end->qp, &wr, &bad);
}

static inline int send_signalled(struct end *end, uint64_t id, uint32_t at, uint32_t bytes)
{
    return post(end, id, IBV_WR_SEND, IBV_SEND_SIGNALED, at, bytes, NULL, 0);
}

/* The next completion, while the other end is polled for nothing. */
static inline struct ibv_wc next_wc(struct end *end)
{
    struct ibv_wc wc = {0};
    int found = 0;

    for (uint32_t i = 0; i < 100000000 && found == 0; i++)
        found = ibv_poll_cq(end->cq, 1, &wc);
    assert_int_equal(found, 1);
    return wc;
}

static inline void expect(struct end *end, uint64_t id, enum ibv_wc_status status)
{
    const struct ibv_wc wc = next_wc(end);

    assert_int_equal(wc.wr_id, id);
    assert_int_equal(wc.status, status);
    assert_int_equal(wc.qp_num, end->qp->qp_num);
}

static inline void expect_nothing(struct end *end)
{
    struct ibv_wc wc;

    for (int i = 0; i < 1000; i++)
        assert_int_equal(ibv_poll_cq(end->cq, 1, &wc), 0);
}

/* Whether `mistake` ends its process as mistakes do. */
static inline bool is_mistake(void (*mistake)(void))
{
    const pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        fclose(stderr);
        mistake();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

#endif
