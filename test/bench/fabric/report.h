/* report.h - prints the runs: rows of a table as they end, or one JSON object at the end. */
#ifndef FABRIC_BENCH_REPORT_H
#define FABRIC_BENCH_REPORT_H

#include <jansson.h>

#include "test/bench/fabric/crew.h"

/* One run, in figures a second and an operation. */
json_t *report_run(const struct crew_options *run, const struct crew_result *result);

/* The table's head, and a row of it. */
void report_print_head(const struct crew_options *run, const char *memory);
void report_print_row(const json_t *row);

const char *report_mode(enum bench_mode mode);

#endif
