/* verbs_slots.h - segments cut into slots of device->slot_bytes, one receive each: what the two ways to
 * receive that do so share. A place is the number of a slot since the zone was opened: segment number times
 * slots of a segment, plus the slot's index in it. */
#ifndef FABRIC_VERBS_SLOTS_H
#define FABRIC_VERBS_SLOTS_H

#include "common/fabric/verbs/verbs_zone.h"

/* FABRIC_RECEIVE_CONNECTION: slots that one connection is dealt and has not used, at most. */
enum { VERBS_RUN_MAX = 128 };

static inline uint32_t slots_per_segment(const struct verbs_zone *zone)
{
    return FABRIC_SEGMENT_BYTES / zone->endpoint->device->slot_bytes;
}

static inline uint64_t slots_posted(const struct verbs_zone *zone)
{
    return zone->posted * slots_per_segment(zone);
}

static inline uint64_t slot_offset(struct verbs_zone *zone, uint64_t place)
{
    const uint32_t slots = slots_per_segment(zone);

    return verbs_segment(zone, place / slots)->offset +
           place % slots * zone->endpoint->device->slot_bytes;
}

static inline struct ibv_sge slot_sge(struct verbs_zone *zone, uint64_t place)
{
    return (struct ibv_sge){.addr = (uintptr_t)(zone->pm->base + slot_offset(zone, place)),
                            .length = zone->endpoint->device->slot_bytes,
                            .lkey = zone->region->mr->lkey};
}

#endif
