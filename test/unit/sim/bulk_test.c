/* What the simulated network may do to bulk writes: cuts, torn writes, writers that stand still or die. */
#include "test/lib/unit.h"
#include "test/unit/sim/network_world.h"

enum { A, B, SEEDS = 200, COUNT = 8, BYTES = 1024, PLACE = 7 * NW_SEGMENT };

static struct network_world world;
static struct fabric_conn *active, *passive;
static struct fabric_grant grant;
static uint64_t last_store_ns; /* into A's memory */

static void on_store(void *context, uint64_t offset, const uint8_t *data, size_t bytes)
{
    (void)context;
    (void)offset;
    (void)data;
    (void)bytes;
    last_store_ns = world.clock.now_ns;
}

/* B has written; nothing of it is there yet. */
static void open_written(uint64_t seed, bool one_sided)
{
    struct sim_pm *pm;
    nw_open(&world, (struct sim_network_options){.seed = seed, .one_sided = one_sided});
    fabric_endpoint_identity(world.processes[B].endpoint,
                             &(struct fabric_identity){.kind = FABRIC_SERVER});
    nw_connect(&world, B, A, &active, &passive);
    world.processes[A].pm->stored = on_store;
    last_store_ns = 0;
    assert_int_equal(fabric_grant(passive, PLACE, COUNT * BYTES, 3, &grant), 0);
    pm = world.processes[B].pm;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint8_t data[BYTES];
        memset(data, (int)i + 1, sizeof data);
        pm_store(&pm->pm, i * BYTES, data, sizeof data);
        assert_int_equal(
            fabric_write(active, &grant, i * BYTES, pm_at(&pm->pm, i * BYTES), BYTES, i), 0);
    }
    fabric_flush(world.processes[B].endpoint);
}

/* How many writes are whole, in order; behind them lies a part of one at most. */
static uint32_t whole_writes(bool *torn)
{
    uint32_t whole = 0;
    while (whole < COUNT && nw_run_of(&world, PLACE + whole * BYTES, (uint8_t)(whole + 1)) == BYTES)
        whole++;
    uint64_t at = PLACE + whole * BYTES;
    uint32_t part = whole < COUNT ? nw_run_of(&world, at, (uint8_t)(whole + 1)) : 0;
    assert_int_equal(nw_run_of(&world, at + part, 0), PLACE + NW_SEGMENT - at - part);
    *torn = part > 0;
    return whole;
}

static void assert_over(void)
{
    assert_int_equal(nw_count(&world, A, FABRIC_REVOKED), 1);
    assert_true(last_store_ns <= world.processes[A].at_ns[nw_find(&world, A, FABRIC_REVOKED, 0)]);
}

static void cut_writes(bool one_sided)
{
    uint32_t seen[COUNT + 1] = {0}, torn_count = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bool torn;
        open_written(seed, one_sided);
        nw_run(&world, seed % 4 * NW_DELAY_NS / 2);
        sim_network_break(world.network, nw_address(A), nw_address(B));
        nw_run(&world, 200 * NW_DELAY_NS);
        assert_over();
        uint32_t whole = whole_writes(&torn);
        assert_true(nw_count(&world, B, FABRIC_WRITTEN) <= whole);
        seen[whole]++;
        torn_count += torn;
        nw_close(&world);
    }
    for (uint32_t i = 0; i <= COUNT; i++)
        assert_true(seen[i] > 0 || one_sided);
    assert_true(torn_count > SEEDS / 16);
}

TEST(of_writes_on_their_way_at_a_cut_a_first_part_arrives_and_the_last_may_be_torn)
{
    cut_writes(false);
    cut_writes(true);
}

static void nothing_arrives_after_revoked(bool one_sided)
{
    uint32_t part = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bool torn;
        open_written(seed, one_sided);
        nw_run(&world, seed % 8 * NW_DELAY_NS / 4);
        fabric_revoke(passive, &grant);
        nw_run(&world, 200 * NW_DELAY_NS);
        assert_over();
        uint32_t whole = whole_writes(&torn);
        part += torn || (whole > 0 && whole < COUNT);
        assert_true(whole == COUNT || nw_count(&world, B, FABRIC_CLOSED) == 1);
        nw_close(&world);
    }
    assert_true(part > 0);
}

TEST(nothing_arrives_after_a_grant_is_revoked)
{
    nothing_arrives_after_revoked(false);
    nothing_arrives_after_revoked(true);
}

/* Stopped in the middle of a store, he may finish it when he goes on: till then, or his death, the memory is his. */
static void a_writer_who_stands_still_keeps_what_he_stores_into(bool dies)
{
    uint32_t waited = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_written(seed, true);
        nw_run(&world, NW_DELAY_NS);
        world.processes[B].stopped = true;
        sim_network_stop(world.network, nw_address(B), true);
        fabric_revoke(passive, &grant);
        nw_run(&world, 200 * NW_DELAY_NS);
        waited += nw_count(&world, A, FABRIC_REVOKED) == 0;
        if (dies) {
            nw_kill(&world, B);
        } else {
            world.processes[B].stopped = false;
            sim_network_stop(world.network, nw_address(B), false);
        }
        nw_run(&world, 200 * NW_DELAY_NS);
        assert_over();
        nw_close(&world);
    }
    assert_true(waited > SEEDS / 16 && waited < SEEDS);
}

TEST(revoked_waits_for_a_writer_who_stands_still)
{
    a_writer_who_stands_still_keeps_what_he_stores_into(false);
}

TEST(revoked_does_not_wait_for_the_dead)
{
    a_writer_who_stands_still_keeps_what_he_stores_into(true);
}

UNIT_MAIN(NULL, NULL)
