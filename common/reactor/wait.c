/* Arm, poll once more, sleep, disarm: the poll finds work that arrived before the arming, and work that
 * arrives after it makes the fd readable. */
#include "common/reactor/wait.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/base/error.h"

void wait_yield(void)
{
    sched_yield();
}

int wait_readable(struct pollfd *items, size_t count, struct clock *clock, uint64_t wake_ns)
{
    struct timespec timeout = {0, 0};
    int found;

    if (wake_ns != WAKE_NEVER) {
        const uint64_t now_ns = clock_now_ns(clock);
        const uint64_t wait_ns = wake_ns > now_ns ? wake_ns - now_ns : 0;

        timeout.tv_sec = (time_t)(wait_ns / NS_PER_S);
        timeout.tv_nsec = (long)(wait_ns % NS_PER_S);
    }
    found = ppoll(items, count, wake_ns != WAKE_NEVER ? &timeout : NULL, NULL);
    if (found < 0)
        return errno == EINTR ? 0 : ROWAN_EIO;
    return found;
}

int event_sources_wait(const struct waiter *waiters, size_t count, struct clock *clock,
                       uint64_t until_ns)
{
    struct pollfd items[WAIT_MOST];
    uint64_t wake_ns = until_ns;
    bool busy = false;
    int error = 0;

    ASSERT(count > 0 && count <= WAIT_MOST);
    for (size_t i = 0; i < count; i++)
        waiters[i].source->arm(waiters[i].source->context);
    uint64_t now_ns = clock_now_ns(clock);

    for (size_t i = 0; i < count; i++) {
        items[i] = (struct pollfd){.fd = waiters[i].source->fd, .events = POLLIN};
        busy |= waiters[i].poll(waiters[i].role, now_ns, &wake_ns) == POLL_BUSY;
    }
    if (!busy)
        error = wait_readable(items, count, clock, wake_ns);
    for (size_t i = 0; i < count; i++)
        waiters[i].source->disarm(waiters[i].source->context);
    return error < 0 ? error : 0;
}

int event_source_wait(const struct event_source *source, struct clock *clock, poll_function *poll,
                      void *role, uint64_t until_ns)
{
    return event_sources_wait(&(struct waiter){.source = source, .poll = poll, .role = role}, 1,
                              clock, until_ns);
}
