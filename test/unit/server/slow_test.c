/* Operations that a server follows, and where a key lies in it, as a tool is told. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "common/base/version.h"
#include "landing.h"
#include "server/control/control_state.h"
#include "server/worker/worker_state.h"
#include "test/lib/unit.h"

#define MS NS_PER_MS

static void follow(struct stage *stage, uint32_t one_in)
{
    const struct server_options options = {.trace_one_in = one_in};
    server_tune(stage->server, &options);
    stage_run(stage);
}

/* The answer to a question of a tool. */
static const Rowan__ControlMessage *ask(struct stage *stage, const Rowan__ControlMessage *question)
{
    static struct puppet_conn *tool;
    tool = stage_tool(stage);
    stage_tell(tool, 1, question);
    stage_run(stage);
    const Rowan__ControlMessage *answer = stage_message(stage, tool, NULL);
    assert_non_null(answer);
    return answer;
}

static const Rowan__SlowAre *slow(struct stage *stage)
{
    Rowan__GetSlow get = ROWAN__GET_SLOW__INIT;
    const Rowan__ControlMessage *answer = ask(stage, &CONTROL_MESSAGE(GET_SLOW, get_slow, &get));
    assert_int_equal(answer->body_case, ROWAN__CONTROL_MESSAGE__BODY_SLOW_ARE);
    return answer->slow_are;
}

static const Rowan__ControlMessage *trace(struct stage *stage, uint32_t shard, const char *key,
                                          size_t bytes)
{
    Rowan__GetTrace get = ROWAN__GET_TRACE__INIT;
    get.shard = shard;
    get.key.data = (uint8_t *)(uintptr_t)key;
    get.key.len = bytes;
    return ask(stage, &CONTROL_MESSAGE(GET_TRACE, get_trace, &get));
}

static uint64_t sum(const uint64_t *counts, size_t count)
{
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++)
        all += counts[i];
    return all;
}

/* Arrived at 0; the backup has it 2 ms later, the log 3 ms after that. */
TEST(of_a_followed_put_each_step_is_told)
{
    struct puppet_conn *client = stage_client(stage);
    follow(stage, 1);
    stage_put(stage, client, stage_key_of(0));
    stage_hold_fences(stage, true);
    stage_run(stage);
    stage_pass(stage, 2 * MS);
    assert_true(puppet_land(stage->peer));
    stage_pass(stage, 3 * MS);
    assert_true(stage_is_quiet(stage));
    stage_hold_fences(stage, false);
    stage_run(stage);
    assert_int_equal(stage_reply(stage).status, 0);
    stage_pass(stage, 9 * MS);
    const Rowan__SlowAre *are = slow(stage);
    assert_int_equal(are->n_operations, 1);
    assert_int_equal(are->one_in, 1);
    const Rowan__SlowOperation *put = are->operations[0];
    assert_int_equal(put->type, MESSAGE_PUT);
    assert_int_equal(put->shard, 0);
    assert_int_equal(put->status, 0);
    assert_int_equal(put->key.len, strlen(stage_key_of(0)));
    assert_memory_equal(put->key.data, stage_key_of(0), put->key.len);
    assert_int_equal(put->n_backups, 1);
    assert_int_equal(put->backups[0]->server, 2);
    assert_in_range(put->backups[0]->landed_ns, 2 * MS, 3 * MS);
    assert_in_range(put->log_ns, 5 * MS, 6 * MS);
    assert_in_range(put->index_ns, put->log_ns, 6 * MS);
    assert_in_range(put->total_ns, put->index_ns, 6 * MS);
    assert_in_range(put->age_ns, 9 * MS, 10 * MS);
    assert_int_equal(sum(are->writes, are->n_writes), 1);
    assert_int_equal(sum(are->gets, are->n_gets), 0);
}

TEST(a_write_behind_another_one_of_its_key_was_queued)
{
    struct puppet_conn *client = stage_client(stage);
    stage_put(stage, client, stage_key_of(0));
    stage_run(stage);
    follow(stage, 1);
    stage_put_if(stage, client, stage_key_of(0), 99);
    stage_run(stage);
    stage_pass(stage, 4 * MS);
    stage_land_done(stage);
    assert_int_equal(stage_reply(stage).status, ROWAN_EVERSION);
    const Rowan__SlowAre *are = slow(stage);
    assert_int_equal(are->n_operations, 1);
    assert_int_equal(are->operations[0]->status, ROWAN_EVERSION);
    assert_in_range(are->operations[0]->total_ns, 4 * MS, 5 * MS);
    assert_int_equal(are->operations[0]->n_backups, 0);
    stage_put(stage, client, stage_key_of(1));
    stage_run(stage);
    stage_put_if(stage, client, stage_key_of(1), version_make(1, 1));
    stage_run(stage);
    stage_pass(stage, 7 * MS);
    stage_land_done(stage);
    stage_land_done(stage);
    const Rowan__SlowOperation *found = NULL;
    are = slow(stage);
    for (size_t i = 0; i < are->n_operations; i++) {
        if (are->operations[i]->shard == 1 && are->operations[i]->type == MESSAGE_PUT_IF)
            found = are->operations[i];
    }
    assert_non_null(found);
    assert_in_range(found->queue_ns, 7 * MS, 8 * MS);
    assert_in_range(found->total_ns, found->queue_ns, 8 * MS);
}

/* Places are free again whatever becomes of a write: done, refused, or dropped with its client. */
TEST(no_more_than_some_are_followed_at_a_time_and_none_for_ever)
{
    enum { WRITES = 2 * WORKER_TRACES, ROUNDS = 3 };
    uint64_t before = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct puppet_conn *client = stage_client(stage), *leaver = stage_client(stage);
        follow(stage, 0);
        stage_put(stage, client, stage_key_of(1));
        stage_run(stage);
        follow(stage, 1);
        for (unsigned i = 0; i < WORKER_TRACES / 2; i++)
            stage_put_if(stage, leaver, stage_key_of(1), 99); /* wait */
        stage_run(stage);
        for (unsigned i = 0; i < WRITES; i++)
            stage_put(stage, client, stage_key_of(0));
        stage_run(stage);
        puppet_close(leaver, ROWAN_ECLOSED);
        stage_land_all(stage);
        const Rowan__SlowAre *are = slow(stage);
        const uint64_t now = are->followed;
        assert_int_equal(now - before, WORKER_TRACES / 2); /* in the places that were left */
        before = now;
    }
}

TEST(how_many_are_followed_changes_while_it_runs)
{
    enum { GETS = 600 };
    static const uint32_t one_in[] = {0, 3, 0, 1};
    static const struct {
        uint32_t least, most;
    } more[] = {{0, 0}, {GETS / 3 - 60, GETS / 3 + 60}, {0, 0}, {GETS, GETS}};
    struct puppet_conn *client = stage_client(stage);
    uint64_t before = 0;
    for (unsigned i = 0; i < 4; i++) {
        follow(stage, one_in[i]);
        for (unsigned at = 0; at < GETS; at++) {
            stage_get(stage, client, stage_key_of(0));
            stage_run(stage);
            stage_reply(stage);
        }
        const Rowan__SlowAre *are = slow(stage);
        const uint64_t now = are->followed;
        assert_in_range(now - before, more[i].least, more[i].most);
        before = now;
    }
}

TEST(a_primary_tells_where_a_key_lies)
{
    struct puppet_conn *client = stage_client(stage);
    const char *key = stage_key_of(1);
    const size_t bytes = strlen(key);
    const Rowan__TraceIs *is = trace(stage, 1, key, bytes)->trace_is;
    assert_true(is->primary);
    assert_false(is->found);
    stage_put(stage, client, key);
    stage_land_done(stage);
    is = trace(stage, 1, stage_key_of(1), bytes)->trace_is;
    assert_true(is->found);
    assert_false(is->tombstone);
    assert_int_equal(is->version, version_make(1, 1));
    assert_int_equal(is->upto, version_make(1, 1));
    assert_string_equal(is->log, "worker");
    assert_string_equal(is->segment_state, "using");
    struct entry_header header;
    entry_peek(pm_at(&stage->heap->pm, is->offset), &header);
    assert_int_equal(header.version, is->version);
    assert_int_equal(header.value_bytes, is->value_bytes);
    assert_int_equal(is->offset % STORE_SEGMENT_BYTES % ENTRY_ALIGN, 0);

    const struct control *control = server_poller(stage->server, 0).role;
    assert_int_equal(control->damages_told, 0);
    stage->heap->pm.base[is->offset + ENTRY_HEADER_BYTES + bytes] ^= 1;
    is = trace(stage, 1, stage_key_of(1), bytes)->trace_is;
    assert_true(is->damaged);
    stage_run(stage);
    assert_int_equal(control->damages_told, 1); /* the manager hears of it */
}

static int failure(const Rowan__ControlMessage *answer)
{
    assert_int_equal(answer->body_case, ROWAN__CONTROL_MESSAGE__BODY_FAILURE);
    return answer->failure->error;
}

TEST(of_a_wrong_key_or_shard_nothing_is_told)
{
    static char long_key[ENTRY_MAX_KEY_BYTES + 1];
    memset(long_key, 'k', sizeof long_key);
    assert_int_equal(failure(trace(stage, 0, long_key, sizeof long_key)), ROWAN_EKEYSIZE);
    assert_int_equal(failure(trace(stage, 0, "", 0)), ROWAN_EKEYSIZE);
    assert_int_equal(failure(trace(stage, 77777, "k", 1)), ROWAN_ENOTMINE);
    assert_int_equal(trace(stage, 0, long_key, ENTRY_MAX_KEY_BYTES)->body_case,
                     ROWAN__CONTROL_MESSAGE__BODY_TRACE_IS);
}

/* Up to where it has digested, and whether something in front of that is missing. */
TEST(a_backup_tells_how_far_it_is)
{
    struct landing landing = landing_begin(stage);
    const char *key = stage_key_of(STAGE_BACKED);
    const size_t bytes = strlen(key);
    landing_put(&landing, 1);
    const Rowan__TraceIs *is = trace(stage, STAGE_BACKED, key, bytes)->trace_is;
    assert_false(is->primary);
    assert_int_equal(is->upto, version_make(1, 1));
    assert_false(is->incomplete);
    assert_true(is->found);
    assert_string_equal(is->log, "backup_log");
    landing_put(&landing, 3);
    is = trace(stage, STAGE_BACKED, stage_key_of(STAGE_BACKED), bytes)->trace_is;
    assert_int_equal(is->upto, version_make(1, 3));
    assert_true(is->incomplete);
}

UNIT_MAIN(NULL, NULL)
