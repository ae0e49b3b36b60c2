/* index.h - the DRAM hash index of one shard: from a key to the newest entry this server shows.
 *
 * 64 B buckets of 64-bit items, each a 16-bit tag and an offset of an entry in PM (48 bits; entries
 * are 64 B-aligned, so its low 6 bits are free and hold the next hash bits, see index.c). Overflow
 * buckets are chained. The table grows bucket by bucket (linear hashing, Litwin 1980), never in one
 * stop, and costs at most 16 B an object at every size over a million.
 *
 * THREADS. One owner inserts and grows. Any thread may look up and walk, without locks, while the
 * owner works. Anybody may swap an item's offset by compare-and-set (the cleaner), provided that at
 * most one thread at a time swaps a given old offset (a segment has one cleaner). One thread beside the owner may remove
 * items.
 *
 * A deleted key's item points to its tombstone, until that goes.
 */
#ifndef SERVER_INDEX_H
#define SERVER_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/entry/entry.h"
#include "common/pm/pm.h"

struct index;
struct index_bucket;

/* The hash every caller passes: XXH3_64bits of the whole key. */
uint64_t index_hash(const void *key, uint32_t key_bytes);

/* `pm` and `format` outlive the index. Errors: ROWAN_ENOMEM. */
int index_create(const struct pm *pm, const struct entry_format *format, struct index **out);
/* No reader may be left. NULL is fine. */
void index_destroy(struct index *index);

/* Where a key's item may be, as one stage of a walk through a batch tells the next. It never makes an answer wrong,
 * however old it is: the item there is looked at anew. */
struct index_hint {
    _Atomic uint64_t *place; /* of the item; NULL: nothing is known */
    uint64_t moment; /* of the index, when the key was found there; 0: it was not looked at */
};

/* So that cache misses of a batch overlap. index_prefetch: the key's bucket; index_prefetch_entry: what the item
 * points to that may be the key's, where the bucket has one. Any thread. */
const struct index_bucket *index_prefetch(const struct index *index, uint64_t hash);
struct index_hint index_prefetch_entry(const struct index *index, const struct index_bucket *bucket,
                                       uint64_t hash);

/* index_find: the offset of the key's entry (a put or a tombstone), or 0. Any thread. Where there is
 * none, but a damaged entry that may have been the key's, it is that one's: a caller that checks the
 * checksum says "damaged" and not "not found". */
uint64_t index_find(const struct index *index, uint64_t hash, const void *key, uint32_t key_bytes);

/* The same, given a hint. */
uint64_t index_find_hinted(const struct index *index, struct index_hint hint, uint64_t hash,
                           const void *key, uint32_t key_bytes);

/* index_confirm: is the key in the index, and the hint good? Then the owner's index_update_hinted need not compare
 * the key again, unless the index grows meanwhile. Any thread. */
bool index_confirm(const struct index *index, struct index_hint *hint, uint64_t hash,
                   const void *key, uint32_t key_bytes);

enum index_update { INDEX_INSERTED, INDEX_REPLACED, INDEX_OLDER };

/* index_update: makes the entry at `offset`, whose key and version are given, the key's newest, if
 * the one indexed has a lower version; with an equal or higher one nothing changes (INDEX_OLDER).
 * *previous is the offset that was replaced, else 0. Owner only. Errors: ROWAN_ENOMEM, and nothing
 * changed. On return the entry is visible to every reader. */
int index_update(struct index *index, uint64_t hash, const void *key, uint32_t key_bytes,
                 uint64_t version, uint64_t offset, uint64_t *previous);

/* The same, given a hint. */
int index_update_hinted(struct index *index, struct index_hint hint, uint64_t hash, const void *key,
                        uint32_t key_bytes, uint64_t version, uint64_t offset, uint64_t *previous);

/* index_swap: replaces `old_offset` by `new_offset`, an entry of the same key and version, if it is
 * still there. Returns 1 if it was replaced, 0 if it was no longer there, ROWAN_EAGAIN if the owner
 * is just growing the table: ask again after polling. On 0 and 1 no later lookup finds
 * `old_offset`. Any thread; never blocks the owner. */
int index_swap(struct index *index, uint64_t hash, uint64_t old_offset, uint64_t new_offset);

/* index_remove: takes the item that leads to `offset` out of the index, if it is still there; its key has none then.
 * Returns 1 if it was removed, else as index_swap. One thread at a time; never blocks the owner. On return no later lookup
 * finds the key, unless its owner has put it there again. */
int index_remove(struct index *index, uint64_t hash, uint64_t offset);

/* index_walk: visits up to `max` buckets from *cursor (0 at first) and calls `visit` with the
 * offset of each item. Returns false when all buckets were visited. While the table grows a walk
 * may see an item twice. Any thread. */
bool index_walk(const struct index *index, uint64_t *cursor, uint32_t max,
                void (*visit)(void *context, uint64_t offset), void *context);

/* index_dump_begin: from now on until index_dump_end the index does not grow (inserting goes on). *buckets is its number of
 * buckets. False: it is just growing, ask again. One thread beside the owner. */
bool index_dump_begin(struct index *index, uint64_t *buckets);
void index_dump_end(struct index *index);

/* index_dump: the items of that bucket, at most `max` of them; returns how many there are. An item is not 0, has its
 * entry's offset (index_item_offset), and means nothing but to index_restore_bucket. */
uint32_t index_dump(const struct index *index, uint64_t bucket, uint64_t *items, uint32_t max);
uint64_t index_item_offset(uint64_t item);

/* index_restore: makes an empty index one of so many buckets (index_can_restore). index_restore_bucket: gives a
 * bucket of it items, some or all of those that a dump of an index with as many buckets told of it, of keys that the index
 * does not have. Owner only. Errors: ROWAN_ENOMEM. */
bool index_can_restore(uint64_t buckets);
int index_restore(struct index *index, uint64_t buckets);
int index_restore_bucket(struct index *index, uint64_t number, const uint64_t *items,
                         uint32_t count);

/* index_limit: from now on the index takes no memory beyond `bytes` in all (no limit at first).
 * What would need more answers ROWAN_ENOMEM; growing just waits. Owner only. */
void index_limit(struct index *index, uint64_t bytes);

/* Items (objects and tombstones), and the bytes of DRAM the index holds. Any thread. */
uint64_t index_items(const struct index *index);
uint64_t index_bytes(const struct index *index);

#endif
