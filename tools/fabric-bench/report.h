/* report.h - prints the runs: rows of a table as they end, or one JSON object at the end. */
#ifndef FABRIC_BENCH_REPORT_H
#define FABRIC_BENCH_REPORT_H

#include <jansson.h>

#include "tools/fabric-bench/crew.h"

/* Begins as what the runs depend on, and zeros. */
struct report {
    const struct fabric_caps *caps;
    const char *address;
    uint32_t depth, batch, threads;
    uint64_t spin_ns;
    bool remote; /* the receiver is another program */
    bool json;
    struct wire_facts memory; /* of the receiver */

    json_t *runs, *skipped;
    bool began; /* the table's head is printed */
};

void report_run(struct report *report, const struct crew_options *run,
                const struct crew_result *result);

/* A run that was asked for together with others, and why it was not made. */
void report_skipped(struct report *report, const struct crew_options *run, const char *reason);

/* Prints what is left. Errors: ROWAN_ENOMEM, EIO. */
int report_end(struct report *report);
void report_fini(struct report *report);

const char *report_mode(enum bench_mode mode);

#endif
