/* session_test.c - where operations go, what comes back, and how many there may be. The test plays
 * the servers; the clock is a number. */
#include "session_fixture.h"
#include "test/lib/unit.h"

TEST(requests_go_to_the_owner_of_the_slot_with_its_epoch)
{
    char key[32];

    for (unsigned shard = 0; shard < 4; shard++) {
        char address[16];

        snprintf(address, sizeof address, "fake:%u", 1 + shard / 2);
        submit(MESSAGE_PUT, stage_key(shard, key, shard), note);
        struct request request = stage_request(&stage);

        assert_string_equal(request.conn->address, address);
        assert_int_equal(request.conn->index, shard % 2);
        assert_int_equal(request.head.type, MESSAGE_PUT);
        assert_int_equal(request.head.shard, 10 + shard);
        assert_int_equal(request.head.epoch, 5 + shard);
        assert_int_equal(request.head.client_id, 1);
        assert_int_equal(request.head.operation, shard + 1);
        assert_int_equal(request.head.lowest_unanswered, 1);
        assert_int_equal(request.head.key_bytes, strlen(key));
        assert_memory_equal(request.key, key, strlen(key));
        assert_int_equal(request.head.value_bytes, 5);
        assert_memory_equal(request.value, "value", 5);
    }
    assert_int_equal(session_outstanding(stage.session), 4);
}

TEST(a_get_brings_value_and_version)
{
    char key[32];

    struct request request = sent(MESSAGE_GET, stage_key(2, key, 0));

    assert_int_equal(request.head.type, MESSAGE_GET);
    stage_answer(&request, 0, 99, 5, "hello", 5);
    stage_run(&stage);
    assert_int_equal(completions, 1);
    assert_int_equal(last.status, 0);
    assert_int_equal(last.version, 99);
    assert_int_equal(last.value_bytes, 5);
    assert_memory_equal(last.value, "hello", 5);
    assert_int_equal(session_outstanding(stage.session), 0);
}

TEST(a_small_buffer_is_left_alone_and_the_size_is_told)
{
    char room[4] = {1, 2, 3, 4};
    struct session_request post_request = {.type = MESSAGE_GET,
                                           .key = "k",
                                           .key_bytes = 1,
                                           .room = room,
                                           .room_bytes = sizeof room,
                                           .callback = note};

    assert_int_equal(session_post(stage.session, &post_request), 0);
    stage_run(&stage);
    struct request request = stage_request(&stage);

    stage_answer(&request, 0, 99, 5, "hello", 5);
    stage_run(&stage);
    assert_int_equal(last.status, ROWAN_EBUFFER);
    assert_int_equal(last.value_bytes, 5);
    assert_int_equal(last.version, 99);
    assert_memory_equal(room, "\1\2\3\4", 4);
}

TEST(wrong_arguments_are_refused_at_once)
{
    char key[ROWAN_MAX_KEY_BYTES + 1] = {0};
    struct session_request request = {.type = MESSAGE_PUT, .key = key, .callback = note};

    assert_int_equal(session_post(stage.session, &request), ROWAN_EKEYSIZE);
    request.key_bytes = sizeof key;
    assert_int_equal(session_post(stage.session, &request), ROWAN_EKEYSIZE);
    request.key_bytes = 1;
    request.value_bytes = ROWAN_MAX_VALUE_BYTES + 1;
    assert_int_equal(session_post(stage.session, &request), ROWAN_EVALUESIZE);
    request.value_bytes = 1;
    assert_int_equal(session_post(stage.session, &request), ROWAN_EINVALID);
    assert_int_equal(session_outstanding(stage.session), 0);
}

TEST(the_longest_key_is_sent_whole)
{
    char key[ROWAN_MAX_KEY_BYTES];
    struct session_request post_request = {
        .type = MESSAGE_DELETE, .key = key, .key_bytes = sizeof key, .callback = note};

    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (char)(i * 7);
    assert_int_equal(session_post(stage.session, &post_request), 0);
    memset(key, 0, sizeof key); /* the post took a copy */
    stage_run(&stage);
    struct request request = stage_request(&stage);

    assert_int_equal(request.head.key_bytes, sizeof key);
    for (size_t i = 0; i < sizeof key; i++)
        assert_int_equal((char)request.key[i], (char)(i * 7));
}

TEST(posts_beyond_the_depth_are_refused_until_one_completes)
{
    struct request request;

    for (int i = 0; i < 4; i++)
        assert_int_equal(post(MESSAGE_PUT, "k", note), 0);
    assert_int_equal(post(MESSAGE_PUT, "k", note), ROWAN_EAGAIN);
    stage_run(&stage);
    request = stage_request(&stage);
    answer(&request, 0, 1, 5);
    assert_int_equal(post(MESSAGE_PUT, "k", note), 0);
    assert_int_equal(post(MESSAGE_PUT, "k", note), ROWAN_EAGAIN);
}

TEST(an_operation_somebody_waits_for_has_a_slot_of_its_own)
{
    struct session_request request = {
        .type = MESSAGE_GET, .key = "k", .key_bytes = 1, .callback = note, .reserved = true};

    for (int i = 0; i < 4; i++)
        assert_int_equal(post(MESSAGE_PUT, "k", note), 0);
    assert_int_equal(session_post(stage.session, &request), 0);
    assert_int_equal(session_post(stage.session, &request), ROWAN_EAGAIN);
    stage_run(&stage);
    for (int i = 0; i < 4; i++)
        stage_request(&stage);
    struct request last_one = stage_request(&stage);

    answer(&last_one, ROWAN_ENOTFOUND, 0, 5);
    assert_int_equal(last.status, ROWAN_ENOTFOUND);
    assert_int_equal(session_post(stage.session, &request), 0);
}

TEST(completions_without_callback_keep_their_slot_until_fetched)
{
    struct rowan_completion completion;

    for (int i = 0; i < 4; i++)
        assert_int_equal(post(MESSAGE_PUT, "k", NULL), 0);
    stage_run(&stage);
    for (int i = 0; i < 4; i++) {
        struct request request = stage_request(&stage);

        stage_answer(&request, 0, (uint64_t)i + 1, 5, NULL, 0);
    }
    stage_run(&stage);
    assert_int_equal(session_outstanding(stage.session), 0);
    assert_int_equal(session_waiting(stage.session), 4);
    assert_int_equal(post(MESSAGE_PUT, "k", NULL), ROWAN_EAGAIN);
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(session_next(stage.session, &completion));
        assert_int_equal(completion.version, i + 1);
    }
    assert_false(session_next(stage.session, &completion));
    assert_int_equal(post(MESSAGE_PUT, "k", NULL), 0);
}

TEST(a_full_connection_keeps_operations_queued_in_order)
{
    char key[32];

    submit(MESSAGE_PUT, stage_key(0, key, 0), note);
    struct fake_conn *conn = stage_request(&stage).conn;

    conn->room = 1;
    for (int i = 0; i < 3; i++)
        assert_int_equal(post(MESSAGE_PUT, key, note), 0);
    stage_run(&stage);
    assert_int_equal(stage_request(&stage).head.operation, 2);
    assert_true(stage_quiet(&stage));
    assert_true(stage.wake_ns <= stage.now_ns + NS_PER_MS);
    /* and nobody else waits behind it */
    completions = 0;
    conn->room = 5;
    stage_run_after(&stage, NS_PER_MS);
    assert_int_equal(stage_request(&stage).head.operation, 3);
    assert_int_equal(stage_request(&stage).head.operation, 4);
}

static struct rowan_completion reposted;

static void post_again(const struct rowan_completion *completion)
{
    reposted = *completion;
    if (++completions < 100)
        assert_int_equal(post(MESSAGE_PUT, "again", post_again), 0);
    assert_true(session_polling(stage.session));
}

TEST(a_callback_posts_into_the_slot_that_it_freed)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(post(MESSAGE_PUT, "k", post_again), 0);
    stage_run(&stage);
    while (completions < 100) {
        struct request request = stage_request(&stage);

        answer(&request, 0, 1, 5);
    }
    assert_false(session_polling(stage.session));
}

/* Posts a put and answers it; false if there is no number for it. */
static bool put_once(struct request *request)
{
    int error = post(MESSAGE_PUT, "k", note);

    if (error) {
        assert_int_equal(error, ROWAN_EAGAIN);
        return false;
    }
    stage_run(&stage);
    *request = stage_request(&stage);
    answer(request, 0, 1, 5);
    return true;
}

TEST(a_new_client_id_is_used_before_the_numbers_run_out)
{
    uint32_t client_id = 1, operation = 0, changes = 0;
    struct fake_conn *conn = NULL;

    stage_close(&stage);
    stage_open(&stage, 4, 16);
    for (int i = 0; i < 100; i++) {
        struct request request;

        while (!put_once(&request))
            stage_run(&stage);
        if (request.head.client_id == client_id) {
            assert_int_equal(request.head.operation, operation + 1);
            assert_true(!conn || request.conn == conn);
        } else {
            changes++;
            assert_int_equal(request.head.client_id, stage.ids);
            assert_int_equal(request.head.operation, 1);
            /* A connection is that of the client in its handshake. */
            assert_ptr_not_equal(request.conn, conn);
            assert_true(conn->by_client);
            assert_int_equal(stage.fake->endpoint.identity.id, request.head.client_id);
        }
        conn = request.conn;
        client_id = request.head.client_id;
        operation = request.head.operation;
        assert_true(operation < 16);
        assert_int_equal(request.head.lowest_unanswered, operation);
    }
    assert_int_equal(changes, 6);
}

TEST(a_new_client_id_waits_for_what_is_outstanding)
{
    struct request first, request;

    stage_close(&stage);
    stage_open(&stage, 4, 16);
    first = sent(MESSAGE_PUT, "k");
    for (uint32_t i = 2; i < 16; i++) {
        assert_true(put_once(&request));
        assert_int_equal(request.head.lowest_unanswered, 1);
    }
    for (int i = 0; i < 3; i++) {
        assert_false(put_once(&request));
        stage_run(&stage);
    }
    assert_false(first.conn->over);
    answer(&first, 0, 1, 5);
    assert_true(put_once(&request));
    assert_int_equal(request.head.client_id, 2);
    assert_int_equal(request.head.lowest_unanswered, 1);
}

/* A caller that waits for room sleeps after a poll that says IDLE. */
TEST(the_poll_that_takes_a_new_client_id_is_a_busy_one)
{
    uint64_t wake_ns = WAKE_NEVER;
    struct request request;

    stage_close(&stage);
    stage_open(&stage, 4, 16);
    sent(MESSAGE_PUT, "k");
    for (uint32_t i = 2; i < 16; i++)
        assert_true(put_once(&request));
    stage.now_ns += STAGE_TIMEOUT_NS;
    assert_int_equal(session_poll(stage.session, stage.now_ns, &wake_ns), POLL_BUSY);
    assert_int_equal(session_outstanding(stage.session), 0);
    assert_false(put_once(&request));
    assert_int_equal(session_poll(stage.session, stage.now_ns, &wake_ns), POLL_BUSY);
    assert_true(put_once(&request));
    assert_int_equal(request.head.client_id, 2);
}

TEST(numbers_in_use_lie_less_than_the_span_apart)
{
    struct session_options options = {.depth = 4, .timeout_ns = STAGE_TIMEOUT_NS, .span = 10};
    struct request first, request;

    session_destroy(stage.session);
    assert_int_equal(session_create(&stage.fake->endpoint, STAGE_CM, &options, &stage.session), 0);
    stage_run(&stage);
    first = sent(MESSAGE_PUT, "k");
    for (uint32_t i = 2; i <= 10; i++)
        assert_true(put_once(&request));
    assert_int_equal(request.head.operation - request.head.lowest_unanswered, 9);
    assert_false(put_once(&request));
    answer(&first, 0, 1, 5);
    assert_true(put_once(&request));
    options.span = MESSAGE_MAX_SPAN + 1;
    struct session *refused;

    assert_int_equal(session_create(&stage.fake->endpoint, STAGE_CM, &options, &refused),
                     ROWAN_EINVALID);
}

TEST(a_timeout_beyond_what_servers_remember_is_refused)
{
    struct session_options options = {.depth = 4,
                                      .timeout_ns = ROWAN_MAX_TIMEOUT_MS * NS_PER_MS + 1};
    struct session *refused;

    assert_int_equal(session_create(&stage.fake->endpoint, STAGE_CM, &options, &refused),
                     ROWAN_EINVALID);
}

TEST(a_lost_cm_is_found_again_and_told_what_we_know)
{
    uint32_t asked = stage.asked_config;

    fake_close(fake_find(stage.fake, STAGE_CM, 0), ROWAN_ECLOSED);
    stage_run(&stage);
    assert_null(fake_find(stage.fake, STAGE_CM, 0));
    stage_run_after(&stage, 500 * NS_PER_MS);
    assert_non_null(fake_find(stage.fake, STAGE_CM, 0));
    assert_int_equal(stage.asked_config, asked + 1);
    assert_int_equal(stage.ids, 1);
}

TEST(an_older_configuration_or_another_clusters_is_ignored)
{
    struct cluster_config *other = stage_config(50);

    stage_push(&stage, stage_config(4));
    stage_run(&stage);
    assert_int_equal(session_config(stage.session)->term, 5);
    other->cluster = 78;
    stage_push(&stage, other);
    stage_run(&stage);
    assert_int_equal(session_config(stage.session)->term, 5);
}

/* The CM gives no id before every server serves: that is waited for, and no server is busy. */
TEST(a_session_that_is_put_off_by_the_cm_has_timed_out)
{
    struct session_options options = {.depth = 1, .timeout_ns = 1};
    struct session *session;

    session_destroy(stage.session);
    assert_int_equal(session_create(&stage.fake->endpoint, STAGE_CM, &options, &session), 0);
    stage.session = session;
    stage.id_error = ROWAN_EAGAIN;
    stage_run(&stage);
    assert_false(session_ready(session));
    assert_int_equal(session_error(session), ROWAN_ETIMEDOUT);
    stage.id_error = ROWAN_ETOOMANY; /* this will not change */
    stage_run_after(&stage, NS_PER_S);
    assert_int_equal(session_error(session), ROWAN_ETOOMANY);
    stage.id_error = 0;
    stage_run_after(&stage, NS_PER_S);
    assert_true(session_ready(session));
}

/* What waits longer each time does so up to some seconds. */
TEST(who_is_told_to_come_again_later_for_an_id_comes_ever_more_rarely)
{
    const uint64_t gaps_ms[] = {750, 1000, 1500, 2500, 4500, 4500};
    struct session_options options = {.depth = 1, .timeout_ns = 1};

    session_destroy(stage.session);
    assert_int_equal(session_create(&stage.fake->endpoint, STAGE_CM, &options, &stage.session), 0);
    stage.id_error = ROWAN_EAGAIN;
    stage_run(&stage);
    for (unsigned i = 0; i < sizeof gaps_ms / sizeof gaps_ms[0]; i++) {
        const uint32_t asked = stage.asked_id;

        stage_run_after(&stage, gaps_ms[i] * NS_PER_MS - 1);
        assert_int_equal(stage.asked_id, asked);
        stage_run_after(&stage, 1);
        assert_int_equal(stage.asked_id, asked + 1);
    }
    stage.id_error = 0;
    stage_run_after(&stage, 5 * NS_PER_S);
    assert_true(session_ready(stage.session));
}

/* Of a user who may not write. */
static void open_reader(void)
{
    struct session_options options = {.depth = 4, .timeout_ns = STAGE_TIMEOUT_NS};

    session_destroy(stage.session);
    stage.reads = true;
    stage.ids = 0;
    assert_int_equal(session_create(&stage.fake->endpoint, STAGE_CM, &options, &stage.session), 0);
    stage_run(&stage);
    assert_true(session_ready(stage.session));
}

static void write_again(const struct rowan_completion *completion)
{
    note(completion);
    assert_int_equal(post(MESSAGE_PUT, "k", write_again), 0);
}

TEST(a_session_that_may_not_write_reads_without_a_client_id_and_sends_no_write)
{
    open_reader();
    struct request request = sent(MESSAGE_GET, "k");

    assert_int_equal(request.head.client_id, 0);
    answer(&request, 0, 9, 5);
    assert_int_equal(last.status, 0);
    for (enum message_type type = MESSAGE_PUT; type <= MESSAGE_DELETE; type++) {
        submit(type, "k", note);
        assert_int_equal(last.status, ROWAN_EACCESS);
    }
    assert_int_equal(completions, 4);
    assert_true(stage_quiet(&stage));
    assert_int_equal(post(MESSAGE_PUT, "k", write_again), 0);
    assert_int_equal(session_poll(stage.session, stage.now_ns, &stage.wake_ns), POLL_BUSY);
    assert_int_equal(completions, 5); /* one for each poll, as none is sent */
    assert_true(stage_quiet(&stage));
}

TEST(a_session_that_may_write_since_gets_an_id_when_nothing_is_outstanding)
{
    open_reader();
    struct request request = sent(MESSAGE_GET, "k");

    stage.reads = false;
    stage_push(&stage, stage_config(6));
    stage_run(&stage);
    assert_int_equal(stage.ids, 1);
    assert_int_equal(post(MESSAGE_GET, "k", note), ROWAN_EAGAIN);
    answer(&request, 0, 9, 6);
    assert_int_equal(sent(MESSAGE_PUT, "k").head.client_id, 1);
    assert_int_equal(stage.ids, 1);
}

TEST(a_session_that_may_not_write_asks_again_on_each_connection)
{
    open_reader();
    stage.reads = false;
    fake_close(fake_find(stage.fake, STAGE_CM, 0), ROWAN_ECLOSED);
    stage_run_after(&stage, NS_PER_S);
    stage_run_after(&stage, NS_PER_S);
    assert_int_equal(sent(MESSAGE_PUT, "k").head.client_id, 1);
}

TEST(a_configuration_of_a_later_format_is_told_to_who_opens_a_session_and_ends_no_other)
{
    struct session_options options = {.depth = 1, .timeout_ns = 1};
    struct session *session;

    stage.later_format = true;
    stage_push(&stage, stage_config(6));
    stage_run(&stage);
    assert_int_equal(session_config(stage.session)->term, 5);
    assert_non_null(fake_find(stage.fake, STAGE_CM, 0));
    session_destroy(stage.session);
    assert_int_equal(session_create(&stage.fake->endpoint, STAGE_CM, &options, &session), 0);
    stage.session = session;
    stage_run(&stage);
    assert_false(session_ready(session));
    assert_int_equal(session_error(session), ROWAN_EINCOMPATIBLE);
}

TEST(without_a_configuration_a_session_is_not_ready)
{
    struct session_options options = {.depth = 1, .timeout_ns = 1};
    struct session *session;

    session_destroy(stage.session);
    cluster_release(stage.config);
    stage.config = NULL;
    assert_int_equal(session_create(&stage.fake->endpoint, STAGE_CM, &options, &session), 0);
    stage.session = session;
    assert_int_equal(session_error(session), ROWAN_EUNREACHABLE);
    stage_run(&stage);
    assert_false(session_ready(session));
    assert_int_equal(session_error(session), ROWAN_ETIMEDOUT);
    assert_int_equal(post(MESSAGE_PUT, "k", note), ROWAN_EAGAIN);
    stage_push(&stage, stage_config(1)); /* the CM tells, without being asked again */
    stage_run(&stage);
    assert_true(session_ready(session));
}

static void post_in_vain(const struct rowan_completion *completion)
{
    char key[32];

    note(completion);
    assert_int_equal(post(MESSAGE_GET, stage_key(0, key, 9), note), ROWAN_EIO);
}

TEST(an_endpoint_that_failed_ends_what_is_outstanding)
{
    char key[32];

    assert_int_equal(post(MESSAGE_PUT, stage_key(0, key, 0), note), 0);
    stage_run(&stage); /* was sent */
    stage.fake->hold_connects = true;
    assert_int_equal(post(MESSAGE_PUT, stage_key(3, key, 1), post_in_vain), 0);
    stage_run(&stage); /* was not */
    stage.fake->endpoint.error = ROWAN_EIO;
    uint64_t wake_ns = WAKE_NEVER;

    assert_int_equal(session_poll(stage.session, stage.now_ns, &wake_ns), POLL_BUSY);
    assert_int_equal(completions, 2);
    assert_int_equal(last.status, ROWAN_EIO);
    assert_int_equal(session_outstanding(stage.session), 0);
    assert_int_equal(session_error(stage.session), ROWAN_EIO);
}

TEST(a_write_that_a_failed_endpoint_may_have_sent_is_unknown)
{
    char key[32];

    submit(MESSAGE_PUT, stage_key(0, key, 0), note);
    stage.fake->endpoint.error = ROWAN_EIO;
    stage_run(&stage);
    assert_int_equal(completions, 1);
    assert_int_equal(last.status, ROWAN_EUNKNOWN);
}

UNIT_MAIN(NULL, NULL)
