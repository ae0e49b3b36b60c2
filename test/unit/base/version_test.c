/* version_test.c - what two ranges have in common, and their words. */
#include "common/base/version.h"
#include "test/lib/unit.h"

TEST(the_highest_in_both_ranges_is_chosen)
{
    static const struct {
        struct version_range a, b;
        uint16_t common;
    } cases[] = {
        {{1, 1}, {1, 1}, 1}, {{1, 3}, {2, 5}, 3}, {{1, 9}, {4, 4}, 4}, {{1, 2}, {2, 3}, 2},
        {{1, 2}, {3, 4}, 0}, {{1, 1}, {0, 0}, 0}, {{0, 0}, {0, 0}, 0}, {{1, 3}, {3, 1}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(version_common(cases[i].a, cases[i].b), cases[i].common);
        assert_int_equal(version_common(cases[i].b, cases[i].a), cases[i].common);
    }
}

TEST(a_range_of_one_is_one_number)
{
    char text[24];
    assert_string_equal(version_text((struct version_range){2, 2}, text, sizeof text), "2");
    assert_string_equal(version_text((struct version_range){2, 4}, text, sizeof text), "2 to 4");
}

UNIT_MAIN(NULL, NULL)
