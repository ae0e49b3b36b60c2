/* wait.h - waits for a condition of another thread or process, with a deadline. */
#ifndef TEST_WAIT_H
#define TEST_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/base/clock.h"

#define WAIT_DEADLINE_NS (60 * NS_PER_S)

static inline void wait_pause(void)
{
    const struct timespec pause = {.tv_nsec = 100 * 1000};
    nanosleep(&pause, NULL);
}

/* Evaluates `condition` again and again until it is true (the value is true) or 60 s have gone by.
 */
#define WAIT_FOR(condition)                                                                        \
    ({                                                                                             \
        const uint64_t wait_end_ns = clock_now_ns(clock_system()) + WAIT_DEADLINE_NS;              \
        bool wait_held;                                                                            \
        while (!(wait_held = (condition)) && clock_now_ns(clock_system()) < wait_end_ns)           \
            wait_pause();                                                                          \
        wait_held;                                                                                 \
    })

#endif
