/* tcp_zone.c - the landing zone of an endpoint: where the next block goes, and when a segment is
 * sealed. Only the endpoint's own thread writes to it, so all is exact.
 *
 * 1. sealed <= cursor.segment <= posted <= sealed + depth. The cursor is in segment `posted` only when
 *    the zone is dry.
 * 2. The cursor never goes back. What lies before it is placed: bytes of blocks, the space of a cut
 *    block's rest, or the rest of a segment in which a block did not fit, or
 *    that its owner closed.
 * 3. A segment is sealed when the cursor has left it and no cut block lies in it. Nobody can write to
 *    it then, so it is quiet at once.
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

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

bool zone_place(const struct tcp_zone *zone, struct zone_cursor *cursor, uint32_t bytes,
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

void zone_move(struct tcp_zone *zone, struct zone_cursor cursor)
{
    ASSERT(cursor.segment > zone->cursor.segment ||
           (cursor.segment == zone->cursor.segment && cursor.at >= zone->cursor.at)); /* 2 */
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

bool zone_is_roomy(const struct tcp_zone *zone, struct zone_cursor cursor)
{
    return zone->base.posted - cursor.segment >= 2;
}

unsigned zone_poll_sealed(struct tcp_zone *zone, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    while (count < max && zone->base.sealed < zone->cursor.segment &&
           zone_segment(&zone->base, zone->base.sealed)->own == 0) /* 3 */
        zone_seal(&zone->base, true, &events[count++]);
    return count;
}
