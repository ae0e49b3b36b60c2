/* reactor.h - pollers on threads; a thread sleeps when all its pollers are idle.
 *
 * A role is a struct with a poll function that does a bounded batch of work and never blocks. A
 * reactor polls its roles in turn. When every role was idle for `spin_ns` it arms its event
 * sources, polls all roles once more, and sleeps in one ppoll until a source's fd is readable or
 * the earliest deadline that a role asked for.
 *
 * No wake-up is lost: the sleeper sets a flag, full fence, polls once more, sleeps; the one who
 * wakes publishes, full fence, reads the flag.
 */
#ifndef REACTOR_REACTOR_H
#define REACTOR_REACTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"

enum poll_result { POLL_IDLE, POLL_BUSY };

#define WAKE_NEVER UINT64_MAX

/* One bounded batch of work. `now_ns` was read once for this round. A role that must run at a
 * later time although nothing happens lowers *wake_ns (an absolute time; never raises it). */
typedef enum poll_result poll_function(void *role, uint64_t now_ns, uint64_t *wake_ns);

/* For a poll function: run again at `at_ns` at the latest. */
static inline void wake_at(uint64_t *wake_ns, uint64_t at_ns)
{
    if (at_ns < *wake_ns)
        *wake_ns = at_ns;
}

struct poller {
    const char *name; /* for logs; static */
    poll_function *poll;
    void *role;
    _Atomic uint64_t *
        busy_ns; /* processor time of its polls that were BUSY, ten times a second; NULL: nobody asks */
};

/* Something that can end a reactor's sleep (a fabric endpoint, a waker). */
struct event_source {
    int fd;                        /* readable when there is work */
    void (*arm)(void *context);    /* from now on make fd readable when work arrives */
    void (*disarm)(void *context); /* awake again: stop paying for wake-ups, drain fd */
    void *context;
};

struct reactor;

struct reactor_options {
    const char *name;    /* thread name, at most 15 bytes; copied */
    struct clock *clock; /* outlives the reactor */
    uint64_t spin_ns;    /* how long to poll idle roles before sleeping; 0: sleep at once */
    int cpu;             /* pin the thread to this core; -1: do not */
};

/* Errors: ROWAN_ENOMEM, ROWAN_EIO. */
int reactor_create(const struct reactor_options *options, struct reactor **out);

/* The reactor must not be running. */
void reactor_destroy(struct reactor *reactor);

/* reactor_spin: another spin_ns. Any thread. */
void reactor_spin(struct reactor *reactor, uint64_t spin_ns);

/* Both before the reactor runs. Errors: ROWAN_ENOMEM. */
int reactor_add_poller(struct reactor *reactor, const struct poller *poller);
int reactor_add_source(struct reactor *reactor, const struct event_source *source);

/* reactor_run polls on the calling thread until reactor_stop; reactor_start does so on a thread of
 * its own, which reactor_join waits for. Errors of start: ROWAN_ENOMEM. */
void reactor_run(struct reactor *reactor);
int reactor_start(struct reactor *reactor);
void reactor_join(struct reactor *reactor);

/* Any thread, or a signal handler; before the run too. A reactor that was stopped stays stopped. */
void reactor_stop(struct reactor *reactor);

/* Any thread: what the caller wrote before is seen by a poll that starts after. Costs one
 * atomic read-modify-write when the reactor is awake. */
void reactor_wake(struct reactor *reactor);

#endif
