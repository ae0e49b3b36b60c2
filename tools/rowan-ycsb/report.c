/* Makes JSON of a run's figures beside what they depend on: fabric, durability, servers, replicas. The
 * table is made of the JSON, so that one of several runs (merge.c) is printed by the same code. */
#include "tools/rowan-ycsb/report.h"

#include <stdio.h>
#include <string.h>

#include "client/rowan.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/admin.h"
#include "tools/tool.h"

enum { ASK_TIMEOUT_MS = 10000 };

const struct report_column report_columns[REPORT_COLUMNS] = {
    {"p50_us", "p50", 0.5},      {"p90_us", "p90", 0.9}, {"p99_us", "p99", 0.99},
    {"p999_us", "p99.9", 0.999}, {"max_us", "max", 1},
};

static const char *const distributions[] = {
    [CHOOSE_ZIPFIAN] = "zipfian",
    [CHOOSE_UNIFORM] = "uniform",
    [CHOOSE_LATEST] = "latest",
    [CHOOSE_HOTSPOT] = "hotspot",
};

/* --- the cluster --- */

/* `out` becomes the first server's word, or "mixed" if another's differs. */
static void merge_word(char *out, size_t out_bytes, const char *word)
{
    if (!*out)
        snprintf(out, out_bytes, "%s", word);
    else if (strcmp(out, word) != 0)
        snprintf(out, out_bytes, "mixed");
}

int report_cluster_get(const struct admin_access *access, struct report_cluster *out)
{
    struct report_cluster found = {0};
    struct admin_status status;
    struct admin *admin;
    int error = admin_open(access, ASK_TIMEOUT_MS * NS_PER_MS, &admin, NULL);

    if (error)
        return error;
    error = admin_status_get(admin, ASK_TIMEOUT_MS * NS_PER_MS, &status);
    admin_close(admin);
    if (error)
        return error;
    found.servers = status.config->member_count;
    found.replicas = status.config->replicas;
    found.shards = status.config->shard_count;
    for (uint32_t i = 0; i < found.servers; i++) {
        if (status.calls[i].error)
            continue;
        const Rowan__ServerStatus *server = status.calls[i].reply->server_status;
        merge_word(found.fabric, sizeof found.fabric, server->fabric);
        merge_word(found.durability, sizeof found.durability, server->durability);
    }
    admin_status_free(&status);
    if (!*found.fabric)
        return ROWAN_EUNREACHABLE;
    *out = found;
    return 0;
}

/* --- JSON --- */

/* The largest value, then bucket:count of each bucket that is not empty. */
static json_t *histogram_json(const struct histogram *histogram)
{
    static char text[HISTOGRAM_BUCKETS * 26 + 32];
    int at = sprintf(text, "%llu", (unsigned long long)histogram->max);

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (histogram->buckets[i])
            at += sprintf(text + at, " %u:%llu", i, (unsigned long long)histogram->buckets[i]);
    }
    return json_string(text);
}

json_t *report_kind(const struct histogram *histogram)
{
    json_t *object = json_object();

    json_object_set_new(object, "operations", json_integer((json_int_t)histogram->count));
    for (int i = 0; i < REPORT_COLUMNS; i++) {
        uint64_t latency_ns = histogram_quantile(histogram, report_columns[i].quantile);

        json_object_set_new(object, report_columns[i].key, json_real((double)latency_ns / 1000));
    }
    json_object_set_new(object, "histogram", histogram_json(histogram));
    return object;
}

static void set_number(json_t *object, const char *key, uint64_t number)
{
    json_object_set_new(object, key, json_integer((json_int_t)number));
}

static json_t *errors_json(const struct run_counts *counts)
{
    json_t *object = json_object();

    for (int i = 0; i < RUN_ERRORS; i++) {
        if (counts->errors_by[i])
            set_number(object, error_name(-i), counts->errors_by[i]);
    }
    return object;
}

static json_t *requests_json(const struct run_counts *counts)
{
    json_t *object = json_object();

    for (int i = 0; i < RUN_REQUESTS; i++)
        json_object_set_new(object, run_kinds[i],
                            json_pack("{s:I, s:I}", "sent", (json_int_t)counts->sent[i], "answered",
                                      (json_int_t)counts->answered[i]));
    return object;
}

static json_t *warm_up_json(const struct run_counts *counts)
{
    json_t *object = json_object();

    set_number(object, "operations", counts->warm_up_operations);
    for (int kind = 0; kind < RUN_KINDS; kind++) {
        if (counts->warm_up[kind])
            set_number(object, run_kinds[kind], counts->warm_up[kind]);
    }
    return object;
}

static json_t *settings_json(const struct run_options *options,
                             const struct report_cluster *cluster)
{
    const struct choice *choice = &options->choice;
    bool moves = !options->load && choice->hot_moves_ns;
    bool hotspot = !options->load && choice->by == CHOOSE_HOTSPOT;
    char share[32];

    snprintf(share, sizeof share, "%u/%u", options->share + 1, options->shares);
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:s, s:i, s:i, s:i, s:f, s:I, s:s, s:f, s:s, s:s, s:i, s:i, s:i}",
        "workload", options->name, "profile", options->profile->name, "records",
        (json_int_t)choice->records, "distribution",
        options->hashed ? "hashed"
        : options->load ? "sequential"
                        : distributions[choice->by],
        "threads", options->threads, "connections", options->connections, "depth",
        options->session.depth, "rate", options->rate, "seed", (json_int_t)choice->seed, "share",
        share, "warm_up_seconds", (double)options->warm_up_ns / 1e9, "fabric", cluster->fabric,
        "durability", cluster->durability, "servers", cluster->servers, "replicas",
        cluster->replicas, "shards", cluster->shards);

    if (moves)
        set_number(object, "hot_moves_ms", choice->hot_moves_ns / NS_PER_MS);
    if (hotspot) {
        json_object_set_new(object, "hot_fraction", json_real(choice->hot_fraction));
        json_object_set_new(object, "hot_operations", json_real(choice->hot_operations));
    }
    return object;
}

json_t *report_make(const struct run_options *options, const struct report_cluster *cluster,
                    const struct run_result *result)
{
    const struct run_counts *counts = &result->counts;
    double seconds = (double)result->run_ns / 1e9;
    json_t *object = settings_json(options, cluster);
    json_t *figures =
        json_pack("{s:f, s:I, s:f, s:I, s:o, s:I, s:I, s:o, s:o, s:I, s:I}", "seconds", seconds,
                  "operations", (json_int_t)counts->operations, "ops_per_second",
                  result->run_ns ? (double)counts->operations / seconds : 0.0, "errors",
                  (json_int_t)counts->errors, "errors_by_name", errors_json(counts), "not_found",
                  (json_int_t)counts->not_found, "not_begun", (json_int_t)counts->not_begun,
                  "requests", requests_json(counts), "warm_up", warm_up_json(counts), "started_ms",
                  (json_int_t)result->started_ms, "ended_ms", (json_int_t)result->ended_ms);

    if (json_object_update_new(object, figures) != 0) {
        json_decref(object);
        return NULL;
    }
    for (int kind = 0; kind < RUN_KINDS; kind++) {
        if (result->latencies[kind].count)
            json_object_set_new(object, run_kinds[kind], report_kind(&result->latencies[kind]));
    }
    return object;
}

/* --- the table --- */

double report_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

const char *report_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static void print_settings(const json_t *run)
{
    printf("workload %s, %s, %.0f records, %s, %.0f threads, %.0f connections x %.0f outstanding",
           report_text(run, "workload"), report_text(run, "profile"), report_number(run, "records"),
           report_text(run, "distribution"), report_number(run, "threads"),
           report_number(run, "connections"), report_number(run, "depth"));
    if (report_number(run, "hot_moves_ms") > 0)
        printf(", others become hot every %.0f ms", report_number(run, "hot_moves_ms"));
    if (report_number(run, "rate") > 0)
        printf(", paced at %.0f operations a second", report_number(run, "rate"));
    printf("\n%.0f servers, %.0f replicas, fabric %s, durability %s\n",
           report_number(run, "servers"), report_number(run, "replicas"),
           report_text(run, "fabric"), report_text(run, "durability"));
    if (report_number(run, "warm_up_seconds") > 0)
        printf("warm-up of %.1f s: %.0f operations, not counted\n",
               report_number(run, "warm_up_seconds"),
               report_number(json_object_get(run, "warm_up"), "operations"));
    if (report_number(run, "merged") > 0)
        printf("%.0f runs merged, side by side for %.2f s\n", report_number(run, "merged"),
               report_number(run, "overlap_seconds"));
}

static void print_errors(const json_t *run)
{
    json_t *errors = json_object_get(run, "errors_by_name"), *count;
    const char *name;

    json_object_foreach(errors, name, count)
    {
        for (int i = 0; i < RUN_ERRORS; i++) {
            if (strcmp(name, error_name(-i)) == 0)
                printf("  %.0f x %s: %s\n", json_number_value(count), name, error_sentence(-i));
        }
    }
}

static void print_table(const json_t *run)
{
    print_settings(run);
    printf("\n%-6s %12s", "", "operations");
    for (int i = 0; i < REPORT_COLUMNS; i++)
        printf(" %10s", report_columns[i].title);
    printf("  (us)\n");
    for (int kind = 0; kind < RUN_KINDS; kind++) {
        const json_t *object = json_object_get(run, run_kinds[kind]);

        if (!object)
            continue;
        printf("%-6s %12.0f", run_kinds[kind], report_number(object, "operations"));
        for (int i = 0; i < REPORT_COLUMNS; i++)
            printf(" %10.1f", report_number(object, report_columns[i].key));
        putchar('\n');
    }
    printf("\n%.0f operations a second, %.2f s, %.0f errors", report_number(run, "ops_per_second"),
           report_number(run, "seconds"), report_number(run, "errors"));
    if (report_number(run, "not_found") > 0)
        printf(", %.0f reads found nothing", report_number(run, "not_found"));
    if (report_number(run, "not_begun") > 0)
        printf(", %.0f were due and did not begin before the end", report_number(run, "not_begun"));
    putchar('\n');
    print_errors(run);
}

int report_print(json_t *run, bool json)
{
    if (json || !run)
        return tool_print_json(run);
    print_table(run);
    json_decref(run);
    return EXIT_DONE;
}
