/* tcp_landing.c - Rowan sends at the receiver: the landing zone, the way from the socket into it, and what says that
 * blocks have landed. A frame's head
 * tells how long its blocks are, so their places are known before they are read, and one gathered read
 * puts them there; no value is looked at.
 *
 * A read takes, in this order: the rest of a cut block, the other blocks of a frame whose head is
 * known, and up to TCP_BOUNCE_BYTES of what comes behind into a buffer, because only there the next
 * head can be looked for. What of that turns out to be blocks is stored from the buffer. So a small
 * batch costs one call, where head first and blocks then would cost two, and of a large one all but
 * the beginning goes straight to its place.
 *
 * 1. Bytes of a block are only ever stored at that block's place: nothing moves afterwards, and what a
 *    segment does not use stays zero (F6).
 * 2. A cut block keeps its place, and its segment open, until its rest has come or the
 *    connection has ended; one older than TCP_CUT_NS ends its connection.
 * 3. The buffer is read into only while whatever it may hold finds a place (zone_is_roomy); else just
 *    the head is read, to the byte, and then blocks as far as segments are posted. The rest waits in
 *    the socket (F8).
 * 4. Digest roles scan an open segment on other threads while bytes arrive in it, as they do where a
 *    NIC writes: no order is kept between the two, and only a checksum admits what was read. Here both
 *    sides are one process's, so ThreadSanitizer is told (arrival_begins).
 *
 * Only the endpoint's own thread writes to the zone, so all is exact:
 *
 * 5. sealed <= cursor.segment <= posted <= sealed + depth. The cursor is in segment `posted` only when
 *    the zone is dry.
 * 6. The cursor never goes back. What lies before it is placed: bytes of blocks, the space of a cut
 *    block's rest, or the rest of a segment in which a block did not fit, or
 *    that its owner closed.
 * 7. A segment is sealed when the cursor has left it and no cut block lies in it. Nobody can write to
 *    it then, so it is quiet at once.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/tsan.h"
#include "common/fabric/tcp/tcp.h"

enum {
    FENCES = 2,
    PLAN_PIECES = 8,
    READ_MAX = 1 << 20, /* bytes planned for one read, and read of one connection in one poll */
    READS = 16,         /* likewise, calls: many where just heads are read (3) */
};

/* 4. Between the two, this thread's stores are those of a NIC. */
#define arrival_begins() tsan_writes_race()
#define arrival_ends()   tsan_writes_race_no_more()

/* acknowledged <= durable <= received, in whole blocks. One fence covers all that a poll has read, of all connections;
 * the acknowledgement is one count (F2). Two fences may be under way: one that is being synced, and the next, which
 * grows as long as that has not begun. */
struct receipt {
    uint64_t received, durable, acknowledged;
    uint32_t fence_count;
    struct {
        uint64_t received; /* durable when it is done */
        struct pm_ticket ticket;
    } fences[FENCES];
    uint32_t ack_left; /* bytes of an acknowledgement that was sent in part */
    uint64_t ack;
};

struct tcp_landing {
    /* The frame: a head that is coming in, or its blocks. */
    uint32_t head_got, head_need;
    uint32_t blocks, next; /* equal: no frame */

    bool cut;
    uint32_t cut_left;
    uint64_t cut_offset, cut_segment, cut_since_ns;

    struct receipt receipt;

    struct pm *pm; /* the zone's, as that sender's */
    struct pm_view view;

    uint8_t head[TCP_FRAME_HEAD_BYTES];
};

/* Where one read goes. */
struct plan {
    unsigned count;
    size_t bytes;
    size_t bounce; /* of these, into the buffer */
    struct iovec pieces[PLAN_PIECES];
};

/* --- the zone --- */

int tcp_zone_open(struct zone *base)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base->endpoint;

    endpoint->bounce = malloc(TCP_BOUNCE_BYTES);
    if (!endpoint->bounce)
        return ROWAN_ENOMEM;
    endpoint->zone = (struct tcp_zone *)base;
    return 0;
}

void tcp_zone_posted(struct zone *zone)
{
    struct conn *conn;

    while ((conn = conn_list_take(zone->endpoint, LIST_NO_SEGMENT)))
        conn_list_add(conn, LIST_LANDING);
}

/* The place in PM of a block of `bytes` at the cursor, which moves behind it. False: no segment is posted that it fits
 * in; the cursor is behind the last one. */
static bool zone_place(const struct tcp_zone *zone, struct zone_cursor *cursor, uint32_t bytes,
                       uint64_t *offset, uint64_t *segment)
{
    if (cursor->segment < zone->base.posted && bytes > FABRIC_SEGMENT_BYTES - cursor->at)
        *cursor = (struct zone_cursor){.segment = cursor->segment + 1};
    if (cursor->segment == zone->base.posted)
        return false;
    *segment = cursor->segment;
    *offset = zone_segment(&zone->base, cursor->segment)->offset + cursor->at;
    cursor->at += bytes;
    if (cursor->at == FABRIC_SEGMENT_BYTES)
        *cursor = (struct zone_cursor){.segment = cursor->segment + 1};
    return true;
}

static void zone_move(struct tcp_zone *zone, struct zone_cursor cursor)
{
    ASSERT(cursor.segment > zone->cursor.segment ||
           (cursor.segment == zone->cursor.segment && cursor.at >= zone->cursor.at)); /* 6 */
    ASSERT(cursor.segment <= zone->base.posted);
    zone->cursor = cursor;
}

void tcp_close_segment(struct zone *base)
{
    struct tcp_zone *zone = (struct tcp_zone *)base;

    if (zone->cursor.segment == base->sealed)
        zone_move(zone, (struct zone_cursor){.segment = base->sealed + 1});
}

uint64_t tcp_zone_begun(const struct zone *base)
{
    const struct zone_cursor cursor = ((const struct tcp_zone *)base)->cursor;
    return cursor.segment + (cursor.at > 0);
}

/* A whole segment is posted behind the one that the cursor is in: whatever a read into the bounce buffer brings finds a
 * place, and the rest of a block that its end cuts, too. */
static bool zone_is_roomy(const struct tcp_zone *zone, struct zone_cursor cursor)
{
    return zone->base.posted - cursor.segment >= 2;
}

unsigned zone_poll_sealed(struct tcp_zone *zone, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    while (count < max && zone->base.sealed < zone->cursor.segment &&
           zone_segment(&zone->base, zone->base.sealed)->own == 0) /* 7 */
        zone_seal(&zone->base, true, &events[count++]);
    return count;
}

/* --- a connection's landing --- */

int landing_create(struct tcp_conn *conn)
{
    struct tcp_endpoint *endpoint = conn->endpoint;

    if (endpoint->zone_members == FABRIC_MAX_ZONE_SENDERS)
        return ROWAN_ETOOMANY;
    conn->landing = calloc(1, sizeof *conn->landing);
    if (!conn->landing)
        return ROWAN_ENOMEM;
    conn->landing->head_need = sizeof(struct tcp_frame_head);
    conn->landing->pm = pm_tap_view(endpoint->zone->base.pm, conn_tap_sender(&conn->base.peer),
                                    &conn->landing->view);
    endpoint->zone_members++;
    return 0;
}

static void end_cut(struct tcp_conn *conn)
{
    struct zone_segment *segment =
        zone_segment(&conn->endpoint->zone->base, conn->landing->cut_segment);

    conn->landing->cut = false;
    conn_list_remove(&conn->base, LIST_CUT);
    ASSERT(segment->own > 0);
    segment->own--;
}

void landing_end(struct tcp_conn *conn)
{
    struct tcp_landing *landing = conn->landing;

    if (landing && landing->cut) {
        log_event(LOG_WARN, "block_cut", "endpoint=%u peer=%u missing=%u",
                  conn->endpoint->base.index, conn->base.peer.id, landing->cut_left);
        end_cut(conn);
    }
    conn->blocks.readable = false;
    conn_list_remove(&conn->base, LIST_LANDING);
    conn_list_remove(&conn->base, LIST_NO_SEGMENT);
    conn_list_remove(&conn->base, LIST_FENCING);
}

void landing_destroy(struct tcp_conn *conn)
{
    if (!conn->landing)
        return;
    ASSERT(!conn->landing->cut && conn->endpoint->zone_members > 0);
    conn->endpoint->zone_members--;
    free(conn->landing);
}

/* --- where a read goes --- */

static uint32_t block_bytes(const struct tcp_landing *landing, uint32_t index)
{
    uint16_t strides;

    memcpy(&strides, landing->head + sizeof(struct tcp_frame_head) + index * sizeof strides,
           sizeof strides);
    return (uint32_t)strides * FABRIC_STRIDE;
}

/* False: the plan is full. */
static bool plan_add(struct plan *plan, uint8_t *to, size_t bytes)
{
    struct iovec *last = plan->count > 0 ? &plan->pieces[plan->count - 1] : NULL;

    if (last && (uint8_t *)last->iov_base + last->iov_len == to) {
        last->iov_len += bytes;
    } else {
        if (plan->count == PLAN_PIECES)
            return false;
        plan->pieces[plan->count++] = (struct iovec){to, bytes};
    }
    plan->bytes += bytes;
    return true;
}

static void plan_read(struct tcp_conn *conn, struct plan *plan)
{
    struct tcp_landing *landing = conn->landing;
    struct tcp_zone *zone = conn->endpoint->zone;
    uint8_t *base = zone->base.pm->base;
    struct zone_cursor cursor = zone->cursor;
    uint64_t offset, segment;
    uint32_t next = landing->next;

    *plan = (struct plan){0};
    if (landing->cut)
        plan_add(plan, base + landing->cut_offset, landing->cut_left);
    for (; next < landing->blocks && plan->bytes < READ_MAX; next++) {
        if (!zone_place(zone, &cursor, block_bytes(landing, next), &offset, &segment)) {
            if (plan->count == 0)
                zone_move(zone, cursor); /* nothing fits: what is left of the segment is closed */
            return;
        }
        if (!plan_add(plan, base + offset, block_bytes(landing, next)))
            return;
    }
    if (next < landing->blocks)
        return;
    plan->bounce = zone_is_roomy(zone, cursor) ? TCP_BOUNCE_BYTES
                                               : landing->head_need - landing->head_got; /* 3 */
    if (!plan_add(plan, conn->endpoint->bounce, plan->bounce))
        plan->bounce = 0;
}

/* --- what a read brought --- */

static bool take_head(struct tcp_conn *conn, const uint8_t **source, size_t *bytes)
{
    struct tcp_landing *landing = conn->landing;
    const uint32_t missing = landing->head_need - landing->head_got;
    const uint32_t part = *bytes < missing ? (uint32_t)*bytes : missing;
    struct tcp_frame_head head;

    memcpy(landing->head + landing->head_got, *source, part);
    landing->head_got += part;
    *source += part;
    *bytes -= part;
    if (part < missing)
        return true;
    memcpy(&head, landing->head, sizeof head);
    if (landing->head_need == sizeof head) {
        landing->head_need = frame_head_bytes(head.blocks);
        return head.magic == TCP_FRAME_MAGIC && head.zero == 0 && head.blocks > 0 &&
               head.blocks <= TCP_FRAME_BLOCKS;
    }
    for (uint32_t i = 0; i < head.blocks; i++) {
        if (block_bytes(landing, i) == 0 || block_bytes(landing, i) > TCP_BLOCK_BYTES)
            return false;
    }
    landing->blocks = head.blocks;
    landing->next = 0;
    landing->head_got = 0;
    landing->head_need = sizeof head;
    return true;
}

/* Up to `bytes` of the next block have come: stored from `source`, or, where that is NULL, read into
 * their place. How many were its. */
static size_t take_block(struct tcp_conn *conn, const uint8_t *source, size_t bytes)
{
    struct tcp_landing *landing = conn->landing;
    struct tcp_zone *zone = conn->endpoint->zone;
    struct zone_cursor cursor = zone->cursor;
    uint64_t offset = landing->cut_offset, segment = landing->cut_segment;
    uint32_t left = landing->cut_left, part;

    if (!landing->cut) {
        bool placed;

        left = block_bytes(landing, landing->next++);
        placed = zone_place(zone, &cursor, left, &offset, &segment);
        ASSERT(placed); /* planned, or 3 */
        zone_move(zone, cursor);
    }
    part = bytes < left ? (uint32_t)bytes : left;
    arrival_begins();
    if (source)
        pm_store(landing->pm, offset, source, part);
    else
        pm_flush(landing->pm, offset, part);
    arrival_ends();
    landing->cut_offset = offset + part;
    landing->cut_segment = segment;
    landing->cut_left = left - part;
    if (part == left) {
        landing->receipt.received++;
        conn_list_add(&conn->base, LIST_FENCING);
        if (landing->cut)
            end_cut(conn);
    } else if (!landing->cut) { /* 2 */
        landing->cut = true;
        landing->cut_since_ns = conn->endpoint->base.now_ns;
        zone_segment(&zone->base, segment)->own++;
        conn_list_add(&conn->base, LIST_CUT);
    }
    return part;
}

/* False: nonsense. */
static bool take_read(struct tcp_conn *conn, const struct plan *plan, size_t bytes)
{
    struct tcp_landing *landing = conn->landing;
    const size_t direct = plan->bytes - plan->bounce;
    const uint8_t *source = conn->endpoint->bounce;
    size_t here = bytes < direct ? bytes : direct;

    bytes -= here;
    while (here > 0)
        here -= take_block(conn, NULL, here);
    while (bytes > 0) {
        if (landing->cut || landing->next < landing->blocks) {
            const size_t part = take_block(conn, source, bytes);

            source += part;
            bytes -= part;
        } else if (!take_head(conn, &source, &bytes)) {
            return false;
        }
    }
    return true;
}

/* No blocks will come any more. The messages tell the owner what became of the peer. */
static void close_blocks(struct tcp_conn *conn)
{
    landing_end(conn);
    conn->messages.readable = true;
    conn_list_add(&conn->base, LIST_ACTIVE);
}

static void read_blocks(struct conn *base)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    size_t bytes = 0;

    if (base->state != CONN_OPEN || !conn->endpoint->zone)
        return;
    for (unsigned i = 0; i < READS && bytes < READ_MAX && conn->blocks.readable; i++) {
        struct plan plan;
        ssize_t got;

        plan_read(conn, &plan);
        if (plan.count == 0) {
            conn_list_add(&conn->base, LIST_NO_SEGMENT);
            return;
        }
        arrival_begins();
        got = tcp_read(conn->blocks.fd, plan.pieces, plan.count);
        arrival_ends();
        socket_was_read(&conn->blocks, got, plan.bytes);
        bytes += got > 0 ? (size_t)got : 0;
        if (got == ROWAN_ECLOSED) {
            close_blocks(conn);
            return;
        }
        if (got > 0 && !take_read(conn, &plan, (size_t)got)) {
            log_event(LOG_WARN, "connection_garbage", "endpoint=%u peer=%u blocks=%llu",
                      conn->endpoint->base.index, conn->base.peer.id,
                      (unsigned long long)conn->landing->receipt.received);
            conn_break(&conn->base, ROWAN_EFORMAT, false);
            return;
        }
    }
    if (conn->blocks.readable)
        conn_list_add(&conn->base, LIST_LANDING);
}

void landing_poll(struct tcp_endpoint *endpoint)
{
    conn_list_visit(&endpoint->base, LIST_LANDING, read_blocks);
}

void landing_check(struct tcp_endpoint *endpoint)
{
    for (CONN_EACH(tcp_conn, conn, &endpoint->base, LIST_CUT)) {
        if (!conn_is_listed(&conn->base, LIST_LANDING) &&
            endpoint->base.now_ns - conn->landing->cut_since_ns > TCP_CUT_NS) /* 2 */
            conn_break(&conn->base, ROWAN_ECLOSED, false);
    }
}

/* --- fences and acknowledgements --- */

/* Takes in what is done. False: a sync has failed. */
static bool end_fences(struct receipt *receipt, struct pm *pm)
{
    while (receipt->fence_count > 0) {
        const int done = pm_fence_done(pm, receipt->fences[0].ticket);

        if (done < 0)
            return false;
        if (done == 0)
            break;
        receipt->durable = receipt->fences[0].received;
        receipt->fences[0] = receipt->fences[1];
        receipt->fence_count--;
    }
    return true;
}

static bool wants_fence(const struct receipt *receipt)
{
    const uint64_t fenced = receipt->fence_count > 0
                                ? receipt->fences[receipt->fence_count - 1].received
                                : receipt->durable;

    return receipt->received > fenced;
}

static void add_fence(struct receipt *receipt, struct pm_ticket ticket)
{
    if (receipt->fence_count > 0 &&
        receipt->fences[receipt->fence_count - 1].ticket.number == ticket.number)
        receipt->fence_count--; /* the same one, grown */
    else if (receipt->fence_count == FENCES)
        return; /* until one is done */
    receipt->fences[receipt->fence_count].received = receipt->received;
    receipt->fences[receipt->fence_count].ticket = ticket;
    receipt->fence_count++;
}

/* Sends the newest count, behind what is left of an older one. */
static void acknowledge(struct receipt *receipt, struct tcp_socket *socket)
{
    while (socket->writable && (receipt->ack_left > 0 || receipt->ack < receipt->durable)) {
        struct iovec piece;
        ssize_t sent;

        if (receipt->ack_left == 0) {
            receipt->ack = receipt->durable;
            receipt->ack_left = sizeof receipt->ack;
        }
        piece = (struct iovec){(uint8_t *)&receipt->ack + sizeof receipt->ack - receipt->ack_left,
                               receipt->ack_left};
        sent = tcp_write(socket->fd, &piece, 1);
        if (sent > 0)
            receipt->ack_left -= (uint32_t)sent;
        if (sent != (ssize_t)piece.iov_len)
            socket->writable = false;
    }
    receipt->acknowledged = receipt->ack_left == 0 ? receipt->ack : receipt->acknowledged;
}

/* One fence for all of a poll. */
struct poll_fence {
    struct pm *pm;
    struct pm_ticket ticket;
    bool taken;
};

/* False: a sync has failed. */
static bool move_on(struct receipt *receipt, struct tcp_socket *socket, struct poll_fence *fence)
{
    if (!end_fences(receipt, fence->pm))
        return false;
    if (wants_fence(receipt)) {
        if (!fence->taken)
            fence->ticket = pm_fence_start(fence->pm);
        fence->taken = true;
        add_fence(receipt, fence->ticket);
        if (!end_fences(receipt, fence->pm)) /* where it is done at once */
            return false;
    }
    acknowledge(receipt, socket);
    return true;
}

void receipts_fence(struct tcp_endpoint *endpoint)
{
    struct poll_fence fence = {.pm = endpoint->zone->base.pm};

    for (CONN_EACH(tcp_conn, conn, &endpoint->base, LIST_FENCING)) {
        struct receipt *receipt = &conn->landing->receipt;

        if (!move_on(receipt, &conn->blocks, &fence))
            conn_break(&conn->base, ROWAN_EIO, false);
        else if (receipt->acknowledged == receipt->received)
            conn_list_remove(&conn->base, LIST_FENCING);
    }
}
