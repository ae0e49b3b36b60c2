/* A server against clients that leave at bad moments, peers that come and go, and bytes that no
 * honest client sends. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "common/base/version.h"
#include "common/cluster/control.h"
#include "common/entry/entry.h"
#include "server/control/control_state.h"
#include "server/index/index.h"
#include "server/worker/worker_state.h"
#include "stage.h"
#include "test/lib/unit.h"

TEST(a_put_is_answered_when_it_has_landed)
{
    struct puppet_conn *client = stage_client(stage);
    uint32_t operation = stage_put(stage, client, stage_key_of(0));

    stage_run(stage);
    assert_true(stage_is_quiet(stage));
    stage_land_all(stage);
    struct message_reply reply = stage_reply(stage);

    assert_int_equal(reply.status, 0);
    assert_int_equal(reply.operation, operation);
}

TEST(a_worker_looks_again_while_its_own_fence_is_under_way)
{
    struct puppet_conn *client = stage_client(stage);

    stage_put(stage, client, stage_key_of(0));
    stage_hold_fences(stage, true);
    stage_land_all(stage);
    assert_true(stage_is_quiet(stage));
    assert_true(stage->wake_ns <= stage->now_ns + NS_PER_MS);
    stage_hold_fences(stage, false);
    stage_run(stage);
    assert_int_equal(stage_reply(stage).status, 0);
}

/* The map makes one sync of all fences that wait together (pm_fence_test.c). */
TEST(writes_of_one_poll_share_a_fence)
{
    enum { WRITES = 256, PER_POLL = 128 };
    struct puppet_conn *client = stage_client(stage);
    uint64_t fences = atomic_load(&stage->heap->fences);

    for (unsigned i = 0; i < WRITES; i++)
        stage_put_lands(stage, client, stage_key_of(i % 3));
    assert_int_equal(atomic_load(&stage->heap->fences) - fences, WRITES);
    fences = atomic_load(&stage->heap->fences);
    for (unsigned i = 0; i < WRITES; i++)
        stage_put(stage, client, stage_key_of(i % 3));
    stage_land_all(stage);
    assert_int_equal(atomic_load(&stage->heap->fences) - fences, WRITES / PER_POLL);
    for (unsigned i = 0; i < 2 * WRITES; i++)
        assert_int_equal(stage_reply(stage).status, 0);
}

TEST(a_client_may_ask_and_leave_at_once)
{
    struct puppet_conn *client = stage_client(stage);

    stage_get(stage, client, stage_key_of(0));
    stage_put(stage, client, stage_key_of(0));
    stage_put_if(stage, client, stage_key_of(1), 99);
    puppet_close(client, ROWAN_ECLOSED);
    stage_land_all(stage);
    client = stage_client(stage);
    stage_get(stage, client, stage_key_of(0));
    stage_run(stage);
    stage_reply(stage);
}

TEST(a_client_may_leave_while_its_write_lands)
{
    struct puppet_conn *client = stage_client(stage);

    stage_put(stage, client, stage_key_of(0));
    stage_run(stage);
    puppet_close(client, ROWAN_ECLOSED);
    assert_true(puppet_land(stage->peer));
    stage_run(stage);
    assert_true(stage_is_quiet(stage));
}

TEST(clients_that_wait_for_one_key_may_all_leave)
{
    struct puppet_conn *first = stage_client(stage), *second = stage_client(stage),
                       *third = stage_client(stage);

    stage_put(stage, first, stage_key_of(0));
    stage_run(stage);
    stage_put_if(stage, second, stage_key_of(0), 99);
    stage_put_if(stage, third, stage_key_of(0), 99);
    stage_run(stage);
    puppet_close(second, ROWAN_ECLOSED);
    puppet_close(third, ROWAN_ECLOSED);
    assert_true(puppet_land(stage->peer));
    stage_run(stage);
    assert_int_equal(stage_reply(stage).status, 0);
    assert_true(stage_is_quiet(stage));
}

/* What starts because a client left is part of the poll like any other write: here its batch must
 * not be taken for the one that was posted before. */
TEST(a_write_behind_one_whose_client_left_is_answered_when_it_has_landed)
{
    struct puppet_conn *first = stage_client(stage), *leaver = stage_client(stage),
                       *waiter = stage_client(stage);

    stage_put(stage, first, stage_key_of(0));
    stage_run(stage);
    stage_put_if(stage, leaver, stage_key_of(0), 99);
    uint32_t operation = stage_put(stage, waiter, stage_key_of(0));

    stage_run(stage);
    assert_true(stage_is_quiet(stage));
    /* In one poll: another write is posted, and the leaver's record ends. */
    uint32_t other = stage_put(stage, first, stage_key_of(1));

    puppet_close(leaver, ROWAN_ECLOSED);
    stage_poll(stage);
    assert_true(puppet_land(stage->peer));
    assert_true(puppet_land(stage->peer));
    stage_poll(stage);
    while (!stage_is_quiet(stage)) {
        struct message_reply reply = stage_reply(stage);

        if (reply.operation == operation)
            assert_true(stage->peer->batch_first == stage->peer->batch_last &&
                        stage->peer->added == 0);
    }
    stage_land_all(stage);
    (void)other;
}

TEST(a_client_that_reads_late_gets_all_its_answers_in_order)
{
    struct puppet_conn *late = stage_client(stage), *other = stage_client(stage);
    uint32_t operation = 0;

    late->room = 0;
    for (unsigned i = 0; i < 4000; i++)
        stage_get(stage, late, stage_key_of(i % 3));
    stage_run(stage);
    other->room = 0;
    stage_get(stage, other, stage_key_of(0));
    stage_run(stage);
    assert_true(puppet_lives(stage->fabric, STAGE_WORKER, late));
    assert_true(puppet_lives(stage->fabric, STAGE_WORKER, other));
    late->room = 10;
    stage_get(stage, late, stage_key_of(0));
    stage_run(stage);
    late->room = UINT32_MAX;
    stage_run(stage);
    for (unsigned i = 0; i < 4001; i++) {
        struct message_reply reply = stage_reply(stage);

        assert_true(reply.operation > operation);
        operation = reply.operation;
    }
    assert_true(stage_is_quiet(stage));
    other->room = 1;
    stage_run(stage);
    stage_reply(stage);
}

TEST(only_the_client_that_does_not_read_loses_its_connection)
{
    struct puppet_conn *deaf = stage_client(stage), *late = stage_client(stage);

    deaf->room = late->room = 0;
    for (unsigned i = 0; i < 20000 && puppet_lives(stage->fabric, STAGE_WORKER, deaf); i++) {
        stage_get(stage, deaf, "key");
        if (i % 100 == 0)
            stage_get(stage, late, "key");
        stage_poll(stage);
    }
    assert_false(puppet_lives(stage->fabric, STAGE_WORKER, deaf));
    assert_true(puppet_lives(stage->fabric, STAGE_WORKER, late));
    late->room = 1;
    stage_run(stage);
    stage_reply(stage);
}

/* Each holds little, and one poll brings more than one of them holds. */
TEST(many_clients_that_do_not_read_leave_room_for_what_others_ask)
{
    enum { DEAF = 300, EACH = 64 };
    static struct puppet_conn *deaf[DEAF];
    const struct control *control = server_poller(stage->server, 0).role;
    const struct worker *worker = control->workers[0];
    uint32_t living = 0, most = 0;

    for (unsigned i = 0; i < DEAF; i++) {
        deaf[i] = stage_client(stage);
        deaf[i]->room = 0;
    }
    for (unsigned i = 0; i < EACH * DEAF; i++) {
        if (puppet_lives(stage->fabric, STAGE_WORKER, deaf[i % DEAF]))
            stage_get(stage, deaf[i % DEAF], "key");
        if (i % 1000 == 999)
            stage_run(stage);
        most = worker->held_count > most ? worker->held_count : most;
    }
    for (unsigned i = 0; i < DEAF; i++)
        living += puppet_lives(stage->fabric, STAGE_WORKER, deaf[i]);
    assert_in_range(most, WORKER_HELD - 1000, WORKER_HELD + WORKER_EVENTS);
    assert_in_range(living, WORKER_HELD / EACH / 2, DEAF - 1);
}

/* A fabric makes room inside its poll, too, and gives no event for it: a worker that does not look
 * after that sleeps on held answers. */
TEST(room_that_a_poll_makes_is_used_in_that_poll)
{
    struct puppet_conn *client = stage_client(stage);

    client->room = 0;
    stage_get(stage, client, "key");
    stage_run(stage);
    client->room_at_poll = 1;
    stage_poll(stage);
    stage_reply(stage);
}

TEST(writes_outlive_the_connection_to_their_backup)
{
    struct puppet_conn *client = stage_client(stage);

    for (unsigned i = 0; i < 100; i++) {
        stage_put(stage, client, stage_key_of(i % 3));
        stage_poll(stage);
        if (i % 7 == 0)
            puppet_land(stage->peer);
        if (i % 13 == 0)
            stage_reconnect_peer(stage);
    }
    stage_land_all(stage);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(stage_reply(stage).status, 0);
    assert_true(stage_is_quiet(stage));
}

/* A process that starts may not know yet whom it has to refuse. */
TEST(another_process_at_a_backups_address_is_sent_nothing)
{
    struct puppet_conn *client = stage_client(stage);
    const uint64_t meant = stage->fabric->incarnations[2];

    stage_put(stage, client, stage_key_of(0));
    stage_run(stage);
    stage->fabric->incarnations[2]++;
    for (unsigned i = 0; i < 3; i++) {
        const uint32_t added = stage->fabric->log_count;
        struct puppet_conn *before;

        stage_reconnect_peer(stage);
        before = stage->peer;
        stage_run(stage);
        assert_false(puppet_lives(stage->fabric, STAGE_WORKER, before));
        assert_int_equal(stage->fabric->log_count, added);
        stage->peer = NULL;
        stage_pass(stage, NS_PER_S);
        stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    }
    stage->fabric->incarnations[2] = meant;
    puppet_connected(stage->peer, true);
    stage_land_done(stage);
}

/* More than fits the bound on what a backup is owed, if each time counted. */
TEST(an_entry_that_is_sent_again_counts_once)
{
    enum { BYTES = (1 << 20) - 1000 };
    static uint8_t value[BYTES];
    struct puppet_conn *client = stage_client(stage);
    const char *key = stage_key_of(0);

    stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value, BYTES, 0);
    stage_run(stage);
    for (unsigned i = 0; i < 10; i++)
        stage_reconnect_peer(stage);
    stage_run(stage);
    stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value, BYTES, 0);
    stage_land_done(stage);
    assert_int_equal(stage_reply(stage).status, 0);
}

TEST(a_worker_refuses_clients_of_another_cluster)
{
    struct fabric_identity client = {.kind = FABRIC_CLIENT, .id = 7};

    assert_non_null(puppet_accept(stage->fabric, STAGE_WORKER, &client));
    client.cluster = stage->config->cluster;
    assert_non_null(puppet_accept(stage->fabric, STAGE_WORKER, &client));
    client.cluster++;
    assert_null(puppet_accept(stage->fabric, STAGE_WORKER, &client));
}

TEST(a_server_ends_in_the_middle_of_a_digest)
{
    struct puppet_conn *tool = stage_tool(stage);
    struct poller control = server_poller(stage->server, 0);
    uint64_t wake_ns = WAKE_NEVER;

    for (uint32_t shard = 0; shard < 4; shard++) {
        Rowan__GetChecksum get = ROWAN__GET_CHECKSUM__INIT;

        get.shard = shard;
        stage_tell(tool, shard, &CONTROL_MESSAGE(GET_CHECKSUM, get_checksum, &get));
        if (shard == 1) { /* at its owner, not walked to the end */
            control.poll(control.role, stage->now_ns, &wake_ns);
            struct poller worker = server_poller(stage->server, 1);
            worker.poll(worker.role, stage->now_ns, &wake_ns);
        }
    }
    control.poll(control.role, stage->now_ns, &wake_ns);
}

/* The last thing that a peer was told about our space; -1: nothing. */
static int told_space(struct stage *stage, const struct puppet_conn *peer)
{
    const struct puppet_sent *sent;
    int full = -1;

    while ((sent = puppet_take(stage->fabric))) {
        Rowan__ControlMessage *message;
        uint32_t tag;

        if (sent->conn != peer)
            continue;
        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        assert_int_equal(message->body_case, ROWAN__CONTROL_MESSAGE__BODY_SPACE_IS);
        full = message->space_is->full;
        control_free(message);
    }
    return full;
}

/* As on a fabric with small packets. */
static void store_the_largest_value(struct stage *stage, uint32_t block_limit)
{
    enum { BYTES = 1 << 20 };
    uint8_t *value = malloc(BYTES);

    assert_non_null(value);
    for (uint32_t i = 0; i < BYTES; i++)
        value[i] = (uint8_t)(i * 31 >> 7);
    stage_close(stage);
    stage_open(stage, block_limit);
    struct puppet_conn *client = stage_client(stage);

    const char *key = stage_key_of(0);

    stage_ask(stage, client, MESSAGE_PUT, key, (uint32_t)strlen(key), value, BYTES, 0);
    stage_land_done(stage);
    stage_get(stage, client, key);
    stage_run(stage);
    const struct puppet_sent *sent = &stage->fabric->sent[stage->fabric->taken];
    struct message_reply reply = stage_reply(stage);

    assert_int_equal(reply.status, 0);
    assert_int_equal(reply.value_bytes, BYTES);
    assert_memory_equal(sent->data + sizeof reply, value, BYTES);
    free(value);
}

/* The second takes more blocks than a queue of 4096. */
TEST(a_value_of_many_blocks_is_answered_whole)
{
    store_the_largest_value(stage, 4096);
    store_the_largest_value(stage, 256);
}

/* A peer keeps what it heard on an earlier connection, so it is told on each; and told again when
 * the message found no room. */
TEST(garbage_from_a_peer_ends_its_connection_and_what_has_not_landed_is_sent_again)
{
    struct puppet_conn *client = stage_client(stage), *peer = stage->peer;

    stage_put(stage, client, stage_key_of(0));
    stage_run(stage);
    for (unsigned i = 0; i < 3; i++)
        puppet_message(peer, "no message at all", 17, NULL, 0, NULL, 0);
    stage_run(stage);
    assert_false(puppet_lives(stage->fabric, STAGE_WORKER, peer));
    stage->now_ns += NS_PER_S;
    stage_run(stage);
    stage->peer = puppet_find(stage->fabric, STAGE_WORKER, "puppet:2");
    assert_non_null(stage->peer);
    puppet_connected(stage->peer, true);
    stage_land_done(stage);
}

TEST(a_peer_is_told_about_space_whatever_comes_between)
{
    const struct fabric_identity id = {
        .cluster = 77, .id = 2, .incarnation = 101, .kind = FABRIC_SERVER};
    struct puppet_conn *peer = puppet_accept(stage->fabric, STAGE_CONTROL, &id);

    assert_non_null(peer);
    peer->room = 0;
    stage_run(stage);
    assert_int_equal(told_space(stage, peer), -1);
    peer->room = 1;
    stage_run(stage);
    assert_int_equal(told_space(stage, peer), 0);
}

/* A fabric that could not have all its blocks in flight would never have room. */
TEST(a_fabric_that_takes_too_few_blocks_ends_the_server)
{
    stage_close(stage);
    stage_start(stage, 256);
    stage->fabric->head.caps.max_batch_blocks = 4096;
    stage_adopt(stage);
    assert_int_equal(server_error(stage->server), ROWAN_EUNSUPPORTED);
}

/* And a tool that asks while the server ends is answered, too. */
TEST(a_configuration_with_an_unknown_block_limit_ends_the_server)
{
    static const uint32_t limits[] = {64, 128 << 10, 2 << 20};

    for (unsigned i = 0; i < 3; i++) {
        stage_close(stage);
        stage_start(stage, STAGE_BLOCK_LIMIT);
        struct puppet_conn *tool = stage_tool(stage);

        stage->config->block_limit = limits[i];
        stage_configure(stage, stage->config);
        Rowan__GetStatus get = ROWAN__GET_STATUS__INIT;

        stage_tell(tool, 1, &CONTROL_MESSAGE(GET_STATUS, get_status, &get));
        stage_run(stage);
        assert_int_equal(server_error(stage->server), ROWAN_EUNSUPPORTED);
        assert_ptr_equal(stage->fabric->sent[stage->fabric->sent_count - 1].conn, tool);
    }
}

/* Before it serves, and while it does. Field 9 is the format. */
TEST(a_configuration_of_a_later_format_ends_the_server_with_a_sentence)
{
    static uint8_t later[] = {0x48, VERSION_CONFIGURATION_HIGHEST + 1};
    Rowan__ConfigurationIs is = ROWAN__CONFIGURATION_IS__INIT;

    is.configuration = (ProtobufCBinaryData){.len = sizeof later, .data = later};
    for (int serves = 0; serves < 2; serves++) {
        stage_close(stage);
        stage_start(stage, STAGE_BLOCK_LIMIT);
        if (serves)
            stage_adopt(stage);
        stage_tell(stage_cm(stage), stage_join_tag(stage),
                   &CONTROL_MESSAGE(CONFIGURATION_IS, configuration_is, &is));
        stage_run(stage);
        assert_int_equal(server_error(stage->server), ROWAN_EINCOMPATIBLE);
        assert_non_null(
            strstr(server_why(stage->server), "a format that this server does not read"));
    }
}

/* A block of an entry of two, of shard 3. Those that lie the wrong way round have to be joined elsewhere. Returns
 * the place behind it. */
static uint64_t land_block(struct stage *stage, uint64_t offset, uint16_t number)
{
    static uint8_t value[STAGE_BLOCK_LIMIT];
    static _Alignas(64) uint8_t block[STAGE_BLOCK_LIMIT];
    const struct entry_format format = {.seed = cluster_seed(stage->config),
                                        .block_limit = STAGE_BLOCK_LIMIT};
    const char *key = stage_key_of(3);
    struct entry_header header = {.type = ENTRY_PUT,
                                  .shard = 3,
                                  .version = version_make(1, 1),
                                  .key_bytes = (uint16_t)strlen(key),
                                  .value_bytes = STAGE_BLOCK_LIMIT,
                                  .block = number,
                                  .blocks = 2};
    uint32_t bytes = entry_encode_block(&format, &header, key, value, block);

    pm_store(&stage->heap->pm, offset, block, bytes);
    return offset + bytes;
}

/* Until the PM has no free segment. Returns the beginning of the one that things land in. */
static uint64_t use_up_segments(struct stage *stage)
{
    struct puppet_fabric *fabric = stage->fabric;
    uint32_t posted;

    fabric->unquiet = true;
    do {
        posted = fabric->post_count;
        assert_true(puppet_seal(fabric, STAGE_CONTROL));
        stage_run(stage);
    } while (fabric->post_count > posted);
    assert_true(fabric->sealed < posted);
    return fabric->posts[fabric->sealed].offset;
}

static void assert_that_it_keeps_trying(struct stage *stage)
{
    for (unsigned i = 0; i < 100; i++) {
        assert_true(stage->wake_ns <= stage->now_ns + 64 * NS_PER_MS);
        stage->now_ns = stage->wake_ns;
        stage_run(stage);
    }
}

/* Nobody wakes it when there is space again. */
TEST(a_digest_role_that_lacks_space_keeps_trying)
{
    uint64_t offset = use_up_segments(stage);

    land_block(stage, land_block(stage, offset, 1), 0);
    stage_run(stage);
    assert_that_it_keeps_trying(stage);
}

/* It had stopped looking, and what it is woken for is the first thing that it has no space for. */
TEST(a_digest_role_that_is_woken_and_lacks_space_keeps_trying)
{
    uint64_t offset = land_block(stage, use_up_segments(stage), 1);

    stage_pass(stage, NS_PER_S);
    land_block(stage, offset, 0);
    stage_run(stage);
    assert_that_it_keeps_trying(stage);
}

TEST(a_landing_zone_that_lacks_segments_is_looked_at_again)
{
    use_up_segments(stage);
    for (unsigned i = 0; i < 10; i++) {
        stage_pass(stage, NS_PER_S);
        assert_true(stage->wake_ns <= stage->now_ns + 100 * NS_PER_MS);
    }
}

/* XXH3 of 32 bytes multiplies what a key's halves and the (public) secret give; where one factor is
 * 0 the other does not matter. */
static void colliding_key(uint8_t *key, uint32_t number)
{
    static const uint8_t secret[8] = {0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe};

    memset(key, 'k', 32);
    memcpy(key, secret, sizeof secret);
    memcpy(key + 8, &number, sizeof number);
}

TEST(keys_of_two_shards_may_share_a_hash)
{
    struct puppet_conn *client = stage_client(stage);
    uint8_t keys[2][32];
    uint32_t number = 0;

    for (uint32_t shard = 0; shard < 2; shard++) {
        do
            colliding_key(keys[shard], number++);
        while (slot_of_key(keys[shard], 32) / 4096 != shard);
    }
    assert_true(index_hash(keys[0], 32) == index_hash(keys[1], 32));
    stage_ask(stage, client, MESSAGE_PUT, keys[0], 32, "value", 5, 0);
    stage_ask(stage, client, MESSAGE_PUT_IF, keys[1], 32, "value", 5, 0);
    stage_land_done(stage);
    assert_int_equal(stage_reply(stage).status, 0);
    stage_ask(stage, client, MESSAGE_GET, keys[1], 32, NULL, 0, 0);
    stage_run(stage);
    assert_int_equal(stage_reply(stage).status, 0);
}

UNIT_MAIN(NULL, NULL)
