/* The hash over what was done to a simulated PM. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/sim/sim_pm.h"

enum { MAP_BYTES = 64 << 10, WORD = 8 };

static struct sim_pm *sim;

static void store_word(uint64_t offset, uint64_t word)
{
    pm_store(&sim->pm, offset, &word, sizeof word);
}

static void the_trace_tells_other_stores_zeros_and_fences_apart(void **state)
{
    (void)state;
    struct sim_clock clock;
    sim_clock_init(&clock);
    sim = sim_pm_create(&clock, MAP_BYTES, 1000);
    uint64_t traces[6];
    for (unsigned i = 0; i < 6; i++) {
        sim->trace = 0;
        store_word(i == 1 ? WORD : 0, 1);
        if (i == 3)
            pm_fence_start(&sim->pm);
        if (i == 4)
            pm_zero(&sim->pm, WORD, WORD);
        store_word(i == 1 ? 0 : WORD, i == 2 ? 2 : 1);
        traces[i] = sim->trace;
    }
    for (unsigned i = 1; i < 5; i++)
        assert_true(traces[i] != traces[0]);
    assert_true(traces[5] == traces[0]);
    pm_close(&sim->pm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_trace_tells_other_stores_zeros_and_fences_apart),
    };
    return cmocka_run_group_tests_name("sim_pm_trace", tests, NULL, NULL);
}
