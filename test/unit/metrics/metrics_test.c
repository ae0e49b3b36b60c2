/* The text of the registry, and who asks whom. */
#include "common/metrics/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "test/lib/unit.h"

struct values {
    struct counter gets, puts, term, nanoseconds;
    struct latencies latencies;
};

static const struct metric of_workers[] = {
    {"requests_total", "Requests.", "kind=\"get\"", METRIC_COUNTER, offsetof(struct values, gets),
     0},
    {"requests_total", "Requests.", "kind=\"put\"", METRIC_COUNTER, offsetof(struct values, puts),
     0},
    {"duration_seconds", "Durations.", "", METRIC_HISTOGRAM, offsetof(struct values, latencies), 0},
};
static const struct metric of_roles[] = {
    {"busy_seconds_total", "Busy.", "", METRIC_COUNTER, offsetof(struct values, nanoseconds), 1e-9},
};
static const struct metric of_server[] = {
    {"term", "Term.", "", METRIC_GAUGE, offsetof(struct values, term), 0},
};

static struct metrics metrics;
static struct values one, two;
static unsigned answers;

static void on_answer(void *context)
{
    (void)context;
    answers++;
}

static char *text_of(void)
{
    size_t bytes;
    char *text;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    metrics_print(&metrics, out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(strlen(text), bytes);
    return text;
}

static unsigned count_in(const char *text, const char *word)
{
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, word)); at++)
        count++;
    return count;
}

TEST(sets_with_the_same_labels_are_one_line_with_their_sum)
{
    memset(&metrics, 0, sizeof metrics);
    metrics_add(&metrics, of_workers, 3, &one, "");
    metrics_add(&metrics, of_roles, 1, &one, "number=\"0\"");
    metrics_add(&metrics, of_workers, 3, &two, "");
    metrics_add(&metrics, of_roles, 1, &two, "number=\"1\"");
    metrics_add(&metrics, of_server, 1, &one, "");
    counter_set(&one.gets, 40);
    counter_set(&two.gets, 2);
    counter_add(&two.puts, UINT64_MAX - 1);
    counter_set(&one.nanoseconds, 1500000000);
    counter_set(&one.term, 7);
    char *text = text_of();
    assert_non_null(strstr(text, "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
                                 "requests_total{kind=\"get\"} 42\n"
                                 "requests_total{kind=\"put\"} 18446744073709551614\n"));
    assert_non_null(strstr(text,
                           "# TYPE busy_seconds_total counter\nbusy_seconds_total{number=\"0\"} "
                           "1.5\nbusy_seconds_total{number=\"1\"} 0\n"));
    assert_non_null(strstr(text, "# TYPE term gauge\nterm 7\n"));
    assert_int_equal(count_in(text, "# TYPE requests_total"), 1);
    assert_int_equal(count_in(text, "requests_total{kind=\"get\"}"), 1);
    assert_int_equal(count_in(text, "# TYPE"), 4);
    free(text);
}

TEST(a_duration_counts_in_its_bucket_and_in_those_above)
{
    memset(&metrics, 0, sizeof metrics);
    memset(&one, 0, sizeof one);
    metrics_add(&metrics, of_workers, 3, &one, "server=\"1\"");
    latencies_add(&one.latencies, 0, 1);
    latencies_add(&one.latencies, 1023, 1);
    latencies_add(&one.latencies, 1024, 3);
    latencies_add(&one.latencies, UINT64_C(1) << 40, 1);
    char *text = text_of();
    assert_non_null(strstr(text, "duration_seconds_bucket{server=\"1\",le=\"1.024e-06\"} 2\n"
                                 "duration_seconds_bucket{server=\"1\",le=\"2.048e-06\"} 5\n"));
    assert_non_null(strstr(text, "{server=\"1\",le=\"34.3597384\"} 5\n"
                                 "duration_seconds_bucket{server=\"1\",le=\"+Inf\"} 6\n"
                                 "duration_seconds_sum{server=\"1\"} 1099.511631871\n"
                                 "duration_seconds_count{server=\"1\"} 6\n"));
    free(text);
}

TEST(a_duration_counts_in_the_first_bucket_that_it_fits)
{
    memset(&one, 0, sizeof one);
    for (uint32_t i = 0; i + 1 < LATENCIES_BUCKETS; i++) {
        const uint64_t most = latencies_most_ns(i), next = latencies_most_ns(i + 1);
        assert_true(next > most && (i + 2 == LATENCIES_BUCKETS || next - most <= 1 + most / 4));
        latencies_add(&one.latencies, most, 1);
        assert_int_equal(counter_get(&one.latencies.counts[i]), i == 0 ? 1 : 2);
        latencies_add(&one.latencies, most + 1, 1);
        assert_int_equal(counter_get(&one.latencies.counts[i + 1]), 1);
    }
    latencies_add(&one.latencies, UINT64_MAX, 1);
    assert_int_equal(counter_get(&one.latencies.counts[LATENCIES_BUCKETS - 1]), 2);
}

TEST(a_role_answers_each_question_once)
{
    memset(&metrics, 0, sizeof metrics);
    metrics.on_answer = on_answer;
    assert_false(metrics_asked(NULL));
    assert_false(metrics_asked(&metrics));
    metrics_ask(&metrics);
    assert_true(metrics_asked(&metrics));
    assert_false(metrics_current(&metrics));
    metrics_answer(&metrics, "not yet");
    assert_false(metrics_asked(&metrics));
    assert_true(metrics_current(&metrics));
    assert_int_equal(answers, 1);
    assert_string_equal(metrics.why_not, "not yet");
}

UNIT_MAIN(NULL, NULL)
