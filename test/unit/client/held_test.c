/* held_test.c - when what is posted waits for more (S5 of client/session.c), and what ends that. The test
 * plays the servers; the clock is a number. */
#include "session_fixture.h"
#include "test/lib/unit.h"

/* Eight operations of one server: it owes the answers of seven, and an eighth is posted, not sent. */
static void hold_one(struct request *requests)
{
    stage_close(&stage);
    stage_open(&stage, 8, 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(post(MESSAGE_PUT, "k", note), 0);
    stage_run(&stage);
    for (int i = 0; i < 8; i++)
        requests[i] = stage_request(&stage);
    stage.now_ns += NS_PER_S;
    answer(&requests[7], 0, 1, 5);
    submit(MESSAGE_PUT, "k", note);
    assert_true(stage_quiet(&stage));
}

TEST(posts_wait_until_they_are_half_of_what_the_server_owes)
{
    struct request requests[8];

    hold_one(requests);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(stage_quiet(&stage));
        answer(&requests[i], 0, 1, 5);
        submit(MESSAGE_PUT, "k", note);
    }
    for (uint32_t i = 0; i < 3; i++) /* five are owed */
        assert_int_equal(stage_request(&stage).head.operation, 9 + i);
    assert_true(stage_quiet(&stage));
}

TEST(a_server_that_owes_less_is_sent_everything_at_once)
{
    for (int i = 0; i < 3; i++)
        sent(MESSAGE_PUT, "k");
}

static void release_by_a_lost_connection(struct request *requests)
{
    fake_close(requests[0].conn, ROWAN_ECLOSED);
    stage_run(&stage);
    stage_run_after(&stage, NS_PER_S);
    for (int i = 0; i < 7; i++)
        assert_int_equal(stage_request(&stage).head.operation, i + 1);
}

static void release_by_rejections(struct request *requests)
{
    for (int i = 0; i < 5; i++)
        answer(&requests[i], ROWAN_EBUSY, 0, 5);
}

static void release_by_a_caller_who_waits(struct request *requests)
{
    struct session_request request = {
        .type = MESSAGE_GET, .key = "k", .key_bytes = 1, .callback = note, .reserved = true};

    (void)requests;
    assert_int_equal(session_post(stage.session, &request), 0);
}

static void release_by_silence(struct request *requests)
{
    (void)requests;
    assert_int_equal(stage.wake_ns, stage.now_ns + NS_PER_MS);
    stage_run_after(&stage, NS_PER_MS - 1);
    assert_true(stage_quiet(&stage));
    stage_run_after(&stage, 1);
}

TEST(what_is_held_back_is_released)
{
    void (*const releases[])(struct request * requests) = {
        release_by_a_lost_connection,
        release_by_rejections,
        release_by_a_caller_who_waits,
        release_by_silence,
    };

    for (size_t i = 0; i < sizeof releases / sizeof releases[0]; i++) {
        struct request requests[8];

        completions = 0;
        hold_one(requests);
        releases[i](requests);
        stage_run(&stage);
        assert_int_equal(stage_request(&stage).head.operation, 9);
    }
}

UNIT_MAIN(NULL, NULL)
