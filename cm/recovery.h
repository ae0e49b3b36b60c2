/* recovery.h - `rowan-cm --recover`: the configuration that the coordination service has lost, made anew from what the
 * servers stored of it. A pure part of the state (state.h).
 *
 * The newest one that a server brings counts, of all servers that the manager was started for. What was stored after it
 * no server had adopted, so no entry was written in it, and its epochs may be used again (server/control/
 * control_stored.c). But clients may have been told of it, and may have ids out of it: so the term rises by more than
 * there can have been changes, and client ids go on in the next series (proposal.h).
 */
#ifndef CM_RECOVERY_H
#define CM_RECOVERY_H

#include "cm/registrations.h"
#include "cm/state.h"

/* A manager cannot store as many configurations before a server adopts one: not one a microsecond in an hour. */
#define RECOVERY_TERMS (UINT64_C(1) << 32)
/* Likewise of epochs, where a shard waits: who comes back with its data may have acted on later ones than are known here. */
#define RECOVERY_EPOCHS (UINT32_C(1) << 16)

/* All zeros: nobody has brought one. */
struct recovery {
    struct cluster_config *best; /* of the highest term, with a reference; NULL: none yet */
    uint64_t brought[CLUSTER_MAX_SERVER + 1]; /* by server: the incarnation that did */
};

/* recovery_lacks: the server of this report has data, and has yet to bring the configuration of it. recovery_asks: likewise, of one that
 * has reported just now; `stored`: what it brings; NULL: nothing yet. */
bool recovery_lacks(const struct recovery *recovery, const struct cm_join *join);
bool recovery_asks(struct recovery *recovery, const struct cm_join *join,
                   struct cluster_config *stored);

/* recovery_propose: the cold start (cold.h) from the newest of them. Nobody is absent. A server with an empty PM brings
 * nothing and counts nowhere; with leases a shard that only such servers held waits, if any server can serve another one.
 * Errors, with a sentence in `why` but for the last: ROWAN_EDAMAGED (a server has data and no whole configuration, so
 * nobody can tell which was the newest), ECLUSTER (they are of two clusters), ENOTFOUND (nobody brings any; or those of
 * cold_start), EREFUSED (a server cannot be its member, or was not waited for), ETOOMANY, ENOMEM. */
int recovery_propose(const struct recovery *recovery, const struct cm_state_options *options,
                     const struct registrations *registrations, struct cluster_config **out,
                     char *why, size_t why_bytes);

#endif
