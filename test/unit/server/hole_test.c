/* A server as a backup: what its digest role makes of commit versions, and how it asks for what
 * never arrived. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "common/entry/commit.h"
#include "common/entry/entry.h"
#include "landing.h"
#include "test/lib/unit.h"

/* --- holes --- */

TEST(a_hole_is_asked_for_until_it_is_filled)
{
    struct landing landing = landing_with(stage, 1, 4);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 4));
    stage_run(stage);
    landing_assert_fetch(&landing, 2, 3);
    struct landing_said said = landing_ask(&landing);

    assert_true(said.missing && said.busy);
    assert_int_equal(said.commit, version_make(1, 4));
    assert_int_equal(said.version, version_make(1, 4));
    stage_pass(stage, NS_PER_S - 1);
    landing_assert_no_fetch(&landing);
    stage_pass(stage, 1);
    landing_assert_fetch(&landing, 2, 3);
    stage_pass(stage, 2 * NS_PER_S);
    landing_assert_fetch(&landing, 2, 3);
    landing_put(&landing, 3); /* what came in the middle is not asked for anew before its time */
    stage_pass(stage, 4 * NS_PER_S - NS_PER_MS);
    landing_assert_no_fetch(&landing);
    stage_pass(stage, NS_PER_MS);
    landing_assert_fetch(&landing, 2, 2);
    stage_pass(stage, NS_PER_S);
    /* Nobody wakes the digest role for what lands. */
    assert_true(stage->wake_ns <= stage->now_ns + 64 * NS_PER_MS);
    landing_put(&landing, 2);
    stage_pass(stage, 64 * NS_PER_MS);
    said = landing_ask(&landing);
    assert_false(said.missing || said.busy);
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    assert_int_equal(stage->wake_ns, WAKE_NEVER);
}

TEST(a_question_for_a_version_that_never_comes_is_asked_ever_more_seldom)
{
    struct landing landing = landing_begin(stage);
    uint64_t first, last;
    unsigned asked = 0;

    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    stage_pass(stage, 600 * NS_PER_S);
    while (landing_next_fetch(&landing, &first, &last))
        asked++;
    assert_in_range(asked, 18, 26);
}

TEST(a_question_is_soon_asked_again_on_a_new_connection)
{
    struct landing landing = landing_begin(stage);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    stage_pass(stage, 7 * NS_PER_S); /* it has asked three times, and would do so 8 s later */
    puppet_close(landing.peer, ROWAN_ECLOSED);
    landing = landing_begin(stage);
    stage_pass(stage, NS_PER_S - 1);
    landing_assert_no_fetch(&landing);
    stage_pass(stage, 1);
    landing_assert_fetch(&landing, 1, 1);
}

/* What was asked for comes one by one: that is not asked for again and again. */
TEST(a_hole_that_is_filled_from_the_front_is_not_asked_for_anew)
{
    struct landing landing = landing_with(stage, 9);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 9));
    stage_run(stage);
    landing_assert_fetch(&landing, 1, 8);
    for (uint64_t counter = 1; counter <= 7; counter++) {
        landing_put(&landing, counter);
        stage_pass(stage, 100 * NS_PER_MS);
    }
    landing_assert_no_fetch(&landing);
    stage_pass(stage, 300 * NS_PER_MS);
    landing_assert_fetch(&landing, 8, 8);
}

TEST(the_next_hole_is_asked_for_at_once)
{
    struct landing landing = landing_with(stage, 2, 4);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 5));
    stage_run(stage);
    landing_assert_fetch(&landing, 1, 1);
    landing_put(&landing, 1);
    stage_run(stage);
    landing_assert_fetch(&landing, 3, 3);
    landing_put(&landing, 3);
    stage_run(stage);
    landing_assert_fetch(&landing, 5, 5);
    landing_put(&landing, 5);
    stage_run(stage);
    assert_false(landing_ask(&landing).missing);
}

TEST(versions_above_the_commit_version_are_not_missed)
{
    struct landing landing = landing_with(stage, 1, 3);

    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    assert_false(landing_ask(&landing).missing);
    assert_true(landing_ask(&landing).busy); /* what belongs in front of 3 is on its way */
}

TEST(commit_versions_of_another_epoch_or_shard_are_ignored)
{
    struct landing landing = landing_with(stage, 1);

    landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
    landing_commit(&landing, STAGE_BACKED, version_make(2, 9));
    landing_commit(&landing, STAGE_BACKED, version_make(0, 9));
    landing_commit(&landing, STAGE_BACKED, version_make(0xffffff, 9));
    landing_commit(&landing, 1, version_make(1, 9));
    landing_commit(&landing, 77, version_make(1, 9));
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    assert_int_equal(landing_ask(&landing).commit, version_make(1, 0));
    landing_put(&landing, 2);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    stage_pass(stage, NS_PER_S);
    assert_int_equal(landing_ask(&landing).commit, version_make(1, 2));
    landing_assert_no_fetch(&landing);
}

/* Log reconciliation may bring more: its checksum must not be compared yet. */
TEST(a_backup_is_busy_until_its_epoch_has_a_commit_version)
{
    struct landing landing = landing_return(stage);

    assert_true(landing_ask(&landing).busy);
    landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
    assert_false(landing_ask(&landing).busy);
}

/* By message, so that it hears it also where nothing can land. */
static void tell_commit(struct landing *landing, uint32_t epoch, uint64_t commit)
{
    Rowan__SettledIs body = ROWAN__SETTLED_IS__INIT;
    Rowan__ShardSettled row = ROWAN__SHARD_SETTLED__INIT, *rows = &row;

    row.shard = STAGE_BACKED;
    row.epoch = epoch;
    row.commit = commit;
    body.n_shards = 1;
    body.shards = &rows;
    stage_tell(landing->peer, 7, &CONTROL_MESSAGE(SETTLED_IS, settled_is, &body));
    stage_run(landing->stage);
}

TEST(a_backup_hears_by_message_that_its_epoch_has_begun_and_nothing_more)
{
    struct landing landing = landing_return(stage);

    tell_commit(&landing, 2, version_make(2, 5));
    tell_commit(&landing, 2, version_make(3, 0));
    tell_commit(&landing, 3, version_make(3, 0));
    assert_true(landing_ask(&landing).busy);
    tell_commit(&landing, 2, version_make(2, 0));
    assert_false(landing_ask(&landing).busy);
    assert_int_equal(landing_ask(&landing).commit, version_make(2, 0));
}

/* A backup that starts in a later epoch knows nothing of what came before; the commit version settles
 * that. */
TEST(a_commit_version_settles_the_epochs_before)
{
    for (unsigned starts = 1; starts < 3; starts++)
        stage_return(stage);
    struct landing landing = landing_begin(stage);

    landing_put(&landing, version_make(3, 1) - version_make(1, 0));
    landing_put(&landing, version_make(3, 2) - version_make(1, 0));
    landing_commit(&landing, STAGE_BACKED, version_make(3, 2));
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    struct landing_said said = landing_ask(&landing);

    assert_false(said.missing || said.busy);
    assert_int_equal(said.commit, version_make(3, 2));
}

/* Right, but in two blocks, so that the value does not lie in one piece. */
static void land_long_commit(struct landing *landing)
{
    enum { ROWS = 4374 };
    static struct commit_shard rows[ROWS];
    static uint8_t value[COMMIT_HEAD_BYTES + ROWS * COMMIT_SHARD_BYTES];

    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = (struct commit_shard){STAGE_BACKED, version_make(1, 9)};
    uint32_t bytes = commit_encode(rows, ROWS, NULL, 0, value);

    for (uint16_t block = 0; block < 2; block++)
        landing_block(
            landing,
            (struct entry_header){
                .type = ENTRY_COMMIT_VERSIONS, .value_bytes = bytes, .block = block, .blocks = 2},
            NULL, value);
}

TEST(commit_versions_that_make_no_sense_are_ignored)
{
    struct landing landing = landing_begin(stage);
    uint8_t value[64] = {0};
    const struct commit_shard row = {STAGE_BACKED, version_make(1, 9)};
    uint32_t bytes = commit_encode(&row, 1, NULL, 0, value);

    landing_value(&landing, value, 0);
    landing_value(&landing, value, bytes - 1);
    landing_value(&landing, value, bytes + 1);
    value[0] = 2;
    landing_value(&landing, value, bytes);
    value[0] = 1;
    value[COMMIT_HEAD_BYTES + 3] = 1;
    landing_value(&landing, value, bytes);
    /* A right value where the key would be. */
    value[COMMIT_HEAD_BYTES + 3] = 0;
    landing_block(&landing,
                  (struct entry_header){.type = ENTRY_COMMIT_VERSIONS,
                                        .key_bytes = (uint16_t)bytes,
                                        .value_bytes = bytes,
                                        .blocks = 1},
                  (const char *)value, value);
    land_long_commit(&landing);
    landing_put(&landing, 1);
    stage_pass(stage, NS_PER_S);
    landing_assert_no_fetch(&landing);
    struct landing_said said = landing_ask(&landing);

    assert_int_equal(said.commit, version_make(1, 0));
    assert_int_equal(said.version, version_make(1, 1));
    assert_int_equal(server_error(stage->server), 0);
}

/* --- the uncommitted suffix, as the next primary asks for it --- */

static uint64_t ask_page(struct landing *landing, uint64_t cursor, uint64_t *next)
{
    Rowan__GetSuffix body = ROWAN__GET_SUFFIX__INIT;
    Rowan__ControlMessage *answer;
    const struct puppet_sent *sent;
    uint32_t tag;

    body.shard = STAGE_BACKED;
    body.epoch = 2;
    body.cursor = cursor;
    stage_tell(landing->peer, 7, &CONTROL_MESSAGE(GET_SUFFIX, get_suffix, &body));
    stage_run(landing->stage);
    do
        sent = puppet_take(landing->stage->fabric);
    while (sent && sent->conn != landing->peer);
    assert_non_null(sent);
    assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &answer), 0);
    assert_int_equal(answer->body_case, ROWAN__CONTROL_MESSAGE__BODY_SUFFIX_IS);
    for (size_t i = 0; i < answer->suffix_is->n_blocks; i++)
        assert_int_equal(entry_version(answer->suffix_is->blocks[i].data),
                         version_make(1, (*next)++));
    cursor = answer->suffix_is->cursor;
    control_free(answer);
    return cursor;
}

TEST(a_long_suffix_is_told_in_pages_each_entry_once)
{
    enum { ENTRIES = 2500, MOST_PAGES = 4 };
    struct landing landing = landing_begin(stage);
    uint64_t cursor = 0, next = 1;
    unsigned pages = 0;

    for (uint64_t counter = 1; counter <= ENTRIES; counter++)
        landing_put(&landing, counter);
    stage_run(stage);
    landing = landing_return(stage);
    do
        cursor = ask_page(&landing, cursor, &next);
    while (++pages < MOST_PAGES && cursor);
    assert_true(pages > 1 && !cursor);
    assert_int_equal(next, ENTRIES + 1);
}

UNIT_MAIN(NULL, NULL)
