/* A server as a backup: how its digest role gets past what is damaged or unfinished in the open segment, comes back
 * to it, and takes what it meets again. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/entry/entry.h"
#include "landing.h"
#include "server/control/control_state.h"
#include "server/digest/digest_state.h"
#include "test/lib/unit.h"

/* --- a block in the open segment that is not whole --- */

static void damage(struct landing *landing, uint64_t offset)
{
    ((uint8_t *)pm_at(&landing->stage->heap->pm, offset))[ENTRY_HEADER_BYTES + 1] ^= 4;
}

TEST(a_damaged_block_holds_up_nobody_and_is_fetched)
{
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
TEST(a_damaged_commit_version_is_made_good_by_the_next)
{
    struct landing landing = landing_with(stage, 2);

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

/* --- what is completed late --- */

static void assert_all_is_here(struct landing *landing)
{
    struct landing_said said = landing_ask(landing);

    assert_false(said.missing || said.busy);
}

enum { MAX_LATE = 8 };

/* What lands, a letter for each: a put (p), many of them (m), one that is damaged for good and sent again (x), one
 * that is damaged until the end (l), space that a stopped sender has claimed (_); and time goes on (w). */
struct late {
    struct landing landing;
    uint64_t last, places[MAX_LATE];
    unsigned count;
};

static struct late late_begin(struct stage *stage, const char *script)
{
    struct late late = {.landing = landing_begin(stage)};

    for (; *script; script++) {
        const unsigned puts = *script == 'm' ? 200 : *script == 'p' || *script == 'l';

        for (unsigned i = 0; i < puts; i++)
            late.places[late.count] = landing_put(&late.landing, ++late.last);
        if (*script == 'l')
            damage(&late.landing, late.places[late.count++]);
        if (*script == 'x')
            damage(&late.landing, landing_put(&late.landing, late.last));
        if (*script == '_')
            late.landing.offset += 200 << 10;
        if (*script == 'w') {
            landing_ask(&late.landing); /* wakes it */
            stage_pass(stage, 200 * NS_PER_MS);
            assert_int_equal(landing_ask(&late.landing).version, version_make(1, late.last));
        }
    }
    return late;
}

/* The senders have gone on. */
static void late_complete(struct late *late)
{
    while (late->count > 0)
        damage(&late->landing, late->places[--late->count]);
}

TEST(what_is_completed_late_is_found_and_not_asked_for)
{
    static const char *const scripts[] = {
        "lpw",     /* in the only gap */
        "pxpwlpw", /* behind one that stays damaged, as what a cut connection left */
        "lmlpww",  /* in the first of two gaps, and several polls further on */
        "pxlpw",   /* in the middle of a gap */
        "_lpw",    /* at the end of a gap that takes several looks */
        "_plpw_lplplpwwww",
    };
    for (unsigned i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        struct late late = late_begin(stage, scripts[i]);
        late_complete(&late);
        landing_commit(&late.landing, STAGE_BACKED, version_make(1, late.last));
        landing_ask(&late.landing);
        stage_pass(stage, NS_PER_S);
        landing_assert_no_fetch(&late.landing);
        assert_all_is_here(&late.landing);
        stage_reopen(stage);
    }
}

TEST(what_was_stepped_over_is_scanned_again_when_the_segment_is_sealed)
{
    struct late late = late_begin(stage, "lplpww");

    assert_true(landing_ask(&late.landing).busy);
    late_complete(&late);
    assert_true(puppet_seal(stage->fabric, STAGE_CONTROL));
    stage_run(stage);
    assert_all_is_here(&late.landing);
}

/* A scan from the first gap may compute checksums over a segment: there is none in each poll of a thread that others
 * share. */
TEST(the_scan_goes_back_seldom_also_when_a_question_is_due)
{
    struct landing landing = landing_begin(stage);

    damage(&landing, landing_put(&landing, 1));
    landing_put(&landing, 2);
    landing_put(&landing, 4);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    stage_pass(stage, 200 * NS_PER_MS);
    assert_true(landing_ask(&landing).missing);
    stage_pass(stage, 50 * NS_PER_MS);
    landing_assert_fetch(&landing, 1, 1);
    landing_put(&landing, 1);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 4));
    assert_int_equal(landing_ask(&landing).commit, version_make(1, 4));
    landing_assert_no_fetch(&landing);
    assert_true(stage->wake_ns <= stage->now_ns + 50 * NS_PER_MS);
    stage_pass(stage, 50 * NS_PER_MS);
    landing_assert_fetch(&landing, 3, 3);
}

TEST(gaps_are_not_scanned_in_each_poll)
{
    struct late late = late_begin(stage, "lp");

    landing_commit(&late.landing, STAGE_BACKED, version_make(1, 2));
    stage_pass(stage, 200 * NS_PER_MS);
    assert_true(landing_ask(&late.landing).missing);
    stage_pass(stage, 50 * NS_PER_MS);
    landing_assert_fetch(&late.landing, 1, 1);
    late_complete(&late);
    assert_true(landing_ask(&late.landing).missing);
    stage_pass(stage, NS_PER_S);
    assert_all_is_here(&late.landing);
    landing_assert_no_fetch(&late.landing);
}

/* Nothing is missing then, and nobody writes any more. */
TEST(a_commit_version_that_is_completed_late_is_found)
{
    struct late late = late_begin(stage, "p");

    late.places[late.count++] = late.landing.offset;
    landing_commit(&late.landing, STAGE_BACKED, version_make(1, 1));
    damage(&late.landing, late.places[0]);
    landing_put(&late.landing, 2);
    stage_pass(stage, 200 * NS_PER_MS);
    struct landing_said said = landing_ask(&late.landing);

    assert_int_equal(said.version, version_make(1, 2));
    assert_int_equal(said.commit, version_make(1, 0));
    stage_pass(stage, 60 * NS_PER_S);
    assert_true(stage->wake_ns > stage->now_ns + NS_PER_S); /* ever more seldom */
    late_complete(&late);
    stage_pass(stage, 60 * NS_PER_S);
    assert_int_equal(landing_ask(&late.landing).commit, version_make(1, 1));
    stage_pass(stage, NS_PER_S);
    assert_int_equal(stage->wake_ns, WAKE_NEVER);
}

TEST(new_gaps_do_not_put_off_the_scan_of_old_ones)
{
    struct late late = late_begin(stage, "p");

    late.places[late.count++] = late.landing.offset;
    landing_commit(&late.landing, STAGE_BACKED, version_make(1, 1));
    damage(&late.landing, late.places[0]);
    landing_put(&late.landing, 2);
    stage_pass(stage, 3600 * NS_PER_S);
    late_complete(&late);
    for (uint64_t i = 3; i <= 40; i++) {
        late.landing.offset += ENTRY_ALIGN;
        landing_put(&late.landing, i);
        stage_run(stage);
        stage_pass(stage, 50 * NS_PER_MS); /* so there is one each 50 ms */
    }
    assert_int_equal(landing_ask(&late.landing).commit, version_make(1, 1));
}

TEST(a_gap_is_waited_for_though_there_was_one_before)
{
    struct late late = late_begin(stage, "lpw");

    damage(&late.landing, landing_put(&late.landing, 3));
    landing_put(&late.landing, 4);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(landing_ask(&late.landing).version, version_make(1, 2));
        stage_pass(stage, NS_PER_MS);
    }
}

/* A landing zone that receives in slots (fabric.h, F6): what is behind a block in its slot is waited for by nobody. */
TEST(entries_in_slots_are_digested_as_they_come)
{
    stage_close(stage);
    stage_start(stage, 256);
    stage->fabric->head.caps.landing_stride = 256;
    stage_begin(stage);
    struct landing landing = landing_begin(stage);

    for (uint64_t i = 1; i <= 40; i++)
        landing_put(&landing, i);
    const uint64_t empty = landing.offset;

    landing.offset += 256; /* of a slow sender */
    landing_put(&landing, 42);
    stage_run(stage);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 40));
    landing.offset = empty;
    landing_put(&landing, 41);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 42));
}

/* Each stride of a gap claims to be a block of 48 KiB. */
TEST(a_gap_that_lies_hides_nothing_behind_it)
{
    enum { GAP = 64 << 10 };
    static _Alignas(64) uint8_t block[ENTRY_MAX_BLOCK_LIMIT], value[48 << 10];
    struct landing landing = landing_begin(stage);
    const struct entry_format format = stage_format(stage);
    const struct entry_header header = {
        .type = ENTRY_PUT, .key_bytes = 1, .value_bytes = sizeof value, .blocks = 1};

    entry_encode_block(&format, &header, "k", value, block);
    for (uint32_t at = 0; at < GAP; at += ENTRY_ALIGN)
        pm_store(&landing.stage->heap->pm, landing.offset + at, block, ENTRY_HEADER_BYTES);
    landing.offset += GAP;
    landing_put(&landing, 1);
    stage_pass(stage, 200 * NS_PER_MS);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 1));
}

/* --- long entries --- */

/* A value of 1 MiB, with another entry between its first block and its second: it is copied to be in one piece. */
static void land_parted(struct landing *landing, uint64_t version)
{
    landing_long(landing, version, ENTRY_MAX_VALUE_BYTES, version_make(1, 0));
}

/* Its copies would fill segments, which nobody gives back. So it is with one that is superseded. */
TEST(a_long_entry_that_is_met_again_is_not_copied_again)
{
    struct late late = late_begin(stage, "llllllll");
    struct landing *landing = &late.landing;
    const uint64_t before = landing_ask(landing).segments_free;

    land_parted(landing, version_make(1, MAX_LATE + 1));
    land_parted(landing, version_make(1, MAX_LATE + 2));
    stage_pass(stage, 200 * NS_PER_MS);
    const uint64_t after = landing_ask(landing).segments_free;

    assert_int_equal(after, before - 1); /* 2 MiB and some */
    landing_put(landing, MAX_LATE + 3);
    landing_commit(landing, STAGE_BACKED, version_make(1, MAX_LATE + 3));
    while (late.count > 0) {
        damage(landing,
               late.places[--late.count]); /* undone: it is found before the next question */
        stage_pass(stage, 40 * NS_PER_S);
    }
    assert_all_is_here(landing);
    assert_int_equal(landing_ask(landing).segments_free, after);
}

/* Its version says that it is newer, but it is not said of which key. */
TEST(a_damaged_entry_supersedes_no_long_one)
{
    struct landing landing = landing_begin(stage);
    const uint64_t offset = landing_put(&landing, 1), version = version_make(1, 9);

    stage_run(stage);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 1));
    damage(&landing, offset);
    pm_store(&landing.stage->heap->pm, offset + 8, &version, sizeof version);
    const uint64_t before = landing_ask(&landing).segments_free;

    land_parted(&landing, version_make(1, 2));
    stage_run(stage);
    assert_int_equal(landing_ask(&landing).version, version_make(1, 2));
    assert_int_equal(landing_ask(&landing).segments_free, before - 1); /* it was copied */
}

/* All of an epoch is settled when the next has its first commit version; not all that it had is here. */
TEST(a_long_entry_of_a_settled_epoch_is_taken)
{
    for (unsigned starts = 1; starts < 3; starts++)
        stage_return(stage);
    struct landing landing = landing_begin(stage);

    landing_commit(&landing, STAGE_BACKED, version_make(3, 0));
    land_parted(&landing, version_make(2, 7));
    stage_run(stage);
    assert_int_equal(digest_entries(stage_digest(stage)), 1);
}

/* --- what has landed --- */

/* S7. As much as the role reads in a poll. */
TEST(a_pass_over_what_has_landed_ends_though_as_much_lands_all_the_time)
{
    struct landing landing = landing_with(stage, 1);
    struct digest *digest = stage_digest(stage);

    control_zone_note_begun(server_poller(stage->server, 0).role);
    const uint64_t ticket = digest_catch_up_begin(digest);
    uint64_t version = version_make(1, 1);
    for (unsigned i = 0; i < 8 && !digest_caught_up(digest, ticket); i++) {
        for (unsigned block = 0; block < 63; block++)
            landing_long(&landing, ++version, 60000, 0);
        assert_true(puppet_seal(stage->fabric, STAGE_CONTROL));
        landing.offset = stage->fabric->posts[stage->fabric->sealed].offset;
        stage_poll(stage);
    }
    assert_true(digest_caught_up(digest, ticket));
}

UNIT_MAIN(NULL, NULL)
