/* pm_wait.h - waits for a fence. */
#ifndef TEST_PM_WAIT_H
#define TEST_PM_WAIT_H

#include "common/pm/pm.h"
#include "test/lib/wait.h"

/* 0 or ROWAN_EIO. */
static inline int pm_fence_wait(struct pm *pm)
{
    const struct pm_ticket ticket = pm_fence_start(pm);
    int done = pm_fence_done(pm, ticket);
    for (; done == 0; done = pm_fence_done(pm, ticket))
        wait_pause();
    return done < 0 ? done : 0;
}

#endif
