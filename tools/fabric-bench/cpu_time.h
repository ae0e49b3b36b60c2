/* cpu_time.h - CPU time of a thread. */
#ifndef FABRIC_BENCH_CPU_TIME_H
#define FABRIC_BENCH_CPU_TIME_H

#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

#include "common/base/clock.h"

struct cpu_time {
    uint64_t user_ns, system_ns; /* as the kernel divides it */
    uint64_t all_ns;             /* exact */
};

/* All of the calling thread so far. */
static inline uint64_t cpu_time_all_ns(void)
{
    struct timespec all;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &all);
    return (uint64_t)all.tv_sec * NS_PER_S + (uint64_t)all.tv_nsec;
}

static inline uint64_t cpu_time_of(const struct timeval *part)
{
    return (uint64_t)part->tv_sec * NS_PER_S + (uint64_t)part->tv_usec * NS_PER_US;
}

static inline struct cpu_time cpu_time_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (struct cpu_time){.user_ns = cpu_time_of(&usage.ru_utime),
                             .system_ns = cpu_time_of(&usage.ru_stime),
                             .all_ns = cpu_time_all_ns()};
}

/* Adds what passed between two moments. */
static inline void cpu_time_add(struct cpu_time *to, const struct cpu_time *from,
                                const struct cpu_time *until)
{
    to->user_ns += until->user_ns - from->user_ns;
    to->system_ns += until->system_ns - from->system_ns;
    to->all_ns += until->all_ns - from->all_ns;
}

#endif
