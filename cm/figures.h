/* figures.h - what Prometheus is told about the cluster by whoever manages it, or waits to. */
#ifndef CM_FIGURES_H
#define CM_FIGURES_H

#include "cm/state.h"
#include "common/metrics/metrics.h"

struct figures {
    struct counter leads, cut, term, lease_ms, members, kept, absent, draining, replicas;
    struct counter shards, under_replicated, filling, unserved, incomplete, moving, splitting;
    struct counter connections;
};

void figures_register(const struct figures *figures, struct metrics *metrics);

/* figures_update: as the state has them now. */
void figures_update(struct figures *figures, const struct cm_state *state, uint32_t connections);

#endif
