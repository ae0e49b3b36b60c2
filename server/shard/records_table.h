/* records_table.h - the memory of completion records and of clients: items of one size in chunks, and a
 * hash table of them. The table grows and shrinks by one bucket at a time (Litwin, Linear hashing, VLDB
 * 1980), so that no operation pays for resizing it all.
 *
 * An item starts with its link and its key, (client, operation). Operations of a client follow one
 * another, and so do client ids, so the hash puts neighbours into the same cache lines. One thread.
 * Used by records.c and clients.c.
 */
#ifndef SERVER_RECORDS_TABLE_H
#define SERVER_RECORDS_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum {
    RECORDS_CHUNK_ALIGN = 4096,
    RECORDS_CHUNK_BYTES = RECORDS_CHUNK_ALIGN - 64, /* malloc's own words fit between two */
    RECORDS_CHUNK_HEAD_BYTES = 64,
    RECORDS_LEAF_BUCKETS = 128,
};

struct records_item {
    struct records_item *next; /* of its bucket, or of its chunk's free ones */
    uint32_t client, operation;
};

struct records_chunk;

struct records_leaf {
    struct records_item *buckets[RECORDS_LEAF_BUCKETS];
};

struct records_table {
    uint32_t item_bytes;
    uint32_t count;         /* items */
    uint32_t buckets, mask; /* mask + 1 <= buckets <= 2 (mask + 1), powers of two but `buckets` */
    struct records_leaf **leaves;
    uint32_t leaf_count, leaf_capacity;
    struct records_chunks {
        struct records_chunk *first, *last;
    } with_free, full; /* chunks that have a free item, and those that have none */
    uint32_t chunks;
};

/* Nothing is allocated before the first item. */
void records_table_init(struct records_table *table, uint32_t item_bytes);
void records_table_fini(struct records_table *table);

/* A new item with this key, which no item has; the bytes behind the key are undefined. NULL: no memory. */
struct records_item *records_table_take(struct records_table *table, uint32_t client,
                                        uint32_t operation);
void records_table_give(struct records_table *table, struct records_item *item);

uint64_t records_table_bytes(const struct records_table *table);

/* Bucket number `bucket`, of `buckets`. */
static inline struct records_item **records_bucket_at(const struct records_table *table,
                                                      uint32_t bucket)
{
    return &table->leaves[bucket / RECORDS_LEAF_BUCKETS]->buckets[bucket % RECORDS_LEAF_BUCKETS];
}

/* The bucket of a key. */
static inline struct records_item **records_bucket(const struct records_table *table,
                                                   uint32_t client, uint32_t operation)
{
    uint32_t hash = client * UINT32_C(0x9e3779b1) + operation;
    uint32_t bucket = hash & (2 * table->mask + 1);
    if (bucket >= table->buckets)
        bucket &= table->mask;
    return records_bucket_at(table, bucket);
}

/* The item with this key, or NULL. */
static inline struct records_item *records_table_find(const struct records_table *table,
                                                      uint32_t client, uint32_t operation)
{
    if (table->count == 0)
        return NULL;
    struct records_item *item = *records_bucket(table, client, operation);
    while (item && (item->operation != operation || item->client != client))
        item = item->next;
    return item;
}

#endif
