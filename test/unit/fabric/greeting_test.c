/* Which layout two versions choose: the highest that both speak, the same on both sides; none, if their ranges have
 * nothing in common. */
#include "common/base/error.h"
#include "common/fabric/greeting.h"
#include "test/lib/unit.h"

TEST(both_sides_choose_the_highest_common_layout)
{
    static const struct {
        struct greeting_layouts one, other;
        uint32_t layout; /* 0: none */
    } cases[] = {
        {{3, 3}, {3, 3}, 3}, {{2, 5}, {4, 9}, 5}, {{1, 9}, {4, 6}, 6},
        {{2, 4}, {4, 4}, 4}, {{1, 2}, {3, 4}, 0}, {{3, 3}, {4, 4}, 0},
    };

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int expected = cases[i].layout ? 0 : ROWAN_EINCOMPATIBLE;
        uint32_t one = 0, other = 0;

        assert_int_equal(greeting_choose("test", cases[i].one, cases[i].other, &one), expected);
        assert_int_equal(greeting_choose("test", cases[i].other, cases[i].one, &other), expected);
        assert_int_equal(one, cases[i].layout);
        assert_int_equal(other, cases[i].layout);
    }
}

TEST(a_range_that_is_none_is_refused)
{
    uint32_t layout = 7;

    assert_int_equal(greeting_choose("test", (struct greeting_layouts){1, 9},
                                     (struct greeting_layouts){5, 4}, &layout),
                     ROWAN_EINCOMPATIBLE);
    assert_int_equal(layout, 7);
}

UNIT_MAIN(NULL, NULL)
