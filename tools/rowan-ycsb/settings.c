/* The table of the options, that of the workloads, and the checks between them. */
#include "tools/rowan-ycsb/settings.h"

#include <stdio.h>
#include <string.h>

#include "release.h"
#include "tools/tool.h"

enum { MAX_SECONDS = 1000000, MAX_SHARES = 4096 };

enum { OF_WORKLOAD }; /* the choice before those of choose.h */
enum { SEQUENTIAL };

/* YCSB's core workloads; load is its load phase. */
static const struct workload {
    const char *name;
    double mix[RUN_KINDS];
    bool load;
    enum choice_by by;
} workloads[] = {
    {.name = "load", .mix = {[RUN_PUT] = 1}, .load = true},
    {.name = "a", .mix = {[RUN_PUT] = 0.5, [RUN_GET] = 0.5}},
    {.name = "b", .mix = {[RUN_PUT] = 0.05, [RUN_GET] = 0.95}},
    {.name = "c", .mix = {[RUN_GET] = 1}},
    {.name = "d", .mix = {[RUN_INSERT] = 0.05, [RUN_GET] = 0.95}, .by = CHOOSE_LATEST},
    {.name = "f", .mix = {[RUN_RMW] = 0.5, [RUN_GET] = 0.5}},
};

#define FIELD(name) offsetof(struct settings, name)

static const struct config_key keys[] = {
    ADMIN_ACCESS_KEYS(FIELD(access)),
    {"workload", CONFIG_STRING, FIELD(workload), "", 0, 0, NULL,
     "load (each record once), a (50 % writes), b (5 % writes), c (reads), d (5 % inserts, reads "
     "of the latest) or f (50 % read-modify-writes); required"},
    {"profile", CONFIG_STRING, FIELD(profile), "zippydb", 0, 0, NULL,
     "sizes of objects: zippydb, up2x, udb, or fixed:N (keys of 16 bytes, values of N)"},
    {"records", CONFIG_U64, FIELD(records), "1000000", 1, WORKLOAD_MAX_RECORDS, NULL,
     "number of objects; d inserts behind them"},
    {"order", CONFIG_CHOICE, FIELD(order), "sequential", 0, 0, "sequential|hashed",
     "in which load inserts the records: by number, or permuted"},
    {"seconds", CONFIG_STRING, FIELD(seconds), "", 0, 0, NULL,
     "how long to run, from the end of the warm-up (not for load)"},
    {"operations", CONFIG_U64, FIELD(operations), "0", 0, UINT64_MAX, NULL,
     "or how many operations to run; 0: as long as --seconds says (load: all records)"},
    {"warm-up", CONFIG_STRING, FIELD(warm_up), "0", 0, 0, NULL,
     "seconds in front whose operations are not in the figures (not for load)"},
    {"share", CONFIG_STRING, FIELD(share), "1/1", 0, 0, NULL,
     "I/N: this is process I of N that run side by side; each loads its part of the records, or "
     "makes draws and inserts of its own; `merge` makes one result of theirs"},
    {"threads", CONFIG_U64, FIELD(threads), "1", 1, RUN_MAX_THREADS, NULL,
     "threads that post and poll"},
    {"connections", CONFIG_U64, FIELD(connections), "0", 0, RUN_MAX_CONNECTIONS, NULL,
     "sessions, spread over the threads; 0: one for each thread"},
    {"depth", CONFIG_U64, FIELD(depth), "64", 1, 65536, NULL,
     "operations outstanding in each connection"},
    {"rate", CONFIG_U64, FIELD(rate), "0", 0, 1000000000, NULL,
     "operations a second, at even intervals; latencies then count from when an operation was "
     "meant to start; 0: as many as --depth allows"},
    {"distribution", CONFIG_CHOICE, FIELD(distribution), "workload", 0, 0,
     "workload|zipfian|uniform|latest|hotspot",
     "how operations choose records; workload: latest for d, else zipfian; zipfian: scrambled, "
     "0.99; latest: zipfian over the age"},
    {"hot-fraction", CONFIG_STRING, FIELD(hot_fraction), "0.2", 0, 0, NULL,
     "of the records, which hotspot calls hot"},
    {"hot-operations", CONFIG_STRING, FIELD(hot_operations), "0.8", 0, 0, NULL,
     "fraction of hotspot's operations that are of hot records"},
    {"hot-moves-ms", CONFIG_U64, FIELD(hot_moves_ms), "0", 0, 1000000000, NULL,
     "how often other records become hot (zipfian, hotspot), in milliseconds; 0: never"},
    {"seed", CONFIG_U64, FIELD(seed), "1", 0, UINT64_MAX, NULL, "seed of all that is random"},
    {"acked", CONFIG_STRING, FIELD(acked), "", 0, 0, NULL,
     "append every acknowledged write to this file, for `check`; it is in the file 10 ms after "
     "its acknowledgement at the latest, also if this process is killed then"},
    {"hdr-log", CONFIG_STRING, FIELD(hdr_log), "", 0, 0, NULL,
     "write the latencies of each second to this file, in HdrHistogram's log format"},
    {"timeout-ms", CONFIG_U64, FIELD(timeout_ms), "10000", 1, ROWAN_MAX_TIMEOUT_MS, NULL,
     "timeout of each operation, in milliseconds"},
    {"spin-us", CONFIG_U64, FIELD(spin_us), "0", 0, 1000000, NULL,
     "how long an idle thread polls before it sleeps, in microseconds"},
    {"json", CONFIG_BOOL, FIELD(json), "no", 0, 0, NULL, "print one JSON object and nothing else"},
};

const struct config_spec settings_spec = {
    .program = "rowan-ycsb",
    .release = ROWAN_RELEASE,
    .summary = "Without a command: runs a YCSB workload and prints throughput and latencies.\n"
               "  check FILE   is every write that --acked recorded still there, with its value, "
               "or a newer one?\n"
               "  merge FILE FILE...   one result of those that processes printed with --json\n"
               "  compare A B   throughput and latencies of two such results, and their ratios\n"
               "Exit code: 0 done, 1 failed or errors or lost writes, 2 usage.",
    .positional = "check FILE | merge FILE FILE... | compare A B",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

/* How long to run, and what of it counts. */
static int apply_length(const struct settings *settings, struct run_options *out)
{
    double seconds = 0, warm_up;

    if (*settings->seconds && !tool_parse_number(settings->seconds, 1e-9, MAX_SECONDS, &seconds))
        return tool_usage("--seconds is a number above 0");
    if (!tool_parse_number(settings->warm_up, 0, MAX_SECONDS, &warm_up))
        return tool_usage("--warm-up is a number of seconds");
    if (*settings->seconds && settings->operations)
        return tool_usage("give --seconds or --operations, not both");
    if (!out->load && !*settings->seconds && !settings->operations)
        return tool_usage("workloads a, b, c, d and f need --seconds or --operations");
    if (out->load && warm_up > 0)
        return tool_usage("load has no --warm-up: it writes each record once");
    out->operations = settings->operations;
    out->run_ns = (uint64_t)(seconds * 1e9);
    out->warm_up_ns = (uint64_t)(warm_up * 1e9);
    return EXIT_DONE;
}

static int apply_threads(const struct settings *settings, struct run_options *out)
{
    unsigned share, shares;
    char end;

    out->threads = (uint32_t)settings->threads;
    out->connections =
        settings->connections ? (uint32_t)settings->connections : (uint32_t)settings->threads;
    if (out->connections < out->threads)
        return tool_usage("--connections is at least --threads");
    if (out->connections > (uint64_t)out->threads * RUN_MAX_LANES)
        return tool_usage("a thread has at most 256 --connections: give more --threads");
    if (sscanf(settings->share, "%4u/%4u%c", &share, &shares, &end) != 2 || share < 1 ||
        share > shares || shares > MAX_SHARES)
        return tool_usage("--share is I/N, with I of 1 to N and N up to 4096");
    out->share = share - 1;
    out->shares = shares;
    return EXIT_DONE;
}

static int apply_choice(const struct settings *settings, const struct workload *workload,
                        struct choice *out)
{
    *out = (struct choice){.by = workload->by,
                           .records = settings->records,
                           .hot_moves_ns = settings->hot_moves_ms * UINT64_C(1000000),
                           .seed = settings->seed};
    if (settings->distribution != OF_WORKLOAD)
        out->by = (enum choice_by)(settings->distribution - 1);
    if (!tool_parse_number(settings->hot_fraction, 0, 1, &out->hot_fraction) ||
        !tool_parse_number(settings->hot_operations, 0, 1, &out->hot_operations))
        return tool_usage("--hot-fraction and --hot-operations are numbers from 0 to 1");
    if (settings->order != SEQUENTIAL && !workload->load)
        return tool_usage("--order is that of load");
    if (out->hot_moves_ns && (out->by == CHOOSE_UNIFORM || out->by == CHOOSE_LATEST))
        return tool_usage("--hot-moves-ms is for the distributions zipfian and hotspot");
    if (!workload->load && (out->by == CHOOSE_ZIPFIAN || out->by == CHOOSE_LATEST))
        zipf_init(&out->zipf, settings->records);
    return EXIT_DONE;
}

void settings_session(const struct settings *settings, struct rowan_options *out)
{
    rowan_options_init(out);
    out->cm = settings->access.managers;
    out->user = settings->access.user;
    out->secret_file = settings->access.secret_file;
    out->depth = (uint32_t)settings->depth;
    out->timeout_ms = (uint32_t)settings->timeout_ms;
    out->spin_us = (uint32_t)settings->spin_us;
}

int settings_apply(const struct settings *settings, struct run_options *out)
{
    const struct workload *workload = workloads,
                          *end = workload + sizeof workloads / sizeof *workload;

    while (workload < end && strcmp(workload->name, settings->workload) != 0)
        workload++;
    if (strcmp(settings->workload, "e") == 0)
        return tool_usage("workload e is made of scans, which Rowan-KV does not have");
    if (workload == end)
        return tool_usage("--workload is load, a, b, c, d or f");
    *out = (struct run_options){.name = workload->name,
                                .load = workload->load,
                                .hashed = workload->load && settings->order != SEQUENTIAL,
                                .rate = (double)settings->rate,
                                .acked_fd = -1};
    memcpy(out->mix, workload->mix, sizeof out->mix);
    int code = apply_threads(settings, out);

    if (code == EXIT_DONE)
        code = apply_length(settings, out);
    return code == EXIT_DONE ? apply_choice(settings, workload, &out->choice) : code;
}
