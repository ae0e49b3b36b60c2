/* store_on_sim.h - a store on PM that may lose power: what the tests of its tables share. Include after TEST_FIXTURE. */
#ifndef TEST_STORE_ON_SIM_H
#define TEST_STORE_ON_SIM_H

#include "common/base/log.h"
#include "server/store/store_layout.h"
#include "test/lib/unit.h"
#include "test/sim/sim_pm.h"
#include "test/unit/server/format.h"

#define FENCE_NS 20000

static const struct store_identity IDENTITY = {.cluster = 5, .server = 7};
static struct sim_clock clock;
static struct sim_pm *sim;
static struct store *store;

static void reopen(void)
{
    store_close(store);
    assert_int_equal(store_open(&sim->pm, &IDENTITY, &store), 0);
}

/* `fence_ns`: of the PM, once the store is formatted. */
static int open_store(uint64_t pm_bytes, uint64_t fence_ns)
{
    log_set_level(LOG_ERROR);
    sim_clock_init(&clock);
    sim = sim_pm_create(&clock, pm_bytes, 0);
    assert_int_equal(store_format(&sim->pm, &IDENTITY), 0);
    sim->fence_ns = fence_ns;
    store = NULL;
    reopen();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_close(store);
    pm_close(&sim->pm);
    return 0;
}

#endif
