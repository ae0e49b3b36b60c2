/* What the simulated network may do to a connection and to the landing zone behind it. */
#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/sim/network_world.h"

enum { A, B, C, SEEDS = 200, COUNT = 8, FIRST = 1 };

static struct network_world world;
static struct fabric_conn *active, *passive;

/* A connection from B to A's landing zone. */
static void open_pair(struct sim_network_options options)
{
    nw_open(&world, options);
    nw_connect(&world, B, A, &active, &passive);
}

static struct sim_network_counts counts(void)
{
    return sim_network_counts(world.network);
}

static uint64_t closed_ns(uint32_t process)
{
    return world.processes[process].at_ns[nw_find(&world, process, FABRIC_CLOSED, 0)];
}

static void both(void (*test)(bool one_sided))
{
    test(false);
    test(true);
}

/* --- breaks --- */

TEST(each_side_of_a_cut_connection_hears_of_it_at_its_own_time)
{
    uint32_t first[2] = {0}, far = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_pair((struct sim_network_options){.seed = seed});
        sim_network_break(world.network, nw_address(A), nw_address(B));
        nw_run(&world, 100 * NW_DELAY_NS);
        uint64_t a_ns = closed_ns(A), b_ns = closed_ns(B);
        first[0] += a_ns < b_ns;
        first[1] += b_ns < a_ns;
        far += a_ns > b_ns + 8 * NW_DELAY_NS;
        assert_int_equal(counts().broken, 1);
        nw_close(&world);
    }
    assert_true(first[0] > SEEDS / 4 && first[1] > SEEDS / 4 && far > 0);
}

TEST(who_has_not_heard_of_a_cut_may_send_and_nothing_of_it_arrives)
{
    uint32_t tried = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_pair((struct sim_network_options){.seed = seed});
        sim_network_break(world.network, nw_address(A), nw_address(B));
        nw_round(&world);
        if (nw_count(&world, B, FABRIC_CLOSED) == 0) {
            nw_send(&world, B, active, 1);
            nw_send_blocks(&world, B, active, FIRST, 1);
            tried++;
        }
        nw_run(&world, 100 * NW_DELAY_NS);
        assert_int_equal(nw_count(&world, A, FABRIC_MESSAGE), 0);
        assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 0);
        assert_int_equal(nw_run_of(&world, 0, 0), NW_SEGMENTS * NW_SEGMENT);
        nw_close(&world);
    }
    assert_true(tried > SEEDS / 2);
}

TEST(of_what_was_on_its_way_at_a_cut_a_first_part_arrives)
{
    uint32_t arrived[COUNT + 1] = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_pair((struct sim_network_options){.seed = seed});
        for (uint8_t i = 0; i < COUNT; i++)
            nw_send(&world, B, active, i);
        sim_network_break(world.network, nw_address(A), nw_address(B));
        nw_run(&world, 100 * NW_DELAY_NS);
        uint32_t messages = nw_count(&world, A, FABRIC_MESSAGE);
        assert_int_equal(world.processes[A].events[messages + 1].kind, FABRIC_CLOSED);
        assert_int_equal(world.processes[A].event_count, messages + 2); /* F3; ACCEPTED */
        arrived[messages]++;
        nw_close(&world);
    }
    for (uint32_t i = 0; i <= COUNT; i++)
        assert_true(arrived[i] > 0);
}

static void break_with_blocks(uint64_t seed, bool one_sided)
{
    open_pair((struct sim_network_options){.seed = seed, .one_sided = one_sided});
    nw_send_blocks(&world, B, active, FIRST, COUNT);
    sim_network_break(world.network, nw_address(A), nw_address(B));
    nw_run(&world, 100 * NW_DELAY_NS);
}

static void cut_blocks(bool one_sided)
{
    uint32_t landed[COUNT + 1] = {0}, torn = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        break_with_blocks(seed, one_sided);
        uint32_t whole = nw_landed(&world, 0, FIRST);
        uint32_t part = nw_run_of(&world, whole * NW_BLOCK, (uint8_t)(FIRST + whole));
        uint64_t rest = whole * NW_BLOCK + part;
        assert_int_equal(nw_run_of(&world, rest, 0), NW_SEGMENTS * NW_SEGMENT - rest);
        assert_int_equal(counts().torn, part > 0);
        assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 0);
        landed[whole]++;
        torn += part > 0;
        nw_close(&world);
    }
    for (uint32_t i = 0; i <= COUNT; i++)
        assert_true(landed[i] > 0);
    assert_true(torn > SEEDS / 8);
}

TEST(of_blocks_on_their_way_at_a_cut_a_first_part_lands_and_the_last_may_be_torn)
{
    both(cut_blocks);
}

static void torn_space(bool one_sided)
{
    uint32_t torn = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct fabric_conn *other, *at;
        break_with_blocks(seed, one_sided);
        uint32_t whole = nw_landed(&world, 0, FIRST);
        nw_connect(&world, C, A, &other, &at);
        nw_send_blocks(&world, C, other, 100, 1);
        nw_run(&world, 10 * NW_DELAY_NS);
        assert_int_equal(nw_count(&world, C, FABRIC_LANDED), 1);
        if (counts().torn) {
            assert_int_equal(nw_run_of(&world, (whole + 1) * NW_BLOCK, 100), NW_BLOCK);
            torn++;
        }
        nw_close(&world);
    }
    assert_true(torn > 0);
}

TEST(the_space_of_a_torn_block_stays_taken)
{
    both(torn_space);
}

TEST(blocks_land_after_their_sender_gave_the_connection_up)
{
    uint32_t late = 0, seen = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_pair((struct sim_network_options){.seed = seed});
        nw_send_blocks(&world, B, active, FIRST, COUNT);
        fabric_conn_close(active);
        uint32_t before = nw_landed(&world, 0, FIRST);
        nw_run(&world, 100 * NW_DELAY_NS);
        seen += nw_landed(&world, 0, FIRST) > before;
        late += counts().late > 0;
        nw_close(&world);
    }
    assert_true(late > SEEDS / 8);
    assert_int_equal(late, seen);
}

static void nothing_lands_after_the_end_was_heard(bool one_sided)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_pair((struct sim_network_options){.seed = seed, .one_sided = one_sided});
        nw_send_blocks(&world, B, active, FIRST, COUNT);
        sim_network_break(world.network, nw_address(A), nw_address(B));
        while (nw_count(&world, A, FABRIC_CLOSED) == 0)
            nw_run(&world, 1000);
        uint64_t stores = world.processes[A].pm->stores;
        nw_run(&world, 100 * NW_DELAY_NS);
        assert_int_equal(world.processes[A].pm->stores, stores);
        nw_close(&world);
    }
}

TEST(nothing_lands_after_the_receiver_heard_of_the_end)
{
    both(nothing_lands_after_the_end_was_heard);
}

/* How servers keep a deposed primary's writes out. */
static void nothing_more_lands_when_the_receiver_has_closed(bool one_sided)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_pair((struct sim_network_options){.seed = seed, .one_sided = one_sided});
        nw_send_blocks(&world, B, active, FIRST, COUNT);
        fabric_conn_close(passive);
        nw_run(&world, 100 * NW_DELAY_NS);
        assert_int_equal(nw_run_of(&world, 0, 0), NW_SEGMENTS * NW_SEGMENT);
        assert_int_equal(nw_count(&world, B, FABRIC_CLOSED), 1);
        assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 0);
        nw_close(&world);
    }
}

TEST(what_had_not_begun_never_lands_when_the_receiver_closes)
{
    both(nothing_more_lands_when_the_receiver_has_closed);
}

/* --- paths --- */

TEST(what_is_sent_over_a_blocked_path_is_late_and_in_order)
{
    struct fabric_conn *other, *end;
    open_pair((struct sim_network_options){0});
    nw_connect(&world, C, A, &other, &end);
    sim_network_block(world.network, nw_address(B), nw_address(A), true);
    for (uint8_t i = 0; i < COUNT; i++)
        nw_send(&world, B, active, i);
    nw_send_blocks(&world, B, active, FIRST, COUNT);
    nw_run(&world, NS_PER_S);
    nw_send_blocks(&world, C, other, 100, 1); /* others have a free path */
    nw_run(&world, NS_PER_S);
    assert_int_equal(nw_count(&world, A, FABRIC_MESSAGE), 0);
    assert_int_equal(nw_landed(&world, 0, 100), 1);
    assert_int_equal(nw_run_of(&world, NW_BLOCK, 0), (NW_SEGMENTS * NW_SEGMENT) - NW_BLOCK);
    sim_network_block(world.network, nw_address(B), nw_address(A), false);
    nw_run(&world, 10 * NW_DELAY_NS);
    assert_int_equal(nw_count(&world, A, FABRIC_MESSAGE), COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t at = nw_find(&world, A, FABRIC_MESSAGE, i);
        assert_int_equal(*(const uint8_t *)world.processes[A].events[at].data, i);
    }
    assert_int_equal(nw_landed(&world, NW_BLOCK, FIRST), COUNT);
    assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 1);
    nw_close(&world);
}

TEST(a_path_is_blocked_in_one_direction_only)
{
    open_pair((struct sim_network_options){0});
    sim_network_block(world.network, nw_address(A), nw_address(B), true);
    nw_send(&world, B, active, 1);
    nw_send_blocks(&world, B, active, FIRST, 1);
    nw_run(&world, NS_PER_S);
    assert_int_equal(nw_count(&world, A, FABRIC_MESSAGE), 1);
    assert_int_equal(nw_landed(&world, 0, FIRST), 1);
    assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 0); /* nobody can tell him */
    nw_close(&world);
}

TEST(a_connection_over_a_path_blocked_for_too_long_breaks)
{
    open_pair((struct sim_network_options){.silence_ns = 50 * NS_PER_MS});
    const uint64_t began_ns = world.clock.now_ns;
    sim_network_block(world.network, nw_address(A), nw_address(B), true);
    nw_run(&world, 49 * NS_PER_MS);
    assert_int_equal(nw_count(&world, B, FABRIC_CLOSED), 0);
    nw_run(&world, NS_PER_S);
    assert_true(closed_ns(A) >= began_ns + 50 * NS_PER_MS);
    assert_true(closed_ns(B) >= began_ns + 50 * NS_PER_MS);
    assert_int_equal(counts().broken, 1);
    nw_close(&world);
}

/* The word that the other side has closed is held up too. */
TEST(a_side_that_cannot_be_told_of_the_end_hears_of_it_by_silence)
{
    open_pair((struct sim_network_options){.silence_ns = 50 * NS_PER_MS});
    sim_network_block(world.network, nw_address(B), nw_address(A), true);
    fabric_conn_close(active);
    nw_run(&world, 49 * NS_PER_MS);
    assert_int_equal(nw_count(&world, A, FABRIC_CLOSED), 0);
    nw_run(&world, 100 * NS_PER_MS);
    assert_int_equal(nw_count(&world, A, FABRIC_CLOSED), 1);
    nw_close(&world);
}

TEST(no_connection_is_made_over_a_blocked_path)
{
    for (int direction = 0; direction < 2; direction++) {
        struct fabric_conn *conn;
        nw_open(&world, (struct sim_network_options){.silence_ns = 50 * NS_PER_MS});
        sim_network_block(world.network, nw_address(direction ? A : B),
                          nw_address(direction ? B : A), true);
        fabric_connect(world.processes[B].endpoint, nw_address(A), 0, 7, &conn);
        nw_run(&world, NS_PER_S);
        assert_int_equal(nw_count(&world, B, FABRIC_CONNECTED), 0);
        assert_int_equal(nw_count(&world, A, FABRIC_ACCEPTED), 0);
        uint32_t at = nw_find(&world, B, FABRIC_CLOSED, 0);
        assert_int_equal(world.processes[B].events[at].error, ROWAN_EUNREACHABLE);
        sim_network_block(world.network, nw_address(direction ? A : B),
                          nw_address(direction ? B : A), false);
        nw_connect(&world, B, A, &active, &passive);
        nw_close(&world);
    }
}

TEST(what_is_stalled_arrives_no_sooner)
{
    open_pair((struct sim_network_options){0});
    const uint64_t until_ns = world.clock.now_ns + 20 * NS_PER_MS;
    nw_send(&world, B, active, 1);
    nw_send(&world, A, passive, 2);
    sim_network_stall(world.network, nw_address(A), nw_address(B), 20 * NS_PER_MS);
    nw_send_blocks(&world, B, active, FIRST, 1);
    nw_run(&world, 20 * NS_PER_MS - 1);
    assert_int_equal(nw_count(&world, A, FABRIC_MESSAGE), 0);
    assert_int_equal(nw_count(&world, B, FABRIC_MESSAGE), 0);
    assert_int_equal(nw_landed(&world, 0, FIRST), 0);
    nw_run(&world, NW_DELAY_NS);
    assert_true(world.processes[A].at_ns[nw_find(&world, A, FABRIC_MESSAGE, 0)] >= until_ns);
    assert_int_equal(nw_count(&world, B, FABRIC_MESSAGE), 1);
    nw_run(&world, 10 * NW_DELAY_NS);
    assert_int_equal(nw_count(&world, B, FABRIC_LANDED), 1);
    nw_close(&world);
}

TEST(healing_ends_blocks_and_stalls)
{
    open_pair((struct sim_network_options){0});
    sim_network_block(world.network, nw_address(B), nw_address(A), true);
    sim_network_stall(world.network, nw_address(A), nw_address(B), NS_PER_S);
    nw_send(&world, B, active, 1);
    nw_send(&world, A, passive, 2);
    nw_run(&world, 10 * NW_DELAY_NS);
    assert_int_equal(nw_count(&world, A, FABRIC_MESSAGE), 0);
    sim_network_heal(world.network);
    nw_run(&world, 2 * NW_DELAY_NS);
    assert_int_equal(nw_count(&world, A, FABRIC_MESSAGE), 1);
    assert_int_equal(nw_count(&world, B, FABRIC_MESSAGE), 1);
    nw_close(&world);
}

TEST(a_connection_to_who_is_stopped_is_given_up_after_the_handshake_time)
{
    struct fabric_conn *conn;
    nw_open(&world, (struct sim_network_options){0});
    world.processes[A].stopped = true;
    fabric_connect(world.processes[B].endpoint, nw_address(A), 0, 7, &conn);
    nw_run(&world, 4 * NS_PER_S);
    assert_int_equal(nw_count(&world, B, FABRIC_CLOSED), 0);
    nw_run(&world, 2 * NS_PER_S);
    assert_int_equal(nw_count(&world, B, FABRIC_CLOSED), 1);
    nw_close(&world);
}

UNIT_MAIN(NULL, NULL)
