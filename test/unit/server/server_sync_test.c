/* server_sync_test.c - a medium that fails under a server: whoever waits for the sync, the server
 * ends with one sentence, and what is not durable is not acknowledged. Likewise a network device. */
#define TEST_FIXTURE open_stage, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "stage.h"
#include "test/lib/unit.h"

static unsigned failures;

static void count_failure(void *context)
{
    (void)context;
    failures++;
}

static void listen_for_failures(struct stage *stage)
{
    failures = 0;
    server_on_failure(stage->server, count_failure, NULL);
}

static int open_stage(void **state)
{
    stage_setup(state);
    listen_for_failures(*state);
    return 0;
}

static void assert_ended(struct stage *stage)
{
    assert_int_equal(failures, 1);
    assert_int_equal(server_error(stage->server), ROWAN_EIO);
    assert_ptr_equal(strstr(server_why(stage->server), "a sync of the PM file failed: "),
                     server_why(stage->server));
    stage_run(stage); /* until the threads have ended the roles are polled */
    assert_int_equal(failures, 1);
}

/* A put of a key whose shard the server leads. */
static void put(struct stage *stage, struct puppet_conn *client)
{
    static const char *const keys[] = {"a key", "b key", "c key", "d key", "e key", "f key"};
    const char *key = keys[0];

    for (unsigned i = 1; slot_of_key(key, (uint32_t)strlen(key)) >= 3 * 4096; i++) {
        assert_true(i < sizeof keys / sizeof keys[0]);
        key = keys[i];
    }
    stage_put(stage, client, key);
}

TEST(a_failed_sync_of_a_write_ends_the_server_and_answers_nobody)
{
    struct puppet_conn *client = stage_client(stage);

    put(stage, client);
    stage_land_done(stage);
    put(stage, client);
    stage_fail_fences(stage);
    stage_land_all(stage);
    assert_true(stage_is_quiet(stage));
    assert_ended(stage);
}

TEST(a_failed_sync_of_new_segments_ends_the_server_and_posts_none)
{
    const uint32_t posted = stage->fabric->post_count;

    stage_fail_fences(stage);
    assert_true(puppet_seal(stage->fabric, STAGE_CONTROL));
    stage_run(stage);
    assert_int_equal(stage->fabric->post_count, posted);
    assert_ended(stage);
}

TEST(a_failed_sync_of_a_new_store_ends_the_server)
{
    stage_close(stage);
    stage_start(stage, STAGE_BLOCK_LIMIT);
    server_on_failure(stage->server, count_failure, NULL);
    stage_fail_fences(stage);
    stage_adopt(stage);
    assert_null(puppet_find(stage->fabric, STAGE_WORKER, "puppet:2"));
    assert_ended(stage);
}

static struct puppet_conn *accept_peer(struct stage *stage)
{
    const struct fabric_identity id = {
        .cluster = 77, .id = 2, .incarnation = 101, .kind = FABRIC_SERVER};
    struct puppet_conn *peer = puppet_accept(stage->fabric, STAGE_CONTROL, &id);

    assert_non_null(peer);
    stage_run(stage);
    stage->fabric->taken = stage->fabric->sent_count; /* it was told about space */
    return peer;
}

/* On shm a peer syncs our file. It breaks its connection when that fails, and acknowledges nothing;
 * what ends us is that the kernel tells our own next sync, too. */
TEST(a_failed_sync_that_a_peer_met_ends_the_server)
{
    struct puppet_conn *peer = accept_peer(stage);

    stage_fail_fences(stage);
    stage_run(stage);
    assert_int_equal(failures, 0); /* it waits for no fence */
    puppet_close(peer, ROWAN_ECLOSED);
    stage_run(stage);
    assert_ended(stage);
}

TEST(the_end_of_a_peer_alone_ends_nobody)
{
    struct puppet_conn *peer = accept_peer(stage), *client;

    stage_hold_fences(stage, true);
    puppet_close(peer, ROWAN_ECLOSED);
    stage_run(stage);
    stage_hold_fences(stage, false);
    stage_run(stage);
    assert_int_equal(failures, 0);
    client = stage_client(stage);
    put(stage, client);
    stage_land_done(stage);
}

TEST(a_network_device_that_failed_ends_the_server)
{
    static const unsigned endpoints[] = {STAGE_WORKER, STAGE_CONTROL};
    static const char why[] = "the network device failed, ";

    for (unsigned i = 0; i < 2; i++) {
        stage->fabric->endpoints[endpoints[i]].head.error = ROWAN_EIO;
        stage_run(stage);
        assert_int_equal(failures, 1);
        assert_int_equal(server_error(stage->server), ROWAN_EIO);
        assert_memory_equal(server_why(stage->server), why, sizeof why - 1);
        stage_reopen(stage);
        listen_for_failures(stage);
    }
}

UNIT_MAIN(NULL, NULL)
