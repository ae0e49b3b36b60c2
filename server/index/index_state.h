/* index_state.h - the inside of an index: index.c's and index_dump.c's. */
#ifndef SERVER_INDEX_STATE_H
#define SERVER_INDEX_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/index/index.h"
#include "server/index/index_table.h"

/* The gate word: a split is under way, or this many swaps, removals and dumps are (I6). */
#define INDEX_GATE_SPLIT (UINT32_C(1) << 31)

enum { INDEX_GATE_TRIES = 8 };

struct index {
    /* Read by everybody, written by the owner. */
    _Atomic uint64_t step;
    _Atomic uint64_t items;
    _Atomic uint32_t chain_limit;
    const struct pm *pm;
    const struct entry_format *format;
    _Alignas(64) _Atomic uint32_t gate;
    _Atomic uint32_t removals; /* two for each: I7 */
    _Alignas(64) struct index_table table;
};

/* False: a split is under way. */
static inline bool index_gate_enter(struct index *index)
{
    uint32_t gate = atomic_load_explicit(&index->gate, memory_order_relaxed);
    for (unsigned i = 0; i < INDEX_GATE_TRIES && !(gate & INDEX_GATE_SPLIT); i++)
        if (atomic_compare_exchange_weak_explicit(&index->gate, &gate, gate + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

static inline void index_gate_leave(struct index *index)
{
    atomic_fetch_sub_explicit(&index->gate, 1, memory_order_release);
}

/* --- an item's 64 bits (I1): tag, offset, window --- */

enum { TAG_SHIFT = 48, WINDOW_BITS = 6 };

#define OFFSET_MASK UINT64_C(0x0000ffffffffffc0)
#define WINDOW_MASK UINT64_C(0x3f)

static inline uint64_t hash_window(uint64_t hash, unsigned level)
{
    return hash >> (level / WINDOW_BITS * WINDOW_BITS) & WINDOW_MASK;
}

static inline uint64_t item_make(uint64_t hash, uint64_t offset, unsigned level)
{
    return hash >> TAG_SHIFT << TAG_SHIFT | offset | hash_window(hash, level);
}

static inline uint64_t item_offset(uint64_t item)
{
    return item & OFFSET_MASK;
}

static inline uint64_t item_with_offset(uint64_t item, uint64_t offset)
{
    return (item & ~OFFSET_MASK) | offset;
}

static inline bool item_has_tag(uint64_t item, uint64_t hash)
{
    return (item ^ hash) >> TAG_SHIFT == 0 && item_offset(item) != 0;
}

static inline uint64_t item_load(const struct index_bucket *bucket, unsigned place)
{
    return atomic_load_explicit(&bucket->items[place], memory_order_acquire);
}

static inline void item_store(struct index_bucket *bucket, unsigned place, uint64_t item)
{
    atomic_store_explicit(&bucket->items[place], item, memory_order_release);
}

static inline bool offset_is_valid(uint64_t offset)
{
    return offset != 0 && (offset & ~OFFSET_MASK) == 0;
}

/* --- which bucket a hash belongs to, at each step of the table's growth (I4) --- */

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
