/* entry.c - lays entries out in bytes, reads them back, and finds them in a log.
 *
 * Writers (workers, digest when it joins blocks, fabric for its pads) encode block by block;
 * readers come in two kinds. Whoever meets bytes for the first time decodes: length fields are
 * checked against the room, then the checksum against the bytes, and only then is anything
 * believed. Whoever holds an offset that was checked once (an index item) peeks, and pays for no
 * checksum.
 *
 * Invariants:
 *  1. A header that leaves entry_decode was taken from the very bytes the checksum ran over: it is
 *     copied once and never read again, so a writer in another process cannot change it in between.
 *  2. Block sizes are a function of (block limit, key bytes, value bytes, block number) alone; a
 *     header whose block count says otherwise is refused. So the parts of a contiguous entry are
 *     found by arithmetic, without walking.
 *  3. No sum here wraps: key and value are limited before they are added, 2^20 + 2^10 payload bytes
 *     make at most 4,686 blocks, under 1.2 MiB.
 *  4. A scan believes a block by its checksum only. What is no whole block moves it by one stride,
 *     never by a length that is claimed there; a whole block is stepped over whole, so that a value
 *     inside it is never looked at as if it were an entry.
 *  5. A call of the scan reads a bounded number of bytes in vain, those under failed checksums
 *     included: lengths that lie cost calls, but never hold up the caller's poll.
 */
#include "common/entry/entry.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/copy.h"
#include "common/base/crc.h"
#include "common/base/error.h"

enum {
    TYPE_MASK = 0x0f,           /* of byte 1; the high four bits are flags */
    SCAN_HOLE_BYTES = 64 << 10, /* read in vain in one call */
};

struct raw_header {
    uint8_t zero;
    uint8_t type;
    uint16_t shard;
    uint32_t checksum;
    uint64_t version;
    uint32_t lengths; /* key bytes, value bytes */
    uint32_t blocks;  /* block number, block count */
    uint32_t client_id;
    uint32_t operation;
};

_Static_assert(sizeof(struct raw_header) == ENTRY_HEADER_BYTES, "entry layout");
_Static_assert(offsetof(struct raw_header, type) == 1, "entry layout");
_Static_assert(offsetof(struct raw_header, shard) == 2, "entry layout");
_Static_assert(offsetof(struct raw_header, checksum) == 4, "entry layout");
_Static_assert(offsetof(struct raw_header, version) == 8, "entry layout");
_Static_assert(offsetof(struct raw_header, lengths) == ENTRY_LENGTHS_AT, "entry layout");
_Static_assert(offsetof(struct raw_header, blocks) == ENTRY_BLOCKS_AT, "entry layout");
_Static_assert(offsetof(struct raw_header, client_id) == 24, "entry layout");
_Static_assert(offsetof(struct raw_header, operation) == 28, "entry layout");
_Static_assert((int)ENTRY_MAX_KEY_BYTES <= (int)ENTRY_KEY_MASK, "a key's length fits its field");
_Static_assert(ENTRY_MAX_VALUE_BYTES >> (32 - ENTRY_KEY_BITS) == 0,
               "a value's length fits its field");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "a big-endian host needs byte swaps here");

/* --- the header's bytes --- */

static struct raw_header header_pack(const struct entry_header *header)
{
    return (struct raw_header){
        .type = (uint8_t)header->type,
        .shard = header->shard,
        .version = header->version,
        .lengths = header->value_bytes << ENTRY_KEY_BITS | header->key_bytes,
        .blocks = (uint32_t)header->blocks << 16 | header->block,
        .client_id = header->client_id,
        .operation = header->operation,
    };
}

static struct entry_header header_unpack(const struct raw_header *raw)
{
    return (struct entry_header){
        .type = (enum entry_type)(raw->type & TYPE_MASK),
        .shard = raw->shard,
        .version = raw->version,
        .key_bytes = (uint16_t)(raw->lengths & ENTRY_KEY_MASK),
        .value_bytes = raw->lengths >> ENTRY_KEY_BITS,
        .block = (uint16_t)(raw->blocks & 0xffff),
        .blocks = (uint16_t)(raw->blocks >> 16),
        .client_id = raw->client_id,
        .operation = raw->operation,
    };
}

/* Types but puts and deletes. A pad has no key: all its bytes are its value. A record stub has neither. */
static __attribute__((noinline)) bool rare_type_sound(const struct raw_header *raw)
{
    const bool has_key = (raw->lengths & ENTRY_KEY_MASK) != 0;
    if (raw->type == ENTRY_RECORD)
        return raw->lengths == 0 && raw->blocks == ENTRY_ONE_BLOCK && raw->client_id != 0 &&
               raw->operation != 0;
    if (raw->type == ENTRY_CHECKPOINT)
        return !has_key && raw->blocks == ENTRY_ONE_BLOCK;
    return raw->type == ENTRY_COMMIT_VERSIONS || (raw->type == ENTRY_PAD && !has_key);
}

/* What can be told wrong from the header alone, without format or checksum: lengths, flags and types that
 * are none. */
static inline bool raw_sound(const struct raw_header *raw)
{
    const uint32_t key_bytes = raw->lengths & ENTRY_KEY_MASK;
    if (raw->zero != 0 || key_bytes > ENTRY_MAX_KEY_BYTES ||
        raw->lengths >> ENTRY_KEY_BITS > ENTRY_MAX_VALUE_BYTES ||
        (raw->blocks & 0xffff) >= raw->blocks >> 16)
        return false;
    if (raw->type == ENTRY_PUT || raw->type == ENTRY_DELETE)
        return key_bytes > 0;
    return rare_type_sound(raw);
}

/* 0 is what a field not yet written holds, so it is no checksum. */
static uint32_t checksum_stored(uint32_t crc)
{
    return crc != 0 ? crc : UINT32_MAX;
}

/* --- encode --- */

/* Copies bytes [from, from + bytes) of the payload, key then value. */
static inline void payload_copy(uint8_t *out, const struct entry_header *header, const uint8_t *key,
                                const uint8_t *value, uint32_t from, uint32_t bytes)
{
    const uint32_t key_bytes = header->key_bytes;
    uint32_t part = 0;
    if (from < key_bytes) {
        part = key_bytes - from < bytes ? key_bytes - from : bytes;
        copy_short(out, key + from, part);
    }
    if (part == bytes)
        return;
    if (value != NULL)
        copy_short(out + part, value + (from + part - key_bytes), bytes - part);
    else
        memset(out + part, 0, bytes - part);
}

/* Its field is 0. */
static inline void checksum_set(const struct entry_format *format, uint8_t *block, uint32_t bytes)
{
    const uint32_t checksum = checksum_stored(crc32c_headed(
        format->seed, block, block + sizeof(struct raw_header), bytes - sizeof(struct raw_header)));
    memcpy(block + offsetof(struct raw_header, checksum), &checksum, sizeof(checksum));
}

uint32_t entry_encode_block(const struct entry_format *format, const struct entry_header *header,
                            const void *key, const void *value, void *out)
{
    ASSERT(header->blocks == entry_blocks(format, header->key_bytes, header->value_bytes));
    ASSERT(value != NULL || header->value_bytes == 0 || header->type == ENTRY_PAD);

    uint32_t capacity = entry_block_capacity(format);
    uint32_t from = header->block * capacity;
    uint32_t rest = header->key_bytes + header->value_bytes - from;
    uint32_t bytes =
        rest > capacity ? format->block_limit : entry_padded(ENTRY_HEADER_BYTES + rest);

    /* The padding lies in the last 64 B. They are zeroed as a whole, which is two stores, before
     * what belongs there is copied over them. */
    uint8_t *block = out;
    memset(block + bytes - ENTRY_ALIGN, 0, ENTRY_ALIGN);
    struct raw_header raw = header_pack(header);
    ASSERT(raw_sound(&raw));
    memcpy(block, &raw, sizeof(raw));
    payload_copy(block + ENTRY_HEADER_BYTES, header, key, value, from,
                 rest < capacity ? rest : capacity);

    checksum_set(format, block, bytes);
    return bytes;
}

uint32_t entry_encode_record(const struct entry_format *format, uint16_t shard, uint64_t version,
                             uint32_t client_id, uint32_t operation, void *out)
{
    const struct entry_header header = {.type = ENTRY_RECORD,
                                        .shard = shard,
                                        .version = version,
                                        .blocks = 1,
                                        .client_id = client_id,
                                        .operation = operation};
    return entry_encode_block(format, &header, NULL, NULL, out);
}

/* --- decode --- */

/* The bytes of the block with that sound header, or 0 if its block count contradicts the sizes. */
static inline uint32_t raw_block_bytes(const struct entry_format *format,
                                       const struct raw_header *raw)
{
    const uint32_t key_bytes = raw->lengths & ENTRY_KEY_MASK;
    const uint32_t value_bytes = raw->lengths >> ENTRY_KEY_BITS;
    if (raw->blocks == ENTRY_ONE_BLOCK) {
        const uint32_t bytes = ENTRY_HEADER_BYTES + key_bytes + value_bytes;
        return bytes <= format->block_limit ? entry_padded(bytes) : 0;
    }
    if (raw->blocks >> 16 != entry_blocks(format, key_bytes, value_bytes))
        return 0;
    return entry_block_bytes(format, key_bytes, value_bytes, raw->blocks & 0xffff);
}

uint32_t entry_give(const struct entry_format *format, const void *at, uint16_t shard, void *out)
{
    struct raw_header raw;
    memcpy(&raw, at, sizeof raw);
    const uint32_t bytes = raw_sound(&raw) ? raw_block_bytes(format, &raw) : 0;
    ASSERT(bytes > 0);
    raw.shard = shard;
    raw.checksum = raw.client_id = raw.operation = 0;
    memcpy(out, &raw, sizeof raw);
    memcpy((uint8_t *)out + sizeof raw, (const uint8_t *)at + sizeof raw, bytes - sizeof raw);
    checksum_set(format, out, bytes);
    return bytes;
}

/* Somebody may store there still: what is checked must be what was copied, so the compiler may not read it again. */
static inline void raw_read(const void *at, struct raw_header *raw)
{
    memcpy(raw, at, sizeof(*raw));
    __asm__ volatile("" : "+m"(*raw));
}

/* The checked header of the block at `at`, its bytes, and how many were read to know. */
static inline int raw_check(const struct entry_format *format, const void *at, size_t room,
                            struct raw_header *out, uint32_t *bytes, uint32_t *looked)
{
    *looked = ENTRY_ALIGN;
    struct raw_header raw;
    uint64_t first_word;
    if (room < ENTRY_ALIGN) {
        if (room < sizeof(first_word))
            return ROWAN_EDAMAGED;
        memcpy(&first_word, at, sizeof(first_word));
        return first_word == 0 ? ROWAN_EFORMAT : ROWAN_EDAMAGED;
    }

    raw_read(at, &raw);
    memcpy(&first_word, &raw, sizeof(first_word));
    if (first_word == 0)
        return ROWAN_EFORMAT;
    const uint32_t size = raw_sound(&raw) ? raw_block_bytes(format, &raw) : 0;
    if (size == 0 || size > room)
        return ROWAN_EDAMAGED;

    *looked = size;
    uint32_t checksum = raw.checksum;
    raw.checksum = 0;
    uint32_t crc =
        crc32c_headed(format->seed, &raw, (const uint8_t *)at + sizeof(raw), size - sizeof(raw));
    if (checksum != checksum_stored(crc))
        return ROWAN_EDAMAGED;
    *out = raw;
    *bytes = size;
    return 0;
}

/* entry_decode, which also tells how many bytes it read to know. */
static inline int block_check(const struct entry_format *format, const void *at, size_t room,
                              struct entry_header *header, uint32_t *bytes, uint32_t *looked)
{
    struct raw_header raw;
    int error = raw_check(format, at, room, &raw, bytes, looked);
    if (!error)
        *header = header_unpack(&raw);
    return error;
}

int entry_decode(const struct entry_format *format, const void *at, size_t room,
                 struct entry_header *header, uint32_t *bytes)
{
    uint32_t looked;
    return block_check(format, at, room, header, bytes, &looked);
}

bool entry_guess(const struct entry_format *format, const void *at, size_t room,
                 struct entry_header *header, const uint8_t **key, uint32_t *bytes)
{
    struct raw_header raw;
    if (room < sizeof(raw))
        return false;
    memcpy(&raw, at, sizeof(raw));
    *header = header_unpack(&raw);
    if (!raw_sound(&raw) || header->block != 0 ||
        header->blocks != entry_blocks(format, header->key_bytes, header->value_bytes) ||
        header->key_bytes > entry_block_capacity(format))
        return false;
    *bytes = entry_block_bytes(format, header->key_bytes, header->value_bytes, 0);
    *key = (const uint8_t *)at + ENTRY_HEADER_BYTES;
    return *bytes <= room;
}

void entry_peek(const void *at, struct entry_header *header)
{
    struct raw_header raw;
    memcpy(&raw, at, sizeof(raw));
    *header = header_unpack(&raw);
    ASSERT(raw_sound(&raw));
}

bool entry_is_same(const struct entry_header *a, const struct entry_header *b)
{
    return a->type == b->type && a->shard == b->shard && a->version == b->version &&
           a->key_bytes == b->key_bytes && a->value_bytes == b->value_bytes &&
           a->client_id == b->client_id && a->operation == b->operation;
}

/* The blocks behind the first one, `bytes` long. */
static bool rest_is_whole(const struct entry_format *format, const void *at, size_t room,
                          const struct entry_header *first, uint32_t bytes)
{
    for (uint32_t i = 1; i < first->blocks; i++) {
        struct entry_header next;
        uint32_t size;
        /* A hole where a later block belongs is damage: the entry was begun. */
        if (entry_decode(format, (const uint8_t *)at + bytes, room - bytes, &next, &size) ||
            next.block != i || !entry_is_same(first, &next))
            return false;
        bytes += size;
    }
    return true;
}

static __attribute__((noinline)) int verify_any(const struct entry_format *format, const void *at,
                                                size_t room, struct entry_header *header)
{
    struct raw_header raw;
    uint32_t bytes, looked;
    int error = raw_check(format, at, room, &raw, &bytes, &looked);
    if (error != 0)
        return error;
    if (raw.blocks != ENTRY_ONE_BLOCK) {
        const struct entry_header first = header_unpack(&raw);
        if (first.block != 0 || !rest_is_whole(format, at, room, &first, bytes))
            return ROWAN_EDAMAGED;
    }
    if (header != NULL)
        *header = header_unpack(&raw);
    return 0;
}

/* Most entries are one short block. For those this calls nothing, so that no registers are saved. */
int entry_verify(const struct entry_format *format, const void *at, size_t room,
                 struct entry_header *header)
{
    if (room < ENTRY_ALIGN)
        return verify_any(format, at, room, header);
    struct raw_header raw;
    raw_read(at, &raw);
    const uint32_t checksum = raw.checksum;
    const uint32_t bytes = raw.blocks == ENTRY_ONE_BLOCK ? raw_block_bytes(format, &raw) : 0;
    raw.checksum = 0;
    if (bytes > room || !crc32c_is_short(bytes - sizeof(raw)) || !raw_sound(&raw) ||
        checksum !=
            checksum_stored(crc32c_short(format->seed, &raw, (const uint8_t *)at + sizeof(raw),
                                         bytes - sizeof(raw))))
        return verify_any(format, at, room, header);
    if (header != NULL)
        *header = header_unpack(&raw);
    return 0;
}

/* --- key and value --- */

/* The part of the payload that starts at `from` and goes on to the end of its block, or to `end`.
 */
static struct entry_piece payload_piece(const struct entry_format *format, const uint8_t *entry,
                                        uint32_t from, uint32_t end)
{
    uint32_t capacity = entry_block_capacity(format);
    if (end <= capacity) /* all in the first block: no division */
        return (struct entry_piece){entry + ENTRY_HEADER_BYTES + from, end - from};
    uint32_t block = from / capacity;
    uint32_t inside = from - block * capacity;
    uint32_t bytes = capacity - inside < end - from ? capacity - inside : end - from;
    return (struct entry_piece){entry + block * format->block_limit + ENTRY_HEADER_BYTES + inside,
                                bytes};
}

bool entry_key_parts_equal(const struct entry_format *format, const void *at, const void *key,
                           uint32_t key_bytes)
{
    for (uint32_t from = 0; from < key_bytes;) {
        struct entry_piece piece = payload_piece(format, at, from, key_bytes);
        if (memcmp(piece.data, (const uint8_t *)key + from, piece.bytes) != 0)
            return false;
        from += piece.bytes;
    }
    return true;
}

const uint8_t *entry_key_parts(const struct entry_format *format, uint32_t key_bytes,
                               const void *at, void *room)
{
    for (uint32_t from = 0; from < key_bytes;) {
        struct entry_piece piece = payload_piece(format, at, from, key_bytes);
        memcpy((uint8_t *)room + from, piece.data, piece.bytes);
        from += piece.bytes;
    }
    return room;
}

uint32_t entry_key(const struct entry_format *format, const void *at, void *out)
{
    struct raw_header raw;
    memcpy(&raw, at, sizeof(raw));
    const struct entry_header header = header_unpack(&raw);
    if (!raw_sound(&raw) || header.block != 0)
        return 0; /* it was damaged since its checksum was checked */
    entry_key_parts(format, header.key_bytes, at, out);
    return header.key_bytes;
}

unsigned entry_value_pieces(const struct entry_format *format, const struct entry_header *header,
                            const void *at, unsigned first, struct entry_piece *pieces,
                            unsigned max)
{
    ASSERT_COSTLY(header->block == 0);
    uint32_t from = header->key_bytes;
    uint32_t end = from + header->value_bytes;
    if (first >= header->blocks)
        return 0;
    if (first > 0) /* piece n > 0 opens block n after the one in which the value begins */
        from = (from / entry_block_capacity(format) + first) * entry_block_capacity(format);
    unsigned count = 0;
    while (count < max && from < end) {
        pieces[count] = payload_piece(format, at, from, end);
        from += pieces[count++].bytes;
    }
    return count;
}

/* --- scan --- */

void entry_scan_init(struct entry_scan *scan, const struct entry_format *format, const void *base,
                     uint32_t bytes, uint32_t position)
{
    ASSERT((uintptr_t)base % ENTRY_ALIGN == 0);
    ASSERT(position % ENTRY_ALIGN == 0 && position <= bytes);
    *scan = (struct entry_scan){.format = format,
                                .base = base,
                                .bytes = bytes,
                                .position = position,
                                .stride = ENTRY_ALIGN};
}

enum entry_scan_result entry_scan_next(struct entry_scan *scan, bool stop_at_hole,
                                       struct entry_header *header, uint32_t *offset,
                                       uint32_t *bytes)
{
    uint32_t looked_in_vain = 0;
    while (scan->bytes - scan->position >= ENTRY_ALIGN) {
        struct entry_header found;
        uint32_t at = scan->position;
        uint32_t size, looked;
        if (block_check(scan->format, scan->base + at, scan->bytes - at, &found, &size, &looked) ==
            0) {
            scan->position = entry_scan_behind(scan, at, size); /* invariant 4 */
            if (found.type == ENTRY_PAD)
                continue;
            *header = found;
            *offset = at;
            *bytes = size;
            return ENTRY_SCAN_BLOCK;
        }
        if (stop_at_hole)
            return ENTRY_SCAN_STOPPED;
        scan->position = entry_scan_behind(scan, at, ENTRY_ALIGN);
        looked_in_vain += looked; /* invariant 5 */
        if (looked_in_vain >= SCAN_HOLE_BYTES)
            return ENTRY_SCAN_STOPPED;
    }
    return ENTRY_SCAN_END;
}
