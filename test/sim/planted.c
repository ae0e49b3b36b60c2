/* In a unit test's program that is linked with planted sources: switches the mutant on that ROWAN_MUTANT names,
 * and leaves ROWAN_CASE alone of its cases (mutants.py). */
#include <stdlib.h>

#include "common/base/assert.h"
#include "test/lib/asserts.h"
#include "test/sim/mutant.h"

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("ROWAN_MUTANT");
    cmocka_set_test_filter(getenv("ROWAN_CASE"));
    if (!name || !*name)
        return;
    const enum mutant mutant = sim_mutant_find(name);
    ASSERT(mutant < MUTANT_COUNT);
    sim_mutant_set(mutant);
}
