/* worker_fetch.h - answers backups that lack committed versions. May call what sends to peers. */
#ifndef SERVER_WORKER_FETCH_H
#define SERVER_WORKER_FETCH_H

#include "server/worker/worker_state.h"

/* A peer asks for versions of a shard that it never got. Questions beyond WORKER_QUESTIONS are dropped,
 * and asked again. */
void worker_fetch_ask(struct worker *worker, struct worker_peer *peer, const Rowan__Fetch *asked);

/* An answer of a peer. False: not to a message of entries that a question of it has on its way. */
bool worker_fetch_answered(struct worker *worker, const struct worker_peer *peer, uint32_t tag,
                           const Rowan__ControlMessage *answer);

/* Looks for them a bit further, and brings what is found. True if anything moved; lowers *wake_ns. */
bool worker_fetch_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* The shard goes to another owner: nobody is brought any of it. */
void worker_fetch_forget(struct worker *worker, uint16_t shard);

/* Since which epoch is something sought, or found and not brought yet? RECLAIM_NOTHING: there is no question. */
uint64_t worker_fetch_held(const struct worker *worker);

#endif
