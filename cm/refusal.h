/* refusal.h - why a server may not join, as a sentence that says what to do. Pure. */
#ifndef CM_REFUSAL_H
#define CM_REFUSAL_H

#include "cm/state.h"

/* What is in force here may be old, so nothing is decided on it: ROWAN_ENOTLEADING, and the peer asks another manager. */
extern const char refusal_not_leading[];

/* Other servers keep running, so there is no cold start to wait for. */
extern const char refusal_restarted[];

/* The stored value is older than what somebody has acted on, or another cluster's. */
extern const char refusal_gone_back[];

/* ROWAN_EINCOMPATIBLE, for what it brings: a manager that made the cluster from less would lose what was written since. */
extern const char refusal_unread[];

/* ROWAN_ENOTLEADING, ROWAN_EREMOVED (the server's next process may come), ROWAN_EAGAIN or, for good, ROWAN_EREFUSED. Without
 * leases a server that brings no data to a cluster with data is refused for good: otherwise it would wait until the others
 * stop, and take the place of the server that has the data. With leases it may be filled. `config`: in force; NULL: none. */
int refusal_error(const char *why, const struct cluster_config *config, bool has_data);

/* The server's Join names the incarnation that `config` (NULL: none) names, and that is not kept only. */
bool refusal_is_member(const struct cluster_config *config, uint32_t server, uint64_t incarnation);

/* Why a process that was a member, or is a kept one still, is none any more: it was removed, or, also where nothing is in force (NULL),
 * another incarnation is named. */
const char *refusal_gone(const struct cluster_config *config, uint32_t server,
                         uint64_t incarnation);

/* Why the server can be no member after a cold start from `config` or, with leases, be added to it; NULL: it can. Whether it is
 * a replica of anything is the business of cold.h and fill.h. */
const char *refusal_unfit(const struct cm_state_options *options,
                          const struct cluster_config *config, const struct cm_join *join);

/* NULL: who reports so by that connection may join, as a member if refusal_is_member, else to wait. A sentence with figures in
 * it stands in `detail` of the state. */
const char *refusal_of(struct cm_state *state, uint32_t connection, const struct cm_join *join);

#endif
