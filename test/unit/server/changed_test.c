/* A client over shm that changes its request while the server looks at it (worker.c, W17). */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include <stdio.h>

#include "common/base/error.h"
#include "common/cluster/slot.h"
#include "stage.h"
#include "test/lib/unit.h"

static char asked[16], other[16]; /* keys of shards 0 and 1, of the same length */
static struct puppet_conn *changes;

static void find_keys(void)
{
    char *const keys[] = {asked, other};

    for (unsigned shard = 0; shard < 2; shard++) {
        unsigned i = 0;
        do
            snprintf(keys[shard], sizeof asked, "key-%06u", i++);
        while (slot_of_key(keys[shard], 10) / 4096 != shard);
    }
}

/* In all requests that the server has not released. */
static void change_keys(struct puppet_fabric *puppet)
{
    (void)puppet;
    for (struct puppet_message *message = changes->messages; message; message = message->next)
        memcpy(message->data + sizeof(struct message_request), other, 10);
}

static uint32_t ask(struct stage *stage, enum message_type type, const char *key, uint64_t expected)
{
    const uint32_t bytes = type == MESSAGE_GET ? 0 : 5;

    return stage_ask(stage, changes, type, key, 10, "value", bytes, expected);
}

static int get(struct stage *stage, const char *key)
{
    ask(stage, MESSAGE_GET, key, 0);
    stage_run(stage);
    return stage_reply(stage).status;
}

TEST(a_write_that_waits_keeps_the_key_that_it_came_with)
{
    find_keys();
    changes = stage_client(stage);
    ask(stage, MESSAGE_PUT, asked, 0);
    stage_run(stage);
    ask(stage, MESSAGE_PUT_IF, asked, 99); /* behind the first */
    ask(stage, MESSAGE_PUT, asked, 0);     /* behind both */
    stage_run(stage);
    change_keys(stage->fabric);
    stage_land_all(stage);
    assert_int_equal(stage_reply(stage).status, 0);
    assert_int_equal(stage_reply(stage).status, ROWAN_EVERSION);
    const uint64_t version = stage_reply(stage).version;

    assert_int_equal(get(stage, other), ROWAN_ENOTFOUND);
    ask(stage, MESSAGE_GET, asked, 0);
    stage_run(stage);
    assert_true(stage_reply(stage).version == version);
}

/* What is held is judged again: here the key is one of another shard by then. */
TEST(a_request_that_is_held_is_judged_by_the_key_that_it_has_then)
{
    find_keys();
    changes = stage_client(stage);
    changes->room = 0;
    ask(stage, MESSAGE_GET, asked, 0);
    stage_run(stage);
    change_keys(stage->fabric);
    changes->room = 100;
    stage_pass(stage, NS_PER_S);
    assert_int_equal(stage_reply(stage).status, ROWAN_ENOTMINE);
}

UNIT_MAIN(NULL, NULL)
