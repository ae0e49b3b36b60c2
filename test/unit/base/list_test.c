/* list_test.c - lists through links in their items, against arrays. */
#define TEST_FIXTURE reset, NULL

#include "common/base/list.h"
#include "common/base/random.h"
#include "test/lib/unit.h"

enum { ITEMS = 6, LISTS = 2 };

struct item {
    uint32_t number;
    struct {
        struct item *next, *prev;
    } links[LISTS];
};

static struct item items[ITEMS];
static struct {
    struct item *first, *last;
} lists[LISTS];

static int reset(void **state)
{
    (void)state;
    memset(items, 0xee, sizeof items); /* whatever a link held */
    memset(lists, 0, sizeof lists);
    for (uint32_t i = 0; i < ITEMS; i++)
        items[i].number = i;
    return 0;
}

static void append(unsigned list, uint32_t number)
{
    LIST_APPEND(&lists[list], &items[number], links[list]);
}

static void take_off(unsigned list, uint32_t number)
{
    LIST_REMOVE(&lists[list], &items[number], links[list]);
}

/* These, in this order, forwards and backwards. */
static void expect(unsigned list, const uint32_t *numbers, uint32_t count)
{
    const struct item *item = lists[list].first;

    for (uint32_t i = 0; i < count; i++, item = item->links[list].next) {
        assert_non_null(item);
        assert_int_equal(item->number, numbers[i]);
    }
    assert_null(item);
    item = lists[list].last;
    for (uint32_t i = count; i-- > 0; item = item->links[list].prev) {
        assert_non_null(item);
        assert_int_equal(item->number, numbers[i]);
    }
    assert_null(item);
}

#define EXPECT(list, ...)                                                                          \
    do {                                                                                           \
        const uint32_t numbers[] = {__VA_ARGS__};                                                  \
        expect(list, numbers, sizeof numbers / sizeof numbers[0]);                                 \
    } while (0)

TEST(an_item_can_be_on_two_lists)
{
    append(0, 0);
    append(0, 1);
    append(1, 1);
    append(1, 2);
    append(1, 0);
    take_off(0, 1);
    EXPECT(0, 0);
    EXPECT(1, 1, 2, 0);
}

/* What was taken off in a walk still leads on. */
TEST(a_walk_goes_on_from_an_item_that_left)
{
    uint32_t walked = 0;

    for (uint32_t i = 0; i < ITEMS; i++)
        append(0, i);
    for (const struct item *item = lists[0].first; item; item = item->links[0].next) {
        assert_int_equal(item->number, walked++);
        if (item->number % 2 == 0)
            take_off(0, item->number);
    }
    assert_int_equal(walked, ITEMS);
    EXPECT(0, 1, 3, 5);
}

TEST(random_changes_leave_what_an_array_says)
{
    uint32_t model[ITEMS], count = 0;
    struct random random;

    random_init(&random, 1);
    for (uint32_t step = 0; step < 10000; step++) {
        const uint32_t number = (uint32_t)random_below(&random, ITEMS);
        uint32_t at = 0;

        while (at < count && model[at] != number)
            at++;
        if (at == count) {
            append(0, number);
            model[count++] = number;
        } else {
            take_off(0, number);
            memmove(model + at, model + at + 1, (--count - at) * sizeof model[0]);
        }
        expect(0, model, count);
    }
}

UNIT_MAIN(NULL, NULL)
