/* wait.h - sleep on event sources outside a reactor: for a thread that polls a role itself (a
 * client's session, a tool). */
#ifndef REACTOR_WAIT_H
#define REACTOR_WAIT_H

#include <poll.h>
#include <stddef.h>

#include "common/reactor/reactor.h"

/* How often a thread without work yields its core, and polls again, before it sleeps. With more threads
 * than cores it often waits for a thread that has no core, and a sleep costs both a system call or
 * more. */
enum { WAIT_YIELDS = 1 };

/* Gives the core to another thread that wants it. */
void wait_yield(void);

/* wait_readable: until one of them is readable, or `wake_ns` of `clock` (WAKE_NEVER: no limit). How many are, in
 * `revents`; 0 also after a signal. Errors: ROWAN_EIO. */
int wait_readable(struct pollfd *items, size_t count, struct clock *clock, uint64_t wake_ns);

/* event_source_wait: arms the source, polls the role once more, and if that was idle sleeps until
 * the source has work, the role's own wake time, or `until_ns` of `clock` (WAKE_NEVER: no limit);
 * then disarms. May return early: the caller checks its condition and comes back. The poll after the
 * arming makes sure that no wake-up is lost. What the caller waits for may happen in that poll, so a
 * BUSY one ends the call. Errors: ROWAN_EIO. */
int event_source_wait(const struct event_source *source, struct clock *clock, poll_function *poll,
                      void *role, uint64_t until_ns);

/* A source, and the role whose work it announces. */
struct waiter {
    const struct event_source *source;
    poll_function *poll;
    void *role;
};

enum { WAIT_MOST = 256 };

/* event_sources_wait: the same for 1 to WAIT_MOST of them at once: all are armed, all are polled, and
 * if all were idle it sleeps until one has work. Errors: ROWAN_EIO. */
int event_sources_wait(const struct waiter *waiters, size_t count, struct clock *clock,
                       uint64_t until_ns);

#endif
