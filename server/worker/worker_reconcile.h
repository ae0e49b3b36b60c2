/* worker_reconcile.h - log reconciliation: what any replica of a shard has above the commit version is brought
 * to all of them before the shard is served. May call what sends to peers, lists commit versions and
 * recalls clients. */
#ifndef SERVER_WORKER_RECONCILE_H
#define SERVER_WORKER_RECONCILE_H

#include "server/worker/worker_state.h"

/* The last batch in which something was stored here by now: it is durable when that has landed here. */
uint64_t worker_reconcile_stored(const struct worker *worker);

/* The shard is `recovering`: reconciles its replicas, then clears that. Without memory the server ends. */
void worker_reconcile_begin(struct worker *worker, struct shard_state *shard);

/* The configuration in which it was begun is superseded. What was taken in stays. One that was not begun: nothing changes. */
void worker_reconcile_abort(struct worker *worker, struct shard_state *shard);

/* Once per poll, before worker_write_advance. True if anything moved; lowers *wake_ns. */
bool worker_reconcile_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* A SuffixIs, EntriesStored or Failure of a peer; a peer's connection has gone. */
void worker_reconcile_message(struct worker *worker, const struct worker_peer *peer, uint32_t tag,
                              const Rowan__ControlMessage *message, uint64_t now_ns);
void worker_reconcile_peer_down(struct worker *worker, const struct worker_peer *peer);
void worker_reconcile_close(struct worker *worker);

#endif
