/* worker_epoch.h - a shard's epochs at the worker that leads it: from one to the next, once the configuration that raises it
 * is committed. May call all that reconciles. */
#ifndef SERVER_WORKER_EPOCH_H
#define SERVER_WORKER_EPOCH_H

#include "server/worker/worker_state.h"

/* `worker->config` takes the place of the configuration before, NULL if it is the first. */
void worker_epoch_adopt(struct worker *worker, const struct cluster_config *before);

/* The shard is this worker's from now on, in a configuration with leases, and not served yet. */
void worker_epoch_own(struct worker *worker, struct shard_state *shard);

/* The configuration of that term is committed. */
void worker_epoch_committed(struct worker *worker, uint64_t term);

/* The segment of this worker's log that is open is about to be closed. */
void worker_epoch_close(const struct worker *worker);

/* Once per poll, in front of what posts: gives back shards that others are to lead, when it may. True if it did; lowers
 * *wake_ns. */
bool worker_epoch_depose(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* Once per poll, behind the completions of writes. True if anything moved. */
bool worker_epoch_poll(struct worker *worker);

#endif
