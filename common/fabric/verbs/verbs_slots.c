/* verbs_slots.c - way (b) to receive: one shared receive queue, posted with the slots of the segments in
 * their order, cut into slots of device->slot_bytes. The device gives each message, of whatever connection, the
 * next slot, so blocks lie one after another; each receive completes and is polled. A place is the number of a slot
 * since the zone was opened: segment number times slots of a segment, plus the slot's index in it.
 *
 * 1. Slots are handed to the device in the order of their places, and it takes them in that order (IB
 *    specification 10.2.9.1).
 * 2. A segment is sealed when every receive of its slots has completed, well or not: a receive that failed
 *    leaves a hole.
 * 3. A receive may never complete: a queue pair that is destroyed takes with it the completions that nobody
 *    polled (mlx5 sweeps them out of the queue), or a slot it had taken. Once a slot of a later segment has
 *    completed, every slot of the oldest had been taken (1), by queue pairs that existed then. It is
 *    given up, that is sealed all the same, when each of those is gone, or, as a live sender may be sending
 *    again what it has not heard an answer to, when the longest time has passed that any sender goes on
 *    trying (VERBS_RC_GIVES_UP_NS): by then it has its answer or has broken off. Nothing can be written to
 *    the slot after that. What has landed in a slot that was given up is there and stays.
 * 4. A late completion of a slot that was given up names a segment that is no longer posted (16 bits of its
 *    number, against at most 1024 that are), and is passed over.
 *
 * The backup is to do nothing for a block, so it is not woken for one:
 *
 * 5. The receives complete in a queue of the zone's own, which each poll looks at. It never overruns: what is with the
 *    device or in that queue is at most `depth`, as counted (6), or what the device still took though all had been
 *    seen: twice as much.
 * 6. `in_queue` is what the device has; more when completions were swept away (3), and for a while less by what landed
 *    between a look and a refusal. While it may be more, slots are handed over until the device refuses (ENOMEM): then
 *    it has exactly `depth`. Only behind a look that saw all (5).
 * 7. Asleep, the completion queue is not armed while something keeps landing. The device tells when half of `in_queue`
 *    is used up (SRQ limit, once; verbs_async.c): then there are as many slots to hand over, and senders have the other
 *    half meanwhile. Where no slot is left to be handed over the halves shrink, down to 9.
 * 8. LULL_NS after the last completion that was seen there is a look: for devices that forget to tell, for what is
 *    to be written back (verbs_zone_landed), for receives that failed without another word.
 * 9. The completion queue is armed, and the next landing wakes, when that look found nothing: so an idle zone costs
 *    nothing. Also when the device has fewer than FEW_SLOTS, which may be used up before a sleeper comes round, and
 *    when it tells of no limit.
 * 10. Behind the arming, of either kind, there is another look; when what was armed for has come already the endpoint
 *    is polled again at once.
 * A segment that is late (3) waits for seconds, or for the end of connections; it needs no sooner look than 8.
 *
 * 11. The device gives no slot back, so a segment is closed by filling it: messages without a byte, over a queue pair that is
 *     connected to itself, take the slots that nobody has taken, and leave zeros there. What others send meanwhile takes its
 *     slot among them, and of the next segment a few may be taken, too. A chain of them is under way at a time.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_pair.h"
#include "common/fabric/verbs/verbs_zone.h"

enum {
    QUEUE_SLOTS = 4096, /* in the device at a time: 1 MiB of 256 B */
    QUEUE_MIN_SLOTS = 64,
    CHAIN = 256, /* slots handed over in one call */
    BATCH = 64,  /* fewer wait, unless the queue is almost empty */
    MAX_SLOTS_PER_SEGMENT = 1 << 16,
    COMPLETIONS = 64,
    MOST_COMPLETIONS = 512, /* in one poll */
    FEW_SLOTS = 2 * BATCH,
    FILLERS = 256, /* 11 */
};

#define FILL_LOOK_NS  NS_PER_MS
#define FILL_AGAIN_NS NS_PER_S
#define FILLER_WORK   UINT64_MAX /* wr_id of the last one of a chain */

#define QUIESCE_NS (VERBS_RC_GIVES_UP_NS + NS_PER_S)
#define LULL_NS    (50 * NS_PER_MS)

struct shared {
    struct ibv_srq *srq;
    struct ibv_cq *cq;      /* 5 */
    uint32_t depth;         /* what the device takes */
    uint32_t in_queue;      /* handed over, not completed; or more (6) */
    uint64_t handed;        /* places */
    uint64_t reached;       /* the last segment of which a slot has completed */
    uint32_t attached;      /* queue pairs so far */
    uint64_t late_ns;       /* since when the oldest segment is late; 0: it is not */
    uint32_t late_attached; /* queue pairs made by then */
    bool check_gone;        /* one was destroyed since they were looked at */
    bool has_lost;          /* one was destroyed since the device last refused a slot */
    bool saw_all;           /* the last look did, and nothing was handed over since */
    bool found;             /* that look found something */
    bool more;              /* it did not see all */
    bool lacks_limit;       /* the device tells of none */
    uint32_t limit;         /* it tells when it has fewer slots; 0: it does not */
    uint64_t landed_ns;     /* when a completion was last seen; 0: never */
    struct ibv_qp *filler;  /* 11; NULL: none was needed yet */
    bool fills;             /* a chain is under way */
    uint64_t make_ns;       /* not before is another queue pair made for it */
    uint64_t closed;        /* segments in front of that one are to be sealed */
};

/* --- places --- */

static uint32_t slots_per_segment(const struct verbs_zone *zone)
{
    return FABRIC_SEGMENT_BYTES / zone->endpoint->device->slot_bytes;
}

static uint64_t slot_offset(struct verbs_zone *zone, uint64_t place)
{
    const uint32_t slots = slots_per_segment(zone);

    return zone_segment(&zone->base, place / slots)->offset +
           place % slots * zone->endpoint->device->slot_bytes;
}

/* --- open and close --- */

/* Devices round the depth up, to at most twice as much, and say so. */
static int make_queues(struct verbs_endpoint *endpoint, struct shared *shared)
{
    const struct ibv_device_attr *limits = &endpoint->device->attributes.orig_attr;
    const int most =
        limits->max_cqe / 4 < limits->max_srq_wr ? limits->max_cqe / 4 : limits->max_srq_wr;
    struct ibv_srq_init_attr init = {
        .srq_context = endpoint,
        .attr = {.max_wr = most < QUEUE_SLOTS ? (uint32_t)most : QUEUE_SLOTS, .max_sge = 1}};

    if (most < QUEUE_MIN_SLOTS)
        return ROWAN_EUNSUPPORTED;
    shared->srq = ibv_create_srq(endpoint->device->pd, &init);
    if (!shared->srq)
        return verbs_refused("shared_receive_queue", errno);
    shared->depth = init.attr.max_wr;
    shared->cq = ibv_create_cq(endpoint->device->context, (int)(2 * shared->depth + FILLERS), NULL,
                               endpoint->channel, 0); /* 5, 11 */
    return shared->cq ? 0 : verbs_refused("landing_completion_queue", errno);
}

static void shared_free(struct shared *shared)
{
    verbs_pair_destroy(shared->filler);
    if (shared->srq && ibv_destroy_srq(shared->srq) != 0)
        log_event(LOG_ERROR, "verbs_destroy", "what=shared_receive_queue");
    if (shared->cq && ibv_destroy_cq(shared->cq) != 0)
        log_event(LOG_ERROR, "verbs_destroy", "what=landing_completion_queue");
    free(shared);
}

static int shared_open(struct verbs_zone *zone)
{
    struct shared *shared = calloc(1, sizeof *shared);
    int error;

    ASSERT(slots_per_segment(zone) <= MAX_SLOTS_PER_SEGMENT);
    if (!shared)
        return ROWAN_ENOMEM;
    error = make_queues(zone->endpoint, shared);
    if (error) {
        shared_free(shared);
        return error;
    }
    zone->receive = shared;
    return 0;
}

static void shared_close(struct verbs_zone *zone)
{
    shared_free(zone->receive);
}

static int shared_attach(struct verbs_zone *zone, struct verbs_conn *conn)
{
    struct shared *shared = zone->receive;
    struct ibv_qp_init_attr init = {
        .srq = shared->srq, .recv_cq = shared->cq, .cap = {.max_send_wr = 1}};
    int error = verbs_rc_make(conn, &init, IBV_ACCESS_REMOTE_READ);

    if (!error)
        conn->rc->member = shared->attached++;
    return error;
}

static void shared_detach(struct verbs_conn *conn)
{
    struct shared *shared = conn->rc->zone->receive;

    shared->check_gone = true;
    shared->has_lost = true;
}

/* --- closing a segment (11) --- */

static struct ibv_qp *make_filler(const struct verbs_endpoint *endpoint,
                                  const struct shared *shared)
{
    const struct verbs_device *device = endpoint->device;
    struct ibv_qp_init_attr init = {.send_cq = shared->cq,
                                    .recv_cq = shared->cq,
                                    .srq = shared->srq,
                                    .cap = {.max_send_wr = FILLERS, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(device->pd, &init);
    if (!qp) {
        (void)verbs_refused("filling_queue_pair", errno);
        return NULL;
    }
    struct ibv_qp_attr to = {.path_mtu = (enum ibv_mtu)__builtin_ctz(device->mtu_bytes / 128),
                             .dest_qp_num = qp->qp_num,
                             .min_rnr_timer = VERBS_RC_RNR_TIMER,
                             .timeout = VERBS_RC_TIMEOUT,
                             .retry_cnt = VERBS_RC_RETRIES,
                             .rnr_retry = VERBS_RC_RNR_FOR_EVER};
    verbs_address(device, device->gid.raw, device->port_attributes.lid, &to.ah_attr);
    int error = verbs_pair_init(qp, device->port, 0);
    if (!error)
        error = verbs_pair_connect(qp, &to);
    if (error) {
        (void)verbs_refused("filling_queue_pair", error);
        verbs_pair_destroy(qp);
        return NULL;
    }
    return qp;
}

/* The next chain makes another. */
static void drop_filler(struct shared *shared)
{
    verbs_pair_destroy(shared->filler);
    shared->filler = NULL;
    shared->has_lost = true;
}

static void send_fillers(struct shared *shared, uint32_t count)
{
    struct ibv_send_wr fillers[FILLERS], *bad = NULL;
    for (uint32_t i = 0; i < count; i++)
        fillers[i] = (struct ibv_send_wr){
            .wr_id = FILLER_WORK, .next = &fillers[i + 1], .opcode = IBV_WR_SEND};
    fillers[count - 1].next = NULL;
    fillers[count - 1].send_flags = IBV_SEND_SIGNALED;
    const int error = ibv_post_send(shared->filler, fillers, &bad);
    shared->fills = !error;
    if (error) { /* nobody would say that what was posted of it has completed */
        (void)verbs_refused("filling", abs(error));
        drop_filler(shared);
    }
}

/* Not once something has landed behind that segment: then all of its slots are taken (3). */
static void fill_some(struct verbs_zone *zone, struct shared *shared)
{
    const uint64_t oldest = zone->base.sealed;
    if (oldest >= shared->closed || shared->reached > oldest)
        return;
    const uint32_t left = slots_per_segment(zone) - zone_segment(&zone->base, oldest)->own;
    const uint32_t here = left < shared->in_queue ? left : shared->in_queue;
    if (!shared->filler && zone->now_ns >= shared->make_ns) {
        shared->make_ns = zone->now_ns + FILL_AGAIN_NS;
        shared->filler = make_filler(zone->endpoint, shared);
    }
    if (shared->filler && !shared->fills && here > 0)
        send_fillers(shared, here < FILLERS ? here : FILLERS);
    verbs_zone_wake_at(zone, zone->now_ns + FILL_LOOK_NS);
}

/* The last of a chain has completed, or, with an error, any of it. */
static void filled(struct shared *shared, const struct ibv_wc *wc)
{
    if (!shared->filler || shared->filler->qp_num != wc->qp_num)
        return;
    shared->fills = false;
    if (wc->status == IBV_WC_SUCCESS)
        return;
    log_event(LOG_WARN, "verbs_filler_broken", "status=\"%s\"", ibv_wc_status_str(wc->status));
    drop_filler(shared);
}

static void shared_skip(struct verbs_zone *zone)
{
    struct shared *shared = zone->receive;
    shared->closed = zone->base.sealed + 1;
    verbs_zone_wake_at(zone, zone->now_ns);
}

/* --- slots to the device --- */

/* Hands over `count` slots in one call. How many the device took. */
static uint32_t hand_over(struct verbs_zone *zone, struct shared *shared, uint32_t count)
{
    struct ibv_recv_wr requests[CHAIN], *bad = NULL;
    struct ibv_sge slots[CHAIN];
    const uint32_t per_segment = slots_per_segment(zone);
    int error;

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t place = shared->handed + i;
        const uint32_t number =
            (uint32_t)(place / per_segment) << 16 | (uint32_t)(place % per_segment); /* 4 */

        slots[i] =
            (struct ibv_sge){.addr = (uintptr_t)pm_at(zone->base.pm, slot_offset(zone, place)),
                             .length = zone->endpoint->device->slot_bytes,
                             .lkey = zone->base.region->key};
        requests[i] = (struct ibv_recv_wr){.wr_id = verbs_work(VERBS_WORK_LANDING, 0, number),
                                           .next = i + 1 < count ? &requests[i + 1] : NULL,
                                           .sg_list = &slots[i],
                                           .num_sge = 1};
    }
    error = ibv_post_srq_recv(shared->srq, requests, &bad);
    if (error && bad)
        count = (uint32_t)(bad - requests);
    else if (error)
        count = 0;
    shared->handed += count; /* 1 */
    shared->saw_all = shared->saw_all && count == 0;
    shared->in_queue =
        shared->in_queue + count < shared->depth ? shared->in_queue + count : shared->depth;
    if (abs(error) == ENOMEM) { /* 6 */
        shared->in_queue = shared->depth;
        shared->has_lost = false;
    } else if (error && !zone->failed) {
        zone->failed = true;
        log_event(LOG_ERROR, "verbs_zone_failed", "reason=\"%s\"", strerror(abs(error)));
    }
    return error ? 0 : count;
}

/* A few slots are not worth a call, unless the queue is almost empty. */
static bool is_worth_a_call(const struct shared *shared)
{
    return shared->depth - shared->in_queue >= BATCH || shared->in_queue < BATCH;
}

static void shared_post(struct verbs_zone *zone)
{
    struct shared *shared = zone->receive;
    uint32_t left = shared->depth - shared->in_queue;

    fill_some(zone, shared);
    if (shared->has_lost && shared->saw_all)
        left = shared->depth; /* 6 */
    else if (!is_worth_a_call(shared))
        return;
    while (left > 0) {
        const uint64_t waiting = zone->base.posted * slots_per_segment(zone) - shared->handed;
        uint32_t count = left < CHAIN ? left : CHAIN;

        count = waiting < count ? (uint32_t)waiting : count;
        if (count == 0 || hand_over(zone, shared, count) < count)
            return;
        left -= count;
    }
}

/* --- completions --- */

static void count_completion(struct verbs_zone *zone, struct shared *shared,
                             struct zone_segment *segment, uint64_t number)
{
    if (shared->in_queue > 0) /* of what was given up some may have been with the device */
        shared->in_queue--;
    if (segment->own < slots_per_segment(zone))
        segment->own++;
    if (number > shared->reached)
        shared->reached = number;
}

static void handle_completion(struct verbs_zone *zone, struct shared *shared,
                              const struct ibv_wc *wc)
{
    const uint32_t number = verbs_work_number(wc->wr_id);
    const uint64_t segment =
        zone->base.sealed + (uint16_t)((number >> 16) - (uint32_t)zone->base.sealed);
    const uint64_t place = segment * slots_per_segment(zone) + (number & UINT16_MAX);
    struct verbs_conn *conn;

    if (place < shared->handed) {
        count_completion(zone, shared, zone_segment(&zone->base, segment), segment);
        if (wc->status == IBV_WC_SUCCESS) {
            pm_tap_note(zone->base.pm, slot_offset(zone, place), wc->byte_len);
            verbs_zone_landed(zone, slot_offset(zone, place), wc->byte_len);
        }
    } /* 4 */
    if (wc->status == IBV_WC_SUCCESS)
        return;
    conn = verbs_rc_of_number(zone->endpoint, wc->qp_num);
    if (conn && conn->rc->zone == zone)
        verbs_rc_break(conn, wc);
}

static void shared_poll(struct verbs_zone *zone)
{
    struct shared *shared = zone->receive;
    struct ibv_wc completions[COMPLETIONS];
    int found = COMPLETIONS, total = 0;

    while (found == COMPLETIONS && total < MOST_COMPLETIONS) {
        found = ibv_poll_cq(shared->cq, COMPLETIONS, completions);
        if (found < 0) {
            verbs_endpoint_fail(zone->endpoint,
                                "the completion queue of its landing zone cannot be read");
            found = 0;
        }
        for (int i = 0; i < found; i++) {
            if (completions[i].wr_id == FILLER_WORK)
                filled(shared, &completions[i]);
            else
                handle_completion(zone, shared, &completions[i]);
        }
        total += found;
    }
    shared->found = total > 0;
    shared->more = found == COMPLETIONS;
    shared->saw_all = !shared->more;
    if (shared->found)
        shared->landed_ns = zone->now_ns;
    if (shared->more)
        verbs_zone_wake_at(zone, zone->now_ns);
}

/* --- sealing --- */

/* Whether a queue pair lives that existed when the oldest segment became late. */
static bool lives_one_of_then(const struct verbs_zone *zone, const struct shared *shared)
{
    for (CONN_EACH(verbs_conn, conn, &zone->endpoint->base, LIST_ALL)) {
        if (conn->rc && conn->rc->zone == zone && conn->rc->member < shared->late_attached)
            return true;
    }
    return false;
}

/* 3 */
static bool may_give_up(struct verbs_zone *zone, struct shared *shared)
{
    if (shared->reached <= zone->base.sealed || shared->more)
        return false; /* nothing of a later one, or some of this one may lie in the queue */
    if (shared->late_ns == 0) {
        shared->late_ns = zone->now_ns;
        shared->late_attached = shared->attached;
        shared->check_gone = true;
    }
    if (zone->now_ns - shared->late_ns >= QUIESCE_NS)
        return true;
    verbs_zone_wake_at(zone, shared->late_ns + QUIESCE_NS);
    if (!shared->check_gone)
        return false;
    shared->check_gone = false;
    return !lives_one_of_then(zone, shared);
}

static bool shared_is_sealed(struct verbs_zone *zone)
{
    struct shared *shared = zone->receive;
    const struct zone_segment *segment = zone_segment(&zone->base, zone->base.sealed);
    const uint32_t lost = slots_per_segment(zone) - segment->own;

    if (lost > 0) {
        if (!may_give_up(zone, shared))
            return false;
        log_event(LOG_WARN, "verbs_slots_given_up", "slots=%u", lost);
        shared->in_queue -= shared->in_queue < lost ? shared->in_queue : lost;
        verbs_zone_landed(zone, segment->offset, FABRIC_SEGMENT_BYTES); /* in lost slots, too */
    }
    shared->late_ns = 0;
    return true;
}

/* --- sleep --- */

/* 7. False: the device cannot tell. */
static bool set_limit(struct verbs_zone *zone, struct shared *shared)
{
    struct ibv_srq_attr attributes = {.srq_limit = shared->in_queue / 2};
    int error;

    if (atomic_exchange(&zone->endpoint->limit_reached, false))
        shared->limit = 0;
    if (shared->lacks_limit)
        return false;
    if (shared->limit > 0 && attributes.srq_limit < 2 * shared->limit)
        return true;
    error = ibv_modify_srq(shared->srq, &attributes, IBV_SRQ_LIMIT);
    if (error) {
        shared->lacks_limit = true;
        log_event(LOG_WARN, "verbs_no_limit",
                  "what=\"the device wakes this server for each block that lands\" "
                  "reason=\"%s\"",
                  strerror(abs(error)));
        return false;
    }
    shared->limit = attributes.srq_limit;
    shared_poll(zone); /* 10 */
    if (shared->in_queue < shared->limit)
        verbs_zone_wake_at(zone, zone->now_ns);
    return true;
}

static void shared_sleep(struct verbs_zone *zone)
{
    struct shared *shared = zone->receive;

    if (zone->member_count == 0 || shared->more) /* nothing can land, or there is no sleep */
        return;
    if (zone->now_ns - shared->landed_ns < LULL_NS && shared->in_queue >= FEW_SLOTS &&
        set_limit(zone, shared)) {
        verbs_zone_wake_at(zone, shared->landed_ns + LULL_NS); /* 8 */
        return;
    }
    if (ibv_req_notify_cq(shared->cq, 0) != 0) { /* 9 */
        verbs_zone_wake_at(zone, zone->now_ns + LULL_NS);
        return;
    }
    shared_poll(zone);
    if (shared->found)
        verbs_zone_wake_at(zone, zone->now_ns); /* 10 */
}

const struct verbs_receive_ops verbs_receive_shared = {.open = shared_open,
                                                       .close = shared_close,
                                                       .attach = shared_attach,
                                                       .detach = shared_detach,
                                                       .poll = shared_poll,
                                                       .post = shared_post,
                                                       .sleep = shared_sleep,
                                                       .skip = shared_skip,
                                                       .is_sealed = shared_is_sealed};
