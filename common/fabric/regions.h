/* regions.h - registered memory: which bytes of this process may be sent from or landed in. */
#ifndef FABRIC_REGIONS_H
#define FABRIC_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/pm/pm.h"

enum { REGIONS_MAX = 16 /* of a fabric */ };

struct region {
    const uint8_t *base;
    uint64_t bytes;
    uint32_t key; /* verbs: the device's name for it */
};

/* All 0 at start; filled before endpoints use it, then read by
 * all threads. */
struct regions {
    uint32_t count;
    struct region all[REGIONS_MAX];
};

/* Whether all of [data, data + bytes) lies in [base, base + held_bytes). */
static inline bool region_holds(const uint8_t *base, uint64_t held_bytes, const void *data,
                                uint64_t bytes)
{
    const uintptr_t offset = (uintptr_t)data - (uintptr_t)base; /* may wrap: too big */

    return offset <= held_bytes && bytes <= held_bytes - offset;
}

/* Errors: ROWAN_ETOOMANY. */
static inline int regions_add(struct regions *regions, const struct pm *pm)
{
    if (regions->count == REGIONS_MAX)
        return ROWAN_ETOOMANY;
    regions->all[regions->count++] = (struct region){.base = pm->base, .bytes = pm->bytes};
    return 0;
}

/* The one that all of [data, data + bytes) lies in; NULL: none. */
static inline const struct region *regions_find(const struct regions *regions, const void *data,
                                                uint64_t bytes)
{
    for (uint32_t i = 0; i < regions->count; i++) {
        if (region_holds(regions->all[i].base, regions->all[i].bytes, data, bytes))
            return &regions->all[i];
    }
    return NULL;
}

#endif
