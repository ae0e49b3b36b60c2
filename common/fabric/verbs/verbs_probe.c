/* verbs_probe.c - what the chosen device can, found by trying: what it says of itself is not always what
 * can be had. */
#include <errno.h>
#include <stddef.h>

#include "common/base/error.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_mlx5.h"

enum { TRIED_WORK_REQUESTS = 16 };

/* --- queue pairs --- */

/* 0, or the errno. */
static int try_pair(const struct verbs_device *device, struct ibv_cq *cq, enum ibv_qp_type type,
                    uint32_t inline_bytes, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq,
        .recv_cq = cq,
        .srq = srq,
        .qp_type = type,
        .cap = {.max_send_wr = TRIED_WORK_REQUESTS,
                .max_recv_wr = srq ? 0 : 1,
                .max_send_sge = 2, /* a datagram's head and payload */
                .max_recv_sge = srq ? 0 : 1,
                .max_inline_data = inline_bytes},
    };
    struct ibv_qp *pair;

    errno = 0;
    pair = ibv_create_qp(device->pd, &attributes);
    if (!pair)
        return errno ? errno : EINVAL;
    ibv_destroy_qp(pair);
    return 0;
}

/* No attribute tells how much can be inline: providers answer by refusing. */
static int find_inline(struct verbs_device *device, struct ibv_cq *cq, struct verbs_obstacle *why)
{
    static const uint32_t sizes[] = {512, 384, 256, 220, 188, 128, 64, 0};
    int failed = 0;

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        failed = try_pair(device, cq, IBV_QPT_RC, sizes[i], NULL);
        if (!failed)
            failed = try_pair(device, cq, IBV_QPT_UD, sizes[i], NULL);
        if (!failed) {
            device->max_inline_bytes = sizes[i];
            return 0;
        }
    }
    return verbs_obstacle_refused(verbs_device_name(device), "a queue pair", failed, why);
}

/* --- ways to receive --- */

/* `why` is set to a static string where the answer is no. */
static bool can_shared(const struct verbs_device *device, struct ibv_cq *cq, const char **why)
{
    struct ibv_srq_init_attr attributes = {.attr = {.max_wr = TRIED_WORK_REQUESTS, .max_sge = 1}};

    if (device->attributes.orig_attr.max_srq <= 0) {
        *why = "it has none";
        return false;
    }
    struct ibv_srq *srq = ibv_create_srq(device->pd, &attributes);

    if (!srq) {
        *why = "it refused to make one";
        return false;
    }
    const int failed = try_pair(device, cq, IBV_QPT_RC, 0, srq);

    ibv_destroy_srq(srq);
    if (failed)
        *why = "it refused a reliable queue pair with one";
    return !failed;
}

static int find_receive(enum fabric_receive asked, struct verbs_device *device, struct ibv_cq *cq,
                        struct verbs_obstacle *why)
{
    const char *name = verbs_device_name(device);
    const char *lacking = NULL;

    device->receive = FABRIC_RECEIVE_MULTI_PACKET;
    device->receive_reason = asked == FABRIC_RECEIVE_AUTO ? "the best way" : "asked for";
    if (asked != FABRIC_RECEIVE_SHARED && verbs_mlx5_probe(device, &lacking) == 0)
        return 0;
    if (asked == FABRIC_RECEIVE_MULTI_PACKET)
        return verbs_obstacle(
            why, ROWAN_EUNSUPPORTED, "choose \"auto\": the best that the device can is taken",
            "the way to receive \"multi-packet\" was asked for, which %s cannot do: %s", name,
            lacking);
    device->receive = FABRIC_RECEIVE_SHARED;
    if (asked == FABRIC_RECEIVE_AUTO)
        device->receive_reason = lacking;
    if (can_shared(device, cq, &lacking))
        return 0;
    return verbs_obstacle(
        why, ROWAN_EUNSUPPORTED, "take another device (rdma link), or the fabric tcp",
        "the device %s cannot be used without a shared receive queue: %s", name, lacking);
}

static int find_slot(uint32_t asked, struct verbs_device *device, struct verbs_obstacle *why)
{
    const uint32_t bytes = asked ? asked : VERBS_SLOT_BYTES;

    if (bytes < VERBS_SLOT_BYTES || (bytes & (bytes - 1)) != 0 || bytes > device->mtu_bytes)
        return verbs_obstacle(
            why, ROWAN_EINVALID, "leave the slot size out: 256 bytes are taken",
            "slots of %u bytes were asked for: they must be a power of two, from 256 to the path "
            "MTU, %u",
            bytes, device->mtu_bytes);
    device->slot_bytes = bytes;
    return 0;
}

/* --- on-demand paging --- */

/* All that memory is used for: blocks leave from it and come into it, and fences read it. */
static bool has_odp(const struct verbs_device *device)
{
    const struct ibv_odp_caps *caps = &device->attributes.odp_caps;
    const uint32_t rc = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_SRQ_RECV;

    return (caps->general_caps & IBV_ODP_SUPPORT) != 0 &&
           (caps->per_transport_caps.rc_odp_caps & rc) == rc;
}

int verbs_probe(const struct fabric_verbs_options *options, struct verbs_device *device,
                struct verbs_obstacle *why)
{
    errno = 0;
    struct ibv_cq *cq = ibv_create_cq(device->context, TRIED_WORK_REQUESTS, NULL, NULL, 0);

    if (!cq)
        return verbs_obstacle_refused(verbs_device_name(device), "a completion queue",
                                      errno ? errno : ENOMEM, why);
    int error = find_inline(device, cq, why);

    if (!error)
        error = find_receive(options->receive, device, cq, why);
    if (!error)
        error = find_slot(options->slot_bytes, device, why);
    ibv_destroy_cq(cq);
    device->has_odp = has_odp(device);
    return error;
}
