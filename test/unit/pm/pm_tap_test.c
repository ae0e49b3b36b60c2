/* pm_tap_test.c - the tap: what is stored is noted, in order, and nobody is waited for. */
#include "common/pm/pm_tap.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/unit/pm/pm_fixture.h"

enum { RING_RECORDS = 1 << 18, RING_HEAD_BYTES = 64, RECORD_BYTES = 16 };

static struct pm *pm;

static int open_tap(void **state)
{
    setup(state);
    assert_int_equal(pm_tap_open(create_map(PM_NONE), &pm), 0);
    return 0;
}

static int close_tap(void **state)
{
    pm_close(pm);
    return teardown(state);
}

#undef TEST_FIXTURE
#define TEST_FIXTURE open_tap, close_tap

static void assert_next(uint64_t first, uint32_t count, uint32_t sender, bool zero)
{
    struct pm_record record;

    assert_true(pm_tap_read(pm, &record));
    assert_int_equal(record.first, first);
    assert_int_equal(record.count, count);
    assert_int_equal(record.sender, sender);
    assert_int_equal(record.zero, zero);
}

static void assert_no_more(uint64_t lost)
{
    struct pm_record record;

    assert_false(pm_tap_read(pm, &record));
    assert_int_equal(pm_tap_lost(pm), lost);
}

/* The ring as any process that has it sees it. */
static uint8_t *map_ring(void)
{
    void *ring = mmap(NULL, pm_tap_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, pm_tap_fd(pm), 0);

    assert_true(ring != MAP_FAILED);
    return ring;
}

TEST(stores_zeros_and_flushes_are_noted_in_their_order)
{
    const uint8_t bytes[200] = {1, 2, 3};

    pm_store(pm, 64, bytes, 8);
    pm_zero(pm, PAGE, PAGE);
    pm_flush(pm, 100, 60);
    pm_store(pm, 0, bytes, 0); /* nothing */
    pm_tap_note(pm, 63, 2);
    assert_next(1, 1, 0, false);
    assert_next(PAGE / 64, PAGE / 64, 0, true);
    assert_next(1, 2, 0, false);
    assert_next(0, 2, 0, false);
    assert_no_more(0);
    assert_memory_equal(pm_at(pm, 64), bytes, 8);
}

TEST(it_is_a_map_as_any_other)
{
    const struct pm_ticket ticket = pm_fence_start(pm);

    assert_int_equal(pm_fence_done(pm, ticket), 1);
    const struct pm_ticket sync = pm_sync_start(pm);
    int done;
    while ((done = pm_sync_done(pm, sync)) == 0)
        usleep(1000);
    assert_int_equal(done, 1);
    assert_true(pm_sync_count(pm) >= 1);
    assert_string_equal(pm->backend, "file");
}

TEST(a_peer_and_a_view_store_under_their_numbers)
{
    struct pm_view view;
    struct pm *mine, *peer;

    assert_int_equal(pm_open_peer(dup(pm->fd), 0, MAP_BYTES, PM_NONE, NULL, &mine), 0);
    assert_int_equal(pm_tap_join(mine, map_ring(), PM_TAP_SENDERS - 1, &peer), 0);
    pm_store(peer, 640, "peer", 5);
    pm_store(pm_tap_view(pm, 77, &view), 1280, "view", 5);
    pm_store(pm, 1920, "self", 5);
    assert_next(10, 1, PM_TAP_SENDERS - 1, false);
    assert_next(20, 1, 77, false);
    assert_next(30, 1, 0, false);
    assert_int_equal(pm_tap_fd(peer), -1);
    assert_true(pm_tap_view(mine, 1, &view) == mine && pm_tap_beneath(mine) == mine);
    assert_memory_equal(pm_at(pm, 640), "peer", 5);
    pm_close(peer);
    assert_no_more(0);
}

TEST(a_reader_that_is_behind_by_more_than_the_ring_loses_the_oldest_and_counts_them)
{
    for (uint64_t i = 0; i < RING_RECORDS + 10; i++)
        pm_tap_note(pm, i % (MAP_BYTES / 64) * 64, 1);
    for (uint64_t i = 10; i < RING_RECORDS + 10; i++)
        assert_next(i % (MAP_BYTES / 64), 1, 0, false);
    assert_no_more(10);
}

TEST(a_record_that_was_claimed_and_never_written_holds_up_nobody_for_long)
{
    uint8_t *ring = map_ring();

    atomic_fetch_add((_Atomic uint64_t *)(void *)ring, 1); /* and is stopped here */
    for (unsigned i = 0; i < PM_TAP_PATIENCE - 1; i++)
        pm_tap_note(pm, 64, 1);
    assert_no_more(0); /* it may still come */
    pm_tap_note(pm, 128, 1);
    for (unsigned i = 0; i < PM_TAP_PATIENCE - 1; i++)
        assert_next(1, 1, 0, false);
    assert_next(2, 1, 0, false);
    assert_no_more(1);
    munmap(ring, pm_tap_bytes());
}

TEST(a_record_of_an_earlier_turn_takes_the_place_of_another_and_is_not_believed)
{
    uint8_t *ring = map_ring();
    uint64_t old[2];

    pm_tap_note(pm, 64, 1);
    memcpy(old, ring + RING_HEAD_BYTES, sizeof old);
    for (uint64_t i = 1; i < RING_RECORDS; i++)
        pm_tap_note(pm, 64, 1);
    for (uint64_t i = 0; i < RING_RECORDS; i++)
        assert_next(1, 1, 0, false);
    for (unsigned i = 0; i <= PM_TAP_PATIENCE; i++)
        pm_tap_note(pm, 128, 1);
    memcpy(ring + RING_HEAD_BYTES + sizeof old[0], &old[1],
           sizeof old[1]); /* half of it is enough */
    for (unsigned i = 0; i < PM_TAP_PATIENCE; i++)
        assert_next(2, 1, 0, false);
    assert_no_more(1);
    munmap(ring, pm_tap_bytes());
}

TEST(nonsense_in_the_ring_is_lost_and_leads_nowhere)
{
    uint8_t *ring = map_ring();
    uint64_t *word = (uint64_t *)(void *)(ring + RING_HEAD_BYTES);

    for (unsigned i = 0; i < 3; i++)
        pm_tap_note(pm, 64, 1);
    word[0] |= UINT64_C(1) << 63;                       /* far behind the map */
    word[3] = (word[3] & ~(UINT64_MAX << 40));          /* of no bytes */
    word[4] = (uint64_t)(MAP_BYTES / 64 - 1) << 21 | 1; /* the last request, and one more */
    word[5] += UINT64_C(1) << 40;
    assert_no_more(3);
    *(uint64_t *)(void *)ring = UINT64_MAX; /* the position */
    assert_no_more(UINT64_MAX);             /* empty places are no records of any turn */
    munmap(ring, pm_tap_bytes());
}

UNIT_MAIN(NULL, NULL)
