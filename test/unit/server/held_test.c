/* Which segments a primary still needs, and what it answers to Fetch about versions that a cleaner has moved or dropped. The
 * test plays the cleaner. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "landing.h"
#include "server/control/control_state.h"
#include "server/digest/digest_state.h"
#include "server/worker/worker_state.h"
#include "test/lib/unit.h"

enum { SHARD = 1, VERSIONS = 10 };

static struct server_common *common_of(const struct stage *stage)
{
    const struct control *control = server_poller(stage->server, 0).role;

    return control->common;
}

static const struct fetch *fetch_of(const struct stage *stage)
{
    const struct worker *worker = server_poller(stage->server, 1).role;

    return &worker->fetch;
}

/* The epoch that a role announces: worker 0 is number 1, digest 0 number 2. */
static uint64_t since(const struct stage *stage, uint32_t role)
{
    const struct poller poller = server_poller(stage->server, role);

    return role == 1 ? reclaim_since(&((const struct worker *)poller.role)->reclaim)
                     : reclaim_since(&((const struct digest *)poller.role)->reclaim);
}

static bool is_over(const struct stage *stage, uint64_t ticket)
{
    return reclaim_is_over(&common_of(stage)->reclaim, ticket);
}

/* --- at a start --- */

/* What the start has found is on its way to them. */
TEST(the_roles_hold_all_until_their_shards_are_handed_out)
{
    stage_close(stage);
    stage_start(stage, STAGE_BLOCK_LIMIT);
    const uint64_t ticket = reclaim_retire(&common_of(stage)->reclaim);
    for (uint32_t role = 1; role <= 2; role++) {
        stage_run(stage);
        assert_false(is_over(stage, ticket));
        assert_int_equal(since(stage, role), 1);
    }
    stage_begin(stage);
    assert_true(is_over(stage, ticket));
}

TEST(a_worker_holds_nothing_while_it_reconciles_data_that_may_be_incomplete_but_their_places)
{
    stage->boot++;
    stage_return(stage);
    const struct worker *worker = server_poller(stage->server, 1).role;
    assert_true(since(stage, 1) == RECLAIM_NOTHING);
    assert_true(atomic_load(&worker->shards[SHARD]->exposed) < version_make(2, 0));
}

/* --- batches on their way --- */

static uint64_t sends_from(const struct stage *stage)
{
    return worker_sends_from(server_poller(stage->server, 1).role);
}

/* Of the open segment, and nothing else: others can be cleaned though the peer has no space (W12). */
TEST(segments_of_which_something_is_sent_are_told_until_it_has_landed)
{
    struct puppet_conn *client = stage_client(stage);

    for (unsigned i = 0; i < 2; i++) {
        if (i == 0)
            stage_put(stage, client, stage_key_of(SHARD));
        else
            stage_pass(stage, 15 * NS_PER_MS); /* the commit version goes */
        stage_run(stage);
        const uint64_t from = sends_from(stage);
        stage_pass(stage, NS_PER_MS);
        assert_true(from != WORKER_SENDS_NOTHING && sends_from(stage) == from);
        assert_true(is_over(stage, reclaim_retire(&common_of(stage)->reclaim)));
        assert_true(puppet_land(stage->peer));
        stage_run(stage);
        assert_true(sends_from(stage) == WORKER_SENDS_NOTHING);
    }
    assert_true(since(stage, 1) == RECLAIM_NOTHING); /* it may sleep for long */
}

TEST(a_connection_that_has_gone_sends_nothing)
{
    stage_put(stage, stage_client(stage), stage_key_of(SHARD));
    stage_run(stage);
    assert_true(sends_from(stage) != WORKER_SENDS_NOTHING);
    puppet_close(stage->peer, ROWAN_ECLOSED);
    stage_run(stage);
    assert_true(sends_from(stage) == WORKER_SENDS_NOTHING);
}

/* The log has left its segment, which would be cleaned once the write completes: by another peer, or without this one. */
TEST(a_write_that_is_sent_again_is_sent_from_its_segment)
{
    enum { BYTES = (1 << 20) - 1000, LANDED = 2, PUTS = 5 };
    static uint8_t value[BYTES];
    struct puppet_conn *client = stage_client(stage);
    const struct worker *worker = server_poller(stage->server, 1).role;
    const char *key = stage_key_of(SHARD);
    uint64_t first = 0;

    for (unsigned i = 0; i < PUTS; i++) {
        stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value, BYTES, 0);
        stage_run(stage);
        if (i < LANDED)
            assert_true(puppet_land(stage->peer));
        if (i == LANDED)
            first = sends_from(stage);
    }
    assert_true(worker->log.allocation > first);
    stage_reconnect_peer(stage);
    stage_run(stage);
    assert_true(first != WORKER_SENDS_NOTHING && sends_from(stage) == first);
}

/* --- the cleaner --- */

static uint64_t segment_of(const struct stage *stage, uint64_t offset)
{
    return (offset - store_segment_offset(common_of(stage)->store, 0)) / STORE_SEGMENT_BYTES;
}

/* The place of that version's only block. */
static uint64_t place_of(const struct stage *stage, uint64_t version, uint32_t *bytes)
{
    const struct entry_format format = stage_format(stage);

    for (uint32_t i = 0; i < stage->fabric->log_count; i++) {
        const struct puppet_block *block = &stage->fabric->log[i];
        struct entry_header header;

        if (!entry_decode(&format, block->data, block->bytes, &header, bytes) &&
            header.shard == SHARD && header.version == version)
            return (uint64_t)(block->data - (const uint8_t *)pm_at(&stage->heap->pm, 0));
    }
    fail_msg("version %lx was not sent", version);
    return 0;
}

/* One batch is always on its way, and never the same for long. */
TEST(a_busy_worker_lets_go_of_what_has_landed_and_of_nothing_else)
{
    enum { BYTES = (1 << 20) - 1000, PUTS = 20 };
    static uint8_t value[BYTES];
    struct puppet_conn *client = stage_client(stage);
    const char *key = stage_key_of(SHARD);
    uint64_t first = 0, from = 0;

    for (unsigned i = 1; i <= PUTS; i++) {
        uint32_t bytes;

        stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value, BYTES, 0);
        stage_run(stage);
        if (i > 1)
            assert_true(puppet_land(stage->peer));
        stage_run(stage);
        from = sends_from(stage);
        first = i == 1 ? from : first;
        assert_true(from <=
                    store_meta(common_of(stage)->store,
                               segment_of(stage, place_of(stage, version_make(1, i), &bytes)))
                        .allocation);
    }
    assert_true(from > first + PUTS / 5);
}

/* It had a segment of its own, which is free again. */
static void drop(struct stage *stage, uint64_t counter)
{
    static const uint8_t zeros[ENTRY_MAX_BLOCK_LIMIT];
    uint32_t bytes;
    const uint64_t at = place_of(stage, version_make(1, counter), &bytes);

    pm_store(&stage->heap->pm, at, zeros, bytes);
}

static void put_and_land(struct stage *stage, uint32_t shard, uint32_t value_bytes)
{
    static const uint8_t value[ENTRY_MAX_VALUE_BYTES];
    struct puppet_conn *client = stage_client(stage);
    const char *key = stage_key_of(shard);

    stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value, value_bytes, 0);
    stage_land_all(stage);
}

/* Versions of SHARD, all of them settled: at the end of a segment that is closed. */
static void put_all(struct stage *stage)
{
    for (unsigned i = 0; i < 3; i++)
        put_and_land(stage, 0, ENTRY_MAX_VALUE_BYTES);
    for (unsigned i = 0; i < VERSIONS; i++)
        put_and_land(stage, SHARD, 5);
    put_and_land(stage, 0, ENTRY_MAX_VALUE_BYTES);
    stage_pass(stage, 15 * NS_PER_MS);
    stage_land_all(stage);
}

/* --- what is asked for --- */

static void ask(struct stage *stage, uint64_t first, uint64_t last)
{
    Rowan__Fetch fetch = ROWAN__FETCH__INIT;

    fetch.shard = SHARD;
    fetch.first = version_make(1, first);
    fetch.last = version_make(1, last);
    stage_tell(stage->peer, 7, &CONTROL_MESSAGE(FETCH, fetch, &fetch));
}

/* Of the versions up to 16, those that were brought since then (low half of the word), and told to be gone. */
static uint32_t answers(const struct stage *stage, uint32_t from)
{
    const struct entry_format format = stage_format(stage);
    uint32_t answers = 0;

    for (; from < stage->fabric->sent_count; from++) {
        const struct puppet_sent *sent = &stage->fabric->sent[from];
        Rowan__ControlMessage *message;
        uint32_t tag, bytes;

        if (sent->conn != stage->peer || control_decode(sent->data, sent->bytes, &tag, &message))
            continue;
        const Rowan__StoreEntries *entries =
            message->body_case == ROWAN__CONTROL_MESSAGE__BODY_STORE_ENTRIES
                ? message->store_entries
                : NULL;
        const uint32_t all = entries && entries->n_blocks ? (uint32_t)entries->blocks[0].len : 0;
        for (uint32_t at = 0; at < all; at += bytes) {
            static _Alignas(64) uint8_t block[ENTRY_MAX_BLOCK_LIMIT];
            const uint32_t left = all - at < sizeof block ? all - at : sizeof block;
            struct entry_header header;

            memcpy(block, entries->blocks[0].data + at, left);
            assert_int_equal(entry_decode(&format, block, left, &header, &bytes), 0);
            answers |= UINT32_C(1) << version_counter(header.version);
        }
        for (size_t i = 0; entries && i < entries->n_gone; i++) {
            for (uint64_t v = entries->gone[i]->first; v <= entries->gone[i]->last; v++)
                answers |= UINT32_C(1) << (16 + version_counter(v));
        }
        control_free(message);
    }
    return answers;
}

static uint32_t fetch(struct stage *stage, uint64_t first, uint64_t last)
{
    const uint32_t from = stage->fabric->sent_count;

    ask(stage, first, last);
    stage_land_all(stage);
    assert_int_equal(fetch_of(stage)->count, 0);
    return answers(stage, from);
}

#define BROUGHT(counter) (UINT32_C(1) << (counter))
#define GONE(counter)    (UINT32_C(1) << (16 + (counter)))

TEST(settled_versions_that_lie_nowhere_are_gone)
{
    put_all(stage);
    assert_int_equal(fetch(stage, 2, 4), BROUGHT(2) | BROUGHT(3) | BROUGHT(4));
    drop(stage, 3);
    drop(stage, 4);
    drop(stage, 7);
    assert_int_equal(fetch(stage, 2, 8), BROUGHT(2) | GONE(3) | GONE(4) | BROUGHT(5) | BROUGHT(6) |
                                             GONE(7) | BROUGHT(8));
    assert_int_equal(fetch(stage, 7, 7), GONE(7));
    assert_int_equal(fetch(stage, 5, 6), BROUGHT(5) | BROUGHT(6));
}

TEST(what_is_gone_is_told_until_it_is_confirmed_or_refused)
{
    put_all(stage);
    drop(stage, 3);
    uint32_t from = stage->fabric->sent_count;
    stage->peer->room = 0;
    ask(stage, 3, 3);
    stage_pass(stage, NS_PER_S);
    assert_int_equal(answers(stage, from), 0);
    stage->peer->room = UINT32_MAX;
    stage_pass(stage, NS_PER_MS);
    assert_int_equal(answers(stage, from), GONE(3));
    const uint64_t ticket = reclaim_retire(&common_of(stage)->reclaim);
    stage_pass(stage, NS_PER_S);
    assert_false(is_over(stage, ticket));
    assert_true(stage_confirm(stage, ROWAN_EAGAIN));
    from = stage->fabric->sent_count;
    stage_pass(stage, NS_PER_S);
    assert_int_equal(answers(stage, from), 0); /* it asks again */
    assert_true(is_over(stage, ticket));
}

TEST(what_is_not_settled_is_not_gone)
{
    put_all(stage);
    put_and_land(stage, SHARD, 5);
    stage_pass(stage, 15 * NS_PER_MS);
    stage_land_all(stage);
    drop(stage, 10);
    drop(stage, 11); /* committed, but its segment is open */
    assert_int_equal(fetch(stage, 9, 11), BROUGHT(9) | GONE(10));
}

TEST(nothing_is_gone_while_something_is_damaged_where_it_may_have_been)
{
    uint32_t bytes;

    put_all(stage);
    drop(stage, 3);
    uint8_t *at =
        (uint8_t *)(uintptr_t)pm_at(&stage->heap->pm, place_of(stage, version_make(1, 9), &bytes));
    at[40] ^= 1;
    assert_int_equal(fetch(stage, 2, 4), BROUGHT(2) | BROUGHT(4));
    at[40] ^= 1;
    assert_int_equal(fetch(stage, 2, 4), BROUGHT(2) | GONE(3) | BROUGHT(4));
}

/* What other servers have torn there is no version of this primary. */
TEST(damage_in_the_backup_log_is_none_of_it)
{
    struct landing landing = landing_begin(stage);
    const uint64_t at = landing_put(&landing, 1);

    put_all(stage);
    drop(stage, 3);
    ((uint8_t *)(uintptr_t)pm_at(&stage->heap->pm, at))[40] ^= 1;
    landing_seal(&landing);
    assert_int_equal(store_meta(common_of(stage)->store, segment_of(stage, at)).state,
                     SEGMENT_USED);
    assert_int_equal(fetch(stage, 3, 3), GONE(3));
}

/* The scan has passed the new place, which was free then, and has not come to the old one. */
TEST(a_version_that_is_moved_during_the_round_is_found_in_its_old_place)
{
    uint32_t bytes;

    put_all(stage);
    struct store *store = common_of(stage)->store;
    const uint64_t old = place_of(stage, version_make(1, 3), &bytes);
    while (fetch_of(stage)->segment <= segment_of(stage, old))
        fetch(stage, 1, 1); /* a round, and one segment more */
    const uint32_t from = stage->fabric->sent_count;
    ask(stage, 3, 3);
    do
        stage_poll(stage);
    while (fetch_of(stage)->segment != segment_of(stage, old));
    assert_int_equal(answers(stage, from), 0);

    uint64_t segment, ticket;
    assert_int_equal(store_allocate(store, OWNER_CLEAN, 0, &segment), 0);
    assert_true(segment > segment_of(stage, old));
    pm_store(&stage->heap->pm, store_segment_offset(store, segment), pm_at(&stage->heap->pm, old),
             bytes);
    store_transition(store, segment, SEGMENT_USED);
    ticket = reclaim_retire(&common_of(stage)->reclaim);
    for (bool freed = false; fetch_of(stage)->count; stage_poll(stage)) {
        if (!freed && is_over(stage, ticket))
            drop(stage, 3);
        freed |= is_over(stage, ticket);
        stage_confirm(stage, 0);
    }
    assert_int_equal(answers(stage, from), BROUGHT(3));
    assert_true(is_over(stage, ticket));
    drop(stage, 3);
    assert_int_equal(fetch(stage, 3, 3), BROUGHT(3));
}

/* The scan stands inside a segment when the last question ends. */
TEST(without_a_question_the_scan_holds_nothing)
{
    put_all(stage);
    ask(stage, 3, 3);
    do
        stage_poll(stage);
    while (!fetch_of(stage)->inside);
    const uint64_t ticket = reclaim_retire(&common_of(stage)->reclaim);
    stage_poll(stage);
    assert_false(is_over(stage, ticket));
    puppet_close(stage->peer, ROWAN_ECLOSED);
    stage_run(stage);
    assert_true(is_over(stage, ticket));
    assert_false(fetch_of(stage)->inside);
}

UNIT_MAIN(NULL, NULL)
