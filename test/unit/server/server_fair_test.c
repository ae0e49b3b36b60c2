/* server_fair_test.c - the few buffers that a fabric has for large messages, for all connections:
 * none is kept for a client that does not read, and few for writes that wait (H14). */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "stage.h"
#include "test/lib/unit.h"

static uint32_t unreleased(const struct puppet_conn *conn)
{
    uint32_t count = 0;

    for (const struct puppet_message *m = conn->messages; m; m = m->next)
        count++;
    return count;
}

TEST(a_client_that_does_not_read_keeps_no_large_message)
{
    enum { BYTES = 100000, PUTS = 20 };
    static uint8_t value[BYTES];
    struct puppet_conn *deaf = stage_client(stage);
    const char *key = stage_key_of(3); /* of another server's shard */

    deaf->room = 0;
    for (unsigned i = 0; i < PUTS; i++) /* all it can be told is no */
        stage_ask(stage, deaf, MESSAGE_PUT, key, (uint32_t)strlen(key), value, BYTES, 0);
    stage_put(stage, deaf, key);
    stage_run(stage);
    assert_int_equal(unreleased(deaf), 1);
    deaf->room = UINT32_MAX;
    stage_run(stage);
    for (unsigned i = 0; i < PUTS; i++)
        assert_int_equal(stage_reply(stage).status, ROWAN_EBUSY);
    assert_int_equal(stage_reply(stage).status, ROWAN_ENOTMINE);
    assert_int_equal(unreleased(deaf), 0);
}

TEST(writes_that_wait_for_one_key_keep_few_large_messages)
{
    enum { BYTES = 100000, PUTS = 20, KEPT = 2 };
    static uint8_t value[BYTES];
    struct puppet_conn *client = stage_client(stage), *leaver = stage_client(stage);
    const char *key = stage_key_of(0);

    for (unsigned round = 0; round < 3; round++) { /* what left or went on counts no more */
        stage_put(stage, client, key);
        stage_run(stage);
        stage_ask(stage, leaver, MESSAGE_PUT_IF, key, (uint32_t)strlen(key), value, BYTES, 99);
        stage_run(stage);
        puppet_close(leaver, ROWAN_ECLOSED);
        stage_run(stage);
        for (unsigned i = 0; i < PUTS; i++)
            stage_ask(stage, client, MESSAGE_PUT_IF, key, (uint32_t)strlen(key), value, BYTES, 99);
        stage_run(stage);
        assert_int_equal(unreleased(client), KEPT);
        for (unsigned i = 0; i < PUTS - KEPT; i++)
            assert_int_equal(stage_reply(stage).status, ROWAN_EBUSY);
        stage_land_all(stage);
        assert_int_equal(unreleased(client), 0);
        assert_int_equal(stage_reply(stage).status, 0);
        for (unsigned i = 0; i < KEPT; i++)
            assert_int_equal(stage_reply(stage).status, ROWAN_EVERSION);
        assert_true(stage_is_quiet(stage));
        leaver = stage_client(stage);
    }
}

/* Each may have a share of what is left, so it takes some to fill the table. */
TEST(clients_that_take_no_answers_to_writes_leave_places_for_others)
{
    enum { DEAF = 12 };
    struct puppet_conn *deaf[DEAF], *client = stage_client(stage);
    const char *key = stage_key_of(0);
    for (unsigned i = 0; i < DEAF; i++) {
        deaf[i] = stage_client(stage);
        deaf[i]->room = 0;
        for (unsigned k = 0; k < 1024; k++)
            stage_ask(stage, deaf[i], MESSAGE_DELETE, key, (uint32_t)strlen(key), NULL, 0, 0);
        stage_run(stage);
    }
    uint32_t open = 0;
    for (unsigned i = 0; i < DEAF; i++)
        open += puppet_lives(stage->fabric, STAGE_WORKER, deaf[i]);
    assert_in_range(open, 1, DEAF - 1);
    stage_put(stage, client, key);
    stage_run(stage);
    stage_land_all(stage);
    assert_int_equal(stage_reply(stage).status, 0);
}

UNIT_MAIN(NULL, NULL)
