/* index_item.h - the 64 bits of an index item (index.c, I1): tag, offset, window. Used by index.c and index_dump.c only. */
#ifndef SERVER_INDEX_ITEM_H
#define SERVER_INDEX_ITEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/index/index_table.h"

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

#endif
