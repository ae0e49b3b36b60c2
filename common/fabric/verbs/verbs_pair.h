/* verbs_pair.h - the moves of a queue pair, which verbs_rc.c, verbs_packet.c and mlx5_loopback.c make alike. Each
 * answers 0 or the errno. */
#ifndef FABRIC_VERBS_PAIR_H
#define FABRIC_VERBS_PAIR_H

#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_rc.h"

/* `wanted`, but no more than what a device says it has; a limit of 0 or less says nothing. */
static inline uint32_t verbs_at_most(uint32_t wanted, int limit)
{
    return limit > 0 && (uint32_t)limit < wanted ? (uint32_t)limit : wanted;
}

/* How packets from the device's port reach that address. */
static inline void verbs_address(const struct verbs_device *device, const uint8_t gid[16],
                                 uint16_t lid, struct ibv_ah_attr *out)
{
    *out = (struct ibv_ah_attr){.dlid = lid, .port_num = device->port};
    if (!device->is_ethernet)
        return;
    out->is_global = 1;
    memcpy(out->grh.dgid.raw, gid, sizeof out->grh.dgid.raw);
    ASSERT(device->gid_index <= VERBS_MOST_GID_INDEX);
    out->grh.sgid_index = (uint8_t)device->gid_index;
    out->grh.hop_limit = 64;
}

/* `access`: what the peer may do. */
static inline int verbs_pair_init(struct ibv_qp *qp, uint8_t port, int access)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT, .port_num = port, .qp_access_flags = (unsigned)access};

    return ibv_modify_qp(qp, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* Through RTR to RTS. */
static inline int verbs_pair_connect(struct ibv_qp *qp, struct ibv_qp_attr *to)
{
    int failed;

    to->qp_state = IBV_QPS_RTR;
    failed = ibv_modify_qp(qp, to,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    to->qp_state = IBV_QPS_RTS;
    return failed ? failed
                  : ibv_modify_qp(qp, to,
                                  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* NULL is fine. */
static inline void verbs_pair_destroy(struct ibv_qp *qp)
{
    const int error = qp ? ibv_destroy_qp(qp) : 0;

    if (error)
        log_event(LOG_ERROR, "verbs_destroy", "reason=\"%s\"", strerror(error));
}

#endif
