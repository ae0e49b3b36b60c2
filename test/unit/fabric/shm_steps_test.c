/* shm_steps_test.c - a sender stopped between two steps of a Rowan send (S1 to S5 in shm_rowan.c)
 * while the owner and another sender go on.
 */
#define TEST_FIXTURE open_all, close_all

#include <sys/mman.h>

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/shm_steps.h"

/* The sender is stopped in that step of its block, and `run` happens meanwhile. */
static void send_and_stop(enum shm_step at, void (*run)(void), uint32_t bytes)
{
    stop.at = at;
    stop.run = run;
    send_block(STOPPED, bytes);
    assert_int_equal(stop.times, 1);
}

/* --- S4 against Z5 --- */

static void close_the_segment_and_void(void)
{
    others_send(FIT); /* the last of these finds the segment full */
    assert_int_equal(owner_count(FABRIC_SEALED), 0);
    owner_waits(SHM_VOID_NS / 2);
    assert_int_equal(owner_count(FABRIC_SEALED), 0); /* it may still come */
    owner_waits(SHM_VOID_NS);
    assert_int_equal(owner_count(FABRIC_SEALED), 1);
    assert_false(side_event(&world.sides[OWNER], FABRIC_SEALED, 0)->quiet);
    assert_int_equal(owner_count(FABRIC_QUIET), 0); /* it may still be storing */
}

static void a_claim_that_is_late_is_voided_and_breaks(enum shm_step at)
{
    send_and_stop(at, close_the_segment_and_void, BYTES);
    world_wait(&world, STOPPED, FABRIC_CLOSED, 1);
    assert_int_equal(side_count(&world.sides[STOPPED], FABRIC_LANDED), 0);
    owner_waits(SHM_CHECK_NS * 2);
    assert_int_equal(owner_count(FABRIC_QUIET), 1); /* it has moved on */
    world_wait(&world, OTHER, FABRIC_LANDED, FIT);
    assert_int_equal(owner_count(FABRIC_SEALED), 1);
}

WORLD_CASE(a_claim_not_stored_for_long_is_voided_and_breaks,
           a_claim_that_is_late_is_voided_and_breaks(STEP_CLAIMED))
WORLD_CASE(a_claim_stored_but_not_done_is_voided_and_breaks,
           a_claim_that_is_late_is_voided_and_breaks(STEP_STORED))

static void pause_all(void)
{
    others_send(FIT);
    owner_waits(SHM_VOID_NS / 2);
    host.skipped_ns += 100 * SHM_VOID_NS;
    owner_looks();
    owner_waits(SHM_VOID_NS / 4);
    assert_int_equal(owner_count(FABRIC_SEALED), 0);
}

TEST(a_pause_of_the_whole_host_voids_no_claim)
{
    send_and_stop(STEP_STORED, pause_all, BYTES);
    world_wait(&world, STOPPED, FABRIC_LANDED, 1);
    world_wait(&world, OWNER, FABRIC_SEALED, 1);
    assert_true(side_event(&world.sides[OWNER], FABRIC_SEALED, 0)->quiet);
    assert_int_equal(side_count(&world.sides[STOPPED], FABRIC_CLOSED), 0);
}

/* A sender that is dead needs no second's grace. Its steps up to S2 are made by hand: a hook could
 * not leave the steps half done. */
TEST(a_claim_of_the_dead_is_voided_at_once)
{
    const struct shm_zone *zone = (struct shm_zone *)world.sides[OWNER].zone;
    struct zone_control *control;
    void *memory;

    assert_int_equal(memory_map(zone->control_fd, zone_control_bytes(DEPTH), &memory), 0);
    control = memory;
    atomic_store(&control->senders[((struct shm_conn *)passive[STOPPED])->zone_member].intent, 1);
    atomic_store(&control->position, position_pack(0, 1, BYTES / FABRIC_STRIDE));
    side_close(&world, STOPPED);
    others_send(FIT);
    owner_waits(SHM_VOID_NS / 100);
    owner_waits(SHM_VOID_NS / 100);
    assert_int_equal(owner_count(FABRIC_SEALED), 1);
    assert_true(side_event(&world.sides[OWNER], FABRIC_SEALED, 0)->quiet);
    munmap(memory, zone_control_bytes(DEPTH));
}

/* --- the slot goes to n + depth while its old sender sleeps --- */

static void reuse_the_slot(void)
{
    close_the_segment_and_void();
    /* Not quiet: segment 0's bytes are not given again, but its slot is, for segments 2 and 3. */
    assert_int_equal(fabric_zone_post(world.sides[OWNER].zone, 2 * SEGMENT, 2), 0);
    others_send(FIT);
    owner_waits(SHM_CHECK_NS * 2);
    assert_int_equal(owner_count(FABRIC_SEALED), 2);
    assert_int_equal(fabric_zone_post(world.sides[OWNER].zone, 3 * SEGMENT, 3), 0);
    others_send(FIT);
    owner_waits(SHM_CHECK_NS * 2);
    assert_int_equal(owner_count(FABRIC_SEALED), 3);
    assert_int_equal(fabric_zone_post(world.sides[OWNER].zone, 4 * SEGMENT, 4), 0);
    others_send(FIT / 2);
}

TEST(a_late_sender_harms_no_later_segment)
{
    uint32_t next[SIDE_MAX] = {0};

    send_and_stop(STEP_CLAIMED, reuse_the_slot, BYTES);
    world_wait(&world, STOPPED, FABRIC_CLOSED, 1);
    assert_int_equal(side_count(&world.sides[STOPPED], FABRIC_LANDED), 0);
    world_wait(&world, OTHER, FABRIC_LANDED, numbers[OTHER]);
    assert_int_equal(owner_count(FABRIC_QUIET), 1);
    assert_int_equal(side_event(&world.sides[OWNER], FABRIC_QUIET, 0)->context, 0);
    /* Its bytes went where it had claimed, in segment 0; all others are whole. */
    assert_int_equal(world_walk_zone(&world, OWNER, 5, next), numbers[OTHER] + 1);
}

static void move_on_two_segments(void)
{
    others_send(FIT);
    assert_int_equal(owner_count(FABRIC_SEALED), 1);
    /* Nobody claimed in vain there: quiet, though somebody has the intent. */
    assert_true(side_event(&world.sides[OWNER], FABRIC_SEALED, 0)->quiet);
    assert_int_equal(fabric_zone_post(world.sides[OWNER].zone, 2 * SEGMENT, 2), 0);
    others_send(FIT);
    assert_int_equal(owner_count(FABRIC_SEALED), 2);
}

TEST(a_sender_that_has_not_claimed_goes_to_the_segment_of_now)
{
    uint32_t next[SIDE_MAX] = {0};

    send_block(OTHER, 64);
    send_and_stop(STEP_INTENT, move_on_two_segments, BYTES);
    world_wait(&world, STOPPED, FABRIC_LANDED, 1);
    assert_int_equal(world_walk_zone(&world, OWNER, 2, (uint32_t[SIDE_MAX]){0}), 2 * FIT);
    assert_int_equal(world_walk_zone(&world, OWNER, 3, next), numbers[OTHER] + 1);
}

/* --- Z3: stopped after FULL --- */

static void others_go_on_alone(void)
{
    others_send(3);
    assert_int_equal(side_count(&world.sides[OTHER], FABRIC_LANDED), numbers[OTHER]);
    assert_int_equal(owner_count(FABRIC_SEALED), 1);
}

static void owner_helps_alone(void)
{
    owner_waits(SHM_CHECK_NS * 2);
    assert_int_equal(owner_count(FABRIC_SEALED), 1);
}

static void a_segment_left_full_is_closed_by(void (*helper)(void))
{
    others_send(FIT - 1);
    send_block(OTHER, 64); /* a full block no longer fits */
    send_and_stop(STEP_FULL, helper, BYTES);
    world_wait(&world, STOPPED, FABRIC_LANDED, 1);
    assert_int_equal(world_walk_zone(&world, OWNER, 2, (uint32_t[SIDE_MAX]){0}),
                     numbers[OTHER] + 1);
}

WORLD_CASE(a_segment_left_full_is_closed_by_the_next_sender,
           a_segment_left_full_is_closed_by(others_go_on_alone))
WORLD_CASE(a_segment_left_full_is_closed_by_its_owner,
           a_segment_left_full_is_closed_by(owner_helps_alone))

/* --- the owner closes the connection meanwhile --- */

static void owner_closes(void)
{
    fabric_conn_close(passive[STOPPED]);
}

TEST(nothing_is_claimed_after_the_owner_closed)
{
    send_and_stop(STEP_INTENT, owner_closes, BYTES);
    world_wait(&world, STOPPED, FABRIC_CLOSED, 1);
    assert_int_equal(world_walk_zone(&world, OWNER, 1, (uint32_t[SIDE_MAX]){0}), 0);
    assert_int_equal(side_count(&world.sides[STOPPED], FABRIC_LANDED), 0);
}

static void nothing_is_reported_after_the_owner_closed(enum shm_step at)
{
    send_and_stop(at, owner_closes, BYTES);
    world_wait(&world, STOPPED, FABRIC_CLOSED, 1);
    assert_int_equal(side_count(&world.sides[STOPPED], FABRIC_LANDED), 0); /* unknown (F3) */
    others_send(FIT + 1); /* and its segment is sealed all the same */
    assert_int_equal(owner_count(FABRIC_SEALED), 1);
}

WORLD_CASE(a_claim_taken_when_the_owner_closes_is_unknown,
           nothing_is_reported_after_the_owner_closed(STEP_CLAIMED))
WORLD_CASE(a_claim_done_when_the_owner_closes_is_unknown,
           nothing_is_reported_after_the_owner_closed(STEP_DONE))

/* Another connection of the other sender, while the stopped one is not polled; its sender slot. */
static int join_again(void)
{
    const uint32_t accepted = owner_count(FABRIC_ACCEPTED);
    struct fabric_conn *conn;

    side_take_role(&world, OTHER);
    assert_int_equal(fabric_connect(world.sides[OTHER].endpoint, host.backend.address(&host, OWNER),
                                    0, 0, &conn),
                     0);
    while (owner_count(FABRIC_ACCEPTED) == accepted) {
        host.skipped_ns += SHM_CHECK_NS;
        side_poll(&world, OWNER);
        side_poll(&world, OTHER);
    }
    return ((struct shm_conn *)side_event(&world.sides[OWNER], FABRIC_ACCEPTED, accepted)->conn)
        ->zone_member;
}

static void others_join(void)
{
    fabric_conn_close(passive[STOPPED]);
    for (unsigned i = 0; i < 4; i++) /* the stopped one is in the middle of a claim in slot 0 */
        assert_int_equal(join_again(), 2 + (int)i);
}

TEST(a_sender_slot_is_not_given_again_before_its_sender_is_gone)
{
    assert_int_equal(((struct shm_conn *)passive[STOPPED])->zone_member, 0);
    send_and_stop(STEP_CLAIMED, others_join, BYTES);
    world_wait(&world, STOPPED, FABRIC_CLOSED, 1); /* now it has let go */
    owner_waits(SHM_CHECK_NS * 2);
    assert_int_equal(join_again(), 0);
}

/* --- S6: fences --- */

static void nothing_has_been_asked_yet(void)
{
    for (unsigned i = 0; i < 100; i++) /* a sync that was asked for would begin by itself */
        wait_pause();
    assert_int_equal(atomic_load(&syncs), 0);
}

/* Two blocks are stored, their sync hangs. False: the host has no disk to sync to. */
static bool send_into_a_slow_medium(void)
{
    struct pm *pm = ((struct shm_conn *)conns[STOPPED])->rowan->pm;

    if (pm->durability != PM_FENCE || strcmp(pm->backend, "file") != 0)
        return false;
    pm_file_set_sync(pm, slow_sync);
    send_and_stop(STEP_STORED, nothing_has_been_asked_yet, 64);
    assert_true(WAIT_FOR(atomic_load(&syncs) == 1));
    send_block(STOPPED, 64); /* its store came after the sync had begun: it needs the next */
    world_poll_times(&world, 100);
    assert_int_equal(world_walk_zone(&world, OWNER, 1, (uint32_t[SIDE_MAX]){0}), 2);
    assert_int_equal(side_count(&world.sides[STOPPED], FABRIC_LANDED), 0);
    return true;
}

TEST_WITH(f2_landed_waits_for_the_fence, open_fencing, close_fencing)
{
    if (!send_into_a_slow_medium())
        skip();
    atomic_store(&sync_result, 0);
    world_wait(&world, STOPPED, FABRIC_LANDED, 2);
    assert_int_equal(atomic_load(&syncs), 2);
}

TEST_WITH(a_failed_sync_breaks_the_connection, open_fencing, close_fencing)
{
    if (!send_into_a_slow_medium())
        skip();
    atomic_store(&sync_result, -1);
    world_wait(&world, STOPPED, FABRIC_CLOSED, 1);
    assert_int_equal(side_event(&world.sides[STOPPED], FABRIC_CLOSED, 0)->error, ROWAN_EIO);
    assert_int_equal(side_count(&world.sides[STOPPED], FABRIC_LANDED), 0);
}

TEST_WITH(f9_closing_does_not_wait_for_a_sync, open_fencing, close_fencing)
{
    if (!send_into_a_slow_medium())
        skip();
    fabric_conn_close(passive[STOPPED]);
    world_wait(&world, STOPPED, FABRIC_CLOSED, 1);
    world_poll_times(&world, 100); /* would hang */
    assert_int_equal(side_count(&world.sides[STOPPED], FABRIC_LANDED), 0);
}

/* With `depth` blocks under way at a time; one poll, one flush. */
static uint64_t syncs_for(uint32_t blocks, uint32_t depth)
{
    struct side *side = &world.sides[OTHER];
    struct pm *pm = ((struct shm_conn *)conns[OTHER])->rowan->pm;
    const uint64_t before = pm_sync_count(pm);
    const uint32_t landed = side_count(side, FABRIC_LANDED);
    const uint64_t end_ns = clock_now_ns(clock_system()) + WAIT_DEADLINE_NS;
    uint32_t done = 0, sent = 0;

    while (done < blocks && clock_now_ns(clock_system()) < end_ns) {
        for (; sent < blocks && sent - done < depth; sent++) {
            const uint32_t number = numbers[OTHER]++;

            assert_int_equal(world_add_block(&world, OTHER, conns[OTHER],
                                             (uint64_t)(number % 256) * BYTES, number, 64),
                             0);
            assert_int_equal(fabric_rowan_post(conns[OTHER], number), 0);
        }
        side_poll(&world, OTHER);
        done = side_count(side, FABRIC_LANDED) - landed;
    }
    assert_int_equal(done, blocks);
    return pm_sync_count(pm) - before;
}

TEST_WITH(blocks_that_are_under_way_together_share_the_syncs_of_the_peers_file, open_fencing,
          close_fencing)
{
    enum { BLOCKS = 640, DEEP = 64 };
    uint64_t alone, together;

    if (((struct shm_conn *)conns[OTHER])->rowan->pm->durability != PM_FENCE)
        skip();
    alone = syncs_for(BLOCKS, 1);
    together = syncs_for(BLOCKS, DEEP);
    assert_true(alone >= BLOCKS);
    assert_true(together >= BLOCKS / DEEP && together <= BLOCKS / 8);
}

UNIT_MAIN(NULL, NULL)
