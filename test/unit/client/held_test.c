/* held_test.c - when what is posted waits for more (S5 of client/session.c), and what ends that. The test
 * plays the servers; the clock is a number. */
#include "session_fixture.h"
#include "test/lib/unit.h"

enum { PATIENCE = 32 }; /* as in session.c */

/* Eight operations of one server: it owes the answers of seven, and an eighth is posted, not sent. */
static void hold_one(struct request *requests)
{
    completions = 0;
    stage_close(&stage);
    stage_open(&stage, 8, 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(post(MESSAGE_PUT, "k", note), 0);
    stage_run(&stage);
    for (int i = 0; i < 8; i++)
        requests[i] = stage_request(&stage);
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

TEST(a_session_that_is_half_full_sends_everything_at_once)
{
    stage_close(&stage);
    stage_open(&stage, 16, 0);
    for (int i = 0; i < 8; i++)
        sent(MESSAGE_PUT, "k");
}

static void post_urgent(void)
{
    const struct session_request request = {
        .type = MESSAGE_GET, .key = "k", .key_bytes = 1, .callback = note, .reserved = true};

    assert_int_equal(session_post(stage.session, &request), 0);
    stage_run(&stage);
}

TEST(an_operation_that_somebody_waits_for_is_not_held_back_when_it_is_sent_again)
{
    struct request requests[8], urgent;

    hold_one(requests);
    post_urgent();
    assert_int_equal(stage_request(&stage).head.operation, 9);
    urgent = stage_request(&stage);
    answer(&urgent, ROWAN_EBUSY, 0, 5);
    assert_true(stage_quiet(&stage));
    stage_run_after(&stage, NS_PER_MS);
    assert_int_equal(stage_request(&stage).head.operation, 10);
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
    (void)requests;
    post_urgent();
}

static void release_by_a_caller_who_is_about_to_sleep(struct request *requests)
{
    (void)requests;
    stage_run_after(&stage, 9 * NS_PER_MS);
    assert_true(stage_quiet(&stage));
    assert_true(session_release(stage.session));
    stage_run(&stage);
    assert_false(session_release(stage.session));
}

static void release_by_a_caller_who_polls_seldom(struct request *requests)
{
    (void)requests;
    stage_run_after(&stage, 10 * NS_PER_MS);
}

/* As where other servers keep the caller busy. */
static void release_by_polls_without_an_answer(struct request *requests)
{
    for (int i = 0; i < PATIENCE - 2; i++)
        stage_run(&stage);
    assert_true(stage_quiet(&stage));
    answer(&requests[0], 0, 1, 5);
    for (int i = 0; i < PATIENCE - 2; i++)
        stage_run(&stage);
    assert_true(stage_quiet(&stage));
    for (int i = 0; i < 3; i++)
        stage_run(&stage);
}

TEST(what_is_held_back_is_released)
{
    void (*const releases[])(struct request * requests) = {
        release_by_a_lost_connection,       release_by_rejections,
        release_by_a_caller_who_waits,      release_by_a_caller_who_is_about_to_sleep,
        release_by_polls_without_an_answer, release_by_a_caller_who_polls_seldom,
    };

    for (size_t i = 0; i < sizeof releases / sizeof releases[0]; i++) {
        struct request requests[8];

        hold_one(requests);
        releases[i](requests);
        stage_run(&stage);
        assert_int_equal(stage_request(&stage).head.operation, 9);
    }
}

UNIT_MAIN(NULL, NULL)
