/* fabric_conformance_zone.c - the rules of the landing zone, F6 to F9, F11 and F12. */
#define TEST_FIXTURE open_three, close_three

#include <string.h>

#include "common/base/error.h"
#include "test/lib/fabric_conformance.h"
#include "test/lib/unit.h"

enum { KB = 1 << 10, MEGABYTE = 1 << 20, SEGMENT = FABRIC_SEGMENT_BYTES };

/* The largest block that lands in one piece, and the largest power of two that does. */
static uint32_t largest_block(void)
{
    return world.sides[0].caps.block_limit;
}

static uint32_t largest_power(void)
{
    uint32_t bytes = FABRIC_STRIDE;

    while (2 * bytes <= largest_block())
        bytes *= 2;
    return bytes;
}

/* What one sender has posted, in batches that one LANDED event each tells of. */
struct flow {
    unsigned sender;
    struct fabric_conn *conn;
    uint32_t bytes; /* of each block */
    uint32_t blocks, batches;
};

static struct flow flow_open(unsigned sender, uint32_t bytes)
{
    struct flow flow = {.sender = sender, .bytes = bytes};
    struct fabric_conn *passive;

    world_connect(&world, sender, 0, 0, &flow.conn, &passive);
    return flow;
}

static void flow_wait(const struct flow *flow)
{
    world_wait(&world, flow->sender, FABRIC_LANDED, flow->batches);
}

/* One batch of `count` blocks, or as many as there is room for and as make 64 KiB; waits for room, and until
 * what was in its memory has landed (F4). */
static void flow_post(struct flow *flow, uint32_t count)
{
    enum { PLACES = 300, PLACE = 64 * KB };
    const uint64_t at = (uint64_t)(flow->batches % PLACES) * PLACE;
    const uint32_t most = PLACE / side_slot(&world.sides[0], flow->bytes);

    while (fabric_rowan_room(flow->conn) == 0 ||
           side_count(&world.sides[flow->sender], FABRIC_LANDED) + PLACES <= flow->batches)
        world_poll(&world);
    count = count < most ? count : most;
    for (uint32_t i = 0; i < count && (i == 0 || fabric_rowan_room(flow->conn) > 0); i++)
        assert_int_equal(world_add_block(&world, flow->sender, flow->conn, at + i * flow->bytes,
                                         flow->blocks++, flow->bytes),
                         0);
    assert_int_equal(fabric_rowan_post(flow->conn, flow->batches++), 0);
}

static void flow_post_until(struct flow *flow, uint32_t blocks)
{
    while (flow->blocks < blocks)
        flow_post(flow, blocks - flow->blocks);
}

/* Where every block takes a slot of the same size there is no end that it could cross: the segment is full
 * then. */
TEST(f6_a_block_never_crosses_the_end_of_a_segment)
{
    const uint32_t bytes = (largest_block() - largest_block() / 16) & ~63u;
    const uint32_t fit = side_fit(&world.sides[0], bytes);
    uint32_t next[SIDE_MAX] = {0};
    struct flow flow;

    assert_true(SEGMENT % side_slot(&world.sides[0], bytes) != 0 ||
                world.sides[0].caps.landing_stride > FABRIC_STRIDE);
    side_open_zone(&world, 0, 4, 4);
    flow = flow_open(1, bytes);
    flow_post_until(&flow, 3 * fit);
    flow_wait(&flow);
    assert_int_equal(world_walk_zone(&world, 0, 1, next), fit);
    assert_int_equal(world_walk_zone(&world, 0, 3, (uint32_t[SIDE_MAX]){0}), 3 * fit);
}

TEST(f6_a_block_may_end_where_the_segment_ends)
{
    const uint32_t fit = SEGMENT / largest_power();
    uint32_t next[SIDE_MAX] = {0};
    struct flow flow;

    side_open_zone(&world, 0, 2, 2);
    flow = flow_open(1, largest_power());
    flow_post_until(&flow, fit + 1);
    flow_wait(&flow);
    assert_int_equal(world_walk_zone(&world, 0, 1, next), fit);
    assert_int_equal(world_walk_segment(&world, 0, 1, next), 1);
}

TEST(f6_what_lies_between_blocks_stays_zero)
{
    const uint32_t limit = largest_block() / 64;
    struct flow flow;
    uint32_t slots = 0, blocks = 0;

    side_open_zone(&world, 0, 2, 2);
    flow = flow_open(1, 64);
    for (; slots < 2 * MEGABYTE; blocks++) {
        flow.bytes = 64 * (1 + blocks * 7 % limit);
        flow_post(&flow, 1);
        slots += side_slot(&world.sides[0], flow.bytes);
    }
    flow_wait(&flow);
    assert_int_equal(world_walk_zone(&world, 0, 1, (uint32_t[SIDE_MAX]){0}), blocks);
}

/* The last block of a segment may seal it, or the first that goes into the next. */
TEST(f7_segments_are_sealed_in_order_and_whole)
{
    const uint32_t bytes = largest_power() < 4 * KB ? largest_power() : 4 * KB;
    const uint32_t fit = side_fit(&world.sides[0], bytes);
    const uint32_t segments = fit > 4 * KB ? 3 : 6, count = segments * fit + 10;
    struct flow flows[3];
    uint32_t next[SIDE_MAX] = {0}, sealed = 0, walked;

    side_open_zone(&world, 0, 8, segments + 1);
    for (unsigned s = 1; s < 3; s++)
        flows[s] = flow_open(s, bytes);
    for (uint32_t turn = 0; flows[1].blocks + flows[2].blocks < count; turn++) {
        const uint32_t left = count - flows[1].blocks - flows[2].blocks;

        flow_post(&flows[1 + turn % 2], left < fit / 50 ? left : fit / 50);
        world_poll(&world);
        if (side_count(&world.sides[0], FABRIC_SEALED) > sealed) {
            const struct fabric_event *event = side_event(&world.sides[0], FABRIC_SEALED, sealed);

            assert_int_equal(event->context, sealed);
            assert_true(event->quiet);
            sealed++;
            /* Everything that will ever be in there is in there. */
            walked = world_walk_zone(&world, 0, sealed, (uint32_t[SIDE_MAX]){0});
            assert_int_equal(walked, sealed * fit);
        }
    }
    world_wait(&world, 0, FABRIC_SEALED, segments);
    flow_wait(&flows[1]);
    flow_wait(&flows[2]);
    assert_int_equal(world_walk_zone(&world, 0, segments + 1, next), count);
    world_poll_times(&world, 100);
    assert_int_equal(side_count(&world.sides[0], FABRIC_SEALED), segments); /* not the open one */
    assert_int_equal(side_count(&world.sides[0], FABRIC_QUIET), 0);
}

/* Each round fills what is left of the oldest segment, looks at its bytes, wipes and posts it. */
TEST(f7_a_quiet_segment_may_be_posted_again_and_again)
{
    enum { DEPTH = 2 };
    const uint32_t bytes = largest_power() < 32 * KB ? largest_power() : 32 * KB;
    const uint32_t fit = side_fit(&world.sides[0], bytes), rounds = fit > 4 * KB ? 4
                                                                    : fit > KB   ? 6
                                                                                 : 40;
    struct side *owner = &world.sides[0];
    struct flow flow;

    side_open_zone(&world, 0, DEPTH, DEPTH);
    flow = flow_open(1, bytes);
    for (uint32_t round = 0; round < rounds; round++) {
        const uint32_t segment = round % DEPTH;

        while (flow.blocks < (round + 1) * fit + 1) { /* the last one closes the segment */
            flow_post(&flow, (round + 1) * fit + 1 - flow.blocks);
            flow_wait(&flow);
        }
        world_wait(&world, 0, FABRIC_SEALED, round + 1);
        assert_int_equal(side_event(owner, FABRIC_SEALED, round)->context, segment);
        assert_true(side_event(owner, FABRIC_SEALED, round)->quiet);
        assert_int_equal(
            world_walk_segment(&world, 0, segment, (uint32_t[SIDE_MAX]){0, round * fit}), fit);
        pm_zero(owner->pm, (uint64_t)segment * SEGMENT, SEGMENT);
        assert_int_equal(fabric_zone_post(owner->zone, (uint64_t)segment * SEGMENT, segment), 0);
        assert_int_equal(fabric_zone_post(owner->zone, 0, 0), ROWAN_EAGAIN);
    }
}

TEST(f8_a_dry_zone_delays_and_fails_nothing)
{
    const struct fabric_iov iov = {.data = "hello", .bytes = 5};
    struct fabric_conn *passive;
    struct flow flow;

    side_open_zone(&world, 0, 2, 0);
    flow = flow_open(1, 128);
    passive = side_event(&world.sides[0], FABRIC_ACCEPTED, 0)->conn;
    for (uint32_t i = 0; i < 10; i++)
        flow_post(&flow, 1);
    world_poll_times(&world, 1000);
    assert_int_equal(side_count(&world.sides[1], FABRIC_LANDED), 0);
    assert_int_equal(side_count(&world.sides[1], FABRIC_CLOSED), 0);
    assert_int_equal(fabric_send(flow.conn, &iov, 1), 0);
    fabric_flush(world.sides[1].endpoint);
    world_wait(&world, 0, FABRIC_MESSAGE, 1); /* messages go on */
    assert_int_equal(fabric_send(passive, &iov, 1), 0);
    world_wait(&world, 1, FABRIC_MESSAGE, 1);
    assert_int_equal(fabric_zone_post(world.sides[0].zone, 0, 0), 0);
    flow_wait(&flow);
    assert_int_equal(world_walk_zone(&world, 0, 1, (uint32_t[SIDE_MAX]){0}), 10);
}

/* Segments that are posted one by one while one batch goes into them. */
TEST(f8_a_zone_that_runs_dry_in_a_batch_takes_the_rest_later)
{
    enum { COUNT = 200 };
    const uint32_t bytes = (largest_block() - largest_block() / 16) & ~63u;
    const uint32_t fit = side_fit(&world.sides[0], bytes), before = fit - COUNT / 2 % fit;
    const uint64_t place = 20 * MEGABYTE; /* flow_post fills what is below */
    struct flow flow;

    side_open_zone(&world, 0, 4, 1);
    flow = flow_open(1, bytes);
    assert_true(place + COUNT * bytes <= world.sides[1].pm->bytes);
    flow_post_until(&flow, before);
    flow_wait(&flow);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(world_add_block(&world, 1, flow.conn, place + (uint64_t)i * bytes,
                                         flow.blocks++, bytes),
                         0);
    assert_int_equal(fabric_rowan_post(flow.conn, flow.batches++), 0);
    for (uint32_t posted = 1; posted * fit < flow.blocks; posted++) {
        world_poll_times(&world, 200);
        assert_int_equal(side_count(&world.sides[1], FABRIC_LANDED), flow.batches - 1);
        assert_int_equal(fabric_zone_post(world.sides[0].zone, (uint64_t)posted * SEGMENT, posted),
                         0);
    }
    flow_wait(&flow);
    assert_int_equal(side_event(&world.sides[1], FABRIC_LANDED, flow.batches - 1)->context,
                     flow.batches - 1);
    assert_int_equal(world_walk_zone(&world, 0, 4, (uint32_t[SIDE_MAX]){0}), flow.blocks);
}

/* What waited for a segment was sent again on the newer one. */
TEST(f11_a_newer_connection_ends_the_older_one_of_its_sender_first)
{
    struct fabric_conn *older, *newer, *passive, *other;
    uint32_t next[SIDE_MAX] = {0};

    side_open_zone(&world, 0, 2, 0);
    world_connect(&world, 2, 0, 0, &other, &passive);
    world_connect(&world, 1, 0, 1, &older, &passive);
    assert_int_equal(world_add_block(&world, 1, older, 0, 0, 64), 0);
    assert_int_equal(fabric_rowan_post(older, 1), 0);
    world_poll_times(&world, 50);
    assert_int_equal(fabric_connect(world.sides[1].endpoint,
                                    world.backend->address(world.backend->context, 0), 0, 2,
                                    &newer),
                     0);
    world_wait(&world, 1, FABRIC_CONNECTED, 2);
    world_wait(&world, 0, FABRIC_CLOSED, 1);
    assert_ptr_equal(side_event(&world.sides[0], FABRIC_CLOSED, 0)->conn, passive);
    world_wait(&world, 1, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[1], FABRIC_CLOSED, 0)->context, 1);
    assert_int_equal(world_add_block(&world, 1, newer, 64, 0, 64), 0);
    assert_int_equal(fabric_rowan_post(newer, 2), 0);
    assert_int_equal(fabric_zone_post(world.sides[0].zone, 0, 0), 0);
    world_wait(&world, 1, FABRIC_LANDED, 1);
    world_poll_times(&world, 50);
    assert_int_equal(side_event(&world.sides[1], FABRIC_LANDED, 0)->context, 2);
    assert_int_equal(world_walk_zone(&world, 0, 1, next), 1);
    assert_int_equal(side_count(&world.sides[0], FABRIC_CLOSED), 1);
}

/* Where a device places blocks nobody knows, and it is all that were posted. */
static void assert_begun(bool known, uint64_t begun)
{
    assert_int_equal(fabric_zone_begun(world.sides[0].zone), known ? begun : 3);
}

/* Twice is as good as once: the next one stays open. */
TEST(a_segment_that_is_closed_is_sealed_and_blocks_go_on_in_the_next)
{
    const bool known = strncmp(world.sides[0].caps.backend, "verbs", 5) != 0;
    const bool can = known || world.sides[0].caps.landing_stride > FABRIC_STRIDE;
    uint32_t next[SIDE_MAX] = {0};
    struct flow flow;

    side_open_zone(&world, 0, 3, 3);
    flow = flow_open(1, 256);
    assert_begun(known, 0);
    flow_post(&flow, 3);
    flow_wait(&flow);
    assert_begun(known, 1);
    fabric_close_segment(world.sides[0].zone);
    assert_begun(known, 1);
    fabric_close_segment(world.sides[0].zone);
    if (can)
        world_wait(&world, 0, FABRIC_SEALED, 1);
    flow_post(&flow, 2);
    flow_wait(&flow);
    world_poll_times(&world, 50);
    assert_begun(known, 2);
    assert_int_equal(side_count(&world.sides[0], FABRIC_SEALED), can);
    assert_int_equal(world_walk_segment(&world, 0, 0, next), can ? 3 : 5);
    assert_int_equal(world_walk_segment(&world, 0, 1, next), can ? 2 : 0);
}

/* --- F12: side 1 is shut out, side 2 is not --- */

static void shut_out_side_1(uint64_t context)
{
    assert_int_equal(fabric_shut_out(world.sides[0].zone, 1, 101, context), 0);
}

/* What comes of a try to connect as this incarnation of side 1: 0, or what it is refused with. */
static int connect_as(uint64_t incarnation, struct fabric_conn **conn)
{
    struct side *side = &world.sides[1];
    struct fabric_identity identity = side->endpoint->identity;

    identity.incarnation = incarnation;
    fabric_endpoint_identity(side->endpoint, &identity);
    side_forget(side);
    assert_int_equal(fabric_connect(side->endpoint,
                                    world.backend->address(world.backend->context, 0), 0, 0, conn),
                     0);
    while (side_count(side, FABRIC_CONNECTED) + side_count(side, FABRIC_CLOSED) == 0)
        world_poll(&world);
    return side->events[0].kind == FABRIC_CLOSED ? side->events[0].error : 0;
}

/* Whatever part of it had landed: nothing does after SHUT_OUT, though it sends on. */
TEST(f12_nothing_of_a_sender_lands_after_it_was_shut_out)
{
    enum { SEGMENTS = 4, BLOCKS = 96 };

    for (unsigned polls = 0; polls < 24; polls += 1 + polls / 4) {
        struct flow flows[3], second;
        uint32_t landed;

        if (polls > 0)
            open_three(state);
        side_open_zone(&world, 0, SEGMENTS, SEGMENTS);
        for (unsigned s = 1; s < 3; s++)
            flows[s] = flow_open(s, 256);
        second = flow_open(1, 256); /* of another role */
        for (unsigned i = 0; i < 3; i++) {
            flow_post(&flows[1], BLOCKS);
            flow_post(&flows[2], BLOCKS);
        }
        world_poll_times(&world, polls);
        shut_out_side_1(5);
        world_wait(&world, 0, FABRIC_SHUT_OUT, 1);
        assert_int_equal(side_event(&world.sides[0], FABRIC_SHUT_OUT, 0)->context, 5);
        assert_int_equal(side_event(&world.sides[0], FABRIC_SHUT_OUT, 0)->error, 0);
        assert_null(side_event(&world.sides[0], FABRIC_SHUT_OUT, 0)->conn);
        landed = world_count_blocks(&world, 0, SEGMENTS, 1);
        /* It may not have heard of it. */
        if (side_count(&world.sides[1], FABRIC_CLOSED) == 0 &&
            world_add_block(&world, 1, second.conn, 20 * MEGABYTE, flows[1].blocks, 256) == 0)
            assert_int_equal(fabric_rowan_post(second.conn, 0), 0);
        flow_post(&flows[2], BLOCKS);
        flow_wait(&flows[2]);
        world_wait(&world, 0, FABRIC_CLOSED, 2);
        world_wait(&world, 1, FABRIC_CLOSED, 2);
        world_poll_times(&world, 200);
        assert_int_equal(world_count_blocks(&world, 0, SEGMENTS, 1), landed);
        assert_int_equal(world_count_blocks(&world, 0, SEGMENTS, 2), flows[2].blocks);
        assert_int_equal(side_count(&world.sides[0], FABRIC_SHUT_OUT), 1);
        assert_int_equal(side_count(&world.sides[2], FABRIC_CLOSED), 0);
        if (polls + 1 + polls / 4 < 24)
            close_three(state);
    }
}

TEST(f12_who_is_shut_out_is_refused_and_its_newer_incarnation_is_not)
{
    struct fabric_conn *conn, *passive;

    side_open_zone(&world, 0, 2, 2);
    shut_out_side_1(1);
    assert_int_equal(connect_as(101, &conn), ROWAN_EREFUSED);
    world_wait(&world, 0, FABRIC_SHUT_OUT, 1); /* also of one that was not there */
    assert_int_equal(connect_as(101, &conn), ROWAN_EREFUSED);
    assert_int_equal(connect_as(100, &conn), ROWAN_EREFUSED);
    assert_int_equal(side_count(&world.sides[0], FABRIC_ACCEPTED), 0);
    assert_int_equal(connect_as(102, &conn), 0);
    assert_int_equal(world_add_block(&world, 1, conn, 0, 0, 64), 0);
    assert_int_equal(fabric_rowan_post(conn, 2), 0);
    world_wait(&world, 1, FABRIC_LANDED, 1);
    world_connect(&world, 2, 0, 0, &conn, &passive); /* incarnation 102, of another server */
    /* The higher one counts. */
    assert_int_equal(fabric_shut_out(world.sides[0].zone, 1, 100, 2), 0);
    assert_int_equal(connect_as(101, &conn), ROWAN_EREFUSED);
    fabric_readmit(world.sides[0].zone, 1);
    assert_int_equal(connect_as(101, &conn), 0);
}

TEST(f12_as_many_are_shut_out_as_there_are_places)
{
    struct fabric_zone *zone;

    side_open_zone(&world, 0, 2, 2);
    zone = world.sides[0].zone;
    for (uint32_t i = 0; i < FABRIC_MAX_SHUT_OUT; i++)
        assert_int_equal(fabric_shut_out(zone, 100 + i, 1, i), 0);
    assert_int_equal(fabric_shut_out(zone, 1, 101, 0), ROWAN_ETOOMANY);
    assert_int_equal(fabric_shut_out(zone, 100, 2, 1000), 0); /* it is shut out already */
    fabric_readmit(zone, 101);
    fabric_readmit(zone, 1); /* changes nothing */
    assert_int_equal(fabric_shut_out(zone, 1, 101, 1001), 0);
    world_wait(&world, 0, FABRIC_SHUT_OUT, FABRIC_MAX_SHUT_OUT);
    world_poll_times(&world, 50);
    assert_int_equal(side_count(&world.sides[0], FABRIC_SHUT_OUT), FABRIC_MAX_SHUT_OUT);
    assert_int_equal(side_event(&world.sides[0], FABRIC_SHUT_OUT, 0)->context, 1000);
    assert_int_equal(side_event(&world.sides[0], FABRIC_SHUT_OUT, 1)->context, 1001);
}

TEST(f9_a_full_send_queue_says_again_and_changes_nothing)
{
    struct fabric_conn *conn, *passive;
    const uint32_t max = fabric_caps(world.sides[1].fabric)->max_batch_blocks;
    uint32_t added = 0, batches = 0;

    side_open_zone(&world, 0, 2, 0);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    assert_int_equal(fabric_rowan_room(conn), max);
    while (fabric_rowan_room(conn) > 0) {
        assert_int_equal(world_add_block(&world, 1, conn, (uint64_t)added * 64, added, 64), 0);
        added++;
        if (added % 16 == 0) {
            assert_int_equal(fabric_rowan_post(conn, batches++), 0);
            world_poll(&world);
        }
    }
    assert_int_equal(added, max);
    for (int i = 0; i < 10; i++)
        assert_int_equal(fabric_rowan_add(conn, pm_at(world.sides[1].pm, 0), 64), ROWAN_EAGAIN);
    if (added % 16 != 0)
        assert_int_equal(fabric_rowan_post(conn, batches++), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(fabric_zone_post(world.sides[0].zone, (uint64_t)i * SEGMENT, i), 0);
    world_wait(&world, 1, FABRIC_LANDED, batches);
    assert_int_equal(world_walk_zone(&world, 0, 2, (uint32_t[SIDE_MAX]){0}), added);
    assert_int_equal(fabric_rowan_room(conn), max);
}

TEST(f9_batches_are_bounded_too)
{
    struct fabric_conn *conn, *passive;
    const uint32_t max = fabric_caps(world.sides[1].fabric)->max_batch_blocks;
    uint32_t batches = 0;

    side_open_zone(&world, 0, 2, 0);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    while (fabric_rowan_room(conn) > 0) { /* a batch each */
        assert_int_equal(world_add_block(&world, 1, conn, (uint64_t)batches * 64, batches, 64), 0);
        assert_int_equal(fabric_rowan_post(conn, batches++), 0);
    }
    assert_true(batches <= max);
    assert_int_equal(fabric_rowan_add(conn, pm_at(world.sides[1].pm, 0), 64), ROWAN_EAGAIN);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(fabric_zone_post(world.sides[0].zone, (uint64_t)i * SEGMENT, i), 0);
    world_wait(&world, 1, FABRIC_LANDED, batches);
    for (uint32_t i = 0; i < batches; i++)
        assert_int_equal(side_event(&world.sides[1], FABRIC_LANDED, i)->context, i);
    assert_int_equal(world_walk_zone(&world, 0, 2, (uint32_t[SIDE_MAX]){0}), batches);
}

TEST(a_zone_takes_depth_segments_inside_its_memory)
{
    struct side *side = &world.sides[0];
    struct fabric_zone *zone;

    assert_int_equal(fabric_zone_open(side->endpoint, side->pm, 1, &zone), ROWAN_EINVALID);
    assert_int_equal(fabric_zone_open(side->endpoint, side->pm, 1025, &zone), ROWAN_EINVALID);
    side_open_zone(&world, 0, 3, 2);
    assert_int_equal(fabric_zone_post(side->zone, side->pm->bytes - SEGMENT + 64, 2),
                     ROWAN_EINVALID);
    assert_int_equal(fabric_zone_post(side->zone, 8 * MEGABYTE + 1, 2), ROWAN_EINVALID);
    assert_int_equal(fabric_zone_post(side->zone, side->pm->bytes - SEGMENT, 2), 0);
    assert_int_equal(fabric_zone_post(side->zone, 12 * MEGABYTE, 2), ROWAN_EAGAIN);
}

const struct unit_case *conformance_zone_cases(void)
{
    return unit_cases;
}
