/* worker_settled.h - what all replicas of this worker's shards have settled (SettledIs, control.proto). The backups tell
 * the worker, and it tells them the lowest. Cleaning needs that: a tombstone goes when every replica has settled it.
 *
 * A figure counts in the epoch that its teller has adopted, and is of that epoch, so it covers all earlier ones. A replica
 * that was restarted, or whose PM was lost or may be incomplete, takes part in a later epoch only, for which all tell anew,
 * and tells nothing before it is reconciled. What was told cannot become untrue within an epoch: it was durable.
 */
#ifndef SERVER_WORKER_SETTLED_H
#define SERVER_WORKER_SETTLED_H

#include "server/worker/worker_state.h"

/* A backup told. From a message: everything is checked. */
void worker_settled_told(struct worker *worker, const struct worker_peer *peer,
                         const Rowan__SettledIs *told);

/* Looks for what is settled everywhere, and tells the backups. On return it is visible in `everywhere` of the shards.
 * True if anything was told. */
bool worker_settled_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

#endif
