/* sim_pm.h - a PM map in memory, whose fences take simulated time. One thread. */
#ifndef SIM_PM_H
#define SIM_PM_H

#include "common/pm/pm.h"
#include "test/sim/sim_clock.h"

struct sim_pm {
    struct pm pm;
    struct sim_clock *clock;
    uint64_t fence_ns;    /* from the start of a fence until it is done */
    uint64_t last_due_ns; /* when the fence started last is done */
    uint64_t stores;      /* pm_store and pm_zero calls so far */
    uint64_t fences;      /* pm_fence_start calls so far */
};

/* `bytes` of zeros, which the host hands out page by page; closed by pm_close. Aborts without
 * memory. */
struct sim_pm *sim_pm_create(struct sim_clock *clock, uint64_t bytes, uint64_t fence_ns);

/* When the last fence that is still outstanding is done; WAKE_NEVER if none is. */
uint64_t sim_pm_next_ns(const struct sim_pm *sim);

#endif
