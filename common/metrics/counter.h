/* counter.h - a number that one thread writes and any thread reads. */
#ifndef METRICS_COUNTER_H
#define METRICS_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

struct counter {
    _Atomic uint64_t value;
};

static inline uint64_t counter_get(const struct counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

static inline void counter_set(struct counter *counter, uint64_t value)
{
    atomic_store_explicit(&counter->value, value, memory_order_relaxed);
}

/* One writer, so a plain increment: no locked instruction. */
static inline void counter_add(struct counter *counter, uint64_t more)
{
    counter_set(counter, counter_get(counter) + more);
}

/* Durations, counted in buckets: the first has those below 2^LATENCIES_FIRST ns, each power of two from there on is divided into
 * four, the last one has the rest (above 34 s). */
enum { LATENCIES_FIRST = 10, LATENCIES_POWERS = 25, LATENCIES_BUCKETS = 4 * LATENCIES_POWERS + 2 };

struct latencies {
    struct counter counts[LATENCIES_BUCKETS];
    struct counter sum_ns;
};

/* `count` operations of that duration. */
static inline void latencies_add(struct latencies *latencies, uint64_t ns, uint32_t count)
{
    uint32_t bucket = 0;
    if (ns >> (LATENCIES_FIRST + LATENCIES_POWERS))
        bucket = LATENCIES_BUCKETS - 1;
    else if (ns >> LATENCIES_FIRST) {
        const uint32_t power = 63 - (uint32_t)__builtin_clzll(ns);
        bucket = 4 * (power - LATENCIES_FIRST) + (uint32_t)(ns >> (power - 2)) - 3;
    }
    counter_add(&latencies->counts[bucket], count);
    counter_add(&latencies->sum_ns, ns * count);
}

/* The longest duration that counts in the bucket. */
static inline uint64_t latencies_most_ns(uint32_t bucket)
{
    if (bucket == LATENCIES_BUCKETS - 1)
        return UINT64_MAX;
    if (bucket == 0)
        return (UINT64_C(1) << LATENCIES_FIRST) - 1;
    return ((uint64_t)(4 + bucket % 4 + (bucket % 4 == 0 ? 4 : 0))
            << (LATENCIES_FIRST - 2 + (bucket - 1) / 4)) -
           1;
}

#endif
