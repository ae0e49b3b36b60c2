/* wait.h - waits for a condition of another thread or process, with a deadline. */
#ifndef TEST_WAIT_H
#define TEST_WAIT_H

#include <stdint.h>
#include <time.h>

#include "common/base/clock.h"

/* Evaluates `condition` again and again until it is true or 60 s have gone by; its last value. */
#define WAIT_FOR(condition)                                                                        \
    ({                                                                                             \
        const uint64_t wait_deadline_ns = clock_now_ns(clock_system()) + 60 * NS_PER_S;            \
        const struct timespec wait_pause = {.tv_nsec = 100 * 1000};                                \
        while (!(condition) && clock_now_ns(clock_system()) < wait_deadline_ns)                    \
            nanosleep(&wait_pause, NULL);                                                          \
        !!(condition);                                                                             \
    })

#endif
