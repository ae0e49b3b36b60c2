/* worker_fetch.h - answers backups that lack committed versions. May call what sends to peers. */
#ifndef SERVER_WORKER_FETCH_H
#define SERVER_WORKER_FETCH_H

#include "server/worker/worker_state.h"

/* A peer asks for versions of a shard that it never got. Questions beyond WORKER_QUESTIONS are dropped,
 * and asked again. */
void worker_fetch_ask(struct worker *worker, struct worker_peer *peer, const Rowan__Fetch *asked);

/* Looks for them a bit further, and adds what is found to the peer's batch of this poll. */
bool worker_fetch_poll(struct worker *worker);

#endif
