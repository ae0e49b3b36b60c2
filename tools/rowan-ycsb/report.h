/* report.h - what a run found: a table for people, or JSON. */
#ifndef YCSB_REPORT_H
#define YCSB_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/rowan.h"
#include "tools/admin.h"
#include "tools/rowan-ycsb/runner.h"

/* The cluster's properties, which are printed beside the figures. */
struct report_cluster {
    char fabric[16];
    char durability[16];
    uint32_t servers, replicas, shards;
};

/* report_cluster_get: asks the cluster. Errors: those of admin_open; ROWAN_EUNREACHABLE when no server
 * answers. */
int report_cluster_get(const struct admin_access *access, struct report_cluster *out);

/* The latencies that are printed, in the order of the columns. */
enum { REPORT_COLUMNS = 5 };
struct report_column {
    const char *key, *title; /* of the JSON; of the table */
    double quantile;
};
extern const struct report_column report_columns[REPORT_COLUMNS];

/* The JSON of a run; NULL: no memory. README.md says what its keys are. */
json_t *report_make(const struct run_options *options, const struct report_cluster *cluster,
                    const struct run_result *result);

/* Of one kind: operations, quantiles, and the histogram. */
json_t *report_kind(const struct histogram *histogram);

/* Prints a run's JSON, or a table of it, to standard output; ends the caller's reference. NULL: it could
 * not be made. Returns an exit code. */
int report_print(json_t *run, bool json);

/* A number or a text of a JSON object; 0 or "" if it has none. */
double report_number(const json_t *object, const char *key);
const char *report_text(const json_t *object, const char *key);

#endif
