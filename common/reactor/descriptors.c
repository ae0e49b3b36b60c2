/* The limit on open descriptors. The system gives the lowest number that is free, so that a number tells how many are taken. */
#include "common/reactor/descriptors.h"

#include <sys/resource.h>

#include "common/base/log.h"

static int first_kept = INT32_MAX; /* as of the start */

uint64_t descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 0;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    const uint64_t now = setrlimit(RLIMIT_NOFILE, &limit) ? before : limit.rlim_cur;
    const uint64_t kept = now / 4 < DESCRIPTORS_KEPT ? now / 4 : DESCRIPTORS_KEPT;
    first_kept = now - kept < INT32_MAX ? (int)(now - kept) : INT32_MAX;
    if (now < DESCRIPTORS_WANTED)
        log_event(LOG_WARN, "few_descriptors",
                  "limit=%lu wanted=%d kept=%lu detail=\"clients beyond that are refused, and the "
                  "rest is kept for servers and files: start it with more (LimitNOFILE=65536 in "
                  "its systemd unit, or ulimit -Hn 65536 as root)\"",
                  now, DESCRIPTORS_WANTED, kept);
    return now;
}

bool descriptors_is_kept(int fd)
{
    return fd >= first_kept;
}
