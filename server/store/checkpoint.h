/* checkpoint.h - the bytes of an index checkpoint (design, section 6, cold start): what a scan of the segments that it
 * covers would yield, in segments of its own (OWNER_CHECKPOINT), so that a start need not read those.
 *
 * It is a row of blocks (entry.h, ENTRY_CHECKPOINT) of one segment after another, from the first one's beginning. Of each
 * the version is the checkpoint's id, the client id its kind, and the operation its number, from 1. The id is the last
 * allocation number that was given when it began: its own segments have higher ones. Values, little-endian:
 *
 *   SEGMENTS  those that it covers, which were COMMITTED when it began: allocation number (8); how many index items led
 *             into it then (4); bytes of their entries, and of what else is kept, in units of 64 (4); how many of the items
 *             led to tombstones (4); 0 (4)
 *   SHARD     the replica row's first epoch (8); a commit version (8); buckets of the index (8); 1 if the server leads the
 *             shard (8)
 *   BUCKETS   of that shard: first bucket (8), how many (4), how many items (4), the items (index.h, index_dump; 8 each),
 *             how many of them are in each bucket (1 each)
 *   RECORDS   completion records and clients of that shard: client (4), operation (4), version (8); version 0: the
 *             operation is the client's lowest unanswered one
 *   END       nothing; only with it the checkpoint is whole
 *
 * SEGMENTS come first, and a shard's SHARD before its BUCKETS and RECORDS. Pure.
 */
#ifndef SERVER_CHECKPOINT_H
#define SERVER_CHECKPOINT_H

#include <stdint.h>

#include "common/entry/entry.h"

enum checkpoint_kind {
    CHECKPOINT_SEGMENTS = 1,
    CHECKPOINT_SHARD,
    CHECKPOINT_BUCKETS,
    CHECKPOINT_RECORDS,
    CHECKPOINT_END,
};

enum {
    CHECKPOINT_BLOCK_BYTES = 16384, /* of the largest block, if the block limit is no lower */
    CHECKPOINT_VALUE_BYTES = CHECKPOINT_BLOCK_BYTES - ENTRY_HEADER_BYTES,
    CHECKPOINT_BUCKETS_HEAD = 16,
    CHECKPOINT_ITEM_BYTES = 8,
    CHECKPOINT_SEGMENT_BYTES = 24,
    CHECKPOINT_RECORD_BYTES = 16,
    CHECKPOINT_BUCKET_ITEMS = UINT8_MAX, /* at most in one bucket's chain */
};

struct checkpoint_segment {
    uint64_t allocation;
    uint32_t items, strides, tombstones, zero;
};
_Static_assert(sizeof(struct checkpoint_segment) == 24, "as in PM");

struct checkpoint_shard {
    uint64_t first_epoch, commit, buckets, leads;
};
_Static_assert(sizeof(struct checkpoint_shard) == 32, "as in PM");

struct checkpoint_record {
    uint32_t client, operation;
    uint64_t version;
};
_Static_assert(sizeof(struct checkpoint_record) == CHECKPOINT_RECORD_BYTES, "as in PM");

/* A block's value. It points into the block. */
struct checkpoint_value {
    enum checkpoint_kind kind;
    struct checkpoint_shard shard;
    uint64_t first_bucket;
    uint32_t count; /* SEGMENTS, RECORDS: rows; BUCKETS: buckets */
    uint32_t items;
    const uint8_t *rows;   /* or items; see below */
    const uint8_t *counts; /* of each bucket */
};

/* checkpoint_decode: the value behind a whole block's header. A BUCKETS block's counts add up to its items.
 * Errors: ROWAN_EFORMAT. */
int checkpoint_decode(const struct entry_header *header, const uint8_t *value,
                      struct checkpoint_value *out);

/* Row `i` of a value: a struct checkpoint_segment or checkpoint_record, or an item (uint64_t), as its kind says. */
void checkpoint_row(const struct checkpoint_value *value, uint32_t i, void *row, uint32_t bytes);

/* checkpoint_buckets_encode: writes such a value, of items that stand in it already (from CHECKPOINT_BUCKETS_HEAD on), and
 * tells its bytes. */
uint32_t checkpoint_buckets_encode(uint64_t first, uint32_t count, uint32_t items,
                                   const uint8_t *counts, uint8_t *value);

#endif
