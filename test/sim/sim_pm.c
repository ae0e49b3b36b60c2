/* A PM map in memory. A fence's ticket is the time at which it is done. */
#include "test/sim/sim_pm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/assert.h"
#include "common/reactor/reactor.h"

static void check_range(const struct pm *pm, uint64_t offset, size_t bytes)
{
    ASSERT(offset <= pm->bytes && bytes <= pm->bytes - offset);
}

static void sim_store(struct pm *pm, uint64_t offset, const void *source, size_t bytes)
{
    check_range(pm, offset, bytes);
    ((struct sim_pm *)pm)->stores++;
    memcpy(pm->base + offset, source, bytes);
}

static void sim_zero(struct pm *pm, uint64_t offset, size_t bytes)
{
    check_range(pm, offset, bytes);
    ((struct sim_pm *)pm)->stores++;
    memset(pm->base + offset, 0, bytes);
}

static struct pm_ticket sim_fence_start(struct pm *pm)
{
    struct sim_pm *sim = (struct sim_pm *)pm;
    sim->fences++;
    sim->last_due_ns = sim->clock->now_ns + sim->fence_ns;
    return (struct pm_ticket){sim->last_due_ns};
}

static int sim_fence_done(struct pm *pm, struct pm_ticket ticket)
{
    return ((struct sim_pm *)pm)->clock->now_ns >= ticket.number;
}

static void sim_close(struct pm *pm)
{
    munmap(pm->base, pm->bytes);
    free(pm);
}

static const struct pm_ops SIM_PM_OPS = {
    .close = sim_close,
    .store = sim_store,
    .zero = sim_zero,
    .fence_start = sim_fence_start,
    .fence_done = sim_fence_done,
};

struct sim_pm *sim_pm_create(struct sim_clock *clock, uint64_t bytes, uint64_t fence_ns)
{
    struct sim_pm *sim = calloc(1, sizeof *sim);
    ASSERT(sim);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT(base != MAP_FAILED);
    sim->pm = (struct pm){.ops = &SIM_PM_OPS,
                          .base = base,
                          .bytes = bytes,
                          .fd = -1,
                          .durability = PM_FENCE,
                          .backend = "sim"};
    sim->clock = clock;
    sim->fence_ns = fence_ns;
    return sim;
}

uint64_t sim_pm_next_ns(const struct sim_pm *sim)
{
    return sim->last_due_ns > sim->clock->now_ns ? sim->last_due_ns : WAKE_NEVER;
}
