/* A server as a backup: what its digest role keeps for the next log reconciliation, and for its own promotion. The test plays
 * the primary (server 2), and whoever asks. */
#define TEST_FIXTURE open_stage, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/entry/commit.h"
#include "landing.h"
#include "server/control/control_state.h"
#include "server/digest/digest_state.h"
#include "test/lib/unit.h"

enum { LIMIT = 1024, LONG_BYTES = 300 << 10, GAP = 64 };

static int open_stage(void **state)
{
    stage_open(stage_new(state), LIMIT);
    return 0;
}

static struct shard_state *shard_of(const struct stage *stage)
{
    return stage_digest(stage)->shards[STAGE_BACKED];
}

/* Counters 1 to `counter` landed before. */
static struct landing restarted(struct stage *stage, uint64_t counter)
{
    struct landing landing = landing_begin(stage);

    for (uint64_t i = 1; i <= counter; i++)
        landing_put(&landing, i);
    stage_run(stage);
    return landing_return(stage);
}

struct page {
    uint64_t cursor;
    uint32_t block;
    uint32_t blocks;       /* that were told */
    uint64_t counters[16]; /* of the entries that began with them */
    uint32_t count;
    bool answered;
};

static void ask(struct landing *landing, const struct page *page)
{
    Rowan__GetSuffix body = ROWAN__GET_SUFFIX__INIT;

    body.shard = STAGE_BACKED;
    body.epoch = 2;
    body.cursor = page->cursor;
    body.block = page->block;
    landing->stage->fabric->taken = landing->stage->fabric->sent_count;
    stage_tell(landing->peer, 7, &CONTROL_MESSAGE(GET_SUFFIX, get_suffix, &body));
    stage_run(landing->stage);
}

static void read_page(const Rowan__SuffixIs *is, struct page *page)
{
    for (size_t i = 0; i < is->n_blocks; i++) {
        struct entry_header header;
        entry_peek(is->blocks[i].data, &header);
        if (header.block == 0 && page->count < 16)
            page->counters[page->count++] = version_counter(header.version);
    }
    page->blocks += (uint32_t)is->n_blocks;
    page->cursor = is->cursor;
    page->block = is->block;
    page->answered = true;
}

static void read_answer(const struct landing *landing, struct page *page)
{
    const struct puppet_sent *sent;

    page->answered = false;
    while (!page->answered && (sent = puppet_take(landing->stage->fabric))) {
        Rowan__ControlMessage *message;
        uint32_t tag;

        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SUFFIX_IS)
            read_page(message->suffix_is, page);
        control_free(message);
    }
}

/* All pages. */
static struct page told(struct landing *landing)
{
    struct page page = {0};

    do {
        ask(landing, &page);
        read_answer(landing, &page);
    } while (page.answered && page.cursor);
    return page;
}

static void assert_told(struct landing *landing, const uint64_t *counters, uint32_t count)
{
    const struct page page = told(landing);

    assert_true(page.answered);
    assert_int_equal(page.count, count);
    assert_memory_equal(page.counters, counters, count * sizeof *counters);
}

/* --- the suffix --- */

TEST(what_lands_after_a_start_joins_what_the_start_has_found)
{
    struct landing landing = restarted(stage, 2);

    landing_put(&landing, 5);
    landing_put(&landing, 4);
    assert_told(&landing, (const uint64_t[]){1, 2, 4, 5}, 4);
    landing_put(&landing, 3);
    assert_told(&landing, (const uint64_t[]){1, 2, 3, 4, 5}, 5);
    landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
    stage_run(stage);
    assert_told(&landing, NULL, 0); /* the epoch has begun: who asks now is late */
}

TEST(what_is_settled_leaves_the_suffix_and_what_is_not_stays)
{
    struct landing landing = landing_begin(stage);
    struct suffix *suffix = &shard_of(stage)->suffix;

    for (uint64_t counter = 1; counter <= 3; counter++)
        landing_put(&landing, counter);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 3));
    landing_seal(&landing);
    landing_put(&landing, 4);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 4));
    landing_ask(&landing);
    suffix_sort(suffix);
    assert_int_equal(suffix->count, 1);
    assert_int_equal(suffix->items[0].version, version_make(1, 4));
}

/* As it was told that it has what it has. */
TEST(nothing_is_settled_between_the_pages_of_a_suffix)
{
    struct landing landing = landing_begin(stage);

    for (uint64_t counter = 1; counter <= 3; counter++)
        landing_put(&landing, counter);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    stage_run(stage);
    landing = landing_return(stage);
    landing_seal(&landing);
    assert_int_equal(landing_ask(&landing).commit, version_make(1, 2));
    assert_int_equal(landing_ask(&landing).settled, version_make(1, 0));
    assert_told(&landing, (const uint64_t[]){1, 2, 3}, 3);
}

TEST(an_entry_longer_than_a_page_is_told_whole_though_others_come_meanwhile)
{
    struct landing landing = restarted(stage, 1);
    const struct entry_format format = stage_format(stage);
    const uint32_t blocks =
        entry_blocks(&format, (uint32_t)strlen(stage_key_of(STAGE_BACKED)), LONG_BYTES);
    struct page page = {0};

    landing_long(&landing, version_make(1, 4), LONG_BYTES, 0);
    ask(&landing, &page);
    read_answer(&landing, &page);
    assert_true(page.answered && page.cursor == version_make(1, 4) && page.block > 0);
    landing_put(&landing, 2);
    landing_put(&landing, 5);
    stage_pass(stage, NS_PER_S);
    while (page.cursor) {
        ask(&landing, &page);
        read_answer(&landing, &page);
        assert_true(page.answered);
    }
    assert_int_equal(page.blocks, 1 + blocks + 1);
    assert_memory_equal(page.counters, ((const uint64_t[]){1, 4, 5}), 3 * sizeof(uint64_t));
}

/* Its blocks lie apart, and are not copied, as a newer entry of its key is committed. */
TEST(a_superseded_entry_in_pieces_is_not_missing_and_is_told_to_nobody)
{
    struct landing landing = landing_begin(stage);
    struct suffix *suffix = &shard_of(stage)->suffix;

    landing_put(&landing, 2);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 2));
    landing_long(&landing, version_make(1, 1), 2 * LIMIT, version_make(1, 1));
    assert_false(landing_ask(&landing).missing);
    suffix_sort(suffix);
    assert_int_equal(suffix->count, 2);
    assert_int_equal(suffix->items[0].offset, 0);
    assert_int_equal(suffix->contiguous, version_make(1, 2));
}

/* --- catching up --- */

TEST(a_suffix_is_told_with_what_landed_behind_a_gap_and_then_in_it)
{
    struct landing landing = restarted(stage, 1);
    const uint64_t gap = landing.offset;

    landing.offset += 2 * GAP;
    landing_put(&landing, 3);
    assert_told(&landing, (const uint64_t[]){1, 3}, 2); /* no time goes on */
    landing.offset = gap;
    landing_put(&landing, 2);
    assert_told(&landing, (const uint64_t[]){1, 2, 3}, 3);
}

/* A sender that was stopped holds up the sealing of the full segment. */
TEST(a_suffix_waits_for_a_segment_behind_which_something_has_landed)
{
    struct landing landing = restarted(stage, 1);
    const struct puppet_fabric *fabric = stage->fabric;
    struct page page = {0};

    landing_put(&landing, 2);
    landing.offset = fabric->posts[fabric->sealed + 1].offset + STORE_SEGMENT_BYTES - 128 * GAP;
    landing_put(&landing, 3);
    ask(&landing, &page);
    stage_pass(stage, NS_PER_S);
    read_answer(&landing, &page);
    assert_false(page.answered);
    landing_seal(&landing);
    read_answer(&landing, &page);
    assert_true(page.answered);
    assert_int_equal(page.count, 3);
}

/* --- what may be asked again --- */

enum { CLIENT = 7, OTHER = 8 };

static void land_acknowledged(struct landing *landing, uint32_t client, uint32_t lowest)
{
    uint8_t value[64];
    const struct commit_client row = {client, lowest};

    landing_value(landing, value, commit_encode(NULL, 0, &row, 1, value));
}

static int verdict(struct shard_state *shard, uint32_t client, uint32_t operation,
                   uint64_t *version)
{
    return records_look(&shard->records, client, operation, 0, version);
}

TEST(who_is_promoted_knows_what_may_be_asked_again)
{
    struct landing landing = landing_begin(stage);
    struct shard_state *shard = shard_of(stage);
    uint64_t version = 0;

    landing_put_of(&landing, 1, CLIENT, 10);
    landing_put_of(&landing, 2, CLIENT, 11);
    landing_put_of(&landing, 3, OTHER, 1);
    land_acknowledged(&landing, CLIENT, 11);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 3));
    landing_seal(&landing);
    assert_int_equal(landing_ask(&landing).settled, version_make(1, 3));
    landing_put_of(&landing, 4, OTHER, 2);
    landing_ask(&landing);
    digest_tail_leave(shard);
    assert_int_equal(records_count(&shard->records), 3);
    assert_int_equal(verdict(shard, CLIENT, 11, &version), RECORDS_DONE);
    assert_true(version == version_make(1, 2));
    assert_int_equal(verdict(shard, OTHER, 1, &version), RECORDS_DONE);
    assert_int_equal(verdict(shard, OTHER, 2, &version), RECORDS_DONE);
    assert_true(version == version_make(1, 4));
}

/* What is above the settled version, and what is below. */
TEST(who_is_promoted_after_a_start_knows_it_too)
{
    struct landing landing = landing_begin(stage);
    uint64_t version = 0;

    landing_put_of(&landing, 1, CLIENT, 10);
    landing_commit(&landing, STAGE_BACKED, version_make(1, 1));
    landing_seal(&landing);
    stage_pass(stage, NS_PER_S); /* it is settled, durably */
    landing_put_of(&landing, 2, OTHER, 1);
    landing_ask(&landing);
    (void)landing_return(stage);
    struct shard_state *shard = shard_of(stage);
    assert_true(atomic_load(&shard->settled) == version_make(1, 1));
    digest_tail_leave(shard);
    assert_int_equal(verdict(shard, CLIENT, 10, &version), RECORDS_DONE);
    assert_int_equal(verdict(shard, OTHER, 1, &version), RECORDS_DONE);
    assert_true(version == version_make(1, 2));
}

UNIT_MAIN(NULL, NULL)
