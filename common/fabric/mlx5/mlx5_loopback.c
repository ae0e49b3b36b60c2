/* mlx5_loopback.c - see mlx5_proof.h; and the probe that uses it. It waits in a loop: a device is probed when it is
 * opened, before any role runs.
 *
 * 1. A slot's bytes are not written again before the READ behind its packet has come back.
 * 2. The READ is the only request that completes, so two places of the completion queue for each slot are enough,
 *    also when a queue pair fails and completes all that it holds.
 */
#include "common/fabric/mlx5/mlx5_proof.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_mlx5.h"
#include "common/fabric/verbs/verbs_pair.h"

enum {
    SLOTS = 16, /* packets of a sender in flight */
    SENDER_PSN = 0x123456,
    SINK_AT = MLX5_PROOF_SENDERS * SLOTS, /* in slots: behind those of packets */
};

/* For all of a self-test; it takes some milliseconds. */
#define LIMIT_NS (3 * NS_PER_S)

struct sender {
    struct ibv_qp *qp;
    uint64_t sent, back; /* packets */
};

struct mlx5_loopback {
    struct mlx5_proof_sender base;
    struct verbs_device *device;
    uint32_t reads; /* in flight of a sender */
    uint64_t end_ns;
    struct verbs_buffer buffer;
    uint32_t slot_bytes;
    struct ibv_cq *cq;
    struct sender senders[MLX5_PROOF_SENDERS];
};

static struct mlx5_loopback *loopback_of(struct mlx5_proof_sender *base)
{
    static_assert(offsetof(struct mlx5_loopback, base) == 0, "it is the head");
    return (struct mlx5_loopback *)base;
}

/* --- sending --- */

/* Where the port is, as its own peer. */
static void own_address(const struct verbs_device *device, struct ibv_ah_attr *address)
{
    verbs_address(device, device->gid.raw, device->port_attributes.lid, address);
}

static int loopback_connect(struct mlx5_proof_sender *base, unsigned which, uint32_t number,
                            uint32_t psn)
{
    struct mlx5_loopback *loopback = loopback_of(base);
    struct ibv_qp *qp = loopback->senders[which].qp;
    struct ibv_qp_attr to = {.path_mtu = loopback->device->port_attributes.active_mtu,
                             .dest_qp_num = number,
                             .rq_psn = psn,
                             .sq_psn = SENDER_PSN,
                             .max_dest_rd_atomic = 1,
                             .max_rd_atomic = (uint8_t)loopback->reads,
                             .min_rnr_timer = VERBS_RC_RNR_TIMER,
                             .timeout = VERBS_RC_SEGMENTS_TIMEOUT,
                             .retry_cnt = VERBS_RC_RETRIES,
                             .rnr_retry = VERBS_RC_RNR_FOR_EVER};
    own_address(loopback->device, &to.ah_attr);
    return verbs_pair_connect(qp, &to) ? ROWAN_EIO : 0;
}

/* Takes one completion. Errors: ROWAN_EIO ETIMEDOUT. */
static int poll_one(struct mlx5_loopback *loopback)
{
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(loopback->cq, 1, &wc)) == 0) {
        if (clock_now_ns(clock_system()) >= loopback->end_ns)
            return ROWAN_ETIMEDOUT;
    }
    if (count < 0)
        return ROWAN_EIO;
    if (wc.status != IBV_WC_SUCCESS) {
        log_event(LOG_INFO, "mlx5_self_test_failed", "qp=0x%x status=\"%s\" vendor=%u", wc.qp_num,
                  ibv_wc_status_str(wc.status), wc.vendor_err);
        return ROWAN_EIO;
    }
    loopback->senders[wc.wr_id].back++;
    return 0;
}

static int loopback_send(struct mlx5_proof_sender *base, unsigned which, const void *packet,
                         uint32_t bytes)
{
    struct mlx5_loopback *loopback = loopback_of(base);
    const struct verbs_buffer *fence = &loopback->device->fence;
    struct sender *sender = &loopback->senders[which];
    while (sender->sent - sender->back == SLOTS) { /* 1 */
        int error = poll_one(loopback);
        if (error)
            return error;
    }
    uint32_t slot = which * SLOTS + (uint32_t)(sender->sent % SLOTS);
    uint8_t *data = loopback->buffer.data + (size_t)slot * loopback->slot_bytes;
    uint8_t *sink = loopback->buffer.data + (size_t)SINK_AT * loopback->slot_bytes + slot;
    uint32_t key = loopback->buffer.mr->lkey;
    struct ibv_sge pieces[] = {{.addr = (uintptr_t)data, .length = bytes, .lkey = key},
                               {.addr = (uintptr_t)sink, .length = 1, .lkey = key}};
    struct ibv_send_wr read = {.wr_id = which,
                               .sg_list = &pieces[1],
                               .num_sge = 1,
                               .opcode = IBV_WR_RDMA_READ,
                               .send_flags = IBV_SEND_SIGNALED,
                               .wr.rdma = {(uintptr_t)fence->data, fence->mr->rkey}};
    struct ibv_send_wr send = {
        .wr_id = which, .next = &read, .sg_list = &pieces[0], .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad;
    memcpy(data, packet, bytes);
    sender->sent++;
    return ibv_post_send(sender->qp, &send, &bad) == 0 ? 0 : ROWAN_EIO;
}

static int loopback_wait(struct mlx5_proof_sender *base)
{
    struct mlx5_loopback *loopback = loopback_of(base);
    int error = 0;
    for (unsigned i = 0; i < MLX5_PROOF_SENDERS; i++) {
        struct sender *sender = &loopback->senders[i];
        while (!error && sender->sent > sender->back)
            error = poll_one(loopback);
    }
    return error;
}

/* --- open and close --- */

static int make_sender(struct mlx5_loopback *loopback, unsigned which)
{
    struct ibv_qp_init_attr init = {
        .send_cq = loopback->cq,
        .recv_cq = loopback->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 2 * SLOTS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(loopback->device->pd, &init);
    if (!qp)
        return ROWAN_EUNSUPPORTED;
    loopback->senders[which].qp = qp;
    loopback->base.numbers[which] = qp->qp_num;
    return verbs_pair_init(qp, loopback->device->port, 0) == 0 ? 0 : ROWAN_EUNSUPPORTED;
}

int mlx5_loopback_open(struct verbs_device *device, uint64_t limit_ns,
                       struct mlx5_proof_sender **out, const char **reason)
{
    struct mlx5_loopback *loopback = calloc(1, sizeof *loopback);
    struct verbs_obstacle obstacle = {0};
    *reason = "out of memory";
    if (!loopback)
        return ROWAN_ENOMEM;
    loopback->base.psn = SENDER_PSN;
    loopback->base.connect = loopback_connect;
    loopback->base.send = loopback_send;
    loopback->base.wait = loopback_wait;
    loopback->device = device;
    const struct ibv_device_attr *limits = &device->attributes.orig_attr;
    loopback->reads = verbs_at_most(verbs_at_most(VERBS_RC_READS, limits->max_qp_rd_atom),
                                    limits->max_qp_init_rd_atom);
    loopback->end_ns = clock_now_ns(clock_system()) + limit_ns;
    loopback->slot_bytes = device->mtu_bytes;

    *reason = "the self-test's packets have no memory: is locked memory limited (ulimit -l)?";
    int error = verbs_buffer_try(device, (uint64_t)(SINK_AT + 1) * loopback->slot_bytes,
                                 IBV_ACCESS_LOCAL_WRITE, &loopback->buffer, &obstacle);
    if (error)
        goto failed;
    *reason = "the device refused the completion queue of the self-test";
    error = ROWAN_EUNSUPPORTED;
    loopback->cq = ibv_create_cq(device->context, 2 * SLOTS * MLX5_PROOF_SENDERS, NULL, NULL, 0);
    if (!loopback->cq) /* 2 */
        goto failed;
    *reason = "the device refused a queue pair of the self-test";
    for (unsigned which = 0; which < MLX5_PROOF_SENDERS; which++) {
        error = make_sender(loopback, which);
        if (error)
            goto failed;
    }
    *out = &loopback->base;
    return 0;

failed:
    mlx5_loopback_close(&loopback->base);
    return error;
}

void mlx5_loopback_close(struct mlx5_proof_sender *sender)
{
    struct mlx5_loopback *loopback = loopback_of(sender);

    if (!sender)
        return;
    for (unsigned which = 0; which < MLX5_PROOF_SENDERS; which++) {
        if (loopback->senders[which].qp)
            ibv_destroy_qp(loopback->senders[which].qp);
    }
    if (loopback->cq)
        ibv_destroy_cq(loopback->cq);
    verbs_buffer_close(&loopback->buffer);
    free(loopback);
}

/* --- the probe --- */

static int run_probe(struct verbs_device *device, struct mlx5_channel *channel,
                     const struct verbs_buffer *memory, const char **reason)
{
    struct mlx5_proof proof = {
        .channel = channel,
        .peer = {.path_mtu = device->port_attributes.active_mtu,
                 .min_rnr_timer = VERBS_RC_RNR_TIMER},
        .mtu_bytes = device->mtu_bytes,
        .memory = memory->data,
        .key = memory->mr->lkey,
    };
    int error = mlx5_loopback_open(device, LIMIT_NS, &proof.sender, reason);
    if (error)
        return error;
    proof.peer.max_dest_rd_atomic = (uint8_t)loopback_of(proof.sender)->reads;
    own_address(device, &proof.peer.ah_attr);
    error = mlx5_proof_run(&proof, reason);
    mlx5_loopback_close(proof.sender);
    return error;
}

int verbs_mlx5_probe(struct verbs_device *device, const char **reason)
{
    struct verbs_obstacle obstacle = {0};
    struct verbs_buffer memory; /* elements */
    struct mlx5_channel *channel;
    const char *why = NULL;
    int error = mlx5_devx_open(device->context, device->pd, &channel, &why);
    if (!error) {
        why = "the self-test's memory, 12 MiB, could not be registered: is locked memory limited "
              "(ulimit -l)?";
        error =
            verbs_buffer_try(device, MLX5_PROOF_BYTES, IBV_ACCESS_LOCAL_WRITE, &memory, &obstacle);
        if (!error) {
            error = run_probe(device, channel, &memory, &why);
            verbs_buffer_close(&memory);
        }
        channel->close(channel);
    }
    if (error)
        *reason = why;
    return error ? ROWAN_EUNSUPPORTED : 0;
}
