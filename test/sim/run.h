/* run.h - one seed: a cluster, its clients, its faults and its checkers.
 *
 *  SAFETY    clients work, faults come; the checkers look after every round
 *  LIVENESS  faults end; within LIVENESS_NS every operation has its answer and every shard all its
 *            replicas, which hold the same
 *  GONE      in some runs with leases: a server is gone for good, and every shard takes puts; then it comes back
 *  VERDICT   every key is read once more, some are written, then all while connections break: everything has its
 *            answer; the last commit versions are cut off on their way; the history of each key must be
 *            linearizable; nothing is left over
 */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include <stdio.h>

#include "test/sim/failure.h"
#include "test/sim/history.h"
#include "test/sim/mutant.h"
#include "test/sim/nemesis.h"
#include "test/sim/sim_fabric.h"
#include "test/sim/sim_fault.h"

struct run_options {
    uint64_t seed;
    uint32_t failovers; /* of a hundred seeds so many have leases (swarm.h) */
    enum mutant mutant; /* MUTANT_COUNT: none */
    FILE *trace;        /* every event goes there; NULL: none */
    FILE *story;        /* that of a failure goes there; NULL: none is told */
};

struct run_counts {
    uint64_t
        operations; /* judged: their answers say what was there, or what became of a write, or may have */
    uint64_t unknown;             /* of those: writes with unknown outcome */
    uint64_t rejected;            /* not among those: ROWAN_ETIMEDOUT and ROWAN_EFULL say nothing */
    uint64_t done[HISTORY_KINDS]; /* while there were faults, and before the verdict */
    uint64_t keys;                /* histories judged */
    uint64_t losses;      /* of a shard: power failed on all its replicas, and nothing was fenced */
    uint64_t turned_back; /* keys that had an older version, or none, behind one of these */
    uint64_t states;      /* visited to judge them */
    uint64_t simulated_ns;
    uint64_t rounds;
    uint64_t fault_sites;     /* times one fired */
    uint64_t splits;          /* of buckets of an index */
    uint64_t longs;           /* entries of several blocks that a primary wrote */
    uint64_t joined;          /* of those: copies that were made because their blocks lay apart */
    uint64_t cleaned;         /* segments that were given up */
    uint64_t tombstones;      /* that went */
    uint64_t from_checkpoint; /* starts */
    uint64_t promoted;        /* shards that got another primary, of those before */
    uint64_t refilled;        /* replicas that filled and became full */
    uint64_t split_off;       /* shards, from others */
    uint64_t living;          /* runs that end without a restart of all */
    uint64_t gone;            /* servers that ended for good, for some seconds of writes */
    uint64_t went_back;       /* times the stored configuration was an old one */
    uint64_t thirds;          /* runs with a manager that nobody knows */
    uint64_t unequal;         /* runs with memories of two sizes */
    uint64_t mutant;          /* times the mutant's place was reached */
    struct nemesis_counts nemesis;
    struct sim_network_counts network;
};

struct run_result {
    struct failure failure; /* kind FAILURE_NONE: none */
    struct run_counts counts;
    uint64_t hash; /* of everything that happened: equal seeds, equal hashes */
};

/* One run at a time in a process. What a run that failed holds is left as it is, for a debugger: its process should
 * end. What a checker does not find ends the process by itself (ASSERT). */
void run_seed(const struct run_options *options, struct run_result *out);

/* What is known of the run under way, and its last events: for the handler of a signal that ends the process. */
void run_tell_end(FILE *out);

#endif
