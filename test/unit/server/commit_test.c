/* Commit versions through a whole server: what its worker spreads as a primary, what its digest role
 * makes of them as a backup, and how what never arrived is asked for and sent again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/error.h"
#include "common/cluster/control.h"
#include "common/entry/commit.h"
#include "common/entry/entry.h"
#include "stage.h"

enum { BLOCK_LIMIT = 65536, BACKED = 3 };

#define SPREAD_NS (15 * NS_PER_MS)

static int open_stage(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);

    assert_non_null(stage);
    stage_open(stage, BLOCK_LIMIT);
    *state = stage;
    return 0;
}

static int close_stage(void **state)
{
    stage_close(*state);
    free(*state);
    return 0;
}

static struct entry_format format_of(const struct stage *stage)
{
    return (struct entry_format){.seed = cluster_seed(stage->config),
                                 .block_limit = stage->config->block_limit};
}

static const char *key_of(uint32_t shard)
{
    static char key[32];

    for (unsigned i = 0;; i++) {
        int bytes = snprintf(key, sizeof key, "key-%u", i);

        if (slot_of_key(key, (uint32_t)bytes) / 4096 == shard)
            return key;
    }
}

/* Time goes on for `ns`, with a stop wherever a role wants to be polled. */
static void pass(struct stage *stage, uint64_t ns)
{
    uint64_t end_ns = stage->now_ns + ns;

    stage_run(stage);
    while (stage->now_ns < end_ns) {
        assert_true(stage->wake_ns > stage->now_ns);
        stage->now_ns = stage->wake_ns < end_ns ? stage->wake_ns : end_ns;
        stage_run(stage);
    }
}

/* --- the primary: what it sends --- */

/* The commit version of the shard in the blocks [from, to) that were sent; 0: none. *entries: how many
 * entries of commit versions there are. */
static uint64_t spread(const struct stage *stage, uint32_t from, uint16_t shard, uint32_t *entries)
{
    const struct entry_format format = format_of(stage);
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
            commit_decode(block->data + ENTRY_HEADER_BYTES, header.value_bytes, &value), 0);
        ++*entries;
        for (uint32_t row = 0; row < value.shards; row++) {
            if (commit_shard_at(&value, row).shard == shard)
                version = commit_shard_at(&value, row).version;
        }
    }
    return version;
}

static void a_commit_version_is_spread_15_ms_after_it_changed_and_once(void **state)
{
    struct stage *stage = *state;
    uint32_t entries;

    stage_put(stage, stage_client(stage), key_of(0));
    stage_land_all(stage);
    assert_int_equal(stage->wake_ns, stage->now_ns + SPREAD_NS);
    pass(stage, SPREAD_NS - 1);
    assert_int_equal(spread(stage, 0, 0, &entries), 0);
    assert_int_equal(entries, 0);
    pass(stage, 1);
    assert_int_equal(spread(stage, 0, 0, &entries), version_make(1, 1));
    assert_int_equal(entries, 1);
    stage_land_all(stage);
    uint32_t sent = stage->fabric->log_count;

    pass(stage, 60 * NS_PER_S);
    assert_int_equal(stage->fabric->log_count, sent);
    assert_int_equal(stage->wake_ns, WAKE_NEVER);
}

static void shards_that_change_together_share_an_entry(void **state)
{
    struct stage *stage = *state;
    struct puppet_conn *client = stage_client(stage);
    uint32_t entries;

    for (unsigned i = 0; i < 30; i++) {
        stage_put(stage, client, key_of(i % 3));
        stage_land_all(stage);
        stage->now_ns += NS_PER_MS / 4;
    }
    pass(stage, 2 * SPREAD_NS);
    for (uint16_t shard = 0; shard < 3; shard++)
        assert_int_equal(spread(stage, 0, shard, &entries), version_make(1, 10));
    assert_int_equal(entries, 1);
}

static void what_has_not_landed_is_not_covered(void **state)
{
    struct stage *stage = *state;
    struct puppet_conn *client = stage_client(stage);
    uint32_t entries;

    stage_put(stage, client, key_of(0));
    stage_poll(stage);
    stage_put(stage, client, key_of(0));
    stage_poll(stage);
    assert_true(puppet_land(stage->peer));
    pass(stage, NS_PER_S);
    assert_int_equal(spread(stage, 0, 0, &entries), version_make(1, 1));
    stage_land_all(stage);
    pass(stage, SPREAD_NS);
    assert_int_equal(spread(stage, 0, 0, &entries), version_make(1, 2));
}

static void a_write_that_is_not_durable_here_is_not_covered(void **state)
{
    struct stage *stage = *state;
    uint32_t entries;

    stage_hold_fences(stage, true);
    stage_put(stage, stage_client(stage), key_of(0));
    stage_land_all(stage);
    stage->now_ns += NS_PER_S;
    stage_land_all(stage);
    assert_int_equal(spread(stage, 0, 0, &entries), 0);
    assert_int_equal(entries, 0);
}

static void reconnect_peer(struct stage *stage)
{
    puppet_close(stage->peer, ROWAN_ECLOSED);
    stage_run(stage);
    stage->now_ns += NS_PER_S;
    stage_run(stage);
    stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    assert_non_null(stage->peer);
    puppet_connected(stage->peer, true);
}

static void a_peer_that_comes_back_is_told_all_figures_again(void **state)
{
    struct stage *stage = *state;
    struct puppet_conn *client = stage_client(stage);
    uint32_t entries;

    stage_put(stage, client, key_of(0));
    stage_put(stage, client, key_of(1));
    stage_land_all(stage);
    pass(stage, SPREAD_NS);
    uint32_t sent = stage->fabric->log_count;

    reconnect_peer(stage);
    pass(stage, SPREAD_NS);
    assert_int_equal(spread(stage, sent, 0, &entries), version_make(1, 1));
    assert_int_equal(spread(stage, sent, 1, &entries), version_make(1, 1));
    assert_int_equal(spread(stage, sent, 2, &entries), 0);
    assert_int_equal(entries, 1);
}

static void a_peer_without_room_is_told_when_it_has_some(void **state)
{
    struct stage *stage = *state;
    uint32_t entries;

    stage_put(stage, stage_client(stage), key_of(0));
    stage_land_all(stage);
    stage->peer->no_rowan_room = true;
    pass(stage, NS_PER_S);
    assert_int_equal(spread(stage, 0, 0, &entries), 0);
    assert_int_equal(stage->wake_ns, WAKE_NEVER); /* what lands wakes it */
    stage->peer->no_rowan_room = false;
    pass(stage, SPREAD_NS);
    assert_int_equal(spread(stage, 0, 0, &entries), version_make(1, 1));
    assert_int_equal(entries, 1);
}

/* Fills this worker's open segment to the last byte; four entries in all. */
static void fill_segment(struct stage *stage, struct puppet_conn *client)
{
    const struct entry_format format = format_of(stage);
    uint8_t *value = calloc(1, ENTRY_MAX_VALUE_BYTES);
    const char *key = key_of(0);
    uint32_t key_bytes = (uint32_t)strlen(key), left = FABRIC_SEGMENT_BYTES;

    assert_non_null(value);
    for (unsigned i = 0; i < 4; i++) {
        uint32_t bytes = ENTRY_MAX_VALUE_BYTES;

        while (i == 3 && entry_bytes(&format, key_bytes, bytes) > left)
            bytes--;
        left -= entry_bytes(&format, key_bytes, bytes);
        stage_ask(stage, client, MESSAGE_PUT, key, key_bytes, value, bytes, 0);
        stage_land_all(stage);
        assert_int_equal(stage_reply(stage).status, 0);
    }
    assert_int_equal(left, 0);
    free(value);
}

static void a_full_log_fails_nothing_and_commit_versions_wait(void **state)
{
    struct stage *stage = *state;
    struct puppet_fabric *fabric = stage->fabric;
    struct puppet_conn *client = stage_client(stage);
    uint32_t posted, entries;

    fill_segment(stage, client);
    do { /* until the PM has no free segment */
        posted = fabric->post_count;
        assert_true(puppet_seal(fabric, STAGE_CONTROL));
        stage_run(stage);
    } while (fabric->post_count > posted);
    for (unsigned i = 0; i < 10; i++) {
        pass(stage, NS_PER_S);
        assert_true(stage->wake_ns <= stage->now_ns + NS_PER_S);
    }
    assert_int_equal(spread(stage, 0, 0, &entries), 0);
    assert_int_equal(entries, 0);
    assert_int_equal(server_error(stage->server), 0);
    fabric->taken = fabric->sent_count;
    stage_get(stage, client, key_of(0));
    stage_run(stage);
    assert_int_equal(stage_reply(stage).status, 0);
}

/* --- the primary: what it is asked for --- */

static void tell(struct puppet_conn *conn, Rowan__ControlMessage *message)
{
    uint8_t bytes[256];
    size_t count = control_encode(7, message, bytes, sizeof bytes);

    assert_true(count > 0);
    puppet_message(conn, bytes, (uint32_t)count, NULL, 0, NULL, 0);
}

static void ask_fetch(struct stage *stage, uint32_t shard, uint64_t first, uint64_t last)
{
    Rowan__ControlMessage message = ROWAN__CONTROL_MESSAGE__INIT;
    Rowan__Fetch fetch = ROWAN__FETCH__INIT;

    fetch.shard = shard;
    fetch.first = first;
    fetch.last = last;
    message.body_case = ROWAN__CONTROL_MESSAGE__BODY_FETCH;
    message.fetch = &fetch;
    tell(stage->peer, &message);
}

/* Ten versions of each of the three shards it leads; the third of each has two blocks. */
static void put_ten(struct stage *stage)
{
    static const uint8_t value[BLOCK_LIMIT];
    struct puppet_conn *client = stage_client(stage);

    for (unsigned i = 0; i < 30; i++) {
        const char *key = key_of(i % 3);

        stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value,
                  i / 3 == 2 ? sizeof value : i, 0);
        stage_land_all(stage);
    }
    pass(stage, SPREAD_NS);
    stage_land_all(stage);
}

/* How many blocks were sent from `from` on; all of that shard and between the versions. */
static uint32_t sent_again(const struct stage *stage, uint32_t from, uint16_t shard, uint64_t first,
                           uint64_t last)
{
    const struct entry_format format = format_of(stage);

    for (uint32_t i = from; i < stage->fabric->log_count; i++) {
        const struct puppet_block *block = &stage->fabric->log[i];
        struct entry_header header;
        uint32_t bytes;

        assert_int_equal(entry_decode(&format, block->data, block->bytes, &header, &bytes), 0);
        assert_int_equal(bytes, block->bytes);
        assert_int_equal(header.type, ENTRY_PUT);
        assert_int_equal(header.shard, shard);
        assert_true(header.version >= first && header.version <= last);
    }
    return stage->fabric->log_count - from;
}

static void versions_that_are_asked_for_are_sent_again(void **state)
{
    struct stage *stage = *state;
    uint64_t first = version_make(1, 2), last = version_make(1, 4);

    put_ten(stage);
    uint32_t sent = stage->fabric->log_count;

    ask_fetch(stage, 1, first, last);
    stage_land_all(stage);
    assert_int_equal(sent_again(stage, sent, 1, first, last), 4);
    sent = stage->fabric->log_count;
    ask_fetch(stage, 1, version_make(1, 10), version_make(1, 10));
    stage_land_all(stage);
    assert_int_equal(sent_again(stage, sent, 1, version_make(1, 10), version_make(1, 10)), 1);
}

static void questions_that_make_no_sense_are_ignored(void **state)
{
    struct stage *stage = *state;

    put_ten(stage);
    uint32_t sent = stage->fabric->log_count;

    ask_fetch(stage, BACKED, version_make(1, 1), version_make(1, 2));
    ask_fetch(stage, 4, version_make(1, 1), version_make(1, 2));
    ask_fetch(stage, UINT32_MAX, version_make(1, 1), version_make(1, 2));
    ask_fetch(stage, 1, version_make(1, 3), version_make(1, 2));
    ask_fetch(stage, 1, version_make(1, 3), version_make(1, 11));
    ask_fetch(stage, 1, 0, UINT64_MAX);
    stage_land_all(stage);
    assert_int_equal(stage->fabric->log_count, sent);
    ask_fetch(stage, 1, version_make(1, 2), version_make(1, 2));
    stage_land_all(stage);
    assert_int_equal(sent_again(stage, sent, 1, version_make(1, 2), version_make(1, 2)), 1);
}

static void a_question_waits_for_room_and_ends_with_its_connection(void **state)
{
    struct stage *stage = *state;

    put_ten(stage);
    uint32_t sent = stage->fabric->log_count;

    stage->peer->no_rowan_room = true;
    ask_fetch(stage, 1, version_make(1, 1), version_make(1, 1));
    pass(stage, NS_PER_S);
    assert_int_equal(stage->fabric->log_count, sent);
    stage->peer->no_rowan_room = false;
    pass(stage, 1);
    assert_int_equal(sent_again(stage, sent, 1, version_make(1, 1), version_make(1, 1)), 1);
    stage_land_all(stage);
    stage->peer->no_rowan_room = true;
    ask_fetch(stage, 1, version_make(1, 1), version_make(1, 1));
    stage_run(stage);
    puppet_close(stage->peer, ROWAN_ECLOSED);
    pass(stage, NS_PER_S);
    assert_int_equal(stage->fabric->log_count, sent + 1);
}

static void a_version_that_is_damaged_here_too_ends_the_search(void **state)
{
    struct stage *stage = *state;
    const struct entry_format format = format_of(stage);

    put_ten(stage);
    uint32_t sent = stage->fabric->log_count;

    for (uint32_t i = 0; i < sent; i++) {
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
    assert_int_equal(stage->fabric->log_count, sent);
    ask_fetch(stage, 1, version_make(1, 4), version_make(1, 6));
    stage_land_all(stage);
    assert_int_equal(sent_again(stage, sent, 1, version_make(1, 4), version_make(1, 6)), 2);
}

/* --- the backup --- */

/* What a sender puts into the open segment of the landing zone, one behind the other. */
struct landing {
    struct stage *stage;
    struct puppet_conn *peer, *tool;
    uint64_t offset;
};

static struct landing land_begin(struct stage *stage)
{
    const struct fabric_identity id = {
        .cluster = 77, .id = 2, .incarnation = 101, .kind = FABRIC_SERVER};
    struct landing landing = {
        .stage = stage,
        .peer = puppet_accept(stage->fabric, STAGE_CONTROL, &id),
        .tool = stage_tool(stage),
        .offset = stage->fabric->posts[stage->fabric->sealed].offset,
    };

    assert_non_null(landing.peer);
    stage_run(stage);
    stage->fabric->taken = stage->fabric->sent_count;
    return landing;
}

/* Returns the place. */
static uint64_t land(struct landing *landing, struct entry_header header, const char *key,
                     const void *value)
{
    static _Alignas(64) uint8_t block[BLOCK_LIMIT];
    const struct entry_format format = format_of(landing->stage);
    uint64_t offset = landing->offset;
    uint32_t bytes = entry_encode_block(&format, &header, key, value, block);

    pm_store(&landing->stage->heap->pm, offset, block, bytes);
    landing->offset += bytes;
    return offset;
}

static uint64_t land_put(struct landing *landing, uint64_t counter)
{
    const char *key = key_of(BACKED);

    return land(landing,
                (struct entry_header){.type = ENTRY_PUT,
                                      .shard = BACKED,
                                      .version = version_make(1, counter),
                                      .key_bytes = (uint16_t)strlen(key),
                                      .value_bytes = 5,
                                      .blocks = 1},
                key, "value");
}

static void land_value(struct landing *landing, const void *value, uint32_t bytes)
{
    land(landing,
         (struct entry_header){
             .type = ENTRY_COMMIT_VERSIONS, .value_bytes = bytes, .blocks = 1, .client_id = 2},
         NULL, value);
}

static void land_commit(struct landing *landing, uint16_t shard, uint64_t version)
{
    uint8_t value[64];
    const struct commit_shard row = {shard, version};

    land_value(landing, value, commit_encode(&row, 1, NULL, 0, value));
}

/* The next question that the server asked the primary; false if there was none. */
static bool next_fetch(struct landing *landing, uint64_t *first, uint64_t *last)
{
    const struct puppet_sent *sent;
    bool found = false;

    while (!found && (sent = puppet_take(landing->stage->fabric))) {
        Rowan__ControlMessage *message;
        uint32_t tag;

        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FETCH) {
            assert_ptr_equal(sent->conn, landing->peer);
            assert_int_equal(message->fetch->shard, BACKED);
            *first = message->fetch->first;
            *last = message->fetch->last;
            found = true;
        }
        control_free(message);
    }
    return found;
}

static void assert_fetch(struct landing *landing, uint64_t first, uint64_t last)
{
    uint64_t asked_first, asked_last;

    assert_true(next_fetch(landing, &asked_first, &asked_last));
    assert_int_equal(asked_first, version_make(1, first));
    assert_int_equal(asked_last, version_make(1, last));
}

static void assert_no_fetch(struct landing *landing)
{
    uint64_t first, last;

    assert_false(next_fetch(landing, &first, &last));
}

struct said {
    bool missing, busy;
    uint64_t commit, version;
};

/* What a tool is told: of status and, if a walk ended, of verify. */
static struct said ask_status(struct landing *landing)
{
    struct stage *stage = landing->stage;
    struct said said = {.version = UINT64_MAX};

    stage_run(stage); /* all that has landed is digested before control answers */
    uint32_t before = stage->fabric->sent_count;
    Rowan__ControlMessage status = ROWAN__CONTROL_MESSAGE__INIT,
                          walk = ROWAN__CONTROL_MESSAGE__INIT;
    Rowan__GetStatus get = ROWAN__GET_STATUS__INIT;
    Rowan__GetDigest digest = ROWAN__GET_DIGEST__INIT;

    status.body_case = ROWAN__CONTROL_MESSAGE__BODY_GET_STATUS;
    status.get_status = &get;
    walk.body_case = ROWAN__CONTROL_MESSAGE__BODY_GET_DIGEST;
    walk.get_digest = &digest;
    digest.shard = BACKED;
    tell(landing->tool, &status);
    tell(landing->tool, &walk);
    stage_run(stage);
    for (uint32_t i = before; i < stage->fabric->sent_count; i++) {
        const struct puppet_sent *sent = &stage->fabric->sent[i];
        Rowan__ControlMessage *message;
        uint32_t tag;

        if (sent->conn != landing->tool)
            continue;
        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_DIGEST_IS) {
            said.busy = message->digest_is->busy;
            assert_int_equal(said.missing, message->digest_is->missing);
        }
        for (size_t j = 0; message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SERVER_STATUS &&
                           j < message->server_status->n_shards;
             j++) {
            const Rowan__ShardStatus *shard = message->server_status->shards[j];

            if (shard->id != BACKED)
                continue;
            said.missing = shard->missing;
            said.commit = shard->commit;
            said.version = shard->version;
        }
        control_free(message);
    }
    assert_true(said.version != UINT64_MAX);
    return said;
}

static void a_hole_is_asked_for_until_it_is_filled(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);

    land_put(&landing, 1);
    land_put(&landing, 4);
    land_commit(&landing, BACKED, version_make(1, 4));
    stage_run(stage);
    assert_fetch(&landing, 2, 3);
    struct said said = ask_status(&landing);

    assert_true(said.missing && said.busy);
    assert_int_equal(said.commit, version_make(1, 4));
    assert_int_equal(said.version, version_make(1, 4));
    pass(stage, NS_PER_S - 1);
    assert_no_fetch(&landing);
    pass(stage, 1);
    assert_fetch(&landing, 2, 3);
    pass(stage, 2 * NS_PER_S);
    assert_fetch(&landing, 2, 3);
    land_put(&landing, 3); /* what came in the middle is not asked for anew before its time */
    pass(stage, 4 * NS_PER_S - NS_PER_MS);
    assert_no_fetch(&landing);
    pass(stage, NS_PER_MS);
    assert_fetch(&landing, 2, 2);
    land_put(&landing, 2); /* nobody wakes the digest role for it */
    pass(stage, 64 * NS_PER_MS);
    said = ask_status(&landing);
    assert_false(said.missing || said.busy);
    pass(stage, NS_PER_S);
    assert_no_fetch(&landing);
    assert_int_equal(stage->wake_ns, WAKE_NEVER);
}

static void a_question_for_a_version_that_never_comes_is_asked_ever_more_seldom(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);
    uint64_t first, last;
    unsigned asked = 0;

    land_commit(&landing, BACKED, version_make(1, 1));
    pass(stage, 3600 * NS_PER_S);
    while (next_fetch(&landing, &first, &last))
        asked++;
    assert_in_range(asked, 100, 125);
}

static void the_next_hole_is_asked_for_at_once(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);

    land_put(&landing, 2);
    land_put(&landing, 4);
    land_commit(&landing, BACKED, version_make(1, 5));
    stage_run(stage);
    assert_fetch(&landing, 1, 1);
    land_put(&landing, 1);
    stage_run(stage);
    assert_fetch(&landing, 3, 3);
    land_put(&landing, 3);
    stage_run(stage);
    assert_fetch(&landing, 5, 5);
    land_put(&landing, 5);
    stage_run(stage);
    assert_false(ask_status(&landing).missing);
}

static void versions_above_the_commit_version_are_not_missed(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);

    land_put(&landing, 1);
    land_put(&landing, 3);
    land_commit(&landing, BACKED, version_make(1, 1));
    pass(stage, NS_PER_S);
    assert_no_fetch(&landing);
    assert_false(ask_status(&landing).missing);
    assert_true(ask_status(&landing).busy); /* what belongs in front of 3 is on its way */
}

static void commit_versions_of_another_epoch_or_shard_are_ignored(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);

    land_put(&landing, 1);
    land_commit(&landing, BACKED, version_make(2, 0));
    land_commit(&landing, BACKED, version_make(2, 9));
    land_commit(&landing, BACKED, version_make(0, 9));
    land_commit(&landing, BACKED, version_make(0xffffff, 9));
    land_commit(&landing, 1, version_make(1, 9));
    land_commit(&landing, 77, version_make(1, 9));
    pass(stage, NS_PER_S);
    assert_no_fetch(&landing);
    assert_int_equal(ask_status(&landing).commit, version_make(1, 0));
    land_put(&landing, 2);
    land_commit(&landing, BACKED, version_make(1, 2));
    pass(stage, NS_PER_S);
    assert_int_equal(ask_status(&landing).commit, version_make(1, 2));
    assert_no_fetch(&landing);
}

static void commit_versions_that_make_no_sense_are_ignored(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);
    uint8_t value[64] = {0};
    const struct commit_shard row = {BACKED, version_make(1, 9)};
    uint32_t bytes = commit_encode(&row, 1, NULL, 0, value);

    land_value(&landing, value, 0);
    land_value(&landing, value, bytes - 1);
    land_value(&landing, value, bytes + 1);
    value[0] = 2;
    land_value(&landing, value, bytes);
    value[0] = 1;
    value[COMMIT_HEAD_BYTES + 3] = 1;
    land_value(&landing, value, bytes);
    land_put(&landing, 1);
    pass(stage, NS_PER_S);
    assert_no_fetch(&landing);
    struct said said = ask_status(&landing);

    assert_int_equal(said.commit, version_make(1, 0));
    assert_int_equal(said.version, version_make(1, 1));
    assert_int_equal(server_error(stage->server), 0);
}

/* --- a block in the open segment that is not whole --- */

static void damage(struct landing *landing, uint64_t offset)
{
    ((uint8_t *)pm_at(&landing->stage->heap->pm, offset))[ENTRY_HEADER_BYTES + 1] ^= 4;
}

static void a_damaged_block_holds_up_nobody_and_is_fetched(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);

    damage(&landing, land_put(&landing, 1));
    land_put(&landing, 2);
    land_commit(&landing, BACKED, version_make(1, 2));
    stage_run(stage);
    assert_int_equal(ask_status(&landing).version, 0); /* it may be on its way */
    pass(stage, 200 * NS_PER_MS);
    assert_fetch(&landing, 1, 1);
    struct said said = ask_status(&landing);

    assert_true(said.missing && said.busy);
    assert_int_equal(said.version, version_make(1, 2));
    land_put(&landing, 1);
    pass(stage, 64 * NS_PER_MS);
    said = ask_status(&landing);
    assert_false(said.missing || said.busy);
}

/* As when the commit versions, too, are what was hit; and nobody writes any more. */
static void a_damaged_commit_version_is_made_good_by_the_next(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);

    land_put(&landing, 2);
    uint64_t offset = landing.offset;

    land_commit(&landing, BACKED, version_make(1, 2));
    damage(&landing, offset);
    pass(stage, NS_PER_S);
    assert_no_fetch(&landing);
    land_put(&landing, 3);
    land_commit(&landing, BACKED, version_make(1, 3));
    ask_status(&landing); /* wakes it, as whatever lands later would */
    pass(stage, NS_PER_S);
    assert_fetch(&landing, 1, 1);
}

static void a_block_that_is_completed_late_is_found_and_not_asked_for(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);
    uint64_t late = land_put(&landing, 1);

    damage(&landing, late);
    land_put(&landing, 2);
    pass(stage, 200 * NS_PER_MS);
    assert_int_equal(ask_status(&landing).version, version_make(1, 2));
    damage(&landing, late); /* undone: its sender has gone on */
    land_commit(&landing, BACKED, version_make(1, 2));
    ask_status(&landing);
    pass(stage, NS_PER_S);
    assert_no_fetch(&landing);
    struct said said = ask_status(&landing);

    assert_false(said.missing || said.busy);
}

static void what_was_passed_over_is_looked_at_again_when_the_segment_is_sealed(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);
    uint64_t late = land_put(&landing, 1);

    damage(&landing, late);
    land_put(&landing, 2);
    pass(stage, 200 * NS_PER_MS);
    assert_true(ask_status(&landing).busy);
    damage(&landing, late);
    assert_true(puppet_seal(stage->fabric, STAGE_CONTROL));
    stage_run(stage);
    assert_false(ask_status(&landing).busy);
}

static void a_block_far_behind_a_gap_is_reached(void **state)
{
    struct stage *stage = *state;
    struct landing landing = land_begin(stage);

    landing.offset += 200 << 10; /* room that a stopped sender has claimed */
    land_put(&landing, 1);
    pass(stage, NS_PER_S);
    assert_int_equal(ask_status(&landing).version, version_make(1, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_stage, close_stage)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_commit_version_is_spread_15_ms_after_it_changed_and_once),
        TEST(shards_that_change_together_share_an_entry),
        TEST(what_has_not_landed_is_not_covered),
        TEST(a_write_that_is_not_durable_here_is_not_covered),
        TEST(a_peer_that_comes_back_is_told_all_figures_again),
        TEST(a_peer_without_room_is_told_when_it_has_some),
        TEST(a_full_log_fails_nothing_and_commit_versions_wait),
        TEST(versions_that_are_asked_for_are_sent_again),
        TEST(questions_that_make_no_sense_are_ignored),
        TEST(a_question_waits_for_room_and_ends_with_its_connection),
        TEST(a_version_that_is_damaged_here_too_ends_the_search),
        TEST(a_hole_is_asked_for_until_it_is_filled),
        TEST(a_question_for_a_version_that_never_comes_is_asked_ever_more_seldom),
        TEST(the_next_hole_is_asked_for_at_once),
        TEST(versions_above_the_commit_version_are_not_missed),
        TEST(commit_versions_of_another_epoch_or_shard_are_ignored),
        TEST(commit_versions_that_make_no_sense_are_ignored),
        TEST(a_damaged_block_holds_up_nobody_and_is_fetched),
        TEST(a_damaged_commit_version_is_made_good_by_the_next),
        TEST(a_block_that_is_completed_late_is_found_and_not_asked_for),
        TEST(what_was_passed_over_is_looked_at_again_when_the_segment_is_sealed),
        TEST(a_block_far_behind_a_gap_is_reached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
