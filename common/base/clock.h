/* clock.h - the clock seam. A reactor reads it once per round and hands `now_ns` to each poll. Roles read it for the one
 * thing for which that is too old: whether the lease still holds when answers leave (server/worker/worker.c, W13). Programs
 * (load generators, tools) may. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

/* Nanoseconds that never go back and are counted through suspend; the origin means nothing. */
struct clock {
    uint64_t (*now_ns)(struct clock *clock);
};

static inline uint64_t clock_now_ns(struct clock *clock)
{
    return clock->now_ns(clock);
}

static inline uint64_t clock_latest(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

/* The host's clock (CLOCK_BOOTTIME). Static; any thread. */
struct clock *clock_system(void);

/* clock_boot_id: the number that the kernel drew when this host booted
 * (/proc/sys/kernel/random/boot_id, random(4)). It is the same for every process until the next boot,
 * and never comes again. Where it has changed, what was in memory only is lost. Main functions, at
 * start. Errors: ROWAN_EIO. */
int clock_boot_id(uint8_t out[16]);

#endif
