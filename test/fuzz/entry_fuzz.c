/* entry_fuzz.c - decode, verify, views and scan on arbitrary bytes.
 *
 * The first byte chooses the block limit and whether checksums are made right where a header's
 * lengths allow it, so that the fuzzer gets behind them. The rest is the region. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/crc.h"
#include "common/entry/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_REGION_BYTES = 1 << 18, PIECES = 4 };

/* The size of the block that a header claims, by the table in entry.h; 0 if its lengths are out of range.
 * Not by entry.c's arithmetic, which is tested here. */
static uint64_t claimed_bytes(const struct entry_format *format, const uint8_t *at)
{
    uint32_t lengths, blocks;
    memcpy(&lengths, at + 16, sizeof(lengths));
    memcpy(&blocks, at + 20, sizeof(blocks));
    uint64_t payload = (uint64_t)(lengths & 2047) + (lengths >> 11);
    uint64_t before = (uint64_t)(blocks & 0xffff) * (format->block_limit - ENTRY_HEADER_BYTES);
    if (before > payload)
        return 0;
    uint64_t bytes = (ENTRY_HEADER_BYTES + payload - before + 63) / 64 * 64;
    return bytes < format->block_limit ? bytes : format->block_limit;
}

/* Makes the checksum right of every block that the region seems to hold. */
static void seal_all(const struct entry_format *format, uint8_t *region, size_t bytes)
{
    for (size_t at = 0; at + ENTRY_ALIGN <= bytes;) {
        uint64_t block = claimed_bytes(format, region + at);
        if (region[at] != 0 || region[at + 1] == 0 || block == 0 || block > bytes - at) {
            at += ENTRY_ALIGN;
            continue;
        }
        memset(region + at + 4, 0, 4);
        uint32_t crc = crc32c(format->seed, region + at, block);
        if (crc == 0)
            crc = UINT32_MAX;
        memcpy(region + at + 4, &crc, sizeof(crc));
        at += block;
    }
}

/* The views of a whole entry lie inside it, add up, and give the same entry when encoded again. */
static void check_entry(const struct entry_format *format, const uint8_t *at, uint32_t region_bytes,
                        const struct entry_header *verified)
{
    static uint8_t value[ENTRY_MAX_VALUE_BYTES];
    static uint8_t again[ENTRY_MAX_BLOCK_LIMIT] __attribute__((aligned(ENTRY_ALIGN)));
    struct entry_header header;
    entry_peek(at, &header);
    ASSERT(header.version == verified->version && header.blocks == verified->blocks);
    const uint32_t bytes = entry_bytes(format, header.key_bytes, header.value_bytes);
    ASSERT(bytes <= region_bytes);

    uint8_t key[ENTRY_MAX_KEY_BYTES];
    ASSERT(entry_key(format, at, key) == header.key_bytes);
    ASSERT(entry_key_equals(format, at, key, header.key_bytes) ==
           (header.type == ENTRY_PUT || header.type == ENTRY_DELETE));

    struct entry_piece pieces[PIECES];
    uint32_t taken = 0;
    unsigned first = 0, count;
    while ((count = entry_value_pieces(format, &header, at, first, pieces, PIECES)) > 0) {
        for (unsigned i = 0; i < count; i++) {
            ASSERT(pieces[i].data >= at && pieces[i].data + pieces[i].bytes <= at + bytes);
            ASSERT(pieces[i].bytes <= header.value_bytes - taken);
            memcpy(value + taken, pieces[i].data, pieces[i].bytes);
            taken += pieces[i].bytes;
        }
        first += count;
    }
    ASSERT(taken == header.value_bytes);

    uint32_t offset = 0;
    for (uint32_t i = 0; i < header.blocks; i++) {
        header.block = (uint16_t)i;
        uint32_t block = entry_encode_block(format, &header, key, value, again);
        ASSERT(block == entry_block_bytes(format, header.key_bytes, header.value_bytes, i));
        /* Padding other than zero is admitted by its checksum, and written as zero. */
        uint32_t payload = i + 1 < header.blocks ? block : ENTRY_HEADER_BYTES;
        ASSERT(memcmp(again + 8, at + offset + 8, payload - 8) == 0);
        offset += block;
    }
    ASSERT(offset == bytes);
}

static void check_region(const struct entry_format *format, const uint8_t *region, uint32_t bytes,
                         bool stop_at_hole)
{
    struct entry_scan scan;
    entry_scan_init(&scan, format, region, bytes, 0);
    for (;;) {
        struct entry_header header, decoded;
        uint32_t offset, block, size;
        struct entry_header whole;
        uint32_t before = scan.position;
        enum entry_scan_result result =
            entry_scan_next(&scan, stop_at_hole, &header, &offset, &block);
        if (result == ENTRY_SCAN_END || (result == ENTRY_SCAN_STOPPED && stop_at_hole))
            return;
        ASSERT(scan.position > before && scan.position <= bytes);
        if (result == ENTRY_SCAN_STOPPED)
            continue;
        ASSERT(offset % ENTRY_ALIGN == 0 && offset >= before && block <= bytes - offset);
        ASSERT(scan.position == offset + block);
        ASSERT(entry_decode(format, region + offset, block, &decoded, &size) == 0);
        ASSERT(size == block && decoded.version == header.version && header.type != ENTRY_PAD);
        ASSERT(entry_decode(format, region + offset, block - 1, &decoded, &size) != 0);
        if (entry_verify(format, region + offset, bytes - offset, &whole) == 0)
            check_entry(format, region + offset, bytes - offset, &whole);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t block_limits[] = {256, 1024, 4096, 65536};
    if (size < 1 || size > MAX_REGION_BYTES)
        return 0;
    struct entry_format format = {0x5eed, block_limits[data[0] & 3]};
    bool sealed = data[0] & 4;
    bool stop_at_hole = data[0] & 8;
    size--;
    /* The region ends where the allocation ends, for the address sanitizer; aligned_alloc wants a
     * multiple of the alignment. */
    size -= size % ENTRY_ALIGN;
    uint8_t *region = aligned_alloc(ENTRY_ALIGN, size > 0 ? size : ENTRY_ALIGN);
    if (region == NULL)
        return 0;
    memcpy(region, data + 1, size);
    if (sealed)
        seal_all(&format, region, size);
    check_region(&format, region, (uint32_t)size, stop_at_hole);
    free(region);
    return 0;
}
