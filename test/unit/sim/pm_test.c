/* PM in memory: what a fence promises, and what a power loss may take. */
#define TEST_FIXTURE setup, teardown

#include "common/reactor/reactor.h"
#include "test/lib/unit.h"
#include "test/sim/sim_pm.h"

enum { MAP_BYTES = 64 << 10, WORD = 8, LOSSES = 400 };
#define FENCE_NS (20 * NS_PER_US)

static struct sim_clock clock;
static struct sim_pm *sim;

static int setup(void **state)
{
    (void)state;
    sim_clock_init(&clock);
    sim = sim_pm_create(&clock, MAP_BYTES, FENCE_NS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pm_close(&sim->pm);
    return 0;
}

static uint64_t word_at(uint64_t offset)
{
    uint64_t word;
    memcpy(&word, sim->pm.base + offset, sizeof word);
    return word;
}

static void store_word(uint64_t offset, uint64_t word)
{
    pm_store(&sim->pm, offset, &word, sizeof word);
}

static void finish_fence(void)
{
    struct pm_ticket ticket = pm_fence_start(&sim->pm);
    clock.now_ns += FENCE_NS;
    assert_int_equal(pm_fence_done(&sim->pm, ticket), 1);
}

static struct sim_pm_loss lose_power(uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    return sim_pm_power_loss(sim, &random, NULL, NULL);
}

/* --- fences --- */

TEST(a_ticket_is_not_done_before_its_time)
{
    assert_true(sim_pm_next_ns(sim) == WAKE_NEVER);
    struct pm_ticket first = pm_fence_start(&sim->pm);
    assert_int_equal(pm_fence_done(&sim->pm, first), 0);
    assert_true(sim_pm_next_ns(sim) == clock.now_ns + FENCE_NS);
    clock.now_ns += FENCE_NS - 1;
    struct pm_ticket second = pm_fence_start(&sim->pm);
    assert_int_equal(pm_fence_done(&sim->pm, first), 0);
    clock.now_ns++;
    assert_int_equal(pm_fence_done(&sim->pm, first), 1);
    assert_int_equal(pm_fence_done(&sim->pm, second), 0);
    assert_true(sim_pm_next_ns(sim) == clock.now_ns + FENCE_NS - 1);
    clock.now_ns += FENCE_NS - 1;
    assert_int_equal(pm_fence_done(&sim->pm, second), 1);
    assert_true(sim_pm_next_ns(sim) == WAKE_NEVER);
    assert_int_equal(sim->fences, 2);
}

TEST(a_fence_takes_between_half_and_all_of_its_time_and_none_overtakes_another)
{
    uint64_t shortest = UINT64_MAX, longest = 0, last_due_ns = 0;
    sim->seed = 7;
    for (int i = 0; i < 500; i++) {
        struct pm_ticket ticket = pm_fence_start(&sim->pm), next;
        uint64_t start_ns = clock.now_ns;
        next = pm_fence_start(&sim->pm);
        while (!pm_fence_done(&sim->pm, ticket)) {
            assert_int_equal(pm_fence_done(&sim->pm, next), 0);
            clock.now_ns = sim_pm_next_ns(sim);
        }
        assert_true(clock.now_ns >= last_due_ns);
        last_due_ns = clock.now_ns;
        uint64_t took_ns = clock.now_ns - start_ns;
        shortest = took_ns < shortest ? took_ns : shortest;
        longest = took_ns > longest ? took_ns : longest;
        clock.now_ns += FENCE_NS;
        assert_int_equal(pm_fence_done(&sim->pm, next), 1);
    }
    assert_in_range(shortest, FENCE_NS / 2, FENCE_NS * 51 / 100);
    assert_in_range(longest, FENCE_NS * 99 / 100, FENCE_NS);
}

TEST(a_fence_covers_no_store_made_after_its_start)
{
    uint64_t lost = 0;
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        store_word(0, seed);
        struct pm_ticket ticket = pm_fence_start(&sim->pm);
        store_word(WORD, seed);
        clock.now_ns += FENCE_NS;
        assert_int_equal(pm_fence_done(&sim->pm, ticket), 1);
        assert_true(sim_pm_is_durable(sim, 0, WORD));
        assert_false(sim_pm_is_durable(sim, WORD, WORD));
        assert_false(sim_pm_is_durable(sim, 0, WORD + 1));
        lose_power(seed);
        assert_int_equal(word_at(0), seed);
        lost += word_at(WORD) != seed;
        assert_true(sim_pm_is_durable(sim, 0, 2 * WORD));
        store_word(WORD, seed);
        finish_fence();
    }
    assert_in_range(lost, LOSSES / 4, LOSSES * 3 / 4);
}

TEST(a_started_fence_that_is_not_done_covers_nothing)
{
    uint64_t lost = 0;
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        uint64_t old = word_at(0);
        store_word(0, seed);
        struct pm_ticket ticket = pm_fence_start(&sim->pm);
        clock.now_ns += FENCE_NS - 1;
        assert_false(sim_pm_is_durable(sim, 0, WORD));
        struct sim_pm_loss loss = lose_power(seed);
        assert_int_equal(loss.stores, 1);
        assert_int_equal(loss.words, 1);
        assert_int_equal(loss.old, word_at(0) == old);
        assert_int_equal(loss.fences, loss.old);
        lost += loss.old;
        clock.now_ns += FENCE_NS;
        assert_int_equal(pm_fence_done(&sim->pm, ticket), 0);
        assert_true(sim_pm_next_ns(sim) == WAKE_NEVER);
        finish_fence();
        assert_int_equal(pm_fence_done(&sim->pm, ticket), 0);
    }
    assert_in_range(lost, LOSSES / 4, LOSSES * 3 / 4);
}

/* --- durability --- */

TEST(without_durability_tickets_are_done_at_once_and_cover_nothing)
{
    static const enum pm_durability weak[] = {PM_NONE, PM_ASYNC};
    uint64_t lost = 0;
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        sim->pm.durability = weak[seed % 2];
        store_word(0, seed);
        struct pm_ticket ticket = pm_fence_start(&sim->pm);
        assert_int_equal(pm_fence_done(&sim->pm, ticket), 1);
        assert_true(sim_pm_next_ns(sim) == WAKE_NEVER);
        clock.now_ns += 10 * FENCE_NS;
        assert_false(sim_pm_is_durable(sim, 0, WORD));
        lose_power(seed);
        lost += word_at(0) != seed;
    }
    assert_in_range(lost, LOSSES / 4, LOSSES * 3 / 4);
}

TEST(a_sync_is_waited_for_whatever_the_durability)
{
    static const enum pm_durability all[] = {PM_FENCE, PM_ASYNC, PM_NONE};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        sim->pm.durability = all[seed % 3];
        store_word(0, seed);
        struct pm_ticket ticket = pm_sync_start(&sim->pm);
        assert_int_equal(pm_sync_done(&sim->pm, ticket), 0);
        assert_int_equal(pm_fence_done(&sim->pm, ticket), sim->pm.durability != PM_FENCE);
        clock.now_ns = sim_pm_next_ns(sim);
        assert_int_equal(pm_sync_done(&sim->pm, ticket), 1);
        lose_power(seed);
        assert_int_equal(word_at(0), seed);
    }
}

TEST(what_no_fence_covers_takes_bounded_memory)
{
    static uint8_t bytes[MAP_BYTES / 2];
    sim->pm.durability = PM_NONE;
    memset(bytes, 1, sizeof bytes);
    for (uint64_t stored = 0; stored < (uint64_t)256 << 20; stored += sizeof bytes) {
        bytes[0]++;
        pm_store(&sim->pm, 0, bytes, sizeof bytes);
    }
    store_word(MAP_BYTES / 2, 1);
    assert_in_range(lose_power(1).stores, 1000, ((uint64_t)64 << 20) / sizeof bytes + 1);
}

/* --- power loss --- */

static uint64_t pattern(uint64_t store, uint64_t word)
{
    return (store << 32) + word + 1;
}

TEST(a_word_is_old_or_new_and_never_mixed)
{
    enum { WORDS = 64 };
    uint64_t words[WORDS], olds = 0, news = 0, torn = 0;
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        for (uint64_t store = 0; store < 2; store++) {
            if (store)
                finish_fence();
            for (uint64_t i = 0; i < WORDS; i++)
                words[i] = pattern(2 * seed + store, i);
            pm_store(&sim->pm, 0, words, sizeof words);
        }
        struct sim_pm_loss loss = lose_power(seed);
        assert_int_equal(loss.words, WORDS);
        uint64_t old = 0;
        for (uint64_t i = 0; i < WORDS; i++) {
            bool is_new = word_at(i * WORD) == pattern(2 * seed + 1, i);
            assert_true(is_new || word_at(i * WORD) == pattern(2 * seed, i));
            old += !is_new;
        }
        assert_int_equal(loss.old, old);
        olds += old == WORDS;
        news += old == 0;
        torn += old > 0 && old < WORDS;
    }
    assert_true(olds >= LOSSES / 8 && news >= LOSSES / 8 && torn >= LOSSES / 8);
}

TEST(bytes_beside_a_store_stay_as_they_are)
{
    uint8_t before[64], after[64], stored[64];
    memset(stored, 0xaa, sizeof stored);
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        uint64_t from = seed % 23, bytes = 1 + seed % 37;
        memset(before, (int)(seed % 100), sizeof before);
        pm_store(&sim->pm, 0, before, sizeof before);
        finish_fence();
        pm_store(&sim->pm, from, stored, bytes);
        lose_power(seed);
        memcpy(after, sim->pm.base, sizeof after);
        for (uint64_t i = 0; i < sizeof after; i++) {
            bool is_new = i >= from && i < from + bytes && after[i] == 0xaa;
            assert_true(is_new || after[i] == before[i]);
            if (i % WORD && i > from && i < from + bytes)
                assert_int_equal(after[i], after[i - 1]); /* of one word */
        }
    }
}

TEST(any_of_several_stores_into_a_word_can_be_what_is_left)
{
    enum { STORES = 4 };
    uint64_t seen[STORES + 1] = {0};
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        store_word(0, 0);
        finish_fence();
        for (uint64_t store = 1; store <= STORES; store++)
            store_word(0, store);
        struct sim_pm_loss loss = lose_power(seed);
        assert_int_equal(loss.words, 1);
        assert_true(word_at(0) <= STORES);
        assert_int_equal(loss.old, word_at(0) != STORES);
        seen[word_at(0)]++;
    }
    for (uint64_t store = 0; store <= STORES; store++)
        assert_true(seen[store] >= 5);
}

TEST(stores_that_overlap_in_part_of_a_word_leave_one_of_its_values)
{
    uint64_t between = 0;
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        pm_zero(&sim->pm, 0, 2 * WORD);
        finish_fence();
        pm_store(&sim->pm, 2, "aaaa", 4);
        pm_store(&sim->pm, 4, "bbbbbbbb", 8);
        lose_power(seed);
        const uint8_t *left = sim->pm.base;
        bool first = memcmp(left, "\0\0aaaa\0\0", 8) == 0;
        assert_true(first || memcmp(left, "\0\0\0\0\0\0\0\0", 8) == 0 ||
                    memcmp(left, "\0\0aabbbb", 8) == 0);
        assert_true(memcmp(left + 8, "bbbb\0\0\0\0", 8) == 0 || word_at(WORD) == 0);
        between += first;
    }
    assert_true(between >= 10);
}

TEST(a_loss_can_take_one_store_all_but_one_or_the_last_ones)
{
    enum { STORES = 12 };
    uint64_t spared[STORES + 1] = {0}, hole = 0, lone = 0, last = 0;
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        pm_zero(&sim->pm, 0, STORES * 512);
        finish_fence();
        for (uint64_t store = 0; store < STORES; store++)
            store_word(store * 512, 1);
        lose_power(seed);
        uint64_t left = 0, first_lost = STORES;
        for (uint64_t store = STORES; store-- > 0;) {
            left += word_at(store * 512);
            first_lost = word_at(store * 512) ? first_lost : store;
        }
        spared[left]++;
        hole += left == STORES - 1 && first_lost < left;
        lone += left == 1 && first_lost == 0;
        last += left > 1 && first_lost == left && left < STORES - 1;
    }
    assert_true(spared[0] >= LOSSES / 10 && spared[STORES] >= LOSSES / 10);
    assert_true(hole >= LOSSES / 14 && lone >= LOSSES / 14 && last >= LOSSES / 14);
}

TEST(a_log_that_grows_keeps_what_it_holds)
{
    enum { WORDS = MAP_BYTES / WORD, COVERED = WORDS / 8 };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        teardown(NULL); /* a new log is small */
        setup(NULL);
        for (uint64_t i = 0; i < WORDS; i++) {
            store_word(i * WORD, pattern(0, i));
            if (i % 64 == 0)
                finish_fence();
        }
        finish_fence();
        /* It begins somewhere inside its rings when it has to grow. */
        for (uint64_t i = 0; i < WORDS; i++) {
            if (i == COVERED)
                finish_fence();
            store_word(i * WORD, pattern(1, i));
        }
        lose_power(seed);
        for (uint64_t i = 0; i < WORDS; i++)
            assert_true(word_at(i * WORD) == pattern(1, i) ||
                        (i >= COVERED && word_at(i * WORD) == pattern(0, i)));
    }
}

TEST(a_store_of_what_is_there_already_is_durable_at_once)
{
    store_word(0, 5);
    finish_fence();
    store_word(0, 5);
    assert_true(sim_pm_is_durable(sim, 0, WORD));
    assert_int_equal(lose_power(1).words, 0);
    store_word(0, 6);
    store_word(0, 5);
    assert_false(sim_pm_is_durable(sim, 0, WORD));
}

TEST(the_trace_tells_other_stores_zeros_and_fences_apart)
{
    uint64_t traces[6];
    for (unsigned i = 0; i < 6; i++) {
        sim->trace = 0;
        store_word(i == 1 ? WORD : 0, 1);
        if (i == 3)
            pm_fence_start(&sim->pm);
        if (i == 4)
            pm_zero(&sim->pm, WORD, WORD);
        store_word(i == 1 ? 0 : WORD, i == 2 ? 2 : 1);
        traces[i] = sim->trace;
    }
    for (unsigned i = 1; i < 5; i++)
        assert_true(traces[i] != traces[0]);
    assert_true(traces[5] == traces[0]);
}

TEST(a_fence_is_lost_only_with_what_it_was_to_cover)
{
    uint64_t none = 0, second = 0, both = 0;
    for (uint64_t seed = 1; seed <= LOSSES; seed++) {
        store_word(0, seed);
        pm_fence_start(&sim->pm);
        store_word(WORD, seed);
        pm_fence_start(&sim->pm);
        store_word(2 * WORD, seed);
        struct sim_pm_loss loss = lose_power(seed);
        bool first_lost = word_at(0) != seed, second_lost = word_at(WORD) != seed;
        assert_int_equal(loss.fences, first_lost ? 2 : second_lost ? 1 : 0);
        none += loss.fences == 0;
        second += loss.fences == 1;
        both += loss.fences == 2;
        for (uint64_t i = 0; i < 3; i++)
            store_word(i * WORD, seed);
        pm_fence_start(&sim->pm);
        clock.now_ns += FENCE_NS;
    }
    assert_true(none > LOSSES / 16 && second > LOSSES / 16 && both > LOSSES / 16);
}

/* --- observers --- */

struct mirror {
    uint8_t bytes[MAP_BYTES];
    uint64_t stretches;
    uint64_t end; /* of the last */
};

static void copy(void *context, uint64_t offset, const uint8_t *data, size_t bytes)
{
    struct mirror *mirror = context;
    assert_true(mirror->stretches == 0 || offset > mirror->end);
    mirror->stretches++;
    mirror->end = offset + bytes;
    memcpy(mirror->bytes + offset, data, bytes);
}

static void scribble(struct random *random, unsigned stores)
{
    uint8_t bytes[300];
    for (unsigned i = 0; i < stores; i++) {
        uint64_t count = 1 + random_below(random, sizeof bytes);
        uint64_t offset = random_below(random, 4096);
        memset(bytes, (int)random_below(random, 256), sizeof bytes);
        if (random_below(random, 4))
            pm_store(&sim->pm, offset, bytes, count);
        else
            pm_zero(&sim->pm, offset, count);
        if (random_below(random, 8) == 0)
            pm_fence_start(&sim->pm);
        clock.now_ns += random_below(random, FENCE_NS / 4);
    }
}

TEST(who_asks_is_told_of_every_stretch_that_was_lost)
{
    struct mirror *mirror = calloc(1, sizeof *mirror);
    struct random random;
    uint64_t stretches = 0;
    random_init(&random, 3);
    for (unsigned i = 0; i < LOSSES; i++) {
        scribble(&random, 20);
        memcpy(mirror->bytes, sim->pm.base, MAP_BYTES);
        mirror->stretches = 0;
        struct sim_pm_loss loss = sim_pm_power_loss(sim, &random, copy, mirror);
        assert_memory_equal(mirror->bytes, sim->pm.base, MAP_BYTES);
        assert_int_equal(loss.old > 0, mirror->stretches > 0);
        assert_true(loss.old >= mirror->stretches && loss.old <= loss.words);
        stretches += mirror->stretches;
    }
    assert_true(stretches > LOSSES);
    free(mirror);
}

TEST(is_durable_says_what_every_loss_spares)
{
    struct random random;
    uint64_t durable = 0, lost = 0;
    random_init(&random, 5);
    for (unsigned i = 0; i < LOSSES; i++) {
        bool was_durable[4096 / WORD];
        uint64_t words[4096 / WORD];
        scribble(&random, 20);
        for (uint64_t word = 0; word < 4096 / WORD; word++) {
            was_durable[word] = sim_pm_is_durable(sim, word * WORD, WORD);
            words[word] = word_at(word * WORD);
        }
        sim_pm_power_loss(sim, &random, NULL, NULL);
        for (uint64_t word = 0; word < 4096 / WORD; word++) {
            bool same = words[word] == word_at(word * WORD);
            assert_true(same || !was_durable[word]);
            durable += was_durable[word];
            lost += !same;
        }
    }
    assert_true(durable > 1000 && lost > 1000);
}

UNIT_MAIN(NULL, NULL)
