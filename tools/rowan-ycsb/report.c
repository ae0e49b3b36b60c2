/* Prints a run's figures beside what they depend on: fabric, durability, servers, replicas. */
#include "tools/rowan-ycsb/report.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "tools/admin.h"
#include "tools/tool.h"

enum { ASK_TIMEOUT_MS = 10000, QUANTILES = 5 };

static const struct {
    const char *key, *title;
    double quantile;
} columns[QUANTILES] = {
    {"p50_us", "p50", 0.5},      {"p90_us", "p90", 0.9}, {"p99_us", "p99", 0.99},
    {"p999_us", "p99.9", 0.999}, {"max_us", "max", 1},
};

static const char *const kinds[RUN_KINDS] = {"put", "get"};

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

/* --- figures --- */

static double seconds_of(const struct run_result *result)
{
    return (double)result->run_ns / 1e9;
}

static double rate_of(const struct run_result *result)
{
    return result->run_ns ? (double)result->operations / seconds_of(result) : 0;
}

static double latency_us(const struct histogram *histogram, int column)
{
    return (double)histogram_quantile(histogram, columns[column].quantile) / 1000;
}

static json_t *kind_json(const struct histogram *histogram)
{
    json_t *object = json_object();

    json_object_set_new(object, "operations", json_integer((json_int_t)histogram->count));
    for (int i = 0; i < QUANTILES; i++)
        json_object_set_new(object, columns[i].key, json_real(latency_us(histogram, i)));
    return object;
}

static json_t *errors_json(const struct run_result *result)
{
    json_t *object = json_object();

    for (int i = 0; i < RUN_ERRORS; i++) {
        if (result->errors_by[i])
            json_object_set_new(object, error_name(-i),
                                json_integer((json_int_t)result->errors_by[i]));
    }
    return object;
}

static int print_json(const struct run_options *options, const struct report_cluster *cluster,
                      const struct run_result *result)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:s, s:i, s:i, s:I, s:f, s:I, s:f, s:I, s:o, s:I, s:s, s:s, "
        "s:i, s:i, s:i, s:i, s:f}",
        "workload", options->name, "profile", options->profile->name, "records",
        (json_int_t)options->records, "distribution",
        options->load   ? "sequential"
        : options->zipf ? "zipfian"
                        : "uniform",
        "threads", (int)options->threads, "depth", (int)options->depth, "seed",
        (json_int_t)options->seed, "seconds", seconds_of(result), "operations",
        (json_int_t)result->operations, "ops_per_second", rate_of(result), "errors",
        (json_int_t)result->errors, "errors_by_name", errors_json(result), "not_found",
        (json_int_t)result->not_found, "fabric", cluster->fabric, "durability", cluster->durability,
        "servers", (int)cluster->servers, "replicas", (int)cluster->replicas, "shards",
        (int)cluster->shards, "connections", (int)options->connections, "rate", options->rate);

    if (!object)
        return ROWAN_ENOMEM;
    for (int kind = 0; kind < RUN_KINDS; kind++) {
        if (result->latencies[kind].count)
            json_object_set_new(object, kinds[kind], kind_json(&result->latencies[kind]));
    }
    return tool_print_json(object);
}

static void print_kind(const char *name, const struct histogram *histogram)
{
    printf("%-4s %12llu", name, (unsigned long long)histogram->count);
    for (int i = 0; i < QUANTILES; i++)
        printf(" %10.1f", latency_us(histogram, i));
    putchar('\n');
}

static int print_table(const struct run_options *options, const struct report_cluster *cluster,
                       const struct run_result *result)
{
    printf("workload %s, %s, %llu records, %s, %u threads, %u connections x %u outstanding",
           options->name, options->profile->name, (unsigned long long)options->records,
           options->load   ? "each once"
           : options->zipf ? "zipfian 0.99"
                           : "uniform",
           options->threads, options->connections, options->depth);
    if (options->rate > 0)
        printf(", paced at %.0f operations a second", options->rate);
    putchar('\n');
    printf("%u servers, %u replicas, fabric %s, durability %s\n\n", cluster->servers,
           cluster->replicas, cluster->fabric, cluster->durability);
    printf("%-4s %12s", "", "operations");
    for (int i = 0; i < QUANTILES; i++)
        printf(" %10s", columns[i].title);
    printf("  (us)\n");
    for (int kind = 0; kind < RUN_KINDS; kind++) {
        if (result->latencies[kind].count)
            print_kind(kinds[kind], &result->latencies[kind]);
    }
    printf("\n%.0f operations a second, %.2f s, %llu errors", rate_of(result), seconds_of(result),
           (unsigned long long)result->errors);
    if (result->not_found)
        printf(", %llu reads found nothing", (unsigned long long)result->not_found);
    putchar('\n');
    for (int i = 0; i < RUN_ERRORS; i++) {
        if (result->errors_by[i])
            printf("  %llu x %s: %s\n", (unsigned long long)result->errors_by[i], error_name(-i),
                   error_sentence(-i));
    }
    return ferror(stdout) || fflush(stdout) != 0 ? ROWAN_EIO : 0;
}

int report_print(const struct run_options *options, const struct report_cluster *cluster,
                 const struct run_result *result, bool json)
{
    return json ? print_json(options, cluster, result) : print_table(options, cluster, result);
}
