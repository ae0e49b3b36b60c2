/* Operations whose answer may be asked again, at a backup, through completed.h. */
#include "server/shard/completed.h"
#include "test/lib/unit.h"

static void add(struct completed *completed, uint32_t client, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++)
        completed_add(completed, client, i, i + 1);
}

TEST(what_is_acknowledged_is_not_kept)
{
    static struct acknowledged_clients clients;
    struct completed completed = {.acknowledged = &clients};
    uint32_t other = 6;

    while (acknowledged_place(other) != acknowledged_place(5))
        other++;
    acknowledged_told(&clients, 5, 100);
    acknowledged_told(&clients, 5, 99); /* of another shard's primary, late */
    add(&completed, 5, 99, 2);
    assert_int_equal(completed.count, 1);
    assert_int_equal(completed.items[0].operation, 100);
    acknowledged_told(&clients, other, 7); /* takes the place */
    add(&completed, 5, 1, 1);
    add(&completed, other, 6, 2);
    assert_int_equal(completed.count, 3);
    completed_clear(&completed);
}

TEST(what_is_acknowledged_later_makes_room)
{
    static struct acknowledged_clients clients;
    struct completed completed = {.acknowledged = &clients};

    for (uint32_t i = 0; i < 100000; i++) {
        add(&completed, 5, i, 1);
        acknowledged_told(&clients, 5, i < 10 ? 0 : i - 10);
    }
    assert_true(completed.capacity <= 64 && completed.lost == 0);
    completed_clear(&completed);
}

TEST(what_makes_room_leaves_the_rest_as_old_as_it_was)
{
    static struct acknowledged_clients clients;
    struct completed completed = {.acknowledged = &clients};

    add(&completed, 5, 1, 60);
    add(&completed, 6, 1, 4);
    completed_age(&completed);
    acknowledged_told(&clients, 5, 100);
    add(&completed, 7, 1, 2);
    assert_int_equal(completed.count, 6);
    completed_age(&completed);
    assert_int_equal(completed.count, 2);
    assert_int_equal(completed.items[0].client, 7);
    completed_clear(&completed);
}

TEST(what_is_kept_stays_for_one_period_and_goes_after_two)
{
    struct completed completed = {0};

    add(&completed, 5, 1, 3);
    completed_age(&completed);
    add(&completed, 6, 1, 2);
    assert_int_equal(completed.count, 5);
    completed_age(&completed);
    assert_int_equal(completed.count, 2);
    assert_int_equal(completed.items[0].client, 6);
    completed_age(&completed);
    assert_true(completed.count == 0 && !completed.items);
}

TEST(beyond_so_many_the_oldest_are_lost_and_counted)
{
    struct completed completed = {0};

    add(&completed, 5, 1, COMPLETED_MAX);
    assert_int_equal(completed.lost, 0);
    add(&completed, 5, COMPLETED_MAX + 1, 1);
    assert_int_equal(completed.capacity, COMPLETED_MAX);
    assert_int_equal(completed.lost + completed.count, COMPLETED_MAX + 1);
    assert_int_equal(completed.items[completed.count - 1].operation, COMPLETED_MAX + 1);
    completed_clear(&completed);
}

UNIT_MAIN(NULL, NULL)
