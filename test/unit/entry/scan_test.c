/* scan_test.c - what the scan finds in a region, and what it must not. */
#define TEST_FIXTURE set_up, NULL

#include "common/base/crc.h"
#include "common/base/random.h"
#include "common/entry/entry.h"
#include "test/lib/unit.h"

enum { REGION_BYTES = 1 << 20, MAX_FOUND = 64 };

static const struct entry_format format = {0x5eed, 1024};

struct found {
    uint64_t version;
    uint32_t offset, bytes;
    uint16_t block;
};

static _Alignas(ENTRY_ALIGN) uint8_t region[REGION_BYTES];
static struct found found[MAX_FOUND];
static unsigned found_count;

static int set_up(void **state)
{
    (void)state;
    memset(region, 0, sizeof(region));
    return 0;
}

/* Encodes a put, its blocks one behind the other, and returns its bytes. */
static uint32_t put_at(const struct entry_format *with, uint8_t *at, uint64_t version,
                       const void *value, uint32_t value_bytes)
{
    struct entry_header header = {
        .type = ENTRY_PUT,
        .shard = 1,
        .version = version,
        .key_bytes = 3,
        .value_bytes = value_bytes,
        .blocks = (uint16_t)entry_blocks(with, 3, value_bytes),
    };
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < header.blocks; i++) {
        header.block = (uint16_t)i;
        bytes += entry_encode_block(with, &header, "key", value, at + bytes);
    }
    return bytes;
}

static uint32_t pad_at(uint8_t *at, uint32_t gap)
{
    struct entry_header header = {
        .type = ENTRY_PAD, .value_bytes = gap - ENTRY_HEADER_BYTES, .blocks = 1};
    return entry_encode_block(&format, &header, NULL, NULL, at);
}

/* Scans [position, bytes) to its end, however often the scan stops for breath. */
static void scan_all(uint32_t position, uint32_t bytes)
{
    struct entry_scan scan;
    entry_scan_init(&scan, &format, region, bytes, position);
    found_count = 0;
    for (;;) {
        struct entry_header header;
        struct found *at = &found[found_count];
        uint32_t before = scan.position;
        enum entry_scan_result result =
            entry_scan_next(&scan, false, &header, &at->offset, &at->bytes);
        if (result == ENTRY_SCAN_END)
            return;
        assert_true(scan.position > before);
        if (result == ENTRY_SCAN_STOPPED)
            continue;
        at->version = header.version;
        at->block = header.block;
        found_count++;
        assert_true(found_count < MAX_FOUND);
    }
}

static void assert_found(unsigned index, uint64_t version, uint32_t offset)
{
    assert_true(index < found_count);
    assert_int_equal(found[index].version, version);
    assert_int_equal(found[index].offset, offset);
}

TEST(entries_one_behind_the_other_are_found_in_order)
{
    uint32_t second = put_at(&format, region, 1, "value", 5);
    uint32_t third = second + put_at(&format, region + second, 2, "", 0);
    put_at(&format, region + third, 3, "x", 1);
    scan_all(0, REGION_BYTES);
    assert_int_equal(found_count, 3);
    assert_found(0, 1, 0);
    assert_found(1, 2, second);
    assert_found(2, 3, third);
    assert_int_equal(found[0].bytes, second);

    scan_all(second, REGION_BYTES);
    assert_int_equal(found_count, 2);
    assert_found(0, 2, second);
}

TEST(an_empty_region_ends_at_once)
{
    scan_all(0, 0);
    assert_int_equal(found_count, 0);
    scan_all(REGION_BYTES, REGION_BYTES);
    assert_int_equal(found_count, 0);
    scan_all(0, REGION_BYTES);
    assert_int_equal(found_count, 0);
}

TEST(every_block_of_a_long_entry_is_yielded)
{
    uint8_t value[2500];
    memset(value, 'v', sizeof(value));
    uint32_t bytes = put_at(&format, region, 5, value, sizeof(value));
    assert_int_equal(put_at(&format, region + bytes, 6, "", 0), 64);
    scan_all(0, REGION_BYTES);
    assert_int_equal(found_count, 4);
    for (uint16_t i = 0; i < 3; i++) {
        assert_int_equal(found[i].block, i);
        assert_found(i, 5, i * format.block_limit);
    }
    assert_found(3, 6, bytes);
}

TEST(holes_are_passed_over)
{
    put_at(&format, region + 64, 1, "a", 1);
    put_at(&format, region + 640, 2, "b", 1);
    put_at(&format, region + REGION_BYTES - 64, 3, "c", 1);
    scan_all(0, REGION_BYTES);
    assert_int_equal(found_count, 3);
    assert_found(0, 1, 64);
    assert_found(1, 2, 640);
    assert_found(2, 3, REGION_BYTES - 64);
}

TEST(pads_are_passed_over_whole)
{
    uint32_t at = put_at(&format, region, 1, "a", 1);
    at += pad_at(region + at, 64);
    at += pad_at(region + at, 1024);
    put_at(&format, region + at, 2, "b", 1);
    scan_all(0, at + 64);
    assert_int_equal(found_count, 2);
    assert_found(1, 2, at);

    /* Not a hole either, for a scan that stops at holes. */
    struct entry_scan scan;
    struct entry_header header;
    uint32_t offset, bytes;
    entry_scan_init(&scan, &format, region, at + 64, 64);
    assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_BLOCK);
    assert_int_equal(offset, at);
    assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_END);
}

TEST(a_pad_hides_the_whole_entry_inside_it)
{
    uint8_t inner[96 + 64] __attribute__((aligned(ENTRY_ALIGN))) = {0};
    put_at(&format, inner + 32, 9, "", 0); /* lands at a 64 B boundary behind the pad's header */
    struct entry_header header = {.type = ENTRY_PAD, .value_bytes = sizeof(inner), .blocks = 1};
    entry_encode_block(&format, &header, NULL, inner, region);
    scan_all(64, 256);
    assert_int_equal(found_count, 1); /* it is one, if looked at */
    scan_all(0, 256);
    assert_int_equal(found_count, 0);
}

TEST(a_torn_tail_is_left_out_wherever_it_is_torn)
{
    uint8_t value[900];
    memset(value, 0x5a, sizeof(value));
    uint32_t first = put_at(&format, region, 1, "a", 1);
    uint32_t second = put_at(&format, region + first, 2, value, sizeof(value));
    uint32_t last = ENTRY_HEADER_BYTES + 3 + sizeof(value);
    for (uint32_t cut = 0; cut < last; cut++) {
        put_at(&format, region + first, 2, value, sizeof(value));
        memset(region + first + cut, 0, second - cut);
        scan_all(0, REGION_BYTES);
        assert_int_equal(found_count, 1);
        assert_found(0, 1, 0);
    }
    put_at(&format, region + first, 2, value, sizeof(value));
    for (uint32_t end = first; end < first + second; end++) {
        scan_all(0, end);
        assert_int_equal(found_count, 1);
    }
    scan_all(0, first + second);
    assert_int_equal(found_count, 2);
}

TEST(entries_between_garbage_are_found_and_nothing_else)
{
    struct random random;
    random_init(&random, 17);
    for (uint32_t i = 0; i < REGION_BYTES; i++)
        region[i] = (uint8_t)random_u64(&random);
    for (uint32_t i = 0; i < 16; i++)
        put_at(&format, region + i * 65536 + i * 64, i, "here", 4);
    scan_all(0, REGION_BYTES);
    assert_int_equal(found_count, 16);
    for (uint32_t i = 0; i < 16; i++)
        assert_found(i, i, i * 65536 + i * 64);
}

/* A value that holds a whole entry, placed so that it begins at a 64 B boundary of the region. */
static uint32_t put_with_entry_inside(const struct entry_format *inner_format, uint8_t *at)
{
    uint8_t value[64 - ENTRY_HEADER_BYTES - 3 + 64] __attribute__((aligned(ENTRY_ALIGN)));
    uint8_t inner[64] __attribute__((aligned(ENTRY_ALIGN)));
    memset(value, 0, sizeof(value));
    assert_int_equal(put_at(inner_format, inner, 666, "", 0), sizeof(inner));
    memcpy(value + sizeof(value) - sizeof(inner), inner, sizeof(inner));
    return put_at(&format, at, 1, value, sizeof(value));
}

TEST(a_value_that_imitates_an_entry_is_not_admitted_even_when_its_host_is_torn)
{
    /* A client does not know the cluster's seed. */
    const struct entry_format other = {format.seed + 1, format.block_limit};
    assert_int_equal(put_with_entry_inside(&other, region), 128);
    scan_all(0, 4096);
    assert_int_equal(found_count, 1);
    assert_found(0, 1, 0);
    region[ENTRY_HEADER_BYTES] ^= 1;
    scan_all(0, 4096);
    assert_int_equal(found_count, 0);
}

TEST(an_entry_inside_a_whole_entry_is_stepped_over)
{
    uint32_t bytes = put_with_entry_inside(&format, region);
    put_at(&format, region + bytes, 2, "", 0);
    scan_all(0, 4096);
    assert_int_equal(found_count, 2);
    assert_found(0, 1, 0);
    assert_found(1, 2, bytes);
    scan_all(64, 4096);
    assert_int_equal(found_count, 2);
    assert_found(0, 666, 64); /* it would have been one */
}

TEST(a_scan_that_stops_at_holes_goes_on_where_it_stopped)
{
    struct entry_scan scan;
    struct entry_header header;
    uint32_t offset, bytes;
    uint8_t landing[256] __attribute__((aligned(ENTRY_ALIGN)));
    uint32_t first = put_at(&format, region, 1, "a", 1);
    uint8_t value[120];
    memset(value, 'v', sizeof(value));
    uint32_t second = put_at(&format, landing, 2, value, sizeof(value));

    entry_scan_init(&scan, &format, region, first + second, 0);
    assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_BLOCK);
    for (uint32_t landed = 0; landed < ENTRY_HEADER_BYTES + 3 + sizeof(value); landed += 40) {
        memcpy(region + first, landing, landed);
        for (unsigned again = 0; again < 2; again++) {
            offset = bytes = 4711;
            assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes),
                             ENTRY_SCAN_STOPPED);
            assert_int_equal(scan.position, first);
            assert_int_equal(offset, 4711);
            assert_int_equal(bytes, 4711);
            assert_int_equal(header.version, 1);
        }
    }
    memcpy(region + first, landing, second);
    assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_BLOCK);
    assert_int_equal(header.version, 2);
    assert_int_equal(offset, first);
    assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_END);
    assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_END);
}

/* Blocks of 64 and 192 B in slots of 256: what lies behind them in their slots is no hole, a slot is. */
TEST(a_scan_of_slots_stops_at_empty_slots_and_nowhere_else)
{
    enum { SLOT = 256, SLOTS = 4 };
    struct entry_scan scan;
    struct entry_header header;
    uint32_t offset, bytes;
    uint8_t value[150] = {1};

    put_at(&format, region, 1, "a", 1);
    put_at(&format, region + SLOT, 2, value, sizeof value);
    put_at(&format, region + 3 * SLOT, 4, "a", 1);
    entry_scan_init(&scan, &format, region, SLOTS * SLOT, 0);
    entry_scan_stride(&scan, SLOT);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_BLOCK);
        assert_int_equal(offset, i * SLOT);
        assert_int_equal(header.version, i + 1);
        assert_int_equal(bytes, i == 0 ? 64 : 192);
    }
    assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_STOPPED);
    assert_int_equal(scan.position, 2 * SLOT);
    put_at(&format, region + 2 * SLOT + 64, 666, "a", 1); /* nothing begins there */
    assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_STOPPED);
    assert_int_equal(scan.position, 2 * SLOT);
    assert_int_equal(entry_scan_next(&scan, false, &header, &offset, &bytes), ENTRY_SCAN_BLOCK);
    assert_int_equal(header.version, 4);
    assert_int_equal(entry_scan_next(&scan, true, &header, &offset, &bytes), ENTRY_SCAN_END);
}

TEST(a_long_hole_is_crossed_in_bounded_steps)
{
    struct entry_scan scan;
    struct entry_header header;
    uint32_t offset, bytes;
    put_at(&format, region + REGION_BYTES - 64, 1, "a", 1);
    entry_scan_init(&scan, &format, region, REGION_BYTES, 0);
    for (uint32_t i = 1; i <= REGION_BYTES / 65536 - 1; i++) {
        assert_int_equal(entry_scan_next(&scan, false, &header, &offset, &bytes),
                         ENTRY_SCAN_STOPPED);
        assert_int_equal(scan.position, i * 65536);
    }
    assert_int_equal(entry_scan_next(&scan, false, &header, &offset, &bytes), ENTRY_SCAN_BLOCK);
    assert_int_equal(offset, REGION_BYTES - 64);
}

/* A header without a right checksum: what a torn or forged block shows. */
static void lie_at(const struct entry_format *with, uint8_t *at, uint32_t key_bytes,
                   uint32_t value_bytes)
{
    uint32_t lengths = value_bytes << 11 | key_bytes;
    uint32_t blocks = entry_blocks(with, key_bytes, value_bytes) << 16;
    memset(at, 0, ENTRY_ALIGN);
    at[1] = ENTRY_PUT;
    memset(at + 4, 0x77, 4);
    memcpy(at + 16, &lengths, sizeof(lengths));
    memcpy(at + 20, &blocks, sizeof(blocks));
}

TEST(lengths_that_lie_hide_no_entry)
{
    static const uint32_t lies[] = {0, 1, 29, 30, 600, 990, 5000, 1 << 20};
    for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
        for (uint32_t room = 64; room <= 4096; room += 192) {
            lie_at(&format, region, 3, lies[i]);
            put_at(&format, region + 64, 1, "a", 1);
            put_at(&format, region + 192, 2, "b", 1);
            scan_all(0, room);
            assert_int_equal(found_count, room >= 256 ? 2 : room >= 128 ? 1 : 0);
        }
}

TEST(checksums_under_lengths_that_lie_are_bounded_in_one_call)
{
    struct entry_scan scan;
    struct entry_header header;
    uint32_t offset, bytes;
    /* Every line claims to open a block of 64 KiB: each costs a checksum over all of it. */
    const struct entry_format large = {1, 65536};
    for (uint32_t at = 0; at < REGION_BYTES; at += 64)
        lie_at(&large, region + at, 1, 1 << 20);
    entry_scan_init(&scan, &large, region, REGION_BYTES, 0);
    for (uint32_t i = 1; i <= 100; i++) {
        assert_int_equal(entry_scan_next(&scan, false, &header, &offset, &bytes),
                         ENTRY_SCAN_STOPPED);
        assert_int_equal(scan.position, i * 64);
    }
}

UNIT_MAIN(NULL, NULL)
