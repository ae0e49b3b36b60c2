/* report.c - figures, and what they depend on. Per operation: CPU time by the operations that completed
 * meanwhile. */
#include "tools/fabric-bench/report.h"

#include <stdio.h>

#include "common/base/error.h"
#include "tools/tool.h"

enum { QUANTILES = 4, SHOWN_QUANTILES = 3 /* in the table */ };

static const struct {
    const char *key;
    double quantile;
} columns[QUANTILES] = {{"p50_us", 0.5}, {"p99_us", 0.99}, {"p999_us", 0.999}, {"max_us", 1}};

const char *report_mode(enum bench_mode mode)
{
    static const char *const names[MODE_COUNT] = {"rowan", "write", "message"};

    return names[mode];
}

/* --- figures --- */

static double latency_us(const struct histogram *histogram, int column)
{
    return (double)histogram_quantile(histogram, columns[column].quantile) / 1000;
}

static double per(uint64_t ns, uint64_t operations)
{
    return operations ? (double)ns / (double)operations : 0;
}

/* The user part of a CPU time without zeroing: pm_zero enters the kernel for page faults only. */
static uint64_t without(uint64_t part_ns, uint64_t zeroing_ns)
{
    return part_ns > zeroing_ns ? part_ns - zeroing_ns : 0;
}

/* CPU time of an operation. */
struct cost {
    double user, system, all;
};

struct figures {
    double mops, mbytes; /* a second */
    struct cost receive, send;
    double zeroing;
};

static struct figures work_out(const struct crew_options *run, const struct crew_result *result)
{
    const struct wire_facts *receiver = &result->receiver;
    const double seconds = (double)result->run_ns / 1e9;
    const uint64_t sent = result->operations, received = result->receiver_operations;
    const double rate = seconds > 0 ? (double)sent / seconds : 0;

    return (struct figures){
        .mops = rate / 1e6,
        .mbytes = rate * run->bytes / 1e6,
        .receive = {per(without(receiver->cpu.user_ns, receiver->zeroing_ns), received),
                    per(receiver->cpu.system_ns, received),
                    per(without(receiver->cpu.all_ns, receiver->zeroing_ns), received)},
        .zeroing = per(receiver->zeroing_ns, received),
        .send = {per(result->sender.user_ns, sent), per(result->sender.system_ns, sent),
                 per(result->sender.all_ns, sent)},
    };
}

/* --- table --- */

static void print_head(struct report *report)
{

    report->began = true;
    printf("fabric %s, receiver's memory %s (durability %s)%s; depth %u, rowan batches of %u, %u "
           "sending thread%s\n",
           report->caps->backend, report->memory.memory, report->memory.durability,
           report->remote ? " in another program" : "", report->depth, report->batch,
           report->threads, report->threads == 1 ? "" : "s");
    printf("%-8s%9s%9s%11s%11s%11s%11s%11s%11s%11s%11s%11s%11s\n", "", "", "", "", "", "latency",
           "", "", "receiver", "", "", "", "sender");
    printf("%-8s%9s%9s%11s%11s%11s%11s%11s%11s%11s%11s%11s%11s\n", "mode", "bytes", "senders",
           "Mops/s", "MB/s", "p50 us", "p99 us", "p99.9 us", "user ns/op", "system", "all",
           "zeroing", "ns/op");
}

/* Four digits or so, never in powers of ten. */
static void print_cell(double value)
{
    const int decimals = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 1 || value == 0 ? 2 : 4;

    printf("%11.*f", decimals, value);
}

static void print_run(struct report *report, const struct crew_options *run)
{
    if (!report->began)
        print_head(report);
    printf("%-8s%9u%9u", report_mode(run->mode), run->bytes, run->senders);
}

static void print_row(struct report *report, const struct crew_options *run,
                      const struct crew_result *result, const struct figures *figures)
{
    print_run(report, run);
    print_cell(figures->mops);
    print_cell(figures->mbytes);
    for (int i = 0; i < SHOWN_QUANTILES; i++)
        print_cell(latency_us(&result->latency_ns, i));
    print_cell(figures->receive.user);
    print_cell(figures->receive.system);
    print_cell(figures->receive.all);
    print_cell(figures->zeroing);
    print_cell(figures->send.all);
    putchar('\n');
    fflush(stdout);
}

/* --- JSON --- */

static json_t *cost_json(const struct cost *cost)
{
    return json_pack("{s:f, s:f, s:f}", "user_ns_per_op", cost->user, "system_ns_per_op",
                     cost->system, "cpu_ns_per_op", cost->all);
}

static void add_json(struct report *report, const struct crew_options *run,
                     const struct crew_result *result, const struct figures *figures)
{
    json_t *receiver = cost_json(&figures->receive);

    json_object_set_new(receiver, "zeroing_ns_per_op", json_real(figures->zeroing));
    json_object_set_new(receiver, "segments", json_integer((json_int_t)result->receiver.segments));
    json_object_set_new(receiver, "sleeps", json_integer((json_int_t)result->receiver.sleeps));
    json_object_set_new(receiver, "busy_polls",
                        json_integer((json_int_t)result->receiver.busy_polls));
    json_t *row = json_pack(
        "{s:s, s:i, s:i, s:i, s:I, s:f, s:f, s:f, s:I, s:o, s:o}", "mode", report_mode(run->mode),
        "bytes", (int)run->bytes, "senders", (int)run->senders, "threads", (int)run->threads,
        "operations", (json_int_t)result->operations, "seconds", (double)result->run_ns / 1e9,
        "mops", figures->mops, "mbytes_per_second", figures->mbytes, "full",
        (json_int_t)result->full, "receiver", receiver, "sender", cost_json(&figures->send));

    for (int i = 0; i < QUANTILES; i++)
        json_object_set_new(row, columns[i].key, json_real(latency_us(&result->latency_ns, i)));
    json_array_append_new(report->runs, row);
}

void report_run(struct report *report, const struct crew_options *run,
                const struct crew_result *result)
{
    const struct figures figures = work_out(run, result);

    if (!report->json)
        print_row(report, run, result, &figures);
    add_json(report, run, result, &figures);
}

void report_skipped(struct report *report, const struct crew_options *run, const char *reason)
{
    if (!report->json) {
        print_run(report, run);
        printf("  not run: %s\n", reason);
        fflush(stdout);
    }
    json_array_append_new(report->skipped,
                          json_pack("{s:s, s:i, s:i, s:s}", "mode", report_mode(run->mode), "bytes",
                                    (int)run->bytes, "senders", (int)run->senders, "reason",
                                    reason));
}

static int print_json(const struct report *report)
{
    return tool_print_json(json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:f, s:i, s:i, s:O, s:O}", "fabric",
        report->caps->backend, "address", report->address, "memory", report->memory.memory,
        "durability", report->memory.durability, "remote", report->remote, "depth",
        (int)report->depth, "batch", (int)report->batch, "threads", (int)report->threads, "spin_us",
        (double)report->spin_ns / 1000, "block_limit", (int)report->caps->block_limit,
        "landing_stride", (int)report->caps->landing_stride, "runs", report->runs, "skipped",
        report->skipped));
}

int report_end(struct report *report)
{
    int error = report->json ? print_json(report) : 0;
    return fflush(stdout) != 0 && !error ? ROWAN_EIO : error;
}

void report_fini(struct report *report)
{
    json_decref(report->runs);
    json_decref(report->skipped);
}
