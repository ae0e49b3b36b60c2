/* A server reports for duty until the CM has sent a configuration, once more when it serves, with its PM formatted, until
 * the CM has answered, and not longer. */
#define TEST_FIXTURE start, stage_teardown

#include "common/base/error.h"
#include "common/cluster/control.h"
#include "stage.h"
#include "test/lib/unit.h"

enum { BLOCK_LIMIT = 65536 };

static struct stage *stage; /* of the case */

static int start(void **state)
{
    stage = stage_new(state);
    stage_start(stage, BLOCK_LIMIT);
    return 0;
}

static uint64_t data_cluster; /* that the last join named */
static uint64_t round_said;   /* that it carried */
static bool formatted;        /* as it said */

/* Joins among what the server sent since the last look. */
static uint32_t count_joins(void)
{
    const struct puppet_sent *sent;
    uint32_t count = 0;

    while ((sent = puppet_take(stage->fabric))) {
        Rowan__ControlMessage *message;
        uint32_t tag;

        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_JOIN) {
            data_cluster = message->join->data_cluster;
            round_said = message->join->registration_epoch;
            formatted = message->join->formatted;
            count++;
        }
        control_free(message);
    }
    return count;
}

static void pass(uint64_t ns)
{
    stage->now_ns += ns;
    stage_run(stage);
}

TEST(a_join_is_repeated_until_a_configuration_comes)
{
    assert_int_equal(count_joins(), 1);
    assert_true(stage->wake_ns <= stage->now_ns + NS_PER_S);
    pass(NS_PER_S / 4);
    assert_int_equal(count_joins(), 1);
    pass(NS_PER_S / 4);
    assert_int_equal(count_joins(), 1);
    assert_int_equal(data_cluster, 0);
    assert_false(formatted);
    stage_adopt(stage);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(count_joins(), 1);
        assert_int_equal(data_cluster, stage->config->cluster);
        assert_true(formatted);
        pass(NS_PER_S);
    }
    stage_adopt(stage);
    count_joins();
    pass(60 * NS_PER_S);
    assert_int_equal(count_joins(), 0);
}

/* The answer to an earlier report arrives with the very poll in which the server begins to serve: the report that it
 * serves is still to be answered. */
TEST(the_report_that_it_serves_is_not_lost_to_an_answer_that_crosses_it)
{
    const uint32_t before = stage_join_tag(stage);
    for (int i = 0; i < 200; i++) { /* in one of these polls it begins */
        stage_configure_for(stage, stage->config, before);
        stage_poll(stage);
    }
    pass(NS_PER_S);
    assert_true(count_joins() > 0);
    assert_int_equal(data_cluster, stage->config->cluster);
    for (int i = 0; i < 3; i++) { /* nobody has asked for these, either */
        stage_configure_for(stage, stage->config, i % 2 ? before : 0);
        stage_run(stage);
        pass(NS_PER_S);
        assert_int_equal(count_joins(), 1);
        assert_int_equal(data_cluster, stage->config->cluster);
    }
    const uint32_t slow = stage_join_tag(stage); /* a CM that takes longer than the server waits */
    pass(NS_PER_S);
    stage_configure_for(stage, stage->config, slow);
    stage_run(stage);
    count_joins();
    pass(60 * NS_PER_S);
    assert_int_equal(count_joins(), 0);
}

static void tell_round(uint64_t round)
{
    Rowan__ConfigurationIs is = ROWAN__CONFIGURATION_IS__INIT;

    is.registration_epoch = round;
    stage_cm_tells(stage, stage_join_tag(stage),
                   &CONTROL_MESSAGE(CONFIGURATION_IS, configuration_is, &is));
    stage_run(stage);
}

/* A start waits for all to do so. Another CM counts for itself. */
TEST(a_new_round_is_answered_at_once_and_on_its_connection_only)
{
    assert_int_equal(count_joins(), 1);
    assert_int_equal(round_said, 0);
    for (int i = 0; i < 3; i++) {
        tell_round(5);
        assert_int_equal(count_joins(), i == 0 ? 1 : 0);
        assert_int_equal(round_said, 5);
    }
    puppet_close(stage_cm(stage), ROWAN_ECLOSED);
    stage_run(stage);
    pass(NS_PER_S);
    puppet_connected(stage_cm(stage), false);
    stage_run(stage);
    assert_int_equal(count_joins(), 1);
    assert_int_equal(round_said, 0);
}

TEST(a_join_that_found_no_room_is_sent_again_also_to_the_next_cm)
{
    stage_adopt(stage);
    puppet_close(stage_cm(stage), ROWAN_ECLOSED);
    stage_run(stage);
    pass(NS_PER_S); /* it connects again */
    struct puppet_conn *cm = stage_cm(stage);
    assert_non_null(cm);
    count_joins();
    cm->room = 0;
    puppet_connected(cm, false);
    stage_run(stage);
    assert_int_equal(count_joins(), 0);
    cm->room = UINT32_MAX;
    pass(NS_PER_S);
    assert_int_equal(count_joins(), 1);
    stage_adopt(stage);
    pass(60 * NS_PER_S);
    assert_int_equal(count_joins(), 0);
}

UNIT_MAIN(NULL, NULL)
