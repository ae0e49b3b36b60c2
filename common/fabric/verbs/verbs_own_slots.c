/* verbs_own_slots.c - way (c) to receive, for devices without shared receive queues: the slots of the
 * segments are dealt, in their order, to the receive queues of the connections, a short run at a time, and
 * more to who uses them up. Blocks of one connection lie one after another; between them are slots of others,
 * zeros as long as those are idle.
 *
 * 1. A connection's receives complete in the order in which it was dealt its slots (IB specification
 *    10.8.3.1): its `run` is a ring, and a completion that does not name the oldest is of a former pair.
 * 2. A segment is sealed when each of its slots has completed, well or not, or belonged to a connection
 *    whose queue pair is gone: nothing can be written to those, they stay holes.
 * 3. An idle connection would hold a segment open for ever. When all its slots have been dealt and slots of
 *    the next one as well, and half of that or IDLE_NS have passed, or the zone is dry and somebody wants
 *    slots, who holds slots of the oldest segment is asked, over the same
 *    queue pair, for that many empty sends: they use up the slots and leave zeros (VERBS_RC_ASK).
 * 4. Who still holds slots ASK_NS after it was asked (a stopped process) loses its connection: nobody holds
 *    up the others. Only when all completions were looked at: what it sent may lie in the queue.
 * 5. A connection holds at most VERBS_RUN_MAX slots, and all together at most half as many as a segment has, but while
 *    some still have what they were dealt when there were fewer. Who was asked for its slots of a segment is dealt no
 *    more of it; so no more than these stay empty in each (caps, landing_empty), and as many once more: what blocks
 *    used up before the empty sends came, these use up later.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_slots.h"

enum { RUN_MIN = 8, RUN_MAX = VERBS_RUN_MAX, SEND_QUEUE = 2 };

#define ASK_NS  (2 * NS_PER_S)
#define IDLE_NS (10 * NS_PER_MS)

struct member {
    struct verbs_conn *conn;
    uint32_t limit; /* of its receive queue */
    uint32_t want;  /* slots it is dealt at a time */
    uint32_t head, tail;
    uint32_t asked;     /* empty sends that have not come */
    bool ask_in_flight; /* the last ask has not left */
    bool was_asked;     /* since asked_ns, for slots of segment number asked_segment */
    uint64_t asked_ns, asked_segment;
    uint64_t run[RUN_MAX]; /* places, from head to tail */
};

struct own {
    uint64_t dealt; /* places */
    uint32_t count;
    uint32_t next; /* who is dealt first */
    bool somebody_wants;
    uint64_t full_segment, full_ns; /* since when all slots of which segment are dealt, and more */
    struct member *members[FABRIC_MAX_ZONE_SENDERS];
};

static struct member *member_of(const struct verbs_conn *conn)
{
    return conn->rc->receive;
}

static uint32_t held(const struct member *member)
{
    return member->tail - member->head;
}

/* --- open, close, members --- */

static int own_open(struct verbs_zone *zone)
{
    zone->receive = calloc(1, sizeof(struct own));
    return zone->receive ? 0 : ROWAN_ENOMEM;
}

static void own_close(struct verbs_zone *zone)
{
    free(zone->receive);
}

static int own_attach(struct verbs_zone *zone, struct verbs_conn *conn)
{
    const int limit = zone->endpoint->device->attributes.orig_attr.max_qp_wr;
    struct ibv_qp_init_attr init = {
        .cap = {.max_send_wr = SEND_QUEUE,
                .max_recv_wr = limit > 0 && limit < RUN_MAX ? (uint32_t)limit : RUN_MAX}};
    struct own *own = zone->receive;
    struct member *member = calloc(1, sizeof *member);
    int error;

    if (!member)
        return ROWAN_ENOMEM;
    member->conn = conn;
    member->limit = init.cap.max_recv_wr;
    member->want = member->limit < RUN_MIN ? member->limit : RUN_MIN;
    error = verbs_rc_make(conn, &init, IBV_ACCESS_REMOTE_READ);
    if (error) {
        free(member);
        return error;
    }
    conn->rc->receive = member;
    conn->rc->member = own->count;
    own->members[own->count++] = member;
    return 0;
}

static void take_oldest(struct verbs_zone *zone, struct member *member)
{
    const uint64_t place = member->run[member->head++ % RUN_MAX];

    verbs_segment(zone, place / slots_per_segment(zone))->done++;
}

static void own_detach(struct verbs_zone *zone, struct verbs_conn *conn)
{
    struct own *own = zone->receive;
    struct member *member = member_of(conn), *last = own->members[own->count - 1];

    while (held(member) > 0) { /* what has landed there without a word is there */
        verbs_zone_landed(zone, slot_offset(zone, member->run[member->head % RUN_MAX]),
                          zone->endpoint->device->slot_bytes);
        take_oldest(zone, member); /* 2 */
    }
    own->members[conn->rc->member] = last;
    last->conn->rc->member = conn->rc->member;
    own->count--;
    conn->rc->receive = NULL;
    free(member);
}

/* --- dealing --- */

/* False: the device refused. */
static bool deal(struct verbs_zone *zone, struct own *own, struct member *member, uint32_t count)
{
    struct ibv_recv_wr requests[RUN_MAX], *bad = NULL;
    struct ibv_sge slots[RUN_MAX];
    int error;

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t place = own->dealt + i;

        slots[i] = slot_sge(zone, place);
        requests[i] = (struct ibv_recv_wr){
            .wr_id = verbs_work(VERBS_WORK_LANDING, member->conn->number, (uint32_t)place),
            .next = i + 1 < count ? &requests[i + 1] : NULL,
            .sg_list = &slots[i],
            .num_sge = 1};
        member->run[(member->tail + i) % RUN_MAX] = place;
    }
    error = ibv_post_recv(member->conn->rc->qp, requests, &bad);
    /* Even what was refused is its own: it becomes holes when the connection is broken. */
    member->tail += count;
    own->dealt += count;
    if (error)
        log_event(LOG_ERROR, "verbs_receive_refused", "connection=%u reason=\"%s\"",
                  member->conn->number, strerror(abs(error)));
    return error == 0;
}

/* 5 */
static uint32_t most(const struct verbs_zone *zone, const struct own *own,
                     const struct member *member)
{
    const uint32_t share = slots_per_segment(zone) / 2 / own->count;

    return share < member->limit ? share : member->limit;
}

/* Fewer than half are left: so each call deals several. */
static bool wants(const struct member *member)
{
    return member->conn->state == VCONN_OPEN && held(member) <= member->want / 2;
}

static void own_post(struct verbs_zone *zone)
{
    struct own *own = zone->receive;
    const uint32_t count = own->count;

    own->somebody_wants = false;
    for (uint32_t i = 0; i < count && i < own->count; i++) {
        struct member *member = own->members[(own->next + i) % own->count];
        const uint64_t left = slots_posted(zone) - own->dealt;
        const uint32_t limit = most(zone, own, member);
        uint32_t run;

        if (member->want > limit)
            member->want = limit;
        if (!wants(member))
            continue;
        if (left == 0) {
            own->somebody_wants = true;
            own->next = (own->next + i) % own->count; /* this one is first */
            return;
        }
        if (held(member) == 0 && member->tail > 0)
            member->want = 2 * member->want < limit ? 2 * member->want : limit;
        run = member->want - held(member);
        if (!deal(zone, own, member, left < run ? (uint32_t)left : run)) {
            verbs_conn_break(member->conn, ROWAN_EIO); /* changes `members` */
            return;
        }
    }
}

/* --- completions --- */

static void own_completion(struct verbs_zone *zone, const struct ibv_wc *wc)
{
    struct verbs_conn *conn = verbs_conn_of(zone->endpoint, verbs_work_connection(wc->wr_id));
    struct member *member;
    uint64_t place;

    if (!conn || !conn->rc || conn->rc->zone != zone || conn->rc->qp_number != wc->qp_num)
        return;
    member = member_of(conn);
    place = member->run[member->head % RUN_MAX];
    if (held(member) == 0 || (uint32_t)place != verbs_work_number(wc->wr_id)) /* 1 */
        return;
    take_oldest(zone, member);
    if (wc->status != IBV_WC_SUCCESS)
        verbs_rc_break(conn, wc);
    else if (wc->byte_len > 0)
        verbs_zone_landed(zone, slot_offset(zone, place), wc->byte_len);
    else if (member->asked > 0)
        member->asked--;
}

/* --- sealing --- */

static int ask(struct member *member, uint32_t count)
{
    struct verbs_conn *conn = member->conn;
    struct ibv_send_wr request = {.wr_id = verbs_work(VERBS_WORK_RC, conn->number, VERBS_RC_ASK),
                                  .opcode = IBV_WR_SEND_WITH_IMM,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .imm_data = htonl(count)};
    struct ibv_send_wr *bad;

    member->ask_in_flight = true;
    member->asked += count;
    return ibv_post_send(conn->rc->qp, &request, &bad) == 0 ? 0 : ROWAN_EIO;
}

static void own_sent(struct verbs_zone *zone, struct verbs_conn *conn)
{
    (void)zone;
    member_of(conn)->ask_in_flight = false;
}

/* How many slots before `end` the member holds. */
static uint32_t held_before(const struct member *member, uint64_t end)
{
    uint32_t count = 0;

    while (count < held(member) && member->run[(member->head + count) % RUN_MAX] < end)
        count++;
    return count;
}

/* 0, or why the connection of who holds slots before `end` must go. */
static int press(struct verbs_zone *zone, struct member *member, uint64_t end)
{
    const uint32_t count = held_before(member, end);

    if (count == 0)
        return 0;
    if (!member->was_asked || member->asked_segment != zone->sealed) {
        member->was_asked = true;
        member->asked_segment = zone->sealed;
        member->asked_ns = zone->now_ns;
        member->want = member->want / 2 < RUN_MIN ? member->want : member->want / 2;
    }
    if (zone->now_ns - member->asked_ns >= ASK_NS && !zone->endpoint->more_completions)
        return ROWAN_ECLOSED; /* 4 */
    verbs_zone_wake_at(zone, member->asked_ns + ASK_NS);
    if (count > member->asked && !member->ask_in_flight)
        return ask(member, count - member->asked);
    return 0;
}

/* 3 */
static bool is_pressing(struct verbs_zone *zone, struct own *own, uint64_t end)
{
    if (own->dealt >= end && own->dealt == slots_posted(zone) && own->somebody_wants)
        return true;
    if (own->dealt <= end)
        return false;
    if (own->full_ns == 0 || own->full_segment != zone->sealed) {
        own->full_segment = zone->sealed;
        own->full_ns = zone->now_ns;
    }
    if (own->dealt >= end + slots_per_segment(zone) / 2 || zone->now_ns - own->full_ns >= IDLE_NS)
        return true;
    verbs_zone_wake_at(zone, own->full_ns + IDLE_NS);
    return false;
}

static bool own_is_sealed(struct verbs_zone *zone)
{
    struct own *own = zone->receive;
    const struct verbs_segment *segment = verbs_segment(zone, zone->sealed);
    const uint64_t end = (zone->sealed + 1) * slots_per_segment(zone);

    if (segment->done == slots_per_segment(zone))
        return true;
    if (!is_pressing(zone, own, end))
        return false;
    for (uint32_t i = 0; i < own->count;) {
        struct verbs_conn *conn = own->members[i]->conn;
        const int error = press(zone, own->members[i], end);

        if (!error) {
            i++;
            continue;
        }
        log_event(LOG_WARN, "verbs_slots_held", "connection=%u error=%s", conn->number,
                  error_name(error));
        verbs_conn_break(conn, error); /* the last member takes its place */
    }
    return segment->done == slots_per_segment(zone);
}

const struct verbs_receive_ops verbs_receive_connection = {.name = "connection",
                                                           .open = own_open,
                                                           .close = own_close,
                                                           .attach = own_attach,
                                                           .detach = own_detach,
                                                           .post = own_post,
                                                           .completion = own_completion,
                                                           .sent = own_sent,
                                                           .is_sealed = own_is_sealed};
