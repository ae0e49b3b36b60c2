/* When a server leaves a manager that grants it no lease (J9). */
#include "common/base/error.h"
#include "common/cluster/managers.h"
#include "test/unit/server/lease_stage.h"

/* What the last Join says. */
static Rowan__ControlMessage *last_join(const struct stage *stage)
{
    for (uint32_t i = stage->fabric->sent_count; i > 0; i--) {
        const struct puppet_sent *sent = &stage->fabric->sent[i - 1];
        Rowan__ControlMessage *message;
        uint32_t tag;

        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_JOIN)
            return message;
        control_free(message);
    }
    return NULL;
}

/* The manager is none any more that was just named. When the last grant came. */
static uint64_t grant_for_long(struct stage *stage)
{
    const uint64_t begun_ns = stage->now_ns;

    while (stage->now_ns < begun_ns + managers_takeover_ns(LEASE_NS))
        grant(stage);
    return stage->now_ns;
}

/* The manager lets it connect, and says nothing. When the server leaves; it has connected again. */
static uint64_t left_ns(struct stage *stage)
{
    const struct puppet_conn *conn = stage_cm(stage);
    uint64_t left_ns;

    while (stage_cm(stage) == conn) {
        assert_true(stage->wake_ns > stage->now_ns);
        stage->now_ns = stage->wake_ns;
        stage_run(stage);
    }
    for (left_ns = stage->now_ns; !stage_cm(stage); stage_run(stage))
        stage->now_ns = stage->wake_ns;
    puppet_connected(stage_cm(stage), false);
    stage_run(stage);
    return left_ns;
}

/* J9 */
TEST(a_manager_that_answers_and_grants_nothing_for_six_leases_is_left_and_that_is_said)
{
    struct puppet_conn *conn = stage_cm(stage);
    const uint64_t granted_ns = grant_for_long(stage);

    while (stage_cm(stage) == conn) {
        answer(stage, last_renewal(stage).tag, MANAGER, 1, false);
        assert_true(stage->now_ns - granted_ns <= 6 * LEASE_NS && stage->wake_ns > stage->now_ns);
        stage->now_ns = stage->wake_ns;
        stage_run(stage);
    }
    assert_int_equal(stage->now_ns - granted_ns, 6 * LEASE_NS);
    stage->now_ns = stage->wake_ns; /* a round in vain is followed by a pause */
    stage_run(stage);
    puppet_connected(stage_cm(stage), false);
    stage_run(stage);
    Rowan__ControlMessage *message = last_join(stage);
    assert_int_equal(message->join->without_ms, (stage->now_ns - granted_ns) / NS_PER_MS);
    assert_false(message->join->nobody_leads);
    control_free(message);

    puppet_close(stage_cm(stage), ROWAN_EUNREACHABLE); /* there is nobody any more */
    stage_run(stage);
    stage->now_ns = stage->wake_ns;
    stage_run(stage);
    puppet_connected(stage_cm(stage), false);
    stage_run(stage);
    message = last_join(stage);
    assert_true(message->join->nobody_leads);
    control_free(message);
}

TEST(six_leases_count_on_though_the_connection_was_silent_and_is_a_new_one)
{
    const uint64_t granted_ns = grant_for_long(stage);

    assert_true(left_ns(stage) - granted_ns < 6 * LEASE_NS);
    const uint64_t left = left_ns(stage);
    assert_int_equal(left - granted_ns, 6 * LEASE_NS);
    assert_true(left_ns(stage) - left > LEASE_NS); /* it has its time again */
}

TEST(one_that_did_not_lead_and_is_named_again_has_the_time_of_a_new_one)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;

    grant_for_long(stage);
    failure.error = ROWAN_ENOTLEADING;
    stage_tell(stage_cm(stage), 1, &CONTROL_MESSAGE(FAILURE, failure, &failure));
    for (stage_run(stage); !stage_cm(stage); stage_run(stage))
        stage->now_ns = stage->wake_ns;
    puppet_connected(stage_cm(stage), false);
    stage_run(stage);
    stage->config->term += 2;
    stage_adopt(stage);
    struct puppet_conn *conn = stage_cm(stage);
    const uint64_t named_ns = stage->now_ns;
    while (stage_cm(stage) == conn) {
        answer(stage, last_renewal(stage).tag, MANAGER, 1, false);
        stage->now_ns = stage->wake_ns;
        stage_run(stage);
    }
    assert_int_equal(stage->now_ns - named_ns, 6 * LEASE_NS + managers_takeover_ns(LEASE_NS));
}

UNIT_MAIN(NULL, NULL)
