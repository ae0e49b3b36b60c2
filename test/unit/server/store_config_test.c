/* The configuration in the PM: two copies, of which a crash or damage may take either. */
#define TEST_FIXTURE setup, teardown

#include "common/base/crc.h"
#include "common/base/error.h"
#include "test/unit/server/store_on_sim.h"

#define PM_BYTES ((uint64_t)4 * STORE_SEGMENT_BYTES)

enum {
    FIRST = 4206592,
    SECOND = FIRST + (1 << 20) + 4096 + (32 << 10) + (4 << 20) + 4096,
    ROUNDS = 400
};
static const uint64_t COPIES[2] = {FIRST, SECOND};

static uint8_t bytes[STORE_CONFIG_MAX_BYTES];
static struct store_config_write writing;

static int setup(void **state)
{
    (void)state;
    return open_store(PM_BYTES, FENCE_NS);
}

/* What is stored in that term differs from all others in every byte and in length. */
static struct store_config config_of(uint64_t term)
{
    const uint32_t count = 100 + (uint32_t)term % 7 * 1000;
    memset(bytes, (int)(1 + term), count);
    return (struct store_config){.term = term, .bytes = bytes, .byte_count = count};
}

static void begin(uint64_t term)
{
    const struct store_config config = config_of(term);
    assert_int_equal(store_config_start(&sim->pm, &config, &writing), 0);
    memset(bytes, 0, sizeof bytes); /* they are the caller's again */
}

static void finish(void)
{
    while (store_config_poll(&writing) == 0)
        clock.now_ns += FENCE_NS / 4;
    assert_int_equal(store_config_poll(&writing), 1);
}

static void write_config(uint64_t term)
{
    begin(term);
    finish();
}

static uint64_t stored_term(void)
{
    struct store_config found = {.term = 0};
    if (store_config_read(&sim->pm, &found))
        return 0;
    const struct store_config expected = config_of(found.term);
    assert_int_equal(found.byte_count, expected.byte_count);
    assert_memory_equal(found.bytes, expected.bytes, expected.byte_count);
    return found.term;
}

TEST(a_configuration_has_these_bytes)
{
    static const uint8_t head[60] = {0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 3};
    const struct store_config config = {
        .term = UINT64_C(0x1122334455667788), .bytes = "abc", .byte_count = 3};
    const uint64_t stores = sim->stores;
    assert_int_equal(store_config_start(&sim->pm, &config, &writing), 0);
    finish();
    assert_true(sim->stores == stores + 3);
    const uint32_t checksum = crc32c(crc32c(0, head, sizeof head), "abc", 3);
    for (unsigned i = 0; i < 2; i++) {
        const uint8_t *copy = sim->pm.base + COPIES[i];
        assert_memory_equal(copy, head, sizeof head);
        assert_memory_equal(copy + sizeof head, &checksum, 4);
        assert_memory_equal(copy + 64, "abc", 4);
        assert_true(sim_pm_is_durable(sim, COPIES[i], 67));
    }
}

TEST(the_newest_of_many_counts)
{
    struct store_config none = {.term = 99};
    assert_int_equal(store_config_read(&sim->pm, &none), ROWAN_ENOTFOUND);
    assert_true(none.term == 99);
    for (uint64_t term = 3; term <= 30; term += term % 2 + 1) {
        begin(term);
        assert_true(stored_term() == term); /* of two whole copies */
        finish();
        reopen();
        assert_true(stored_term() == term);
    }
}

TEST(the_largest_one_touches_nothing_else)
{
    static uint8_t before[SECOND + CONFIG_COPY_BYTES + 4096];
    store_replica_set(store, 65535, &(struct replica_row){.state = REPLICA_FULL});
    store_replica_set(store, 0, &(struct replica_row){.state = REPLICA_FULL});
    while (store_replica_sync(store) == 0)
        clock.now_ns += FENCE_NS;
    memcpy(before, sim->pm.base, sizeof before);
    memset(bytes, 0xee, sizeof bytes);
    const struct store_config config = {.term = 1, .bytes = bytes, .byte_count = sizeof bytes};
    assert_int_equal(store_config_start(&sim->pm, &config, &writing), 0);
    finish();
    struct store_config found;
    assert_int_equal(store_config_read(&sim->pm, &found), 0);
    assert_true(found.term == 1 && found.byte_count == sizeof bytes);
    for (unsigned i = 0; i < 2; i++) {
        assert_memory_equal(sim->pm.base + COPIES[i] + 64, bytes, sizeof bytes);
        memset(sim->pm.base + COPIES[i], 0, 64 + sizeof bytes);
    }
    assert_memory_equal(sim->pm.base, before, sizeof before);
}

/* With every part of every step undone or not, and with fences that promise nothing. */
TEST(a_power_loss_leaves_the_older_or_the_newer_one)
{
    uint32_t older = 0, newer = 0;
    uint64_t kept = 0;
    struct random random;
    random_init(&random, 5);
    for (uint64_t term = 1; term <= ROUNDS; term++) {
        sim->pm.durability = term % 3 ? PM_FENCE : PM_NONE;
        begin(term);
        int done = 0;
        for (uint64_t steps = random_below(&random, 12); steps > 0 && done == 0; steps--) {
            clock.now_ns += FENCE_NS / 4;
            done = store_config_poll(&writing);
        }
        sim_pm_power_loss(sim, &random, NULL, NULL);
        const uint64_t found = stored_term();
        assert_true(found == term || (found == kept && done == 0));
        older += found != term;
        newer += found == term && done == 0;
        kept = found;
    }
    assert_true(older > 20 && newer > 20);
    assert_int_equal(store_config_read(&sim->pm, &(struct store_config){.term = 0}), 0);
}

TEST(the_loss_of_either_copy_loses_nothing_and_the_next_one_brings_it_back)
{
    for (uint64_t term = 1; term <= 2 * 80; term++) {
        write_config(term);
        uint8_t *copy = sim->pm.base + COPIES[term % 2];
        if (term % 20 < 2)
            memset(copy, 0, CONFIG_COPY_BYTES);
        else
            copy[term / 2] ^= 0x20; /* of the head, and behind it */
        assert_true(stored_term() == term);
    }
}

TEST(nothing_is_told_of_two_damaged_copies_and_the_next_one_is_stored)
{
    write_config(1);
    for (unsigned i = 0; i < 2; i++)
        sim->pm.base[COPIES[i] + 64 + 9] ^= 1;
    struct store_config none = {.term = 99};
    assert_int_equal(store_config_read(&sim->pm, &none), ROWAN_EDAMAGED);
    assert_true(none.term == 99);
    for (unsigned i = 0; i < 2; i++) {
        uint8_t head[64];
        memcpy(head, sim->pm.base + COPIES[i], sizeof head);
        memset(sim->pm.base + COPIES[i], 0, sizeof head);
        assert_int_equal(store_config_read(&sim->pm, &none), ROWAN_EDAMAGED);
        memcpy(sim->pm.base + COPIES[i], head, sizeof head);
    }
    write_config(1);
    assert_true(stored_term() == 1);
    memset(sim->pm.base + FIRST + 8, 0xff, 4); /* a length that no copy has */
    assert_true(stored_term() == 1);
}

UNIT_MAIN(NULL, NULL)
