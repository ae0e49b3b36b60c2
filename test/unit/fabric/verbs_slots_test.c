/* verbs_slots_test.c - landing zones of slots: where what landed lies, when segments are sealed, and that no
 * failure holds one open. */
#define TEST_FIXTURE setup, close_landing

#include "common/fabric/verbs/verbs_zone.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/verbs_landing.h"

static int setup(void **state)
{
    (void)state;
    open_landing(DEPTH, DEPTH, true);
    return 0;
}

static void send_and_wait(unsigned side, struct fabric_conn *to, uint32_t first, uint32_t end)
{
    land_blocks(side, to, first, end, true);
}

static struct fabric_conn *connect_other(void)
{
    struct fabric_conn *active, *other;

    world_connect(&world, OTHER, OWNER, 0, &active, &other);
    assert_true(active->has_zone);
    return active;
}

/* Blocks of a side that lie in the first segments, each in its slot and in the order they were sent. */
static uint32_t walk(uint32_t segments, unsigned side)
{
    uint32_t count = 0, next = 0;

    for (uint64_t at = 0; at < (uint64_t)segments * FABRIC_SEGMENT_BYTES; at += SLOT) {
        const uint8_t *data = pm_at(world.sides[OWNER].pm, at);
        struct block_head head;

        if (!block_is_whole(data, SLOT, &head) || head.sender != side)
            continue;
        assert_true(head.number >= next); /* F1 */
        next = head.number + 1;
        for (uint32_t i = BLOCK; i < SLOT; i++)
            assert_int_equal(data[i], 0);
        count++;
    }
    return count;
}

static uint32_t sealed(void)
{
    return side_count(&world.sides[OWNER], FABRIC_SEALED);
}

/* A block that is too long for a slot: this zone's owner has smaller ones than it says. */
TEST(a_receive_that_fails_leaves_a_hole)
{
    struct fabric_conn *liar, *other, *active = connect_other();

    for (unsigned side = OWNER; side <= SENDER; side++)
        endpoint_of(side)->fabric->base.base.caps.block_limit =
            endpoint_of(side)->base.block_limit = 2 * SLOT;
    world_connect(&world, SENDER, OWNER, 0, &liar, &other);
    assert_int_equal(world_add_block(&world, SENDER, liar, 0, 0, 2 * SLOT), 0);
    assert_int_equal(fabric_rowan_post(liar, 1), 0);
    world_wait(&world, SENDER, FABRIC_CLOSED, 1);
    world_wait(&world, OWNER, FABRIC_CLOSED, 1);
    assert_int_equal(side_count(&world.sides[SENDER], FABRIC_LANDED), 0);
    send_and_wait(OTHER, active, 0, SLOTS);
    world_wait(&world, OWNER, FABRIC_SEALED, 1);
    assert_int_equal(walk(1, OTHER), SLOTS - 1); /* a place is taken */
    assert_int_equal(walk(2, OTHER), SLOTS);
}

/* --- a segment that is closed --- */

TEST(a_segment_that_is_closed_is_sealed_though_nobody_sends)
{
    fabric_close_segment(world.sides[OWNER].zone);
    world_wait(&world, OWNER, FABRIC_SEALED, 1);
    world_poll_times(&world, 1000);
    assert_int_equal(sealed(), 1);
    send_and_wait(SENDER, conn, 0, SLOTS / 2);
    assert_int_equal(walk(2, SENDER), SLOTS / 2);
    assert_int_equal(sealed(), 1);
}

TEST(what_is_sent_to_a_segment_that_is_closed_meanwhile_lands)
{
    send_and_wait(SENDER, conn, 0, 10);
    fabric_close_segment(world.sides[OWNER].zone);
    send_and_wait(SENDER, conn, 10, SLOTS);
    world_wait(&world, OWNER, FABRIC_SEALED, 1);
    assert_int_equal(walk(3, SENDER), SLOTS);
}

/* By what breaks all that are connected. */
TEST(what_fills_a_segment_is_made_anew_when_it_breaks)
{
    fabric_conn_close(conn);
    world_wait(&world, OWNER, FABRIC_CLOSED, 1);
    fabric_close_segment(world.sides[OWNER].zone);
    side_poll(&world, OWNER);
    assert_true(soft_verbs_break_any_qp(IBV_QPT_RC) != 0);
    world_wait(&world, OWNER, FABRIC_SEALED, 1);
    assert_int_equal(soft_verbs_break_any_qp(IBV_QPT_RC) != 0, true);
}

/* --- completions that are swept away --- */

/* Lands `count` blocks of SENDER of which the owner polls no completion, and lets the device sweep those away. */
static void lose_completions(uint32_t count)
{
    land_blocks(SENDER, conn, 0, count, false);
    fabric_conn_close(passive);
    world_poll(&world);
    assert_int_equal(walk(2, SENDER), count);
}

TEST(lost_slots_are_given_up_when_all_queue_pairs_of_then_are_gone)
{
    struct fabric_conn *old = connect_other();

    lose_completions(100);
    send_and_wait(OTHER, old, 0, 2 * SLOTS); /* the next segment is full, too */
    world_poll_times(&world, 1000);
    assert_int_equal(sealed(), 0); /* one of them lives */
    fabric_conn_close(old);
    connect_other(); /* is no obstacle */
    world_wait(&world, OWNER, FABRIC_SEALED, 2);
    assert_int_equal(walk(1, SENDER), 100); /* what had landed is there */
    assert_int_equal(walk(4, OTHER), 2 * SLOTS);
}

TEST(lost_slots_are_given_up_when_no_sender_can_be_trying_any_more)
{
    struct fabric_conn *active = connect_other();

    lose_completions(100);
    send_and_wait(OTHER, active, 0, 2 * SLOTS);
    world_poll(&world);
    now_ns += VERBS_RC_GIVES_UP_NS;
    world_poll_times(&world, 10);
    assert_int_equal(sealed(), 0);
    assert_true(verbs_zone_wait_ns(endpoint_of(OWNER)->zone) <= NS_PER_S);
    now_ns += verbs_zone_wait_ns(endpoint_of(OWNER)->zone);
    world_poll(&world);
    assert_int_equal(sealed(), 2);
}

static int setup_two_segments(void **state)
{
    (void)state;
    open_landing(2, 2, true);
    return 0;
}

/* None of the two segments' slots ever completes as a whole. */
TEST_WITH(lost_slots_in_every_segment_are_given_up, setup_two_segments, close_landing)
{
    struct fabric_conn *old = connect_other(), *active;

    send_and_wait(OTHER, old, 0, SLOTS - 50);
    lose_completions(100); /* 50 of the first, 50 of the second */
    send_and_wait(OTHER, old, SLOTS - 50, SLOTS);
    fabric_conn_close(old);
    active = connect_other();
    world_wait(&world, OWNER, FABRIC_SEALED, 1);
    assert_int_equal(
        fabric_zone_post(world.sides[OWNER].zone, 2 * (uint64_t)FABRIC_SEGMENT_BYTES, 2), 0);
    send_and_wait(OTHER, active, SLOTS, 2 * SLOTS);
    fabric_conn_close(active);
    world_wait(&world, OWNER, FABRIC_SEALED, 2);
}

/* All slots that the device had are lost, at once. */
TEST(a_queue_of_lost_slots_takes_new_ones)
{
    struct fabric_conn *active = connect_other();

    send_and_wait(OTHER, active, 0, 1); /* a completion came a moment ago */
    lose_completions(SLOTS - 1);
    assert_int_equal(walk(2, OTHER), 1);
    send_and_wait(OTHER, active, 1, 2 * SLOTS);
    fabric_conn_close(active);
    world_wait(&world, OWNER, FABRIC_SEALED, 2);
    assert_int_equal(walk(4, OTHER), 2 * SLOTS);
}

static int (*post_slots)(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
static uint32_t refused;

static int post_and_count(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    const int error = post_slots(srq, wr, bad);

    refused += error == ENOMEM;
    return error;
}

/* Each queue pair that goes has the device asked how much it takes, and no more. */
TEST(a_full_queue_is_asked_once_for_each_queue_pair_that_is_gone)
{
    struct ibv_context_ops *ops = &endpoint_of(OWNER)->device->context->ops;
    struct fabric_conn *active = connect_other();

    post_slots = ops->post_srq_recv;
    ops->post_srq_recv = post_and_count;
    lose_completions(100);
    world_poll_times(&world, 100);
    assert_int_equal(refused, 1);
    send_and_wait(OTHER, active, 0, 2 * SLOTS);
    fabric_conn_close(active);
    world_wait(&world, OWNER, FABRIC_SEALED, 2); /* the lost slots were given up */
    world_poll_times(&world, 1000);
    assert_in_range(refused, 2, 4);
}

TEST(a_full_completion_queue_refuses_whoever_comes)
{
    enum { MORE = 12 /* queue pairs, of which each takes one place */ };
    struct fabric_conn *late;

    endpoint_of(OWNER)->cq_free = MORE; /* landings have their own queue */
    for (unsigned i = 0; i < MORE; i++)
        connect_other();
    side_take_role(&world, SENDER);
    assert_int_equal(
        fabric_connect(world.sides[SENDER].endpoint, host_address(&host, OWNER), 0, 0, &late), 0);
    world_wait(&world, SENDER, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[SENDER], FABRIC_CLOSED, 0)->error, ROWAN_ETOOMANY);
}

UNIT_MAIN(NULL, NULL)
