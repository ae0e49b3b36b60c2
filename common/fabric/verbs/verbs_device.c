/* verbs_device.c - opens the RDMA device of a process, once: chosen (verbs_choose.c), probed, and told of in one line of
 * the log. What it can is found by trying: what a device says of itself is not always what can be had.
 *
 * ibv_fork_init is not called. It protects against a fork while private memory is pinned: the first process that writes
 * to a page gets a copy, and the device keeps the old one. Memory that this backend registers is mapped shared; the
 * providers' own queues are private, but since Linux 5.12 pinned pages are copied for the child (IBV_FORK_UNNEEDED). On
 * an older kernel a process must not fork while it has a verbs fabric open, and none of ours does. So registering gives
 * no madvise for each range (MADV_DONTFORK would take persistent memory from a child that may use it).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_mlx5.h"

enum { TRIED_WORK_REQUESTS = 16 };

/* --- the sink of persistence reads --- */

/* Nobody ever looks at it: a read that ends in device memory crosses the bus of one host only. */
static bool open_sink_on_device(struct verbs_device *device)
{
    struct ibv_alloc_dm_attr attributes = {.length = VERBS_SINK_BYTES};

    if (device->attributes.max_dm_size < VERBS_SINK_BYTES)
        return false;
    device->dm = ibv_alloc_dm(device->context, &attributes);
    if (!device->dm)
        return false;
    device->sink_mr = ibv_reg_dm_mr(device->pd, device->dm, 0, VERBS_SINK_BYTES,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
    if (!device->sink_mr) {
        ibv_free_dm(device->dm);
        device->dm = NULL;
        return false;
    }
    device->sink_address = 0;
    return true;
}

static int open_sink(struct verbs_device *device, struct verbs_obstacle *why)
{
    if (open_sink_on_device(device))
        return 0;
    int error =
        verbs_buffer_try(device, VERBS_SINK_BYTES, IBV_ACCESS_LOCAL_WRITE, &device->sink, why);

    if (error)
        return error;
    device->sink_mr = device->sink.mr;
    device->sink_address = (uintptr_t)device->sink.data;
    return 0;
}

static void close_buffers(struct verbs_device *device)
{
    if (device->dm) {
        ibv_dereg_mr(device->sink_mr);
        ibv_free_dm(device->dm);
    }
    verbs_buffer_close(&device->sink);
    verbs_buffer_close(&device->fence);
}

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

static int probe(const struct fabric_verbs_options *options, struct verbs_device *device,
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

/* --- open, close --- */

static int fill(const char *host, const struct fabric_verbs_options *options,
                struct verbs_device *device, struct verbs_obstacle *why)
{
    int error = verbs_choose(host, options, device, why);

    if (error)
        return error;
    errno = 0;
    device->pd = ibv_alloc_pd(device->context);
    if (!device->pd)
        return verbs_obstacle_refused(verbs_device_name(device), "a protection domain",
                                      errno ? errno : ENOMEM, why);
    error =
        verbs_buffer_try(device, VERBS_FENCE_BYTES, IBV_ACCESS_REMOTE_READ, &device->fence, why);
    if (!error)
        error = probe(options, device, why);
    return error ? error : open_sink(device, why);
}

int verbs_device_try(const char *host, const struct fabric_verbs_options *options,
                     struct verbs_device **out, struct verbs_obstacle *why)
{
    static const struct fabric_verbs_options defaults;
    struct verbs_device *device = calloc(1, sizeof *device);
    struct verbs_obstacle met = {0};

    if (!device)
        return verbs_obstacle_refused("(none opened yet)", "memory", ENOMEM, why);
    const int error = fill(host, options ? options : &defaults, device, &met);

    if (error) {
        verbs_device_close(device);
        *why = met;
        return error;
    }
    *out = device;
    return 0;
}

int verbs_device_open(const char *host, const struct fabric_verbs_options *options,
                      struct verbs_device **out)
{
    struct verbs_obstacle obstacle = {0};
    char line[1024];
    int error = verbs_device_try(host, options, out, &obstacle);

    if (error) {
        verbs_obstacle_log(&obstacle);
        return error;
    }
    verbs_device_describe(*out, line, sizeof line);
    log_event(LOG_INFO, "verbs_device", "%s", line);
    if (verbs_mtu_is_small((*out)->netdev, (*out)->mtu_bytes, &obstacle))
        verbs_obstacle_log(&obstacle);
    return 0;
}

void verbs_device_close(struct verbs_device *device)
{
    if (!device)
        return;
    close_buffers(device);
    if (device->pd)
        ibv_dealloc_pd(device->pd);
    if (device->context)
        ibv_close_device(device->context);
    free(device);
}

/* --- the line --- */

static const char *const chosen_by_names[] = {
    [VERBS_BY_NAME] = "name", [VERBS_BY_ADDRESS] = "address", [VERBS_BY_ORDER] = "order"};

static void memlock_name(char *out, size_t out_bytes)
{
    struct verbs_locked_memory memory;

    if (verbs_read_locked_memory("", &memory))
        snprintf(out, out_bytes, "unknown");
    else if (memory.is_exempt || memory.limit_bytes == UINT64_MAX)
        snprintf(out, out_bytes, "unlimited");
    else
        snprintf(out, out_bytes, "%" PRIu64, memory.limit_bytes);
}

void verbs_device_describe(const struct verbs_device *device, char *out, size_t out_bytes)
{
    char gid[INET6_ADDRSTRLEN] = "?", memlock[32];

    inet_ntop(AF_INET6, device->gid.raw, gid, sizeof gid);
    memlock_name(memlock, sizeof memlock);
    snprintf(out, out_bytes,
             "device=%s chosen_by=%s port=%u netdev=%s gid_index=%d gid=%s gid_type=%s mtu=%u "
             "receive=%s reason=\"%s\" slot_bytes=%u inline_bytes=%u odp=%s "
             "device_memory=%s memlock_bytes=%s firmware=\"%.60s\"",
             verbs_device_name(device), chosen_by_names[device->chosen_by], (unsigned)device->port,
             *device->netdev ? device->netdev : "-", device->gid_index, gid,
             verbs_gid_type_name(device->is_ethernet, device->gid_type, &device->gid),
             (unsigned)device->mtu_bytes, verbs_receive_name(device->receive),
             device->receive_reason, (unsigned)device->slot_bytes,
             (unsigned)device->max_inline_bytes, device->has_odp ? "yes" : "no",
             device->dm ? "yes" : "no", memlock, device->attributes.orig_attr.fw_ver);
}
