/* The limit on open descriptors. */
#include "common/reactor/descriptors.h"

#include <sys/resource.h>

uint64_t descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 0;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) ? before : limit.rlim_cur;
}
