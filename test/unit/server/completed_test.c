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

/* The mark of a client, 0: none, and how many items it has besides. */
static uint32_t mark_of(const struct completed *completed, uint32_t client, uint32_t *others)
{
    uint32_t highest = 0;

    *others = 0;
    for (uint32_t i = 0; i < completed->count; i++) {
        const struct completed_item *item = &completed->items[i];
        if (item->client == client && item->version == RECORDS_UNKNOWN)
            highest = item->operation > highest ? item->operation : highest;
        else if (item->client == client)
            ++*others;
    }
    return highest;
}

TEST(beyond_so_many_the_oldest_leave_a_mark_for_each_client)
{
    struct completed completed = {0};
    uint32_t others;

    add(&completed, 5, 1, 10);
    completed_age(&completed);
    add(&completed, 6, 1, 10);
    add(&completed, 7, 1, COMPLETED_MAX - 20);
    assert_int_equal(mark_of(&completed, 7, &others), 0);
    add(&completed, 7, COMPLETED_MAX, 1);
    assert_true(mark_of(&completed, 5, &others) == 10 && others == 0);
    assert_true(mark_of(&completed, 6, &others) == 10 && others == 0);
    assert_int_equal(mark_of(&completed, 7, &others), COMPLETED_MAX / 2 - 20);
    assert_int_equal(others, COMPLETED_MAX / 2 + 1);
    assert_int_equal(completed.lost, 0);
    completed_age(&completed); /* marks go when what they stand for would */
    assert_int_equal(mark_of(&completed, 5, &others), 0);
    assert_int_equal(mark_of(&completed, 6, &others), 10);
    completed_age(&completed);
    assert_int_equal(completed.count, 0);
}

TEST(no_client_is_lost_of_as_many_as_a_primary_serves)
{
    struct completed completed = {0};
    uint32_t others;

    for (uint32_t operation = 1; operation <= 4; operation++)
        for (uint32_t client = 1; client <= RECORDS_MAX_CLIENTS; client++)
            add(&completed, client, operation, 1);
    assert_int_equal(completed.lost, 0);
    assert_int_equal(completed.capacity, COMPLETED_MAX_MARKED);
    assert_true(mark_of(&completed, 1, &others) + others >= 4);
    assert_true(mark_of(&completed, RECORDS_MAX_CLIENTS, &others) + others >= 4);
    completed_clear(&completed);
}

/* They are sorted by client, so what was not told may lie behind what was. */
TEST(all_are_told_though_some_become_marks_meanwhile)
{
    enum { CLIENTS = COMPLETED_MAX / 2, ONE = 1 << 20 };
    static bool told[CLIENTS + 1];
    struct completed completed = {0};
    struct records_cursor cursor = {0};
    struct records_row rows[64];
    bool over = false;
    uint32_t missing = 0;

    for (uint32_t i = 0; i < CLIENTS; i++)
        add(&completed, CLIENTS - i, 1, 1);
    add(&completed, ONE, 1, CLIENTS);
    while (!over) {
        const uint32_t count = completed_list(&completed, &cursor, rows, 64, &over);
        for (uint32_t i = 0; i < count; i++)
            if (rows[i].client <= CLIENTS)
                told[rows[i].client] = true;
        if (!completed.marked && cursor.bucket < 100)
            add(&completed, ONE, CLIENTS + 1, 1);
    }
    for (uint32_t client = 1; client <= CLIENTS; client++)
        missing += !told[client];
    assert_true(completed.marked > 0 && missing == 0);
    completed_clear(&completed);
}

UNIT_MAIN(NULL, NULL)
