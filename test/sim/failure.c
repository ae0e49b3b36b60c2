#include "test/sim/failure.h"

#include <stdarg.h>
#include <stdio.h>

void failure_set(struct failure *failure, enum failure_kind kind, const char *checker,
                 uint64_t at_ns, uint32_t key, uint32_t shard, const char *format, ...)
{
    if (failure->kind != FAILURE_NONE)
        return;
    *failure = (struct failure){.kind = kind, .at_ns = at_ns, .key = key, .shard = shard};
    snprintf(failure->checker, sizeof failure->checker, "%s", checker);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->why, sizeof failure->why, format, arguments);
    va_end(arguments);
}
