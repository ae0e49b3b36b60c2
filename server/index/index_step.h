/* index_step.h - which bucket of a linear hash table a hash belongs to, at each step of its growth (index.c, I4). Used by
 * index.c and index_dump.c only. */
#ifndef SERVER_INDEX_STEP_H
#define SERVER_INDEX_STEP_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t power_below(uint64_t buckets)
{
    return UINT64_C(1) << (63 - __builtin_clzll(buckets));
}

static inline uint64_t step_buckets(uint64_t step)
{
    return (step + 1) >> 1; /* I4 */
}

static inline uint64_t hash_bucket(uint64_t hash, uint64_t buckets)
{
    uint64_t power = power_below(buckets);
    uint64_t number = hash & (2 * power - 1);
    return number < buckets ? number : number - power;
}

static inline unsigned bucket_level(uint64_t number, uint64_t buckets)
{
    uint64_t power = power_below(buckets);
    unsigned level = (unsigned)__builtin_ctzll(power);
    return number >= power || number + power < buckets ? level + 1 : level;
}

/* Did a split that was going on at step `before`, or began until step `after`, have bucket `number`
 * as its source? The targets of that bucket are number + p for each power of two p above it. */
static inline bool bucket_was_split(uint64_t number, uint64_t before, uint64_t after)
{
    if (before == after)
        return false;
    uint64_t first = before >> 1, last = (after - 1) >> 1; /* targets of the splits between */
    uint64_t power = power_below(first);
    uint64_t target = number + power;
    if (number >= power || target < first)
        target = number + 2 * power;
    return target <= last;
}

#endif
