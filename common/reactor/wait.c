/* Arm, poll once more, sleep, disarm: work that arrived before the arming is met by the poll, work
 * that arrives after it makes the fd readable. */
#include "common/reactor/wait.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

#include "common/base/error.h"

static int sleep_until(int fd, struct clock *clock, uint64_t wake_ns)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    struct timespec timeout = {0, 0};

    if (wake_ns != WAKE_NEVER) {
        uint64_t now_ns = clock_now_ns(clock);
        uint64_t wait_ns = wake_ns > now_ns ? wake_ns - now_ns : 0;

        timeout.tv_sec = (time_t)(wait_ns / NS_PER_S);
        timeout.tv_nsec = (long)(wait_ns % NS_PER_S);
    }
    if (ppoll(&item, 1, wake_ns != WAKE_NEVER ? &timeout : NULL, NULL) < 0 && errno != EINTR)
        return ROWAN_EIO;
    return 0;
}

int event_source_wait(const struct event_source *source, struct clock *clock, poll_function *poll,
                      void *role, uint64_t until_ns)
{
    uint64_t wake_ns = until_ns;
    int error = 0;

    source->arm(source->context);
    if (poll(role, clock_now_ns(clock), &wake_ns) == POLL_IDLE)
        error = sleep_until(source->fd, clock, wake_ns);
    source->disarm(source->context);
    return error;
}
