/* histogram.h - latencies in nanoseconds, log-linear buckets, relative error at most 1/64.
 * Fixed memory (30 KiB), no allocation; one thread writes; merge when it has stopped. */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

enum {
    HISTOGRAM_SUB_BITS = 6,
    HISTOGRAM_BUCKETS = (64 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS
};

struct histogram {
    uint64_t count;
    uint64_t max;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_reset(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The largest value that falls into a bucket. */
uint64_t histogram_bucket_last(unsigned bucket);

/* The upper bound of the lowest bucket at or below which lie at least `quantile` (0..1) of the values,
 * but never above `max`; 0 when empty. */
uint64_t histogram_quantile(const struct histogram *histogram, double quantile);

#endif
