/* chain.h - the configurations that a coordination service held, one after another, and what must be true of
 * them: one chain, each follows from the one before it. For cmocka tests. */
#ifndef TEST_SIM_CHAIN_H
#define TEST_SIM_CHAIN_H

#include <stdint.h>

#include "common/cluster/cluster.h"
#include "test/sim/sim_coord.h"

enum { CHAIN_MAX = 4000, CHAIN_SERVERS = 8 };

struct chain {
    uint64_t version; /* of the last one seen */
    uint32_t cold_starts;
    uint64_t running[CHAIN_SERVERS +
                     1]; /* incarnations by server; 0: it is down. The test fills it in */
    struct cluster_config *history[CHAIN_MAX + 1];
};

/* After every round: takes in what is stored, the first time whatever it is. The versions are the terms; none may be skipped; a cold start
 * replaces nobody who runs, and raises every epoch; anything else changes the block of client ids only. */
void chain_look(struct chain *chain, const struct sim_registry *registry);

/* Somebody was sent, or acts on, this configuration: it was stored before (C7). */
void chain_has(const struct chain *chain, const struct cluster_config *config);

/* NULL: none. */
const struct cluster_config *chain_last(const struct chain *chain);

void chain_clear(struct chain *chain);

#endif
