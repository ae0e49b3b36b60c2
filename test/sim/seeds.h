/* seeds.h - runs a range of seeds, adds up, and tells what failed. */
#ifndef SIM_SEEDS_H
#define SIM_SEEDS_H

#include "test/sim/jobs.h"

struct seeds_options {
    uint64_t from, to; /* both included */
    enum mutant mutant;
    uint32_t failovers;       /* run.h */
    bool until_caught;        /* stop at the lowest seed that fails */
    struct jobs_options jobs; /* without `next`, `done` and `context` */
};

/* 0, or the lowest exit code of the failures: wrong data weighs more than no progress. -errno: runs could not be
 * started. */
int seeds_run(const struct seeds_options *options);

/* One line about a failure. */
void seeds_tell_failure(const struct job_result *result, FILE *out);

#endif
