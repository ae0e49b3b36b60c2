/* Filling, seen from the server that copies and from the one that is copied to. The test plays the CM and server 2. */
#define TEST_FIXTURE open_stage, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/cluster/control.h"
#include "filling.h"
#include "landing.h"
#include "server/control/control_state.h"
#include "server/digest/digest_state.h"
#include "server/worker/worker_fill.h"
#include "server/worker/worker_state.h"
#include "test/lib/caught_log.h"
#include "test/lib/fail_call.h"
#include "test/lib/unit.h"

enum { CLIENT = 9 };

/* --- copying --- */

TEST(all_that_a_shard_has_is_copied_and_then_its_records_and_then_the_manager_is_told)
{
    struct puppet_conn *client = stage_client(stage);
    const struct entry_format format = stage_format(stage);
    const uint8_t *bytes;
    uint32_t puts = 0, deletes = 0, records = 0;

    for (unsigned i = 0; i < 40; i++) {
        char key[32];
        int count = snprintf(key, sizeof key, "{%s}%u", stage_key_of(LED), i);

        stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)count, "value", 5, 0);
        if (i % 4 == 0) {
            stage_run(stage);
            stage_ask(stage, client, MESSAGE_DELETE, key, (uint32_t)count, NULL, 0, 0);
        }
        stage_run(stage);
    }
    change(stage, LED, FILLS);
    assert_false(tells_filled(stage, LED, 2));
    assert_int_equal(left_to_fill(stage), 40);
    stage_land_all(stage);
    stage_pass(stage, 100 * NS_PER_MS);
    for (unsigned i = 0; i < 20; i++) {
        stage_land_all(stage);
        stage_pass(stage, 10 * NS_PER_MS);
    }
    assert_true(tells_filled(stage, LED, 2));
    stage_pass(stage, NS_PER_S);
    assert_int_equal(left_to_fill(stage), 0);

    const uint32_t size = stage_brought(stage, 0, &bytes);
    for (uint32_t at = 0; at < size;) {
        struct entry_header header;
        uint32_t block;
        assert_int_equal(entry_decode(&format, bytes + at, size - at, &header, &block), 0);
        puts += header.type == ENTRY_PUT;
        deletes += header.type == ENTRY_DELETE;
        records += header.type == ENTRY_RECORD;
        at += block;
    }
    assert_int_equal(puts, 30);
    assert_int_equal(deletes, 10);
    assert_int_equal(records, 50);
}

static uint32_t count_in(const char *text, const char *what)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    return count;
}

/* The other server has no segment, then no memory, and then it has. */
TEST(a_filling_that_finds_no_space_is_told_once_and_again_when_it_goes_on)
{
    uint64_t refused = 0, waits = 0, held = 0;

    stage_put(stage, stage_client(stage), stage_key_of(LED));
    stage_run(stage);
    change(stage, LED, FILLS);
    stage_run(stage);
    log_catch();
    for (uint32_t i = 0; i < 6; i++) {
        const int error = i == 0 ? ROWAN_EBUSY : i < 4 ? ROWAN_EFULL : ROWAN_ENOMEM;
        refused += stage_confirm(stage, error);
        stage_run(stage);
        held += worker_fill_held(worker_of(stage)) != RECLAIM_NOTHING;
        stage_pass(stage, NS_PER_S + NS_PER_S / 2);
        waits += counter_get(&counts_of(stage)->fill_waits);
    }
    stage_land_all(stage);
    stage_pass(stage, NS_PER_S);
    const char *text = log_caught();
    assert_int_equal(refused, 6);
    assert_int_equal(waits, 5);
    assert_int_equal(held, 1); /* full servers would wait for what the other one holds */
    assert_int_equal(counter_get(&counts_of(stage)->fill_waits), 0);
    assert_int_equal(count_in(text, "filling_waits"), 2);
    assert_non_null(
        strstr(text, "warn filling_waits worker=0 shard=0 epoch=2 server=2 error=ROWAN_EFULL"));
    assert_non_null(strstr(text, "error=ROWAN_ENOMEM"));
    assert_int_equal(count_in(text, "filling_goes_on"), 1);
}

/* Else it takes the last space of a server, and the puts of all shards that this one leads or backs wait for that. */
TEST(a_filling_waits_for_a_server_that_cleans_and_not_for_one_that_is_full)
{
    Rowan__SpaceIs space = ROWAN__SPACE_IS__INIT;
    stage_put(stage, stage_client(stage), stage_key_of(LED));
    stage_run(stage);
    change(stage, LED, FILLS);
    assert_true(stage_confirm(stage, ROWAN_EBUSY)); /* it comes again, once there is space */
    space.full = space.cleaning = true;
    stage_tell(stage->peer, 0, &CONTROL_MESSAGE(SPACE_IS, space_is, &space));
    stage_pass(stage, NS_PER_S);
    assert_false(stage_confirm(stage, 0));
    assert_int_equal(worker_fill_held(worker_of(stage)), RECLAIM_NOTHING);
    space.cleaning = false;
    stage_tell(stage->peer, 0, &CONTROL_MESSAGE(SPACE_IS, space_is, &space));
    stage_pass(stage, NS_PER_S);
    assert_true(stage_confirm(stage, 0));
}

/* Nine shards, all led by server 1: eight fill at server 2, the last one at server 3. */
static struct cluster_config *make_nine(void)
{
    enum { SLOTS = 1820, LAST = 8 };
    struct cluster_config *config = cluster_create(3, LAST + 1);

    assert_non_null(config);
    config->term = 1;
    config->cluster = 77;
    config->block_limit = STAGE_BLOCK_LIMIT;
    config->replicas = 2;
    config->has_secret = true;
    config->manager = 9;
    config->lease_ms = CLUSTER_MAX_LEASE_MS;
    for (uint32_t i = 0; i < config->member_count; i++) {
        config->members[i] = (struct member){.server = i + 1, .incarnation = 100 + i, .workers = 1};
        snprintf(config->members[i].address, sizeof config->members[i].address, "puppet:%u", i + 1);
    }
    for (uint32_t i = 0; i <= LAST; i++)
        config->shards[i] =
            (struct shard){.id = (uint16_t)i,
                           .first_slot = (uint16_t)(i * SLOTS),
                           .last_slot = (uint16_t)(i < LAST ? (i + 1) * SLOTS - 1 : 16383),
                           .epoch = 1,
                           .primary = 1,
                           .filling_count = 1,
                           .filling = {i < LAST ? 2 : 3}};
    assert_int_equal(cluster_finish(config), 0);
    return config;
}

/* Z9. As many as there are places wait for server 2, which is full. */
TEST(fillings_that_wait_for_a_server_hold_up_none_to_another_one)
{
    uint32_t refused = 0;

    stage_close(stage);
    stage_start(stage, STAGE_BLOCK_LIMIT);
    cluster_release(stage->config);
    stage->config = make_nine();
    stage_begin(stage);
    stage_grant(stage);
    stage_commit(stage, stage->config->term);
    struct puppet_conn *third = puppet_find(stage->fabric, STAGE_WORKER, "puppet:3");
    assert_non_null(third);
    puppet_connected(third, true);
    for (uint32_t i = 0; i < 8; i++) {
        stage_pass(stage, NS_PER_S);
        refused += stage_confirm(stage, ROWAN_EFULL);
    }
    stage_pass(stage, NS_PER_S);
    assert_true(refused > 0);
    stage->peer = third;
    stage->confirmed = 0;
    assert_true(stage_confirm(stage, 0));
}

/* The replica finds it; only then does this server look which one it is. */
TEST(a_damaged_object_is_left_out_and_the_replica_is_full_once_it_is_written_anew)
{
    const char *key = stage_key_of(LED);
    const uint32_t key_bytes = (uint32_t)strlen(key);
    const struct worker *worker = worker_of(stage);
    const uint8_t *bytes;
    uint32_t sent = stage->fabric->sent_count;

    stage_put(stage, stage_client(stage), key);
    stage_run(stage);
    const uint64_t at =
        index_find(worker->shards[LED]->index, index_hash(key, key_bytes), key, key_bytes);
    assert_true(at > 0);
    worker->common->pm->base[at + ENTRY_HEADER_BYTES + key_bytes] ^= 1;
    change(stage, LED, FILLS);
    stage_run(stage);
    assert_int_equal(stage_brought(stage, sent, &bytes), 64);
    sent = stage->fabric->sent_count;
    log_catch();
    assert_true(stage_confirm(stage, ROWAN_EDAMAGED));
    for (unsigned i = 0; i < 20; i++) {
        stage_land_all(stage);
        stage_pass(stage, 10 * NS_PER_MS);
    }
    const char *text = log_caught();
    assert_int_equal(count_in(text, "entry_damaged"), 1);
    assert_int_equal(
        count_in(text, "filling_waits worker=0 shard=0 epoch=2 server=2 error=ROWAN_EDAMAGED"), 1);
    assert_false(tells_filled(stage, LED, 2));
    const uint32_t size = stage_brought(stage, sent, &bytes);
    for (uint32_t from = 0; from < size; from += 64)
        assert_int_equal(bytes[from + 1], ENTRY_RECORD); /* of the put: its client may ask */
    stage_put(stage, stage_client(stage), key);
    for (unsigned i = 0; i < 20; i++) {
        stage_land_all(stage);
        stage_pass(stage, 2 * NS_PER_S);
    }
    assert_true(tells_filled(stage, LED, 2));
}

/* Whichever allocation fails while the shard begins its epoch. One of them is the filling's. */
TEST(without_memory_a_filling_begins_later_and_that_is_told)
{
    bool failed = true;

    log_catch();
    for (uint32_t nth = 1; failed; nth++) {
        configure(stage, LED, FILLS);
        fail_call(nth);
        stage_answer_suffixes(stage, 0);
        failed = fail_stop();
        stage_pass(stage, 2 * NS_PER_S);
        stage_close(stage);
        memset(stage, 0, sizeof *stage);
        open_with_leases(stage);
    }
    const char *text = log_caught();
    assert_int_equal(count_in(text, "filling_waits worker=0 error=ROWAN_ENOMEM"), 1);
    assert_int_equal(count_in(text, "filling_goes_on worker=0 error=ROWAN_OK"), 1);
}

/* X3: a copy that is on its way may be older than the tombstone. */
TEST(nothing_is_settled_everywhere_while_a_replica_fills)
{
    const uint64_t begun = version_make(2, 0);
    Rowan__SettledIs body = ROWAN__SETTLED_IS__INIT;
    Rowan__ShardSettled row = ROWAN__SHARD_SETTLED__INIT, *rows = &row;

    stage_put(stage, stage_client(stage), stage_key_of(LED));
    stage_run(stage);
    change(stage, LED, FILLS);
    row.shard = LED;
    row.epoch = 2;
    row.settled = begun;
    body.n_shards = 1;
    body.shards = &rows;
    const Rowan__ControlMessage message = CONTROL_MESSAGE(SETTLED_IS, settled_is, &body);
    stage_tell(stage->peer, 7, &message);
    stage_pass(stage, 2 * NS_PER_S);
    const struct shard_state *shard = worker_of(stage)->shards[LED];
    assert_true(atomic_load(&shard->dur_settled) == begun);
    assert_int_equal(atomic_load(&shard->everywhere), 0);
    for (unsigned i = 0; i < 20; i++) {
        stage_land_all(stage);
        stage_pass(stage, 10 * NS_PER_MS);
    }
    assert_true(tells_filled(stage, LED, 2));
    stage_tell(stage->peer, 7, &message);
    stage_pass(stage, 2 * NS_PER_S);
    assert_true(atomic_load(&shard->everywhere) == begun);
}

TEST(a_write_waits_for_a_replica_that_fills)
{
    struct puppet_conn *client = stage_client(stage);

    change(stage, LED, FILLS);
    stage->fabric->taken = stage->fabric->sent_count;
    stage_put(stage, client, stage_key_of(LED));
    stage_run(stage);
    stage_confirm(stage, 0);
    stage_run(stage);
    const uint32_t posted = stage->fabric->log_count;
    assert_true(posted > 0);
    while (stage->fabric->taken < stage->fabric->sent_count)
        assert_ptr_not_equal(puppet_take(stage->fabric)->conn, client);
    stage_land_all(stage);
    bool answered = false;
    while (stage->fabric->taken < stage->fabric->sent_count)
        answered |= puppet_take(stage->fabric)->conn == client;
    assert_true(answered);
}

/* --- being copied to --- */

/* Server 2 brings blocks `from` to `to` of a put of that version; from there to the same place: it says that this was all. */
static int bring_blocks(struct stage *stage, struct puppet_conn *peer, uint64_t version,
                        uint32_t value_bytes, uint16_t from, uint16_t to)
{
    static _Alignas(64) uint8_t blocks[4][STAGE_BLOCK_LIMIT];
    static uint8_t value[4 * STAGE_BLOCK_LIMIT] = "value";
    const struct entry_format format = stage_format(stage);
    const char *key = stage_key_of(STAGE_BACKED);
    struct entry_header header = {.type = ENTRY_PUT,
                                  .shard = STAGE_BACKED,
                                  .version = version,
                                  .key_bytes = (uint16_t)strlen(key),
                                  .value_bytes = value_bytes,
                                  .client_id = CLIENT,
                                  .operation = 1};
    ProtobufCBinaryData data[4];
    Rowan__StoreEntries body = ROWAN__STORE_ENTRIES__INIT;
    header.blocks = (uint16_t)entry_blocks(&format, header.key_bytes, value_bytes);
    for (header.block = from; header.block < to; header.block++, body.n_blocks++) {
        uint8_t *block = blocks[body.n_blocks];
        data[body.n_blocks].data = block;
        data[body.n_blocks].len = entry_encode_block(&format, &header, key, value, block);
    }
    body.shard = STAGE_BACKED;
    body.epoch = stage->config->shards[STAGE_BACKED].epoch;
    body.blocks = data;
    body.last = from == to;
    stage->fabric->taken = stage->fabric->sent_count;
    stage_tell(peer, 5, &CONTROL_MESSAGE(STORE_ENTRIES, store_entries, &body));
    stage_pass(stage, (body.last ? 40 : 10) * NS_PER_MS); /* E8 */
    const Rowan__ControlMessage *message;
    uint32_t tag;
    int error = ROWAN_ENOTFOUND;
    while ((message = stage_message(stage, peer, &tag))) {
        if (tag == 5)
            error = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_ENTRIES_STORED
                        ? 0
                        : message->failure->error;
    }
    return error;
}

/* One that fits into a block. */
static int bring(struct stage *stage, struct puppet_conn *peer, uint64_t version, bool last)
{
    return bring_blocks(stage, peer, version, 5, 0, !last);
}

/* A server that was copied to, and became a full replica, starts again: it has what was copied. */
TEST(what_was_copied_counts_after_a_start)
{
    change(stage, STAGE_BACKED, FILLS);
    struct landing landing = landing_begin(stage);
    assert_int_equal(bring(stage, landing.peer, version_make(1, 7), false), 0);
    assert_int_equal(landing_ask(&landing).segments_committed, 0);
    assert_int_equal(bring(stage, landing.peer, 0, true), 0);
    const struct control *control = server_poller(stage->server, 0).role;
    assert_false(control->digests[0]->log.open); /* E6 */
    change(stage, STAGE_BACKED, FULL);
    stage_pass(stage, NS_PER_S);
    assert_int_equal(landing_ask(&landing).segments_committed, 1); /* though nobody writes */
    stage_restart(stage);
    struct cluster_config *config = stage->config;
    config->shards[STAGE_BACKED].primary = 1;
    config->shards[STAGE_BACKED].backup_count = 0;
    assert_int_equal(cluster_finish(config), 0);
    stage->peer = NULL;
    stage_begin(stage);
    stage_grant(stage);
    stage_commit(stage, stage->config->term);
    struct puppet_conn *client = stage_client(stage);
    stage->fabric->taken = stage->fabric->sent_count;
    stage_get(stage, client, stage_key_of(STAGE_BACKED));
    stage_run(stage);
    const struct message_reply reply = stage_reply(stage);
    assert_int_equal(reply.status, 0);
    assert_int_equal(reply.version, version_make(1, 7));
}

/* The value is longer than a message, and others are written meanwhile: each of them raises what is settled. */
TEST(a_long_entry_that_is_half_stored_stays_though_its_shard_settles)
{
    const uint32_t value_bytes = 3 * STAGE_BLOCK_LIMIT;
    change(stage, STAGE_BACKED, FILLS);
    struct landing landing = landing_begin(stage);
    assert_int_equal(bring_blocks(stage, landing.peer, version_make(1, 7), value_bytes, 0, 2), 0);
    landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
    stage_pass(stage, NS_PER_S);
    assert_int_equal(bring_blocks(stage, landing.peer, version_make(1, 7), value_bytes, 2, 4), 0);
    assert_int_equal(bring(stage, landing.peer, 0, true), 0);
    stage_pass(stage, NS_PER_S);
    assert_int_equal(landing_ask(&landing).segments_committed, 1);
}

/* D10. A flipped bit there is a torn tail for a start. */
TEST(what_lies_in_the_open_segment_is_not_settled_when_the_log_is_closed)
{
    change(stage, STAGE_BACKED, FILLS);
    struct landing landing = landing_begin(stage);
    const struct control *control = server_poller(stage->server, 0).role;
    const struct shard_state *shard = control->shards[STAGE_BACKED];
    landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
    assert_int_equal(bring(stage, landing.peer, version_make(1, 7), false), 0);
    landing_long(&landing, version_make(2, 1), 5, 0);
    landing_commit(&landing, STAGE_BACKED, version_make(2, 1));
    assert_int_equal(bring(stage, landing.peer, 0, true), 0);
    stage_pass(stage, NS_PER_S);
    assert_int_equal(atomic_load(&shard->version), version_make(2, 1));
    assert_int_equal(atomic_load(&shard->settled), version_make(2, 0));
    landing_seal(&landing);
    stage_pass(stage, NS_PER_S);
    assert_int_equal(atomic_load(&shard->settled), version_make(2, 1));
}

/* A cleaner would take its blocks for dead. As long as the entry may go on, and until it is applied; later ones do not stay. */
TEST(the_segment_of_a_half_stored_entry_is_not_committed)
{
    const uint64_t version = version_make(1, 7);
    change(stage, STAGE_BACKED, FILLS);
    struct landing landing = landing_begin(stage);
    struct digest *digest =
        ((const struct control *)server_poller(stage->server, 0).role)->digests[0];
    landing_commit(&landing, STAGE_BACKED, version_make(2, 0));
    assert_int_equal(bring_blocks(stage, landing.peer, version, 3 * STAGE_BLOCK_LIMIT, 0, 2), 0);
    const uint64_t segment = digest->log.segment;
    assert_true(digest_keeps(digest, segment));
    assert_int_equal(digest_stores_from(digest), DIGEST_STORES_NOTHING);
    change(stage, STAGE_BACKED, FILLS); /* nobody goes on with it */
    assert_false(digest_keeps(digest, segment));
    assert_int_equal(bring_blocks(stage, landing.peer, version, 3 * STAGE_BLOCK_LIMIT, 0, 3), 0);
    log_close(&digest->log);
    stage_hold_fences(stage, true); /* whole, and not applied yet; the log has gone on */
    assert_int_not_equal(bring_blocks(stage, landing.peer, version, 3 * STAGE_BLOCK_LIMIT, 3, 4),
                         0);
    assert_true(digest_keeps(digest, segment));
    stage_hold_fences(stage, false);
    stage_pass(stage, NS_PER_S);
    assert_false(digest_keeps(digest, segment));
}

/* Of what is copied there is much, and nobody asks for most of it again: stubs tell of the rest. */
TEST(what_is_copied_of_earlier_epochs_gives_no_completion_record)
{
    change(stage, STAGE_BACKED, FILLS);
    struct landing landing = landing_begin(stage);
    const struct control *control = server_poller(stage->server, 0).role;
    const struct suffix *suffix = &control->shards[STAGE_BACKED]->suffix;
    assert_int_equal(bring(stage, landing.peer, version_make(1, 7), false), 0);
    assert_int_equal(bring(stage, landing.peer, version_make(2, 1), false), 0);
    assert_int_equal(suffix->count, 2);
    assert_int_equal(suffix->items[0].client, 0);
    assert_int_equal(suffix->items[1].client, CLIENT);
    /* So does what was found damaged end with the replica, and the manager is told. */
    shard_found_damage(control->shards[STAGE_BACKED], &control->common->damages);
    change(stage, STAGE_BACKED, FULL);
    change(stage, STAGE_BACKED, FILLS);
    assert_int_equal(control->damages_told, 2);
}

/* No segment is closed any more, and the others wait for it to let tombstones go. */
TEST(where_nothing_lands_the_beginning_of_an_epoch_is_settled)
{
    change(stage, STAGE_BACKED, FILLS);
    struct landing landing = landing_begin(stage);
    assert_int_equal(bring(stage, landing.peer, version_make(1, 7), false), 0);
    assert_int_equal(bring(stage, landing.peer, 0, true), 0);
    change(stage, STAGE_BACKED, FULL);
    for (uint32_t epoch = 3; epoch < 5; epoch++) {
        landing_commit(&landing, STAGE_BACKED, version_make(epoch, 0));
        stage_pass(stage, NS_PER_S);
        const struct control *control = server_poller(stage->server, 0).role;
        assert_int_equal(atomic_load(&control->shards[STAGE_BACKED]->dur_settled),
                         version_make(epoch, 0));
        change(stage, STAGE_BACKED, FULL);
    }
}

UNIT_MAIN(NULL, NULL)
