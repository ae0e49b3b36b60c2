/* bench.h - what both sides of the program share: the messages between them, over the fabric itself, CPU time, and the
 * end of a run that cannot go on. Both sides are the same build; the `role` of a connection's handshake says what it is
 * for.
 */
#ifndef FABRIC_BENCH_BENCH_H
#define FABRIC_BENCH_BENCH_H

#include <sys/resource.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/fabric/fabric.h"

enum bench_mode { MODE_ROWAN, MODE_MESSAGE, MODE_COUNT };

enum wire_role {
    WIRE_CONTROL = 1, /* each message, whatever it holds, asks for wire_facts */
    WIRE_BLOCKS,      /* Rowan sends, and no message */
    WIRE_ECHO,        /* every message is sent back */
};

/* Figures of the receiver's thread, counted since it started. */
struct wire_facts {
    uint64_t user_ns;    /* as the kernel divides it */
    uint64_t all_ns;     /* user and system, exact */
    uint64_t zeroing_ns; /* part of it: for zeroing sealed segments */
    uint64_t segments;   /* sealed */
    uint64_t busy_polls;
    uint64_t users; /* connections but those for control */
};

/* CPU time of the calling thread so far. */
static inline uint64_t cpu_time_all_ns(void)
{
    struct timespec all;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &all);
    return (uint64_t)all.tv_sec * NS_PER_S + (uint64_t)all.tv_nsec;
}

static inline uint64_t cpu_time_user_ns(void)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_utime.tv_sec * NS_PER_S +
           (uint64_t)usage.ru_utime.tv_usec * NS_PER_US;
}

/* Any thread: prints one sentence, removes the run's files and ends the program with exit code 1. */
_Noreturn void bench_fail(const char *what, const char *why);

/* The same if there is an error. */
void bench_check(int error, const char *what);

/* A reactor with one role, and its endpoint to sleep on. */
struct reactor *bench_reactor(const char *name, struct fabric_endpoint *endpoint, uint64_t spin_ns,
                              poll_function *poll, void *role);

/* Any thread but a sending one or the receiver: lets `ns` go by; fails if the program got a signal. */
void bench_pause(uint64_t ns);

#endif
