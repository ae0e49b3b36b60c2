/* verbs_device.c - opens the RDMA device of a process, once: chosen (verbs_choose.c), probed
 * (verbs_probe.c), and told of in one line of the log.
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
        error = verbs_probe(options, device, why);
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
