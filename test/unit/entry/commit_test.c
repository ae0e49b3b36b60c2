/* The value of a commit versions entry, through commit.h, against golden.py's bytes. */
#include "common/base/error.h"
#include "common/entry/commit.h"
#include "common/entry/entry.h"
#include "golden.h"
#include "test/lib/unit.h"

enum { SHARDS = 3, CLIENTS = 2, BYTES = 8 + SHARDS * 16 + CLIENTS * 8 };

static const struct commit_shard shards[SHARDS] = {
    {5, UINT64_C(6) << 40 | 123},
    {0xbeef, UINT64_C(0xabcdef) << 40 | UINT64_C(0x123456789a)},
    {0, UINT64_C(1) << 40},
};
static const struct commit_client clients[CLIENTS] = {{1024, 77}, {0xcafe0001, UINT32_MAX}};

static const struct golden *find_golden(const char *name)
{
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        if (strcmp(goldens[i].name, name) == 0)
            return &goldens[i];
    }
    fail();
    return NULL;
}

TEST(commit_versions_are_encoded_to_their_very_bytes)
{
    const struct golden *golden = find_golden("commit versions");
    uint8_t bytes[BYTES];
    assert_int_equal(commit_bytes(SHARDS, CLIENTS), BYTES);
    assert_int_equal(commit_encode(shards, SHARDS, clients, CLIENTS, bytes), BYTES);
    assert_int_equal(golden->value_bytes, BYTES);
    assert_memory_equal(bytes, golden->value, BYTES);
}

TEST(what_was_encoded_is_decoded_row_by_row)
{
    struct commit_value value;
    assert_int_equal(commit_decode(find_golden("commit versions")->value, BYTES, &value, NULL), 0);
    assert_int_equal(value.shards, SHARDS);
    assert_int_equal(value.clients, CLIENTS);
    for (uint32_t i = 0; i < SHARDS; i++) {
        assert_int_equal(commit_shard_at(&value, i).shard, shards[i].shard);
        assert_int_equal(commit_shard_at(&value, i).version, shards[i].version);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(commit_client_at(&value, i).client, clients[i].client);
        assert_int_equal(commit_client_at(&value, i).lowest, clients[i].lowest);
    }
}

TEST(rows_of_one_kind_or_none_are_fine)
{
    uint8_t bytes[BYTES];
    struct commit_value value;
    static const uint32_t counts[][2] = {{0, 0}, {SHARDS, 0}, {0, CLIENTS}};
    for (unsigned i = 0; i < 3; i++) {
        uint32_t count = commit_encode(shards, counts[i][0], clients, counts[i][1], bytes);
        assert_int_equal(count, commit_bytes(counts[i][0], counts[i][1]));
        assert_int_equal(commit_decode(bytes, count, &value, NULL), 0);
        assert_int_equal(value.shards, counts[i][0]);
        assert_int_equal(value.clients, counts[i][1]);
    }
}

/* Each length in a block of just that size, for the address sanitizer. */
TEST(a_value_that_is_cut_or_too_long_is_refused)
{
    const uint8_t *whole = find_golden("commit versions")->value;
    for (uint32_t count = 0; count <= BYTES + 16; count++) {
        uint8_t *bytes = calloc(1, count ? count : 1);
        struct commit_value value = {.shards = 99};
        assert_non_null(bytes);
        memcpy(bytes, whole, count < BYTES ? count : BYTES);
        int error = commit_decode(bytes, count, &value, NULL);
        assert_int_equal(error, count == BYTES ? 0 : ROWAN_EFORMAT);
        assert_int_equal(value.shards, error ? 99 : SHARDS);
        free(bytes);
    }
}

TEST(a_part_of_a_table_is_encoded_to_its_very_bytes)
{
    const struct golden *golden = find_golden("part of a table");
    uint8_t bytes[BYTES];
    commit_encode(shards, SHARDS, clients, CLIENTS, bytes);
    commit_make_part(bytes, (struct commit_part){.part = 2, .parts = 0x103});
    assert_memory_equal(bytes, golden->value, BYTES);
    struct commit_value value;
    struct commit_part part;
    assert_int_equal(commit_decode(golden->value, BYTES, &value, &part), 0);
    assert_true(part.part == 2 && part.parts == 0x103);
    assert_int_equal(commit_client_at(&value, 1).client, clients[1].client);
}

/* Rows of a table are no commit versions. */
TEST(tables_and_others_are_not_taken_for_each_other)
{
    static const uint16_t heads[][2] = {{0, 1}, {1, 1}, {2, 1}}; /* parts, part */
    uint8_t bytes[BYTES];
    struct commit_value value;
    struct commit_part part;
    memcpy(bytes, find_golden("commit versions")->value, BYTES);
    assert_int_equal(commit_decode(bytes, BYTES, &value, &part), ROWAN_EFORMAT);
    for (unsigned i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        memcpy(bytes + 2, &heads[i][0], 2);
        memcpy(bytes + 6, &heads[i][1], 2);
        assert_int_equal(commit_decode(bytes, BYTES, &value, NULL), ROWAN_EFORMAT);
        assert_int_equal(commit_decode(bytes, BYTES, &value, &part), i == 2 ? 0 : ROWAN_EFORMAT);
    }
}

TEST(reserved_bytes_that_are_not_zero_are_refused)
{
    uint8_t bytes[BYTES];
    struct commit_value value;
    for (uint32_t row = 0; row < SHARDS; row++) {
        for (uint32_t i = 2; i < 8; i++) {
            memcpy(bytes, find_golden("commit versions")->value, BYTES);
            bytes[8 + row * 16 + i] = 0x80;
            assert_int_equal(commit_decode(bytes, BYTES, &value, NULL), ROWAN_EFORMAT);
        }
    }
}

UNIT_MAIN(NULL, NULL)
