#include <pthread.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/log_limiter.h"
#include "test/lib/unit.h"

static struct log_limiter limiter;
static uint64_t now_ns;

static int empty(void **state)
{
    (void)state;
    memset(&limiter, 0, sizeof limiter);
    now_ns = 1000 * NS_PER_S;
    return 0;
}

/* How many of `lines` are written, and what the last of them tells. */
static uint64_t written(enum log_level level, const char *event, uint64_t lines, uint64_t *left_out)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < lines; i++)
        count += log_limiter_allow(&limiter, level, event, now_ns, left_out);
    return count;
}

TEST_WITH(a_flood_is_a_burst_then_two_lines_a_second_that_tell_what_was_left_out, empty, NULL)
{
    uint64_t left_out = 0;

    assert_int_equal(written(LOG_WARN, "login_refused", 100000, &left_out), LOG_BURST);
    assert_int_equal(left_out, 0);
    for (unsigned second = 0; second < 3; second++) {
        const uint64_t before = second ? 1000 - 2 : 100000 - LOG_BURST;
        now_ns += NS_PER_S;
        assert_true(log_limiter_allow(&limiter, LOG_WARN, "login_refused", now_ns, &left_out));
        assert_int_equal(left_out, before);
        assert_int_equal(written(LOG_WARN, "login_refused", 999, &left_out), 1);
        assert_int_equal(left_out, 0);
    }
    now_ns += LOG_BURST * NS_PER_S;
    assert_int_equal(written(LOG_WARN, "login_refused", 100000, &left_out), LOG_BURST);
}

TEST_WITH(each_event_and_each_level_has_lines_of_its_own, empty, NULL)
{
    char again[] = "split_waits";
    uint64_t left_out;

    assert_int_equal(written(LOG_WARN, "split_waits", 1000, &left_out), LOG_BURST);
    assert_int_equal(written(LOG_WARN, again, 1000, &left_out), 0); /* names are texts */
    assert_int_equal(written(LOG_ERROR, "split_waits", 1000, &left_out), LOG_BURST);
    assert_int_equal(written(LOG_INFO, "split_waits", 5000, &left_out), LOG_BURST_INFO);
    assert_int_equal(written(LOG_ERROR, "server_failed", 1, &left_out), 1);
}

TEST_WITH(where_the_places_are_taken_errors_are_written_still_and_the_rest_shares_one_budget, empty,
          NULL)
{
    static char names[2 * LOG_EVENTS][16];
    uint64_t left_out, warned = 0;

    for (unsigned i = 0; i < 2 * LOG_EVENTS; i++) {
        snprintf(names[i], sizeof names[i], "event_%u", i);
        warned += written(LOG_WARN, names[i], 1, &left_out);
    }
    assert_int_equal(warned, LOG_EVENTS + LOG_BURST);
    assert_int_equal(written(LOG_ERROR, "server_failed", 1000, &left_out), 1000);
    assert_int_equal(written(LOG_WARN, names[0], 1, &left_out), 1); /* who has a place keeps it */
}

TEST_WITH(a_count_is_told_once_the_event_is_quiet, empty, NULL)
{
    enum log_level level;
    uint64_t left_out;
    uint32_t place = 0;

    written(LOG_WARN, "login_refused", LOG_BURST + 7, &left_out);
    written(LOG_INFO, "refused", LOG_BURST_INFO, &left_out);
    assert_null(log_limiter_owed(&limiter, now_ns, &place, &level, &left_out));
    now_ns += LOG_QUIET_LINES * NS_PER_S;
    place = 0;
    assert_string_equal(log_limiter_owed(&limiter, now_ns, &place, &level, &left_out),
                        "login_refused");
    assert_int_equal(level, LOG_WARN);
    assert_int_equal(left_out, 7);
    assert_null(log_limiter_owed(&limiter, now_ns, &place, &level, &left_out));
    assert_true(log_limiter_allow(&limiter, LOG_WARN, "login_refused", now_ns, &left_out));
    assert_int_equal(left_out, 0); /* not twice */
}

enum { THREADS = 4, LINES = 20000 };

static void *flood(void *told)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    uint64_t left_out, *sums = told; /* written, and told to be left out */

    for (unsigned i = 0; i < LINES; i++) {
        if (log_limiter_allow(&limiter, LOG_WARN, names[i % 8], now_ns, &left_out)) {
            sums[0]++;
            sums[1] += left_out;
        }
    }
    return NULL;
}

TEST_WITH(threads_share_the_lines_and_none_is_counted_twice, empty, NULL)
{
    pthread_t threads[THREADS];
    uint64_t told[THREADS][2] = {0}, count = 0, left_out = 0, one;
    enum log_level level;
    uint32_t place = 0;

    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, flood, told[i]), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        count += told[i][0];
        left_out += told[i][1];
    }
    assert_int_equal(count, 8 * LOG_BURST);
    now_ns += NS_PER_S * LOG_BURST;
    while (log_limiter_owed(&limiter, now_ns, &place, &level, &one))
        left_out += one;
    assert_int_equal(count + left_out, THREADS * LINES);
}

UNIT_MAIN(NULL, NULL)
