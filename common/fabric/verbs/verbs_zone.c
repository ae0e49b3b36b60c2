/* verbs_zone.c - the landing zone of an endpoint: which segments are posted, when the oldest is sealed. How
 * receives for them reach the device is the business of one of the two ways to receive.
 *
 * 1. Segments are sealed in the order they were posted, each once, when its way to receive says that nobody
 *    can write to it any more: so it is quiet at once.
 * 2. What a member of the zone may write to is gone before the zone is: closing it breaks their connections.
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_zone.h"

enum { ZONE_MIN_DEPTH = 2, ZONE_MAX_DEPTH = 1024 };

/* The vendor that rxe gives as its own (RXE_VENDOR_ID of the kernel). */
enum { VENDOR_SOFTWARE = 0xffffff };

/* See verbs_zone_landed. */
static void warn_of_software(const struct verbs_zone *zone)
{
    const struct verbs_device *device = zone->endpoint->device;

    if (device->attributes.orig_attr.vendor_id == VENDOR_SOFTWARE &&
        zone->pm->durability == PM_FENCE)
        log_event(LOG_WARN, "verbs_software_device",
                  "device=%s what=\"the processor copies what lands, so a power cut may take what "
                  "was acknowledged\" advice=\"an RDMA NIC, or tcp\"",
                  verbs_device_name(device));
}

int verbs_zone_open(struct fabric_endpoint *base, struct pm *pm, uint32_t depth,
                    struct fabric_zone **out)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    const struct verbs_device *device = endpoint->device;
    const struct region *region = regions_find(&endpoint->fabric->regions, pm->base, pm->bytes);
    struct verbs_zone *zone;
    int error;

    if (depth < ZONE_MIN_DEPTH || depth > ZONE_MAX_DEPTH || endpoint->zone || !region)
        return ROWAN_EINVALID;
    zone = calloc(1, sizeof *zone + depth * sizeof zone->segments[0]);
    if (!zone)
        return ROWAN_ENOMEM;
    zone->base.ops = base->ops;
    zone->endpoint = endpoint;
    zone->ops = device->receive == FABRIC_RECEIVE_MULTI_PACKET ? &verbs_receive_multi_packet
                                                               : &verbs_receive_shared;
    zone->pm = pm;
    zone->region = region;
    zone->number = ++endpoint->zone_count;
    zone->depth = depth;
    zone->wake_ns = UINT64_MAX;
    zone->writes_back =
        device->attributes.orig_attr.vendor_id == VENDOR_SOFTWARE || pm->durability == PM_ASYNC;
    error = zone->ops->open(zone);
    if (error) {
        free(zone);
        return error;
    }
    warn_of_software(zone);
    endpoint->zone = zone;
    endpoint->base.zone_pm = pm;
    *out = &zone->base;
    return 0;
}

void verbs_zone_close(struct fabric_zone *base)
{
    struct verbs_zone *zone = (struct verbs_zone *)base;
    struct verbs_endpoint *endpoint = zone->endpoint;

    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_ALL)) {
        if (conn->rc && conn->rc->zone == zone)
            conn_break(&conn->base, ROWAN_ECLOSED, true); /* 2 */
    }
    ASSERT(zone->member_count == 0);
    grants_events(&endpoint->base, NULL, 0); /* what the device would not take back, once more */
    grants_close(&endpoint->base);
    endpoint->base.zone_pm = NULL;
    endpoint->zone = NULL;
    zone->ops->close(zone);
    free(zone);
}

int verbs_zone_post(struct fabric_zone *base, uint64_t offset, uint64_t context)
{
    struct verbs_zone *zone = (struct verbs_zone *)base;

    if (zone->posted - zone->sealed == zone->depth)
        return ROWAN_EAGAIN;
    if (offset % FABRIC_STRIDE != 0 || zone->pm->bytes < FABRIC_SEGMENT_BYTES ||
        offset > zone->pm->bytes - FABRIC_SEGMENT_BYTES)
        return ROWAN_EINVALID;
    *verbs_segment(zone, zone->posted++) =
        (struct verbs_segment){.offset = offset, .context = context};
    zone->ops->post(zone); /* now: the endpoint may be about to sleep */
    return 0;
}

void verbs_zone_landed(struct verbs_zone *zone, uint64_t offset, uint32_t bytes)
{
    if (!zone->writes_back)
        return;
    pm_flush(zone->pm, offset, bytes);
    zone->unfenced = true;
}

unsigned verbs_zone_poll(struct verbs_zone *zone, uint64_t now_ns, struct fabric_event *events,
                         unsigned max)
{
    unsigned count = 0;

    zone->now_ns = now_ns;
    zone->wake_ns = UINT64_MAX;
    if (zone->ops->poll)
        zone->ops->poll(zone);
    if (zone->endpoint->base.base.error)
        return 0;
    if (zone->unfenced) {
        pm_fence_start(zone->pm);
        zone->unfenced = false;
    }
    while (count < max && zone->sealed < zone->posted && zone->ops->is_sealed(zone)) { /* 1 */
        events[count++] =
            (struct fabric_event){.kind = FABRIC_SEALED,
                                  .quiet = true,
                                  .context = verbs_segment(zone, zone->sealed)->context};
        zone->sealed++;
    }
    if (count == max)
        verbs_zone_wake_at(zone, now_ns); /* there may be more */
    zone->ops->post(zone);
    if (zone->endpoint->base.armed && zone->ops->sleep)
        zone->ops->sleep(zone);
    return count;
}

uint64_t verbs_zone_wait_ns(const struct verbs_zone *zone)
{
    if (zone->wake_ns == UINT64_MAX)
        return UINT64_MAX;
    return zone->wake_ns > zone->now_ns ? zone->wake_ns - zone->now_ns : 0;
}
