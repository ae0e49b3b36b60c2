/* index_table.h - the memory of one index: primary buckets by number, and overflow buckets.
 *
 * Nothing is ever moved, and nothing is given back before the table ends: a reader may hold the
 * address of any bucket for as long as it likes. Used by index.c and index_dump.c only.
 *
 * THREADS. One owner takes and gives. Any thread may ask for a bucket that was published to it.
 */
#ifndef SERVER_INDEX_TABLE_H
#define SERVER_INDEX_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Primary buckets that are allocated together; an index begins with one such chunk. */
#ifdef ROWAN_SIM /* test/sim chooses a power of two: small indexes grow within a run */
extern uint32_t index_chunk_buckets;
#define INDEX_CHUNK_BUCKETS index_chunk_buckets
#else
#define INDEX_CHUNK_BUCKETS UINT32_C(1024) /* 64 KiB */
#endif

enum {
    INDEX_BUCKET_ITEMS = 7,
    INDEX_LEAF_CHUNKS = 512,
    INDEX_LEAVES = 512,
    INDEX_OVERFLOW_BUCKETS = 256, /* overflow buckets that are allocated together: 16 KiB */
};

#define INDEX_MAX_BUCKETS                                                                          \
    ((uint64_t)INDEX_CHUNK_BUCKETS * (uint64_t)INDEX_LEAF_CHUNKS * (uint64_t)INDEX_LEAVES)

/* One cache line. `link` is the address of the next bucket of the chain, or 0. */
struct index_bucket {
    _Alignas(64) _Atomic uint64_t items[INDEX_BUCKET_ITEMS];
    _Atomic uint64_t link;
};
_Static_assert(sizeof(struct index_bucket) == 64, "a bucket is a cache line");

struct index_leaf {
    _Atomic(struct index_bucket *) chunks[INDEX_LEAF_CHUNKS];
};

struct index_table {
    _Atomic(struct index_leaf *) leaves[INDEX_LEAVES];
    struct index_bucket *spare;           /* overflow buckets in no chain */
    uint64_t spares;                      /* their number */
    struct index_bucket *overflow_chunks; /* the first bucket of each links to the next chunk */
    _Atomic uint64_t bytes;               /* of all memory taken, this struct included */
    uint64_t limit_bytes;
};

/* No bucket exists after index_table_init. */
void index_table_init(struct index_table *table);
void index_table_fini(struct index_table *table);

/* Makes sure that primary bucket `number` exists; a new one is empty. False: no memory, or the
 * directory is full. */
bool index_table_reserve(struct index_table *table, uint64_t number);

/* Makes sure that `count` overflow buckets can be taken. False: no memory. */
bool index_table_reserve_overflow(struct index_table *table, uint64_t count);

/* An empty overflow bucket; one must have been reserved. */
struct index_bucket *index_table_take(struct index_table *table);

/* Empties an overflow bucket that was unlinked from its chain, and takes it back. A reader that is
 * still in it finds no item and no next bucket. */
void index_table_give(struct index_table *table, struct index_bucket *bucket);

/* The primary bucket with this number. Any thread that has seen it published. */
static inline struct index_bucket *index_table_bucket(const struct index_table *table,
                                                      uint64_t number)
{
    uint64_t chunk = number / INDEX_CHUNK_BUCKETS;
    struct index_leaf *leaf =
        atomic_load_explicit(&table->leaves[chunk / INDEX_LEAF_CHUNKS], memory_order_relaxed);
    struct index_bucket *buckets =
        atomic_load_explicit(&leaf->chunks[chunk % INDEX_LEAF_CHUNKS], memory_order_relaxed);
    return &buckets[number % INDEX_CHUNK_BUCKETS];
}

/* The low bit of a link parts the list of spare buckets from chains: to a reader it is the end. */
enum { INDEX_LINK_SPARE = 1 };

/* The next bucket of the chain, or NULL. */
static inline struct index_bucket *index_bucket_next(const struct index_bucket *bucket)
{
    uint64_t link = atomic_load_explicit(&bucket->link, memory_order_acquire);
    if (link & INDEX_LINK_SPARE)
        return NULL;
    return (struct index_bucket *)(uintptr_t)link;
}

#endif
