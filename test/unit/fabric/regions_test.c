/* regions_test.c - which bytes are registered. */
#include "common/fabric/conn.h"
#include "test/lib/unit.h"

enum { BYTES = 4096, MIDDLE = 1024 };

static uint8_t memory[3 * BYTES];

/* The first and the last third. */
static struct regions two_regions(void)
{
    const struct pm first = {.base = memory, .bytes = BYTES};
    const struct pm last = {.base = memory + 2 * BYTES, .bytes = BYTES};
    struct regions regions = {0};

    assert_int_equal(regions_add(&regions, &first), 0);
    assert_int_equal(regions_add(&regions, &last), 0);
    return regions;
}

TEST(what_lies_whole_in_one_region_is_held)
{
    const struct regions regions = two_regions();

    assert_non_null(regions_find(&regions, memory, BYTES));
    assert_non_null(regions_find(&regions, memory + 2 * BYTES, BYTES));
    assert_non_null(regions_find(&regions, memory + MIDDLE, BYTES - MIDDLE));
    assert_non_null(regions_find(&regions, memory + BYTES - 1, 1));
}

TEST(what_reaches_outside_is_not_held)
{
    const struct regions regions = two_regions();

    assert_null(regions_find(&(struct regions){0}, memory, 1));
    assert_null(regions_find(&regions, memory, BYTES + 1));
    assert_null(regions_find(&regions, memory + MIDDLE, BYTES - MIDDLE + 1));
    assert_null(regions_find(&regions, memory + BYTES, 1));
    assert_null(regions_find(&regions, memory + 2 * BYTES - 1, 2));
    assert_null(regions_find(&regions, memory, 3 * BYTES)); /* begins in one, ends in another */
    assert_null(regions_find(&regions, memory + MIDDLE, UINT64_MAX));
    assert_null(regions_find(&regions, &regions, 1));
}

TEST(more_than_there_is_room_for_are_refused)
{
    const struct pm pm = {.base = memory, .bytes = BYTES};
    struct regions regions = {0};

    for (unsigned i = 0; i < REGIONS_MAX; i++)
        assert_int_equal(regions_add(&regions, &pm), 0);
    assert_int_equal(regions_add(&regions, &pm), ROWAN_ETOOMANY);
    assert_int_equal(regions.count, REGIONS_MAX);
}

UNIT_MAIN(NULL, NULL)
