/* mlx5_devx.c - the way to a real mlx5 device: libmlx5's DevX calls, and nothing else. Not yet run on
 * hardware (README.md); all that can be tested without lies in mlx5_command.c, mlx5_queue.c and verbs_mlx5.c.
 *
 * Objects of the queue's memory, commands and queue pairs die with the process: the kernel destroys them.
 */
#include "common/fabric/mlx5/mlx5_queue.h"

#include <assert.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/conn.h"
#include "common/fabric/verbs/verbs_mlx5.h"

enum {
    RING_COMPLETIONS = 128, /* enough for the paper's authors, 8 was not */
};

/* Events after which a queue pair, or a queue of either kind, receives no more. */
static uint16_t pair_failures[] = {MLX5_EVENT_TYPE_WQ_CATAS_ERROR,
                                   MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR,
                                   MLX5_EVENT_TYPE_WQ_ACCESS_ERROR};
static uint16_t tag_matching_failures[] = {MLX5_EVENT_TYPE_XRQ_ERROR};
static uint16_t plain_failures[] = {MLX5_EVENT_TYPE_SRQ_CATAS_ERROR};

static const struct {
    uint16_t *events, bytes;
} failures[] = {
    [MLX5_WATCH_PAIR] = {pair_failures, sizeof pair_failures},
    [MLX5_WATCH_TAG_MATCHING] = {tag_matching_failures, sizeof tag_matching_failures},
    [MLX5_WATCH_PLAIN] = {plain_failures, sizeof plain_failures},
};

struct mlx5_devx {
    struct mlx5_channel channel;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq_ex *ring;
    struct mlx5dv_devx_uar *uar;
    struct mlx5dv_devx_event_channel *events;
};

struct ibv_context *verbs_mlx5_open(struct ibv_device *device)
{
    if (!mlx5dv_is_supported(device))
        return NULL;
    struct mlx5dv_context_attr attributes = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
    return mlx5dv_open_device(device, &attributes);
}

static struct mlx5_devx *devx_of(struct mlx5_channel *channel)
{
    static_assert(offsetof(struct mlx5_devx, channel) == 0, "the channel is the head");
    return (struct mlx5_devx *)channel;
}

/* --- the channel --- */

static int execute(struct mlx5_channel *channel, void **object, const void *in, size_t in_bytes,
                   void *out, size_t out_bytes)
{
    struct ibv_context *context = devx_of(channel)->context;
    int error;
    if (!object) {
        error = mlx5dv_devx_general_cmd(context, in, in_bytes, out, out_bytes);
    } else if (*object) {
        error = mlx5dv_devx_obj_modify(*object, in, in_bytes, out, out_bytes);
    } else {
        errno = 0;
        *object = mlx5dv_devx_obj_create(context, in, in_bytes, out, out_bytes);
        error = *object ? 0 : errno ? errno : EIO;
    }
    if (error)
        log_event(LOG_INFO, "mlx5_command_failed", "opcode=0x%x%02x errno=%d",
                  ((const uint8_t *)in)[0], ((const uint8_t *)in)[1], error);
    return error ? ROWAN_EUNSUPPORTED : 0;
}

static void destroy(struct mlx5_channel *channel, void *object)
{
    (void)channel;
    int error = mlx5dv_devx_obj_destroy(object);
    /* EIO: the device is gone, and all objects with it. Else the firmware still holds it, and may write
     * through it: nobody may reuse that memory before this process has ended. */
    if (error && error != EIO) {
        log_event(LOG_ERROR, "mlx5_destroy_failed", "errno=%d", error);
        abort();
    }
}

static int map(struct mlx5_channel *channel, void *memory, size_t bytes, uint32_t *number,
               void **handle)
{
    struct mlx5dv_devx_umem *umem =
        mlx5dv_devx_umem_reg(devx_of(channel)->context, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!umem) {
        log_event(LOG_INFO, "mlx5_umem_failed", "bytes=%zu errno=%d", bytes, errno);
        return ROWAN_ENOMEM;
    }
    *number = umem->umem_id;
    *handle = umem;
    return 0;
}

static void unmap(struct mlx5_channel *channel, void *handle)
{
    (void)channel;
    int error = mlx5dv_devx_umem_dereg(handle);
    if (error)
        log_event(LOG_ERROR, "mlx5_umem_kept", "errno=%d", error);
}

static int watch(struct mlx5_channel *channel, void *object, enum mlx5_watched what,
                 uint64_t cookie)
{
    int error = mlx5dv_devx_subscribe_devx_event(
        devx_of(channel)->events, object, failures[what].bytes, failures[what].events, cookie);
    if (error)
        log_event(LOG_WARN, "mlx5_subscribe_failed", "what=%u errno=%d", (unsigned)what, error);
    return error ? ROWAN_EUNSUPPORTED : 0;
}

static bool failure(struct mlx5_channel *channel, uint64_t *cookie)
{
    struct mlx5dv_devx_async_event_hdr event;
    ssize_t got = mlx5dv_devx_get_event(devx_of(channel)->events, &event, sizeof event);
    if (got < (ssize_t)sizeof event)
        return false; /* EAGAIN; an event lost (EOVERFLOW) shows as a peer that gives up */
    *cookie = event.cookie;
    return true;
}

static int resolve(struct mlx5_channel *channel, const struct ibv_ah_attr *to, struct mlx5_hop *hop)
{
    /* An address handle does for datagrams what a queue pair needs: libmlx5 and the kernel look up the
     * neighbour's MAC address for it. */
    struct ibv_ah_attr attributes = *to;
    struct ibv_ah *ah = ibv_create_ah(devx_of(channel)->pd, &attributes);
    if (!ah) {
        log_event(LOG_WARN, "mlx5_address_failed", "errno=%d", errno);
        return ROWAN_EUNREACHABLE;
    }
    struct mlx5dv_ah seen = {0};
    struct mlx5dv_obj object = {.ah = {.in = ah, .out = &seen}};
    int error = mlx5dv_init_obj(&object, MLX5DV_OBJ_AH) ? ROWAN_EUNREACHABLE : 0;
    if (!error) {
        memcpy(hop->mac, seen.av->rmac, sizeof hop->mac);
        hop->limit = seen.av->hop_limit;
    }
    ibv_destroy_ah(ah);
    return error;
}

static void close_devx(struct mlx5_channel *channel)
{
    struct mlx5_devx *devx = devx_of(channel);

    if (devx->events)
        mlx5dv_devx_destroy_event_channel(devx->events);
    if (devx->uar)
        mlx5dv_devx_free_uar(devx->uar);
    if (devx->ring)
        ibv_destroy_cq(ibv_cq_ex_to_cq(devx->ring));
    free(devx);
}

/* --- what exists before the queue --- */

static int query(struct mlx5_devx *devx, const char **reason)
{
    uint8_t in[MLX5_QUERY_HCA_CAP_IN_BYTES], out[MLX5_QUERY_HCA_CAP_OUT_BYTES] = {0};
    struct mlx5_capabilities *can = &devx->channel.numbers.capabilities;
    mlx5_encode_query(in);
    *reason = "the firmware does not tell what it can (QUERY_HCA_CAP): was the device opened with "
              "DevX?";
    int error = execute(&devx->channel, NULL, in, sizeof in, out, sizeof out);
    if (!error)
        error = mlx5_decode_query(out, sizeof out, can);
    if (error)
        return ROWAN_EUNSUPPORTED;
    log_event(LOG_INFO, "mlx5_probe",
              "device=%s ib_striding_wq=%d ext_stride_num_range=%d tag_matching=%d "
              "log_tag_matching_list_sz=%u log_max_xrq=%u log_max_rmp=%u",
              ibv_get_device_name(devx->context->device), can->has_striding, can->has_few_strides,
              can->has_tag_matching, can->log_list, can->log_queues, can->log_plain_queues);
    *reason = "the device has no multi-packet elements on InfiniBand queues (ib_striding_wq)";
    return can->has_striding ? 0 : ROWAN_EUNSUPPORTED;
}

/* Nobody reads it, so it must be allowed to overrun. */
static int open_ring(struct mlx5_devx *devx, const char **reason)
{
    struct ibv_cq_init_attr_ex attributes = {
        .cqe = RING_COMPLETIONS,
        .wc_flags = IBV_WC_STANDARD_FLAGS,
        .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
        .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    };
    *reason = "the device has no completion ring that may overrun";
    devx->ring = ibv_create_cq_ex(devx->context, &attributes);
    if (!devx->ring)
        return ROWAN_EUNSUPPORTED;
    struct mlx5dv_cq cq = {0};
    struct mlx5dv_pd pd = {0};
    struct mlx5dv_obj object = {.cq = {.in = ibv_cq_ex_to_cq(devx->ring), .out = &cq},
                                .pd = {.in = devx->pd, .out = &pd}};
    *reason = "libmlx5 does not tell the numbers of its objects";
    if (mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ | MLX5DV_OBJ_PD))
        return ROWAN_EUNSUPPORTED;
    devx->channel.numbers.cq = cq.cqn;
    devx->channel.numbers.pd = pd.pdn;
    return 0;
}

/* A queue pair must name a page of doorbells, though this one never rings. */
static int open_uar(struct mlx5_devx *devx, const char **reason)
{
    *reason = "no page of doorbells is left (DevX UAR)";
    devx->uar = mlx5dv_devx_alloc_uar(devx->context, MLX5DV_UAR_ALLOC_TYPE_NC);
    if (!devx->uar) /* kernels before 5.10 know the other kind only */
        devx->uar = mlx5dv_devx_alloc_uar(devx->context, MLX5DV_UAR_ALLOC_TYPE_BF);
    if (!devx->uar)
        return ROWAN_EUNSUPPORTED;
    devx->channel.numbers.uar = devx->uar->page_id;
    return 0;
}

static int open_events(struct mlx5_devx *devx, const char **reason)
{
    *reason = "the kernel gives no events of DevX objects";
    devx->events = mlx5dv_devx_create_event_channel(
        devx->context, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
    if (!devx->events)
        return ROWAN_EUNSUPPORTED;
    return fd_set_nonblocking(devx->events->fd) ? ROWAN_EUNSUPPORTED : 0;
}

int mlx5_devx_open(struct ibv_context *context, struct ibv_pd *pd, struct mlx5_channel **out,
                   const char **reason)
{
    *reason = "it is no mlx5 device (a ConnectX)";
    if (!mlx5dv_is_supported(context->device))
        return ROWAN_EUNSUPPORTED;
    *reason = "out of memory";
    struct mlx5_devx *devx = calloc(1, sizeof *devx);
    if (!devx)
        return ROWAN_ENOMEM;
    *devx = (struct mlx5_devx){
        .channel = {.execute = execute,
                    .destroy = destroy,
                    .close = close_devx,
                    .map = map,
                    .unmap = unmap,
                    .watch = watch,
                    .failure = failure,
                    .resolve = resolve},
        .context = context,
        .pd = pd,
    };
    int error = query(devx, reason);
    if (!error)
        error = open_ring(devx, reason);
    if (!error)
        error = open_uar(devx, reason);
    if (!error)
        error = open_events(devx, reason);
    if (error) {
        close_devx(&devx->channel);
        return error;
    }
    *out = &devx->channel;
    return 0;
}
