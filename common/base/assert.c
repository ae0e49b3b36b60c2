/* assert.c - what happens when an assert fails: one line in the log, then a core. */
#include "common/base/assert.h"

#include <stdlib.h>

#include "common/base/log.h"

void assert_failed(const char *expression, const char *file, int line)
{
    log_event(LOG_ERROR, "assert_failed", "place=%s:%d expression=\"%s\"", file, line, expression);
    abort();
}
