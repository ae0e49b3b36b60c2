/* The items of an index as they are, for a checkpoint. A bucket's number and an item's bits say all that is known of its
 * key's hash, so they are right only in a table of as many buckets. While a dump is under way no bucket is split (I6), so
 * an item that nobody replaces or removes stays at its place and is met once; the others are met as they were before or
 * after that.
 */
#include "server/index/index_state.h"

#include "common/base/assert.h"
#include "common/base/error.h"

bool index_dump_begin(struct index *index, uint64_t *buckets)
{
    if (!index_gate_enter(index))
        return false;
    *buckets = step_buckets(atomic_load_explicit(&index->step, memory_order_acquire));
    return true;
}

void index_dump_end(struct index *index)
{
    index_gate_leave(index);
}

uint32_t index_dump(const struct index *index, uint64_t bucket, uint64_t *items, uint32_t max)
{
    uint32_t count = 0;
    for (const struct index_bucket *b = index_table_bucket(&index->table, bucket); b;
         b = index_bucket_next(b)) {
        for (unsigned i = 0; i < INDEX_BUCKET_ITEMS; i++) {
            const uint64_t item = item_load(b, i);
            if (item == 0)
                continue;
            if (count < max)
                items[count] = item;
            count++;
        }
    }
    return count;
}

uint64_t index_item_offset(uint64_t item)
{
    return item_offset(item);
}

bool index_can_restore(uint64_t buckets)
{
    return buckets >= INDEX_CHUNK_BUCKETS && buckets <= INDEX_MAX_BUCKETS;
}

int index_restore(struct index *index, uint64_t buckets)
{
    ASSERT(index_items(index) == 0 && index_can_restore(buckets));
    for (uint64_t number = 0; number < buckets; number += INDEX_CHUNK_BUCKETS) {
        if (!index_table_reserve(&index->table, number))
            return ROWAN_ENOMEM;
    }
    atomic_store_explicit(&index->step, 2 * buckets, memory_order_release); /* I4 */
    return 0;
}

int index_restore_bucket(struct index *index, uint64_t number, const uint64_t *items,
                         uint32_t count)
{
    ASSERT(number < step_buckets(atomic_load_explicit(&index->step, memory_order_relaxed)));
    struct index_bucket *bucket = index_table_bucket(&index->table, number);
    uint32_t chain = 1;
    unsigned place = 0;
    for (uint32_t i = 0; i < count;) {
        if (place < INDEX_BUCKET_ITEMS) {
            if (item_load(bucket, place) == 0)
                item_store(bucket, place, items[i++]);
            place++;
            continue;
        }
        struct index_bucket *next = index_bucket_next(bucket);
        if (!next) {
            if (!index_table_reserve_overflow(&index->table, 1))
                return ROWAN_ENOMEM;
            next = index_table_take(&index->table);
            atomic_store_explicit(&bucket->link, (uint64_t)(uintptr_t)next, memory_order_release);
        }
        bucket = next;
        place = 0;
        chain++;
    }
    if (chain > atomic_load_explicit(&index->chain_limit, memory_order_relaxed)) /* I5 */
        atomic_store_explicit(&index->chain_limit, chain, memory_order_relaxed);
    atomic_fetch_add_explicit(&index->items, count, memory_order_relaxed);
    return 0;
}
