/* failure.h - what a run found. The first one counts: what follows it is mostly its consequence. */
#ifndef SIM_FAILURE_H
#define SIM_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

enum failure_kind {
    FAILURE_NONE = 0,
    FAILURE_CORRECTNESS = 3,
    FAILURE_LIVENESS = 4,
    FAILURE_CRASH = 5
};

struct failure {
    enum failure_kind kind; /* also rowan-sim's exit code */
    char checker[32];       /* which one found it: "C2", "linearizability", "digests", ... */
    char why[400];
    uint64_t at_ns;
    uint32_t key, shard; /* of the workload; JOURNAL_NO_KEY, JOURNAL_NO_SHARD */
};

/* Keeps it if there is none yet. */
void failure_set(struct failure *failure, enum failure_kind kind, const char *checker,
                 uint64_t at_ns, uint32_t key, uint32_t shard, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

#endif
