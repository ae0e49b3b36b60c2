/* plan.h - which runs a user asked for, checked against the limits of fabric and receiver. */
#ifndef FABRIC_BENCH_PLAN_H
#define FABRIC_BENCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/fabric-bench/lane.h"

enum { PLAN_MAX_LIST = 16 };

struct plan_list {
    uint32_t count;
    uint64_t values[PLAN_MAX_LIST];
};

/* plan_list: "64,128" or "4K". Errors: ROWAN_EINVALID (no numbers from 1 to `most`, or too many). */
int plan_list(const char *text, uint64_t most, struct plan_list *out);

/* plan_refusal: why a run cannot be made on a backend, or NULL. `caps` and `ops` are those of the sending
 * side. */
const char *plan_refusal(enum bench_mode mode, uint64_t bytes, uint64_t senders, uint64_t depth,
                         uint64_t batch, const struct fabric *fabric);

#endif
