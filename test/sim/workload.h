/* workload.h - random operations against a cluster, each answer checked against a model.
 *
 * A key has one operation outstanding at most, so the model knows the one right answer; different
 * keys' operations run side by side, from all clients. Connections may be cut meanwhile: operations
 * take effect once all the same. No operation may meet its timeout: an outcome that is unknown has
 * no one right answer.
 */
#ifndef SIM_WORKLOAD_H
#define SIM_WORKLOAD_H

#include "test/sim/cluster.h"

/* Zeros choose what stands behind. */
struct sim_workload_options {
    uint64_t seed;
    uint64_t operations;      /* 1000 */
    uint32_t keys;            /* 200 */
    uint32_t side_by_side;    /* 16; operations outstanding, over all clients */
    uint32_t max_value_bytes; /* 300 */
    uint32_t large_in;        /* one value in so many is of up to 1 MiB; 0: none is */
    bool only_puts;           /* no gets, conditional puts and deletes */
    bool may_be_full;         /* ROWAN_EFULL is a right answer to a write */
    /* Called now and then between rounds: may stop and go on with servers, cut their connections.
     */
    void (*disturb)(struct sim_cluster *cluster, struct random *random);
};

struct sim_workload_result {
    bool right;
    char why[200];    /* if not */
    uint64_t objects; /* live keys in the model, at the end */
    uint64_t gets, puts, conditional_puts, deletes, full;
    uint64_t hash; /* of all answers and their times */
};

/* Returns when every operation has its answer, and every key was read once more; or at the first
 * wrong answer. */
void sim_workload_run(struct sim_cluster *cluster, const struct sim_workload_options *options,
                      struct sim_workload_result *result);

#endif
