/* log_limiter.h - how many lines of one event the log takes: a burst, then some a second, for each name and level. Who makes
 * another knock a million times gets a few lines, the last of them with the number of those that were left out.
 *
 * All memory is in the struct: events are as many as the program has names. No locks; any thread. */
#ifndef BASE_LOG_LIMITER_H
#define BASE_LOG_LIMITER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/log.h"

enum {
    LOG_EVENTS = 512, /* names that have limits of their own; the program has about half as many */
    LOG_BURST = 200,  /* lines at once, of an error or a warning; */
    LOG_BURST_INFO = 1000, /* of what a change of the configuration does to its shards */
    LOG_QUIET_LINES = 10,  /* so many lines are free again when a count is told without a line */
};

/* A budget is full again at `full_ns`: that moves on by a line's time with each line (the virtual scheduling of ITU-T I.371), and a line is left out where it is more than a burst's time away. */
struct log_budget {
    _Atomic uint64_t full_ns, left_out;
};

struct log_limiter {
    struct log_limited {
        _Atomic(const char *) event; /* NULL: the place is free */
        struct log_budget budgets[LOG_DEBUG + 1];
    } events[LOG_EVENTS];
    struct log_budget
        rest; /* of all events that found no place, but errors: those are always written */
};

/* log_limiter_allow: is the line written? Then *left_out are those of its event and level that were not since the last one that was.
 * `event` stays where it is. A name that comes for the first time has its whole burst: what is said once is never lost. */
bool log_limiter_allow(struct log_limiter *limiter, enum log_level level, const char *event,
                       uint64_t now_ns, uint64_t *left_out);

/* log_limiter_owed: the next event from *place on (0 at first) whose flood has ended without a line that tells its count; that
 * counts as told. NULL: no more. */
const char *log_limiter_owed(struct log_limiter *limiter, uint64_t now_ns, uint32_t *place,
                             enum log_level *level, uint64_t *left_out);

#endif
