/* jobs.h - runs in processes of their own, several at a time: a run that crashes, hangs or leaks ends itself alone,
 * and is a result like others.
 */
#ifndef SIM_JOBS_H
#define SIM_JOBS_H

#include "test/sim/run.h"

enum { JOBS_MOST = 256 };

struct job {
    uint64_t seed;
    uint32_t failovers; /* run.h */
    enum mutant mutant; /* MUTANT_COUNT: none */
};

struct job_result {
    struct job job;
    struct run_result run; /* of a run that crashed: the failure alone */
    char *
        text; /* what the run wrote: its story, or what a crash left. May be empty; freed by jobs.c */
};

/* The next one to start. False: none, until another is done, or for ever if none runs. */
typedef bool job_next(void *context, struct job *out);

/* In the order in which they end. `result` is valid during the call. */
typedef void job_done(void *context, const struct job_result *result);

struct jobs_options {
    uint32_t jobs;    /* at a time, up to JOBS_MOST; 0: in this process, for debuggers */
    uint64_t limit_s; /* of wall time for one run; what takes longer hangs, and counts as a crash */
    bool trace;       /* events go to standard output as they come; `jobs` is 0 or 1 */
    job_next *next;
    job_done *done;
    void *context;
};

/* Returns when all are done. 0, or the errno of what this process could not do (fork, pipe). */
int jobs_run(const struct jobs_options *options);

#endif
