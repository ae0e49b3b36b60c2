/* runner.h - the load: threads, connections spread over them, and up to `depth` operations outstanding
 * in each connection. */
#ifndef YCSB_RUNNER_H
#define YCSB_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/histogram.h"
#include "tools/rowan-ycsb/workload.h"
#include "tools/rowan-ycsb/zipf.h"

enum run_kind { RUN_PUT, RUN_GET, RUN_KINDS };

enum { RUN_MAX_THREADS = 256, RUN_MAX_LANES = 256, RUN_MAX_CONNECTIONS = 4096, RUN_ERRORS = 64 };

struct run_options {
    const char *cm;
    const char *user, *secret_file; /* "": nobody logs in */
    const char *name;               /* of the workload, for the progress line */
    const struct profile *profile;
    const struct zipf *zipf; /* NULL: uniform */
    bool load;               /* each record once, in order */
    double puts;             /* fraction of the operations that write */
    uint64_t records;
    uint64_t operations; /* 0: as many as the time allows */
    uint64_t run_ns;     /* 0: as long as the operations take */
    uint32_t threads;
    uint32_t connections; /* at least as many as threads, at most RUN_MAX_LANES for each thread */
    uint32_t depth, timeout_ms, spin_us;
    double rate; /* operations a second of all together; 0: as many as go */
    uint64_t seed;
    int acked_fd; /* -1: none */
};

struct run_result {
    struct histogram latencies[RUN_KINDS]; /* of what was not an error */
    uint64_t operations;                   /* completed without an error */
    uint64_t not_found;                    /* of those, reads that found nothing */
    uint64_t errors;
    uint64_t errors_by[RUN_ERRORS]; /* by -code */
    uint64_t run_ns;
};

/* runner_run: with a progress line on standard error. Errors (nothing ran): what opening a session
 * met; or what writing the acked file met, then the run was cut short. */
int runner_run(const struct run_options *options, struct run_result *out);

#endif
