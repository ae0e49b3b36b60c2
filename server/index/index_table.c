/* The memory of an index. Primary buckets lie in chunks that a directory of two levels finds; both
 * are allocated when the first bucket in them is needed. Overflow buckets come from smaller chunks
 * and go back to a list of spare ones, never to the allocator.
 *
 * Invariants:
 *  table-1 A chunk, once allocated, keeps its address until the table ends.
 *  table-2 A spare bucket has no items, and its link has the mark INDEX_LINK_SPARE.
 *  table-3 `bytes` counts all memory the table holds, and does not exceed the limit set before.
 */
#include "server/index/index_table.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

#define CHUNK_BYTES (INDEX_CHUNK_BUCKETS * sizeof(struct index_bucket))
enum { OVERFLOW_BYTES = INDEX_OVERFLOW_BUCKETS * (int)sizeof(struct index_bucket) };

static void *memory_take(struct index_table *table, size_t bytes)
{
    uint64_t held = atomic_load_explicit(&table->bytes, memory_order_relaxed);
    if (held + bytes > table->limit_bytes)
        return NULL; /* table-3 */
    void *memory = aligned_alloc(_Alignof(struct index_bucket), bytes);
    if (!memory)
        return NULL;
    memset(memory, 0, bytes);
    atomic_store_explicit(&table->bytes, held + bytes, memory_order_relaxed);
    return memory;
}

void index_table_init(struct index_table *table)
{
    memset(table, 0, sizeof(*table));
    atomic_init(&table->bytes, sizeof(*table));
    table->limit_bytes = UINT64_MAX;
}

void index_table_fini(struct index_table *table)
{
    for (unsigned i = 0; i < INDEX_LEAVES; i++) {
        struct index_leaf *leaf = atomic_load_explicit(&table->leaves[i], memory_order_relaxed);
        for (unsigned j = 0; leaf && j < INDEX_LEAF_CHUNKS; j++)
            free(atomic_load_explicit(&leaf->chunks[j], memory_order_relaxed));
        free(leaf);
    }
    while (table->overflow_chunks) {
        struct index_bucket *chunk = table->overflow_chunks;
        table->overflow_chunks = index_bucket_next(chunk);
        free(chunk);
    }
}

bool index_table_reserve(struct index_table *table, uint64_t number)
{
    if (number >= INDEX_MAX_BUCKETS)
        return false;
    uint64_t chunk = number / INDEX_CHUNK_BUCKETS;
    _Atomic(struct index_leaf *) *top = &table->leaves[chunk / INDEX_LEAF_CHUNKS];
    struct index_leaf *leaf = atomic_load_explicit(top, memory_order_relaxed);
    if (!leaf) {
        leaf = memory_take(table, sizeof(*leaf));
        if (!leaf)
            return false;
        atomic_store_explicit(top, leaf, memory_order_release);
    }
    _Atomic(struct index_bucket *) *place = &leaf->chunks[chunk % INDEX_LEAF_CHUNKS];
    if (atomic_load_explicit(place, memory_order_relaxed))
        return true;
    struct index_bucket *buckets = memory_take(table, CHUNK_BYTES);
    if (!buckets)
        return false;
    atomic_store_explicit(place, buckets, memory_order_release);
    return true;
}

static void spare_push(struct index_table *table, struct index_bucket *bucket)
{
    uint64_t link = (uint64_t)(uintptr_t)table->spare | INDEX_LINK_SPARE;
    atomic_store_explicit(&bucket->link, link, memory_order_release); /* table-2 */
    table->spare = bucket;
    table->spares++;
}

bool index_table_reserve_overflow(struct index_table *table, uint64_t count)
{
    while (table->spares < count) {
        struct index_bucket *chunk = memory_take(table, OVERFLOW_BYTES);
        if (!chunk)
            return false;
        uint64_t next = (uint64_t)(uintptr_t)table->overflow_chunks;
        atomic_store_explicit(&chunk->link, next, memory_order_relaxed);
        table->overflow_chunks = chunk;
        for (unsigned i = INDEX_OVERFLOW_BUCKETS - 1; i > 0; i--)
            spare_push(table, &chunk[i]);
    }
    return true;
}

struct index_bucket *index_table_take(struct index_table *table)
{
    struct index_bucket *bucket = table->spare;
    ASSERT(bucket && table->spares > 0);
    uint64_t link = atomic_load_explicit(&bucket->link, memory_order_relaxed);
    ASSERT(link & INDEX_LINK_SPARE); /* table-2 */
    table->spare = (struct index_bucket *)(uintptr_t)(link & ~(uint64_t)INDEX_LINK_SPARE);
    table->spares--;
    atomic_store_explicit(&bucket->link, 0, memory_order_release);
    return bucket;
}

void index_table_give(struct index_table *table, struct index_bucket *bucket)
{
    for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++)
        atomic_store_explicit(&bucket->items[i], 0, memory_order_release);
    spare_push(table, bucket);
}
