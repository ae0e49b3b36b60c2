/* The replica table: two copies of each row, of which a crash or damage may take either. */
#define TEST_FIXTURE setup, teardown

#include "common/base/crc.h"
#include "test/unit/server/store_on_sim.h"

#define PM_BYTES ((uint64_t)4 * STORE_SEGMENT_BYTES)

enum { SHARD = 5, ROUNDS = 600 };

static int setup(void **state)
{
    (void)state;
    return open_store(PM_BYTES, FENCE_NS);
}

static struct replica_row row_of(uint64_t number)
{
    return (struct replica_row){.state = number % 2 ? REPLICA_FULL : REPLICA_FILLING,
                                .first_epoch = (uint32_t)number,
                                .first_allocation = ~number,
                                .settled = number << 40 | number};
}

static void assert_row(uint16_t shard, uint64_t number)
{
    const struct replica_row row = store_replica(store, shard), expected = row_of(number);
    assert_int_equal(row.state, expected.state);
    assert_int_equal(row.first_epoch, expected.first_epoch);
    assert_true(row.first_allocation == expected.first_allocation);
    assert_true(row.settled == expected.settled);
}

static void set(uint16_t shard, uint64_t number)
{
    const struct replica_row row = row_of(number);
    store_replica_set(store, shard, &row);
}

static void finish(void)
{
    while (store_replica_sync(store) == 0)
        clock.now_ns += FENCE_NS / 4;
    assert_int_equal(store_replica_sync(store), 1);
}

static uint8_t *copy_at(unsigned copy, uint16_t shard)
{
    return sim->pm.base + store_geometry(1).replicas[copy] + (uint64_t)shard * ROW_BYTES;
}

TEST(rows_are_read_back_after_a_restart)
{
    static const uint16_t shards[] = {0, 1, 65535};
    for (unsigned i = 0; i < 3; i++)
        set(shards[i], (1 << 24) - 1 - i);
    finish();
    reopen();
    for (unsigned i = 0; i < 3; i++)
        assert_row(shards[i], (1 << 24) - 1 - i);
    assert_int_equal(store_replica(store, 2).state, REPLICA_NONE);
    store_replica_set(store, 1, &(struct replica_row){.state = REPLICA_NONE});
    finish();
    reopen();
    assert_int_equal(store_replica(store, 1).state, REPLICA_NONE);
}

TEST(a_thousand_rows_share_two_fences_and_one_that_is_set_again_is_stored_once)
{
    for (uint16_t i = 0; i < 1000; i++)
        set(i, i);
    finish();
    uint64_t fences = sim->fences, stores = sim->stores;
    for (unsigned i = 0; i < 3000; i++) {
        struct replica_row row = row_of(i % 1000);
        row.settled += i;
        store_replica_set(store, (uint16_t)(i % 1000), &row);
    }
    assert_true(sim->stores == stores);
    finish();
    assert_true(sim->fences == fences + 2);
    assert_true(sim->stores == stores + 2 * 1000);
    finish();
    assert_true(sim->fences == fences + 2);
}

static void flip(uint8_t *row)
{
    row[clock.now_ns++ % ROW_BYTES] ^= 0x20;
}

static void wipe(uint8_t *row)
{
    memset(row, 0, ROW_BYTES);
}

static void overwrite(uint8_t *row)
{
    memset(row, 0xff, ROW_BYTES);
}

static void move_from_elsewhere(uint8_t *row)
{
    memcpy(row, row + ROW_BYTES, ROW_BYTES);
}

static void (*const damages[])(uint8_t *row) = {flip, wipe, overwrite, move_from_elsewhere};

TEST(the_loss_of_either_copy_loses_nothing_and_the_next_round_brings_it_back)
{
    set(SHARD + 1, 77);
    for (unsigned i = 0; i < 8 * ROW_BYTES; i++) {
        set(SHARD, i + 1);
        finish();
        damages[i / 2 % 4](copy_at(i % 2, SHARD));
        reopen();
        assert_row(SHARD, i + 1);
        finish();
        assert_memory_equal(copy_at(0, SHARD), copy_at(1, SHARD), ROW_BYTES);
        damages[i / 2 % 4](copy_at(!(i % 2), SHARD));
        reopen();
        assert_row(SHARD, i + 1);
    }
}

/* What changes with each round is torn, as without fences it may be in both copies; what the replica is stays known. */
TEST(a_row_of_which_the_second_part_of_both_copies_is_torn_tells_nothing_of_what_is_settled)
{
    const struct row *row = (const struct row *)copy_at(0, SHARD);
    for (unsigned byte = offsetof(struct row, sequence); byte < ROW_BYTES; byte++) {
        set(SHARD, 9);
        finish();
        copy_at(0, SHARD)[byte] ^= 4;
        copy_at(1, SHARD)[byte] ^= 4;
        reopen();
        const struct replica_row found = store_replica(store, SHARD), was = row_of(9);
        assert_true(found.torn && found.settled == 0);
        assert_true(found.state == was.state && found.first_epoch == was.first_epoch &&
                    found.first_allocation == was.first_allocation);
    }
    set(SHARD, 10);
    finish();
    assert_memory_equal(row, copy_at(1, SHARD), ROW_BYTES);
    reopen();
    assert_row(SHARD, 10);
    assert_false(store_replica(store, SHARD).torn);
}

TEST(a_row_of_which_both_copies_are_damaged_is_not_taken_for_no_row)
{
    set(SHARD, 9);
    finish();
    copy_at(0, SHARD)[3] ^= 1;
    copy_at(1, SHARD)[20] ^= 1;
    reopen();
    assert_int_equal(store_replica(store, SHARD).state, REPLICA_DAMAGED);
    assert_int_equal(store_replica(store, SHARD + 1).state, REPLICA_NONE);
    finish();
    reopen();
    assert_int_equal(store_replica(store, SHARD).state, REPLICA_DAMAGED);
    set(SHARD, 10);
    finish();
    reopen();
    assert_row(SHARD, 10);
}

TEST(a_right_checksum_over_a_state_or_epoch_that_cannot_be_is_damage)
{
    static const struct row wrong[] = {{.sequence = 1, .state = REPLICA_DAMAGED},
                                       {.sequence = 1, .first_epoch = 1 << 24}};
    const uint16_t shard = SHARD;
    for (unsigned i = 0; i < 2; i++) {
        struct row row = wrong[i];
        row.checksum = crc32c(crc32c(0, &shard, 2), &row, offsetof(struct row, checksum));
        row.settled_checksum =
            crc32c(crc32c(0, &shard, 2), &row, offsetof(struct row, settled_checksum));
        memcpy(copy_at(0, SHARD), &row, sizeof row);
        memcpy(copy_at(1, SHARD), &row, sizeof row);
        reopen();
        assert_int_equal(store_replica(store, SHARD).state, REPLICA_DAMAGED);
    }
}

/* At any moment the power fails, or the process ends with its stores on their way, or goes on. */
TEST(a_row_is_after_any_crash_one_that_was_set_since_the_last_round_ended)
{
    uint64_t oldest = 1, newest = 1, number = 1, lost_words = 0, rolled_back = 0;
    struct random random;
    random_init(&random, 1);
    set(SHARD, number);
    finish();
    for (uint64_t i = 0; i < ROUNDS; i++) {
        for (uint64_t steps = random_below(&random, 12); steps > 0; steps--) {
            if (random_below(&random, 2))
                set(SHARD, newest = ++number);
            if (store_replica_sync(store) == 1)
                oldest = newest;
            clock.now_ns += random_below(&random, FENCE_NS);
        }
        bool power_lost = random_below(&random, 3) > 0;
        if (power_lost)
            lost_words += sim_pm_power_loss(sim, &random, NULL, NULL).old;
        reopen();
        const struct replica_row found = store_replica(store, SHARD);
        assert_in_range(found.first_epoch, oldest, newest);
        rolled_back += found.first_epoch < newest;
        assert_row(SHARD, found.first_epoch);
        newest = found.first_epoch;
        if (power_lost)
            oldest = newest;
    }
    assert_true(lost_words > ROUNDS / 2 && rolled_back > ROUNDS / 8);
}

TEST(who_a_replica_is_outlives_a_power_loss_without_fences_too)
{
    struct random random;
    random_init(&random, 1);
    sim->pm.durability = PM_NONE;
    finish();
    for (uint64_t number = 1; number <= ROUNDS; number++) {
        set(SHARD, number);
        finish();
        (void)sim_pm_power_loss(sim, &random, NULL, NULL);
        reopen();
        assert_row(SHARD, number);
    }
}

UNIT_MAIN(NULL, NULL)
