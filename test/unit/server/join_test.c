/* The table of incomplete long entries, through join.h. */
#define TEST_FIXTURE setup, teardown
#define TEST_STATE   struct join *join

#include "server/shard/join.h"
#include "test/lib/unit.h"

static const struct entry_format format = {.seed = 1, .block_limit = 4096};

static int setup(void **state)
{
    static struct join join;
    *state = &join;
    return join_init(&join, &format);
}

static int teardown(void **state)
{
    join_fini(*state);
    return 0;
}

static struct join_entry *add(struct join *join, uint16_t shard, uint64_t version, uint16_t block,
                              uint16_t blocks)
{
    const struct entry_header header = {
        .type = ENTRY_PUT, .shard = shard, .version = version, .block = block, .blocks = blocks};
    return join_add(join, &header, 4096 * version + 64u * block + 64);
}

TEST(an_entry_is_whole_when_its_last_block_has_come)
{
    assert_null(add(join, 3, 10, 1, 3));
    assert_null(add(join, 3, 10, 0, 3));
    struct join_entry *entry = add(join, 3, 10, 2, 3);
    assert_non_null(entry);
    for (uint16_t block = 0; block < 3; block++)
        assert_int_equal(entry->offsets[block], 4096 * 10 + 64 * block + 64);
}

TEST(a_block_that_comes_twice_counts_once)
{
    assert_null(add(join, 3, 10, 0, 2));
    assert_null(add(join, 3, 10, 0, 2));
    assert_non_null(add(join, 3, 10, 1, 2));
}

TEST(entries_of_two_shards_with_one_version_are_kept_apart)
{
    assert_null(add(join, 3, 10, 0, 2));
    assert_null(add(join, 4, 10, 1, 2));
    assert_non_null(add(join, 3, 10, 1, 2));
}

TEST(a_removed_entry_starts_again_from_nothing)
{
    assert_null(add(join, 3, 10, 0, 2));
    join_remove(add(join, 3, 10, 1, 2));
    assert_null(add(join, 3, 10, 1, 2));
}

TEST(a_shards_entries_are_dropped_up_to_a_version)
{
    add(join, 3, 10, 0, 2);
    add(join, 3, 11, 0, 2);
    add(join, 4, 10, 0, 2);
    join_drop(join, 3, 10);
    assert_int_equal(join->used, 2);
    assert_null(add(join, 3, 10, 1, 2));
    assert_non_null(add(join, 3, 11, 1, 2));
    assert_non_null(add(join, 4, 10, 1, 2));
}

TEST(a_full_table_gives_up_the_oldest_entry)
{
    for (uint64_t version = 1; version <= JOIN_ENTRIES; version++)
        assert_null(add(join, 0, version, 0, 2));
    assert_null(add(join, 0, JOIN_ENTRIES + 1, 0, 2));
    assert_non_null(add(join, 0, 2, 1, 2));
    assert_non_null(add(join, 0, JOIN_ENTRIES + 1, 1, 2));
    assert_null(add(join, 0, 1, 1, 2));
}

/* It waits for memory, and its last block is met again. */
TEST(an_entry_that_was_copied_stays_so_when_a_block_comes_again)
{
    add(join, 3, 10, 0, 2);
    struct join_entry *entry = add(join, 3, 10, 1, 2);
    entry->offsets[0] = 1 << 20;
    entry->offsets[1] = (1 << 20) + 4096;
    assert_ptr_equal(add(join, 3, 10, 1, 2), entry);
    assert_int_equal(entry->offsets[1], (1 << 20) + 4096);
}

/* As a start does with blocks of a settled entry: the first copy reaches into the next segment, the second one is whole. */
TEST(a_piece_that_is_kept_lies_in_one_segment)
{
    struct entry_header header = {.type = ENTRY_PUT, .shard = 3, .version = 10, .blocks = 3};
    header.value_bytes = 3 * (format.block_limit - ENTRY_HEADER_BYTES);
    const uint64_t copies[] = {3 * STORE_SEGMENT_BYTES - format.block_limit,
                               8 * STORE_SEGMENT_BYTES};
    bool contiguous = false;
    for (unsigned i = 0; i < 6; i++) {
        header.block = (uint16_t)(i % 3);
        struct join_entry *entry =
            join_add(join, &header, copies[i / 3] + header.block * format.block_limit);
        contiguous = entry && join_is_contiguous(entry, &format, &header);
        if (entry && !contiguous)
            join_keep_piece(entry, &format, &header);
    }
    assert_true(contiguous);
}

UNIT_MAIN(NULL, NULL)
