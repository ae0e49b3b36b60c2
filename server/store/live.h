/* live.h - how much of each segment is live: the index items that point into it, and the bytes of their entries. For
 * the clean role to choose by, and to know that nothing leads to a segment any more. And how many of the items lead to tombstones.
 *
 * A word and a count a segment, 12 B of DRAM. Whoever changes an index item adds to the words of the segments that it leads to and
 * led to, once the item is changed. So items are exact, but for a moment: who has taken all items of a segment away sees
 * 0 at last. Bytes follow from lengths as they stand in PM: damage there makes them wrong, not the items.
 */
#ifndef SERVER_LIVE_H
#define SERVER_LIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/entry/entry.h"
#include "common/pm/pm.h"
#include "server/store/store.h"

struct live {
    const struct pm *pm;
    uint64_t start; /* of the segments in the map */
    struct entry_format format;
    uint32_t one_block;      /* bytes of key and value that an entry of one block has at most */
    _Atomic uint64_t *words; /* by segment: items, then strides of 64 B above LIVE_NO_STRIDES */
    _Atomic uint32_t *tombstones; /* by segment: of the items, those that lead to one */
};

enum { LIVE_ITEM_SHIFT = 36 };
#define LIVE_ITEM (UINT64_C(1) << LIVE_ITEM_SHIFT)
#define LIVE_NO_STRIDES                                                                            \
    (UINT64_C(1) << (LIVE_ITEM_SHIFT - 1)) /* so that no damage borrows an item */

/* Bytes of the entry at `offset`, as far as its lengths can be right. */
static inline uint32_t live_entry_bytes(const struct live *live, uint64_t offset)
{
    uint32_t lengths;
    memcpy(&lengths, (const uint8_t *)pm_at(live->pm, offset) + ENTRY_LENGTHS_AT, sizeof lengths);
    const uint32_t key_bytes = lengths & ENTRY_KEY_MASK, value_bytes = lengths >> ENTRY_KEY_BITS;
    const uint32_t payload = key_bytes + value_bytes; /* of 11 and 21 bits */
    if (payload <= live->one_block)
        return entry_padded(ENTRY_HEADER_BYTES + payload);
    if (key_bytes > ENTRY_MAX_KEY_BYTES || value_bytes > ENTRY_MAX_VALUE_BYTES)
        return ENTRY_ALIGN;
    return entry_bytes(&live->format, key_bytes, value_bytes);
}

static inline bool live_is_tombstone(const struct live *live, uint64_t offset)
{
    uint16_t head;
    memcpy(&head, pm_at(live->pm, offset), sizeof head);
    return head == ENTRY_DELETE << 8;
}

static inline uint64_t live_segment(const struct live *live, uint64_t offset)
{
    return (offset - live->start) / STORE_SEGMENT_BYTES;
}

/* An index item leads to the entry at `offset`, or (-1) no longer does. */
static inline void live_change(const struct live *live, uint64_t offset, int items)
{
    const uint64_t segment = live_segment(live, offset);
    const uint64_t word = LIVE_ITEM + live_entry_bytes(live, offset) / ENTRY_ALIGN;
    atomic_fetch_add_explicit(&live->words[segment], items < 0 ? -word : word,
                              memory_order_relaxed);
    if (live_is_tombstone(live, offset))
        atomic_fetch_add_explicit(&live->tombstones[segment], (uint32_t)items,
                                  memory_order_relaxed);
}

/* live_removed: the index item that led to the entry at `offset` is gone. Any thread. */
static inline void live_removed(const struct live *live, uint64_t offset)
{
    live_change(live, offset, -1);
}

/* live_indexed: an index item leads to the entry at `offset` now, and no longer to `previous`; 0: it is new. Any
 * thread. */
static inline void live_indexed(const struct live *live, uint64_t offset, uint64_t previous)
{
    live_change(live, offset, 1);
    if (previous)
        live_change(live, previous, -1);
}

/* live_restored: so many index items lead into the segment, to entries of so many strides and to no tombstone. */
static inline void live_restored(const struct live *live, uint64_t segment, uint64_t items,
                                 uint64_t strides)
{
    atomic_fetch_add_explicit(&live->words[segment], items * LIVE_ITEM + strides,
                              memory_order_relaxed);
}

/* live_kept: bytes that no item leads to, and that are needed nevertheless. They count until the segment is cleaned. */
static inline void live_kept(const struct live *live, uint64_t offset, uint32_t bytes)
{
    atomic_fetch_add_explicit(&live->words[live_segment(live, offset)], bytes / ENTRY_ALIGN,
                              memory_order_relaxed);
}

static inline uint64_t live_items(const struct live *live, uint64_t segment)
{
    return atomic_load_explicit(&live->words[segment], memory_order_relaxed) >> LIVE_ITEM_SHIFT;
}

/* Wrong where the medium is damaged, as bytes are. */
static inline uint64_t live_tombstones(const struct live *live, uint64_t segment)
{
    const uint32_t count = atomic_load_explicit(&live->tombstones[segment], memory_order_relaxed);
    return count <= INT32_MAX ? count : 0;
}

/* At most a segment's. */
static inline uint64_t live_bytes(const struct live *live, uint64_t segment)
{
    const uint64_t strides =
        atomic_load_explicit(&live->words[segment], memory_order_relaxed) & (LIVE_ITEM - 1);
    const uint64_t bytes =
        strides > LIVE_NO_STRIDES ? (strides - LIVE_NO_STRIDES) * ENTRY_ALIGN : 0;
    return bytes < STORE_SEGMENT_BYTES ? bytes : STORE_SEGMENT_BYTES;
}

/* The segment begins a new life. */
static inline void live_clear(const struct live *live, uint64_t segment)
{
    atomic_store_explicit(&live->words[segment], LIVE_NO_STRIDES, memory_order_relaxed);
    atomic_store_explicit(&live->tombstones[segment], 0, memory_order_relaxed);
}

#endif
