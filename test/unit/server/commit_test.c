/* Commit versions through a whole server as a primary: what its worker spreads, and how it sends again
 * what a backup never got. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "common/entry/commit.h"
#include "common/entry/entry.h"
#include "landing.h"
#include "server/worker/worker_state.h"
#include "test/lib/unit.h"

#define SPREAD_NS (15 * NS_PER_MS)

/* --- the primary: what it sends --- */

/* The commit version of the shard in the blocks [from, to) that were sent; 0: none. *entries: how many
 * entries of commit versions there are. */
static uint64_t spread(const struct stage *stage, uint32_t from, uint16_t shard, uint32_t *entries)
{
    const struct entry_format format = stage_format(stage);
    uint64_t version = 0;

    *entries = 0;
    for (uint32_t i = from; i < stage->fabric->log_count; i++) {
        const struct puppet_block *block = &stage->fabric->log[i];
        struct entry_header header;
        struct commit_value value;
        uint32_t bytes;

        assert_int_equal(entry_decode(&format, block->data, block->bytes, &header, &bytes), 0);
        if (header.type != ENTRY_COMMIT_VERSIONS)
            continue;
        assert_int_equal(header.version, 0);
        assert_int_equal(header.client_id, 1);
        assert_int_equal(header.operation, 0);
        assert_int_equal(
            commit_decode(block->data + ENTRY_HEADER_BYTES, header.value_bytes, &value, NULL), 0);
        ++*entries;
        for (uint32_t row = 0; row < value.shards; row++) {
            if (commit_shard_at(&value, row).shard == shard)
                version = commit_shard_at(&value, row).version;
        }
    }
    return version;
}

TEST(a_commit_version_is_spread_15_ms_after_it_changed_and_once)
{
    struct puppet_conn *client = stage_client(stage);
    uint32_t entries;

    stage_put_lands(stage, client, stage_key_of(0));
    assert_int_equal(stage->wake_ns, stage->now_ns + SPREAD_NS);
    stage_pass(stage, SPREAD_NS - 1);
    assert_int_equal(spread(stage, 0, 0, &entries), 0);
    assert_int_equal(entries, 0);
    stage_pass(stage, 1);
    assert_int_equal(spread(stage, 0, 0, &entries), version_make(1, 1));
    assert_int_equal(entries, 1);
    stage_land_all(stage);
    uint32_t sent = stage->fabric->log_count;

    stage_pass(stage, 60 * NS_PER_S);
    assert_int_equal(stage->fabric->log_count, sent);
    assert_int_equal(stage->wake_ns, WAKE_NEVER);
    stage_put_lands(stage, client, stage_key_of(0));
    stage_pass(stage, SPREAD_NS - 1);
    assert_int_equal(spread(stage, sent, 0, &entries), 0);
    stage_pass(stage, 1);
    assert_int_equal(spread(stage, sent, 0, &entries), version_make(1, 2));
}

/* A store that no fence follows is lost with the power. */
TEST(a_commit_version_is_fenced_in_the_log)
{
    stage_put_lands(stage, stage_client(stage), stage_key_of(0));
    uint64_t fences = atomic_load(&stage->heap->fences);

    stage_pass(stage, SPREAD_NS);
    assert_int_equal(atomic_load(&stage->heap->fences), fences + 1);
    stage_land_all(stage);
    stage_pass(stage, 10 * NS_PER_S);
    assert_int_equal(atomic_load(&stage->heap->fences), fences + 1);
}

TEST(shards_that_change_together_share_an_entry)
{
    struct puppet_conn *client = stage_client(stage);
    uint32_t entries;

    for (unsigned i = 0; i < 30; i++) {
        stage_put_lands(stage, client, stage_key_of(i % 3));
        stage->now_ns += NS_PER_MS / 4;
    }
    stage_pass(stage, 2 * SPREAD_NS);
    for (uint16_t shard = 0; shard < 3; shard++)
        assert_int_equal(spread(stage, 0, shard, &entries), version_make(1, 10));
    assert_int_equal(entries, 1);
}

TEST(what_has_not_landed_is_not_covered)
{
    struct puppet_conn *client = stage_client(stage);
    uint32_t entries;

    stage_put(stage, client, stage_key_of(0));
    stage_poll(stage);
    stage_put(stage, client, stage_key_of(0));
    stage_poll(stage);
    assert_true(puppet_land(stage->peer));
    stage_pass(stage, NS_PER_S);
    assert_int_equal(spread(stage, 0, 0, &entries), version_make(1, 1));
    stage_land_all(stage);
    stage_pass(stage, SPREAD_NS);
    assert_int_equal(spread(stage, 0, 0, &entries), version_make(1, 2));
}

TEST(a_write_that_is_not_durable_here_is_not_covered)
{
    uint32_t entries;

    stage_hold_fences(stage, true);
    stage_put_lands(stage, stage_client(stage), stage_key_of(0));
    stage->now_ns += NS_PER_S;
    stage_land_all(stage);
    assert_int_equal(spread(stage, 0, 0, &entries), 0);
    assert_int_equal(entries, 0);
}

TEST(a_peer_that_comes_back_is_told_all_figures_again)
{
    struct puppet_conn *client = stage_client(stage);
    uint32_t entries;

    stage_put(stage, client, stage_key_of(0));
    stage_put_lands(stage, client, stage_key_of(1));
    stage_pass(stage, SPREAD_NS);
    uint32_t sent = stage->fabric->log_count;

    stage_reconnect_peer(stage);
    stage_pass(stage, SPREAD_NS);
    assert_int_equal(spread(stage, sent, 0, &entries), version_make(1, 1));
    assert_int_equal(spread(stage, sent, 1, &entries), version_make(1, 1));
    assert_int_equal(spread(stage, sent, 2, &entries), 0);
    assert_int_equal(entries, 1);
}

TEST(a_peer_without_room_is_told_when_it_has_some)
{
    uint32_t entries;

    stage_put_lands(stage, stage_client(stage), stage_key_of(0));
    stage->peer->no_rowan_room = true;
    stage_pass(stage, NS_PER_S);
    assert_int_equal(spread(stage, 0, 0, &entries), 0);
    assert_int_equal(stage->wake_ns, WAKE_NEVER); /* what lands wakes it */
    stage->peer->no_rowan_room = false;
    stage_pass(stage, SPREAD_NS);
    assert_int_equal(spread(stage, 0, 0, &entries), version_make(1, 1));
    assert_int_equal(entries, 1);
}

/* --- clients' lowest unanswered numbers --- */

/* The number of that client in the blocks that were sent from `from` on; 0: none. *rows: of all clients. */
static uint32_t spread_low(const struct stage *stage, uint32_t from, uint32_t client,
                           uint32_t *rows)
{
    uint32_t lowest = 0;

    *rows = 0;
    for (uint32_t i = from; i < stage->fabric->log_count; i++) {
        const uint8_t *at = stage->fabric->log[i].data;
        struct entry_header header;
        struct commit_value value;

        entry_peek(at, &header);
        if (header.type != ENTRY_COMMIT_VERSIONS)
            continue;
        assert_int_equal(commit_decode(at + ENTRY_HEADER_BYTES, header.value_bytes, &value, NULL),
                         0);
        *rows += value.clients;
        for (uint32_t row = 0; row < value.clients; row++) {
            if (commit_client_at(&value, row).client == client)
                lowest = commit_client_at(&value, row).lowest;
        }
    }
    return lowest;
}

/* A put to each of the three shards, which carries the client's lowest unanswered number. */
static void put_three(struct stage *stage, struct puppet_conn *client, uint32_t operation,
                      uint32_t lowest)
{
    for (uint32_t shard = 0; shard < 3; shard++) {
        const char *key = stage_key_of(shard);
        const struct message_request request = {.type = MESSAGE_PUT,
                                                .operation = operation + shard,
                                                .lowest_unanswered = lowest,
                                                .key_bytes = (uint16_t)strlen(key),
                                                .value_bytes = 5};

        stage_send(stage, client, &request, key, "value");
    }
    stage_land_all(stage);
}

TEST(a_client_s_lowest_number_is_spread_after_100_ms_and_once)
{
    struct puppet_conn *client = stage_client_again(stage, 77);
    uint32_t rows;

    put_three(stage, client, 1, 1);
    put_three(stage, client, 4, 4);
    stage_pass(stage, 50 * NS_PER_MS);
    assert_int_equal(spread_low(stage, 0, 77, &rows), 0);
    stage_pass(stage, 50 * NS_PER_MS);
    assert_int_equal(spread_low(stage, 0, 77, &rows), 4);
    assert_int_equal(rows, 1); /* though three shards know it */
    stage_land_all(stage);
    uint32_t sent = stage->fabric->log_count;

    put_three(stage, client, 7, 4);
    stage_pass(stage, 10 * NS_PER_S);
    assert_int_equal(spread_low(stage, sent, 77, &rows), 0);
    assert_int_equal(rows, 0);
    put_three(stage, client, 10, 7);
    stage_pass(stage, 10 * NS_PER_S);
    assert_int_equal(spread_low(stage, sent, 77, &rows), 7);
    assert_int_equal(rows, 1);
}

TEST(that_a_client_has_gone_is_spread_too)
{
    struct puppet_conn *client = stage_client_again(stage, 77);
    uint32_t rows;

    put_three(stage, client, 1, 1);
    stage_pass(stage, 10 * NS_PER_S);
    stage_land_all(stage);
    puppet_close(client, ROWAN_ECLOSED);
    stage_pass(stage, 60 * NS_PER_S);
    uint32_t sent = stage->fabric->log_count;

    stage_pass(stage, 90 * NS_PER_S);
    /* Not that no number matters any more: it has gone from this worker, not from all. */
    assert_int_equal(spread_low(stage, sent, 77, &rows), 4);
    assert_int_equal(rows, 1);
    stage_land_all(stage);
    sent = stage->fabric->log_count;
    stage_pass(stage, 600 * NS_PER_S);
    assert_int_equal(stage->fabric->log_count, sent);
}

/* --- without space --- */

/* Fills this worker's open segment to the last byte; four entries in all, behind the table of clients: three shards, and
 * this client. */
static void fill_segment(struct stage *stage, struct puppet_conn *client)
{
    const struct entry_format format = stage_format(stage);
    uint8_t *value = calloc(1, ENTRY_MAX_VALUE_BYTES);
    const char *key = stage_key_of(0);
    uint32_t key_bytes = (uint32_t)strlen(key), left = FABRIC_SEGMENT_BYTES;

    assert_non_null(value);
    left -=
        entry_bytes(&format, 0, commit_bytes(3, 0)) + entry_bytes(&format, 0, commit_bytes(0, 1));
    for (unsigned i = 0; i < 4; i++) {
        uint32_t bytes = ENTRY_MAX_VALUE_BYTES;

        while (i == 3 && entry_bytes(&format, key_bytes, bytes) > left)
            bytes--;
        left -= entry_bytes(&format, key_bytes, bytes);
        stage_ask(stage, client, MESSAGE_PUT, key, key_bytes, value, bytes, 0);
        stage_land_done(stage);
    }
    assert_int_equal(left, 0);
    free(value);
}

/* Until the landing zone gets no segment any more; one of the posted ones is left open. */
static void fill_zone(struct stage *stage, struct landing *landing)
{
    uint32_t posted;

    fill_segment(stage, stage_client(stage));
    stage->fabric->unquiet = true; /* so that nothing is cleaned */
    do {
        posted = stage->fabric->post_count;
        landing_seal(landing);
        stage_run(stage);
    } while (stage->fabric->post_count > posted);
}

TEST(commit_versions_have_a_segment_when_the_zone_gets_none)
{
    struct landing landing = landing_begin(stage);
    uint32_t entries;

    fill_zone(stage, &landing);
    stage_pass(stage, 10 * NS_PER_S);
    assert_true(landing_ask(&landing).full);
    assert_int_equal(spread(stage, 0, 0, &entries), version_make(1, 4));
    assert_int_equal(entries, 1);
}

TEST(a_full_log_fails_nothing_and_commit_versions_wait)
{
    struct landing landing = landing_begin(stage);
    const char *key = stage_key_of(STAGE_BACKED);
    struct entry_header header = {.type = ENTRY_PUT,
                                  .shard = STAGE_BACKED,
                                  .version = version_make(1, 1),
                                  .key_bytes = (uint16_t)strlen(key),
                                  .value_bytes = STAGE_BLOCK_LIMIT,
                                  .blocks = 2};
    static const uint8_t value[STAGE_BLOCK_LIMIT];
    uint32_t entries;

    fill_zone(stage, &landing);
    landing_block(&landing, header, key, value);
    landing_put(&landing, 2);
    header.block++;
    landing_block(&landing, header, key, value);
    stage_run(stage); /* joined: in the segment that the worker would get */
    for (unsigned i = 0; i < 10; i++) {
        stage_pass(stage, NS_PER_S);
        assert_in_range(stage->wake_ns - stage->now_ns, 10 * NS_PER_MS, NS_PER_S);
    }
    assert_int_equal(spread(stage, 0, 0, &entries), 0);
    assert_int_equal(entries, 0);
    /* Here they count: else nothing would be committed, and cleaned, and servers that are full would wait for ever. */
    const struct worker *worker = server_poller(stage->server, 1).role;

    assert_int_equal(atomic_load(&worker->shards[0]->commit), version_make(1, 4));
    assert_int_equal(server_error(stage->server), 0);
    stage->fabric->taken = stage->fabric->sent_count;
    stage_get(stage, stage_client(stage), stage_key_of(0));
    stage_run(stage);
    assert_int_equal(stage_reply(stage).status, 0);
}

/* --- the primary: what it is asked for --- */

static void ask_fetch(struct stage *stage, uint32_t shard, uint64_t first, uint64_t last)
{
    Rowan__Fetch fetch = ROWAN__FETCH__INIT;

    fetch.shard = shard;
    fetch.first = first;
    fetch.last = last;
    stage_tell(stage->peer, 7, &CONTROL_MESSAGE(FETCH, fetch, &fetch));
}

/* Ten versions of each of the three shards it leads; the third of each has two blocks. */
static void put_ten(struct stage *stage)
{
    static const uint8_t value[STAGE_BLOCK_LIMIT];
    struct puppet_conn *client = stage_client(stage);

    for (unsigned i = 0; i < 30; i++) {
        const char *key = stage_key_of(i % 3);

        stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value,
                  i / 3 == 2 ? sizeof value : i, 0);
        stage_land_all(stage);
    }
    stage_pass(stage, SPREAD_NS);
    stage_land_all(stage);
}

/* How many blocks were brought from message `from` on; all of that shard and between the versions. */
static uint32_t sent_again(const struct stage *stage, uint32_t from, uint16_t shard, uint64_t first,
                           uint64_t last)
{
    const struct entry_format format = stage_format(stage);
    const uint8_t *at;
    uint32_t count = stage_brought(stage, from, &at), bytes, blocks = 0;

    for (const uint8_t *end = at + count; at < end; at += bytes, blocks++) {
        struct entry_header header;

        assert_int_equal(entry_decode(&format, at, (size_t)(end - at), &header, &bytes), 0);
        assert_int_equal(header.type, ENTRY_PUT);
        assert_int_equal(header.shard, shard);
        assert_true(header.version >= first && header.version <= last);
    }
    return blocks;
}

TEST(versions_that_are_asked_for_are_sent_again)
{
    uint64_t first = version_make(1, 2), last = version_make(1, 4);

    put_ten(stage);
    uint32_t sent = stage->fabric->sent_count;

    ask_fetch(stage, 1, first, last);
    stage_land_all(stage);
    assert_int_equal(sent_again(stage, sent, 1, first, last), 4);
    sent = stage->fabric->sent_count;
    ask_fetch(stage, 1, version_make(1, 10), version_make(1, 10));
    stage_land_all(stage);
    assert_int_equal(sent_again(stage, sent, 1, version_make(1, 10), version_make(1, 10)), 1);
}

TEST(questions_that_make_no_sense_are_ignored)
{
    put_ten(stage);
    uint32_t sent = stage->fabric->sent_count;

    ask_fetch(stage, STAGE_BACKED, version_make(1, 1), version_make(1, 2));
    ask_fetch(stage, 4, version_make(1, 1), version_make(1, 2));
    ask_fetch(stage, UINT32_MAX, version_make(1, 1), version_make(1, 2));
    ask_fetch(stage, 1, version_make(1, 3), version_make(1, 2));
    ask_fetch(stage, 1, version_make(1, 3), version_make(1, 11));
    ask_fetch(stage, 1, 0, UINT64_MAX);
    stage_land_all(stage);
    assert_int_equal(stage->fabric->sent_count, sent);
    ask_fetch(stage, 1, version_make(1, 2), version_make(1, 2));
    stage_land_all(stage);
    assert_int_equal(sent_again(stage, sent, 1, version_make(1, 2), version_make(1, 2)), 1);
}

TEST(a_version_in_a_segment_that_is_used_up_is_found_too)
{
    struct puppet_conn *client = stage_client(stage);

    fill_segment(stage, client);
    stage_put_lands(stage, client, stage_key_of(0));
    uint32_t sent = stage->fabric->sent_count;

    ask_fetch(stage, 0, version_make(1, 2), version_make(1, 2));
    stage_land_all(stage);
    assert_in_range(sent_again(stage, sent, 0, version_make(1, 2), version_make(1, 2)), 17, 17);
}

/* One after the other would take a question's time for each; and one that comes in the middle of a scan
 * is owed all of it. */
TEST(questions_about_several_shards_are_answered_in_one_scan)
{
    uint32_t seen[3] = {0};

    put_ten(stage);
    uint32_t sent = stage->fabric->sent_count;

    for (uint32_t shard = 0; shard < 3; shard++) {
        ask_fetch(stage, shard, version_make(1, 1 + shard), version_make(1, 10));
        stage_poll(stage);
    }
    ask_fetch(stage, 2, version_make(1, 10), version_make(1, 10)); /* instead of the one above */
    stage_land_all(stage);
    const struct entry_format format = stage_format(stage);
    const uint8_t *at;
    uint32_t bytes, count = stage_brought(stage, sent, &at);

    for (const uint8_t *end = at + count; at < end; at += bytes) {
        struct entry_header header;

        assert_int_equal(entry_decode(&format, at, (size_t)(end - at), &header, &bytes), 0);
        seen[header.shard]++;
    }
    assert_in_range(seen[0], 11, 22); /* what is met again at the end of the round is sent again */
    assert_in_range(seen[1], 10, 20);
    assert_in_range(seen[2], 1, 11);
}

TEST(a_question_waits_for_room_and_ends_with_its_connection)
{
    const uint8_t *at;

    put_ten(stage);
    uint32_t sent = stage->fabric->sent_count;

    stage->peer->room = 0;
    ask_fetch(stage, 1, version_make(1, 1), version_make(1, 1));
    stage_pass(stage, NS_PER_S);
    assert_int_equal(stage->fabric->sent_count, sent);
    stage->peer->room = UINT32_MAX;
    stage_pass(stage, NS_PER_MS);
    assert_int_equal(sent_again(stage, sent, 1, version_make(1, 1), version_make(1, 1)), 1);
    sent = stage->fabric->sent_count;
    puppet_close(stage->peer, ROWAN_ECLOSED);
    stage_pass(stage, NS_PER_S);
    stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    puppet_connected(stage->peer, true);
    stage_pass(stage, NS_PER_S);
    assert_int_equal(stage_brought(stage, sent, &at), 0); /* not over the new one */
}

/* That is the flow control. */
TEST(the_next_message_goes_when_the_last_is_confirmed)
{
    static const uint8_t value[40000];
    const uint64_t first = version_make(1, 1), last = version_make(1, 20);
    struct puppet_conn *client = stage_client(stage);
    const char *key = stage_key_of(1);

    for (unsigned i = 0; i < 20; i++)
        stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value, sizeof value, 0);
    stage_land_all(stage);
    const uint32_t sent = stage->fabric->sent_count;

    ask_fetch(stage, 1, first, last);
    for (uint32_t before = 0, now; before < 20; before = now) {
        stage_pass(stage, NS_PER_S);
        now = sent_again(stage, sent, 1, first, last);
        assert_in_range(now, before + 1, before + 6); /* 256 KiB */
        assert_true(stage_confirm(stage, 0));
    }
    stage_run(stage);
    assert_false(stage_confirm(stage, 0));
}

/* It asks again for what it lacks. */
TEST(a_question_ends_when_the_backup_refuses_what_it_is_brought)
{
    const uint8_t *at;

    put_ten(stage);
    ask_fetch(stage, 1, version_make(1, 1), version_make(1, 1));
    stage_run(stage);
    assert_true(stage_confirm(stage, ROWAN_EFULL));
    uint32_t sent = stage->fabric->sent_count;

    stage_pass(stage, 10 * NS_PER_S);
    assert_int_equal(stage_brought(stage, sent, &at), 0);
    ask_fetch(stage, 1, version_make(1, 1), version_make(1, 1));
    stage_run(stage);
    assert_int_equal(sent_again(stage, sent, 1, version_make(1, 1), version_make(1, 1)), 1);
}

TEST(a_version_that_is_damaged_here_too_ends_the_search)
{
    const struct entry_format format = stage_format(stage);

    put_ten(stage);
    uint32_t sent = stage->fabric->sent_count;

    for (uint32_t i = 0; i < stage->fabric->log_count; i++) {
        const struct puppet_block *block = &stage->fabric->log[i];
        struct entry_header header;
        uint32_t bytes;

        assert_int_equal(entry_decode(&format, block->data, block->bytes, &header, &bytes), 0);
        if (header.shard == 1 && header.version == version_make(1, 5))
            ((uint8_t *)(uintptr_t)block->data)[40] ^= 1;
    }
    for (unsigned i = 0; i < 3; i++) {
        ask_fetch(stage, 1, version_make(1, 5), version_make(1, 5));
        stage_land_all(stage);
    }
    assert_int_equal(stage->fabric->sent_count, sent);
    ask_fetch(stage, 1, version_make(1, 4), version_make(1, 6));
    stage_land_all(stage);
    assert_int_equal(sent_again(stage, sent, 1, version_make(1, 4), version_make(1, 6)), 2);
}

UNIT_MAIN(NULL, NULL)
