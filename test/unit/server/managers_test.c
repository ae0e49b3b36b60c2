/* managers_test.c - a server among several configuration managers: it reports to the one that leads. */
#define TEST_FIXTURE start, stage_teardown

#include "common/base/error.h"
#include "common/cluster/control.h"
#include "stage.h"
#include "test/lib/unit.h"

static struct stage *stage; /* of the case */

static const char *const managers[] = {"puppet:cm", "puppet:cm2", "puppet:cm3"};

static int start(void **state)
{
    stage = stage_new(state);
    stage_start_among(stage, STAGE_BLOCK_LIMIT, "puppet:cm,puppet:cm2,puppet:cm3");
    return 0;
}

/* Its only connection to a manager; NULL: none. */
static struct puppet_conn *manager_conn(uint32_t *which)
{
    struct puppet_conn *found = NULL;

    for (uint32_t i = 0; i < 3; i++) {
        struct puppet_conn *conn = puppet_find(stage->fabric, STAGE_CONTROL, managers[i]);

        assert_true(!conn || !found);
        if (conn) {
            found = conn;
            *which = i;
        }
    }
    return found;
}

/* The server tries that one now. */
static struct puppet_conn *at(uint32_t expected)
{
    uint32_t which = 0;
    struct puppet_conn *conn = manager_conn(&which);

    assert_non_null(conn);
    assert_int_equal(which, expected);
    return conn;
}

/* Has it reported to that one since the last look? */
static bool joins_at(const struct puppet_conn *conn)
{
    const struct puppet_sent *sent;
    bool any = false;

    while ((sent = puppet_take(stage->fabric)))
        any |= sent->conn == conn;
    return any;
}

/* Of the last Join, at whichever. */
static uint32_t join_tag(void)
{
    for (uint32_t i = stage->fabric->sent_count; i > 0; i--) {
        const struct puppet_sent *sent = &stage->fabric->sent[i - 1];
        Rowan__ControlMessage *message;
        uint32_t tag;

        assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &message), 0);
        const bool joins = message->body_case == ROWAN__CONTROL_MESSAGE__BODY_JOIN;
        control_free(message);
        if (joins)
            return tag;
    }
    fail_msg("the server has reported to nobody");
    return 0;
}

static void refuse(struct puppet_conn *conn, int error)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;

    failure.error = error;
    stage_tell(conn, join_tag(), &CONTROL_MESSAGE(FAILURE, failure, &failure));
    stage_run(stage);
}

static void let_in(struct puppet_conn *conn)
{
    puppet_connected(conn, false);
    stage_run(stage);
    assert_true(joins_at(conn));
}

TEST(managers_are_tried_in_turn_and_a_round_in_vain_is_followed_by_a_pause)
{
    uint32_t which;

    for (int round = 0; round < 3; round++) {
        if (round > 0)
            let_in(at(0));
        refuse(at(0), ROWAN_ENOTLEADING);
        puppet_close(at(1), ROWAN_EUNREACHABLE);
        stage_run(stage);
        let_in(at(2));
        refuse(at(2), ROWAN_ENOTLEADING);
        assert_null(manager_conn(&which));
        assert_true(stage->wake_ns > stage->now_ns);
        stage->now_ns = stage->wake_ns;
        stage_run(stage);
    }
    assert_int_equal(server_error(stage->server), 0);
}

TEST(a_server_that_has_joined_reports_to_the_next_leader)
{
    stage_adopt(stage);
    stage_adopt(stage);
    joins_at(NULL);
    stage->now_ns += 60 * NS_PER_S;
    stage_run(stage);
    assert_false(joins_at(at(0)));
    refuse(at(0), ROWAN_ENOTLEADING); /* and its connection stays up */
    let_in(at(1));
    refuse(at(1), ROWAN_ENOTLEADING);
    struct puppet_conn *leader = at(2);
    let_in(leader);
    for (int i = 0; i < 3; i++) { /* until it is answered */
        stage->now_ns += NS_PER_S;
        stage_run(stage);
        assert_true(joins_at(leader));
    }
    assert_int_equal(server_error(stage->server), 0);
}

/* Else one of another cluster, of which it has the key, would take it for a server that knows better (cm/join.c). */
TEST(a_server_that_is_about_to_serve_names_its_cluster_to_the_next_manager)
{
    stage_hold_fences(stage, true);
    stage_adopt(stage);
    refuse(at(0), ROWAN_ENOTLEADING);
    (void)at(1);
    assert_int_equal(stage->fabric->endpoints[STAGE_CONTROL].head.identity.cluster,
                     stage->config->cluster);
}

/* A manager's host was replaced. The connection that there is stays. */
TEST(the_list_of_managers_changes_while_it_runs)
{
    const struct server_options options = {.cm = "puppet:cm3,puppet:cm"};
    server_tune(stage->server, &options);
    stage_run(stage);
    refuse(at(0), ROWAN_ENOTLEADING); /* the last of the list now */
    let_in(at(2));
    refuse(at(2), ROWAN_ENOTLEADING);
    stage->now_ns = stage->wake_ns;
    stage_run(stage);
    let_in(at(0));
    assert_int_equal(server_error(stage->server), 0);
}

/* One that puts the server off leads. */
TEST(a_lost_leader_is_followed_by_all_others_at_once)
{
    refuse(at(0), ROWAN_ENOTLEADING);
    let_in(at(1));
    refuse(at(1), ROWAN_EAGAIN);
    puppet_close(at(1), ROWAN_ECLOSED);
    stage_run(stage); /* no time passes */
    puppet_close(at(2), ROWAN_EUNREACHABLE);
    stage_run(stage);
    let_in(at(0));
}

/* Of a server that starts, too: one that is stopped keeps its connections. */
TEST(a_manager_that_answers_nothing_is_left)
{
    stage->now_ns += NS_PER_S / 2;
    stage_run(stage);
    joins_at(at(0));
    stage->now_ns += NS_PER_S / 2;
    stage_run(stage);
    let_in(at(1));
}

static void tell(uint32_t tag, int error)
{
    Rowan__Failure failure = ROWAN__FAILURE__INIT;

    failure.error = error;
    failure.detail = (char *)(uintptr_t) "this manager does not know what is asked for";
    stage_tell(at(0), tag, &CONTROL_MESSAGE(FAILURE, failure, &failure));
    stage_run(stage);
}

/* The next version may ask more than this manager knows, and be told more than this server does. */
TEST(what_a_manager_or_a_server_does_not_know_ends_no_server)
{
    stage_adopt(stage);
    stage_adopt(stage);
    joins_at(NULL);
    tell(join_tag() + 1000, ROWAN_EUNSUPPORTED);
    tell(0, ROWAN_EINVALID);
    Rowan__GetStatus unknown = ROWAN__GET_STATUS__INIT;
    stage_tell(at(0), 77, &CONTROL_MESSAGE(GET_STATUS, get_status, &unknown));
    stage_run(stage);
    const struct puppet_sent *sent = puppet_take(stage->fabric);
    Rowan__ControlMessage *answer;
    uint32_t tag;
    assert_int_equal(control_decode(sent->data, sent->bytes, &tag, &answer), 0);
    assert_int_equal(tag, 77);
    assert_int_equal(answer->failure->error, ROWAN_EUNSUPPORTED);
    control_free(answer);
    assert_int_equal(server_error(stage->server), 0);
    tell(join_tag(), ROWAN_EINVALID);
    assert_int_equal(server_error(stage->server), ROWAN_EINVALID);
}

TEST(who_is_removed_ends_whatever_that_answers)
{
    stage_adopt(stage);
    stage_adopt(stage);
    tell(0, ROWAN_EREMOVED);
    assert_int_equal(server_error(stage->server), ROWAN_EREMOVED);
}

UNIT_MAIN(NULL, NULL)
