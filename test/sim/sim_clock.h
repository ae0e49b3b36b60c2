/* sim_clock.h - the clock of a simulated world: it stands still until somebody moves it. */
#ifndef SIM_CLOCK_H
#define SIM_CLOCK_H

#include "common/base/clock.h"

struct sim_clock {
    struct clock clock;
    uint64_t now_ns;
};

static inline uint64_t sim_clock_now_ns(struct clock *clock)
{
    return ((struct sim_clock *)clock)->now_ns;
}

/* Starts at 1 s, so that no time a role computes from it lies before 0. */
static inline void sim_clock_init(struct sim_clock *clock)
{
    *clock = (struct sim_clock){.clock = {.now_ns = sim_clock_now_ns}, .now_ns = NS_PER_S};
}

#endif
