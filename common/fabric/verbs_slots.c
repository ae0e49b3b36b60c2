/* verbs_slots.c - way (b) to receive: one shared receive queue, posted with the slots of the segments in
 * their order. The device gives each message, of whatever connection, the next slot, so blocks lie one after
 * another; each receive completes and is polled.
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
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs_rc.h"
#include "common/fabric/verbs_slots.h"

enum {
    QUEUE_SLOTS = 4096, /* in the device at a time: 1 MiB of 256 B */
    QUEUE_MIN_SLOTS = 64,
    CHAIN = 256, /* slots handed over in one call */
    BATCH = 64,  /* fewer wait, unless the queue is almost empty */
    MAX_SLOTS_PER_SEGMENT = 1 << 16,
};

#define QUIESCE_NS (VERBS_RC_GIVES_UP_NS + NS_PER_S)
#define STARVED_NS (10 * NS_PER_MS)

struct shared {
    struct ibv_srq *srq;
    uint32_t depth;
    uint32_t in_queue;      /* handed over, not completed */
    uint64_t handed;        /* places */
    uint64_t reached;       /* the last segment of which a slot has completed */
    uint32_t attached;      /* queue pairs so far */
    uint64_t late_ns;       /* since when the oldest segment is late; 0: it is not */
    uint32_t late_attached; /* queue pairs made by then */
    bool check_gone;        /* one was destroyed since they were looked at */
    bool has_lost;          /* one was destroyed since a completion came */
    uint64_t completed_ns;  /* when a completion came last */
};

/* --- open and close --- */

static int shared_open(struct verbs_zone *zone)
{
    struct verbs_endpoint *endpoint = zone->endpoint;
    const int limit = endpoint->device->attributes.orig_attr.max_srq_wr;
    struct ibv_srq_init_attr init = {.attr = {.max_sge = 1}};
    struct shared *shared = calloc(1, sizeof *shared);
    uint32_t depth = limit < QUEUE_SLOTS ? (uint32_t)limit : QUEUE_SLOTS;

    ASSERT(slots_per_segment(zone) <= MAX_SLOTS_PER_SEGMENT);
    if (!shared)
        return ROWAN_ENOMEM;
    while (depth >= QUEUE_MIN_SLOTS && verbs_cq_reserve(endpoint, depth) != 0)
        depth /= 2;
    if (depth < QUEUE_MIN_SLOTS) {
        free(shared);
        return ROWAN_ETOOMANY;
    }
    init.attr.max_wr = depth;
    shared->depth = depth;
    shared->srq = ibv_create_srq(endpoint->device->pd, &init);
    if (!shared->srq) {
        verbs_cq_release(endpoint, depth);
        free(shared);
        return ROWAN_EUNSUPPORTED;
    }
    zone->receive = shared;
    return 0;
}

static void shared_close(struct verbs_zone *zone)
{
    struct shared *shared = zone->receive;

    if (ibv_destroy_srq(shared->srq) != 0)
        log_event(LOG_ERROR, "verbs_destroy", "what=shared_receive_queue");
    verbs_cq_release(zone->endpoint, shared->depth);
    free(shared);
}

static int shared_attach(struct verbs_zone *zone, struct verbs_conn *conn)
{
    struct shared *shared = zone->receive;
    struct ibv_qp_init_attr init = {.srq = shared->srq, .cap = {.max_send_wr = 1}};
    int error = verbs_rc_make(conn, &init, IBV_ACCESS_REMOTE_READ);

    if (!error)
        conn->rc->member = shared->attached++;
    return error;
}

static void shared_detach(struct verbs_zone *zone, struct verbs_conn *conn)
{
    struct shared *shared = zone->receive;

    (void)conn;
    shared->check_gone = true;
    shared->has_lost = true;
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

        slots[i] = slot_sge(zone, place);
        requests[i] =
            (struct ibv_recv_wr){.wr_id = verbs_work(VERBS_WORK_LANDING, zone->number, number),
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
    shared->in_queue += count;
    if (error && abs(error) != ENOMEM && !zone->failed) {
        zone->failed = true;
        log_event(LOG_ERROR, "verbs_zone_failed", "reason=\"%s\"", strerror(abs(error)));
    }
    return error ? 0 : count;
}

/* A few slots are not worth a call, unless the queue is almost empty. */
static bool has_room(const struct shared *shared)
{
    return shared->depth - shared->in_queue >= BATCH || shared->in_queue < BATCH;
}

/* Completions of queue pairs that are gone may have been swept away, even all that the queue held: then
 * nothing would ever make room. What is in the queue is counted anew; a device that is full in truth refuses
 * (ENOMEM), and the next poll tries again. */
static void count_anew(struct verbs_zone *zone, struct shared *shared)
{
    if (!shared->has_lost || has_room(shared))
        return;
    if (zone->endpoint->more_completions || zone->now_ns - shared->completed_ns < STARVED_NS) {
        verbs_zone_wake_at(zone, shared->completed_ns + STARVED_NS);
        return;
    }
    shared->has_lost = false;
    shared->in_queue = 0;
}

static void shared_post(struct verbs_zone *zone)
{
    struct shared *shared = zone->receive;
    uint32_t room;

    count_anew(zone, shared);
    room = shared->depth - shared->in_queue;
    if (!has_room(shared))
        return;
    while (room > 0) {
        const uint64_t waiting = slots_posted(zone) - shared->handed;
        uint32_t count = room < CHAIN ? room : CHAIN;

        count = waiting < count ? (uint32_t)waiting : count;
        if (count == 0 || hand_over(zone, shared, count) < count)
            return;
        room -= count;
    }
}

/* --- completions --- */

static void note_completion(struct verbs_zone *zone, struct shared *shared,
                            struct verbs_segment *segment, uint64_t number)
{
    shared->completed_ns = zone->endpoint->now_ns; /* the zone's is that of the poll before */
    if (shared->in_queue > 0)                      /* it may have been counted anew */
        shared->in_queue--;
    if (segment->done < slots_per_segment(zone))
        segment->done++;
    if (number > shared->reached)
        shared->reached = number;
}

static void shared_completion(struct verbs_zone *zone, const struct ibv_wc *wc)
{
    struct shared *shared = zone->receive;
    const uint32_t number = verbs_work_number(wc->wr_id);
    const uint64_t segment = zone->sealed + (uint16_t)((number >> 16) - (uint32_t)zone->sealed);
    const uint64_t place = segment * slots_per_segment(zone) + (number & UINT16_MAX);
    struct verbs_conn *conn;

    if (verbs_work_connection(wc->wr_id) == (zone->number & 0xffffff) && place < shared->handed) {
        note_completion(zone, shared, verbs_segment(zone, segment), segment);
        if (wc->status == IBV_WC_SUCCESS)
            verbs_zone_landed(zone, slot_offset(zone, place), wc->byte_len);
    } /* 4 */
    if (wc->status == IBV_WC_SUCCESS)
        return;
    conn = verbs_rc_of_number(zone->endpoint, wc->qp_num);
    if (conn && conn->rc->zone == zone)
        verbs_rc_break(conn, wc);
}

/* --- sealing --- */

/* Whether a queue pair lives that existed when the oldest segment became late. */
static bool lives_one_of_then(const struct verbs_zone *zone, const struct shared *shared)
{
    for (const struct verbs_conn *conn = zone->endpoint->lists[VLIST_ALL].first; conn;
         conn = conn->links[VLIST_ALL].next) {
        if (conn->rc && conn->rc->zone == zone && conn->rc->member < shared->late_attached)
            return true;
    }
    return false;
}

/* 3 */
static bool may_give_up(struct verbs_zone *zone, struct shared *shared)
{
    if (shared->reached <= zone->sealed || zone->endpoint->more_completions)
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
    const struct verbs_segment *segment = verbs_segment(zone, zone->sealed);
    const uint32_t lost = slots_per_segment(zone) - segment->done;

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

const struct verbs_receive_ops verbs_receive_shared = {.name = "shared",
                                                       .open = shared_open,
                                                       .close = shared_close,
                                                       .attach = shared_attach,
                                                       .detach = shared_detach,
                                                       .post = shared_post,
                                                       .completion = shared_completion,
                                                       .is_sealed = shared_is_sealed};
