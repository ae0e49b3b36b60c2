/* tcp_zone.c - the landing zone of an endpoint: where the next block goes, and when a segment is
 * sealed. Only the endpoint's own thread writes to it, so all is exact.
 *
 * 1. sealed <= cursor.segment <= posted <= sealed + depth. The cursor is in segment `posted` only when
 *    the zone is dry.
 * 2. The cursor never goes back. What lies before it is placed: bytes of blocks, the space of a cut
 *    block's rest, or the rest of a segment in which a block did not fit.
 * 3. A segment is sealed when the cursor has left it and no cut block lies in it. Nobody can write to
 *    it then, so it is quiet at once.
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

enum { ZONE_MIN_DEPTH = 2, ZONE_MAX_DEPTH = 1024 };

struct zone_slot {
    uint64_t offset;
    uint64_t context;
    uint32_t cuts;
};

struct tcp_zone {
    struct fabric_zone base;
    struct tcp_endpoint *endpoint;
    struct pm *pm;
    uint32_t depth;
    uint64_t posted, sealed;
    struct zone_cursor cursor;
    struct zone_slot slots[];
};

int tcp_zone_open(struct fabric_endpoint *base, struct pm *pm, uint32_t depth,
                  struct fabric_zone **out)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;
    struct tcp_zone *zone;

    if (depth < ZONE_MIN_DEPTH || depth > ZONE_MAX_DEPTH || endpoint->zone ||
        !regions_find(&endpoint->fabric->regions, pm->base, pm->bytes))
        return ROWAN_EINVALID;
    zone = calloc(1, sizeof *zone + depth * sizeof zone->slots[0]);
    if (!zone)
        return ROWAN_ENOMEM;
    endpoint->bounce = malloc(TCP_BOUNCE_BYTES);
    if (!endpoint->bounce) {
        free(zone);
        return ROWAN_ENOMEM;
    }
    zone->base.ops = base->ops;
    zone->endpoint = endpoint;
    zone->pm = pm;
    zone->depth = depth;
    endpoint->zone = zone;
    endpoint->base.zone_pm = pm;
    *out = &zone->base;
    return 0;
}

void tcp_zone_close(struct fabric_zone *base)
{
    struct tcp_zone *zone = (struct tcp_zone *)base;
    struct tcp_endpoint *endpoint = zone->endpoint;

    for (CONN_EACH(tcp_conn, conn, &endpoint->base, LIST_ALL)) {
        if (conn->landing)
            conn_break(&conn->base, ROWAN_ECLOSED, false);
    }
    endpoint->zone = NULL;
    endpoint->base.zone_pm = NULL;
    grants_close(&endpoint->base);
    free(endpoint->bounce);
    endpoint->bounce = NULL;
    free(zone);
}

static struct zone_slot *slot_of(struct tcp_zone *zone, uint64_t segment)
{
    return &zone->slots[segment % zone->depth];
}

int tcp_zone_post(struct fabric_zone *base, uint64_t offset, uint64_t context)
{
    struct tcp_zone *zone = (struct tcp_zone *)base;
    struct tcp_conn *conn;

    if (zone->posted - zone->sealed == zone->depth)
        return ROWAN_EAGAIN;
    if (offset % FABRIC_STRIDE != 0 || zone->pm->bytes < FABRIC_SEGMENT_BYTES ||
        offset > zone->pm->bytes - FABRIC_SEGMENT_BYTES)
        return ROWAN_EINVALID;
    *slot_of(zone, zone->posted++) = (struct zone_slot){.offset = offset, .context = context};
    while ((conn = (struct tcp_conn *)conn_list_take(&zone->endpoint->base, LIST_NO_SEGMENT)))
        conn_list_add(&conn->base, LIST_LANDING);
    return 0;
}

struct pm *zone_pm(const struct tcp_zone *zone)
{
    return zone->pm;
}

struct zone_cursor zone_cursor(const struct tcp_zone *zone)
{
    return zone->cursor;
}

bool zone_place(const struct tcp_zone *zone, struct zone_cursor *cursor, uint32_t bytes,
                uint64_t *offset, uint64_t *segment)
{
    if (cursor->segment < zone->posted && bytes > FABRIC_SEGMENT_BYTES - cursor->at)
        *cursor = (struct zone_cursor){.segment = cursor->segment + 1};
    if (cursor->segment == zone->posted)
        return false;
    *segment = cursor->segment;
    *offset = zone->slots[cursor->segment % zone->depth].offset + cursor->at;
    cursor->at += bytes;
    if (cursor->at == FABRIC_SEGMENT_BYTES)
        *cursor = (struct zone_cursor){.segment = cursor->segment + 1};
    return true;
}

void zone_move(struct tcp_zone *zone, struct zone_cursor cursor)
{
    ASSERT(cursor.segment > zone->cursor.segment ||
           (cursor.segment == zone->cursor.segment && cursor.at >= zone->cursor.at)); /* 2 */
    ASSERT(cursor.segment <= zone->posted);
    zone->cursor = cursor;
}

bool zone_is_roomy(const struct tcp_zone *zone, struct zone_cursor cursor)
{
    return zone->posted - cursor.segment >= 2;
}

void zone_cut(struct tcp_zone *zone, uint64_t segment)
{
    ASSERT(segment >= zone->sealed && segment < zone->posted);
    slot_of(zone, segment)->cuts++;
}

void zone_mend(struct tcp_zone *zone, uint64_t segment)
{
    ASSERT(segment >= zone->sealed && slot_of(zone, segment)->cuts > 0);
    slot_of(zone, segment)->cuts--;
}

unsigned zone_poll_sealed(struct tcp_zone *zone, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    while (count < max && zone->sealed < zone->cursor.segment &&
           slot_of(zone, zone->sealed)->cuts == 0) { /* 3 */
        events[count++] = (struct fabric_event){
            .kind = FABRIC_SEALED, .quiet = true, .context = slot_of(zone, zone->sealed)->context};
        zone->sealed++;
    }
    return count;
}
