/* worker_split.h - shards that are split, of those that this worker leads (server/shard/split.h). */
#ifndef SERVER_WORKER_SPLIT_H
#define SERVER_WORKER_SPLIT_H

#include "server/worker/worker_state.h"

/* Once per poll; `clients`: requests came in this one. True if anything moved; lowers *wake_ns. */
bool worker_split_poll(struct worker *worker, bool clients, uint64_t now_ns, uint64_t *wake_ns);

#endif
