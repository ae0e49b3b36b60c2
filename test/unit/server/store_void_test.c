/* The void table: what it names is zero after the next open, and nothing else is, whatever a crash leaves. */
#define TEST_FIXTURE setup, teardown

#include "common/base/crc.h"
#include "common/base/error.h"
#include "test/unit/server/store_on_sim.h"

enum {
    SEGMENTS = 8,
    FIRST = 4206592 + (1 << 20) + 4096,
    SECOND = FIRST + (32 << 10) + (4 << 20) + 4096 + (1 << 20) + 4096,
    ROUNDS = 300
};
#define PM_BYTES ((uint64_t)(SEGMENTS + 3) * STORE_SEGMENT_BYTES)

static uint64_t segment;

static int setup(void **state)
{
    (void)state;
    open_store(PM_BYTES, FENCE_NS);
    return store_allocate(store, OWNER_BACKUP_LOG, 0, &segment);
}

static uint64_t place(uint32_t from)
{
    return store_segment_offset(store, segment) + from;
}

static void fill(uint32_t from, uint32_t bytes)
{
    uint8_t ones[256];
    memset(ones, 1, sizeof ones);
    pm_store(&sim->pm, place(from), ones, bytes);
}

static void fence(void)
{
    const struct pm_ticket ticket = pm_fence_start(&sim->pm);
    while (pm_fence_done(&sim->pm, ticket) == 0)
        clock.now_ns += FENCE_NS / 4;
}

static bool is_all(uint32_t from, uint32_t bytes, uint8_t value)
{
    for (uint32_t i = 0; i < bytes; i++) {
        if (sim->pm.base[place(from + i)] != value)
            return false;
    }
    return true;
}

static void note(uint32_t from, uint32_t bytes)
{
    assert_int_equal(store_void_add(store, segment, from, bytes), 0);
}

TEST(a_row_has_these_bytes)
{
    uint64_t other;
    assert_int_equal(store_allocate(store, OWNER_BACKUP_LOG, 0, &other), 0);
    assert_int_equal(store_void_add(store, other, 0x010240, 0x0280), 0);
    uint8_t row[32] = {1,    0,    0, 0, 0,    0,    0, 0,  /* segment */
                       3,    0,    0, 0, 0,    0,    0, 0,  /* allocation */
                       0x40, 0x02, 1, 0, 0x80, 0x02, 0, 0}; /* from, bytes */
    const uint32_t checksum = crc32c(0, row, 28);
    memcpy(row + 28, &checksum, 4);
    assert_memory_equal(sim->pm.base + FIRST, row, sizeof row);
    assert_memory_equal(sim->pm.base + SECOND, row, sizeof row);
}

TEST(the_next_open_zeroes_what_is_void_and_nothing_else)
{
    fill(0, 256);
    note(64, 128);
    fill(4096, 64);
    note(4096, 64);
    fill(64, 128); /* the sender goes on */
    reopen();
    assert_true(is_all(0, 64, 1) && is_all(64, 128, 0) && is_all(192, 64, 1) &&
                is_all(4096, 64, 0));
    fence();
    fill(64, 128);
    note(8192, 64); /* and what was found is over */
    reopen();
    assert_true(is_all(64, 128, 1));
}

TEST(what_was_dropped_or_used_again_is_void_no_more)
{
    note(0, 64);
    store_void_drop(store, segment + 1);
    fill(0, 256);
    reopen();
    assert_true(is_all(0, 64, 0));
    fence();
    note(64, 64);
    store_void_drop(store, segment);
    note(128, 64);
    fill(0, 256);
    store_transition(store, segment, SEGMENT_DIRTY);
    store_transition(store, segment, SEGMENT_FREE);
    for (uint64_t i = 0; i < SEGMENTS; i++) {
        uint64_t taken;
        assert_int_equal(store_allocate(store, OWNER_CLEAN, 0, &taken), 0);
    }
    reopen();
    assert_true(is_all(0, 256, 1));
}

/* Senders are shut out while the server runs on; the host loses power anywhere between. */
TEST(a_power_loss_leaves_what_is_void_zero_once_that_is_fenced)
{
    struct random random;
    uint32_t undone = 0, zeroed = 0;
    random_init(&random, 3);
    for (unsigned round = 0; round < ROUNDS; round++) {
        const unsigned steps = (unsigned)random_below(&random, 6);
        fill(0, 192);
        fence();
        note(64, 64);
        if (steps > 0)
            fence();
        if (steps > 1) /* it is quiet */
            pm_zero(&sim->pm, place(64), 64);
        if (steps > 2)
            fence();
        if (steps > 3)
            store_void_drop(store, segment);
        if (steps > 4)
            note(128, 64);
        sim_pm_power_loss(sim, &random, NULL, NULL);
        reopen();
        if (round % 2) { /* once more, before its fence is done */
            sim_pm_power_loss(sim, &random, NULL, NULL);
            reopen();
        }
        assert_true(is_all(0, 64, 1) && (steps > 4 || is_all(128, 64, 1)));
        assert_true(is_all(64, 64, 0) || steps == 0);
        undone += !is_all(64, 64, 0);
        zeroed += steps == 1;
        fence();
        note(4096, 64); /* clears what the open found */
        store_void_drop(store, segment);
        fence();
    }
    assert_true(undone > 5 && zeroed > 5);
}

TEST(the_loss_of_either_copy_loses_nothing)
{
    for (unsigned copy = 0; copy < 2; copy++) {
        fill(64, 64);
        note(64, 64);
        sim->pm.base[(copy ? SECOND : FIRST) + 17] ^= 1;
        reopen();
        assert_true(is_all(64, 64, 0));
        fence();
        note(4096, 64);
        store_void_drop(store, segment);
    }
}

TEST(a_row_that_names_more_than_its_segment_says_nothing)
{
    struct void_row row = {.segment = segment,
                           .allocation = store_meta(store, segment).allocation,
                           .from = 64,
                           .bytes = STORE_SEGMENT_BYTES};
    row.checksum = crc32c(0, &row, 28);
    memcpy(sim->pm.base + FIRST, &row, sizeof row);
    row.segment = SEGMENTS;
    row.bytes = 64;
    row.checksum = crc32c(0, &row, 28);
    memcpy(sim->pm.base + SECOND, &row, sizeof row);
    fill(64, 256);
    reopen();
    assert_true(is_all(64, 256, 1));
}

TEST(a_full_table_takes_no_more_until_what_the_open_found_is_zero)
{
    for (uint32_t i = 0; i < STORE_VOIDS; i++)
        note(i * 64, 64);
    assert_int_equal(store_void_add(store, segment, 1 << 20, 64), ROWAN_ETOOMANY);
    reopen();
    assert_int_equal(store_void_add(store, segment, 1 << 20, 64), ROWAN_ETOOMANY);
    fence();
    note(1 << 20, 64);
    for (uint32_t i = 1; i < STORE_VOIDS; i++)
        note(i * 64, 64);
    store_void_drop(store, segment);
    note(0, 64);
}

UNIT_MAIN(NULL, NULL)
