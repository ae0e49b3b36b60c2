/* Which clients may still ask for operations that were done: what a worker writes about it at the head of each segment of
 * its log, and what it answers the cleaner. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "common/entry/commit.h"
#include "server/shard/records_question.h"
#include "server/worker/clients.h"
#include "server/worker/worker.h"
#include "stage.h"
#include "test/lib/unit.h"

enum { TABLE_CLIENTS = 4096, LED = 3 };

struct table {
    uint32_t parts, shards, clients;
    struct commit_shard shard[LED];
    struct commit_client client[TABLE_CLIENTS];
};

/* The table at the head of the `number`th segment of the worker's log, from 0. */
static const struct table *table_of(const struct stage *stage, uint32_t number)
{
    static struct table table;
    const struct entry_format format = stage_format(stage);
    struct commit_part part = {0};
    uint64_t at = 0;

    table = (struct table){0};
    for (uint64_t base = 0; base < stage->heap->pm.bytes; base += FABRIC_SEGMENT_BYTES) {
        struct entry_header header;
        struct commit_value value;
        uint32_t bytes;

        if (entry_decode(&format, stage->heap->pm.base + base, 4096, &header, &bytes) == 0 &&
            header.type == ENTRY_COMMIT_VERSIONS &&
            commit_decode(stage->heap->pm.base + base + ENTRY_HEADER_BYTES, header.value_bytes,
                          &value, &part) == 0 &&
            number-- == 0)
            at = base;
    }
    assert_true(at != 0);
    do {
        const uint8_t *block = stage->heap->pm.base + at;
        struct entry_header header;
        struct commit_value value;
        uint32_t bytes;

        assert_int_equal(entry_decode(&format, block, 8192, &header, &bytes), 0);
        assert_int_equal(
            commit_decode(block + ENTRY_HEADER_BYTES, header.value_bytes, &value, &part), 0);
        assert_int_equal(part.part, table.parts++);
        for (uint32_t i = 0; i < value.shards; i++)
            table.shard[table.shards++] = commit_shard_at(&value, i);
        for (uint32_t i = 0; i < value.clients; i++)
            table.client[table.clients++] = commit_client_at(&value, i);
        at += bytes;
    } while (table.parts < part.parts);
    return &table;
}

static void assert_nothing_of_tables_was_sent(const struct stage *stage)
{
    for (uint32_t i = 0; i < stage->fabric->log_count; i++) {
        const uint8_t *at = stage->fabric->log[i].data;
        struct entry_header header;
        struct commit_value value;

        entry_peek(at, &header);
        if (header.type == ENTRY_COMMIT_VERSIONS)
            assert_int_equal(
                commit_decode(at + ENTRY_HEADER_BYTES, header.value_bytes, &value, NULL), 0);
    }
}

static void put_to(struct stage *stage, struct puppet_conn *client, uint32_t shard,
                   uint32_t operation, uint32_t lowest, uint32_t value_bytes)
{
    static uint8_t value[ENTRY_MAX_VALUE_BYTES];
    const char *key = stage_key_of(shard);
    const struct message_request request = {.type = MESSAGE_PUT,
                                            .operation = operation,
                                            .lowest_unanswered = lowest,
                                            .key_bytes = (uint16_t)strlen(key),
                                            .value_bytes = value_bytes};

    stage_send(stage, client, &request, key, value);
    stage_land_done(stage);
}

static void put(struct stage *stage, struct puppet_conn *client, uint32_t operation,
                uint32_t lowest, uint32_t value_bytes)
{
    put_to(stage, client, 0, operation, lowest, value_bytes);
}

static void let_pass(struct stage *stage, uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        stage->now_ns += NS_PER_S;
        stage_run(stage);
        stage_land_all(stage);
    }
}

TEST(each_segment_begins_with_the_clients_that_are_known_then)
{
    struct puppet_conn *gone = stage_client_again(stage, 31), *stays;

    put(stage, gone, 1, 1, 5);
    const struct table *table = table_of(stage, 0);

    assert_true(table->shards == LED && table->clients == 1);
    assert_true(table->client[0].client == 31);
    for (unsigned i = 0; i < LED; i++)
        assert_true(table->shard[i].shard == i && table->shard[i].version == version_make(1, 0));

    puppet_close(gone, ROWAN_ECLOSED);
    stage_run(stage);
    stays = stage_client_again(stage, 32);
    put(stage, stays, 6, 4, 5);
    let_pass(stage, 125);
    for (uint32_t i = 7; i < 11; i++)
        put(stage, stays, i, 4, ENTRY_MAX_VALUE_BYTES);
    table = table_of(stage, 1);
    assert_true(table->shards == LED && table->clients == 1);
    assert_true(table->client[0].client == 32 && table->client[0].lowest == 4);
    /* The sixth put found no room in the old segment, and has no version yet. */
    assert_true(table->shard[0].version == version_make(1, 5));
    assert_true(table->shard[1].version == version_make(1, 0));
    assert_nothing_of_tables_was_sent(stage);
}

TEST(a_table_of_many_clients_has_several_parts)
{
    enum { CLIENTS = 1100 };
    static bool seen[CLIENTS];
    struct puppet_conn *last = NULL;

    for (uint32_t i = 0; i < CLIENTS; i++) {
        last = stage_client_again(stage, 5000 + i);
        if (i % 50 == 0)
            puppet_close(last, ROWAN_ECLOSED); /* known still */
    }
    put(stage, last, 1, 1, 5);
    const struct table *table = table_of(stage, 0);

    assert_true(table->parts == 4 && table->shards == LED && table->clients == CLIENTS);
    for (uint32_t i = 0; i < CLIENTS; i++)
        seen[table->client[i].client - 5000] = true;
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_true(seen[i]);
}

/* Its records are there, and nobody will forget them. */
TEST(while_a_client_with_records_found_no_place_nobody_counts_as_forgotten)
{
    struct clients clients;

    clients_init(&clients);
    for (uint32_t i = 1; i <= CLIENTS_MAX; i++)
        assert_int_equal(clients_note(&clients, i, 1), 0);
    assert_true(clients_lowest(&clients, CLIENTS_MAX + 1) == UINT32_MAX);
    assert_int_equal(clients_note(&clients, CLIENTS_MAX + 1, 1), ROWAN_ETOOMANY);
    assert_int_equal(clients_lowest(&clients, CLIENTS_MAX + 1), 0);
    assert_true(clients_lowest(&clients, 0) == UINT32_MAX);
    clients_fini(&clients);
}

/* --- questions --- */

/* The stage has one worker. */
static uint32_t lowest_asked(struct stage *stage, uint16_t shard, uint32_t client)
{
    struct poller poller = server_poller(stage->server, 1);
    struct records_question question = {
        .count = 2, .rows = {{.shard = 1, .client = 404}, {.shard = shard, .client = client}}};

    assert_string_equal(poller.name, "worker");
    assert_true(records_ask(&worker_role(poller.role)->questions, &question));
    assert_false(atomic_load(&question.answered));
    stage_run(stage);
    assert_true(atomic_load(&question.answered));
    assert_true(question.rows[0].lowest == UINT32_MAX); /* nobody has that number */
    return question.rows[1].lowest;
}

TEST(the_worker_tells_below_which_operations_nobody_asks_again)
{
    struct puppet_conn *client = stage_client_again(stage, 31);

    put(stage, client, 5, 4, 5);
    let_pass(stage, 2);
    assert_int_equal(lowest_asked(stage, 0, 31), 4);
    assert_int_equal(lowest_asked(stage, 2, 31), 4); /* the number is one for all shards */
    put(stage, client, 6, 6, 5);
    let_pass(stage, 2);
    assert_int_equal(lowest_asked(stage, 0, 31), 6);
    puppet_close(client, ROWAN_ECLOSED);
    let_pass(stage, 100);
    assert_int_equal(lowest_asked(stage, 0, 31), 6);
    let_pass(stage, 25);
    assert_true(lowest_asked(stage, 0, 31) == UINT32_MAX);
    assert_true(lowest_asked(stage, 0, 0) == UINT32_MAX);
    assert_int_equal(lowest_asked(stage, STAGE_BACKED, 31), 0); /* not this worker's */
}

static uint64_t spoken_upto(const struct table *table, uint16_t shard)
{
    for (uint32_t i = 0; i < table->shards; i++) {
        if (table->shard[i].shard == shard)
            return table->shard[i].version;
    }
    return 0;
}

/* More of its clients' records may be found at a backup, but none of what was settled. Shard 1 is of its first epoch
 * still, so it is served at once. */
TEST(a_table_speaks_for_what_was_settled_of_a_shard_that_is_reconciled)
{
    struct puppet_conn *client = stage_client_again(stage, 31);

    put(stage, client, 5, 4, 5);
    let_pass(stage, 2);
    for (uint32_t i = 6; i < 10; i++) /* into a second segment */
        put(stage, client, i, 4, ENTRY_MAX_VALUE_BYTES);
    let_pass(stage, 2); /* the first becomes committed */
    stage_end(stage);
    stage->config->shards[1].epoch = 1;
    assert_int_equal(stage_try(stage, STAGE_BLOCK_LIMIT), 0);
    stage_begin(stage);
    stage->fabric->taken = stage->fabric->sent_count;
    assert_true(lowest_asked(stage, 0, 404) == UINT32_MAX);
    assert_int_equal(lowest_asked(stage, 0, 31), 4);
    put_to(stage, stage_client_again(stage, 32), 1, 1, 1, 5);
    const struct table *table = table_of(stage, 2);

    assert_true(spoken_upto(table, 0) == version_make(1, 4));
    assert_true(spoken_upto(table, 1) == version_make(1, 0));
    assert_true(spoken_upto(table, 2) == 0); /* nothing is settled */
    assert_int_equal(table->clients, 2);
    for (unsigned i = 0; i < 2; i++) /* of one the start found how far it was */
        assert_int_equal(table->client[i].lowest, table->client[i].client == 31 ? 4 : 0);
}

/* More wait than a poll answers. */
TEST(questions_are_answered_a_few_in_a_poll)
{
    struct poller poller = server_poller(stage->server, 1);
    static struct records_question questions[80];
    uint32_t asked = 0, answered = 0;

    while (records_ask(&worker_role(poller.role)->questions, &questions[asked]))
        asked++;
    assert_in_range(asked, 60, 70);
    stage_poll(stage);
    for (uint32_t i = 0; i < asked; i++)
        answered += atomic_load(&questions[i].answered);
    assert_in_range(answered, 1, 10);
    stage_run(stage);
    for (uint32_t i = 0; i < asked; i++)
        assert_true(atomic_load(&questions[i].answered));
}

UNIT_MAIN(NULL, NULL)
