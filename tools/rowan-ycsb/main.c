/* rowan-ycsb: puts load on a cluster and reports throughput, latencies and errors. */
#include "client/rowan.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/base/error.h"
#include "release.h"
#include "tools/admin.h"
#include "tools/rowan-ycsb/acked.h"
#include "tools/rowan-ycsb/check.h"
#include "tools/rowan-ycsb/report.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, MAX_SECONDS = 1000000 };

struct ycsb_settings {
    const char *cm, *dir, *workload, *profile, *seconds, *acked;
    uint64_t records, operations, threads, connections, rate, depth, distribution, seed, timeout_ms,
        spin_us;
    bool json;
};

enum { ZIPFIAN, UNIFORM };

static const struct {
    const char *name;
    double puts;
    bool load;
} workloads[] = {{"load", 1, true}, {"a", 0.5, false}, {"b", 0.05, false}, {"c", 0, false}};

#define TEXT(key, field, words)                                                                    \
    {                                                                                              \
        .name = key, .type = CONFIG_STRING, .offset = offsetof(struct ycsb_settings, field),       \
        .fallback = "", .help = words                                                              \
    }
#define NUMBER(key, field, least, most, preset, words)                                             \
    {                                                                                              \
        .name = key, .type = CONFIG_U64, .offset = offsetof(struct ycsb_settings, field),          \
        .fallback = preset, .min = least, .max = most, .help = words                               \
    }

static const struct config_key keys[] = {
    TEXT("cm", cm, "address of the configuration manager"),
    TEXT("dir", dir,
         "or the directory of a rowan-local cluster; without both: the current directory"),
    TEXT("workload", workload,
         "load (each record once), a (50 % writes), b (5 % writes) or c (reads); required"),
    {.name = "profile",
     .type = CONFIG_STRING,
     .offset = offsetof(struct ycsb_settings, profile),
     .fallback = "zippydb",
     .help = "sizes of objects: zippydb, up2x, udb, or fixed:N (keys of 16 bytes, values of N)"},
    NUMBER("records", records, 1, WORKLOAD_MAX_RECORDS, "1000000", "number of objects"),
    TEXT("seconds", seconds, "how long to run (a, b, c)"),
    NUMBER("operations", operations, 0, UINT64_MAX, "0",
           "or how many operations to run; 0: as long as --seconds says (load: all records)"),
    NUMBER("threads", threads, 1, RUN_MAX_THREADS, "1", "threads that post and poll"),
    NUMBER("connections", connections, 0, RUN_MAX_CONNECTIONS, "0",
           "sessions, spread over the threads; 0: one for each thread"),
    NUMBER("depth", depth, 1, 65536, "64", "operations outstanding in each connection"),
    NUMBER(
        "rate", rate, 0, 1000000000, "0",
        "operations a second, at even intervals; latencies then count from when an operation was "
        "meant to start; 0: as many as --depth allows"),
    {.name = "distribution",
     .type = CONFIG_CHOICE,
     .offset = offsetof(struct ycsb_settings, distribution),
     .fallback = "zipfian",
     .choices = "zipfian|uniform",
     .help = "how operations choose records (a, b, c); zipfian: scrambled, 0.99"},
    NUMBER("seed", seed, 0, UINT64_MAX, "1", "seed of all that is random"),
    TEXT("acked", acked,
         "append every acknowledged write to this file, for `check`; it is in the file 10 ms after "
         "its acknowledgement at the latest, also if this process is killed then"),
    NUMBER("timeout-ms", timeout_ms, 1, ROWAN_MAX_TIMEOUT_MS, "10000",
           "timeout of each operation, in milliseconds"),
    NUMBER("spin-us", spin_us, 0, 1000000, "0",
           "how long an idle thread polls before it sleeps, in microseconds"),
    {.name = "json",
     .type = CONFIG_BOOL,
     .offset = offsetof(struct ycsb_settings, json),
     .fallback = "no",
     .help = "print one JSON object and nothing else"},
};

static const struct config_spec spec = {
    .program = "rowan-ycsb",
    .release = ROWAN_RELEASE,
    .summary =
        "Runs a YCSB workload and prints throughput and latencies, or (check FILE) verifies\n"
        "that every write recorded by --acked is still there: the stored version is that of\n"
        "the last acknowledged write, with its value, or a higher one.\n"
        "Exit code: 0 done, 1 failed or errors or lost writes, 2 usage.",
    .positional = "[check FILE]",
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
};

static int usage(const char *sentence)
{
    fprintf(stderr, "rowan-ycsb: %s; see rowan-ycsb --help\n", sentence);
    return EXIT_USAGE;
}

static int failed(const char *what, int error)
{
    fprintf(stderr, "rowan-ycsb: %s: %s\n", what, error_sentence(error));
    return EXIT_FAILED;
}

static bool parse_seconds(const char *text, uint64_t *run_ns)
{
    char *end;
    double seconds = strtod(text, &end);

    if (!*text || *end || !(seconds > 0) || seconds > MAX_SECONDS)
        return false;
    *run_ns = (uint64_t)(seconds * 1e9);
    return true;
}

/* Sets the options that follow from the workload's name and length. EXIT_DONE: no mistake. */
static int apply_workload(const struct ycsb_settings *settings, struct run_options *options)
{
    size_t i = 0;

    while (i < sizeof workloads / sizeof workloads[0] &&
           strcmp(workloads[i].name, settings->workload) != 0)
        i++;
    if (i == sizeof workloads / sizeof workloads[0])
        return usage("--workload is load, a, b or c");
    options->name = workloads[i].name;
    options->puts = workloads[i].puts;
    options->load = workloads[i].load;
    options->operations = settings->operations;
    if (options->connections == 0)
        options->connections = options->threads;
    if (options->connections < options->threads)
        return usage("--connections is at least --threads");
    if (options->connections > (uint64_t)options->threads * RUN_MAX_LANES)
        return usage("a thread has at most 256 --connections: give more --threads");
    if (*settings->seconds && !parse_seconds(settings->seconds, &options->run_ns))
        return usage("--seconds is a number above 0");
    if (*settings->seconds && settings->operations)
        return usage("give --seconds or --operations, not both");
    if (!options->load && !*settings->seconds && !settings->operations)
        return usage("workloads a, b and c need --seconds or --operations");
    return EXIT_DONE;
}

static int run(const struct run_options *options, bool json)
{
    struct report_cluster cluster;
    int error = report_cluster_get(options->cm, &cluster);

    if (error)
        return failed(options->cm, error);
    struct run_result *result = malloc(sizeof *result);

    if (!result)
        return failed("run", ROWAN_ENOMEM);
    error = runner_run(options, result);
    if (!error)
        error = report_print(options, &cluster, result, json);
    int code = error ? failed("run", error) : result->errors ? EXIT_FAILED : EXIT_DONE;

    free(result);
    return code;
}

static bool find_cm(const struct ycsb_settings *settings, char *cm, size_t cm_bytes)
{
    return admin_find_cm("rowan-ycsb", settings->cm, settings->dir, cm, cm_bytes);
}

static int run_acked(const struct ycsb_settings *settings, struct run_options *options)
{
    int error = 0, code;

    if (*settings->acked)
        error = acked_open(settings->acked, options->profile->name, &options->acked_fd);
    if (error == ROWAN_EINVALID)
        return usage("the --acked file records writes of another profile");
    code = error ? failed(settings->acked, error) : run(options, settings->json);
    if (options->acked_fd >= 0)
        close(options->acked_fd);
    return code;
}

static int command_run(const struct ycsb_settings *settings)
{
    char cm[CLUSTER_MAX_ADDRESS_BYTES + 1];
    struct run_options options = {.cm = cm,
                                  .records = settings->records,
                                  .threads = (uint32_t)settings->threads,
                                  .connections = (uint32_t)settings->connections,
                                  .rate = (double)settings->rate,
                                  .depth = (uint32_t)settings->depth,
                                  .timeout_ms = (uint32_t)settings->timeout_ms,
                                  .spin_us = (uint32_t)settings->spin_us,
                                  .seed = settings->seed,
                                  .acked_fd = -1};
    struct profile *profile;
    struct zipf zipf;
    int code = apply_workload(settings, &options);

    if (code != EXIT_DONE)
        return code;
    int error = profile_create(settings->profile, &profile);

    if (error == ROWAN_EINVALID)
        return usage("--profile is zippydb, up2x, udb or fixed:N with N up to 1048576");
    if (error)
        return failed("profile", error);
    options.profile = profile;
    if (settings->distribution == ZIPFIAN && !options.load) {
        zipf_init(&zipf, settings->records, ZIPF_THETA);
        options.zipf = &zipf;
    }
    code = find_cm(settings, cm, sizeof cm) ? run_acked(settings, &options) : EXIT_FAILED;
    profile_destroy(profile);
    return code;
}

static int dispatch(const struct ycsb_settings *settings, int argc, char **argv)
{
    char cm[CLUSTER_MAX_ADDRESS_BYTES + 1];

    if (argc > 0 && (argc != 2 || strcmp(argv[0], "check") != 0))
        return usage("besides options only `check FILE` may stand here");
    if (argc == 0 && !*settings->workload)
        return usage("--workload is missing");
    if (argc == 0)
        return command_run(settings);
    if (!find_cm(settings, cm, sizeof cm))
        return EXIT_FAILED;
    return check_run(&(struct check_options){.cm = cm,
                                             .path = argv[1],
                                             .depth = (uint32_t)settings->depth,
                                             .timeout_ms = (uint32_t)settings->timeout_ms,
                                             .json = settings->json});
}

int main(int argc, char **argv)
{
    struct ycsb_settings settings;
    struct config_rest rest;
    enum config_outcome outcome = config_parse(&spec, argc, argv, &settings, &rest);

    if (outcome != CONFIG_OK)
        return outcome == CONFIG_HELP ? EXIT_DONE : EXIT_USAGE;
    int code = dispatch(&settings, rest.argc, rest.argv);

    if (fflush(stdout) != 0 && code == EXIT_DONE)
        code = failed("standard output", ROWAN_EIO);
    config_free(&rest);
    return code;
}
