/* plan.h - which runs a user asked for, checked against the limits of fabric and receiver. */
#ifndef FABRIC_BENCH_PLAN_H
#define FABRIC_BENCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/fabric-bench/crew.h"

enum { PLAN_MAX_LIST = 16 };

struct plan_list {
    uint32_t count;
    uint64_t values[PLAN_MAX_LIST];
};

/* plan_list: "64,128" or "4K". Errors: ROWAN_EINVALID (no numbers from 1 to `most`, or too many). */
int plan_list(const char *text, uint64_t most, struct plan_list *out);

/* plan_refusal: why a run cannot be made on the fabric of the sending side, or NULL. */
const char *plan_refusal(const struct crew_options *run, const struct fabric *fabric);

#endif
