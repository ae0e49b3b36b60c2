/* What was taken of a segment, through taken.h: by hand, and against a model that has a byte for each place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/random.h"
#include "common/entry/entry.h"
#include "server/digest/taken.h"

enum { PLACES = 1000, BYTES = PLACES * ENTRY_ALIGN };

static struct taken taken;

static int setup(void **state)
{
    (void)state;
    return taken_init(&taken, BYTES);
}

static int teardown(void **state)
{
    (void)state;
    taken_fini(&taken);
    return 0;
}

static uint32_t find(uint32_t from, uint32_t end, bool is_taken)
{
    return taken_find(&taken, from * ENTRY_ALIGN, end * ENTRY_ALIGN, is_taken) / ENTRY_ALIGN;
}

static void nothing_is_taken_at_first_and_when_cleared(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(find(0, PLACES, false), 0);
        assert_int_equal(find(0, PLACES, true), PLACES);
        taken_add(&taken, 0, BYTES);
        assert_int_equal(find(0, PLACES, true), 0);
        assert_int_equal(find(0, PLACES, false), PLACES);
        taken_clear(&taken);
    }
}

static void the_end_is_found_when_there_is_nothing_in_front_of_it(void **state)
{
    (void)state;
    taken_add(&taken, 64 * ENTRY_ALIGN, 65 * ENTRY_ALIGN);
    assert_int_equal(find(3, 64, true), 64);
    assert_int_equal(find(3, 65, true), 64);
    assert_int_equal(find(64, 65, false), 65);
    assert_int_equal(find(64, 66, false), 65);
    assert_int_equal(find(7, 7, true), 7);
    assert_int_equal(find(PLACES, PLACES, false), PLACES);
}

static uint32_t model_find(const bool *model, uint32_t from, uint32_t end, bool is_taken)
{
    while (from < end && model[from] != is_taken)
        from++;
    return from;
}

static void it_agrees_with_a_model(void **state)
{
    bool model[PLACES] = {false};
    struct random random;

    (void)state;
    random_init(&random, 4711);
    for (unsigned i = 0; i < 20000; i++) {
        const uint32_t from = (uint32_t)random_below(&random, PLACES);
        const uint32_t end = from + (uint32_t)random_below(&random, PLACES - from + 1);

        if (i % 64 == 0) {
            taken_clear(&taken);
            memset(model, 0, sizeof model);
        }
        assert_int_equal(find(from, end, true), model_find(model, from, end, true));
        assert_int_equal(find(from, end, false), model_find(model, from, end, false));
        if (end - from < 100) {
            taken_add(&taken, from * ENTRY_ALIGN, end * ENTRY_ALIGN);
            memset(&model[from], true, end - from);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_taken_at_first_and_when_cleared),
        TEST(the_end_is_found_when_there_is_nothing_in_front_of_it),
        TEST(it_agrees_with_a_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
