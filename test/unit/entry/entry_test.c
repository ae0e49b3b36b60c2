/* entry_test.c - encode, decode and the views of key and value. The bytes themselves are held by
 * golden_test.c. */
#include "common/base/crc.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/entry/entry.h"
#include "test/lib/unit.h"

enum { AREA_BYTES = 2 << 20, MAX_PIECES = 8 };

static const uint64_t seed = 20260101;
static const uint32_t block_limits[] = {256, 1024, 65536};
static uint8_t *area, *value_area;
static uint8_t key_area[ENTRY_MAX_KEY_BYTES];
static struct random source;

static int set_up(void **state)
{
    (void)state;
    area = aligned_alloc(ENTRY_ALIGN, AREA_BYTES);
    value_area = malloc(ENTRY_MAX_VALUE_BYTES);
    random_init(&source, seed);
    return area != NULL && value_area != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(area);
    free(value_area);
    return 0;
}

static void fill_random(uint8_t *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = random_u64(&source);
        memcpy(out + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
    }
}

/* Encodes a put with random contents, its blocks one behind the other at `area`. */
static uint32_t encode_random(const struct entry_format *format, struct entry_header *header,
                              uint32_t key_bytes, uint32_t value_bytes)
{
    fill_random(key_area, key_bytes);
    fill_random(value_area, value_bytes);
    *header = (struct entry_header){
        .type = ENTRY_PUT,
        .shard = (uint16_t)random_u64(&source),
        .version = random_u64(&source),
        .key_bytes = (uint16_t)key_bytes,
        .value_bytes = value_bytes,
        .blocks = (uint16_t)entry_blocks(format, key_bytes, value_bytes),
        .client_id = (uint32_t)random_u64(&source),
        .operation = (uint32_t)random_u64(&source),
    };
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < header->blocks; i++) {
        header->block = (uint16_t)i;
        uint32_t size = entry_encode_block(format, header, key_area, value_area, area + bytes);
        assert_int_equal(size, entry_block_bytes(format, key_bytes, value_bytes, i));
        assert_int_equal(size % ENTRY_ALIGN, 0);
        bytes += size;
    }
    assert_int_equal(bytes, entry_bytes(format, key_bytes, value_bytes));
    return bytes;
}

/* Takes the value in steps of `step` pieces and compares. */
static void assert_value_in_steps(const struct entry_format *format,
                                  const struct entry_header *header, unsigned step)
{
    struct entry_piece pieces[MAX_PIECES];
    uint32_t taken = 0, value_bytes = header->value_bytes;
    unsigned first = 0;
    unsigned count;
    while ((count = entry_value_pieces(format, header, area, first, pieces, step)) > 0) {
        assert_true(count <= step);
        for (unsigned i = 0; i < count; i++) {
            assert_true(pieces[i].bytes > 0 && pieces[i].bytes <= value_bytes - taken);
            assert_memory_equal(pieces[i].data, value_area + taken, pieces[i].bytes);
            taken += pieces[i].bytes;
        }
        first += count;
    }
    assert_int_equal(taken, value_bytes);
    assert_int_equal(entry_value_pieces(format, header, area, first + 1, pieces, step), 0);
    assert_int_equal(entry_value_pieces(format, header, area, UINT32_MAX, pieces, step), 0);
    /* Times any of the block capacities, all multiples of 32, this is 0 in 32 bits. */
    assert_int_equal(entry_value_pieces(format, header, area, UINT32_C(1) << 27, pieces, step), 0);
}

static void assert_round_trip(const struct entry_format *format, uint32_t key_bytes,
                              uint32_t value_bytes)
{
    struct entry_header header, peeked;
    uint32_t bytes = encode_random(format, &header, key_bytes, value_bytes);
    struct entry_header verified = {0};
    assert_int_equal(entry_verify(format, area, bytes, &verified), 0);
    assert_int_equal(entry_bytes(format, verified.key_bytes, verified.value_bytes), bytes);
    assert_int_equal(verified.version, header.version);
    assert_int_equal(entry_verify(format, area, AREA_BYTES, NULL), 0);
    assert_int_equal(entry_verify(format, area, bytes - 1, &verified), ROWAN_EDAMAGED);

    entry_peek(area, &peeked);
    assert_int_equal(peeked.version, header.version);
    assert_int_equal(peeked.key_bytes, key_bytes);
    assert_int_equal(peeked.value_bytes, value_bytes);

    uint8_t key[ENTRY_MAX_KEY_BYTES];
    assert_int_equal(entry_key(format, area, key), key_bytes);
    assert_memory_equal(key, key_area, key_bytes);
    assert_true(entry_key_equals(format, area, key, key_bytes));
    assert_false(entry_key_equals(format, area, key, key_bytes - 1));
    key[random_below(&source, key_bytes)] ^= 1;
    assert_false(entry_key_equals(format, area, key, key_bytes));

    assert_value_in_steps(format, &verified, 1);
    assert_value_in_steps(format, &verified, 3);
    assert_value_in_steps(format, &verified, MAX_PIECES);
}

static void assert_flip_is_detected(const struct entry_format *format, uint32_t bytes, uint64_t bit)
{
    uint8_t mask = (uint8_t)(1 << bit % 8);
    area[bit / 8] ^= mask;
    assert_int_not_equal(entry_verify(format, area, bytes, NULL), 0);
    area[bit / 8] ^= mask;
}

TEST(entries_of_random_sizes_round_trip_and_flipped_bits_are_detected)
{
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (unsigned round = 0; round < 600; round++) {
        struct entry_format format = {(uint32_t)random_u64(&source), block_limits[round % 3]};
        uint32_t key_bytes = 1 + (uint32_t)random_below(&source, ENTRY_MAX_KEY_BYTES);
        /* Mostly of the size of a few blocks, now and then of any size. */
        uint32_t most = round % 30 == 29 ? ENTRY_MAX_VALUE_BYTES : 4 * format.block_limit;
        uint32_t value_bytes = (uint32_t)random_below(&source, most + 1);
        assert_round_trip(&format, key_bytes, value_bytes);

        uint32_t bytes = entry_bytes(&format, key_bytes, value_bytes);
        for (unsigned i = 0; i < 12; i++)
            assert_flip_is_detected(&format, bytes, random_below(&source, bytes * UINT64_C(8)));
    }
}

TEST(sizes_at_every_edge_round_trip)
{
    static const uint32_t keys[] = {1, 2, 31, 32, 223, 224, 225, 448, 896, 992, 993, 1024};
    for (unsigned limit = 0; limit < 3; limit++) {
        struct entry_format format = {7, block_limits[limit]};
        uint32_t capacity = format.block_limit - ENTRY_HEADER_BYTES;
        for (unsigned k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            /* Around the end of the first blocks, of a line, and the limits of a value. */
            for (uint32_t end = 1; end <= 6; end++)
                for (uint32_t total = end * capacity - 1; total <= end * capacity + 1; total++)
                    if (total >= keys[k])
                        assert_round_trip(&format, keys[k], total - keys[k]);
            for (uint32_t value = 0; value <= 96; value++)
                assert_round_trip(&format, keys[k], value);
        }
        assert_round_trip(&format, 1, ENTRY_MAX_VALUE_BYTES);
        assert_round_trip(&format, ENTRY_MAX_KEY_BYTES, ENTRY_MAX_VALUE_BYTES);
    }
}

TEST(every_single_flipped_bit_is_detected)
{
    static const uint32_t values[] = {0, 1, 43, 300};
    struct entry_format format = {99, 256};
    for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct entry_header header, untouched = {.shard = 4711};
        uint32_t bytes = encode_random(&format, &header, 48, values[i]);
        uint32_t size = 4711;
        for (uint64_t bit = 0; bit < bytes * UINT64_C(8); bit++) {
            assert_flip_is_detected(&format, bytes, bit);
            if (bit / 8 >= entry_block_bytes(&format, 48, values[i], 0))
                continue;
            area[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_int_equal(entry_decode(&format, area, bytes, &untouched, &size), ROWAN_EDAMAGED);
            area[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        assert_int_equal(untouched.shard, 4711);
        assert_int_equal(size, 4711);
    }
}

TEST(padding_is_zeroed_over_old_bytes)
{
    struct entry_format format = {1, 65536};
    struct entry_header header;
    for (uint32_t value_bytes = 0; value_bytes < 130; value_bytes++) {
        memset(area, 0xff, 512);
        uint32_t bytes = encode_random(&format, &header, 5, value_bytes);
        for (uint32_t i = ENTRY_HEADER_BYTES + 5 + value_bytes; i < bytes; i++)
            assert_int_equal(area[i], 0);
        assert_int_equal(area[bytes], 0xff);
    }
}

/* Writes a header's raw fields and a checksum that is right for the whole of `bytes`. */
static void seal(const struct entry_format *format, uint8_t *block, uint32_t bytes)
{
    memset(block + 4, 0, 4);
    uint32_t crc = crc32c(format->seed, block, bytes);
    memcpy(block + 4, &crc, sizeof(crc));
}

static void put_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof(value));
}

static int decode_sealed(const struct entry_format *format, uint32_t bytes)
{
    struct entry_header header;
    uint32_t size;
    seal(format, area, bytes);
    return entry_decode(format, area, AREA_BYTES, &header, &size);
}

TEST(types_and_flags_that_nobody_defined_are_refused)
{
    struct entry_format format = {1, 256};
    for (unsigned byte = 0; byte < 256; byte++) {
        memset(area, 0, 64);
        area[1] = (uint8_t)byte;
        put_u32(area + 16, byte == ENTRY_PAD || byte == ENTRY_RECORD ? 0 : 1 << 11 | 1);
        put_u32(area + 20, 1 << 16);
        put_u32(area + 24, 3);
        put_u32(area + 28, 4);
        bool known = (byte >= ENTRY_PUT && byte <= ENTRY_PAD) || byte == ENTRY_RECORD;
        int expected = known ? 0 : ROWAN_EDAMAGED;
        assert_int_equal(decode_sealed(&format, 64), expected);
    }
}

TEST(a_first_byte_other_than_zero_is_refused)
{
    struct entry_format format = {1, 256};
    struct entry_header header;
    encode_random(&format, &header, 3, 4);
    for (unsigned byte = 0; byte < 256; byte++) {
        area[0] = (uint8_t)byte;
        assert_int_equal(decode_sealed(&format, 64), byte == 0 ? 0 : ROWAN_EDAMAGED);
    }
}

TEST(lengths_over_the_limits_are_refused_under_a_right_checksum)
{
    /* A block that claims too long a key or value has a checksum that covers the largest block, or
     * one line, so that only the length can be what is refused. */
    struct entry_format format = {1, 65536};
    const uint32_t covered[] = {64, 1088, 65536};
    const struct {
        uint32_t key, value, blocks;
        bool fits;
    } lengths[] = {
        {1024, 31, 1, true},           {1025, 0, 1, false},    {1025, 31, 1, false},
        {2047, 31, 1, false},          {0, 31, 1, false},      {1, (1 << 20) + 1, 17, false},
        {1, (1 << 21) - 1, 33, false}, {1, 1 << 20, 17, true}, {0, 0, 1, false},
    };
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        bool fits = false;
        for (unsigned j = 0; j < 3; j++) {
            memset(area, 0, 65536);
            area[1] = ENTRY_PUT;
            put_u32(area + 16, lengths[i].value << 11 | lengths[i].key);
            put_u32(area + 20, lengths[i].blocks << 16);
            fits |= decode_sealed(&format, covered[j]) == 0;
        }
        assert_int_equal(fits, lengths[i].fits);
    }
}

TEST(block_counts_that_contradict_the_sizes_are_refused)
{
    struct entry_format format = {1, 256};
    for (uint32_t blocks = 0; blocks < 5; blocks++) {
        for (uint32_t block = 0; block < 5; block++) {
            memset(area, 0, 512);
            area[1] = ENTRY_PUT;
            put_u32(area + 16, 300 << 11 | 40); /* 340 B: two blocks, 256 B and 160 B */
            put_u32(area + 20, blocks << 16 | block);
            bool right = blocks == 2 && block < 2;
            uint32_t bytes = block == 1 ? 192 : 256;
            assert_int_equal(decode_sealed(&format, bytes), right ? 0 : ROWAN_EDAMAGED);
        }
    }
    /* The same entry under another block limit is not the same number of blocks. */
    struct entry_format larger = {1, 1024};
    memset(area, 0, 512);
    area[1] = ENTRY_PUT;
    put_u32(area + 16, 300 << 11 | 40);
    put_u32(area + 20, 2 << 16);
    assert_int_equal(decode_sealed(&larger, 256), ROWAN_EDAMAGED);
}

TEST(a_block_longer_than_the_room_is_refused)
{
    struct entry_format format = {1, 65536};
    struct entry_header header;
    uint32_t size;
    uint32_t bytes = encode_random(&format, &header, 48, 200);
    for (size_t room = 0; room < bytes; room++) {
        /* Of exactly that size, for the address sanitizer. */
        uint8_t *copy = malloc(room > 0 ? room : 1);
        assert_non_null(copy);
        memcpy(copy, area, room);
        assert_int_equal(entry_decode(&format, copy, room, &header, &size), ROWAN_EDAMAGED);
        free(copy);
    }
    assert_int_equal(entry_decode(&format, area, bytes, &header, &size), 0);
}

TEST(unwritten_bytes_are_told_from_damaged_ones)
{
    struct entry_format format = {1, 65536};
    struct entry_header header;
    uint32_t size;
    memset(area, 0, 64);
    assert_int_equal(entry_decode(&format, area, 64, &header, &size), ROWAN_EFORMAT);
    assert_int_equal(entry_verify(&format, area, 64, &header), ROWAN_EFORMAT);
    area[63] = 1;
    assert_int_equal(entry_decode(&format, area, 64, &header, &size), ROWAN_EFORMAT);
    area[7] = 1;
    assert_int_equal(entry_decode(&format, area, 64, &header, &size), ROWAN_EDAMAGED);
}

TEST(only_commit_versions_and_pads_go_without_a_key)
{
    struct entry_format format = {1, 256};
    for (uint8_t type = ENTRY_PUT; type <= ENTRY_PAD; type++) {
        memset(area, 0, 64);
        area[1] = type;
        put_u32(area + 16, 16 << 11);
        put_u32(area + 20, 1 << 16);
        bool allowed = type == ENTRY_COMMIT_VERSIONS || type == ENTRY_PAD;
        assert_int_equal(decode_sealed(&format, 64), allowed ? 0 : ROWAN_EDAMAGED);
    }
    /* A pad has no key at all: its bytes are its value. */
    area[1] = ENTRY_PAD;
    put_u32(area + 16, 16 << 11 | 1);
    assert_int_equal(decode_sealed(&format, 64), ROWAN_EDAMAGED);
}

TEST(a_record_stub_is_a_header_of_one_client_s_operation)
{
    struct entry_format format = {1, 256};
    struct entry_header header = {.type = ENTRY_RECORD,
                                  .shard = 7,
                                  .version = 9,
                                  .blocks = 1,
                                  .client_id = 3,
                                  .operation = 4};
    assert_int_equal(entry_encode_block(&format, &header, NULL, NULL, area), 64);
    assert_false(entry_key_equals(&format, area, "", 0));
    static const struct {
        unsigned at;
        uint32_t value;
    } wrong[] = {{16, 1}, {16, 1 << 11}, {20, 2 << 16}, {20, 2 << 16 | 1}, {24, 0}, {28, 0}};
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        entry_encode_block(&format, &header, NULL, NULL, area);
        assert_int_equal(decode_sealed(&format, 64), 0);
        put_u32(area + wrong[i].at, wrong[i].value);
        assert_int_equal(decode_sealed(&format, 64), ROWAN_EDAMAGED);
    }
}

TEST(a_pad_fills_any_gap)
{
    struct entry_format format = {1, 1024};
    for (uint32_t gap = 64; gap <= format.block_limit; gap += 64) {
        memset(area, 0xaa, gap);
        struct entry_header header = {
            .type = ENTRY_PAD, .value_bytes = gap - ENTRY_HEADER_BYTES, .blocks = 1};
        assert_int_equal(entry_encode_block(&format, &header, NULL, NULL, area), gap);
        struct entry_header found;
        assert_int_equal(entry_verify(&format, area, gap, &found), 0);
        assert_int_equal(entry_bytes(&format, 0, found.value_bytes), gap);
        for (uint32_t i = ENTRY_HEADER_BYTES; i < gap; i++)
            assert_int_equal(area[i], 0);
    }
}

/* What a network card reads as the header of tag matching: a first byte of 0, "no tag". And the first 64
 * bits are not 0, or nobody would see that a block has landed. */
static void assert_blocks_may_land(const struct entry_format *format,
                                   const struct entry_header *header)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < header->blocks; i++) {
        assert_int_equal(area[at], 0);
        assert_true(memcmp(area + at, (uint8_t[8]){0}, 8) != 0);
        at += entry_block_bytes(format, header->key_bytes, header->value_bytes, i);
    }
}

TEST(every_block_begins_as_a_tag_matching_queue_wants_it)
{
    for (unsigned limit = 0; limit < 3; limit++) {
        struct entry_format format = {0, block_limits[limit]};
        struct entry_header header;
        for (unsigned i = 0; i < 2000; i++) {
            encode_random(&format, &header, 1 + (uint32_t)random_below(&source, 64),
                          (uint32_t)random_below(&source, 3000));
            assert_blocks_may_land(&format, &header);
        }
        encode_random(&format, &header, ENTRY_MAX_KEY_BYTES, ENTRY_MAX_VALUE_BYTES);
        assert_blocks_may_land(&format, &header);
        for (uint8_t type = ENTRY_DELETE; type <= ENTRY_PAD; type++) {
            header =
                (struct entry_header){.type = type, .blocks = 1, .key_bytes = type == ENTRY_DELETE};
            entry_encode_block(&format, &header, key_area, value_area, area);
            assert_blocks_may_land(&format, &header);
        }
    }
}

TEST(an_entry_is_refused_when_its_blocks_are_not_its_own_in_order)
{
    struct entry_format format = {1, 256};
    struct entry_header header;
    uint32_t bytes = encode_random(&format, &header, 100, 500); /* 3 blocks: 224, 224, 152 */
    uint8_t whole[1024], block[256];
    assert_int_equal(header.blocks, 3);
    memcpy(whole, area, bytes);

    /* Starts in the middle. */
    assert_int_equal(entry_verify(&format, area + 256, bytes - 256, NULL), ROWAN_EDAMAGED);
    /* One block twice, at its own place and at another. */
    memcpy(area + 256, area, 256);
    assert_int_equal(entry_verify(&format, area, bytes, NULL), ROWAN_EDAMAGED);
    memcpy(area, whole + 256, 256);
    memcpy(area + 256, whole + 256, 256);
    assert_int_equal(entry_verify(&format, area, bytes, NULL), ROWAN_EDAMAGED);
    memcpy(area, whole, 256);
    /* A hole in place of the second. */
    memset(area + 256, 0, 256);
    assert_int_equal(entry_verify(&format, area, bytes, NULL), ROWAN_EDAMAGED);
    /* The second one of an entry that differs in one field. */
    for (unsigned field = 0; field < 5; field++) {
        struct entry_header other = header;
        other.block = 1;
        other.version += field == 0;
        other.shard = (uint16_t)(other.shard + (field == 1));
        other.client_id += field == 2;
        other.operation += field == 3;
        other.type = field == 4 ? ENTRY_DELETE : ENTRY_PUT;
        entry_encode_block(&format, &other, key_area, value_area, block);
        memcpy(area + 256, block, 256);
        assert_int_equal(entry_verify(&format, area, bytes, NULL), ROWAN_EDAMAGED);
    }
    memcpy(area, whole, bytes);
    assert_int_equal(entry_verify(&format, area, bytes, NULL), 0);
}

TEST(versions_are_ordered_by_epoch_then_counter)
{
    uint64_t version = version_make(0xabcdef, 0x123456789a);
    assert_int_equal(version, UINT64_C(0xabcdef123456789a));
    assert_int_equal(version_epoch(version), 0xabcdef);
    assert_int_equal(version_counter(version), UINT64_C(0x123456789a));
    assert_true(version_make(2, 0) > version_make(1, (UINT64_C(1) << VERSION_COUNTER_BITS) - 1));
}

TEST(a_key_is_found_in_place_or_put_together)
{
    struct entry_format format = {3, 256};
    struct entry_header header;
    uint8_t room[ENTRY_MAX_KEY_BYTES];
    const uint32_t sizes[] = {1, 48, 223, 224, 225, 448, ENTRY_MAX_KEY_BYTES};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        encode_random(&format, &header, sizes[i], 300);
        const uint8_t *key = entry_key_in_place(&format, &header, area, room);
        assert_memory_equal(key, key_area, sizes[i]);
        assert_int_equal(key == area + ENTRY_HEADER_BYTES, sizes[i] <= 224);
    }
}

TEST(an_entry_that_is_given_to_another_shard_keeps_all_but_who_asks_for_it)
{
    static const uint32_t values[] = {0, 100, 1000}; /* one block to six */
    const struct entry_format format = {3, 256};
    for (unsigned i = 0; i < 3; i++) {
        struct entry_header header, given;
        uint8_t block[256];
        const uint32_t bytes = encode_random(&format, &header, 300 * (i == 2) + 24, values[i]);
        for (uint32_t at = 0, size; at < bytes; at += size) {
            size = entry_give(&format, area + at, (uint16_t)(header.shard + 1), block);
            memcpy(area + at, block, size);
        }
        assert_int_equal(entry_verify(&format, area, bytes, &given), 0);
        assert_int_equal(given.type, ENTRY_PUT);
        assert_int_equal(given.shard, (uint16_t)(header.shard + 1));
        assert_true(given.version == header.version);
        assert_true(given.client_id == 0 && given.operation == 0);
        uint8_t room[ENTRY_MAX_KEY_BYTES];
        assert_memory_equal(entry_key_in_place(&format, &given, area, room), key_area,
                            header.key_bytes);
        assert_value_in_steps(&format, &given, MAX_PIECES);
    }
}

TEST(a_guess_is_right_of_whole_blocks_and_stays_in_its_room)
{
    struct entry_format format = {3, 256};
    struct entry_header header, found;
    const uint8_t *key;
    uint32_t bytes;

    encode_random(&format, &header, 48, 43);
    assert_true(entry_guess(&format, area, AREA_BYTES, &found, &key, &bytes));
    assert_int_equal(bytes, 128);
    assert_int_equal(found.key_bytes, 48);
    assert_memory_equal(key, key_area, 48);
    assert_true(entry_guess(&format, area, 128, &found, &key, &bytes));
    assert_false(entry_guess(&format, area, 127, &found, &key, &bytes));
    assert_false(entry_guess(&format, area, 31, &found, &key, &bytes));
    encode_random(&format, &header, 225, 43); /* the key is not whole in one block */
    assert_false(entry_guess(&format, area, AREA_BYTES, &found, &key, &bytes));
    encode_random(&format, &header, 48, 1000);
    assert_true(entry_guess(&format, area, AREA_BYTES, &found, &key, &bytes));
    assert_int_equal(bytes, 256);
    assert_false(entry_guess(&format, area + 256, AREA_BYTES - 256, &found, &key, &bytes));
    memset(area, 0, 256);
    assert_false(entry_guess(&format, area, 256, &found, &key, &bytes));
    for (int i = 0; i < 200000; i++) { /* garbage: no assert, and nothing beyond the room */
        uint32_t room = (uint32_t)random_below(&source, 17) * 64;
        fill_random(area, 64);
        area[0] = 0;
        area[1] &= 7;
        if (entry_guess(&format, area, room, &found, &key, &bytes))
            assert_true(bytes <= room && key + found.key_bytes <= area + bytes);
    }
}

UNIT_MAIN(set_up, tear_down)
