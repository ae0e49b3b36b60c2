/* entry.h - the log entry: the same bytes on the wire, in the t-log and in the b-log. The only
 * place that knows them.
 *
 * An entry is one or more blocks, each 64 B-aligned, with a header and a checksum of its own,
 * little-endian:
 *
 *   offset bytes field
 *   0      1     0, always (the tag-matching queue wants it)
 *   1      1     type (low 4 bits), flags (high 4; none is defined: any set flag is refused)
 *   2      2     shard
 *   4      4     CRC32C of the padded block with this field as 0, seeded with the cluster's secret;
 *                a result of 0 is stored as 0xffffffff. So the first word of a block is never 0
 *   8      8     version: 24-bit epoch, 40-bit counter
 *   16     4     key bytes (low 11 bits), value bytes (high 21 bits), of the whole entry
 *   20     4     block number (low 16 bits), block count (high 16 bits)
 *   24     4     client id
 *   28     4     operation number
 *   32           this block's part of the payload (key, then value), zero padding to 64 B
 *
 * The payload of an entry fills its blocks in order: every block but the last is exactly the block
 * limit long. So an entry whose blocks lie one behind the other is contiguous, and its size follows
 * from key and value bytes alone.
 *
 * A record stub (ENTRY_RECORD) says that the operation of that client wrote that version, whose entry is gone: shard,
 * version, client and operation, the last two not 0; no key, no value, one block. It is no entry in any other sense.
 *
 * Nothing here trusts a length before the checksum that covers it.
 */
#ifndef ENTRY_ENTRY_H
#define ENTRY_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/assert.h"

enum {
    ENTRY_ALIGN = 64,
    ENTRY_HEADER_BYTES = 32,
    ENTRY_MAX_KEY_BYTES = 1024,
    ENTRY_MAX_VALUE_BYTES = 1 << 20,
    ENTRY_MIN_BLOCK_LIMIT = 256,
    ENTRY_MAX_BLOCK_LIMIT = 65536,

    /* Of the layout above, for what is inline here. */
    ENTRY_LENGTHS_AT = 16,
    ENTRY_BLOCKS_AT = 20,
    ENTRY_KEY_BITS = 11,
    ENTRY_KEY_MASK = (1 << ENTRY_KEY_BITS) - 1,
    ENTRY_ONE_BLOCK = 1 << 16,
};

enum entry_type {
    ENTRY_PUT = 1,
    ENTRY_DELETE = 2,
    ENTRY_COMMIT_VERSIONS = 3,
    ENTRY_PAD = 4,
    ENTRY_BATCH_PART = 5, /* reserved for atomic batches: refused */
    ENTRY_RECORD = 6,     /* what is left of an entry that was cleaned: header only, see below */
    ENTRY_CHECKPOINT =
        7, /* a part of a server's index checkpoint (server/store/checkpoint.h); never sent */
    ENTRY_TYPES,
};

/* What every reader and writer of a cluster's entries must agree on. */
struct entry_format {
    uint32_t seed;        /* from the cluster's secret */
    uint32_t block_limit; /* bytes of the largest block; a multiple of 64 */
};

/* A header, decoded. */
struct entry_header {
    enum entry_type type;
    uint16_t shard;
    uint64_t version;
    uint16_t key_bytes;
    uint32_t value_bytes;
    uint16_t block, blocks; /* block < blocks */
    uint32_t client_id;
    uint32_t operation;
};

/* A version is ordered as a number: by epoch, then counter. */
#define VERSION_COUNTER_BITS 40
static inline uint64_t version_make(uint32_t epoch, uint64_t counter)
{
    return (uint64_t)epoch << VERSION_COUNTER_BITS | counter;
}
static inline uint32_t version_epoch(uint64_t version)
{
    return (uint32_t)(version >> VERSION_COUNTER_BITS);
}
static inline uint64_t version_counter(uint64_t version)
{
    return version & ((UINT64_C(1) << VERSION_COUNTER_BITS) - 1);
}

/* --- sizes --- */

/* Payload bytes of every block but the last. */
static inline uint32_t entry_block_capacity(const struct entry_format *format)
{
    ASSERT_COSTLY(format->block_limit >= ENTRY_MIN_BLOCK_LIMIT);
    ASSERT_COSTLY(format->block_limit <= ENTRY_MAX_BLOCK_LIMIT);
    ASSERT_COSTLY(format->block_limit % ENTRY_ALIGN == 0);
    return format->block_limit - ENTRY_HEADER_BYTES;
}

/* Blocks of an entry with these sizes. */
static inline uint32_t entry_blocks(const struct entry_format *format, uint32_t key_bytes,
                                    uint32_t value_bytes)
{
    ASSERT(key_bytes <= ENTRY_MAX_KEY_BYTES && value_bytes <= ENTRY_MAX_VALUE_BYTES);
    const uint32_t payload = key_bytes + value_bytes, capacity = entry_block_capacity(format);
    return payload <= capacity ? 1 : (payload + capacity - 1) / capacity;
}

static inline uint32_t entry_padded(uint32_t bytes)
{
    return (bytes + ENTRY_ALIGN - 1) & ~(uint32_t)(ENTRY_ALIGN - 1);
}

/* Bytes of block `block` of such an entry, padded. */
static inline uint32_t entry_block_bytes(const struct entry_format *format, uint32_t key_bytes,
                                         uint32_t value_bytes, uint32_t block)
{
    const uint32_t last = entry_blocks(format, key_bytes, value_bytes) - 1;
    ASSERT(block <= last);
    if (block < last)
        return format->block_limit;
    return entry_padded(ENTRY_HEADER_BYTES + key_bytes + value_bytes -
                        last * entry_block_capacity(format));
}

/* Bytes of the whole entry, all blocks with headers and padding; entry_size tells its blocks as well. */
static inline uint32_t entry_size(const struct entry_format *format, uint32_t key_bytes,
                                  uint32_t value_bytes, uint32_t *blocks)
{
    const uint32_t last = entry_blocks(format, key_bytes, value_bytes) - 1;
    *blocks = last + 1;
    return last * format->block_limit + entry_padded(ENTRY_HEADER_BYTES + key_bytes + value_bytes -
                                                     last * entry_block_capacity(format));
}
static inline uint32_t entry_bytes(const struct entry_format *format, uint32_t key_bytes,
                                   uint32_t value_bytes)
{
    uint32_t blocks;
    return entry_size(format, key_bytes, value_bytes, &blocks);
}

/* --- encode --- */

/* entry_encode_block: writes block `header->block` of the entry into `out`, which has room for
 * entry_block_bytes(), and returns that number. `header->blocks` must be entry_blocks(). `key` and
 * `value` are the whole ones. The checksum is computed here. */
uint32_t entry_encode_block(const struct entry_format *format, const struct entry_header *header,
                            const void *key, const void *value, void *out);

/* entry_encode_record: the same, of a record stub, which is ENTRY_ALIGN bytes. */
uint32_t entry_encode_record(const struct entry_format *format, uint16_t shard, uint64_t version,
                             uint32_t client_id, uint32_t operation, void *out);

/* entry_give: writes the block at `at`, which was checked, into `out` as one of another shard's entry that no client asks for
 * again. Returns its bytes. */
uint32_t entry_give(const struct entry_format *format, const void *at, uint16_t shard, void *out);

/* --- decode --- */

/* entry_decode: is there a whole, undamaged block at `at`, of which `room` bytes are readable?
 * Then fills `header` and *bytes (the padded size of this block), and returns 0. Otherwise
 * ROWAN_EFORMAT (first word 0: nothing was written here), or ROWAN_EDAMAGED (anything else: bad
 * checksum, unknown type or flag, a length that does not fit). `at` is 8 B-aligned. */
int entry_decode(const struct entry_format *format, const void *at, size_t room,
                 struct entry_header *header, uint32_t *bytes);

/* entry_guess: for prefetching, and for those who hand bytes on to somebody who checks them. If a whole block
 * that begins an entry lay at `at`, where would its key be, and how many bytes would it take? Nothing is checked
 * but that all of it lies in `room`, and that the key is whole in this block. False: not so, or nothing was
 * written here. */
bool entry_guess(const struct entry_format *format, const void *at, size_t room,
                 struct entry_header *header, const uint8_t **key, uint32_t *bytes);

/* Are these the headers of blocks of one entry, whichever? */
bool entry_is_same(const struct entry_header *a, const struct entry_header *b);

/* entry_peek: the header of a block that this process has checked before (or just encoded), without
 * its checksum. Asserts what entry_decode would refuse cheaply. */
void entry_peek(const void *at, struct entry_header *header);

/* entry_version: the version field as it stands, of a block that was checked once; asserts nothing, for
 * bytes that may have been damaged since. */
static inline uint64_t entry_version(const void *at)
{
    uint64_t version;
    memcpy(&version, (const uint8_t *)at + 8, sizeof version);
    return version;
}

/* entry_verify: checks every block of the contiguous entry at `at`. Returns 0 and the header of its first
 * block, or ROWAN_EDAMAGED or ROWAN_EFORMAT. `header` may be NULL. */
int entry_verify(const struct entry_format *format, const void *at, size_t room,
                 struct entry_header *header);

/* --- key and value of a contiguous entry that was checked --- */

struct entry_piece {
    const uint8_t *data;
    uint32_t bytes;
};

/* Copies the key out of the entry; returns its bytes, or 0 if the header was damaged since it was
 * checked. `out` has ENTRY_MAX_KEY_BYTES. */
uint32_t entry_key(const struct entry_format *format, const void *at, void *out);

/* True if the entry at `at` is a put or a delete of exactly this key; false too if the header was damaged since. */
bool entry_key_parts_equal(const struct entry_format *format, const void *at, const void *key,
                           uint32_t key_bytes);
static inline __attribute__((always_inline)) bool
entry_key_equals(const struct entry_format *format, const void *at, const void *key,
                 uint32_t key_bytes)
{
    uint16_t head;
    uint32_t lengths;
    uint16_t block;
    memcpy(&head, at, sizeof head);
    memcpy(&lengths, (const uint8_t *)at + ENTRY_LENGTHS_AT, sizeof lengths);
    memcpy(&block, (const uint8_t *)at + ENTRY_BLOCKS_AT, sizeof block);
    if ((lengths & ENTRY_KEY_MASK) != key_bytes ||
        lengths >> ENTRY_KEY_BITS > ENTRY_MAX_VALUE_BYTES || block != 0 ||
        (head != ENTRY_PUT << 8 && head != ENTRY_DELETE << 8))
        return false;
    if (key_bytes > entry_block_capacity(format))
        return entry_key_parts_equal(format, at, key, key_bytes);
    return memcmp((const uint8_t *)at + ENTRY_HEADER_BYTES, key, key_bytes) == 0;
}

/* The key of the contiguous entry at `at`, whose header was checked (of it the key's length counts): where
 * it lies if it is whole in the first block, else put together in `room` (ENTRY_MAX_KEY_BYTES). */
const uint8_t *entry_key_parts(const struct entry_format *format, uint32_t key_bytes,
                               const void *at, void *room);
static inline const uint8_t *entry_key_in_place(const struct entry_format *format,
                                                const struct entry_header *header, const void *at,
                                                void *room)
{
    return header->key_bytes <= entry_block_capacity(format)
               ? (const uint8_t *)at + ENTRY_HEADER_BYTES
               : entry_key_parts(format, header->key_bytes, at, room);
}

/* The value of an entry of one block, with that header. */
static inline const uint8_t *entry_value_in_place(const struct entry_header *header, const void *at)
{
    ASSERT_COSTLY(header->blocks == 1);
    return (const uint8_t *)at + ENTRY_HEADER_BYTES + header->key_bytes;
}

/* The value as pieces, in order, straight in the entry with this header. Returns their number, at most
 * `max`; starts at piece number `first` (0, 1, ...), so that long values can be taken in steps. */
unsigned entry_value_pieces(const struct entry_format *format, const struct entry_header *header,
                            const void *at, unsigned first, struct entry_piece *pieces,
                            unsigned max);

/* --- scan --- */

/* A scan walks a region at 64 B steps and yields each undamaged block once. It survives a torn
 * tail, holes, pads, duplicates and garbage, going on at the next 64 B boundary. */
struct entry_scan {
    const struct entry_format *format;
    const uint8_t *base; /* 64 B-aligned */
    uint32_t bytes;      /* of the region */
    uint32_t position;   /* of the next look; the caller may keep it and go on later */
    uint32_t stride;     /* ENTRY_ALIGN, or see entry_scan_stride */
};

void entry_scan_init(struct entry_scan *scan, const struct entry_format *format, const void *base,
                     uint32_t bytes, uint32_t position);

/* For a segment of a landing zone that this process has posted: blocks begin at multiples of `stride` (a power
 * of two, fabric_caps) of the region and nowhere else. What lies between one and the next multiple is no hole
 * that anybody may still fill, so it is stepped over; at a multiple there is one. */
static inline void entry_scan_stride(struct entry_scan *scan, uint32_t stride)
{
    scan->stride = stride;
}

/* Where the scan looks after a block of `bytes` at `position`. */
static inline uint32_t entry_scan_behind(const struct entry_scan *scan, uint32_t position,
                                         uint32_t bytes)
{
    const uint32_t left = scan->bytes - position;
    const uint32_t slot = (bytes + scan->stride - 1) & ~(scan->stride - 1);
    return position + (slot < left ? slot : left);
}

enum entry_scan_result { ENTRY_SCAN_BLOCK, ENTRY_SCAN_END, ENTRY_SCAN_STOPPED };

/* entry_scan_next: the next block (pads are passed over silently): its header, its offset in the
 * region, its bytes; or END. With `stop_at_hole` it does not step over anything that is not a whole
 * block, but answers STOPPED with the position kept there: for the open end of a landing zone.
 * Looks at no more than 64 KiB of holes in one call: then it answers STOPPED too (call again). */
enum entry_scan_result entry_scan_next(struct entry_scan *scan, bool stop_at_hole,
                                       struct entry_header *header, uint32_t *offset,
                                       uint32_t *bytes);

#endif
