/* Reads the JSON of a run and checks the parts that others rely on. */
#include "tools/rowan-ycsb/runs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/rowan-ycsb/report.h"
#include "tools/tool.h"

const struct runs_key runs_keys[] = {
    {"workload", true, RUNS_SAME},     {"profile", true, RUNS_SAME},
    {"records", true, RUNS_SAME},      {"distribution", true, RUNS_SAME},
    {"hot_fraction", true, RUNS_SAME}, {"hot_operations", true, RUNS_SAME},
    {"hot_moves_ms", true, RUNS_SAME}, {"warm_up_seconds", true, RUNS_SAME},
    {"depth", true, RUNS_SAME},        {"fabric", true, RUNS_SAME},
    {"durability", true, RUNS_SAME},   {"servers", true, RUNS_SAME},
    {"replicas", true, RUNS_SAME},     {"shards", true, RUNS_SAME},
    {"threads", true, RUNS_ADDED},     {"connections", true, RUNS_ADDED},
    {"rate", true, RUNS_ADDED},        {"seed", true, RUNS_FIRST},
    {"share", true, RUNS_FIRST},       {"merged", true, RUNS_FIRST},
    {"operations", false, RUNS_ADDED}, {"ops_per_second", false, RUNS_ADDED},
    {"errors", false, RUNS_ADDED},     {"errors_by_name", false, RUNS_ADDED},
    {"not_found", false, RUNS_ADDED},  {"requests", false, RUNS_ADDED},
    {"not_begun", false, RUNS_ADDED},  {"warm_up", false, RUNS_ADDED},
    {NULL, false, RUNS_SAME},
};

/* What others rely on: the workload's name, numbers, and all latencies of each kind that is there. */
static bool is_run(const json_t *run)
{
    static struct histogram all;
    bool right = json_is_string(json_object_get(run, "workload")) &&
                 json_is_number(json_object_get(run, "ops_per_second")) &&
                 json_is_number(json_object_get(run, "errors"));

    for (int kind = 0; kind < RUN_KINDS; kind++) {
        const json_t *object = json_object_get(run, run_kinds[kind]);

        for (int i = 0; object && i < REPORT_COLUMNS; i++)
            right = right && json_is_number(json_object_get(object, report_columns[i].key));
        if (object && json_object_get(object, "histogram") && !runs_histogram(object, &all))
            right = false;
    }
    for (const struct runs_key *one = runs_keys; one->key; one++) {
        const json_t *value = json_object_get(run, one->key);

        if (one->merged == RUNS_ADDED && value && !json_is_number(value) && !json_is_object(value))
            right = false;
        if (one->merged == RUNS_ADDED && json_is_real(value) &&
            strcmp(one->key, "ops_per_second") != 0 && strcmp(one->key, "rate") != 0)
            right = false;
    }
    return right;
}

json_t *runs_load(const char *path)
{
    json_error_t why;
    json_t *run = json_load_file(path, JSON_REJECT_DUPLICATES, &why);

    if (run && is_run(run))
        return run;
    if (run)
        tool_say("%s: this is JSON, but not that of a run of rowan-ycsb", path);
    else
        tool_say("%s: not the JSON of a run: %s", path, why.text);
    json_decref(run);
    return NULL;
}

bool runs_histogram(const json_t *kind, struct histogram *out)
{
    const char *text = report_text(kind, "histogram");
    unsigned long long bucket, count;
    int bytes = 0;

    histogram_reset(out);
    /* 19 digits fit any counter; more are damage. */
    if (sscanf(text, "%19" SCNu64 "%n", &out->max, &bytes) != 1)
        return false;
    while (*(text += bytes)) {
        if (*text != ' ' || sscanf(text, " %19llu:%19llu%n", &bucket, &count, &bytes) != 2 ||
            bucket >= HISTOGRAM_BUCKETS || count > INT64_MAX - out->count)
            return false;
        out->buckets[bucket] += count;
        out->count += count;
    }
    return true;
}
