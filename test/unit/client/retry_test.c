/* retry_test.c - what becomes of operations when servers say no, say nothing, or are gone. The test
 * plays the servers; the clock is a number. */
#include "session_fixture.h"
#include "test/lib/unit.h"

TEST(a_moved_shard_is_asked_at_its_new_owner)
{
    struct cluster_config *config = stage_config(6);
    char key[32];

    struct request request = sent(MESSAGE_PUT, stage_key(0, key, 0));

    assert_string_equal(request.conn->address, "fake:1");
    config->shards[0].primary = 2;
    config->shards[0].backups[0] = 1;
    config->shards[0].worker = 1;
    config->shards[0].epoch = 600;
    cluster_release(stage.config);
    stage.config = config; /* it is there, but the client was not told */
    stage_answer(&request, ROWAN_ENOTMINE, 0, 6, NULL, 0);
    stage_run_after(&stage, NS_PER_S);
    assert_int_equal(completions, 0);
    request = stage_request(&stage);
    assert_string_equal(request.conn->address, "fake:2");
    assert_int_equal(request.conn->index, 1);
    assert_int_equal(request.head.epoch, 600);
    assert_int_equal(request.head.operation, 1);
    answer(&request, 0, 7, 6);
    assert_int_equal(completions, 1);
    assert_int_equal(last.status, 0);
}

TEST(a_rejection_that_a_newer_configuration_overtook_is_sent_at_once)
{
    char key[32];

    struct request request = sent(MESSAGE_PUT, stage_key(1, key, 0));

    stage_push(&stage, stage_config(9));
    stage_run(&stage);
    assert_int_equal(session_config(stage.session)->term, 9);
    assert_false(request.conn->over); /* it did not concern the connection */
    answer(&request, ROWAN_EEPOCH, 0, 9);
    request = stage_request(&stage);
    assert_int_equal(request.head.epoch, 10);
}

TEST(a_server_behind_the_configuration_is_asked_again_after_a_pause)
{
    struct request request = sent(MESSAGE_PUT, "k");

    answer(&request, ROWAN_EEPOCH, 0, 4);
    assert_true(stage_quiet(&stage));
    stage_run_after(&stage, NS_PER_MS);
    stage_request(&stage);
}

TEST(the_cm_is_not_flooded_while_a_newer_configuration_is_awaited)
{
    uint32_t asked;

    struct request request = sent(MESSAGE_PUT, "k");

    asked = stage.asked_config;
    stage_answer(&request, ROWAN_ENOTMINE, 0, 6, NULL, 0);
    for (int i = 0; i < 1000; i++)
        stage_run_after(&stage, NS_PER_MS / 10);
    assert_in_range(stage.asked_config - asked, 2, 10); /* in 100 ms */
    assert_true(stage_quiet(&stage));
}

TEST(a_busy_server_is_asked_again_after_growing_pauses)
{
    uint64_t pause_ns = NS_PER_MS;

    submit(MESSAGE_PUT, "k", note);
    for (int i = 0; i < 9; i++) {
        struct request request = stage_request(&stage);

        answer(&request, ROWAN_EBUSY, 0, 5);
        assert_int_equal(stage.wake_ns, stage.now_ns + pause_ns);
        stage_run_after(&stage, pause_ns - 1);
        assert_true(stage_quiet(&stage));
        stage_run_after(&stage, 1);
        if (pause_ns < 64 * NS_PER_MS)
            pause_ns *= 2;
    }
    stage_request(&stage);
    assert_int_equal(completions, 0);
}

TEST(unanswered_reads_time_out_and_writes_are_unknown)
{
    assert_int_equal(post(MESSAGE_GET, "k", NULL), 0);
    assert_int_equal(post(MESSAGE_PUT, "k", NULL), 0);
    submit(MESSAGE_DELETE, "k", NULL);
    assert_int_equal(stage.wake_ns, stage.now_ns + STAGE_TIMEOUT_NS);
    stage_run_after(&stage, STAGE_TIMEOUT_NS - 1);
    assert_int_equal(session_waiting(stage.session), 0);
    stage_run_after(&stage, 1);
    for (int i = 0; i < 3; i++) {
        assert_true(session_next(stage.session, &last));
        assert_int_equal(last.status, i == 0 ? ROWAN_ETIMEDOUT : ROWAN_EUNKNOWN);
    }
}

TEST(writes_that_were_not_sent_time_out_as_not_done)
{
    stage.fake->refused = "fake:1";
    char key[32];

    submit(MESSAGE_PUT, stage_key(0, key, 0), note);
    for (int i = 0; i < 40 && !completions; i++)
        stage_run_after(&stage, 500 * NS_PER_MS);
    assert_int_equal(completions, 1);
    assert_int_equal(last.status, ROWAN_ETIMEDOUT);
    assert_in_range(stage.fake->conn_count, 10, 40); /* and it was tried again all the time */
}

TEST(a_busy_servers_write_times_out_as_not_done)
{
    struct request request = sent(MESSAGE_PUT, "k");

    answer(&request, ROWAN_EBUSY, 0, 5);
    stage_run_after(&stage, STAGE_TIMEOUT_NS);
    assert_int_equal(last.status, ROWAN_ETIMEDOUT);
}

TEST(the_timeout_runs_from_the_first_poll_after_the_post)
{
    stage.now_ns += 100 * STAGE_TIMEOUT_NS; /* nobody polled for long */
    submit(MESSAGE_PUT, "k", note);
    assert_int_equal(completions, 0);
    assert_int_equal(session_outstanding(stage.session), 1);
}

TEST(a_late_answer_meets_nobody)
{
    struct request request = sent(MESSAGE_PUT, "k");

    stage_run_after(&stage, STAGE_TIMEOUT_NS);
    assert_int_equal(completions, 1);
    assert_int_equal(post(MESSAGE_PUT, "k", note), 0); /* the same slot again */
    stage_run(&stage);
    answer(&request, 0, 42, 5);
    assert_int_equal(completions, 1);
    assert_int_equal(session_outstanding(stage.session), 1);
}

/* The next request, which must be this operation again; answered. */
static struct request expect(uint32_t operation, int status, uint64_t version)
{
    struct request request = stage_request(&stage);

    assert_int_equal(request.head.operation, operation);
    stage_answer(&request, status, version, 5, NULL, 0);
    return request;
}

TEST(what_is_sent_again_comes_before_what_was_posted_later)
{
    sent(MESSAGE_PUT, "k");
    struct fake_conn *conn = sent(MESSAGE_PUT, "k").conn;

    conn->room = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(post(MESSAGE_PUT, "k", note), 0);
    stage_run(&stage);
    fake_close(conn, ROWAN_ECLOSED);
    stage_run(&stage);
    stage_run_after(&stage, 9 * NS_PER_MS);
    assert_true(stage_quiet(&stage));
    stage_run_after(&stage, NS_PER_MS);
    for (uint32_t operation = 1; operation <= 4; operation++) {
        const struct request again = expect(operation, 0, 1);

        assert_int_equal(again.head.type, MESSAGE_PUT);
        assert_int_equal(again.head.client_id, 1);
    }
    stage_run(&stage);
    assert_int_equal(completions, 4);
}

TEST(a_write_that_was_sent_once_and_lost_ends_unknown)
{
    struct request request = sent(MESSAGE_PUT, "k");

    stage.fake->refused = request.conn->address;
    fake_close(request.conn, ROWAN_ECLOSED);
    for (int i = 0; i < 40 && !completions; i++)
        stage_run_after(&stage, 500 * NS_PER_MS);
    assert_int_equal(last.status, ROWAN_EUNKNOWN);
}

/* Its second attempt was rejected; that says nothing about the first. */
TEST(a_lost_write_that_a_server_then_puts_off_ends_unknown)
{
    submit(MESSAGE_PUT, "k", note);
    fake_close(stage_request(&stage).conn, ROWAN_ECLOSED);
    stage_run(&stage);
    stage_run_after(&stage, 10 * NS_PER_MS);
    struct request again = expect(1, ROWAN_EBUSY, 0);

    stage_run(&stage);
    again.conn->room = 0;
    stage_run_after(&stage, STAGE_TIMEOUT_NS);
    assert_int_equal(completions, 1);
    assert_int_equal(last.status, ROWAN_EUNKNOWN);
    /* And the slot's next use knows nothing of it. */
    for (int i = 0; i < 4; i++)
        assert_int_equal(post(MESSAGE_PUT, "k", note), 0);
    stage_run(&stage);
    stage_run_after(&stage, STAGE_TIMEOUT_NS);
    assert_int_equal(completions, 5);
    assert_int_equal(last.status, ROWAN_ETIMEDOUT);
}

/* The server asks for the right before it looks whether it knows the write. */
TEST(a_lost_write_whose_user_may_not_write_any_more_ends_unknown)
{
    submit(MESSAGE_PUT, "k", note);
    fake_close(stage_request(&stage).conn, ROWAN_ECLOSED);
    stage_run(&stage);
    stage_run_after(&stage, 10 * NS_PER_MS);
    (void)expect(1, ROWAN_EACCESS, 0);
    stage_run(&stage);
    assert_int_equal(completions, 1);
    assert_int_equal(last.status, ROWAN_EUNKNOWN);
    submit(MESSAGE_PUT, "k", note);
    (void)expect(2, ROWAN_EACCESS, 0);
    stage_run(&stage);
    assert_int_equal(last.status, ROWAN_EACCESS);
}

TEST(a_restarted_servers_writes_are_sent_to_it_again_in_order)
{
    struct cluster_config *config = stage_config(6);
    char key[32];

    struct request request = sent(MESSAGE_PUT, stage_key(0, key, 0));

    request.conn->room = 0;
    assert_int_equal(post(MESSAGE_PUT, key, note), 0); /* stays in the queue */
    stage_run(&stage);
    assert_true(stage_quiet(&stage));
    config->members[0].incarnation = 200; /* restarted, at the same address */
    stage_push(&stage, config);
    stage_run(&stage);
    assert_true(request.conn->by_client);
    assert_int_equal(completions, 0);
    for (uint32_t operation = 1; operation <= 2; operation++) {
        struct request again = expect(operation, 0, 1);

        assert_string_equal(again.conn->address, "fake:1");
        assert_ptr_not_equal(again.conn, request.conn);
        assert_int_equal(again.head.epoch, 6);
    }
    stage_run(&stage);
    assert_int_equal(completions, 2);
    assert_int_equal(last.status, 0);
}

/* It may not know yet that it is another: only who connects can see it. */
TEST(another_process_at_a_servers_address_is_sent_nothing)
{
    char key[32];
    struct request request = sent(MESSAGE_PUT, stage_key(0, key, 0));
    struct cluster_config *config = stage_config(6);

    stage.fake->incarnations[1] = 200; /* restarted: the CM does not say so yet */
    fake_close(request.conn, ROWAN_ECLOSED);
    for (int i = 0; i < 5; i++) {
        stage_run_after(&stage, NS_PER_S);
        assert_true(stage_quiet(&stage));
    }
    assert_int_equal(completions, 0);
    config->members[0].incarnation = 200;
    stage_push(&stage, config);
    stage_run(&stage);
    assert_int_equal(expect(1, 0, 1).head.epoch, 6);
}

TEST(a_lost_write_is_sent_to_the_new_primary)
{
    struct cluster_config *config = stage_config(6);
    char key[32];

    submit(MESSAGE_DELETE, stage_key(0, key, 0), note);
    stage.fake->refused = "fake:1";
    fake_close(stage_request(&stage).conn, ROWAN_ECLOSED);
    stage_run_after(&stage, NS_PER_S);
    assert_true(stage_quiet(&stage));
    config->shards[0].primary = 2;
    config->shards[0].backups[0] = 1;
    config->shards[0].epoch = 600;
    stage_push(&stage, config);
    stage_run(&stage);
    struct request again = expect(1, 0, 9);

    assert_string_equal(again.conn->address, "fake:2");
    assert_int_equal(again.head.epoch, 600);
    stage_run(&stage);
    assert_int_equal(completions, 1);
    assert_int_equal(last.status, 0);
}

TEST(a_peer_that_sends_nonsense_is_hung_up_on)
{
    struct request request = sent(MESSAGE_PUT, "k");

    fake_reply(request.conn, "nonsense", 8, NULL, 0);
    stage_run(&stage);
    assert_true(request.conn->by_client);
    stage_answer(&request, -1000, 0, 5, NULL, 0); /* from a connection that is over */
    stage_run(&stage);
    assert_int_equal(completions, 0);
    stage_run_after(&stage, 10 * NS_PER_MS);
    assert_ptr_not_equal(expect(1, 0, 1).conn, request.conn);
    stage_run(&stage);
    assert_int_equal(completions, 1);
    assert_int_equal(last.status, 0);
}

UNIT_MAIN(NULL, NULL)
