/* log_limiter.c - places by the hash of the name, budgets by compare and exchange: two threads never get the same line's time.
 */
#include "common/base/log_limiter.h"

#include <stddef.h>
#include <string.h>

#include "common/base/clock.h"

static const struct rate {
    uint64_t burst, line_ns;
} rates[] = {
    [LOG_ERROR] = {LOG_BURST, NS_PER_S / 2},
    [LOG_WARN] = {LOG_BURST, NS_PER_S / 2},
    [LOG_INFO] = {LOG_BURST_INFO, NS_PER_S / 20},
    [LOG_DEBUG] = {LOG_BURST_INFO, NS_PER_S / 20},
};

/* One line's time, if so many lines are free besides. */
static bool budget_take(struct log_budget *budget, const struct rate *rate, uint64_t now_ns,
                        uint64_t besides)
{
    uint64_t full_ns = atomic_load_explicit(&budget->full_ns, memory_order_relaxed), after_ns;

    do {
        after_ns = clock_latest(full_ns, now_ns) + rate->line_ns;
        if (after_ns - now_ns > (rate->burst - besides) * rate->line_ns)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->full_ns, &full_ns, after_ns,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static uint32_t hash(const char *event)
{
    uint32_t hash = 2166136261; /* FNV-1a */

    for (; *event != '\0'; event++)
        hash = (hash ^ (uint8_t)*event) * 16777619;
    return hash;
}

/* NULL: all places are taken by others. */
static struct log_limited *find(struct log_limiter *limiter, const char *event)
{
    uint32_t at = hash(event);

    for (uint32_t i = 0; i < LOG_EVENTS; i++, at++) {
        struct log_limited *limited = &limiter->events[at % LOG_EVENTS];
        const char *found = NULL;

        if (atomic_compare_exchange_strong_explicit(&limited->event, &found, event,
                                                    memory_order_acq_rel, memory_order_acquire) ||
            found == event || strcmp(found, event) == 0)
            return limited;
    }
    return NULL;
}

bool log_limiter_allow(struct log_limiter *limiter, enum log_level level, const char *event,
                       uint64_t now_ns, uint64_t *left_out)
{
    struct log_limited *limited = find(limiter, event);
    struct log_budget *budget = limited ? &limited->budgets[level] : &limiter->rest;
    const bool always = !limited && level == LOG_ERROR;

    if (!always && !budget_take(budget, &rates[level], now_ns, 0)) {
        atomic_fetch_add_explicit(&budget->left_out, 1, memory_order_relaxed);
        return false;
    }
    *left_out = always ? 0 : atomic_exchange_explicit(&budget->left_out, 0, memory_order_relaxed);
    return true;
}

const char *log_limiter_owed(struct log_limiter *limiter, uint64_t now_ns, uint32_t *place,
                             enum log_level *level, uint64_t *left_out)
{
    enum { LEVELS = LOG_DEBUG + 1 };

    while (*place < LOG_EVENTS * LEVELS) {
        struct log_limited *limited = &limiter->events[*place / LEVELS];
        struct log_budget *budget = &limited->budgets[*place % LEVELS];

        *level = (enum log_level)(*place % LEVELS);
        ++*place;
        if (atomic_load_explicit(&budget->left_out, memory_order_relaxed) > 0 &&
            budget_take(budget, &rates[*level], now_ns, LOG_QUIET_LINES)) {
            *left_out = atomic_exchange_explicit(&budget->left_out, 0, memory_order_relaxed);
            return atomic_load_explicit(&limited->event, memory_order_acquire);
        }
    }
    return NULL;
}
