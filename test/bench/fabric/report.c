/* report.c - figures, and the table that shows some of them. */
#include "test/bench/fabric/report.h"

#include <stdio.h>

static const struct {
    const char *key, *heading;
} columns[] = {
    {"mops", "Mops/s"},
    {"mbytes_per_second", "MB/s"},
    {"p50_us", "p50 us"},
    {"p99_us", "p99 us"},
    {"p999_us", "p99.9 us"},
    {"receiver_ns_per_op", "receiver ns"},
    {"receiver_user_ns_per_op", "its user"},
    {"zeroing_ns_per_op", "zeroing"},
    {"sender_ns_per_op", "sender ns"},
};

enum { COLUMNS = sizeof columns / sizeof columns[0] };

const char *report_mode(enum bench_mode mode)
{
    static const char *const names[MODE_COUNT] = {"rowan", "message"};

    return names[mode];
}

static double us_of(const struct histogram *histogram, double quantile)
{
    return (double)histogram_quantile(histogram, quantile) / 1000;
}

/* A CPU time without zeroing, which enters the kernel for page faults only, so that all of it is user time. */
static double without_zeroing(uint64_t ns, const struct wire_facts *receiver)
{
    return ns > receiver->zeroing_ns ? (double)(ns - receiver->zeroing_ns) : 0;
}

json_t *report_run(const struct crew_options *run, const struct crew_result *result)
{
    const struct wire_facts *receiver = &result->receiver;
    const struct histogram *latency = &result->latency_ns;
    const double seconds = (double)result->run_ns / 1e9;
    const double operations = (double)result->operations;

    return json_pack(
        "{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, "
        "s:I, s:I}",
        "mode", report_mode(run->mode), "bytes", (int)run->bytes, "senders", (int)run->senders,
        "threads", (int)run->threads, "operations", operations, "seconds", seconds, "mops",
        operations / seconds / 1e6, "mbytes_per_second", operations / seconds * run->bytes / 1e6,
        "p50_us", us_of(latency, 0.5), "p99_us", us_of(latency, 0.99), "p999_us",
        us_of(latency, 0.999), "max_us", us_of(latency, 1), "receiver_ns_per_op",
        without_zeroing(receiver->all_ns, receiver) / operations, "receiver_user_ns_per_op",
        without_zeroing(receiver->user_ns, receiver) / operations, "zeroing_ns_per_op",
        (double)receiver->zeroing_ns / operations, "sender_ns_per_op",
        (double)result->sender_ns / operations, "full", (json_int_t)result->full, "segments",
        (json_int_t)receiver->segments, "busy_polls", (json_int_t)receiver->busy_polls);
}

void report_print_head(const struct crew_options *run, const char *memory)
{
    printf("fabric %s, receiver's memory %s; depth %u, rowan batches of %u\n%-8s%9s%9s",
           fabric_caps(run->fabric)->backend, memory, run->depth, run->batch, "mode", "bytes",
           "senders");
    for (int i = 0; i < COLUMNS; i++)
        printf("%12s", columns[i].heading);
    putchar('\n');
}

/* Four digits or so, never in powers of ten. */
static int decimals_of(double value)
{
    return value >= 1000 ? 0 : value >= 100 ? 1 : value >= 1 || value == 0 ? 2 : 4;
}

void report_print_row(const json_t *row)
{
    printf("%-8s%9d%9d", json_string_value(json_object_get(row, "mode")),
           (int)json_integer_value(json_object_get(row, "bytes")),
           (int)json_integer_value(json_object_get(row, "senders")));
    for (int i = 0; i < COLUMNS; i++) {
        const double value = json_number_value(json_object_get(row, columns[i].key));

        printf("%12.*f", decimals_of(value), value);
    }
    putchar('\n');
    fflush(stdout);
}
