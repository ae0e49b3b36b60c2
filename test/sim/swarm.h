/* swarm.h - what kind of run a seed is: how many servers and how large, which faults and how often, what clients do.
 * Not every run has everything (Groce et al., Swarm Testing, 2012): what is left out lets the rest come through.
 */
#ifndef SIM_SWARM_H
#define SIM_SWARM_H

#include <stdio.h>

#include "test/sim/load.h"
#include "test/sim/nemesis.h"
#include "test/sim/sim_fault.h"

struct swarm {
    uint32_t segment_bytes;
    uint32_t chunk_buckets; /* INDEX_CHUNK_BUCKETS of the run */
    uint32_t message_bytes; /* BLOCK_LIST_BYTES of the run */
    struct sim_cluster_options cluster;
    struct load_options load;
    struct nemesis_options nemesis;
    struct sim_fault_options faults;
    bool living;            /* nobody starts anew before the last checks */
    uint32_t gone;          /* the server that ends for good once all faults are over; 0: none */
    uint64_t safety_ns;     /* how long the safety phase lasts at least */
    uint64_t keep_ns;       /* CLIENTS_KEEP_NS of the run */
    uint64_t tombstones_ns; /* TOMBSTONES_MIN_NS of the run */
    uint64_t checkpoint_ns; /* CHECKPOINT_MIN_NS of the run */
};

/* Of so many runs of a hundred (`failovers`) the servers have leases, and one that fails is replaced. */
void swarm_draw(uint64_t seed, uint32_t failovers, struct swarm *out);

/* One line of key=value. */
void swarm_tell(const struct swarm *swarm, FILE *out);

#endif
