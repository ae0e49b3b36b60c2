/* wait.h - waits for a condition with a deadline. Include after cmocka.h. */
#ifndef LIB_WAIT_H
#define LIB_WAIT_H

#include <time.h>

#include "common/base/clock.h"

#define WAIT_DEADLINE_NS (30 * NS_PER_S)

static inline void wait_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Evaluates `condition` about every millisecond until it holds; fails the test after 30 s. */
#define WAIT_UNTIL(condition)                                                                      \
    do {                                                                                           \
        const uint64_t wait_end_ns = clock_now_ns(clock_system()) + WAIT_DEADLINE_NS;              \
        while (!(condition)) {                                                                     \
            if (clock_now_ns(clock_system()) > wait_end_ns)                                        \
                fail_msg("waited in vain for %s", #condition);                                     \
            wait_pause();                                                                          \
        }                                                                                          \
    } while (0)

#endif
