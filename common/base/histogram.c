/* histogram.c - log-linear buckets. Values below 64 have a bucket each; above, every power of two
 * is divided into 64 buckets of equal width, so a bucket is at most 1/64 of its lower bound wide.
 */
#include "common/base/histogram.h"

#include <string.h>

#include "common/base/assert.h"

enum { SUB_COUNT = 1 << HISTOGRAM_SUB_BITS };

static unsigned bucket_of(uint64_t value)
{
    unsigned shift;

    if (value < SUB_COUNT)
        return (unsigned)value;
    shift = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    return (shift << HISTOGRAM_SUB_BITS) + (unsigned)(value >> shift);
}

uint64_t histogram_bucket_last(unsigned bucket)
{
    unsigned shift;
    uint64_t first;

    if (bucket < 2 * SUB_COUNT)
        return bucket;
    shift = (bucket >> HISTOGRAM_SUB_BITS) - 1;
    first = (uint64_t)(bucket - (shift << HISTOGRAM_SUB_BITS)) << shift;
    return first + ((UINT64_C(1) << shift) - 1);
}

void histogram_reset(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    unsigned bucket = bucket_of(value);

    ASSERT_COSTLY(bucket < HISTOGRAM_BUCKETS);
    histogram->buckets[bucket]++;
    histogram->count++;
    if (value > histogram->max)
        histogram->max = value;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    if (from->max > into->max)
        into->max = from->max;
}

uint64_t histogram_quantile(const struct histogram *histogram, double quantile)
{
    double wanted = quantile * (double)histogram->count;
    uint64_t seen = 0;
    uint64_t last;

    ASSERT(quantile >= 0 && quantile <= 1);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen == 0 || (double)seen < wanted)
            continue;
        last = histogram_bucket_last(i);
        return last < histogram->max ? last : histogram->max;
    }
    return histogram->max;
}
