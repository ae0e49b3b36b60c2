/* A server as a backup: how its digest role gets past what is damaged or unfinished in the open segment, comes back
 * to it, and takes what it meets again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/entry/entry.h"
#include "landing.h"
#include "server/digest/digest.h"

/* --- a block in the open segment that is not whole --- */

static void damage(struct landing *landing, uint64_t offset)
{
    ((uint8_t *)pm_at(&landing->stage->heap->pm, offset))[ENTRY_HEADER_BYTES + 1] ^= 4;
}

static void a_damaged_block_holds_up_nobody_and_is_fetched(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);

    damage(&landing, landing_put(&landing, 1));
    landing_put(&landing, 2);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    stage_run(stage);
    assert_int_equal(landing_ask(&landing).version, 0); /* it may be on its way */
    stage_pass(stage, 200 * NS_PER_MS);
    landing_assert_fetch(&landing, 1, 1);
    struct landing_said said = landing_ask(&landing);

    assert_true(said.missing && said.busy);
    assert_int_equal(said.version, version_make(1, 2));
    landing_put(&landing, 1);
    stage_pass(stage, 64 * NS_PER_MS);
    said = landing_ask(&landing);
    assert_false(said.missing || said.busy);
}

/* As when the commit versions, too, are what was hit; and nobody writes any more. */
static void a_damaged_commit_version_is_made_good_by_the_next(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);

    landing_put(&landing, 2);
    uint64_t offset = landing.offset;

    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    damage(&landing, offset);
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    landing_put(&landing, 3);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 3));
    landing_ask(&landing); /* wakes it, as whatever lands later would */
    stage_pass(stage, NS_PER_S);
    landing_assert_fetch(&landing, 1, 1);
}

static void a_block_that_is_completed_late_is_found_and_not_asked_for(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);
    uint64_t late = landing_put(&landing, 1);

    damage(&landing, late);
    landing_put(&landing, 2);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 2));
    damage(&landing, late); /* undone: its sender has gone on */
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    landing_ask(&landing);
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    struct landing_said said = landing_ask(&landing);

    assert_false(said.missing || said.busy);
}

/* As behind what a connection left when it was cut. */
static void one_that_is_completed_late_is_found_behind_one_that_stays_damaged(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);
    landing_put(&landing, 1);
    damage(&landing, landing_put(&landing, 1));
    landing_put(&landing, 2);
    stage_pass(stage, 200 * NS_PER_MS);
    uint64_t late = landing_put(&landing, 3);
    damage(&landing, late);
    landing_put(&landing, 4);
    landing_ask(&landing);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 4));
    damage(&landing, late); /* undone */
    landing_commit(&landing, STAGE_BACKED, version_make(1, 4));
    landing_ask(&landing);
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    struct landing_said said = landing_ask(&landing);

    assert_false(said.missing || said.busy);
}

/* The scan goes back to the first of them and needs several polls to the second. */
static void what_lies_before_the_end_of_the_scan_is_not_asked_for(void **state)
{
    enum { BETWEEN = 200 };
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);
    uint64_t late[2];

    late[0] = landing_put(&landing, 1);
    for (uint64_t i = 0; i < BETWEEN; i++)
        landing_put(&landing, 2 + i);
    late[1] = landing_put(&landing, 2 + BETWEEN);
    for (unsigned i = 0; i < 2; i++)
        damage(&landing, late[i]);
    landing_put(&landing, 3 + BETWEEN);
    stage_pass(stage, 200 * NS_PER_MS);
    landing_ask(&landing);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 3 + BETWEEN));
    for (unsigned i = 0; i < 2; i++)
        damage(&landing, late[i]); /* undone */
    landing_commit(&landing, STAGE_BACKED, version_make(1, 3 + BETWEEN));
    landing_ask(&landing);
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    struct landing_said said = landing_ask(&landing);

    assert_false(said.missing || said.busy);
}

/* Two senders have stopped in one claim behind the other: the second goes on. */
static void a_block_that_is_completed_late_is_found_in_the_middle_of_a_gap(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);

    landing_put(&landing, 1);
    damage(&landing, landing_put(&landing, 1));
    uint64_t late = landing_put(&landing, 2);

    damage(&landing, late);
    landing_put(&landing, 3);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 3));
    damage(&landing, late); /* undone */
    landing_commit(&landing, STAGE_BACKED, version_make(1, 3));
    landing_ask(&landing);
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    struct landing_said said = landing_ask(&landing);

    assert_false(said.missing || said.busy);
}

/* A look goes through no more than 64 KiB in one poll. */
static void a_block_that_is_completed_late_is_found_at_the_end_of_a_long_gap(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);

    landing.offset += 200 << 10;
    uint64_t late = landing_put(&landing, 1);

    damage(&landing, late);
    landing_put(&landing, 2);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 2));
    damage(&landing, late); /* undone */
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    landing_ask(&landing);
    assert_true(landing_ask(&landing).missing);
    stage_pass(stage, 64 * NS_PER_MS);
    landing_assert_no_fetch(&landing);
    struct landing_said said = landing_ask(&landing);

    assert_false(said.missing || said.busy);
}

/* A look may compute a checksum over 64 KiB in vain: there is none in each poll of a thread that others share. */
static void gaps_are_looked_at_seldom_also_when_a_question_is_due(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);

    damage(&landing, landing_put(&landing, 1));
    landing_put(&landing, 2);
    landing_put(&landing, 4);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    while (!landing_ask(&landing).missing)
        stage_pass(stage, NS_PER_MS);
    landing_assert_fetch(&landing, 1, 1);
    landing_put(&landing, 1);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 4));
    assert_int_equal(landing_ask(&landing).commit, version_make(1, 4));
    landing_assert_no_fetch(&landing);
    assert_true(stage->wake_ns <= stage->now_ns + 2 * NS_PER_MS);
    stage_pass(stage, 2 * NS_PER_MS);
    landing_assert_fetch(&landing, 3, 3);
}

static void gaps_are_not_looked_at_in_each_poll(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);
    uint64_t late = landing_put(&landing, 1);

    damage(&landing, late);
    landing_put(&landing, 2);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    stage_pass(stage, 200 * NS_PER_MS);
    landing_assert_fetch(&landing, 1, 1);
    damage(&landing, late); /* undone */
    assert_true(landing_ask(&landing).missing);
    stage_pass(stage, NS_PER_S);
    assert_false(landing_ask(&landing).missing);
    landing_assert_no_fetch(&landing);
}

/* Nothing is missing then, and nobody writes any more. */
static void a_commit_version_that_is_completed_late_is_found(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);

    landing_put(&landing, 1);
    uint64_t late = landing.offset;

    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    damage(&landing, late);
    landing_put(&landing, 2);
    stage_pass(stage, 200 * NS_PER_MS);
    struct landing_said said = landing_ask(&landing);

    assert_int_equal(said.version, version_make(1, 2));
    assert_int_equal(said.commit, version_make(1, 0));
    stage_pass(stage, 60 * NS_PER_S);
    assert_true(stage->wake_ns > stage->now_ns + NS_PER_S); /* looked at ever more seldom */
    damage(&landing, late);                                 /* undone */
    stage_pass(stage, 60 * NS_PER_S);
    assert_int_equal(landing_ask(&landing).commit, version_make(1, 1));
    stage_pass(stage, NS_PER_S);
    assert_int_equal(stage->wake_ns, WAKE_NEVER);
}

static void what_was_passed_over_is_looked_at_again_when_the_segment_is_sealed(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);
    uint64_t late = landing_put(&landing, 1);

    damage(&landing, late);
    landing_put(&landing, 2);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_true(landing_ask(&landing).busy);
    damage(&landing, late);
    assert_true(puppet_seal(stage->fabric, STAGE_CONTROL));
    stage_run(stage);
    assert_false(landing_ask(&landing).busy);
}

static void a_block_far_behind_a_gap_is_reached(void **state)
{
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);

    landing.offset += 200 << 10; /* room that a stopped sender has claimed */
    landing_put(&landing, 1);
    stage_pass(stage, NS_PER_S);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 1));
}

/* --- long entries --- */

/* A value of 1 MiB, with another put between its first block and its second: it is copied to be in one piece. */
static void land_parted(struct landing *landing, uint64_t version)
{
    static uint8_t value[ENTRY_MAX_VALUE_BYTES];
    const struct entry_format format = stage_format(landing->stage);
    const char *key = stage_key_of(STAGE_BACKED);
    struct entry_header header = {.type = ENTRY_PUT,
                                  .shard = STAGE_BACKED,
                                  .version = version,
                                  .key_bytes = (uint16_t)strlen(key),
                                  .value_bytes = sizeof value};

    header.blocks = (uint16_t)entry_blocks(&format, header.key_bytes, header.value_bytes);
    for (; header.block < header.blocks; header.block++) {
        landing_block(landing, header, key, value);
        if (header.block == 0)
            landing_put(landing, version + 1 - version_make(1, 0));
    }
}

static struct digest *digest_of(const struct stage *stage)
{
    return server_poller(stage->server, server_roles(stage->server) - 1).role;
}

/* Its copies would fill segments, which nobody gives back. */
static void a_long_entry_that_is_met_again_is_not_copied_again(void **state)
{
    enum { LATE = 8 };
    struct stage *stage = *state;
    struct landing landing = landing_begin(stage);
    uint64_t late[LATE];

    for (unsigned i = 0; i < LATE; i++) {
        late[i] = landing_put(&landing, 1 + i);
        damage(&landing, late[i]);
    }
    land_parted(&landing, version_make(1, LATE + 1));
    landing_commit(&landing, STAGE_BACKED, version_make(1, LATE + 2));
    stage_pass(stage, 200 * NS_PER_MS);
    uint64_t before = landing_ask(&landing).segments_free,
             entries = digest_entries(digest_of(stage));

    assert_int_equal(entries, 2);
    for (unsigned i = LATE; i-- > 0;) {
        damage(&landing, late[i]); /* undone: it is found when it asks next */
        stage_pass(stage, 40 * NS_PER_S);
    }
    struct landing_said said = landing_ask(&landing);

    assert_false(said.missing || said.busy);
    assert_int_equal(said.segments_free, before);
    assert_int_equal(digest_entries(digest_of(stage)), entries + LATE); /* and nothing twice */
}

/* All of an epoch is settled when the next has its first commit version; not all that it had is here. */
static void a_long_entry_of_a_settled_epoch_is_taken(void **state)
{
    struct stage *stage = *state;

    for (unsigned starts = 1; starts < 3; starts++) {
        stage_restart(stage);
        stage_begin(stage);
    }
    struct landing landing = landing_begin(stage);

    landing_commit(&landing, STAGE_BACKED, version_make(3, 0));
    land_parted(&landing, version_make(2, 7));
    stage_run(stage);
    assert_int_equal(digest_entries(digest_of(stage)), 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_setup, stage_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_damaged_block_holds_up_nobody_and_is_fetched),
        TEST(a_damaged_commit_version_is_made_good_by_the_next),
        TEST(a_block_that_is_completed_late_is_found_and_not_asked_for),
        TEST(one_that_is_completed_late_is_found_behind_one_that_stays_damaged),
        TEST(what_lies_before_the_end_of_the_scan_is_not_asked_for),
        TEST(a_block_that_is_completed_late_is_found_in_the_middle_of_a_gap),
        TEST(a_block_that_is_completed_late_is_found_at_the_end_of_a_long_gap),
        TEST(gaps_are_looked_at_seldom_also_when_a_question_is_due),
        TEST(gaps_are_not_looked_at_in_each_poll),
        TEST(a_commit_version_that_is_completed_late_is_found),
        TEST(what_was_passed_over_is_looked_at_again_when_the_segment_is_sealed),
        TEST(a_block_far_behind_a_gap_is_reached),
        TEST(a_long_entry_that_is_met_again_is_not_copied_again),
        TEST(a_long_entry_of_a_settled_epoch_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
