/* managers_test.c - a session among several configuration managers, of which one leads. */
#include "test/unit/client/session_fixture.h"

static const char *const managers[] = {STAGE_CM, STAGE_CM "2", STAGE_CM "3"};

/* A session that knows all three, and has not been polled. */
static void begin(const char *leader)
{
    const struct session_options options = {.depth = 4, .timeout_ns = STAGE_TIMEOUT_NS};

    session_destroy(stage.session);
    stage.leader = leader;
    assert_int_equal(session_create(&stage.fake->endpoint, STAGE_CM "," STAGE_CM "2," STAGE_CM "3",
                                    &options, &stage.session),
                     0);
}

/* Connections that were begun to managers, since the last look. */
static uint32_t tries(void)
{
    static uint32_t before;
    uint32_t count = 0;

    for (uint32_t i = 0; i < stage.fake->conn_count; i++)
        count += strncmp(stage.fake->conns[i].address, STAGE_CM, strlen(STAGE_CM)) == 0;
    const uint32_t since = count - before;

    before = count;
    return since;
}

TEST(a_session_goes_on_at_once_to_the_manager_that_leads)
{
    begin(managers[2]);
    tries();
    stage.fake->refused = managers[1];
    stage_run(&stage); /* no time passes */
    assert_true(session_ready(stage.session));
    assert_int_equal(tries(), 3);
    assert_non_null(fake_find(stage.fake, managers[2], 0));
    assert_null(fake_find(stage.fake, managers[0], 0));
    stage_run_after(&stage, 60 * NS_PER_S);
    assert_int_equal(tries(), 0);
}

TEST(a_round_without_a_leader_is_followed_by_a_pause_that_grows)
{
    begin(NULL);
    tries();
    stage_run(&stage);
    assert_int_equal(tries(), 3);
    assert_int_equal(session_error(stage.session), ROWAN_ENOTLEADING);
    uint64_t pause_ns = 0;

    for (int i = 0; i < 8; i++) {
        assert_true(stage.wake_ns >= stage.now_ns + pause_ns);
        pause_ns = stage.wake_ns - stage.now_ns;
        stage_run_after(&stage, pause_ns);
        assert_int_equal(tries(), 3);
    }
    assert_int_equal(pause_ns, 500 * NS_PER_MS);
    assert_false(session_ready(stage.session));
    stage.leader = managers[1];
    stage_run_after(&stage, pause_ns);
    assert_true(session_ready(stage.session));
}

TEST(a_lost_leader_is_followed_by_the_next_at_once)
{
    begin(managers[0]);
    stage_run(&stage);
    assert_true(session_ready(stage.session));
    tries();
    stage.leader = managers[1];
    fake_close(fake_find(stage.fake, managers[0], 0), ROWAN_ECLOSED);
    stage_run(&stage);
    assert_int_equal(tries(), 1);
    assert_non_null(fake_find(stage.fake, managers[1], 0));
}

TEST(a_manager_that_ceases_to_lead_is_left_for_the_one_that_does)
{
    begin(managers[0]);
    stage_run(&stage);
    cluster_release(stage.config);
    stage.config = stage_config(9); /* which the new leader has made */
    stage.leader = managers[2];
    stage_refuse(fake_find(stage.fake, managers[0], 0), 0, ROWAN_ENOTLEADING);
    stage_run(&stage);
    assert_null(fake_find(stage.fake, managers[0], 0));
    assert_non_null(fake_find(stage.fake, managers[2], 0));
    assert_int_equal(session_config(stage.session)->term, 9);
}

TEST(what_a_manager_tells_that_does_not_lead_is_stored_and_taken)
{
    begin(managers[0]);
    stage_run(&stage);
    cluster_release(stage.config);
    stage.config = stage_config(9);
    stage.leader = NULL;
    stage_refuse(fake_find(stage.fake, managers[0], 0), 0, ROWAN_ENOTLEADING);
    tries();
    stage_run(&stage);
    assert_int_equal(tries(), 2);
    assert_int_equal(session_config(stage.session)->term, 9);
}

UNIT_MAIN(NULL, NULL)
