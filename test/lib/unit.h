/* unit.h - a test program of cmocka's. A case registers itself where it stands, so none is forgotten:
 *
 *     TEST(a_full_ring_refuses)
 *     {
 *         assert_int_equal(...);
 *     }
 *
 *     UNIT_MAIN(NULL, NULL)
 *
 * Cases run in the order they stand. A file whose cases need a fixture defines TEST_FIXTURE as
 * `setup, teardown` before it includes this; TEST_WITH gives one case its own. If they leave something in *state, the file
 * may define TEST_STATE as `struct thing *thing`: so the cases have it.
 */
#ifndef TEST_LIB_UNIT_H
#define TEST_LIB_UNIT_H

#include "test/lib/asserts.h"

#ifndef TEST_FIXTURE
#define TEST_FIXTURE NULL, NULL
#endif

struct unit_case {
    struct CMUnitTest test;
    int line;
    struct unit_case *next;
};

static struct unit_case *unit_cases;

static inline void unit_add(struct unit_case *added)
{
    struct unit_case **at = &unit_cases;
    while (*at && (*at)->line < added->line)
        at = &(*at)->next;
    added->next = *at;
    *at = added;
}

#define TEST_LIST(name, ...)                                                                       \
    __attribute__((constructor)) static void name##_is_a_case(void)                                \
    {                                                                                              \
        static struct unit_case self = {{#name, name, __VA_ARGS__, NULL}, __LINE__, NULL};         \
        unit_add(&self);                                                                           \
    }

#ifdef TEST_STATE
#define TEST_WITH(name, ...)                                                                       \
    static void name##_on(TEST_STATE);                                                             \
    static void name(void **state)                                                                 \
    {                                                                                              \
        name##_on(*state);                                                                         \
    }                                                                                              \
    TEST_LIST(name, __VA_ARGS__)                                                                   \
    static void name##_on(__attribute__((unused)) TEST_STATE)
#else
#define TEST_WITH(name, ...)                                                                       \
    static void name(void **state);                                                                \
    TEST_LIST(name, __VA_ARGS__)                                                                   \
    static void name(__attribute__((unused)) void **state)
#endif

#define TEST(name) TEST_WITH(name, TEST_FIXTURE)

/* Copies the cases into `out`, each with that state at first; NULL: only counts them. */
static inline size_t unit_list(const struct unit_case *at, void *state, struct CMUnitTest *out)
{
    size_t count = 0;
    for (; at; at = at->next, count++) {
        if (!out)
            continue;
        out[count] = at->test;
        out[count].initial_state = state;
    }
    return count;
}

static inline int unit_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    size_t count = unit_list(unit_cases, NULL, NULL);
    struct CMUnitTest *tests = calloc(count + 1, sizeof *tests);
    if (!tests)
        return 1;
    unit_list(unit_cases, NULL, tests);
    int failed =
        _cmocka_run_group_tests(program_invocation_short_name, tests, count, setup, teardown);
    free(tests);
    return failed || count == 0;
}

#define UNIT_MAIN(setup, teardown)                                                                 \
    int main(void)                                                                                 \
    {                                                                                              \
        return unit_run(setup, teardown);                                                          \
    }

#endif
