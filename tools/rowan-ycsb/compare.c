/* Compares two runs: throughput and latencies as ratios, and what was set differently. */
#include <stdio.h>
#include <stdlib.h>

#include "client/rowan.h"
#include "tools/rowan-ycsb/report.h"
#include "tools/rowan-ycsb/runs.h"
#include "tools/tool.h"

static void add_figure(json_t *figures, const char *name, const json_t *a, const json_t *b,
                       const char *key)
{
    double first = report_number(a, key), second = report_number(b, key);
    json_t *ratio = first > 0 ? json_real(second / first) : json_null();

    json_object_set_new(figures, name,
                        json_pack("{s:f, s:f, s:o}", "a", first, "b", second, "ratio", ratio));
}

/* Of kinds that both have. */
static json_t *figures(const json_t *a, const json_t *b)
{
    json_t *object = json_object();
    char name[32];

    add_figure(object, "ops_per_second", a, b, "ops_per_second");
    add_figure(object, "errors", a, b, "errors");
    for (int kind = 0; kind < RUN_KINDS; kind++) {
        const json_t *first = json_object_get(a, run_kinds[kind]);
        const json_t *second = json_object_get(b, run_kinds[kind]);

        for (int i = 0; first && second && i < REPORT_COLUMNS; i++) {
            snprintf(name, sizeof name, "%s_%s", run_kinds[kind], report_columns[i].key);
            add_figure(object, name, first, second, report_columns[i].key);
        }
    }
    return object;
}

static json_t *differences(const json_t *a, const json_t *b)
{
    json_t *object = json_object();

    for (const struct runs_key *one = runs_keys; one->key; one++) {
        json_t *first = json_object_get(a, one->key), *second = json_object_get(b, one->key);

        if (one->is_setting && first != second && !json_equal(first, second))
            json_object_set_new(object, one->key,
                                json_pack("{s:O?, s:O?}", "a", first, "b", second));
    }
    return object;
}

static void print_table(const json_t *comparison, const char *const paths[2])
{
    const char *key;
    json_t *value;

    printf("A: %s\nB: %s\n", paths[0], paths[1]);
    json_object_foreach(json_object_get(comparison, "settings"), key, value)
    {
        printf("%s: A ", key);
        json_dumpf(json_object_get(value, "a"), stdout, JSON_ENCODE_ANY);
        printf(", B ");
        json_dumpf(json_object_get(value, "b"), stdout, JSON_ENCODE_ANY);
        putchar('\n');
    }
    printf("\n%-16s %12s %12s %10s\n", "", "A", "B", "B/A");
    json_object_foreach(json_object_get(comparison, "figures"), key, value)
    {
        printf("%-16s %12.1f %12.1f", key, report_number(value, "a"), report_number(value, "b"));
        if (json_is_null(json_object_get(value, "ratio")))
            printf("          -\n");
        else
            printf(" %10.3f\n", report_number(value, "ratio"));
    }
}

int compare_run(const char *const paths[2], bool json)
{
    json_t *a = runs_load(paths[0]), *b = a ? runs_load(paths[1]) : NULL;
    int code = b ? EXIT_DONE : EXIT_FAILED;

    if (b) {
        json_t *comparison =
            json_pack("{s:o, s:o}", "settings", differences(a, b), "figures", figures(a, b));

        if (comparison && !json)
            print_table(comparison, paths);
        else
            code = tool_print_json(json_incref(comparison));
        json_decref(comparison);
    }
    json_decref(a);
    json_decref(b);
    return code;
}
