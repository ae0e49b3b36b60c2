/* rowan-ycsb: puts load on a cluster and reports throughput, latencies and errors. */
#include "client/rowan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/error.h"
#include "release.h"
#include "tools/admin.h"
#include "tools/rowan-ycsb/acked.h"
#include "tools/rowan-ycsb/check.h"
#include "tools/rowan-ycsb/report.h"
#include "tools/tool.h"

enum { MAX_SECONDS = 1000000 };

struct ycsb_settings {
    const char *cm, *dir, *user, *secret_file, *workload, *profile, *seconds, *acked;
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

#define FIELD(name) offsetof(struct ycsb_settings, name)

static const struct config_key keys[] = {
    {"cm", CONFIG_STRING, FIELD(cm), "", 0, 0, NULL,
     "addresses of the configuration managers, with commas between them"},
    {"dir", CONFIG_STRING, FIELD(dir), "", 0, 0, NULL,
     "or the directory of a rowan-local cluster; without both: the current directory"},
    TOOL_LOGIN_KEYS(FIELD(user), FIELD(secret_file)),
    {"workload", CONFIG_STRING, FIELD(workload), "", 0, 0, NULL,
     "load (each record once), a (50 % writes), b (5 % writes) or c (reads); required"},
    {"profile", CONFIG_STRING, FIELD(profile), "zippydb", 0, 0, NULL,
     "sizes of objects: zippydb, up2x, udb, or fixed:N (keys of 16 bytes, values of N)"},
    {"records", CONFIG_U64, FIELD(records), "1000000", 1, WORKLOAD_MAX_RECORDS, NULL,
     "number of objects"},
    {"seconds", CONFIG_STRING, FIELD(seconds), "", 0, 0, NULL, "how long to run (a, b, c)"},
    {"operations", CONFIG_U64, FIELD(operations), "0", 0, UINT64_MAX, NULL,
     "or how many operations to run; 0: as long as --seconds says (load: all records)"},
    {"threads", CONFIG_U64, FIELD(threads), "1", 1, RUN_MAX_THREADS, NULL,
     "threads that post and poll"},
    {"connections", CONFIG_U64, FIELD(connections), "0", 0, RUN_MAX_CONNECTIONS, NULL,
     "sessions, spread over the threads; 0: one for each thread"},
    {"depth", CONFIG_U64, FIELD(depth), "64", 1, 65536, NULL,
     "operations outstanding in each connection"},
    {"rate", CONFIG_U64, FIELD(rate), "0", 0, 1000000000, NULL,
     "operations a second, at even intervals; latencies then count from when an operation was "
     "meant to start; 0: as many as --depth allows"},
    {"distribution", CONFIG_CHOICE, FIELD(distribution), "zipfian", 0, 0, "zipfian|uniform",
     "how operations choose records (a, b, c); zipfian: scrambled, 0.99"},
    {"seed", CONFIG_U64, FIELD(seed), "1", 0, UINT64_MAX, NULL, "seed of all that is random"},
    {"acked", CONFIG_STRING, FIELD(acked), "", 0, 0, NULL,
     "append every acknowledged write to this file, for `check`; it is in the file 10 ms after "
     "its acknowledgement at the latest, also if this process is killed then"},
    {"timeout-ms", CONFIG_U64, FIELD(timeout_ms), "10000", 1, ROWAN_MAX_TIMEOUT_MS, NULL,
     "timeout of each operation, in milliseconds"},
    {"spin-us", CONFIG_U64, FIELD(spin_us), "0", 0, 1000000, NULL,
     "how long an idle thread polls before it sleeps, in microseconds"},
    {"json", CONFIG_BOOL, FIELD(json), "no", 0, 0, NULL, "print one JSON object and nothing else"},
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

/* Sets the options that follow from the workload's name and length. EXIT_DONE: no mistake. */
static int apply_workload(const struct ycsb_settings *settings, struct run_options *options)
{
    size_t i = 0;

    while (i < sizeof workloads / sizeof workloads[0] &&
           strcmp(workloads[i].name, settings->workload) != 0)
        i++;
    if (i == sizeof workloads / sizeof workloads[0])
        return tool_usage("--workload is load, a, b or c");
    options->name = workloads[i].name;
    options->puts = workloads[i].puts;
    options->load = workloads[i].load;
    options->operations = settings->operations;
    if (options->connections == 0)
        options->connections = options->threads;
    if (options->connections < options->threads)
        return tool_usage("--connections is at least --threads");
    if (options->connections > (uint64_t)options->threads * RUN_MAX_LANES)
        return tool_usage("a thread has at most 256 --connections: give more --threads");
    double seconds = 0;
    if (*settings->seconds && !tool_parse_number(settings->seconds, 1e-9, MAX_SECONDS, &seconds))
        return tool_usage("--seconds is a number above 0");
    options->run_ns = (uint64_t)(seconds * 1e9);
    if (*settings->seconds && settings->operations)
        return tool_usage("give --seconds or --operations, not both");
    if (!options->load && !*settings->seconds && !settings->operations)
        return tool_usage("workloads a, b and c need --seconds or --operations");
    return EXIT_DONE;
}

static int run(const struct run_options *options, bool json)
{
    struct report_cluster cluster;
    int error = report_cluster_get(
        &(struct admin_access){options->cm, options->user, options->secret_file}, &cluster);

    if (error)
        return tool_failed(options->cm, error);
    struct run_result *result = malloc(sizeof *result);

    if (!result)
        return tool_failed("run", ROWAN_ENOMEM);
    error = runner_run(options, result);
    if (!error)
        error = report_print(options, &cluster, result, json);
    int code = error ? tool_failed("run", error) : result->errors ? EXIT_FAILED : EXIT_DONE;

    free(result);
    return code;
}

static int run_acked(const struct ycsb_settings *settings, struct run_options *options)
{
    int error = 0, code;

    if (*settings->acked)
        error = acked_open(settings->acked, options->profile->name, &options->acked_fd);
    if (error == ROWAN_EINVALID)
        return tool_usage("the --acked file records writes of another profile");
    code = error ? tool_failed(settings->acked, error) : run(options, settings->json);
    if (options->acked_fd >= 0)
        close(options->acked_fd);
    return code;
}

static int command_run(const struct ycsb_settings *settings)
{
    char cm[MANAGERS_LIST_BYTES];
    struct run_options options = {.cm = cm,
                                  .user = settings->user,
                                  .secret_file = settings->secret_file,
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
        return tool_usage("--profile is zippydb, up2x, udb or fixed:N with N up to 1048576");
    if (error)
        return tool_failed("profile", error);
    options.profile = profile;
    if (settings->distribution == ZIPFIAN && !options.load) {
        zipf_init(&zipf, settings->records, ZIPF_THETA);
        options.zipf = &zipf;
    }
    code = admin_find_cm(settings->cm, settings->dir, cm, sizeof cm) ? run_acked(settings, &options)
                                                                     : EXIT_FAILED;
    profile_destroy(profile);
    return code;
}

static int begin(void *of, int argc, char **argv)
{
    const struct ycsb_settings *settings = of;
    char cm[MANAGERS_LIST_BYTES];
    if (argc > 0 && (argc != 2 || strcmp(argv[0], "check") != 0))
        return tool_usage("besides options only `check FILE` may stand here");
    if (argc == 0 && !*settings->workload)
        return tool_usage("--workload is missing");
    if (argc == 0)
        return command_run(settings);
    if (!admin_find_cm(settings->cm, settings->dir, cm, sizeof cm))
        return EXIT_FAILED;
    return check_run(&(struct check_options){.cm = cm,
                                             .user = settings->user,
                                             .secret_file = settings->secret_file,
                                             .path = argv[1],
                                             .depth = (uint32_t)settings->depth,
                                             .timeout_ms = (uint32_t)settings->timeout_ms,
                                             .json = settings->json});
}

int main(int argc, char **argv)
{
    struct ycsb_settings settings;
    return tool_main(&spec, argc, argv, &settings, begin);
}
