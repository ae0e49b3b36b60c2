/* report.c - figures, and what they depend on. Per operation: CPU time by the operations that completed
 * meanwhile. */
#include "tools/fabric-bench/report.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/error.h"
#include "tools/tool.h"

enum { QUANTILES = 4 };

static const struct {
    const char *key;
    double quantile;
} columns[QUANTILES] = {{"p50_us", 0.5}, {"p99_us", 0.99}, {"p999_us", 0.999}, {"max_us", 1}};

struct report {
    const struct report_setup *setup;
    struct wire_facts memory;
    json_t *runs, *skipped;
    bool began; /* the table's head is printed */
};

const char *report_mode(enum bench_mode mode)
{
    static const char *const names[MODE_COUNT] = {"rowan", "write", "message"};

    return names[mode];
}

int report_begin(const struct report_setup *setup, struct report **out)
{
    struct report *report = calloc(1, sizeof *report);

    if (!report)
        return ROWAN_ENOMEM;
    report->setup = setup;
    report->runs = json_array();
    report->skipped = json_array();
    if (!report->runs || !report->skipped) {
        report_drop(report);
        return ROWAN_ENOMEM;
    }
    *out = report;
    return 0;
}

void report_memory(struct report *report, const struct wire_facts *facts)
{
    report->memory = *facts;
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

struct figures {
    double mops, mbytes; /* a second */
    double receive_user, receive_system, receive_cpu, zeroing, send_user, send_system, send_cpu;
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
        .receive_user = per(without(receiver->user_ns, receiver->zeroing_ns), received),
        .receive_system = per(receiver->system_ns, received),
        .receive_cpu = per(without(receiver->cpu_ns, receiver->zeroing_ns), received),
        .zeroing = per(receiver->zeroing_ns, received),
        .send_user = per(result->sender_user_ns, sent),
        .send_system = per(result->sender_system_ns, sent),
        .send_cpu = per(result->sender_cpu_ns, sent),
    };
}

/* --- table --- */

static void print_head(struct report *report)
{
    const struct report_setup *setup = report->setup;

    report->began = true;
    printf("fabric %s, receiver's memory %s (durability %s)%s; depth %u, rowan batches of %u, %u "
           "sending thread%s\n",
           setup->caps->backend, report->memory.memory, report->memory.durability,
           setup->remote ? " in another program" : "", setup->depth, setup->batch, setup->threads,
           setup->threads == 1 ? "" : "s");
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

static void print_row(struct report *report, const struct crew_options *run,
                      const struct crew_result *result, const struct figures *figures)
{
    const double cells[] = {figures->mops,
                            figures->mbytes,
                            latency_us(&result->latency_ns, 0),
                            latency_us(&result->latency_ns, 1),
                            latency_us(&result->latency_ns, 2),
                            figures->receive_user,
                            figures->receive_system,
                            figures->receive_cpu,
                            figures->zeroing,
                            figures->send_cpu};

    if (!report->began)
        print_head(report);
    printf("%-8s%9u%9u", report_mode(run->mode), run->bytes, run->senders);
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
        print_cell(cells[i]);
    putchar('\n');
    fflush(stdout);
}

/* --- JSON --- */

static json_t *cpu_json(double user, double system, double cpu)
{
    return json_pack("{s:f, s:f, s:f}", "user_ns_per_op", user, "system_ns_per_op", system,
                     "cpu_ns_per_op", cpu);
}

static void add_json(struct report *report, const struct crew_options *run,
                     const struct crew_result *result, const struct figures *figures)
{
    json_t *receiver =
        cpu_json(figures->receive_user, figures->receive_system, figures->receive_cpu);

    json_object_set_new(receiver, "zeroing_ns_per_op", json_real(figures->zeroing));
    json_object_set_new(receiver, "segments", json_integer((json_int_t)result->receiver.segments));
    json_object_set_new(receiver, "sleeps", json_integer((json_int_t)result->receiver.sleeps));
    json_object_set_new(receiver, "busy_polls",
                        json_integer((json_int_t)result->receiver.busy_polls));
    json_t *row = json_pack("{s:s, s:i, s:i, s:i, s:I, s:f, s:f, s:f, s:I, s:o, s:o}", "mode",
                            report_mode(run->mode), "bytes", (int)run->bytes, "senders",
                            (int)run->senders, "threads", (int)run->threads, "operations",
                            (json_int_t)result->operations, "seconds", (double)result->run_ns / 1e9,
                            "mops", figures->mops, "mbytes_per_second", figures->mbytes, "full",
                            (json_int_t)result->full, "receiver", receiver, "sender",
                            cpu_json(figures->send_user, figures->send_system, figures->send_cpu));

    for (int i = 0; i < QUANTILES; i++)
        json_object_set_new(row, columns[i].key, json_real(latency_us(&result->latency_ns, i)));
    json_array_append_new(report->runs, row);
}

void report_run(struct report *report, const struct crew_options *run,
                const struct crew_result *result)
{
    const struct figures figures = work_out(run, result);

    if (!report->setup->json)
        print_row(report, run, result, &figures);
    add_json(report, run, result, &figures);
}

void report_skipped(struct report *report, const struct crew_options *run, const char *reason)
{
    if (!report->setup->json) {
        if (!report->began)
            print_head(report);
        printf("%-8s%9u%9u  not run: %s\n", report_mode(run->mode), run->bytes, run->senders,
               reason);
        fflush(stdout);
    }
    json_array_append_new(report->skipped,
                          json_pack("{s:s, s:i, s:i, s:s}", "mode", report_mode(run->mode), "bytes",
                                    (int)run->bytes, "senders", (int)run->senders, "reason",
                                    reason));
}

static int print_json(const struct report *report)
{
    const struct report_setup *setup = report->setup;
    return tool_print_json(
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:f, s:i, s:i, s:O, s:O}", "fabric",
                  setup->caps->backend, "address", setup->address, "memory", report->memory.memory,
                  "durability", report->memory.durability, "remote", setup->remote, "depth",
                  (int)setup->depth, "batch", (int)setup->batch, "threads", (int)setup->threads,
                  "spin_us", (double)setup->spin_ns / 1000, "block_limit",
                  (int)setup->caps->block_limit, "landing_stride", (int)setup->caps->landing_stride,
                  "runs", report->runs, "skipped", report->skipped));
}

int report_end(struct report *report)
{
    int error = report->setup->json ? print_json(report) : 0;

    if (fflush(stdout) != 0 && !error)
        error = ROWAN_EIO;
    report_drop(report);
    return error;
}

void report_drop(struct report *report)
{
    if (!report)
        return;
    json_decref(report->runs);
    json_decref(report->skipped);
    free(report);
}
