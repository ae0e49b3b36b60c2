/* Writes that are asked again: whatever became of the original and of its answer, it takes effect
 * once, and the retry is told so. */
#define TEST_FIXTURE stage_setup, stage_teardown
#define TEST_STATE   struct stage *stage

#include "common/base/error.h"
#include "server/worker/worker.h"
#include "stage.h"
#include "test/lib/unit.h"

enum { CLIENT = 31 };

static uint32_t tag_base; /* a retry has a tag of its own */

static const char KEY[] = "counter";

static void ask(struct stage *stage, struct puppet_conn *client, enum message_type type,
                uint32_t operation, uint32_t lowest, uint64_t expected)
{
    const struct message_request request = {.type = (uint8_t)type,
                                            .operation = operation,
                                            .lowest_unanswered = lowest,
                                            .key_bytes = sizeof KEY - 1,
                                            .value_bytes = type >= MESSAGE_DELETE ? 0 : 5,
                                            .tag = tag_base + operation,
                                            .expected = expected};

    stage_send(stage, client, &request, KEY, "value");
}

/* The next reply, which must be this operation's. */
static struct message_reply answer(struct stage *stage, uint32_t operation, int status)
{
    struct message_reply reply = stage_reply(stage);

    assert_int_equal(reply.operation, operation);
    assert_int_equal(reply.tag, tag_base + operation);
    assert_int_equal(reply.status, status);
    return reply;
}

static uint64_t version_now(struct stage *stage)
{
    struct puppet_conn *reader = stage_client(stage);

    stage_get(stage, reader, KEY);
    stage_run(stage);
    struct message_reply reply = stage_reply(stage);

    return reply.status ? 0 : reply.version;
}

static struct puppet_conn *comes_back(struct stage *stage)
{
    tag_base += 1000;
    return stage_client_again(stage, CLIENT);
}

/* It is asked, it lands, and has that answer. */
static struct message_reply lands(struct stage *stage, struct puppet_conn *client,
                                  enum message_type type, uint32_t operation, uint32_t lowest,
                                  int status)
{
    ask(stage, client, type, operation, lowest, 0);
    stage_land_all(stage);
    return answer(stage, operation, status);
}

TEST(a_lost_answer_is_given_again_with_the_same_version)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    client->room = 0;
    ask(stage, client, MESSAGE_PUT_IF, 1, 1, 0);
    stage_land_all(stage);
    assert_true(stage_is_quiet(stage));
    puppet_close(client, ROWAN_ECLOSED);
    stage_run(stage);
    uint64_t version = version_now(stage);

    assert_true(version != 0);
    client = comes_back(stage);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lands(stage, client, MESSAGE_PUT_IF, 1, 1, 0).version, version);
    }
    assert_int_equal(version_now(stage), version);
    const struct worker_counts *counts = worker_counts(server_poller(stage->server, 1).role);
    assert_int_equal(worker_operations(counts, MESSAGE_PUT_IF), 1);
    assert_int_equal(counter_get(&counts->requests[MESSAGE_PUT_IF - 1][OUTCOME_REPEATED]), 3);
}

TEST(a_lost_answer_to_a_delete_is_given_again)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    lands(stage, client, MESSAGE_PUT, 1, 1, 0);
    client->room = 0;
    ask(stage, client, MESSAGE_DELETE, 2, 2, 0);
    stage_land_all(stage);
    puppet_close(client, ROWAN_ECLOSED);
    stage_run(stage);
    assert_int_equal(version_now(stage), 0);
    client = comes_back(stage);
    lands(stage, client, MESSAGE_DELETE, 2, 2, 0);
    lands(stage, client, MESSAGE_DELETE, 3, 3, ROWAN_ENOTFOUND);
}

TEST(a_retry_waits_for_its_original_in_flight)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    ask(stage, client, MESSAGE_PUT_IF, 1, 1, 0);
    stage_run(stage);
    puppet_close(client, ROWAN_ECLOSED);
    stage_run(stage);
    client = comes_back(stage);
    ask(stage, client, MESSAGE_PUT_IF, 1, 1, 0);
    stage_run(stage);
    assert_true(stage_is_quiet(stage));
    assert_true(puppet_land(stage->peer));
    stage_run(stage);
    uint64_t version = answer(stage, 1, 0).version;

    assert_false(puppet_land(stage->peer)); /* nothing else was sent */
    assert_int_equal(version_now(stage), version);
}

/* Its message lies in a connection that ends. */
TEST(a_retry_takes_the_place_of_its_original_that_waits)
{
    struct puppet_conn *other = stage_client(stage);
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    stage_put(stage, other, KEY);
    stage_run(stage);
    ask(stage, client, MESSAGE_DELETE, 1, 1, 0); /* waits for the put */
    stage_run(stage);
    /* The server sees the new connection, and the retry, before the end of the older one. */
    const struct fabric_identity id = {.cluster = 77, .id = CLIENT, .kind = FABRIC_CLIENT};
    struct puppet_conn *again = puppet_accept(stage->fabric, STAGE_WORKER, &id);

    tag_base += 1000;
    ask(stage, again, MESSAGE_DELETE, 1, 1, 0);
    stage_run(stage);
    assert_false(puppet_lives(stage->fabric, STAGE_WORKER, client));
    assert_true(stage_is_quiet(stage));
    stage_land_done(stage);
    answer(stage, 1, 0);
    assert_true(stage_is_quiet(stage));
    assert_int_equal(version_now(stage), 0);
}

TEST(a_retry_takes_the_answer_that_found_no_room)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);
    const struct fabric_identity id = {.cluster = 77, .id = CLIENT, .kind = FABRIC_CLIENT};

    client->room = 0;
    ask(stage, client, MESSAGE_PUT_IF, 1, 1, 0);
    stage_land_all(stage);
    client = puppet_accept(stage->fabric, STAGE_WORKER, &id);
    tag_base += 1000;
    ask(stage, client, MESSAGE_PUT_IF, 1, 1, 0);
    stage_run(stage);
    answer(stage, 1, 0);
    assert_true(stage_is_quiet(stage));
}

TEST(an_answered_number_is_refused)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    ask(stage, client, MESSAGE_PUT, 1, 1, 0);
    ask(stage, client, MESSAGE_PUT, 2, 2, 0);
    stage_land_all(stage);
    answer(stage, 1, 0);
    uint64_t version = answer(stage, 2, 0).version;

    lands(stage, client, MESSAGE_PUT, 1, 1, ROWAN_EUNKNOWN);
    ask(stage, client, MESSAGE_PUT, 2, 1, 0); /* this one may still be asked for */
    stage_land_all(stage);
    assert_int_equal(answer(stage, 2, 0).version, version);
    assert_int_equal(version_now(stage), version);
}

TEST(a_write_without_effect_is_judged_anew)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    ask(stage, client, MESSAGE_PUT_IF, 1, 1, 99);
    ask(stage, client, MESSAGE_DELETE, 2, 1, 0);
    stage_land_all(stage);
    answer(stage, 1, ROWAN_EVERSION);
    answer(stage, 2, ROWAN_ENOTFOUND);
    stage_put_lands(stage, stage_client(stage), KEY);
    uint64_t version = stage_reply(stage).version;

    ask(stage, client, MESSAGE_PUT_IF, 1, 1, version);
    stage_land_all(stage);
    assert_true(answer(stage, 1, 0).version > version);
    lands(stage, client, MESSAGE_DELETE, 2, 1, 0);
}

TEST(a_new_connection_closes_the_older_one_first)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT), *other = stage_client(stage);
    struct puppet_conn *again = comes_back(stage);

    assert_false(puppet_lives(stage->fabric, STAGE_WORKER, client));
    assert_true(puppet_lives(stage->fabric, STAGE_WORKER, again));
    assert_true(puppet_lives(stage->fabric, STAGE_WORKER, other));
    /* What comes on the older one in the same batch of events is not taken. */
    client = again;
    const struct fabric_identity id = {.cluster = 77, .id = CLIENT, .kind = FABRIC_CLIENT};

    again = puppet_accept(stage->fabric, STAGE_WORKER, &id);
    ask(stage, client, MESSAGE_PUT, 1, 1, 0);
    stage_land_all(stage);
    assert_true(stage_is_quiet(stage));
    assert_int_equal(version_now(stage), 0);
}

TEST(clients_without_an_id_have_connections_side_by_side)
{
    struct puppet_conn *first = stage_client_again(stage, 0);
    struct puppet_conn *second = stage_client_again(stage, 0);

    ask(stage, first, MESSAGE_PUT, 1, 1, 0);
    ask(stage, second, MESSAGE_PUT, 1, 1, 0);
    stage_land_all(stage);
    assert_true(answer(stage, 1, 0).version != answer(stage, 1, 0).version);
}

static void send_garbage(struct stage *stage, struct message_request request)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    client->id += request.tag;
    request.tag = 0;
    request.type = MESSAGE_PUT;
    request.key_bytes = sizeof KEY - 1;
    stage_send(stage, client, &request, KEY, NULL);
    stage_land_all(stage);
    assert_true(stage_is_quiet(stage));
    assert_false(puppet_lives(stage->fabric, STAGE_WORKER, client));
}

TEST(numbers_that_no_client_sends_end_its_connection)
{
    struct puppet_conn *other = stage_client(stage);

    send_garbage(stage, (struct message_request){.operation = 0});
    send_garbage(
        stage, (struct message_request){.operation = UINT32_MAX, .lowest_unanswered = UINT32_MAX});
    send_garbage(stage, (struct message_request){.operation = 5, .lowest_unanswered = 6});
    send_garbage(stage, (struct message_request){.operation = MESSAGE_MAX_SPAN});
    send_garbage(stage, (struct message_request){.operation = 1, .tag = 1}); /* another's id */
    assert_int_equal(version_now(stage), 0);
    assert_true(puppet_lives(stage->fabric, STAGE_WORKER, other));
}

TEST(a_client_is_forgotten_two_minutes_after_its_last_connection)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    uint64_t version = lands(stage, client, MESSAGE_PUT, 1, 1, 0).version;

    stage_pass(stage, 200 * NS_PER_S); /* connected, so its time does not run */
    puppet_close(client, ROWAN_ECLOSED);
    stage_run(stage);
    assert_true(stage->wake_ns <= stage->now_ns + 120 * NS_PER_S);
    stage_pass(stage, 119 * NS_PER_S);
    client = comes_back(stage);
    assert_int_equal(lands(stage, client, MESSAGE_PUT, 1, 1, 0).version, version);
    puppet_close(client, ROWAN_ECLOSED);
    stage_run(stage);
    stage_pass(stage, 121 * NS_PER_S);
    client = comes_back(stage);
    assert_true(lands(stage, client, MESSAGE_PUT, 1, 1, 0).version > version);
}

/* Its process was stopped, or the host was suspended: what was asked again meanwhile is still to be
 * read, and a worker may read it some polls later. */
TEST(a_worker_that_was_stopped_forgets_nobody_who_came_back_meanwhile)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    uint64_t version = lands(stage, client, MESSAGE_PUT, 1, 1, 0).version;

    puppet_close(client, ROWAN_ECLOSED);
    stage_run(stage);
    stage->now_ns += 1000 * NS_PER_S;
    stage_run(stage);
    assert_true(stage->wake_ns <= stage->now_ns + NS_PER_S);
    client = comes_back(stage);
    assert_int_equal(lands(stage, client, MESSAGE_PUT, 1, 1, 0).version, version);
}

TEST(a_write_may_end_when_its_client_is_forgotten)
{
    struct puppet_conn *client = stage_client_again(stage, CLIENT);

    ask(stage, client, MESSAGE_PUT, 1, 1, 0);
    stage_run(stage);
    puppet_close(client, ROWAN_ECLOSED);
    stage_run(stage);
    stage_pass(stage, 121 * NS_PER_S);
    stage_land_all(stage);
    assert_true(stage_is_quiet(stage));
    uint64_t version = version_now(stage);

    /* Nothing was kept for a client that nobody would forget again. */
    assert_true(version != 0);
    client = comes_back(stage);
    assert_true(lands(stage, client, MESSAGE_PUT, 1, 1, 0).version > version);
}

TEST(many_clients_leave_and_are_forgotten_together)
{
    enum { CLIENTS = 500 };

    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct puppet_conn *client = stage_client(stage);

        lands(stage, client, MESSAGE_PUT, 1, 1, 0);
        puppet_close(client, ROWAN_ECLOSED);
        stage_run(stage);
    }
    uint64_t version = version_now(stage);

    stage_pass(stage, 121 * NS_PER_S);
    struct puppet_conn *client = stage_client_again(stage, 1001);

    assert_true(lands(stage, client, MESSAGE_PUT, 1, 1, 0).version > version);
}

UNIT_MAIN(NULL, NULL)
