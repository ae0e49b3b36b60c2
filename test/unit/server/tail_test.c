/* The tail of a shard's log, through tail.h. */
#include "server/shard/tail.h"
#include "test/lib/unit.h"

static void add(struct tail *tail, uint64_t version)
{
    assert_int_equal(tail_add(tail, version, version * 64), 0);
}

static void assert_holds(const struct tail *tail, const uint64_t *versions, uint32_t count)
{
    assert_int_equal(tail->count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(tail->items[i].version == versions[i]);
        assert_true(tail->items[i].offset == versions[i] * 64);
    }
}

TEST(a_sorted_tail_holds_each_version_once)
{
    struct tail tail = {0};
    static const uint64_t versions[] = {9, 3, 7, 3, 9, 1, 3};
    for (unsigned i = 0; i < sizeof versions / sizeof versions[0]; i++)
        add(&tail, versions[i]);
    tail_sort(&tail);
    assert_holds(&tail, (const uint64_t[]){1, 3, 7, 9}, 4);
    tail_clear(&tail);
    assert_int_equal(tail.count, 0);
    assert_null(tail.items);
}

TEST(an_empty_tail_is_sorted_and_searched_too)
{
    struct tail tail = {0};
    tail_sort(&tail);
    assert_int_equal(tail_find(&tail, 0), 0);
    assert_int_equal(tail_find(&tail, UINT64_MAX), 0);
    tail_clear(&tail);
}

TEST(the_first_item_above_a_version_is_found)
{
    struct tail tail = {0};
    for (uint64_t version = 10; version <= 50; version += 10)
        add(&tail, version);
    tail_sort(&tail);
    assert_int_equal(tail_find(&tail, 0), 0);
    assert_int_equal(tail_find(&tail, 9), 0);
    assert_int_equal(tail_find(&tail, 10), 1);
    assert_int_equal(tail_find(&tail, 11), 1);
    assert_int_equal(tail_find(&tail, 49), 4);
    assert_int_equal(tail_find(&tail, 50), 5);
    assert_int_equal(tail_find(&tail, UINT64_MAX), 5);
    tail_clear(&tail);
}

TEST(what_was_dropped_is_gone_and_is_not_taken_again)
{
    struct tail tail = {0};
    for (uint64_t version = 1; version <= 8; version++)
        add(&tail, version);
    tail_drop(&tail, 5);
    tail_drop(&tail, 2); /* a lower one brings nothing back */
    add(&tail, 4);
    add(&tail, 5);
    add(&tail, 9);
    tail_sort(&tail);
    assert_holds(&tail, (const uint64_t[]){6, 7, 8, 9}, 4);
    tail_clear(&tail);
}

TEST(a_tail_that_is_dropped_from_stays_small)
{
    struct tail tail = {0};
    for (uint64_t version = 1; version <= 1000000; version++) {
        add(&tail, version);
        if (version > 100)
            tail_drop(&tail, version - 100);
    }
    assert_true(tail.room <= 512);
    tail_sort(&tail);
    assert_int_equal(tail.count, 100);
    assert_true(tail.items[0].version == 999901 && tail.items[99].version == 1000000);
    tail_clear(&tail);
}

TEST(a_tail_from_which_nothing_is_dropped_keeps_all)
{
    struct tail tail = {0};
    enum { COUNT = 100000 };
    for (uint64_t version = COUNT; version > 0; version--)
        add(&tail, version);
    tail_sort(&tail);
    assert_int_equal(tail.count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(tail.items[i].version == i + 1);
    tail_clear(&tail);
}

TEST(a_cleared_tail_may_be_filled_again)
{
    struct tail tail = {0};
    add(&tail, 5);
    tail_sort(&tail);
    tail_clear(&tail);
    add(&tail, 4);
    add(&tail, 2);
    tail_sort(&tail);
    assert_holds(&tail, (const uint64_t[]){2, 4}, 2);
    tail_clear(&tail);
}

TEST(two_tails_become_one)
{
    struct tail tail = {0}, more = {0};
    for (uint64_t version = 2; version <= 8; version += 2)
        add(&tail, version);
    tail_drop(&tail, 2);
    tail_sort(&tail);
    for (uint64_t version = 1; version <= 200; version += 3)
        add(&more, version);
    assert_int_equal(tail_merge(&tail, &more), 0);
    assert_true(more.count == 0 && more.items == NULL);
    assert_int_equal(tail.count, 68); /* 4, 7, ... 199, and 6 and 8 */
    for (uint32_t i = 1; i < tail.count; i++)
        assert_true(tail.items[i - 1].version < tail.items[i].version);
    assert_true(tail.items[0].version == 4 && tail.items[67].version == 199);
    assert_int_equal(tail_merge(&tail, &more), 0);
    assert_int_equal(tail.count, 68);
    tail_clear(&tail);
}

UNIT_MAIN(NULL, NULL)
