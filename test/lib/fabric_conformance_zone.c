/* fabric_conformance_zone.c - the rules of the landing zone, F6 to F9. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/error.h"
#include "test/lib/fabric_conformance.h"

enum { KB = 1 << 10, MEGABYTE = 1 << 20, SEGMENT = FABRIC_SEGMENT_BYTES };

static struct world world;

static int open_three(void **state)
{
    world_open(&world, *state, 3, CONFORMANCE_PM_BYTES);
    return 0;
}

static int close_three(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

/* One block, one batch; waits for room, and until what was in its memory has landed (F4). */
static void post_block(unsigned sender, struct fabric_conn *conn, uint32_t number, uint32_t bytes)
{
    enum { PLACES = 300 };
    const uint64_t at = (uint64_t)(number % PLACES) * (64 * KB);

    while (fabric_rowan_room(conn) == 0 ||
           side_count(&world.sides[sender], FABRIC_LANDED) + PLACES <= number)
        world_poll(&world);
    assert_int_equal(world_add_block(&world, sender, conn, at, number, bytes), 0);
    assert_int_equal(fabric_rowan_post(conn, number), 0);
}

static void f6_a_block_never_crosses_the_end_of_a_segment(void **state)
{
    enum { BYTES = 60 * KB, FIT = SEGMENT / BYTES, COUNT = 3 * FIT };
    struct fabric_conn *conn, *passive;
    uint32_t next[SIDE_MAX] = {0};

    (void)state;
    assert_true(SEGMENT % BYTES != 0);
    side_open_zone(&world, 0, 4, 4);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    for (uint32_t i = 0; i < COUNT; i++)
        post_block(1, conn, i, BYTES);
    world_wait(&world, 1, FABRIC_LANDED, COUNT);
    assert_int_equal(world_walk_zone(&world, 0, 1, next), FIT);
    assert_int_equal(world_walk_zone(&world, 0, 3, (uint32_t[SIDE_MAX]){0}), COUNT);
}

static void f6_a_block_may_end_where_the_segment_ends(void **state)
{
    enum { BYTES = 64 * KB, FIT = SEGMENT / BYTES };
    struct fabric_conn *conn, *passive;
    uint32_t next[SIDE_MAX] = {0};

    (void)state;
    side_open_zone(&world, 0, 2, 2);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    for (uint32_t i = 0; i < FIT + 1; i++)
        post_block(1, conn, i, BYTES);
    world_wait(&world, 1, FABRIC_LANDED, FIT + 1);
    assert_int_equal(world_walk_zone(&world, 0, 1, next), FIT);
}

static void f7_segments_are_sealed_in_order_and_whole(void **state)
{
    enum { BYTES = 4 * KB, SEGMENTS = 6, FIT = SEGMENT / BYTES, COUNT = SEGMENTS * FIT + 10 };
    struct fabric_conn *conns[3], *passive;
    uint32_t next[SIDE_MAX] = {0}, number[3] = {0}, walked = 0, sealed = 0;

    (void)state;
    side_open_zone(&world, 0, 8, SEGMENTS + 1);
    for (unsigned s = 1; s < 3; s++)
        world_connect(&world, s, 0, 0, &conns[s], &passive);
    while (number[1] + number[2] < COUNT) {
        const unsigned s = 1 + (number[1] + number[2]) % 2;

        post_block(s, conns[s], number[s], BYTES);
        number[s]++;
        world_poll(&world);
        if (side_count(&world.sides[0], FABRIC_SEALED) > sealed) {
            const struct fabric_event *event = side_event(&world.sides[0], FABRIC_SEALED, sealed);

            assert_int_equal(event->context, sealed);
            assert_true(event->quiet);
            sealed++;
            /* Everything that will ever be in there is in there. */
            walked = world_walk_zone(&world, 0, sealed, (uint32_t[SIDE_MAX]){0});
            assert_int_equal(walked, sealed * FIT);
        }
    }
    world_wait(&world, 0, FABRIC_SEALED, SEGMENTS);
    world_wait(&world, 1, FABRIC_LANDED, number[1]);
    world_wait(&world, 2, FABRIC_LANDED, number[2]);
    assert_int_equal(world_walk_zone(&world, 0, SEGMENTS + 1, next), COUNT);
    world_poll_times(&world, 100);
    assert_int_equal(side_count(&world.sides[0], FABRIC_SEALED), SEGMENTS); /* not the open one */
    assert_int_equal(side_count(&world.sides[0], FABRIC_QUIET), 0);
}

/* Each round fills what is left of the oldest segment, looks at its bytes, wipes and posts it. */
static void f7_a_quiet_segment_may_be_posted_again_and_again(void **state)
{
    enum { BYTES = 32 * KB, FIT = SEGMENT / BYTES, ROUNDS = 40, DEPTH = 2 };
    struct fabric_conn *conn, *passive;
    struct side *owner = &world.sides[0];
    uint32_t number = 0;

    (void)state;
    side_open_zone(&world, 0, DEPTH, DEPTH);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t segment = round % DEPTH;

        while (number < (round + 1) * FIT + 1) { /* the last one closes the segment */
            post_block(1, conn, number++, BYTES);
            world_wait(&world, 1, FABRIC_LANDED, number);
        }
        world_wait(&world, 0, FABRIC_SEALED, round + 1);
        assert_int_equal(side_event(owner, FABRIC_SEALED, round)->context, segment);
        assert_true(side_event(owner, FABRIC_SEALED, round)->quiet);
        assert_int_equal(
            world_walk_segment(&world, 0, segment, (uint32_t[SIDE_MAX]){0, round * FIT}), FIT);
        pm_zero(owner->pm, (uint64_t)segment * SEGMENT, SEGMENT);
        assert_int_equal(fabric_zone_post(owner->zone, (uint64_t)segment * SEGMENT, segment), 0);
        assert_int_equal(fabric_zone_post(owner->zone, 0, 0), ROWAN_EAGAIN);
    }
}

static void f8_a_dry_zone_delays_and_fails_nothing(void **state)
{
    struct fabric_conn *conn, *passive;
    const struct fabric_iov iov = {.data = "hello", .bytes = 5};

    (void)state;
    side_open_zone(&world, 0, 2, 0);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    for (uint32_t i = 0; i < 10; i++)
        post_block(1, conn, i, 128);
    world_poll_times(&world, 1000);
    assert_int_equal(side_count(&world.sides[1], FABRIC_LANDED), 0);
    assert_int_equal(side_count(&world.sides[1], FABRIC_CLOSED), 0);
    assert_int_equal(fabric_send(conn, &iov, 1, FABRIC_COPY, 0), 0);
    world_wait(&world, 0, FABRIC_MESSAGE, 1); /* messages go on */
    assert_int_equal(fabric_send(passive, &iov, 1, FABRIC_COPY, 0), 0);
    world_wait(&world, 1, FABRIC_MESSAGE, 1);
    assert_int_equal(fabric_zone_post(world.sides[0].zone, 0, 0), 0);
    world_wait(&world, 1, FABRIC_LANDED, 10);
    assert_int_equal(world_walk_zone(&world, 0, 1, (uint32_t[SIDE_MAX]){0}), 10);
}

static void f8_a_zone_that_runs_dry_in_a_batch_takes_the_rest_later(void **state)
{
    enum { BYTES = 60 * KB, COUNT = 200, PER_SEGMENT = SEGMENT / BYTES };
    struct fabric_conn *conn, *passive;
    struct pm *pm = world.sides[1].pm;

    (void)state;
    side_open_zone(&world, 0, 4, 1);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    assert_true((uint64_t)COUNT * BYTES <= pm->bytes);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(world_add_block(&world, 1, conn, (uint64_t)i * BYTES, i, BYTES), 0);
    assert_int_equal(fabric_rowan_post(conn, 77), 0);
    for (uint32_t posted = 1; posted * PER_SEGMENT < COUNT; posted++) {
        world_poll_times(&world, 200);
        assert_int_equal(side_count(&world.sides[1], FABRIC_LANDED), 0);
        assert_int_equal(fabric_zone_post(world.sides[0].zone, (uint64_t)posted * SEGMENT, posted),
                         0);
    }
    world_wait(&world, 1, FABRIC_LANDED, 1);
    assert_int_equal(side_event(&world.sides[1], FABRIC_LANDED, 0)->context, 77);
    assert_int_equal(world_walk_zone(&world, 0, 3, (uint32_t[SIDE_MAX]){0}), COUNT);
}

static void f9_a_full_send_queue_says_again_and_changes_nothing(void **state)
{
    struct fabric_conn *conn, *passive;
    const uint32_t max = fabric_caps(world.sides[1].fabric)->max_batch_blocks;
    uint32_t added = 0, batches = 0;

    (void)state;
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
    assert_int_equal(fabric_zone_post(world.sides[0].zone, 0, 0), 0);
    world_wait(&world, 1, FABRIC_LANDED, batches);
    assert_int_equal(world_walk_zone(&world, 0, 1, (uint32_t[SIDE_MAX]){0}), added);
    assert_int_equal(fabric_rowan_room(conn), max);
}

static void f9_batches_are_bounded_too(void **state)
{
    struct fabric_conn *conn, *passive;
    const uint32_t max = fabric_caps(world.sides[1].fabric)->max_batch_blocks;
    uint32_t batches = 0;

    (void)state;
    side_open_zone(&world, 0, 2, 0);
    world_connect(&world, 1, 0, 0, &conn, &passive);
    while (fabric_rowan_room(conn) > 0) { /* a batch each */
        assert_int_equal(world_add_block(&world, 1, conn, (uint64_t)batches * 64, batches, 64), 0);
        assert_int_equal(fabric_rowan_post(conn, batches++), 0);
    }
    assert_true(batches <= max);
    assert_int_equal(fabric_rowan_add(conn, pm_at(world.sides[1].pm, 0), 64), ROWAN_EAGAIN);
    assert_int_equal(fabric_zone_post(world.sides[0].zone, 0, 0), 0);
    world_wait(&world, 1, FABRIC_LANDED, batches);
    for (uint32_t i = 0; i < batches; i++)
        assert_int_equal(side_event(&world.sides[1], FABRIC_LANDED, i)->context, i);
    assert_int_equal(world_walk_zone(&world, 0, 1, (uint32_t[SIDE_MAX]){0}), batches);
}

static void a_zone_takes_depth_segments_inside_its_memory(void **state)
{
    struct side *side = &world.sides[0];
    struct fabric_zone *zone;

    (void)state;
    assert_int_equal(fabric_zone_open(side->endpoint, side->pm, 1, &zone), ROWAN_EINVALID);
    assert_int_equal(fabric_zone_open(side->endpoint, side->pm, 1025, &zone), ROWAN_EINVALID);
    side_open_zone(&world, 0, 3, 2);
    assert_int_equal(fabric_zone_post(side->zone, side->pm->bytes - SEGMENT + 64, 2),
                     ROWAN_EINVALID);
    assert_int_equal(fabric_zone_post(side->zone, 8 * MEGABYTE + 1, 2), ROWAN_EINVALID);
    assert_int_equal(fabric_zone_post(side->zone, side->pm->bytes - SEGMENT, 2), 0);
    assert_int_equal(fabric_zone_post(side->zone, 12 * MEGABYTE, 2), ROWAN_EAGAIN);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, open_three, close_three)

const struct CMUnitTest conformance_zone_cases[CONFORMANCE_ZONE_CASES] = {
    CASE(f6_a_block_never_crosses_the_end_of_a_segment),
    CASE(f6_a_block_may_end_where_the_segment_ends),
    CASE(f7_segments_are_sealed_in_order_and_whole),
    CASE(f7_a_quiet_segment_may_be_posted_again_and_again),
    CASE(f8_a_dry_zone_delays_and_fails_nothing),
    CASE(f8_a_zone_that_runs_dry_in_a_batch_takes_the_rest_later),
    CASE(f9_a_full_send_queue_says_again_and_changes_nothing),
    CASE(f9_batches_are_bounded_too),
    CASE(a_zone_takes_depth_segments_inside_its_memory),
};
