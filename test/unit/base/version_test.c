/* version_test.c - what two ranges have in common, and their words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/version.h"

static void the_highest_in_both_ranges_is_chosen(void **state)
{
    static const struct {
        struct version_range a, b;
        uint16_t common;
    } cases[] = {
        {{1, 1}, {1, 1}, 1}, {{1, 3}, {2, 5}, 3}, {{1, 9}, {4, 4}, 4}, {{1, 2}, {2, 3}, 2},
        {{1, 2}, {3, 4}, 0}, {{1, 1}, {0, 0}, 0}, {{0, 0}, {0, 0}, 0}, {{1, 3}, {3, 1}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(version_common(cases[i].a, cases[i].b), cases[i].common);
        assert_int_equal(version_common(cases[i].b, cases[i].a), cases[i].common);
    }
}

static void a_range_of_one_is_one_number(void **state)
{
    char text[24];
    (void)state;
    assert_string_equal(version_text((struct version_range){2, 2}, text, sizeof text), "2");
    assert_string_equal(version_text((struct version_range){2, 4}, text, sizeof text), "2 to 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_in_both_ranges_is_chosen),
        cmocka_unit_test(a_range_of_one_is_one_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
