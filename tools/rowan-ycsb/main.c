/* rowan-ycsb: puts load on a cluster and reports throughput, latencies and errors. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/rowan.h"
#include "common/base/error.h"
#include "tools/rowan-ycsb/acked.h"
#include "tools/rowan-ycsb/report.h"
#include "tools/rowan-ycsb/runs.h"
#include "tools/rowan-ycsb/settings.h"

static int run(const struct settings *settings, const struct run_options *options)
{
    struct report_cluster cluster;
    int error = report_cluster_get(&settings->access, &cluster);

    if (error)
        return tool_failed(settings->access.managers, error);
    struct run_result *result = malloc(sizeof *result);

    if (!result)
        return tool_failed("run", ROWAN_ENOMEM);
    error = runner_run(options, result);
    int code = error ? tool_failed("run", error)
                     : report_print(report_make(options, &cluster, result), settings->json);
    if (result->counts.errors)
        code = EXIT_FAILED;
    if (!error && result->interrupted)
        code =
            (tool_say("interrupted: the figures are of what was answered until then"), EXIT_FAILED);

    free(result);
    return code;
}

/* With what the run writes to and inserts from; `options` has all of it closed or NULL. */
static int run_prepared(const struct settings *settings, struct run_options *options)
{
    int error = 0, code;

    if (options->mix[RUN_INSERT] > 0)
        options->choice.inserts = inserts_create(options->choice.records + options->share,
                                                 options->shares, WORKLOAD_MAX_RECORDS);
    if (options->mix[RUN_INSERT] > 0 && !options->choice.inserts)
        return tool_failed("inserts", ROWAN_ENOMEM);
    if (*settings->acked)
        error = acked_open(settings->acked, options->profile->name, &options->acked_fd);
    if (error == ROWAN_EINVALID)
        code = tool_usage("the --acked file records writes of another profile");
    else if (error)
        code = tool_failed(settings->acked, error);
    else if (*settings->hdr_log && (error = hdr_log_open(settings->hdr_log, &options->log)) != 0)
        code = tool_failed(settings->hdr_log, error);
    else
        code = run(settings, options);
    if (hdr_log_close(options->log) != 0)
        code = tool_failed(settings->hdr_log, ROWAN_EIO);
    if (options->acked_fd >= 0)
        close(options->acked_fd);
    free(options->choice.inserts);
    return code;
}

static int command_run(struct settings *settings)
{
    char managers[MANAGERS_LIST_BYTES];
    struct run_options options;
    struct profile *profile;
    int code = settings_apply(settings, &options);

    if (code != EXIT_DONE)
        return code;
    int error = profile_create(settings->profile, &profile);

    if (error == ROWAN_EINVALID)
        return tool_usage("--profile is zippydb, up2x, udb or fixed:N with N up to 1048576");
    if (error)
        return tool_failed("profile", error);
    options.profile = profile;
    code = admin_find(&settings->access, managers);
    settings_session(settings, &options.session);
    if (code == EXIT_DONE)
        code = run_prepared(settings, &options);
    free(profile);
    return code;
}

static int command_check(struct settings *settings, const char *path)
{
    char managers[MANAGERS_LIST_BYTES];
    struct rowan_options session;
    int code = admin_find(&settings->access, managers);

    if (code != EXIT_DONE)
        return code;
    settings_session(settings, &session);
    return check_run(&session, path, settings->json);
}

static int begin(void *of, int argc, char **argv)
{
    struct settings *settings = of;

    if (argc == 0 && !*settings->workload)
        return tool_usage("--workload is missing");
    if (argc == 0)
        return command_run(settings);
    if (argc == 2 && strcmp(argv[0], "check") == 0)
        return command_check(settings, argv[1]);
    if (argc >= 3 && strcmp(argv[0], "merge") == 0)
        return merge_run(argc - 1, argv + 1, settings->json);
    if (argc == 3 && strcmp(argv[0], "compare") == 0)
        return compare_run((const char *[]){argv[1], argv[2]}, settings->json);
    return tool_usage("besides options only `check FILE`, `merge FILE FILE...` or `compare A B` "
                      "may stand here");
}

int main(int argc, char **argv)
{
    struct settings settings;
    return tool_main(&settings_spec, argc, argv, &settings, begin);
}
