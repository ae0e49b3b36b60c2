/* verbs_mlx5.c - the landing zone on a multi-packet shared receive queue: whole segments are posted, blocks
 * land in them at strides of 64 B, whoever sent them, and the backup does nothing for them but to post the
 * next segment. Not yet run on hardware: mlx5/README.md.
 *
 *  Z1  Segments are handed to the device in the order of their posts, one element each, and used in that
 *      order. Others who use such queues keep more than 32 elements posted; whether a device lands anything
 *      with fewer nobody has written down, so a zone of few segments is warned of.
 *  Z2  A segment is closed when the first word of the next one is not 0: the device has gone on, and turns
 *      back for no packet. Every block begins with a word that is not 0, and a posted segment is all zeros.
 *  Z3  A closed segment is sealed when the longest time is over for which a sender goes on trying, of which
 *      our hello tells it. What came once is not written again when it is sent again (the device knows the
 *      packet's number), and what came late lies in a later segment, but a write may be under way between
 *      device and memory: a matter of microseconds. A sender that gives up earlier breaks its connection; one
 *      whose device rounds the time up harms nothing.
 *  Z4  On a tag-matching queue the device takes the first 16 bytes of each message for a header: a first byte
 *      of 0 says that there is no tag, and it lands like any other. verbs_mlx5_may_land.
 *  Z5  Nothing completes here. What goes wrong shows as an event of the queue pair, as the end of the tcp
 *      connection, or at the sender.
 *
 *          post                     first word of the next           VERBS_RC_SEGMENTS_GIVES_UP_NS
 *   posted ------> with the device ------------------------> closed -------------------------------> sealed
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/mlx5/mlx5_queue.h"
#include "common/fabric/verbs/verbs_mlx5.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_zone.h"

enum {
    FEW_SEGMENTS = 32,
    LOOK_EVERY_NS = 2000000, /* nothing wakes who sleeps: neither blocks nor failed queue pairs */
};

struct mlx5_zone {
    struct mlx5_channel *channel;
    struct mlx5_queue *queue;
    uint64_t handed, open,
        returned; /* numbers of segments: next to hand over, being filled, next back */
    uint64_t polled_ns;
    uint64_t closed_ns[]; /* of segment s at s % depth; s in [sealed, open) */
};

/* --- open and close --- */

int verbs_mlx5_zone_open(struct verbs_zone *zone, struct mlx5_channel *channel)
{
    struct mlx5_zone *mlx5 = calloc(1, sizeof *mlx5 + zone->base.depth * sizeof mlx5->closed_ns[0]);
    const char *reason = "out of memory";
    int error = ROWAN_ENOMEM;
    if (mlx5)
        error = mlx5_queue_open(channel, zone->base.depth, FABRIC_SEGMENT_BYTES,
                                FABRIC_MAX_ZONE_SENDERS, &mlx5->queue, &reason);
    if (error) {
        log_event(LOG_WARN, "mlx5_zone_refused", "reason=\"%s\"", reason);
        channel->close(channel);
        free(mlx5);
        return error;
    }
    mlx5->channel = channel;
    log_event(LOG_INFO, "mlx5_zone", "queue=%s depth=%u quiesce_ms=%u",
              mlx5_queue_kind(mlx5->queue) == MLX5_PLAIN ? "plain" : "tag_matching",
              zone->base.depth, (unsigned)(VERBS_RC_SEGMENTS_GIVES_UP_NS / 1000000));
    if (zone->base.depth <= FEW_SEGMENTS)
        log_event(LOG_WARN, "mlx5_few_segments",
                  "depth=%u advice=\"if nothing lands: --landing-segments 64\"", zone->base.depth);
    zone->receive = mlx5;
    return 0;
}

static int open_zone(struct verbs_zone *zone)
{
    struct verbs_device *device = zone->endpoint->device;
    const char *reason;
    struct mlx5_channel *channel;
    int error = mlx5_devx_open(device->context, device->pd, &channel, &reason);
    if (error) {
        log_event(LOG_WARN, "mlx5_zone_refused", "reason=\"%s\"", reason);
        return error;
    }
    return verbs_mlx5_zone_open(zone, channel);
}

static void close_zone(struct verbs_zone *zone)
{
    struct mlx5_zone *mlx5 = zone->receive;
    mlx5_queue_close(mlx5->queue);
    mlx5->channel->close(mlx5->channel);
    free(mlx5);
    zone->receive = NULL;
}

/* --- connections --- */

static int attach(struct verbs_zone *zone, struct verbs_conn *conn)
{
    const struct mlx5_zone *mlx5 = zone->receive;
    struct mlx5_pair *pair;
    if (zone->failed)
        return ROWAN_EUNSUPPORTED;
    int error = mlx5_pair_open(mlx5->queue, zone->endpoint->device->port, &pair);
    if (error)
        return error;
    conn->rc->receive = pair;
    conn->rc->qp_number = mlx5_pair_number(pair);
    return 0;
}

static int connect_pair(struct verbs_conn *conn, const struct ibv_qp_attr *to)
{
    return mlx5_pair_connect(conn->rc->receive, to);
}

static void detach(struct verbs_conn *conn)
{
    mlx5_pair_close(conn->rc->receive);
    conn->rc->receive = NULL;
}

/* Nothing lands any more, whoever sends it: better that all know it. */
static void fail_queue(struct verbs_zone *zone)
{
    log_event(LOG_ERROR, "mlx5_queue_failed",
              "advice=\"restart the server; --verbs-receive shared\"");
    zone->failed = true;
    for (CONN_EACH(verbs_conn, conn, &zone->endpoint->base, LIST_ALL)) {
        if (conn->rc && conn->rc->zone == zone)
            verbs_rc_failed(zone->endpoint, conn->rc->qp_number);
    }
}

static void break_failed(struct verbs_zone *zone)
{
    struct mlx5_zone *mlx5 = zone->receive;
    uint64_t number;
    while (mlx5->channel->failure(mlx5->channel, &number)) {
        if (number == MLX5_QUEUE_FAILED) {
            fail_queue(zone);
        } else {
            log_event(LOG_WARN, "mlx5_pair_failed", "qp=0x%x", (unsigned)number);
            verbs_rc_failed(zone->endpoint, (uint32_t)number);
        }
    }
}

/* --- segments --- */

static const void *segment_at(struct verbs_zone *zone, uint64_t number)
{
    return pm_at(zone->base.pm, zone_segment(&zone->base, number)->offset);
}

/* What no completion tells; a system call, so not in each poll. */
static void poll_failures(struct verbs_zone *zone)
{
    struct mlx5_zone *mlx5 = zone->receive;
    if (zone->now_ns - mlx5->polled_ns >= LOOK_EVERY_NS) {
        mlx5->polled_ns = zone->now_ns;
        break_failed(zone);
        /* Somebody must say to PM that syncs behind that there is something to sync. */
        if (zone->writes_back && mlx5->open < mlx5->handed)
            verbs_zone_landed(zone, zone_segment(&zone->base, mlx5->open)->offset,
                              FABRIC_SEGMENT_BYTES);
    }
    if (zone->member_count)
        verbs_zone_wake_at(zone, mlx5->polled_ns + LOOK_EVERY_NS);
}

static void post(struct verbs_zone *zone)
{
    struct mlx5_zone *mlx5 = zone->receive;
    poll_failures(zone);
    for (; mlx5->returned < zone->base.sealed; mlx5->returned++)
        mlx5_queue_return(mlx5->queue);
    if (mlx5->handed == zone->base.posted)
        return;
    for (; mlx5->handed < zone->base.posted; mlx5->handed++)
        mlx5_queue_post(mlx5->queue, (uintptr_t)segment_at(zone, mlx5->handed),
                        zone->base.region->key);
    mlx5_queue_ring(mlx5->queue);
}

static bool is_begun(struct verbs_zone *zone, uint64_t number)
{
    /* The device writes it, this thread only reads: one load, not to be torn or remembered. */
    return __atomic_load_n((const uint64_t *)segment_at(zone, number), __ATOMIC_ACQUIRE) != 0;
}

static bool is_sealed(struct verbs_zone *zone)
{
    struct mlx5_zone *mlx5 = zone->receive;
    /* All that were closed since the last look, not only the oldest: their times run together. */
    while (mlx5->open + 1 < mlx5->handed && is_begun(zone, mlx5->open + 1)) { /* Z2 */
        mlx5->closed_ns[mlx5->open % zone->base.depth] = zone->now_ns;
        mlx5->open++;
    }
    if (zone->base.sealed >= mlx5->open)
        return false;
    uint64_t at_ns = mlx5->closed_ns[zone->base.sealed % zone->base.depth] +
                     VERBS_RC_SEGMENTS_GIVES_UP_NS; /* Z3 */
    if (zone->now_ns <= at_ns) {
        verbs_zone_wake_at(zone, at_ns + 1);
        return false;
    }
    const uint64_t offset = zone_segment(&zone->base, zone->base.sealed)->offset;
    pm_tap_note(zone->base.pm, offset, FABRIC_SEGMENT_BYTES); /* no completion told of its blocks */
    verbs_zone_landed(zone, offset, FABRIC_SEGMENT_BYTES);
    return true;
}

const struct verbs_receive_ops verbs_receive_multi_packet = {
    .whole_segments = true,
    .open = open_zone,
    .close = close_zone,
    .attach = attach,
    .connect = connect_pair,
    .detach = detach,
    .post = post,
    .is_sealed = is_sealed,
};
