/* shm_shut_out_test.c - a sender that is shut out (F12, Z7 in shm_zone.c) while it stands between two of its steps. */
#define TEST_FIXTURE open_all, close_all

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/shm_steps.h"

static struct pm *owner_pm(void)
{
    return world.sides[OWNER].pm;
}

static void shut_out(void)
{
    assert_int_equal(fabric_shut_out(world.sides[OWNER].zone, STOPPED, 100 + STOPPED, 8), 0);
}

static uint32_t count_landed(unsigned sender)
{
    return world_count_blocks(&world, OWNER, DEPTH + 1, sender);
}

static uint32_t landed_at_event;

/* The event comes though the sender stands still, and soon. */
static void shut_out_amid(void)
{
    const uint32_t sealed = owner_count(FABRIC_SEALED);

    if (stop.at != STEP_CHECKED) /* nobody but the owner may be what stops that claim */
        others_send(1);
    shut_out();
    owner_waits(SHM_CHECK_NS * 30);
    assert_int_equal(owner_count(FABRIC_SHUT_OUT), 1);
    assert_int_equal(side_event(&world.sides[OWNER], FABRIC_SHUT_OUT, 0)->context, 8);
    assert_int_equal(owner_count(FABRIC_SEALED), sealed + 1); /* that it stands in, at once */
    assert_true(side_event(&world.sides[OWNER], FABRIC_SEALED, sealed) <
                side_event(&world.sides[OWNER], FABRIC_SHUT_OUT, 0));
    landed_at_event = count_landed(STOPPED);
    assert_int_equal(fabric_zone_post(world.sides[OWNER].zone, 2 * SEGMENT, 2), 0);
    others_send(2);
}

static void nothing_lands_of_one_shut_out(enum shm_step at, bool is_void)
{
    others_send(1);
    send_block(STOPPED, BYTES);
    others_send(1);
    if (at == STEP_FULL)
        others_send(FIT - 4);
    stop.at = at;
    stop.run = shut_out_amid;
    send_block(STOPPED, at == STEP_FULL ? 2 * BYTES : BYTES);
    assert_int_equal(stop.times, 1);
    assert_int_equal(owner_count(FABRIC_QUIET), 0);
    world_wait(&world, STOPPED, FABRIC_CLOSED, 1); /* it has gone on */
    world_wait(&world, OTHER, FABRIC_LANDED, numbers[OTHER]);
    owner_waits(SHM_CHECK_NS * 2);
    assert_int_equal(owner_count(FABRIC_VOID), is_void);
    assert_int_equal(owner_count(FABRIC_QUIET), is_void);
    assert_int_equal(side_event(&world.sides[OWNER], FABRIC_SEALED, 0)->quiet, !is_void);
    assert_int_equal(count_landed(STOPPED), landed_at_event);
    assert_int_equal(count_landed(OTHER), numbers[OTHER]);
    assert_true(side_count(&world.sides[STOPPED], FABRIC_LANDED) <= landed_at_event);
    assert_int_equal(side_count(&world.sides[OTHER], FABRIC_CLOSED), 0);
    if (!is_void)
        return;
    /* Its place, between two blocks of the other's; told before the segment was sealed. */
    assert_ptr_equal(side_event(&world.sides[OWNER], FABRIC_VOID, 0)->data,
                     pm_at(owner_pm(), 3 * BYTES));
    assert_int_equal(side_event(&world.sides[OWNER], FABRIC_VOID, 0)->bytes, BYTES);
    assert_true(side_event(&world.sides[OWNER], FABRIC_VOID, 0) <
                side_event(&world.sides[OWNER], FABRIC_SEALED, 0));
}

TEST(one_shut_out_before_it_looked_claims_nothing)
{
    nothing_lands_of_one_shut_out(STEP_INTENT, false);
}

TEST(one_shut_out_before_it_claimed_claims_nothing)
{
    nothing_lands_of_one_shut_out(STEP_CHECKED, false);
}

TEST(one_shut_out_when_it_closed_a_segment_claims_nothing)
{
    nothing_lands_of_one_shut_out(STEP_FULL, false);
}

TEST(a_claim_of_one_shut_out_is_void)
{
    nothing_lands_of_one_shut_out(STEP_CLAIMED, true);
}

TEST(a_stored_claim_of_one_shut_out_is_void)
{
    nothing_lands_of_one_shut_out(STEP_STORED, true);
}

TEST(a_claim_that_is_done_when_it_is_shut_out_has_landed)
{
    nothing_lands_of_one_shut_out(STEP_DONE, false);
}

/* Nothing lies behind the last claim. */
static void shut_out_last(void)
{
    shut_out();
    owner_waits(SHM_CHECK_NS * 30);
    assert_int_equal(owner_count(FABRIC_SHUT_OUT), 1);
}

TEST(a_void_claim_at_the_end_reaches_to_the_segment_s)
{
    const struct fabric_event *event;

    stop.at = STEP_STORED;
    stop.run = shut_out_last;
    send_block(OTHER, 64);
    send_block(STOPPED, BYTES);
    assert_int_equal(stop.times, 1);
    event = side_event(&world.sides[OWNER], FABRIC_VOID, 0);
    assert_ptr_equal(event->data, pm_at(owner_pm(), 64));
    assert_int_equal(event->bytes, SEGMENT - 64);
}

/* Who is in the middle of nothing closes no segment. */
TEST(one_at_rest_is_shut_out_at_once)
{
    send_block(STOPPED, 64);
    world_wait(&world, STOPPED, FABRIC_LANDED, 1);
    shut_out();
    side_poll(&world, OWNER);
    assert_int_equal(owner_count(FABRIC_SHUT_OUT), 1);
    others_send(1);
    world_wait(&world, OTHER, FABRIC_LANDED, 1);
    assert_int_equal(owner_count(FABRIC_SEALED), 0);
}

static void f12_shut_out_is_told_when_it_is_durable(int result)
{
    struct pm *pm = owner_pm();

    if (pm->durability != PM_FENCE || strcmp(pm->backend, "file") != 0)
        skip();
    pm_file_set_sync(pm, slow_sync);
    shut_out();
    side_poll(&world, OWNER);
    assert_true(WAIT_FOR(atomic_load(&syncs) == 1));
    world_poll_times(&world, 100);
    assert_int_equal(owner_count(FABRIC_SHUT_OUT), 0);
    atomic_store(&sync_result, result);
    world_wait(&world, OWNER, FABRIC_SHUT_OUT, 1);
    assert_int_equal(side_event(&world.sides[OWNER], FABRIC_SHUT_OUT, 0)->error,
                     result ? ROWAN_EIO : 0);
}

TEST_WITH(f12_shut_out_waits_for_the_fence, open_fencing, close_fencing)
{
    f12_shut_out_is_told_when_it_is_durable(0);
}

TEST_WITH(f12_shut_out_says_that_a_sync_failed, open_fencing, close_fencing)
{
    f12_shut_out_is_told_when_it_is_durable(-1);
}

UNIT_MAIN(NULL, NULL)
