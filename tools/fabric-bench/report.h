/* report.h - prints the runs: rows of a table as they end, or one JSON object at the end. */
#ifndef FABRIC_BENCH_REPORT_H
#define FABRIC_BENCH_REPORT_H

#include "tools/fabric-bench/crew.h"

struct report;

struct report_setup {
    const struct fabric_caps *caps;
    const char *address;
    uint32_t depth, batch, threads;
    uint64_t spin_ns;
    bool remote; /* the receiver is another program */
    bool json;
};

/* Errors: ROWAN_ENOMEM. `setup` stays until report_end. */
int report_begin(const struct report_setup *setup, struct report **out);

/* What the receiver's memory is; before the first run. */
void report_memory(struct report *report, const struct wire_facts *facts);

void report_run(struct report *report, const struct crew_options *run,
                const struct crew_result *result);

/* A run that was asked for together with others, and why it was not made. */
void report_skipped(struct report *report, const struct crew_options *run, const char *reason);

/* Prints what is left; frees it. Errors: ROWAN_ENOMEM, EIO. */
int report_end(struct report *report);
void report_drop(struct report *report); /* NULL is fine */

const char *report_mode(enum bench_mode mode);

#endif
