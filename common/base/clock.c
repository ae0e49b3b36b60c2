/* clock.c - the host's clock: CLOCK_BOOTTIME, because a lease runs on while the host is suspended. */
#include "common/base/clock.h"

#include <time.h>

#include "common/base/assert.h"

static uint64_t system_now_ns(struct clock *clock)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_BOOTTIME, &now);

    (void)clock;
    ASSERT(failed == 0);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

struct clock *clock_system(void)
{
    static struct clock system = {.now_ns = system_now_ns};

    return &system;
}
