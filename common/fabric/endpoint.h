/* endpoint.h - what backends share of endpoints and landing zones: how they are opened and closed, which segments are
 * posted, and the ops that are the same in all.
 *
 * Segments are numbered from 0 in the order they were posted; sealed <= posted <= sealed + depth.
 */
#ifndef FABRIC_ENDPOINT_H
#define FABRIC_ENDPOINT_H

#include "common/fabric/window.h"

enum { ZONE_MIN_DEPTH = 2, ZONE_MAX_DEPTH = 1024 };

struct zone_segment {
    uint64_t offset; /* in the zone's PM */
    uint64_t context;
    uint32_t own; /* the backend's; 0 when it is posted */
};

/* The head of every backend's landing zone. */
struct zone {
    struct fabric_zone base;
    struct endpoint *endpoint;
    struct pm *pm;
    const struct region *region; /* that pm lies in */
    uint32_t depth;
    uint64_t posted, sealed;
    struct zone_segment *segments; /* number s at s % depth, from its post until it is sealed */
};

static inline struct zone_segment *zone_segment(const struct zone *zone, uint64_t number)
{
    return &zone->segments[number % zone->depth];
}

/* The oldest segment (there is one) is sealed. */
static inline void zone_seal(struct zone *zone, bool quiet, struct fabric_event *event)
{
    *event = (struct fabric_event){.kind = FABRIC_SEALED,
                                   .quiet = quiet,
                                   .context = zone_segment(zone, zone->sealed)->context};
    zone->sealed++;
}

/* --- of the ops table --- */
int fabric_register_regions(struct fabric *fabric, struct pm *pm);
int endpoint_open(struct fabric *fabric, uint32_t index, struct fabric_endpoint **out);
void endpoint_close(struct fabric_endpoint *endpoint);
int zone_open(struct fabric_endpoint *endpoint, struct pm *pm, uint32_t depth,
              struct fabric_zone **out);
int zone_post(struct fabric_zone *zone, uint64_t offset, uint64_t context);
void zone_close_segment(struct fabric_zone *zone);
uint64_t zone_begun(const struct fabric_zone *zone);
int zone_shut_out(struct fabric_zone *zone, uint32_t server, uint64_t incarnation,
                  uint64_t context);

#define ENDPOINT_OPS                                                                               \
    .endpoint_open = endpoint_open, .endpoint_close = endpoint_close,                              \
    .endpoint_source = endpoint_source, .poll = endpoint_poll, .flush = endpoint_flush,            \
    .conn_close = conn_close, .rowan_room = window_rowan_room, .rowan_post = window_rowan_post,    \
    .zone_open = zone_open, .zone_post = zone_post, .close_segment = zone_close_segment,           \
    .zone_begun = zone_begun, .shut_out = zone_shut_out, .trust = conn_trust

#endif
