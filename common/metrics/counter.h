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

/* Durations: counts by powers of two. Bucket i has those below 2^(LATENCIES_FIRST + i) ns, and not in an earlier one; the
 * last one has no bound. */
enum { LATENCIES_FIRST = 10, LATENCIES_BUCKETS = 26 };

struct latencies {
    struct counter counts[LATENCIES_BUCKETS];
    struct counter sum_ns;
};

/* `count` operations of that duration. */
static inline void latencies_add(struct latencies *latencies, uint64_t ns, uint32_t count)
{
    const int bits = 64 - __builtin_clzll(ns | 1);
    const int bucket = bits <= LATENCIES_FIRST                          ? 0
                       : bits < LATENCIES_FIRST + LATENCIES_BUCKETS - 1 ? bits - LATENCIES_FIRST
                                                                        : LATENCIES_BUCKETS - 1;
    counter_add(&latencies->counts[bucket], count);
    counter_add(&latencies->sum_ns, ns * count);
}

#endif
