/* threaded_sdk_test.c - the public calls, as a program makes them: a session that sleeps and wakes,
 * against a small server in another thread. */
#define TEST_FIXTURE open_all, close_all

#include "client/rowan.h"
#include "test/lib/temp_dir.h"
#include "test/lib/unit.h"
#include "toy.h"

static struct temp_dir directory;
static struct toy *toy;
static struct rowan *rowan;

static int open_all(void **state)
{
    struct rowan_options options;

    (void)state;
    temp_dir_init(&directory);
    toy = toy_start(directory.path);
    rowan_options_init(&options);
    options.directory = directory.path;
    options.depth = 4;
    assert_int_equal(rowan_open(&options, &rowan), 0);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    rowan_close(rowan);
    toy_stop(toy);
    temp_dir_fini(&directory);
    return 0;
}

TEST(what_was_put_is_got_until_it_is_deleted)
{
    char value[16];
    size_t bytes;
    uint64_t written, read;

    assert_int_equal(rowan_get(rowan, "k", 1, value, sizeof value, &bytes, NULL), ROWAN_ENOTFOUND);
    assert_int_equal(rowan_put(rowan, "k", 1, "hello", 5, &written), 0);
    assert_int_equal(rowan_get(rowan, "k", 1, value, sizeof value, &bytes, &read), 0);
    assert_int_equal(bytes, 5);
    assert_memory_equal(value, "hello", 5);
    assert_int_equal(written, read);
    assert_int_equal(rowan_del(rowan, "k", 1), 0);
    assert_int_equal(rowan_del(rowan, "k", 1), ROWAN_ENOTFOUND);
    assert_int_equal(rowan_get(rowan, "k", 1, value, sizeof value, NULL, NULL), ROWAN_ENOTFOUND);
}

TEST(empty_and_largest_values_come_back)
{
    char *value = malloc(ROWAN_MAX_VALUE_BYTES), *back = malloc(ROWAN_MAX_VALUE_BYTES);
    size_t bytes = 1;

    assert_non_null(value);
    assert_non_null(back);
    assert_int_equal(rowan_put(rowan, "empty", 5, NULL, 0, NULL), 0);
    assert_int_equal(rowan_get(rowan, "empty", 5, NULL, 0, &bytes, NULL), 0);
    assert_int_equal(bytes, 0);
    for (size_t i = 0; i < ROWAN_MAX_VALUE_BYTES; i++)
        value[i] = (char)(i * 31 + (i >> 10));
    assert_int_equal(rowan_put(rowan, "large", 5, value, ROWAN_MAX_VALUE_BYTES, NULL), 0);
    assert_int_equal(rowan_get(rowan, "large", 5, back, ROWAN_MAX_VALUE_BYTES, &bytes, NULL), 0);
    assert_int_equal(bytes, ROWAN_MAX_VALUE_BYTES);
    assert_int_equal(memcmp(value, back, bytes), 0);
    assert_int_equal(rowan_get(rowan, "large", 5, back, 10, &bytes, NULL), ROWAN_EBUFFER);
    assert_int_equal(bytes, ROWAN_MAX_VALUE_BYTES);
    free(value);
    free(back);
}

TEST(a_conditional_put_tells_the_version_that_is_there)
{
    uint64_t first, second = 0, there = 0;

    assert_int_equal(rowan_put_if_version(rowan, "k", 1, "a", 1, 0, &first), 0);
    assert_int_equal(rowan_put_if_version(rowan, "k", 1, "b", 1, 0, &there), ROWAN_EVERSION);
    assert_int_equal(there, first);
    assert_int_equal(rowan_put_if_version(rowan, "k", 1, "b", 1, first, &second), 0);
    assert_true(second > first);
}

TEST(more_operations_than_the_depth_run_side_by_side)
{
    enum { COUNT = 100 };
    struct rowan_op ops[COUNT + 1];
    char keys[COUNT][8], values[COUNT][8], back[COUNT][8];

    for (int i = 0; i < COUNT; i++) {
        int key_bytes = snprintf(keys[i], sizeof keys[i], "k%d", i);
        int value_bytes = snprintf(values[i], sizeof values[i], "v%d", i * i % 1000);

        ops[i] = (struct rowan_op){.key = keys[i],
                                   .key_bytes = (size_t)key_bytes,
                                   .value = values[i],
                                   .value_bytes = (size_t)value_bytes};
    }
    assert_int_equal(rowan_multi_put(rowan, ops, COUNT), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(ops[i].status, 0);
        ops[i].value = back[i];
        ops[i].value_room = sizeof back[i];
    }
    ops[COUNT] = (struct rowan_op){.key = "none", .key_bytes = 4};
    assert_int_equal(rowan_multi_get(rowan, ops, COUNT + 1), ROWAN_ENOTFOUND);
    assert_int_equal(ops[COUNT].status, ROWAN_ENOTFOUND);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(ops[i].status, 0);
        assert_int_equal(ops[i].value_bytes, strlen(values[i]));
        assert_memory_equal(back[i], values[i], strlen(values[i]));
    }
    ops[1].key_bytes = 0;
    assert_int_equal(rowan_multi_get(rowan, ops, 3), ROWAN_EKEYSIZE);
    ops[1].reserved[4] = 1;
    assert_int_equal(rowan_multi_get(rowan, ops, 3), ROWAN_EINVALID);
    assert_int_equal(rowan_multi_put(rowan, ops, 3), ROWAN_EINVALID);
    assert_int_equal(ops[2].status, 0);
}

TEST(poll_hands_over_what_fits_and_keeps_the_rest)
{
    struct rowan_completion completions[3];
    int fetched = 0;

    for (int i = 0; i < 4; i++)
        assert_int_equal(rowan_post_put(rowan, "k", 1, "v", 1, NULL, &completions[0]), 0);
    assert_int_equal(rowan_post_put(rowan, "k", 1, "v", 1, NULL, NULL), ROWAN_EAGAIN);
    assert_int_equal(rowan_outstanding(rowan), 4);
    assert_int_equal(rowan_wait_all(rowan), 0);
    assert_int_equal(rowan_outstanding(rowan), 0);
    assert_int_equal(rowan_poll(rowan, completions, 3, -1), 3);
    assert_ptr_equal(completions[2].context, &completions[0]);
    fetched = rowan_poll(rowan, completions, 3, -1);
    assert_int_equal(fetched, 1);
    assert_int_equal(rowan_poll(rowan, completions, 3, -1), 0); /* nothing is outstanding */
}

TEST(poll_returns_when_its_time_is_over)
{
    struct rowan_completion completion;

    toy_allow(toy, 0);
    assert_int_equal(rowan_post_put(rowan, "k", 1, "v", 1, NULL, NULL), 0);
    assert_int_equal(rowan_poll(rowan, &completion, 1, 0), 0);
    assert_int_equal(rowan_poll(rowan, &completion, 1, 30), 0);
    assert_int_equal(rowan_outstanding(rowan), 1);
    toy_allow(toy, -1);
    assert_int_equal(rowan_poll(rowan, &completion, 1, 10000), 1);
    assert_int_equal(completion.status, 0);
}

TEST(poll_returns_with_the_first_completion)
{
    struct rowan_completion completions[4];

    toy_allow(toy, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rowan_post_put(rowan, "k", 1, "v", 1, NULL, NULL), 0);
    assert_int_equal(rowan_poll(rowan, completions, 4, -1), 1);
    assert_int_equal(completions[0].status, 0);
    assert_int_equal(rowan_outstanding(rowan), 3);
    toy_allow(toy, -1);
    assert_int_equal(rowan_wait_all(rowan), 0);
}

static int callbacks, refused;

static void call_back(const struct rowan_completion *completion)
{
    char value[4];

    assert_int_equal(completion->status, 0);
    refused += rowan_get(rowan, "k", 1, value, sizeof value, NULL, NULL) == ROWAN_EINVALID;
    refused += rowan_poll(rowan, NULL, 0, 0) == ROWAN_EINVALID;
    refused += rowan_wait_all(rowan) == ROWAN_EINVALID;
    refused += rowan_wait_any(&rowan, 1, 0) == ROWAN_EINVALID;
    if (++callbacks < 1000)
        assert_int_equal(rowan_post_put(rowan, "k", 1, "v", 1, call_back, NULL), 0);
}

TEST(callbacks_post_but_do_not_wait)
{
    callbacks = refused = 0;
    assert_int_equal(rowan_post_put(rowan, "k", 1, "v", 1, call_back, NULL), 0);
    assert_int_equal(rowan_wait_all(rowan), 0);
    assert_int_equal(callbacks, 1000);
    assert_int_equal(refused, 4000);
}

TEST(a_call_that_waits_works_beside_asynchronous_ones)
{
    struct rowan_completion completions[4];
    char value[4];
    size_t bytes;

    for (int i = 0; i < 4; i++)
        assert_int_equal(rowan_post_put(rowan, "k", 1, "v", 1, NULL, NULL), 0);
    assert_int_equal(rowan_get(rowan, "k", 1, value, sizeof value, &bytes, NULL), 0);
    assert_int_equal(rowan_wait_all(rowan), 0);
    assert_int_equal(rowan_poll(rowan, completions, 4, 0), 4);
}

static void count_call(const struct rowan_completion *completion)
{
    assert_int_equal(completion->status, 0);
    callbacks++;
}

TEST(one_thread_waits_for_any_of_its_sessions)
{
    struct rowan *sessions[2] = {rowan};
    struct rowan_options options;

    rowan_options_init(&options);
    options.directory = directory.path;
    assert_int_equal(rowan_open(&options, &sessions[1]), 0);
    for (int second = 0; second < 2; second++) {
        callbacks = 0;
        assert_int_equal(rowan_post_put(sessions[second], "k", 1, "v", 1, count_call, NULL), 0);
        while (callbacks == 0) /* without limit: an answer that wakes nobody hangs here */
            assert_int_equal(rowan_wait_any(sessions, 2, -1), 0);
    }
    assert_int_equal(rowan_wait_any(sessions, 2, 1000), 0);
    assert_int_equal(rowan_wait_any(sessions, 0, 0), ROWAN_EINVALID);
    assert_int_equal(rowan_wait_any(sessions, ROWAN_MAX_WAIT + 1, 0), ROWAN_EINVALID);
    assert_int_equal(rowan_wait_any(NULL, 1, 0), ROWAN_EINVALID);
    rowan_close(sessions[1]);
}

TEST(a_session_closes_with_operations_outstanding)
{
    toy_allow(toy, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rowan_post_put(rowan, "k", 1, "v", 1, call_back, NULL), 0);
    assert_int_equal(rowan_poll(rowan, NULL, 0, 0), 0);
}

TEST(opening_tells_what_is_wrong)
{
    struct rowan_options options;
    struct rowan *other;
    char address[300];

    rowan_options_init(&options);
    options.open_timeout_ms = 50;
    assert_int_equal(rowan_open(&options, &other), ROWAN_EINVALID);
    options.directory = "/nowhere";
    assert_int_equal(rowan_open(&options, &other), ROWAN_ENOTFOUND);
    snprintf(address, sizeof address, "shm:%s/nobody", directory.path);
    options.cm = address;
    assert_int_equal(rowan_open(&options, &other), ROWAN_EUNREACHABLE);
    options.cm = "pigeon:post";
    assert_int_equal(rowan_open(&options, &other), ROWAN_EUNSUPPORTED);
    snprintf(address, sizeof address, "shm:%s/c", directory.path);
    options.cm = address;
    options.depth = 0;
    assert_int_equal(rowan_open(&options, &other), ROWAN_EINVALID);
    options.depth = 1;
    options.reserved[3] = 1;
    assert_int_equal(rowan_open(&options, &other), ROWAN_EINVALID);
    options.reserved[3] = 0;
    assert_int_equal(rowan_open(NULL, &other), ROWAN_EINVALID);
    assert_int_equal(rowan_open(&options, NULL), ROWAN_EINVALID);
    assert_int_equal(rowan_open(&options, &other), 0);
    rowan_close(other);
}

TEST_WITH(errors_have_names_and_sentences, NULL, NULL)
{
    assert_string_equal(rowan_error_sentence(ROWAN_ENOTFOUND), "not found");
    assert_string_equal(rowan_error_name(ROWAN_EPERMISSION), "ROWAN_EPERMISSION");
    for (int error = 0; error >= ROWAN_EACCESS; error--)
        assert_true(strlen(rowan_error_sentence(error)) > 3);
    assert_non_null(rowan_error_sentence(-1000));
    assert_true(strlen(rowan_version()) >= 5);
}

UNIT_MAIN(NULL, NULL)
