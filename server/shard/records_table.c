/* Linear hashing over leaves of buckets, and items in aligned chunks.
 *
 *  1. Buckets 0 to `buckets` - 1 exist. A hash belongs to the bucket of its low bits (mask 2 mask + 1)
 *     or, where that does not exist yet, of one bit less (mask). So a split makes exactly the next bucket.
 *  2. There are as many buckets as items, unless memory failed, and at most twice as many, but not less than a
 *     leaf of them. Adding an item adds at most one bucket, removing one removes at most two.
 *  3. A chunk is in one of the two lists. At most one empty chunk is kept, so that a table that swings
 *     around a full chunk does not allocate each time.
 */
#include "server/shard/records_table.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/list.h"

struct records_chunk {
    struct {
        struct records_chunk *next, *prev;
    } place;
    struct records_item *free;
    uint32_t used;
};
_Static_assert(sizeof(struct records_chunk) <= RECORDS_CHUNK_HEAD_BYTES, "the items follow it");

void records_table_init(struct records_table *table, uint32_t item_bytes)
{
    *table = (struct records_table){.item_bytes = item_bytes};
}

static void free_chunks(struct records_chunks *chunks)
{
    struct records_chunk *chunk;
    while ((chunk = chunks->first)) {
        chunks->first = chunk->place.next;
        free(chunk);
    }
}

void records_table_fini(struct records_table *table)
{
    free_chunks(&table->with_free);
    free_chunks(&table->full);
    for (uint32_t i = 0; i < table->leaf_count; i++)
        free(table->leaves[i]);
    free(table->leaves);
    records_table_init(table, table->item_bytes);
}

uint64_t records_table_bytes(const struct records_table *table)
{
    return (uint64_t)table->chunks * RECORDS_CHUNK_BYTES +
           table->leaf_count * sizeof(struct records_leaf) +
           table->leaf_capacity * sizeof(struct records_leaf *);
}

/* --- chunks --- */

static bool chunk_add(struct records_table *table)
{
    void *memory;
    if (posix_memalign(&memory, RECORDS_CHUNK_ALIGN, RECORDS_CHUNK_BYTES))
        return false;
    struct records_chunk *chunk = memory;
    *chunk = (struct records_chunk){0};
    uint8_t *at = (uint8_t *)chunk + RECORDS_CHUNK_HEAD_BYTES;
    const uint32_t items = (RECORDS_CHUNK_BYTES - RECORDS_CHUNK_HEAD_BYTES) / table->item_bytes;
    for (uint32_t i = items; i-- > 0;) {
        struct records_item *item = (struct records_item *)(void *)(at + i * table->item_bytes);
        item->next = chunk->free;
        chunk->free = item;
    }
    LIST_APPEND(&table->with_free, chunk, place);
    table->chunks++;
    return true;
}

/* --- buckets --- */

static bool leaf_add(struct records_table *table)
{
    if (table->leaf_count == table->leaf_capacity) {
        uint32_t capacity = table->leaf_capacity ? 2 * table->leaf_capacity : 1;
        struct records_leaf **leaves = realloc(table->leaves, capacity * sizeof *leaves);
        if (!leaves)
            return false;
        table->leaves = leaves;
        table->leaf_capacity = capacity;
    }
    struct records_leaf *leaf = calloc(1, sizeof *leaf);
    if (!leaf)
        return false;
    table->leaves[table->leaf_count++] = leaf;
    return true;
}

static void leaf_drop(struct records_table *table)
{
    free(table->leaves[--table->leaf_count]);
    if (table->leaf_count >= table->leaf_capacity / 4)
        return;
    struct records_leaf **leaves =
        realloc(table->leaves, table->leaf_capacity / 2 * sizeof *leaves);
    if (!leaves)
        return;
    table->leaves = leaves;
    table->leaf_capacity /= 2;
}

/* Makes the next bucket and moves its items there, from the one they were in so far. Without memory
 * nothing happens: chains only get longer. */
static void bucket_split(struct records_table *table)
{
    uint32_t fresh = table->buckets;
    if (fresh == table->leaf_count * RECORDS_LEAF_BUCKETS && !leaf_add(table))
        return;
    if (fresh > 2 * table->mask + 1)
        table->mask = 2 * table->mask + 1;
    struct records_item **from = records_bucket_at(table, fresh & table->mask);
    struct records_item **to = records_bucket_at(table, fresh);
    ASSERT(!*to);
    table->buckets++;
    while (*from) {
        struct records_item *item = *from;
        if (records_bucket(table, item->client, item->operation) == to) {
            *from = item->next;
            item->next = *to;
            *to = item;
        } else {
            from = &item->next;
        }
    }
}

/* The last bucket's items go back to where they came from. */
static void bucket_merge(struct records_table *table)
{
    uint32_t last = table->buckets - 1;
    if (last == table->mask)
        table->mask /= 2;
    struct records_item **end = records_bucket_at(table, last & table->mask);
    while (*end)
        end = &(*end)->next;
    *end = *records_bucket_at(table, last);
    *records_bucket_at(table, last) = NULL;
    table->buckets--;
    /* One spare leaf stays, for a table that swings around a leaf's end. */
    if (table->buckets + RECORDS_LEAF_BUCKETS <= (table->leaf_count - 1) * RECORDS_LEAF_BUCKETS)
        leaf_drop(table);
}

/* --- items --- */

struct records_item *records_table_take(struct records_table *table, uint32_t client,
                                        uint32_t operation)
{
    if (!table->buckets) {
        if (!table->leaf_count && !leaf_add(table))
            return NULL;
        table->buckets = RECORDS_LEAF_BUCKETS;
        table->mask = RECORDS_LEAF_BUCKETS - 1;
    }
    if (!table->with_free.first && !chunk_add(table))
        return NULL;
    struct records_chunk *chunk = table->with_free.first;
    struct records_item *item = chunk->free;
    chunk->free = item->next;
    chunk->used++;
    if (!chunk->free) {
        LIST_REMOVE(&table->with_free, chunk, place);
        LIST_APPEND(&table->full, chunk, place);
    }
    item->client = client;
    item->operation = operation;
    struct records_item **bucket = records_bucket(table, client, operation);
    item->next = *bucket;
    *bucket = item;
    if (++table->count > table->buckets)
        bucket_split(table);
    return item;
}

void records_table_give(struct records_table *table, struct records_item *item)
{
    struct records_item **link = records_bucket(table, item->client, item->operation);
    while (*link != item) {
        ASSERT(*link);
        link = &(*link)->next;
    }
    *link = item->next;
    table->count--;
    for (int i = 0;
         i < 2 && table->buckets > RECORDS_LEAF_BUCKETS && table->count < table->buckets / 2; i++)
        bucket_merge(table);
    struct records_chunk *chunk =
        (struct records_chunk *)((uintptr_t)item & ~(uintptr_t)(RECORDS_CHUNK_ALIGN - 1));
    if (!chunk->free) {
        LIST_REMOVE(&table->full, chunk, place);
        LIST_APPEND(&table->with_free, chunk, place);
    }
    item->next = chunk->free;
    chunk->free = item;
    /* An empty chunk goes, unless it is the only one with a free item. */
    if (--chunk->used == 0 && table->with_free.first != table->with_free.last) {
        LIST_REMOVE(&table->with_free, chunk, place);
        free(chunk);
        table->chunks--;
    }
}
