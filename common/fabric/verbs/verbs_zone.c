/* verbs_zone.c - the landing zone of an endpoint: which segments are posted, when the oldest is sealed. How
 * receives for them reach the device is the business of one of the two ways to receive.
 *
 * 1. Segments are sealed in the order they were posted, each once, when its way to receive says that nobody
 *    can write to it any more: so it is quiet at once.
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_zone.h"

/* The vendor that rxe gives as its own (RXE_VENDOR_ID of the kernel). */
enum { VENDOR_SOFTWARE = 0xffffff };

/* See verbs_zone_landed. */
static void warn_of_software(const struct verbs_zone *zone)
{
    const struct verbs_device *device = zone->endpoint->device;

    if (device->attributes.orig_attr.vendor_id == VENDOR_SOFTWARE &&
        zone->base.pm->durability == PM_FENCE)
        log_event(LOG_WARN, "verbs_software_device",
                  "device=%s what=\"the processor copies what lands, so a power cut may take what "
                  "was acknowledged\" advice=\"an RDMA NIC, or tcp\"",
                  verbs_device_name(device));
}

int verbs_zone_open(struct zone *base)
{
    struct verbs_zone *zone = (struct verbs_zone *)base;
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base->endpoint;
    const struct verbs_device *device = endpoint->device;
    int error;

    zone->endpoint = endpoint;
    zone->ops = device->receive == FABRIC_RECEIVE_MULTI_PACKET ? &verbs_receive_multi_packet
                                                               : &verbs_receive_shared;
    zone->wake_ns = UINT64_MAX;
    zone->writes_back = device->attributes.orig_attr.vendor_id == VENDOR_SOFTWARE ||
                        base->pm->durability == PM_ASYNC;
    error = zone->ops->open(zone);
    if (error)
        return error;
    warn_of_software(zone);
    endpoint->zone = zone;
    return 0;
}

void verbs_zone_close(struct zone *base)
{
    struct verbs_zone *zone = (struct verbs_zone *)base;

    ASSERT(zone->member_count == 0);
    zone->ops->close(zone);
}

void verbs_zone_posted(struct zone *base)
{
    struct verbs_zone *zone = (struct verbs_zone *)base;

    zone->ops->post(zone); /* now: the endpoint may be about to sleep */
}

void verbs_close_segment(struct zone *base)
{
    struct verbs_zone *zone = (struct verbs_zone *)base;

    if (zone->ops->skip)
        zone->ops->skip(zone);
}

void verbs_zone_landed(struct verbs_zone *zone, uint64_t offset, uint32_t bytes)
{
    if (!zone->writes_back)
        return;
    pm_flush(pm_tap_beneath(zone->base.pm), offset, bytes);
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
        pm_fence_start(zone->base.pm);
        zone->unfenced = false;
    }
    while (count < max && zone->base.sealed < zone->base.posted &&
           zone->ops->is_sealed(zone)) /* 1 */
        zone_seal(&zone->base, true, &events[count++]);
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
