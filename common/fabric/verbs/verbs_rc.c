/* verbs_rc.c - the reliable queue pair (RC) of a connection between servers: made, connected, destroyed;
 * who gets its completions. The active end sends (verbs_rowan.c), the passive one receives as its zone's way
 * to receive wants it (verbs_zone.h).
 *
 * 1. The places of all that can complete were taken from the completion queue before the pair existed.
 * 2. conn->rc is NULL from the moment that the pair is destroyed: completions that come later, or that carry
 *    another pair's number, are passed over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/fabric/verbs/verbs_pair.h"
#include "common/fabric/verbs/verbs_zone.h"

enum { SEND_QUEUE = 256, NUMBER_24_BITS = 0xffffff };

/* --- making it --- */

static enum ibv_mtu mtu_code(uint32_t bytes)
{
    enum ibv_mtu code = IBV_MTU_256;

    while (code < IBV_MTU_4096 && UINT32_C(256) << code <= bytes)
        code++;
    return code;
}

int verbs_refused(const char *what, int system_errno)
{
    log_event(LOG_ERROR, "verbs_refused", "what=%s reason=\"%s\"", what, strerror(system_errno));
    return system_errno == ENOMEM ? ROWAN_ENOMEM : ROWAN_EUNSUPPORTED;
}

int verbs_rc_make(struct verbs_conn *conn, struct ibv_qp_init_attr *init, int access)
{
    struct verbs_endpoint *endpoint = conn->endpoint;
    struct ibv_qp *qp;
    const uint32_t places = init->cap.max_send_wr + (init->srq ? 0 : init->cap.max_recv_wr);
    int error;

    if (places > endpoint->cq_free)
        return ROWAN_ETOOMANY;
    endpoint->cq_free -= places; /* 1 */
    init->qp_type = IBV_QPT_RC;
    init->qp_context = endpoint;
    init->send_cq = endpoint->cq;
    if (!init->recv_cq) /* a zone's own (verbs_slots.c) */
        init->recv_cq = endpoint->cq;
    init->cap.max_send_sge = 1;
    init->cap.max_recv_sge = init->srq ? 0 : 1;
    qp = ibv_create_qp(endpoint->device->pd, init);
    if (!qp) {
        error = verbs_refused("rc_queue_pair", errno);
        goto release;
    }
    error = verbs_pair_init(qp, endpoint->device->port, access);
    if (error) {
        error = verbs_refused("rc_init", error);
        goto destroy;
    }
    conn->rc->places = places;
    conn->rc->qp = qp;
    conn->rc->qp_number = qp->qp_num;
    return 0;

destroy:
    ibv_destroy_qp(qp);
release:
    endpoint->cq_free += places;
    return error;
}

static int open_active(struct verbs_conn *conn)
{
    const struct ibv_device_attr *limits = &conn->endpoint->device->attributes.orig_attr;
    const uint32_t queue = verbs_at_most(SEND_QUEUE, limits->max_qp_wr);
    struct ibv_qp_init_attr init = {.cap = {.max_send_wr = queue, .max_recv_wr = 1}};
    int error = verbs_rc_make(conn, &init, 0); /* the peer may do nothing here */

    return error ? error : verbs_sender_create(conn, queue);
}

static int open_passive(struct verbs_conn *conn)
{
    struct verbs_zone *zone = conn->endpoint->zone;
    int error;

    if (zone->member_count == FABRIC_MAX_ZONE_SENDERS)
        return ROWAN_ETOOMANY;
    error = zone->ops->attach(zone, conn);
    if (error)
        return error;
    conn->rc->zone = zone;
    zone->member_count++;
    return 0;
}

static void say_hello(const struct verbs_conn *conn, struct verbs_rc_hello *ours)
{
    const struct verbs_device *device = conn->endpoint->device;
    const struct verbs_rc *rc = conn->rc;
    const struct verbs_zone *zone = rc->zone;

    *ours = (struct verbs_rc_hello){.qp_number = rc->qp_number, .psn = rc->psn, .reads = 1};
    if (!zone)
        return;
    ours->zone = zone->ops->whole_segments ? VERBS_ZONE_OF_SEGMENTS : VERBS_ZONE_OF_SLOTS;
    ours->timeout = zone->ops->whole_segments ? VERBS_RC_SEGMENTS_TIMEOUT : VERBS_RC_TIMEOUT;
    ours->block_limit = conn->endpoint->fabric->base.base.caps.block_limit;
    ours->reads = verbs_at_most(VERBS_RC_READS, device->attributes.orig_attr.max_qp_rd_atom);
    ours->fence_address = (uintptr_t)device->fence.data;
    ours->fence_key = device->fence.mr->rkey;
}

int verbs_rc_open(struct verbs_conn *conn, struct verbs_rc_hello *ours)
{
    const struct fabric_endpoint *own = &conn->endpoint->base.base;
    int error;

    ASSERT(!conn->rc);
    *ours = (struct verbs_rc_hello){0};
    if (own->error)
        return own->error;
    if (conn->base.peer.kind != FABRIC_SERVER || own->identity.kind != FABRIC_SERVER ||
        (!conn->base.active && !conn->endpoint->zone))
        return 0;
    conn->rc = calloc(1, sizeof *conn->rc);
    if (!conn->rc)
        return ROWAN_ENOMEM;
    random_entropy(&conn->rc->psn, sizeof conn->rc->psn); /* packets of a former life do not fit */
    conn->rc->psn &= NUMBER_24_BITS;
    error = conn->base.active ? open_active(conn) : open_passive(conn);
    if (error) {
        verbs_rc_close(conn);
        return error;
    }
    say_hello(conn, ours);
    return 0;
}

/* --- connecting --- */

/* What is sound (verbs_hello.c) and yet cannot be. */
static int check_hello(const struct verbs_conn *conn)
{
    const struct verbs_rc_hello *theirs = &conn->theirs.rc;
    const uint32_t limit = conn->endpoint->fabric->base.base.caps.block_limit;
    const uint32_t slot = conn->endpoint->device->slot_bytes;

    if (theirs->qp_number == 0 || (conn->base.active && theirs->zone == VERBS_NO_ZONE))
        return ROWAN_EFORMAT;
    /* A message longer than a packet could stay half received for ever. */
    if (!conn->base.active && conn->theirs.mtu < slot) {
        log_event(LOG_ERROR, "verbs_packet_limit",
                  "ours=%u theirs=%u advice=\"give all servers the same MTU\"", slot,
                  conn->theirs.mtu);
        return ROWAN_EUNSUPPORTED;
    }
    if (conn->base.active && theirs->block_limit < limit) { /* one constant of a cluster */
        log_event(LOG_ERROR, "verbs_block_limit",
                  "ours=%u theirs=%u advice=\"give all servers the same slot_bytes and MTU\"",
                  limit, theirs->block_limit);
        return ROWAN_EUNSUPPORTED;
    }
    return 0;
}

void verbs_rc_address(const struct verbs_conn *conn, struct ibv_ah_attr *out)
{
    verbs_address(conn->endpoint->device, conn->theirs.gid, (uint16_t)conn->theirs.lid, out);
}

/* How many of our reads may be in flight: as many as both devices can. */
static uint32_t reads_in_flight(const struct verbs_conn *conn)
{
    const uint32_t ours = verbs_at_most(
        VERBS_RC_READS, conn->endpoint->device->attributes.orig_attr.max_qp_init_rd_atom);

    return conn->theirs.rc.reads < ours ? conn->theirs.rc.reads : ours;
}

/* To RTS. */
static int connect_pair(struct verbs_conn *conn)
{
    const struct verbs_device *device = conn->endpoint->device;
    struct verbs_rc *rc = conn->rc;
    const bool active = conn->base.active;
    const uint32_t mtu =
        conn->theirs.mtu < device->mtu_bytes ? conn->theirs.mtu : device->mtu_bytes;
    const int reads_answered = active ? 1 : device->attributes.orig_attr.max_qp_rd_atom;
    /* Blocks are tried as long as the zone's owner waits for them. */
    const uint8_t timeout = active ? (uint8_t)conn->theirs.rc.timeout : VERBS_RC_TIMEOUT;
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR,
                                     .path_mtu = mtu_code(mtu),
                                     .dest_qp_num = conn->theirs.rc.qp_number,
                                     .rq_psn = conn->theirs.rc.psn,
                                     .max_dest_rd_atomic =
                                         (uint8_t)verbs_at_most(VERBS_RC_READS, reads_answered),
                                     .min_rnr_timer = VERBS_RC_RNR_TIMER};
    int error;

    verbs_rc_address(conn, &attributes.ah_attr);
    if (rc->zone && rc->zone->ops->connect) /* rc->qp is NULL */
        return rc->zone->ops->connect(rc->zone, conn, &attributes);
    error = verbs_pair_rtr(rc->qp, &attributes);
    if (!error)
        error = verbs_pair_rts(rc->qp, rc->psn, timeout, active ? reads_in_flight(conn) : 1);
    return error ? ROWAN_EIO : 0;
}

int verbs_rc_connect(struct verbs_conn *conn)
{
    int error;

    conn->base.base.has_zone = false;
    if (!conn->rc)
        return 0;
    if (conn->base.active && conn->theirs.rc.qp_number == 0) {
        verbs_rc_close(conn);
        return 0;
    }
    error = check_hello(conn);
    if (!error)
        error = connect_pair(conn);
    if (!error && conn->base.active) {
        verbs_sender_start(conn, reads_in_flight(conn));
        conn->base.base.has_zone = true;
    }
    return error;
}

/* --- its end --- */

void verbs_rc_close(struct verbs_conn *conn)
{
    struct verbs_rc *rc = conn->rc;

    if (!rc)
        return;
    verbs_pair_destroy(rc->qp);
    rc->qp = NULL;
    if (rc->zone) {
        rc->zone->ops->detach(rc->zone, conn);
        rc->zone->member_count--;
    }
    conn->endpoint->cq_free += rc->places;
    verbs_sender_destroy(rc->sender);
    free(rc);
    conn->rc = NULL; /* 2 */
    conn->base.window = NULL;
}

void verbs_rc_break(struct verbs_conn *conn, const struct ibv_wc *wc)
{
    log_event(LOG_WARN, "verbs_broken",
              "connection=%u queue_pair=%u work=%u status=\"%s\" vendor=%u", conn->number,
              wc->qp_num, verbs_work_number(wc->wr_id), ibv_wc_status_str(wc->status),
              wc->vendor_err);
    conn_break(&conn->base, ROWAN_ECLOSED, true);
}

struct verbs_conn *verbs_rc_of_number(struct verbs_endpoint *endpoint, uint32_t qp_number)
{
    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_ALL)) {
        if (conn->rc && conn->rc->qp_number == qp_number)
            return conn;
    }
    return NULL;
}

void verbs_rc_failed(struct verbs_endpoint *endpoint, uint32_t qp_number)
{
    struct verbs_conn *conn = verbs_rc_of_number(endpoint, qp_number);

    if (!conn) /* it was closed since */
        return;
    log_event(LOG_WARN, "verbs_broken", "connection=%u queue_pair=%u reason=asynchronous_event",
              conn->number, qp_number);
    conn_break(&conn->base, ROWAN_ECLOSED, true);
}

/* --- completions --- */

void verbs_rc_completion(struct verbs_conn *conn, const struct ibv_wc *wc)
{
    const uint32_t work = verbs_work_number(wc->wr_id);
    struct verbs_rc *rc = conn->rc;

    if (!rc || rc->qp_number != wc->qp_num) /* 2 */
        return;
    if (wc->status != IBV_WC_SUCCESS)
        verbs_rc_break(conn, wc);
    else if (work == VERBS_RC_FENCE && (!rc->sender || !verbs_sender_fenced(conn)))
        conn_break(&conn->base, ROWAN_EFORMAT, true);
}
