/* worker_fill.h - filling: what this server has of a shard is copied to a replica that has nothing of it yet. May call what
 * sends to peers. */
#ifndef SERVER_WORKER_FILL_H
#define SERVER_WORKER_FILL_H

#include "server/worker/worker_state.h"

/* Once per poll; `clients`: requests came in this one. True if anything moved; lowers *wake_ns. */
bool worker_fill_poll(struct worker *worker, bool clients, uint64_t now_ns, uint64_t *wake_ns);

/* An answer of a peer: true if it was to a message of filling. A peer's connection has gone. */
bool worker_fill_answered(struct worker *worker, const struct worker_peer *peer, uint32_t tag,
                          const Rowan__ControlMessage *answer, uint64_t now_ns);
void worker_fill_peer_down(struct worker *worker, const struct worker_peer *peer);

/* The shard goes to another owner. */
void worker_fill_forget(struct worker *worker, const struct shard_state *shard);

/* Since which epoch (reclaim.h) entries that are being copied are held; RECLAIM_NOTHING: none are. */
uint64_t worker_fill_held(const struct worker *worker);

void worker_fill_close(struct worker *worker);

#endif
