/* Makes one run of several that were at work side by side: counts, rates, threads and connections add up,
 * quantiles come from the merged histograms, the time is that from the first start to the last end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/rowan.h"
#include "common/base/error.h"
#include "tools/rowan-ycsb/report.h"
#include "tools/rowan-ycsb/runs.h"
#include "tools/tool.h"

#define MOST_MS 1e14 /* a time stamp that a clock can have */

static int damaged(const char *path)
{
    return tool_say("%s: its figures are missing, damaged or too large to merge", path);
}

/* `key` of `into` becomes the sum. False: not two numbers, or too large. */
static bool add(json_t *into, const json_t *from, const char *key)
{
    json_t *sum = json_object_get(into, key), *more = json_object_get(from, key), *value;
    const char *name;
    long long whole;

    if (!more || !sum)
        return !more || json_object_set(into, key, more) == 0;
    if (json_is_object(sum) && json_is_object(more)) {
        json_object_foreach(more, name, value)
        {
            if (!value || !add(sum, more, name))
                return false;
        }
        return true;
    }
    if (json_is_real(sum) && json_is_number(more))
        return json_real_set(sum, json_real_value(sum) + json_number_value(more)) == 0;
    return json_is_integer(sum) && json_is_integer(more) &&
           !__builtin_add_overflow(json_integer_value(sum), json_integer_value(more), &whole) &&
           json_integer_set(sum, whole) == 0;
}

static bool add_kinds(json_t *into, const json_t *from)
{
    static struct histogram sum, more;

    for (int kind = 0; kind < RUN_KINDS; kind++) {
        const json_t *one = json_object_get(from, run_kinds[kind]);
        const json_t *other = json_object_get(into, run_kinds[kind]);

        histogram_reset(&sum);
        histogram_reset(&more);
        if ((one && !runs_histogram(one, &more)) || (other && !runs_histogram(other, &sum)) ||
            more.count > INT64_MAX - sum.count)
            return false;
        histogram_merge(&sum, &more);
        if (sum.count)
            json_object_set_new(into, run_kinds[kind], report_kind(&sum));
    }
    return true;
}

/* From the first start to the last end; and how long all were at work. */
struct span {
    double first_ms, last_ms, from_ms, to_ms;
};

static bool add_span(struct span *span, const json_t *run)
{
    double start_ms = report_number(run, "started_ms"), end_ms = report_number(run, "ended_ms");

    if (start_ms <= 0 || end_ms < start_ms || end_ms > MOST_MS)
        return false;
    if (span->first_ms == 0)
        *span = (struct span){start_ms, end_ms, start_ms, end_ms};
    span->first_ms = start_ms < span->first_ms ? start_ms : span->first_ms;
    span->last_ms = end_ms > span->last_ms ? end_ms : span->last_ms;
    span->from_ms = start_ms > span->from_ms ? start_ms : span->from_ms;
    span->to_ms = end_ms < span->to_ms ? end_ms : span->to_ms;
    return true;
}

/* Adds the run to `into`. Returns an exit code. */
static int add_run(json_t *into, const json_t *run, const char *path, const char *first_path)
{
    for (const struct runs_key *one = runs_keys; one->key; one++) {
        const json_t *first = json_object_get(into, one->key);
        const json_t *second = json_object_get(run, one->key);

        if (one->merged == RUNS_SAME && first != second && !json_equal(first, second)) {
            tool_say("%s and %s differ in %s: these are not parts of one load", first_path, path,
                     one->key);
            return EXIT_USAGE;
        }
        if (one->merged == RUNS_ADDED && !add(into, run, one->key))
            return damaged(path);
    }
    return add_kinds(into, run) ? EXIT_DONE : damaged(path);
}

/* The same part of the load twice would double what was never done twice. Returns an exit code. */
static int check_part(json_t *seen, const json_t *run, const char *path)
{
    const char *share = report_text(run, "share"), *of = strchr(share, '/');
    char same[96];

    snprintf(same, sizeof same, "%.32s started %.0f with seed %.0f", share,
             report_number(run, "started_ms"), report_number(run, "seed"));
    if (json_object_get(seen, same) ||
        (of && strcmp(of, "/1") != 0 && json_object_get(seen, share))) {
        tool_say("%s is a part of the load that an earlier file is, too", path);
        return EXIT_USAGE;
    }
    if (json_object_size(seen) > 0 && of && !json_object_get(seen, of)) {
        tool_say("%s is a part (--share %s) of another load than the files in front of it", path,
                 share);
        return EXIT_USAGE;
    }
    json_object_set_new(seen, same, json_true());
    json_object_set_new(seen, share, json_true());
    json_object_set_new(seen, of ? of : "", json_true());
    return EXIT_DONE;
}

static int finish(json_t *merged, const struct span *span, int count, bool json)
{
    double overlap_ms = span->to_ms > span->from_ms ? span->to_ms - span->from_ms : 0;

    if (overlap_ms == 0)
        tool_say("these runs were not all at work at the same time: the rates that are added up "
                 "were never reached together");
    json_t *times =
        json_pack("{s:i, s:I, s:I, s:f, s:f}", "merged", count, "started_ms",
                  (json_int_t)span->first_ms, "ended_ms", (json_int_t)span->last_ms, "seconds",
                  (span->last_ms - span->first_ms) / 1000, "overlap_seconds", overlap_ms / 1000);

    json_object_update_new(merged, times);
    json_object_del(merged, "share");
    return report_print(json_incref(merged), json);
}

int merge_run(int count, char **paths, bool json)
{
    json_t *merged = NULL, *seen = json_object();
    struct span span = {0};
    int code = EXIT_DONE;

    for (int i = 0; i < count && code == EXIT_DONE; i++) {
        json_t *run = runs_load(paths[i]);

        if (!run)
            code = EXIT_FAILED;
        else if (!add_span(&span, run))
            code = damaged(paths[i]);
        else
            code = check_part(seen, run, paths[i]);
        if (code == EXIT_DONE && merged)
            code = add_run(merged, run, paths[i], paths[0]);
        else if (code == EXIT_DONE)
            merged = json_incref(run);
        json_decref(run);
    }
    if (code == EXIT_DONE)
        code = finish(merged, &span, count, json);
    json_decref(merged);
    json_decref(seen);
    return code;
}
