/* golden_test.c - the entry's bytes against vectors that golden.py made without the encoder. */
#include "common/entry/entry.h"
#include "golden.h"
#include "test/lib/unit.h"

enum { GOLDENS = sizeof(goldens) / sizeof(goldens[0]) };

static uint8_t pattern[ENTRY_MAX_VALUE_BYTES];
static uint8_t out[ENTRY_MAX_BLOCK_LIMIT] __attribute__((aligned(ENTRY_ALIGN)));

static int make_pattern(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (uint8_t)(i * 31 + (i >> 8));
    return 0;
}

static struct entry_header golden_header(const struct golden *golden)
{
    return (struct entry_header){
        .type = (enum entry_type)golden->type,
        .shard = golden->shard,
        .version = golden->version,
        .key_bytes = (uint16_t)golden->key_bytes,
        .value_bytes = golden->value_bytes,
        .block = (uint16_t)golden->block,
        .blocks = (uint16_t)golden->blocks,
        .client_id = golden->client_id,
        .operation = golden->operation,
    };
}

static void assert_headers_equal(const struct entry_header *a, const struct entry_header *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->shard, b->shard);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->key_bytes, b->key_bytes);
    assert_int_equal(a->value_bytes, b->value_bytes);
    assert_int_equal(a->block, b->block);
    assert_int_equal(a->blocks, b->blocks);
    assert_int_equal(a->client_id, b->client_id);
    assert_int_equal(a->operation, b->operation);
}

TEST(every_vector_is_encoded_to_its_very_bytes)
{
    for (unsigned i = 0; i < GOLDENS; i++) {
        const struct golden *golden = &goldens[i];
        struct entry_format format = {golden->seed, golden->block_limit};
        struct entry_header header = golden_header(golden);
        const uint8_t *value = golden->value;
        if (value == NULL && golden->type != ENTRY_PAD)
            value = pattern;
        print_message("# %s, block %u\n", golden->name, golden->block);
        assert_int_equal(entry_blocks(&format, golden->key_bytes, golden->value_bytes),
                         golden->blocks);
        assert_int_equal(
            entry_block_bytes(&format, golden->key_bytes, golden->value_bytes, golden->block),
            golden->block_bytes);
        memset(out, 0xee, sizeof(out));
        assert_int_equal(entry_encode_block(&format, &header, golden->key, value, out),
                         golden->block_bytes);
        assert_memory_equal(out, golden->shown, golden->shown_bytes);

        struct entry_header decoded;
        uint32_t bytes;
        assert_int_equal(entry_decode(&format, out, sizeof(out), &decoded, &bytes), 0);
        assert_int_equal(bytes, golden->block_bytes);
        assert_headers_equal(&decoded, &header);
    }
}

TEST(every_whole_vector_is_decoded)
{
    for (unsigned i = 0; i < GOLDENS; i++) {
        const struct golden *golden = &goldens[i];
        if (golden->shown_bytes < golden->block_bytes)
            continue;
        struct entry_format format = {golden->seed, golden->block_limit};
        struct entry_header expected = golden_header(golden);
        struct entry_header decoded, peeked;
        uint32_t bytes;
        memcpy(out, golden->shown, golden->shown_bytes);
        assert_int_equal(entry_decode(&format, out, golden->shown_bytes, &decoded, &bytes), 0);
        assert_int_equal(bytes, golden->block_bytes);
        assert_headers_equal(&decoded, &expected);
        entry_peek(out, &peeked);
        assert_headers_equal(&peeked, &expected);
    }
}

TEST(a_checksum_of_zero_is_stored_as_all_ones)
{
    unsigned found = 0;
    for (unsigned i = 0; i < GOLDENS; i++) {
        if (strcmp(goldens[i].name, "put whose CRC is 0") != 0)
            continue;
        struct entry_format format = {goldens[i].seed, goldens[i].block_limit};
        struct entry_header header = golden_header(&goldens[i]);
        entry_encode_block(&format, &header, goldens[i].key, goldens[i].value, out);
        assert_memory_equal(out + 4, "\xff\xff\xff\xff", 4);
        /* The plain 0 is no checksum of anything. */
        memset(out + 4, 0, 4);
        uint32_t bytes;
        assert_int_not_equal(entry_decode(&format, out, sizeof(out), &header, &bytes), 0);
        found++;
    }
    assert_int_equal(found, 1);
}

UNIT_MAIN(make_pattern, NULL)
