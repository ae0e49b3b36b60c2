/* The segment meta table: two copies of each word, of which a crash or damage may take either. */
#define TEST_FIXTURE setup, teardown

#include "test/unit/server/store_on_sim.h"

enum { SEGMENTS = 8, CRASHES = 1000 };
#define PM_BYTES ((uint64_t)(SEGMENTS + 3) * STORE_SEGMENT_BYTES)

static int setup(void **state)
{
    (void)state;
    return open_store(PM_BYTES, 0);
}

static uint8_t *word_at(unsigned copy, uint64_t segment)
{
    return sim->pm.base + store_geometry(SEGMENTS).metas[copy] + segment * META_BYTES;
}

static void assert_meta(uint64_t segment, struct segment_meta expected)
{
    struct segment_meta meta = store_meta(store, segment);
    assert_int_equal(meta.state, expected.state);
    assert_int_equal(meta.owner, expected.owner);
    assert_int_equal(meta.owner_number, expected.owner_number);
    assert_true(meta.allocation == expected.allocation);
    assert_int_equal(meta.closed, expected.closed);
}

/* One segment of each state, in this order; then a second free one that was in use before. */
static void make_all_states(void)
{
    uint64_t segment;
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(store_allocate(store, OWNER_DIGEST, i, &segment), 0);
    store_transition(store, 1, SEGMENT_USED);
    store_mark_closed(store, 1);
    store_transition(store, 2, SEGMENT_COMMITTED);
    store_transition(store, 3, SEGMENT_DIRTY);
    store_transition(store, 4, SEGMENT_DIRTY);
    store_transition(store, 4, SEGMENT_FREE);
}

TEST(the_loss_of_either_word_loses_nothing_but_that_a_segment_is_free)
{
    make_all_states();
    for (uint64_t segment = 0; segment < 6; segment++) {
        struct segment_meta meta = store_meta(store, segment);
        for (unsigned bit = 0; bit < 64 && meta.state != SEGMENT_FREE; bit++) {
            uint8_t *word = word_at(bit % 2, segment);
            word[bit / 8] ^= (uint8_t)(1 << bit % 8);
            reopen();
            assert_meta(segment, meta);
            assert_memory_equal(word, word_at(!(bit % 2), segment), META_BYTES); /* mended */
            memset(word, 0, META_BYTES);
            reopen();
            assert_meta(segment, meta);
        }
    }
    assert_true(store_segments_owned(store, OWNER_UNKNOWN) == 0);
}

TEST(a_free_word_beside_a_damaged_one_is_not_believed)
{
    make_all_states();
    static const uint64_t free[] = {4, 7}; /* used before, and never */
    for (unsigned i = 0; i < 2; i++) {
        uint8_t *word = word_at(i, free[i]);
        assert_int_equal(store_meta(store, free[i]).state, SEGMENT_FREE);
        word[2] ^= 8;
        reopen();
        assert_int_equal(store_meta(store, free[i]).state, SEGMENT_USED);
        assert_int_equal(store_meta(store, free[i]).owner, OWNER_UNKNOWN);
        assert_true(store_segments_owned(store, OWNER_UNKNOWN) == i + 1);
        assert_true(store_segments_free(store) == 2 - i);
    }
}

TEST(a_segment_of_which_both_words_are_damaged_is_kept_under_a_new_number)
{
    make_all_states();
    for (uint64_t segment = 1; segment < 6; segment += 4) { /* 5 has the highest number */
        memset(word_at(0, segment), 0xff, META_BYTES);
        word_at(1, segment)[7] ^= 1;
    }
    for (unsigned i = 0; i < 2; i++) {
        reopen();
        const struct segment_meta unknown = {.state = SEGMENT_USED, .owner = OWNER_UNKNOWN};
        for (uint64_t segment = 1; segment < 6; segment += 4) {
            struct segment_meta expected = unknown;
            expected.allocation = 6 + 2 + 1 + segment / 4; /* of those known 6 is the highest */
            assert_meta(segment, expected);
        }
    }
    uint64_t segment, number = store_segments(store);
    while (store_allocate(store, OWNER_WORKER, 0, &segment) == 0) {
        assert_true(segment != 1 && segment != 5);
        assert_true(store_meta(store, segment).allocation > number);
    }
    /* It is known again when somebody has made sure of it. */
    store_transition(store, 1, SEGMENT_DIRTY);
    store_transition(store, 1, SEGMENT_FREE);
    reopen();
    assert_int_equal(store_meta(store, 1).state, SEGMENT_FREE);
    assert_true(store_segments_owned(store, OWNER_UNKNOWN) == 1);
}

TEST(a_word_in_another_segments_place_is_damaged)
{
    make_all_states();
    struct segment_meta meta = store_meta(store, 0);
    memcpy(word_at(0, 0), word_at(0, 5), META_BYTES); /* with a higher number */
    reopen();
    assert_meta(0, meta);
}

TEST(a_right_check_over_a_word_that_cannot_be_is_damage)
{
    /* Unknown state, unknown owner, in use by nobody, free and owned, dirty and owned. */
    static const struct segment_meta wrong[] = {{5, 1, 0, 1, false}, {15, 0, 0, 1, false},
                                                {2, 7, 0, 1, false}, {2, 0, 0, 1, false},
                                                {0, 1, 0, 1, false}, {1, 1, 0, 1, false}};
    struct segment_meta out;
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(meta_decode(3, meta_encode(3, &wrong[i]), &out));
}

/* PM of this format is read by a version that knows no closed segments, too, and comes back from there. */
TEST(that_a_segment_is_closed_is_no_damage_to_who_does_not_know_it)
{
    struct segment_meta closed = {SEGMENT_USED, OWNER_WORKER, 63, 5, true}, out;
    const uint64_t word = meta_encode(3, &closed);
    assert_int_equal(word & 0xff, SEGMENT_USED | OWNER_WORKER << 4); /* it looks at these, */
    assert_int_equal(word >> 16 & META_ALLOCATION_MAX, 5);           /* and at this, */
    closed.state = SEGMENT_COMMITTED; /* and leaves the rest as it is */
    assert_true(meta_decode(3, meta_encode(3, &closed), &out));
    assert_int_equal(out.state, SEGMENT_COMMITTED);
    assert_int_equal(out.owner_number, 63);
    assert_false(out.closed);
}

/* --- crashes --- */

/* Only one of the two words landed: it counts, whichever it is. */
TEST(of_two_words_the_later_counts_in_each_transition)
{
    static const enum segment_state lives[][5] = {
        {SEGMENT_USED, SEGMENT_COMMITTED, SEGMENT_DIRTY, SEGMENT_FREE, SEGMENT_DIRTY},
        {SEGMENT_COMMITTED, SEGMENT_DIRTY, SEGMENT_FREE, SEGMENT_DIRTY, SEGMENT_FREE},
        {SEGMENT_USED, SEGMENT_DIRTY, SEGMENT_FREE, SEGMENT_USING, SEGMENT_DIRTY},
        {SEGMENT_DIRTY, SEGMENT_FREE, SEGMENT_USING, SEGMENT_USED, SEGMENT_DIRTY},
    };
    for (unsigned i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
        uint64_t segment;
        assert_int_equal(store_allocate(store, OWNER_DIGEST, 1, &segment), 0);
        for (unsigned k = 0; k < 5; k++) {
            uint8_t old[META_BYTES];
            memcpy(old, word_at(0, segment), META_BYTES);
            if (lives[i][k] != SEGMENT_USING)
                store_transition(store, segment, lives[i][k]);
            for (uint64_t other = segment; lives[i][k] == SEGMENT_USING;) {
                assert_int_equal(store_allocate(store, OWNER_DIGEST, 1, &other), 0);
                if (other == segment)
                    break;
            }
            struct segment_meta meta = store_meta(store, segment);
            assert_int_equal(meta.state, lives[i][k]);
            for (unsigned copy = 0; copy < 2; copy++) {
                memcpy(word_at(copy, segment), old, META_BYTES);
                reopen();
                assert_meta(segment, meta);
            }
        }
    }
}

/* What the test did to a segment since the last fence, in order; the first item is what was durable then. */
struct life {
    struct segment_meta metas[64];
    unsigned count;
};

static void note(struct life *life, uint64_t segment)
{
    life->metas[life->count++] = store_meta(store, segment);
}

static void step(struct life *lives, struct random *random)
{
    static const enum segment_state next[] = {[SEGMENT_DIRTY] = SEGMENT_FREE,
                                              [SEGMENT_USING] = SEGMENT_USED,
                                              [SEGMENT_USED] = SEGMENT_COMMITTED,
                                              [SEGMENT_COMMITTED] = SEGMENT_DIRTY};
    uint64_t segment = random_below(random, SEGMENTS);
    enum segment_state state = store_meta(store, segment).state;
    if (state != SEGMENT_FREE)
        store_transition(store, segment, random_below(random, 4) ? next[state] : SEGMENT_DIRTY);
    else if (random_below(random, 4) == 0)
        store_transition(store, segment, SEGMENT_DIRTY);
    else
        assert_int_equal(store_allocate(store, OWNER_CLEAN, 3, &segment), 0);
    note(&lives[segment], segment);
}

static void forget_all_but_the_last(struct life *lives)
{
    for (uint64_t i = 0; i < SEGMENTS; i++) {
        lives[i].count = 0;
        note(&lives[i], i);
    }
}

/* Either copy of each word may be lost. */
TEST(a_segment_is_after_any_crash_what_it_was_at_some_time_since_the_last_fence)
{
    struct life lives[SEGMENTS];
    struct random random;
    uint64_t older = 0;
    random_init(&random, 1);
    forget_all_but_the_last(lives);
    for (unsigned i = 0; i < CRASHES; i++) {
        for (uint64_t steps = random_below(&random, 20); steps > 0; steps--)
            step(lives, &random);
        if (random_below(&random, 2)) {
            assert_int_equal(pm_fence_done(&sim->pm, pm_fence_start(&sim->pm)), 1);
            forget_all_but_the_last(lives);
        }
        for (uint64_t steps = random_below(&random, 20); steps > 0; steps--)
            step(lives, &random);
        (void)sim_pm_power_loss(sim, &random, NULL, NULL);
        reopen();
        assert_true(store_segments_owned(store, OWNER_UNKNOWN) == 0);
        for (uint64_t segment = 0; segment < SEGMENTS; segment++) {
            struct life *life = &lives[segment];
            struct segment_meta meta = store_meta(store, segment);
            unsigned at = 0;
            while (at < life->count && (life->metas[at].state != meta.state ||
                                        life->metas[at].allocation != meta.allocation))
                at++;
            assert_true(at < life->count);
            older += at + 1 < life->count;
            /* What the open stored is not durable, but is the same as what it found. */
            for (unsigned copy = 0; copy < 2; copy++) {
                uint64_t word = meta_encode(segment, &meta);
                assert_memory_equal(word_at(copy, segment), &word, META_BYTES);
            }
        }
        assert_int_equal(pm_fence_done(&sim->pm, pm_fence_start(&sim->pm)), 1);
        forget_all_but_the_last(lives);
    }
    assert_true(older > CRASHES / 4);
}

UNIT_MAIN(NULL, NULL)
