/* runner.h - the load: threads, connections spread over them, and up to `depth` operations outstanding
 * in each connection. */
#ifndef YCSB_RUNNER_H
#define YCSB_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/rowan.h"
#include "common/base/histogram.h"
#include "tools/rowan-ycsb/choose.h"
#include "tools/rowan-ycsb/hdr.h"
#include "tools/rowan-ycsb/workload.h"

/* What an operation is. For the servers an insert is a put, a read-modify-write is a get and then a put. */
enum run_kind { RUN_PUT, RUN_GET, RUN_INSERT, RUN_RMW, RUN_KINDS };

extern const char *const run_kinds[RUN_KINDS]; /* "put" */

enum { RUN_REQUESTS = RUN_GET + 1 }; /* those kinds that are sent */

enum { RUN_MAX_THREADS = 256, RUN_MAX_LANES = 256, RUN_MAX_CONNECTIONS = 4096, RUN_ERRORS = 64 };

struct run_options {
    struct rowan_options session; /* of each connection */
    const char *name;             /* of the workload, for the progress line */
    const struct profile *profile;
    bool load, hashed;     /* load: each record of this share once, in order or permuted */
    double mix[RUN_KINDS]; /* of the operations, as fractions; load puts only */
    struct choice choice;
    uint64_t operations;    /* 0: as many as the time allows; those of the warm-up do not count */
    uint64_t run_ns;        /* 0: as long as the operations take; from the end of the warm-up */
    uint64_t warm_up_ns;    /* what begins within is not in the figures */
    uint32_t share, shares; /* process `share` (from 0 on) of so many */
    uint32_t threads;
    uint32_t connections; /* at least as many as threads, at most RUN_MAX_LANES for each thread */
    double rate;          /* operations a second of all together; 0: as many as go */
    int acked_fd;         /* -1: none */
    struct hdr_log *log;  /* NULL: none */
};

/* All of them uint64_t: runner.c adds them up by that. */
struct run_counts {
    uint64_t operations;            /* completed without an error; a read-modify-write is one */
    uint64_t not_found;             /* gets of those that found nothing */
    uint64_t errors;                /* operations, also of the warm-up */
    uint64_t errors_by[RUN_ERRORS]; /* by -code */
    uint64_t not_begun; /* paced: that were due before the end of the run, and did not begin */
    uint64_t warm_up_operations, warm_up[RUN_KINDS];     /* likewise, that began in the warm-up */
    uint64_t sent[RUN_REQUESTS], answered[RUN_REQUESTS]; /* all, also of the warm-up */
};

struct run_result {
    struct histogram
        latencies[RUN_KINDS]; /* of what was not an error; puts and gets: also those within
                                              read-modify-writes, as YCSB has it; and of what did not
                                              begin: since it was due */
    struct run_counts counts;
    uint64_t run_ns;               /* without the warm-up */
    uint64_t started_ms, ended_ms; /* of what is counted; since the epoch */
    bool interrupted; /* by SIGINT: it ended there, and what was outstanding is not counted */
};

/* runner_run: with a progress line on standard error. Errors (nothing ran): what opening a session
 * met; or what writing the acked file met, then the run was cut short. */
int runner_run(const struct run_options *options, struct run_result *out);

#endif
