/* report.h - what a run found: a table for people, or JSON. */
#ifndef YCSB_REPORT_H
#define YCSB_REPORT_H

#include <stdbool.h>
#include <stdint.h>

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

/* Prints to standard output. Errors: ROWAN_EIO, ROWAN_ENOMEM. */
int report_print(const struct run_options *options, const struct report_cluster *cluster,
                 const struct run_result *result, bool json);

#endif
