/* A server that starts again on its PM, and reconciles the replicas of the shards it leads. The test plays
 * the CM, the backup (server 2) and a client. */
#define TEST_FIXTURE open_stage, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "common/cluster/control.h"
#include "common/entry/entry.h"
#include "stage.h"
#include "test/lib/unit.h"

enum { LIMIT = 1024, LED = 3 /* shards */ };

static int open_stage(void **state)
{
    stage_open(stage_new(state), LIMIT);
    return 0;
}

/* A key of shard 0. */
static const char *key_of(uint32_t number)
{
    static char key[32];

    for (unsigned i = 0;; i++) {
        int bytes = snprintf(key, sizeof key, "key-%u", i);

        if (slot_of_key(key, (uint32_t)bytes) < 4096 && number-- == 0)
            return key;
    }
}

/* --- playing the backup --- */

struct question {
    uint32_t tag;
    Rowan__GetSuffix body;
};

/* The next question of the server; false if there is none. */
static bool next_question(struct stage *stage, struct question *question)
{
    const Rowan__ControlMessage *message;

    while ((message = stage_message(stage, stage->peer, &question->tag))) {
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_GET_SUFFIX) {
            question->body = *message->get_suffix;
            return true;
        }
    }
    return false;
}

static void refuse(struct stage *stage, const struct question *question)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;

    failure.error = ROWAN_EAGAIN;
    stage_tell(stage->peer, question->tag, &CONTROL_MESSAGE(FAILURE, failure, &failure));
    stage_run(stage);
}

struct blocks {
    ProtobufCBinaryData data[64];
    uint32_t count;
    uint8_t bytes[64][LIMIT];
};

static void answer(struct stage *stage, const struct question *question, uint64_t commit,
                   uint64_t prefix, const struct blocks *blocks, uint64_t cursor)
{
    Rowan__SuffixIs body = ROWAN__SUFFIX_IS__INIT;

    body.shard = question->body.shard;
    body.epoch = question->body.epoch;
    body.commit = commit;
    body.prefix = prefix;
    body.cursor = cursor;
    if (blocks) {
        body.n_blocks = blocks->count;
        body.blocks = (ProtobufCBinaryData *)(uintptr_t)blocks->data;
    }
    stage_tell(stage->peer, question->tag, &CONTROL_MESSAGE(SUFFIX_IS, suffix_is, &body));
    stage_run(stage);
}

/* Valid until the next call. */
static struct blocks *no_blocks(void)
{
    static struct blocks blocks;

    blocks.count = 0;
    return &blocks;
}

/* All blocks of a put, as the backup has it. */
static void add_entry(struct stage *stage, struct blocks *blocks, uint64_t version, const char *key,
                      uint32_t value_bytes)
{
    static uint8_t value[50000];
    const struct entry_format format = {.seed = cluster_seed(stage->config), .block_limit = LIMIT};
    struct entry_header header = {.type = ENTRY_PUT,
                                  .shard = 0,
                                  .version = version,
                                  .key_bytes = (uint16_t)strlen(key),
                                  .value_bytes = value_bytes,
                                  .client_id = 99,
                                  .operation = 7};

    memset(value, 'v', sizeof value);
    header.blocks = (uint16_t)entry_blocks(&format, header.key_bytes, value_bytes);
    for (uint32_t i = 0; i < header.blocks; i++) {
        uint8_t *at = blocks->bytes[blocks->count];

        header.block = (uint16_t)i;
        blocks->data[blocks->count++] = (ProtobufCBinaryData){
            .data = at, .len = entry_encode_block(&format, &header, key, value, at)};
    }
}

/* The next question about shard 0; the reconciliations of the other shards end. */
static struct question of_shard_0(struct stage *stage)
{
    struct question question;

    for (;;) {
        assert_true(next_question(stage, &question));
        if (question.body.shard == 0)
            return question;
        answer(stage, &question, version_make(1, 0), version_make(1, 0), NULL, 0);
    }
}

/* Answers until shard 0 asks for its suffix. */
static struct question up_to_tails(struct stage *stage, uint64_t commit, uint64_t prefix)
{
    for (;;) {
        struct question question = of_shard_0(stage);

        if (question.body.after != UINT64_MAX)
            return question;
        answer(stage, &question, commit, prefix, NULL, 0);
    }
}

/* How many blocks the backup was brought since that message of the server; all of shard 0. */
static uint32_t brought(const struct stage *stage, uint32_t from)
{
    const struct entry_format format = stage_format(stage);
    const uint8_t *at;
    uint32_t bytes, left = stage_brought(stage, from, &at), blocks = 0;

    for (; left > 0; left -= bytes, at += bytes, blocks++) {
        struct entry_header header;

        assert_int_equal(entry_decode(&format, at, left, &header, &bytes), 0);
        assert_int_equal(header.shard, 0);
    }
    return blocks;
}

/* The answer to a client's one request; questions to the backup stay to be taken. */
static struct message_reply reply_to(struct stage *stage, const struct puppet_conn *client)
{
    uint32_t taken = stage->fabric->taken;

    stage_run(stage);
    for (;;) {
        const struct puppet_sent *sent = puppet_take(stage->fabric);
        struct message_reply reply;
        const uint8_t *value;

        assert_non_null(sent);
        if (sent->conn == client && message_parse_reply(sent->data, sent->bytes, &reply, &value)) {
            stage->fabric->taken = taken;
            return reply;
        }
    }
}

/* What a get says. */
static struct message_reply get(struct stage *stage, const char *key)
{
    struct puppet_conn *client = stage_client(stage);

    stage_get(stage, client, key);
    return reply_to(stage, client);
}

/* Puts that are in the log alone: their blocks never land at the backup. */
static void put_some_and_die(struct stage *stage, uint32_t count)
{
    struct puppet_conn *client = stage_client(stage);

    for (uint32_t i = 0; i < count; i++)
        stage_put(stage, client, key_of(i));
    stage_run(stage);
    stage_restart(stage);
}

/* Up to the question for the suffix. */
static struct question put_and_begin(struct stage *stage)
{
    put_some_and_die(stage, 1);
    stage_begin(stage);
    return up_to_tails(stage, version_make(1, 0), version_make(1, 0));
}

/* --- tests --- */

TEST(a_shard_is_busy_until_its_backup_has_confirmed)
{
    put_some_and_die(stage, 1);
    stage_begin(stage);
    assert_int_equal(get(stage, key_of(0)).status, ROWAN_EBUSY);
    struct question question = up_to_tails(stage, version_make(1, 0), version_make(1, 0));

    assert_true(question.body.epoch == 2 && question.body.after == version_make(1, 0));
    answer(stage, &question, version_make(1, 0), version_make(1, 0), NULL, 0);
    /* It is on its way to the backup. */
    assert_int_equal(get(stage, key_of(0)).status, ROWAN_EBUSY);
    stage_land_all(stage);
    struct message_reply reply = get(stage, key_of(0));

    assert_int_equal(reply.status, 0);
    assert_true(reply.version == version_make(1, 1));
}

TEST(the_highest_commit_version_and_the_lowest_prefix_prefix_count)
{
    put_some_and_die(stage, 4);
    stage_begin(stage);
    struct question question = of_shard_0(stage);

    assert_true(question.body.after == UINT64_MAX && question.body.commit == version_make(1, 0));
    answer(stage, &question, version_make(1, 3), version_make(1, 2), NULL, 0);
    question = of_shard_0(stage);
    assert_true(question.body.after == version_make(1, 2) &&
                question.body.commit == version_make(1, 3));
    answer(stage, &question, version_make(1, 3), version_make(1, 2), NULL, 0);
    assert_int_equal(brought(stage, 0), 2);
    stage_land_all(stage);
    assert_int_equal(get(stage, key_of(3)).status, 0);
}

TEST(a_request_of_the_epoch_before_is_refused)
{
    struct question question = put_and_begin(stage);

    answer(stage, &question, version_make(1, 0), version_make(1, 0), NULL, 0);
    stage_land_all(stage);
    struct puppet_conn *client = stage_client(stage);

    stage->config->shards[0].epoch--;
    stage_put(stage, client, key_of(0));
    assert_int_equal(reply_to(stage, client).status, ROWAN_EEPOCH);
    stage->config->shards[0].epoch++;
    stage_put_lands(stage, client, key_of(0));
}

TEST(nothing_is_served_before_the_own_log_is_durable)
{
    struct blocks *blocks = no_blocks();
    struct question question = put_and_begin(stage);

    add_entry(stage, blocks, version_make(1, 2), key_of(1), 100);
    stage_hold_fences(stage, true);
    answer(stage, &question, version_make(1, 0), version_make(1, 0), blocks, 0);
    stage_land_all(stage);
    assert_int_equal(get(stage, key_of(1)).status, ROWAN_EBUSY);
    stage_hold_fences(stage, false);
    stage_run(stage);
    assert_int_equal(get(stage, key_of(1)).status, 0);
    assert_int_equal(get(stage, key_of(0)).status, 0);
}

TEST(a_backup_that_is_not_ready_is_asked_again)
{
    struct question question;

    put_some_and_die(stage, 1);
    stage_begin(stage);
    for (unsigned i = 0; i < LED; i++) {
        assert_true(next_question(stage, &question));
        refuse(stage, &question);
    }
    assert_false(next_question(stage, &question));
    assert_true(stage->wake_ns <= stage->now_ns + NS_PER_S);
    stage->now_ns = stage->wake_ns;
    stage_run(stage);
    assert_true(next_question(stage, &question));
}

TEST(a_question_that_finds_no_room_is_asked_again)
{
    struct question question;

    put_some_and_die(stage, 1);
    stage_adopt(stage);
    stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    stage->peer->room = 0;
    puppet_connected(stage->peer, true);
    stage_run(stage);
    assert_false(next_question(stage, &question));
    stage->peer->room = UINT32_MAX;
    assert_true(stage->wake_ns <= stage->now_ns + NS_PER_S);
    stage->now_ns = stage->wake_ns;
    stage_run(stage);
    for (unsigned i = 0; i < LED; i++)
        assert_true(next_question(stage, &question));
}

/* Half of a long entry has come when the connection breaks. */
TEST(a_break_in_the_midst_of_a_suffix_starts_it_again)
{
    struct blocks *all = calloc(1, sizeof *all), *half = calloc(1, sizeof *half);

    struct question question = put_and_begin(stage);

    add_entry(stage, all, version_make(1, 2), key_of(1), 100);
    add_entry(stage, all, version_make(1, 3), key_of(2), 5000);
    *half = *all;
    for (uint32_t i = 0; i < half->count; i++)
        half->data[i].data = half->bytes[i];
    half->count = 3;
    answer(stage, &question, version_make(1, 0), version_make(1, 0), half, 77);
    assert_true(of_shard_0(stage).body.cursor == 77);
    stage_reconnect_peer(stage);
    stage_run(stage);
    question = up_to_tails(stage, version_make(1, 0), version_make(1, 0));
    assert_true(question.body.cursor == 0);
    answer(stage, &question, version_make(1, 0), version_make(1, 0), all, 0);
    stage_land_all(stage);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(get(stage, key_of(i)).version, version_make(1, i + 1));
    }
    free(all);
    free(half);
}

TEST(what_was_not_confirmed_is_sent_again_after_a_break)
{
    struct question question = put_and_begin(stage);

    answer(stage, &question, version_make(1, 0), version_make(1, 0), NULL, 0);
    assert_int_equal(brought(stage, 0), 1);
    uint32_t sent = stage->fabric->sent_count;

    stage_reconnect_peer(stage);
    stage_run(stage);
    assert_int_equal(get(stage, key_of(0)).status, ROWAN_EBUSY);
    assert_int_equal(brought(stage, sent), 1);
    stage_land_all(stage);
    assert_int_equal(get(stage, key_of(0)).status, 0);
}

/* What is to be confirmed comes again, from the first block of its entry; what was confirmed does not. */
TEST(a_long_entry_comes_again_from_its_first_block)
{
    struct puppet_conn *client = stage_client(stage);
    static const uint8_t value[400000];

    stage_put(stage, client, key_of(0));
    stage_ask(stage, client, MESSAGE_PUT, key_of(1), (uint32_t)strlen(key_of(1)), value,
              sizeof value, 0);
    stage_run(stage);
    stage_return(stage);
    struct question question = up_to_tails(stage, version_make(1, 0), version_make(1, 0));

    answer(stage, &question, version_make(1, 0), version_make(1, 0), NULL, 0);
    assert_int_equal(brought(stage, 0), 256); /* 256 KiB */
    uint32_t sent = stage->fabric->sent_count;

    assert_true(stage_confirm(stage, 0));
    stage_run(stage);
    assert_int_equal(brought(stage, sent), 1 + 404 - 256);
    sent = stage->fabric->sent_count;
    assert_true(stage_confirm(stage, ROWAN_EAGAIN));
    stage_pass(stage, 20 * NS_PER_MS);
    assert_int_equal(brought(stage, sent), 256);
    assert_int_equal(get(stage, key_of(1)).status, ROWAN_EBUSY);
    stage_land_all(stage);
    assert_int_equal(get(stage, key_of(1)).status, 0);
}

TEST(a_backup_without_space_is_brought_it_again_later)
{
    struct question question = put_and_begin(stage);

    answer(stage, &question, version_make(1, 0), version_make(1, 0), NULL, 0);
    for (unsigned i = 0; i < 3; i++) {
        uint32_t sent = stage->fabric->sent_count;

        assert_true(stage_confirm(stage, ROWAN_EFULL));
        stage_pass(stage, NS_PER_S - 1);
        assert_int_equal(brought(stage, sent), 0);
        assert_int_equal(get(stage, key_of(0)).status, ROWAN_EBUSY);
        stage_pass(stage, 1);
        assert_int_equal(brought(stage, sent), 1);
    }
    stage_land_all(stage);
    assert_int_equal(get(stage, key_of(0)).status, 0);
}

/* The host has lost what it liked, also of an epoch that was settled since. */
TEST(of_incomplete_data_everything_is_reconciled)
{
    struct blocks *blocks = no_blocks();
    struct question question = put_and_begin(stage);

    answer(stage, &question, version_make(1, 0), version_make(1, 0), NULL, 0);
    stage_land_all(stage);
    stage_pass(stage, 100 * NS_PER_MS);
    stage_land_all(stage);
    stage->boot++;
    stage_return(stage);
    question = up_to_tails(stage, version_make(2, 0), version_make(1, 0));
    assert_true(question.body.commit == version_make(2, 0));
    assert_true(question.body.after == version_make(1, 0));
    add_entry(stage, blocks, version_make(1, 2), key_of(1), 100);
    answer(stage, &question, version_make(2, 0), version_make(2, 0), blocks, 0);
    assert_int_equal(brought(stage, 0), 1); /* it has not shown (1, 1) */
    stage_land_all(stage);
    assert_int_equal(get(stage, key_of(0)).status, 0);
    assert_true(get(stage, key_of(1)).version == version_make(1, 2));
}

/* What it has itself is not sent to it. */
TEST(a_backup_is_sent_what_it_lacks_and_no_more)
{
    struct blocks *blocks = no_blocks();
    struct question question = put_and_begin(stage);

    add_entry(stage, blocks, version_make(1, 1), key_of(0), 5);
    stage_land_all(stage);
    answer(stage, &question, version_make(1, 0), version_make(1, 0), blocks, 0);
    assert_int_equal(brought(stage, 0), 0);
    assert_int_equal(get(stage, key_of(0)).status, 0);
}

/* What was superseded there it cannot show any more. */
TEST(a_backup_is_not_sent_what_its_prefix_covers)
{
    const uint64_t commit = version_make(1, 1), prefix = version_make(1, 3);

    put_some_and_die(stage, 4);
    stage_begin(stage);
    struct question question = up_to_tails(stage, commit, prefix);

    assert_true(question.body.after == commit);
    answer(stage, &question, commit, prefix, NULL, 0);
    assert_int_equal(brought(stage, 0), 1);
    stage_land_all(stage);
    assert_int_equal(get(stage, key_of(3)).status, 0);
}

TEST(garbage_of_a_backup_is_never_taken_in)
{
    struct question question = put_and_begin(stage);

    for (unsigned bad = 0; bad < 4; bad++) {
        struct blocks *blocks = no_blocks();

        /* An entry of the epoch that begins; a flipped bit; a second block alone; one cut short. */
        add_entry(stage, blocks, version_make(bad == 0 ? 2 : 1, 9), key_of(1),
                  bad == 2 ? 2000 : 100);
        if (bad == 1)
            blocks->bytes[0][50] ^= 1;
        else if (bad == 2)
            memmove(&blocks->data[0], &blocks->data[1], sizeof blocks->data[0] * --blocks->count);
        else if (bad == 3)
            blocks->data[0].len -= 64;
        answer(stage, &question, version_make(1, 0), version_make(1, 0), blocks, 0);
        assert_int_equal(get(stage, key_of(1)).status, ROWAN_EBUSY);
        assert_true(stage->wake_ns <= stage->now_ns + 2 * NS_PER_S);
        stage->now_ns += 2 * NS_PER_S;
        stage_run(stage);
        question = of_shard_0(stage);
        assert_true(question.body.cursor == 0);
    }
    answer(stage, &question, version_make(1, 0), version_make(1, 0), NULL, 0);
    stage_land_all(stage);
    assert_int_equal(get(stage, key_of(1)).status, ROWAN_ENOTFOUND);
    assert_int_equal(get(stage, key_of(0)).status, 0);
}

static Rowan__ControlMessage *status_of(struct stage *stage)
{
    struct puppet_conn *tool = stage_tool(stage);
    Rowan__GetStatus ask = ROWAN__GET_STATUS__INIT;
    Rowan__ControlMessage *found;
    uint32_t tag, taken = stage->fabric->taken;

    stage_tell(tool, 5, &CONTROL_MESSAGE(GET_STATUS, get_status, &ask));
    stage_run(stage);
    for (;;) {
        const struct puppet_sent *sent = puppet_take(stage->fabric);

        assert_non_null(sent);
        if (sent->conn == tool && !control_decode(sent->data, sent->bytes, &tag, &found)) {
            stage->fabric->taken = taken;
            return found;
        }
    }
}

TEST(committed_versions_that_nobody_has_are_counted)
{
    put_some_and_die(stage, 1);
    stage_begin(stage);
    Rowan__ControlMessage *status = status_of(stage);

    assert_true(status->server_status->shards[0]->recovering);
    control_free(status);
    struct question question = up_to_tails(stage, version_make(1, 4), version_make(1, 4));

    assert_true(question.body.commit == version_make(1, 4) &&
                question.body.after == version_make(1, 1));
    struct blocks *blocks = no_blocks();

    add_entry(stage, blocks, version_make(1, 3), key_of(1), 5);
    answer(stage, &question, version_make(1, 4), version_make(1, 4), blocks, 0);
    stage_land_all(stage);
    status = status_of(stage);
    assert_false(status->server_status->shards[0]->recovering);
    assert_true(status->server_status->shards[0]->lost == 2);
    control_free(status);
}

TEST(a_retry_of_what_only_the_backup_had_is_told_its_version)
{
    struct blocks *blocks = no_blocks();
    struct question question = put_and_begin(stage);

    add_entry(stage, blocks, version_make(1, 2), key_of(1), 100);
    answer(stage, &question, version_make(1, 0), version_make(1, 0), blocks, 0);
    stage_land_all(stage);
    struct puppet_conn *client = stage_client_again(stage, 99);
    const struct message_request request = {.type = MESSAGE_PUT,
                                            .operation = 7,
                                            .lowest_unanswered = 7,
                                            .key_bytes = (uint16_t)strlen(key_of(1)),
                                            .value_bytes = 5};

    stage->fabric->taken = stage->fabric->sent_count;
    stage_send(stage, client, &request, key_of(1), "value");
    stage_run(stage);
    struct message_reply reply = stage_reply(stage);

    assert_int_equal(reply.status, 0);
    assert_true(reply.version == version_make(1, 2));
}

UNIT_MAIN(NULL, NULL)
