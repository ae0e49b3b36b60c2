/* The hash index of one shard: a linear hash table (Litwin 1980) of cache-line buckets, with one
 * writer and lock-free readers. Bucket memory is index_table.c's; here are items, lookups, and the
 * order of stores that lets readers go on while a bucket is split.
 *
 * With n buckets and p the largest power of two in n, a hash belongs to bucket (hash mod 2p), or
 * (hash mod p) if there is no such bucket yet. The next split parts bucket n - p, the source, by
 * one more bit of the hash between itself and bucket n, the target. A bucket's level is the number
 * of low hash bits that lead to it: log2(p) + 1 for the buckets already split in this round and
 * their targets, log2(p) for the others.
 *
 * An item is 64 bits: tag (16, the top of the hash) | offset (48, its low 6 bits are 0 as entries
 * are 64 B-aligned) + window (6, in their place). The window holds the hash bits from
 * level / 6 * 6 on, so it has the bit that the next split of the bucket asks for. Only a split from
 * level 6i + 5 to 6i + 6 uses the window up: it reads the keys from PM and hashes them anew.
 *
 * Invariants:
 *  I1 An item is 0 or has an offset that is not 0; its tag is that of its key's hash; its window
 *     holds hash bits [level / 6 * 6, + 6) for the level of the bucket whose chain it is in.
 *  I2 Outside a split, a key has at most one item. Inside, it may have two, with one offset.
 *  I3 Removal comes last: an item is taken from a place only after the copy that replaces it was
 *     published, and after `step` was raised.
 *  I4 `step` is 2n at rest, 2n + 1 between publishing bucket n and thinning out its source's chain
 *     (readers count n + 1 buckets then); it only rises.
 *  I5 `chain_limit` is at least the number of buckets of every chain.
 *  I6 While a swap, a removal or a dump is under way no split is, and the other way round (`gate`).
 *  I7 A place is emptied by index_remove only while `removals` is odd, and filled again by the owner alone, who has seen
 *     the empty place and so the higher number. So the place of a hint that was confirmed at an even number is that of the
 *     hint's key, or empty, as long as the owner sees that number.
 *
 * Why a lookup is right. A hit needs no check: the key was compared in PM, and an item that a
 * reader meets in a bucket that has left its chain was its key's item when the reader looked
 * (places are zeroed before the owner changes anything else). A miss can be wrong only if an item
 * was moved while the reader walked; then the reader, having seen the removal, also sees the
 * raised step (I3), and walks again if a split between the two steps had its bucket as the source.
 * That happens at most twice in each of the 18 doublings of the table, so no lookup walks more than
 * 37 times; in practice once. A walk ends after `chain_limit` buckets, should it stray into another
 * chain. A key that index_remove took is not there, whatever the reader says of it meanwhile.
 */
#include "server/index/index.h"

#include <stdatomic.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "server/index/index_state.h"

enum {
    /* A split is due when items exceed 11/2 of the buckets: then a tenth of the space of primary
     * buckets is overflow when a round begins and a fifth in its middle, 13.9 to 14.6 B an item. */
    LOAD_ITEMS = 11,
    LOAD_BUCKETS = 2,
    SPLITS_PER_INSERT = 2, /* one keeps pace; two catch up after splits had to wait */
};

uint64_t index_hash(const void *key, uint32_t key_bytes)
{
    return XXH3_64bits(key, key_bytes);
}

/* --- items --- */

static inline __attribute__((always_inline)) bool
item_has_key(const struct index *index, uint64_t item, const void *key, uint32_t key_bytes)
{
    return entry_key_equals(index->format, pm_at(index->pm, item_offset(item)), key, key_bytes);
}

/* The hash of the item's key, from PM. */
static uint64_t item_hash(const struct index *index, uint64_t item)
{
    uint8_t key[ENTRY_MAX_KEY_BYTES];
    uint32_t key_bytes = entry_key(index->format, pm_at(index->pm, item_offset(item)), key);
    return index_hash(key, key_bytes);
}

/* --- life --- */

int index_create(const struct pm *pm, const struct entry_format *format, struct index **out)
{
    struct index *index = aligned_alloc(_Alignof(struct index), sizeof(*index));
    if (!index)
        return ROWAN_ENOMEM;
    index_table_init(&index->table);
    if (!index_table_reserve(&index->table, 0)) {
        index_table_fini(&index->table);
        free(index);
        return ROWAN_ENOMEM;
    }
    index->pm = pm;
    index->format = format;
    atomic_init(&index->step, 2 * (uint64_t)INDEX_CHUNK_BUCKETS);
    atomic_init(&index->items, 0);
    atomic_init(&index->chain_limit, 1);
    atomic_init(&index->gate, 0);
    atomic_init(&index->removals, 0);
    *out = index;
    return 0;
}

void index_destroy(struct index *index)
{
    if (!index)
        return;
    index_table_fini(&index->table);
    free(index);
}

void index_limit(struct index *index, uint64_t bytes)
{
    uint64_t own = sizeof(*index) - sizeof(index->table);
    index->table.limit_bytes = bytes > own ? bytes - own : 0;
}

uint64_t index_items(const struct index *index)
{
    return atomic_load_explicit(&index->items, memory_order_relaxed);
}

uint64_t index_bytes(const struct index *index)
{
    return atomic_load_explicit(&index->table.bytes, memory_order_relaxed) + sizeof(*index) -
           sizeof(index->table);
}

/* --- readers --- */

static struct index_bucket *bucket_at_step(const struct index *index, uint64_t hash, uint64_t step)
{
    return index_table_bucket(&index->table, hash_bucket(hash, step_buckets(step)));
}

const struct index_bucket *index_prefetch(const struct index *index, uint64_t hash)
{
    uint64_t step = atomic_load_explicit(&index->step, memory_order_acquire);
    const struct index_bucket *bucket = bucket_at_step(index, hash, step);
    __builtin_prefetch(bucket);
    return bucket;
}

struct index_hint index_prefetch_entry(const struct index *index, const struct index_bucket *bucket,
                                       uint64_t hash)
{
    for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++) {
        uint64_t item = item_load(bucket, i);
        if (item_has_tag(item, hash)) {
            const char *entry = pm_at(index->pm, item_offset(item));
            __builtin_prefetch(entry);
            __builtin_prefetch(entry + ENTRY_ALIGN); /* most keys end in the second line */
            return (struct index_hint){.place = (_Atomic uint64_t *)(uintptr_t)&bucket->items[i]};
        }
    }
    __builtin_prefetch(index_bucket_next(bucket));
    return (struct index_hint){0};
}

/* The item at the hinted place if it is the key's, else 0. A place outlives its bucket's stay in a chain (T1), but an
 * item in it is always one of a key that is in the index, and outside a split the only one (I2, I3). */
static inline uint64_t item_hinted(const struct index *index, struct index_hint hint, uint64_t hash,
                                   const void *key, uint32_t key_bytes)
{
    if (!hint.place)
        return 0;
    uint64_t item = atomic_load_explicit(hint.place, memory_order_acquire);
    return item_has_tag(item, hash) && item_has_key(index, item, key, key_bytes) ? item : 0;
}

/* What a place that was found now stays good for: neither a split (I3) nor a removal (I7) has come since. */
static inline uint64_t moment(const struct index *index)
{
    const uint64_t removals = atomic_load_explicit(&index->removals, memory_order_acquire);
    return removals << 32 | (uint32_t)atomic_load_explicit(&index->step, memory_order_acquire);
}

bool index_confirm(const struct index *index, struct index_hint *hint, uint64_t hash,
                   const void *key, uint32_t key_bytes)
{
    const uint64_t now = moment(index);
    if (now >> 32 & 1 || !item_hinted(index, *hint, hash, key, key_bytes))
        return false;
    hint->moment = now;
    return true;
}

static bool item_is_damaged(const struct index *index, uint64_t item)
{
    uint64_t offset = item_offset(item);
    return entry_verify(index->format, pm_at(index->pm, offset), index->pm->bytes - offset, NULL);
}

/* *damaged is set to an entry of the same tag that is damaged, if one was met: it may have been the
 * key's. Two keys rarely share a tag, so that the checksum is rarely looked at. */
static uint64_t chain_find(const struct index *index, const struct index_bucket *bucket,
                           uint64_t hash, const void *key, uint32_t key_bytes, uint64_t *damaged)
{
    uint32_t left = atomic_load_explicit(&index->chain_limit, memory_order_relaxed);
    for (; bucket && left > 0; bucket = index_bucket_next(bucket), left--)
        for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++) {
            uint64_t item = item_load(bucket, i);
            if (!item_has_tag(item, hash))
                continue;
            if (item_has_key(index, item, key, key_bytes))
                return item_offset(item);
            if (item_is_damaged(index, item))
                *damaged = item_offset(item);
        }
    return 0;
}

uint64_t index_find(const struct index *index, uint64_t hash, const void *key, uint32_t key_bytes)
{
    uint64_t before = atomic_load_explicit(&index->step, memory_order_acquire);
    for (;;) {
        const struct index_bucket *bucket = bucket_at_step(index, hash, before);
        uint64_t damaged = 0;
        uint64_t offset = chain_find(index, bucket, hash, key, key_bytes, &damaged);
        if (offset)
            return offset;
        uint64_t after = atomic_load_explicit(&index->step, memory_order_acquire);
        if (!bucket_was_split(hash_bucket(hash, step_buckets(before)), before, after))
            return damaged;
        before = after;
    }
}

uint64_t index_find_hinted(const struct index *index, struct index_hint hint, uint64_t hash,
                           const void *key, uint32_t key_bytes)
{
    uint64_t item = item_hinted(index, hint, hash, key, key_bytes);
    return item ? item_offset(item) : index_find(index, hash, key, key_bytes);
}

static void chain_visit(const struct index *index, const struct index_bucket *bucket,
                        void (*visit)(void *context, uint64_t offset), void *context)
{
    uint32_t left = atomic_load_explicit(&index->chain_limit, memory_order_relaxed);
    for (; bucket && left > 0; bucket = index_bucket_next(bucket), left--)
        for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++) {
            uint64_t item = item_load(bucket, i);
            if (item != 0)
                visit(context, item_offset(item));
        }
}

bool index_walk(const struct index *index, uint64_t *cursor, uint32_t max,
                void (*visit)(void *context, uint64_t offset), void *context)
{
    uint64_t before = atomic_load_explicit(&index->step, memory_order_acquire);
    for (uint32_t visited = 0; visited < max && *cursor < step_buckets(before); visited++) {
        /* An item that a split moves is met in the target, which is still ahead, or here again. */
        chain_visit(index, index_table_bucket(&index->table, *cursor), visit, context);
        uint64_t after = atomic_load_explicit(&index->step, memory_order_acquire);
        if (!bucket_was_split(*cursor, before, after))
            (*cursor)++;
        before = after;
    }
    return *cursor < step_buckets(before);
}

/* --- swaps --- */

/* 0 as the new offset: the item goes. Inside the gate. */
static int swap(struct index *index, uint64_t hash, uint64_t old_offset, uint64_t new_offset)
{
    int swapped = 0;
    uint64_t step = atomic_load_explicit(&index->step, memory_order_acquire);
    struct index_bucket *bucket = bucket_at_step(index, hash, step);
    for (; bucket && !swapped; bucket = index_bucket_next(bucket))
        for (unsigned i = 0; i < INDEX_BUCKET_ITEMS && !swapped; i++) {
            uint64_t item = item_load(bucket, i);
            if (item_offset(item) == old_offset)
                swapped = atomic_compare_exchange_strong_explicit(
                    &bucket->items[i], &item, new_offset ? item_with_offset(item, new_offset) : 0,
                    memory_order_acq_rel, memory_order_relaxed);
        }
    return swapped;
}

int index_swap(struct index *index, uint64_t hash, uint64_t old_offset, uint64_t new_offset)
{
    ASSERT(offset_is_valid(old_offset) && offset_is_valid(new_offset));
    if (!index_gate_enter(index))
        return ROWAN_EAGAIN;
    const int swapped = swap(index, hash, old_offset, new_offset);
    index_gate_leave(index);
    return swapped;
}

int index_remove(struct index *index, uint64_t hash, uint64_t offset)
{
    ASSERT(offset_is_valid(offset));
    if (!index_gate_enter(index))
        return ROWAN_EAGAIN;
    atomic_fetch_add_explicit(&index->removals, 1, memory_order_acq_rel);
    const int removed = swap(index, hash, offset, 0);
    if (removed)
        atomic_fetch_sub_explicit(&index->items, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&index->removals, 1, memory_order_release);
    index_gate_leave(index);
    return removed;
}

/* --- splits --- */

struct split {
    uint64_t buckets; /* before; also the target's number */
    struct index_bucket *source, *target;
    unsigned level; /* of the source, before */
    uint32_t stay;  /* items */
    uint32_t move;
};

static uint32_t chain_buckets(uint32_t items)
{
    return items == 0 ? 1 : (items + INDEX_BUCKET_ITEMS - 1) / INDEX_BUCKET_ITEMS;
}

static bool split_moves(const struct split *split, uint64_t item)
{
    return item >> split->level % WINDOW_BITS & 1; /* I1 */
}

static bool split_ends_window(const struct split *split)
{
    return (split->level + 1) % WINDOW_BITS == 0;
}

/* The item as I1 wants it at the level after the split. Should PM no longer hold the key that was
 * hashed, the window is wrong; that does no more harm, as no lookup will match the key again. */
static uint64_t split_item(const struct index *index, const struct split *split, uint64_t item)
{
    if (!split_ends_window(split))
        return item;
    return (item & ~WINDOW_MASK) | hash_window(item_hash(index, item), split->level + 1);
}

/* Plans the split and reserves its memory. */
static bool split_prepare(struct index *index, struct split *split)
{
    split->buckets = step_buckets(atomic_load_explicit(&index->step, memory_order_relaxed));
    uint64_t number = split->buckets - power_below(split->buckets);
    if (!index_table_reserve(&index->table, split->buckets))
        return false;
    split->source = index_table_bucket(&index->table, number);
    split->target = index_table_bucket(&index->table, split->buckets);
    split->level = bucket_level(number, split->buckets);
    split->stay = split->move = 0;
    for (struct index_bucket *b = split->source; b; b = index_bucket_next(b))
        for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++) {
            uint64_t item = item_load(b, i);
            if (item == 0)
                continue;
            if (split_moves(split, item))
                split->move++;
            else
                split->stay++;
            if (split_ends_window(split))
                __builtin_prefetch(pm_at(index->pm, item_offset(item)));
        }
    return index_table_reserve_overflow(&index->table, chain_buckets(split->move) - 1);
}

/* Copies the items that move to the target's chain, which no reader sees yet. */
static void split_copy(struct index *index, struct split *split)
{
    struct index_bucket *into = split->target;
    unsigned place = 0;
    for (struct index_bucket *b = split->source; b; b = index_bucket_next(b))
        for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++) {
            uint64_t item = item_load(b, i);
            if (item == 0 || !split_moves(split, item))
                continue;
            if (place == INDEX_BUCKET_ITEMS) {
                struct index_bucket *next = index_table_take(&index->table);
                atomic_store_explicit(&into->link, (uint64_t)(uintptr_t)next, memory_order_release);
                into = next;
                place = 0;
            }
            item_store(into, place++, split_item(index, split, item));
        }
}

/* Removes the items that moved, and renews the windows of those that stay. */
static void split_remove(struct index *index, struct split *split)
{
    for (struct index_bucket *b = split->source; b; b = index_bucket_next(b))
        for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++) {
            uint64_t item = item_load(b, i);
            if (item == 0)
                continue;
            if (split_moves(split, item))
                item_store(b, i, 0);
            else if (split_ends_window(split))
                item_store(b, i, split_item(index, split, item));
        }
}

/* Copies the items of the chain that begins at `extra` to empty places from `into` on. */
static void chain_copy(struct index_bucket *into, const struct index_bucket *extra)
{
    unsigned place = 0;
    for (; extra; extra = index_bucket_next(extra))
        for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++) {
            uint64_t item = item_load(extra, i);
            if (item == 0)
                continue;
            while (item_load(into, place) != 0)
                if (++place == INDEX_BUCKET_ITEMS) {
                    into = index_bucket_next(into);
                    place = 0;
                }
            item_store(into, place, item);
        }
}

/* One split, or none if there is no memory or a swap is under way: a later insert tries again. */
static bool split_next(struct index *index)
{
    uint32_t open = 0;
    if (FAULT(LATE_SPLIT))
        return false;
    if (!atomic_compare_exchange_strong_explicit(&index->gate, &open, INDEX_GATE_SPLIT,
                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    struct split split;
    bool ready = split_prepare(index, &split);
    if (ready) {
        split_copy(index, &split);
        atomic_store_explicit(&index->step, 2 * split.buckets + 1, memory_order_release);
        split_remove(index, &split);

        struct index_bucket *last = split.source;
        for (uint32_t i = 1; i < chain_buckets(split.stay); i++)
            last = index_bucket_next(last);
        struct index_bucket *extra = index_bucket_next(last);
        chain_copy(split.source, extra);
        atomic_store_explicit(&index->step, 2 * split.buckets + 2, memory_order_release);
        atomic_store_explicit(&last->link, 0, memory_order_release);
        while (extra) {
            struct index_bucket *next = index_bucket_next(extra);
            index_table_give(&index->table, extra);
            extra = next;
        }
    }
    atomic_store_explicit(&index->gate, 0, memory_order_release);
    return ready;
}

/* --- the owner --- */

/* What a look at a key's chain found. */
struct chain_look {
    struct index_bucket *bucket; /* of the key's item, else of the first empty place, else NULL */
    unsigned place;
    bool found;
    struct index_bucket *last; /* of the chain, if the key was not found */
    uint32_t buckets;          /* likewise */
};

static struct chain_look chain_look(const struct index *index, struct index_bucket *bucket,
                                    uint64_t hash, const void *key, uint32_t key_bytes)
{
    struct chain_look look = {0};
    for (; bucket; bucket = index_bucket_next(bucket)) {
        for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++) {
            uint64_t item = item_load(bucket, i);
            if (item == 0 && !look.bucket) {
                look.bucket = bucket;
                look.place = i;
            } else if (item_has_tag(item, hash) && item_has_key(index, item, key, key_bytes)) {
                return (struct chain_look){.bucket = bucket, .place = i, .found = true};
            }
        }
        look.last = bucket;
        look.buckets++;
    }
    return look;
}

/* ROWAN_ENOTFOUND: the item was removed. */
static inline int item_replace(struct index *index, _Atomic uint64_t *place, uint64_t item,
                               uint64_t version, uint64_t offset, uint64_t *previous)
{
    if (item == 0)
        return ROWAN_ENOTFOUND;
    if (entry_version(pm_at(index->pm, item_offset(item))) >= version)
        return INDEX_OLDER;
    /* Only a swap can come between, and it keeps key and version; or a removal. */
    while (!atomic_compare_exchange_strong_explicit(place, &item, item_with_offset(item, offset),
                                                    memory_order_acq_rel, memory_order_acquire)) {
        if (item == 0)
            return ROWAN_ENOTFOUND;
    }
    *previous = item_offset(item);
    return INDEX_REPLACED;
}

static int item_insert(struct index *index, const struct chain_look *look, uint64_t item)
{
    if (look->bucket) {
        item_store(look->bucket, look->place, item);
        return 0;
    }
    if (!index_table_reserve_overflow(&index->table, 1))
        return ROWAN_ENOMEM;
    uint32_t limit = atomic_load_explicit(&index->chain_limit, memory_order_relaxed);
    if (look->buckets + 1 > limit) /* I5 */
        atomic_store_explicit(&index->chain_limit, look->buckets + 1, memory_order_relaxed);
    struct index_bucket *bucket = index_table_take(&index->table);
    item_store(bucket, 0, item);
    atomic_store_explicit(&look->last->link, (uint64_t)(uintptr_t)bucket, memory_order_release);
    return 0;
}

int index_update(struct index *index, uint64_t hash, const void *key, uint32_t key_bytes,
                 uint64_t version, uint64_t offset, uint64_t *previous)
{
    ASSERT(offset_is_valid(offset));
    uint64_t buckets = step_buckets(atomic_load_explicit(&index->step, memory_order_relaxed));
    uint64_t number = hash_bucket(hash, buckets);
    struct index_bucket *bucket = index_table_bucket(&index->table, number);
    *previous = 0;
    struct chain_look look = chain_look(index, bucket, hash, key, key_bytes);
    if (look.found) {
        const int replaced =
            item_replace(index, &look.bucket->items[look.place], item_load(look.bucket, look.place),
                         version, offset, previous);
        if (replaced != ROWAN_ENOTFOUND)
            return replaced;
        look.found = false; /* its place is empty now, and nobody else fills it */
    }

    int error = item_insert(index, &look, item_make(hash, offset, bucket_level(number, buckets)));
    if (error)
        return error;
    uint64_t items = atomic_fetch_add_explicit(&index->items, 1, memory_order_relaxed) + 1;
    for (unsigned i = 0; i < SPLITS_PER_INSERT && items * LOAD_BUCKETS > buckets * LOAD_ITEMS;
         i++) {
        if (!split_next(index))
            break;
        buckets++;
    }
    return INDEX_INSERTED;
}

/* A key stays at its place as long as no split begins (I3), and none is removed (I7). */
int index_update_hinted(struct index *index, struct index_hint hint, uint64_t hash, const void *key,
                        uint32_t key_bytes, uint64_t version, uint64_t offset, uint64_t *previous)
{
    uint64_t item = hint.moment == moment(index)
                        ? atomic_load_explicit(hint.place, memory_order_acquire)
                        : item_hinted(index, hint, hash, key, key_bytes);
    if (!item)
        return index_update(index, hash, key, key_bytes, version, offset, previous);
    ASSERT(offset_is_valid(offset));
    *previous = 0;
    const int replaced = item_replace(index, hint.place, item, version, offset, previous);
    if (replaced == ROWAN_ENOTFOUND)
        return index_update(index, hash, key, key_bytes, version, offset, previous);
    return replaced;
}
