/* pm_dax.c - persistent memory itself. libpmem picks the instructions by CPUID: non-temporal
 * stores, or a copy and cache-line write-backs; a store fence makes them durable, because what has
 * left the caches is inside the power-fail domain (ADR). So every ticket is done when it is issued.
 *
 * 1. Between a store and another thread's look at it lies a fence of the storing thread: no release
 *    store orders a non-temporal one (Intel SDM volume 3, 9.2.2), and a fence drains only the
 *    stores of the processor it runs on.
 */
#include <libpmem.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/pm/pm_map.h"

struct pm_dax {
    struct pm pm;
    struct pm_map map;
};

static void dax_close(struct pm *pm)
{
    struct pm_dax *dax = (struct pm_dax *)pm;

    pm_map_close(&dax->map);
    free(dax);
}

static void dax_store(struct pm *pm, uint64_t offset, const void *source, size_t bytes)
{
    ASSERT(offset <= pm->bytes && bytes <= pm->bytes - offset);
    if (is_one_word(offset, bytes)) {
        store_word(pm->base + offset, source);
        pmem_flush(pm->base + offset, bytes);
        return;
    }
    pmem_memcpy(pm->base + offset, source, bytes, PMEM_F_MEM_NONTEMPORAL | PMEM_F_MEM_NODRAIN);
}

static void dax_zero(struct pm *pm, uint64_t offset, size_t bytes)
{
    ASSERT(offset <= pm->bytes && bytes <= pm->bytes - offset);
    pmem_memset(pm->base + offset, 0, bytes, PMEM_F_MEM_NONTEMPORAL | PMEM_F_MEM_NODRAIN);
}

static void dax_flush(struct pm *pm, uint64_t offset, size_t bytes)
{
    ASSERT(offset <= pm->bytes && bytes <= pm->bytes - offset);
    pmem_flush(pm->base + offset, bytes);
}

static struct pm_ticket dax_fence_start(struct pm *pm)
{
    (void)pm;
    pmem_drain();
    return (struct pm_ticket){0};
}

static int dax_fence_done(struct pm *pm, struct pm_ticket ticket)
{
    (void)pm;
    (void)ticket;
    return 1;
}

static const struct pm_ops dax_ops = {.close = dax_close,
                                      .store = dax_store,
                                      .zero = dax_zero,
                                      .fence_start = dax_fence_start,
                                      .fence_done = dax_fence_done,
                                      .flush = dax_flush};

int pm_dax_create(const struct pm_map *map, struct pm **out)
{
    struct pm_dax *dax = malloc(sizeof(*dax));

    if (!dax)
        return ROWAN_ENOMEM;
    ASSERT(map->synchronous);
    dax->map = *map;
    dax->pm = pm_map_head(map, &dax_ops, PM_FENCE, "dax");
    *out = &dax->pm;
    return 0;
}
