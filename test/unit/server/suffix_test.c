/* The suffix of a shard's log, through suffix.h. */
#include "server/shard/suffix.h"
#include "test/lib/unit.h"

static void add(struct suffix *suffix, uint64_t version)
{
    assert_int_equal(suffix_add(suffix, version, version * 64), 0);
}

static void assert_holds(const struct suffix *suffix, const uint64_t *versions, uint32_t count)
{
    assert_int_equal(suffix->count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(suffix->items[i].version == versions[i]);
        assert_true(suffix->items[i].offset == versions[i] * 64);
    }
}

TEST(a_sorted_suffix_holds_each_version_once)
{
    struct suffix suffix = {0};
    static const uint64_t versions[] = {9, 3, 7, 3, 9, 1, 3};
    for (unsigned i = 0; i < sizeof versions / sizeof versions[0]; i++)
        add(&suffix, versions[i]);
    suffix_sort(&suffix);
    assert_holds(&suffix, (const uint64_t[]){1, 3, 7, 9}, 4);
    suffix_clear(&suffix);
    assert_int_equal(suffix.count, 0);
    assert_null(suffix.items);
}

/* Versions of 40 bits are of one epoch. */
TEST(a_suffix_is_contiguous_up_to_its_first_hole_in_one_epoch)
{
    struct suffix suffix = {0};
    const uint64_t epoch = UINT64_C(1) << 40;
    suffix_drop(&suffix, 4);
    for (uint64_t version = 7; version >= 3; version--)
        add(&suffix, version);
    add(&suffix, 5);
    add(&suffix, 9);
    add(&suffix, epoch + 1);
    suffix_sort(&suffix);
    assert_int_equal(suffix.contiguous, 7);
    suffix_clear(&suffix);
    suffix_drop(&suffix, epoch - 2);
    suffix = (struct suffix){.above = suffix.above};
    add(&suffix, epoch - 1);
    add(&suffix, epoch + 1);
    suffix_sort(&suffix);
    assert_true(suffix.contiguous == epoch - 1);
    suffix_clear(&suffix);
}

TEST(a_sorted_suffix_may_be_added_to_and_dropped_from)
{
    struct suffix suffix = {0};
    add(&suffix, 5);
    add(&suffix, 2);
    suffix_sort(&suffix);
    add(&suffix, 1);
    add(&suffix, 5);
    suffix_sort(&suffix);
    assert_holds(&suffix, (const uint64_t[]){1, 2, 5}, 3);
    assert_int_equal(suffix.contiguous, 2);
    suffix_drop(&suffix, 4);
    suffix_sort(&suffix);
    assert_holds(&suffix, (const uint64_t[]){5}, 1);
    assert_int_equal(suffix.contiguous, 5);
    suffix_clear(&suffix);
}

TEST(of_repeats_that_stays_which_can_be_shown)
{
    struct suffix suffix = {0};
    assert_int_equal(suffix_add(&suffix, 2, 0), 0);
    add(&suffix, 2);
    assert_int_equal(suffix_add(&suffix, 1, 0), 0);
    suffix_sort(&suffix);
    assert_int_equal(suffix.count, 2);
    assert_int_equal(suffix.items[0].offset, 0);
    assert_int_equal(suffix.items[1].offset, 2 * 64);
    suffix_clear(&suffix);
}

TEST(an_empty_suffix_is_sorted_and_searched_too)
{
    struct suffix suffix = {0};
    suffix_sort(&suffix);
    assert_int_equal(suffix_find(&suffix, 0), 0);
    assert_int_equal(suffix_find(&suffix, UINT64_MAX), 0);
    suffix_clear(&suffix);
}

TEST(the_first_item_above_a_version_is_found)
{
    struct suffix suffix = {0};
    for (uint64_t version = 10; version <= 50; version += 10)
        add(&suffix, version);
    suffix_sort(&suffix);
    assert_int_equal(suffix_find(&suffix, 0), 0);
    assert_int_equal(suffix_find(&suffix, 9), 0);
    assert_int_equal(suffix_find(&suffix, 10), 1);
    assert_int_equal(suffix_find(&suffix, 11), 1);
    assert_int_equal(suffix_find(&suffix, 49), 4);
    assert_int_equal(suffix_find(&suffix, 50), 5);
    assert_int_equal(suffix_find(&suffix, UINT64_MAX), 5);
    suffix_clear(&suffix);
}

TEST(what_was_dropped_is_gone_and_is_not_taken_again)
{
    struct suffix suffix = {0};
    for (uint64_t version = 1; version <= 8; version++)
        add(&suffix, version);
    suffix_drop(&suffix, 5);
    suffix_drop(&suffix, 2); /* a lower one brings nothing back */
    add(&suffix, 4);
    add(&suffix, 5);
    add(&suffix, 9);
    suffix_sort(&suffix);
    assert_holds(&suffix, (const uint64_t[]){6, 7, 8, 9}, 4);
    suffix_clear(&suffix);
}

TEST(a_suffix_that_is_dropped_from_stays_small)
{
    struct suffix suffix = {0};
    for (uint64_t version = 1; version <= 1000000; version++) {
        add(&suffix, version);
        if (version > 100)
            suffix_drop(&suffix, version - 100);
    }
    assert_true(suffix.capacity <= 512);
    suffix_sort(&suffix);
    assert_int_equal(suffix.count, 100);
    assert_true(suffix.items[0].version == 999901 && suffix.items[99].version == 1000000);
    suffix_clear(&suffix);
}

TEST(a_suffix_from_which_nothing_is_dropped_keeps_all)
{
    struct suffix suffix = {0};
    enum { COUNT = 100000 };
    for (uint64_t version = COUNT; version > 0; version--)
        add(&suffix, version);
    suffix_sort(&suffix);
    assert_int_equal(suffix.count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(suffix.items[i].version == i + 1);
    suffix_clear(&suffix);
}

TEST(a_cleared_suffix_may_be_filled_again)
{
    struct suffix suffix = {0};
    add(&suffix, 5);
    suffix_sort(&suffix);
    suffix_clear(&suffix);
    add(&suffix, 4);
    add(&suffix, 2);
    suffix_sort(&suffix);
    assert_holds(&suffix, (const uint64_t[]){2, 4}, 2);
    suffix_clear(&suffix);
}

TEST(two_suffix_become_one)
{
    struct suffix suffix = {0}, more = {0};
    for (uint64_t version = 2; version <= 8; version += 2)
        add(&suffix, version);
    suffix_drop(&suffix, 2);
    suffix_sort(&suffix);
    for (uint64_t version = 1; version <= 200; version += 3)
        add(&more, version);
    assert_int_equal(suffix_merge(&suffix, &more), 0);
    assert_true(more.count == 0 && more.items == NULL);
    assert_int_equal(suffix.count, 68); /* 4, 7, ... 199, and 6 and 8 */
    for (uint32_t i = 1; i < suffix.count; i++)
        assert_true(suffix.items[i - 1].version < suffix.items[i].version);
    assert_true(suffix.items[0].version == 4 && suffix.items[67].version == 199);
    assert_int_equal(suffix_merge(&suffix, &more), 0);
    assert_int_equal(suffix.count, 68);
    suffix_clear(&suffix);
}

UNIT_MAIN(NULL, NULL)
