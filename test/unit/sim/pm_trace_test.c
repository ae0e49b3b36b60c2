/* What is said of a simulated PM: the hash over what was done to it, and which fences a power loss took. */
#include "test/lib/unit.h"
#include "test/sim/sim_pm.h"

enum { MAP_BYTES = 64 << 10, WORD = 8, LOSSES = 400 };

static struct sim_pm *sim;

static uint64_t word_at(uint64_t offset)
{
    uint64_t word;
    memcpy(&word, sim->pm.base + offset, sizeof word);
    return word;
}

static void store_word(uint64_t offset, uint64_t word)
{
    pm_store(&sim->pm, offset, &word, sizeof word);
}

TEST(the_trace_tells_other_stores_zeros_and_fences_apart)
{
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

TEST(a_fence_is_lost_only_with_what_it_was_to_cover)
{
    struct sim_clock clock;
    sim_clock_init(&clock);
    sim = sim_pm_create(&clock, MAP_BYTES, 1000);
    uint64_t none = 0, second = 0, both = 0;
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        store_word(0, seed);
        pm_fence_start(&sim->pm);
        store_word(WORD, seed);
        pm_fence_start(&sim->pm);
        store_word(2 * WORD, seed);
        struct random random;
        random_init(&random, seed);
        struct sim_pm_loss loss = sim_pm_power_loss(sim, &random, NULL, NULL);
        bool first_lost = word_at(0) != seed, second_lost = word_at(WORD) != seed;
        assert_int_equal(loss.fences, first_lost ? 2 : second_lost ? 1 : 0);
        none += loss.fences == 0;
        second += loss.fences == 1;
        both += loss.fences == 2;
        for (uint64_t i = 0; i < 3; i++)
            store_word(i * WORD, seed);
        pm_fence_start(&sim->pm);
        clock.now_ns += 1000;
    }
    pm_close(&sim->pm);
    assert_true(none > LOSSES / 16 && second > LOSSES / 16 && both > LOSSES / 16);
}

UNIT_MAIN(NULL, NULL)
