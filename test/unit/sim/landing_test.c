/* How blocks get into a landing zone of the simulated network, and what becomes of space whose sender stands
 * still or dies. */
#include "test/lib/unit.h"
#include "test/unit/sim/network_world.h"

enum { A, B, C, SEEDS = 200, COUNT = 8, FIRST = 1, OTHER = 100, WHOLE = NW_SEGMENT / NW_BLOCK };

#define VOID_NS (5 * NS_PER_MS)

static struct network_world world;
static struct fabric_conn *active, *passive, *other;

/* Connections from B and C to A's landing zone. */
static void open_two(struct sim_network_options options)
{
    struct fabric_conn *at;
    options.void_ns = VOID_NS;
    nw_open(&world, options);
    for (uint32_t i = B; i <= C; i++)
        fabric_endpoint_identity(
            world.processes[i].endpoint,
            &(struct fabric_identity){.kind = FABRIC_SERVER, .id = i, .incarnation = 1});
    nw_connect(&world, B, A, &active, &passive);
    nw_connect(&world, C, A, &other, &at);
}

static void open_one_sided(uint64_t seed)
{
    open_two((struct sim_network_options){.seed = seed, .one_sided = true});
}

static struct sim_network_counts counts(void)
{
    return sim_network_counts(world.network);
}

static void stop(uint32_t process, bool stopped)
{
    world.processes[process].stopped = stopped;
    sim_network_stop(world.network, nw_address(process), stopped);
}

/* C's blocks fill a segment. */
static void fill(void)
{
    for (uint32_t i = 0; i <= WHOLE; i += 16)
        nw_send_blocks(&world, C, other, OTHER, 16);
    nw_run(&world, 4 * NW_DELAY_NS);
}

/* --- stores --- */

struct watch {
    uint32_t parts, blocks, moments;
    uint64_t next, next_ns; /* where the last part ended */
};

static void on_store(void *context, uint64_t offset, const uint8_t *data, size_t bytes)
{
    struct watch *watch = context;
    (void)data;
    watch->parts += bytes % NW_BLOCK != 0;
    watch->blocks += bytes == NW_BLOCK;
    watch->moments +=
        offset == watch->next && offset % NW_BLOCK && watch->next_ns != world.clock.now_ns;
    watch->next = offset + bytes;
    watch->next_ns = world.clock.now_ns;
}

static void blocks_in_parts(bool one_sided)
{
    struct watch watch = {0};
    open_two((struct sim_network_options){.one_sided = one_sided});
    world.processes[A].pm->stored = on_store;
    world.processes[A].pm->stored_context = &watch;
    for (uint32_t i = 0; i < 20; i++) {
        nw_send_blocks(&world, B, active, FIRST, 10);
        nw_run(&world, 20 * NW_DELAY_NS);
    }
    assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 20);
    assert_true(watch.parts > 20 && watch.blocks > 100);
    assert_true(watch.moments > 5); /* a power loss may come in between */
    nw_close(&world);
}

TEST(some_blocks_are_stored_in_parts_at_different_moments)
{
    blocks_in_parts(false);
    blocks_in_parts(true);
}

TEST(a_stopped_receiver_takes_blocks_only_of_one_sided_senders)
{
    for (int one_sided = 0; one_sided < 2; one_sided++) {
        open_two((struct sim_network_options){.one_sided = one_sided});
        stop(A, true);
        nw_send_blocks(&world, B, active, FIRST, COUNT);
        nw_run(&world, NS_PER_S);
        assert_int_equal(nw_landed(&world, 0, FIRST), one_sided ? COUNT : 0);
        assert_int_equal(nw_count(&world, B, FABRIC_LANDED), one_sided);
        stop(A, false);
        nw_run(&world, 10 * NW_DELAY_NS);
        assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 1);
        nw_close(&world);
    }
}

TEST(what_a_stopped_sender_has_flushed_lands_if_the_receiver_places_it)
{
    open_two((struct sim_network_options){0});
    nw_send_blocks(&world, B, active, FIRST, COUNT);
    stop(B, true);
    nw_run(&world, NS_PER_S);
    assert_int_equal(nw_landed(&world, 0, FIRST), COUNT);
    nw_close(&world);
}

TEST(segments_are_sealed_early_if_asked_for)
{
    open_two((struct sim_network_options){.early_seal = 10});
    for (uint32_t i = 0; i < 20; i++) {
        nw_send_blocks(&world, B, active, FIRST, 1);
        nw_run(&world, 5 * NW_DELAY_NS);
    }
    assert_in_range(nw_count(&world, A, FABRIC_SEALED), 1, 3);
    assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 20);
    uint32_t first = nw_run_of(&world, 0, FIRST);
    assert_true(first > 0 && first < 20 * NW_BLOCK);
    assert_int_equal(nw_run_of(&world, first, 0), NW_SEGMENT - first); /* F6 */
    nw_close(&world);
}

/* --- senders that stand still --- */

/* The next seed with which B is stopped in the middle of a store, and the segment is closed; the world of the last one
 * is closed before. False: there is none, and enough were tried. */
static bool next_stop_in_a_store(uint64_t *seed)
{
    static uint32_t tried;
    if (*seed == 0)
        tried = 0;
    else
        nw_close(&world);
    while (++*seed <= SEEDS) {
        open_one_sided(*seed);
        nw_send_blocks(&world, B, active, FIRST, COUNT);
        stop(B, true);
        fill();
        nw_run(&world, VOID_NS / 2);
        assert_int_equal(counts().voided, 0);
        if (nw_count(&world, A, FABRIC_SEALED) == 0) {
            tried++;
            return true;
        }
        nw_close(&world);
    }
    assert_true(tried > SEEDS / 4);
    return false;
}

TEST(the_claim_of_a_stopped_sender_is_void_after_a_while)
{
    for (uint64_t seed = 0; next_stop_in_a_store(&seed);) {
        nw_run(&world, 2 * VOID_NS);
        assert_int_equal(counts().voided, 1);
        assert_true(nw_count(&world, A, FABRIC_SEALED) > 0);
    }
}

TEST(a_segment_with_a_void_claim_is_quiet_when_its_sender_has_noticed)
{
    for (uint64_t seed = 0; next_stop_in_a_store(&seed);) {
        nw_run(&world, NS_PER_S);
        const struct nw_process *a = &world.processes[A];
        uint32_t unquiet = 0, segment = 0;
        for (uint32_t i = 0; i < a->event_count; i++) {
            if (a->events[i].kind == FABRIC_SEALED && !a->events[i].quiet) {
                unquiet++;
                segment = (uint32_t)a->events[i].context;
            }
        }
        assert_int_equal(unquiet, 1);
        assert_int_equal(counts().unquiet, 1);
        assert_int_equal(nw_count(&world, A, FABRIC_QUIET), 0);
        stop(B, false);
        nw_run(&world, 100 * NW_DELAY_NS);
        assert_int_equal(nw_count(&world, A, FABRIC_QUIET), 1);
        assert_int_equal(a->events[nw_find(&world, A, FABRIC_QUIET, 0)].context, segment);
        assert_int_equal(nw_count(&world, A, FABRIC_CLOSED), 1);
        assert_int_equal(nw_count(&world, B, FABRIC_CLOSED), 1);
        assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 0);
    }
}

TEST(who_goes_on_finishes_his_stray_store)
{
    for (uint64_t seed = 0; next_stop_in_a_store(&seed);) {
        nw_run(&world, NS_PER_S);
        assert_int_equal(counts().stray, 0);
        uint64_t stores = world.processes[A].pm->stores;
        stop(B, false);
        nw_run(&world, 100 * NW_DELAY_NS);
        assert_true(counts().stray > 0);
        assert_int_equal(world.processes[A].pm->stores, stores + counts().stray);
    }
}

/* Segments are closed behind a claim of a stopped sender sometimes, so that nothing else lies there. */
TEST(the_claim_of_a_stopped_sender_may_be_all_there_is_in_a_segment)
{
    uint32_t alone = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_one_sided(seed);
        nw_send_blocks(&world, B, active, FIRST, COUNT);
        stop(B, true);
        nw_send_blocks(&world, C, other, OTHER, 1);
        nw_run(&world, NS_PER_S);
        assert_int_equal(nw_count(&world, C, FABRIC_LANDED), 1);
        alone += counts().unquiet == 1 && nw_landed(&world, NW_SEGMENT, OTHER) == 1;
        nw_close(&world);
    }
    assert_true(alone > SEEDS / 8);
}

TEST(a_sender_that_goes_on_in_time_loses_nothing)
{
    for (uint64_t seed = 0; next_stop_in_a_store(&seed);) {
        stop(B, false);
        nw_run(&world, 20 * NW_DELAY_NS);
        assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 1);
        assert_int_equal(nw_count(&world, B, FABRIC_CLOSED), 0);
        nw_run(&world, NS_PER_S);
        assert_int_equal(counts().voided, 0);
        assert_int_equal(counts().unquiet, 0);
    }
}

TEST(the_claim_of_a_killed_sender_is_void_and_its_segment_quiet)
{
    uint32_t tried = 0, torn = 0, more = 0;
    for (uint64_t seed = 0; next_stop_in_a_store(&seed);) {
        uint64_t stores = world.processes[A].pm->stores;
        nw_kill(&world, B);
        assert_true(world.processes[A].pm->stores <= stores + 1);
        more += world.processes[A].pm->stores > stores; /* any part of it is there */
        nw_run(&world, NW_DELAY_NS);
        const struct nw_process *a = &world.processes[A];
        assert_true(a->events[nw_find(&world, A, FABRIC_SEALED, 0)].quiet);
        assert_int_equal(counts().unquiet, 0);
        tried += counts().voided == 1;
        torn += counts().torn == 1;
    }
    assert_true(tried > 0 && torn > 0 && more > 0);
}

TEST(a_sender_that_was_cut_off_in_a_store_finishes_or_tears_it)
{
    uint32_t stray = 0, tried = 0;
    for (uint64_t seed = 0; next_stop_in_a_store(&seed);) {
        sim_network_break(world.network, nw_address(A), nw_address(B));
        nw_run(&world, NS_PER_S);
        assert_int_equal(nw_count(&world, A, FABRIC_CLOSED), 1);
        assert_int_equal(nw_count(&world, A, FABRIC_QUIET), 0);
        stop(B, false);
        nw_run(&world, NS_PER_S);
        assert_int_equal(nw_count(&world, A, FABRIC_QUIET), 1);
        assert_int_equal(nw_count(&world, B, FABRIC_CLOSED), 1);
        stray += counts().stray > 0;
        tried++;
    }
    assert_int_equal(stray, tried);
}

/* The owner dies while somebody stores into his memory: before it has another owner that store is over. */
TEST(a_store_ends_when_the_zone_does)
{
    uint32_t more = 0, tried = 0;
    for (uint64_t seed = 0; next_stop_in_a_store(&seed);) {
        uint64_t stores = world.processes[A].pm->stores;
        nw_kill(&world, A);
        more += world.processes[A].pm->stores > stores;
        stores = world.processes[A].pm->stores;
        stop(B, false);
        nw_run(&world, NS_PER_S);
        assert_int_equal(world.processes[A].pm->stores, stores);
        assert_int_equal(nw_count(&world, B, FABRIC_CLOSED), 1);
        tried++;
    }
    assert_true(more > 0 && more <= tried);
}

/* --- F12 --- */

/* Stores of A's memory that lie outside of what was told to be void. */
static void count_outside(void *context, uint64_t offset, const uint8_t *data, size_t bytes)
{
    const struct nw_process *a = &world.processes[A];
    const struct fabric_event *told = &a->events[nw_find(&world, A, FABRIC_VOID, 0)];
    const uint64_t from = (uint64_t)((const uint8_t *)told->data - (const uint8_t *)a->pm->pm.base);
    (void)data;
    *(uint32_t *)context += offset < from || offset + bytes > from + told->bytes;
}

TEST(f12_who_is_shut_out_in_a_store_is_void_at_once_and_stores_only_there)
{
    for (uint64_t seed = 0; next_stop_in_a_store(&seed);) {
        struct nw_process *a = &world.processes[A];
        uint32_t outside = 0;
        assert_int_equal(fabric_shut_out(a->zone, B, 1, 7), 0);
        nw_run(&world, NW_DELAY_NS);
        assert_int_equal(nw_count(&world, A, FABRIC_SHUT_OUT), 1);
        assert_int_equal(nw_count(&world, A, FABRIC_VOID), 1);
        const uint32_t sealed = nw_find(&world, A, FABRIC_SEALED, 0);
        assert_true(nw_find(&world, A, FABRIC_VOID, 0) < sealed &&
                    sealed < nw_find(&world, A, FABRIC_SHUT_OUT, 0));
        assert_false(a->events[sealed].quiet);
        assert_int_equal(counts().voided, 1);
        assert_int_equal(nw_count(&world, A, FABRIC_QUIET), 0);
        a->pm->stored = count_outside;
        a->pm->stored_context = &outside;
        stop(B, false);
        nw_run(&world, 100 * NW_DELAY_NS);
        assert_true(counts().stray > 0);
        assert_int_equal(outside, 0);
        assert_int_equal(nw_count(&world, A, FABRIC_QUIET), 1);
        assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 0);
        assert_int_equal(nw_count(&world, C, FABRIC_CLOSED), 0);
    }
}

/* --- all of it --- */

UNIT_MAIN(NULL, NULL)
