/* refusal.h - why a server may not join, as a sentence that says what to do. Pure. */
#ifndef CM_REFUSAL_H
#define CM_REFUSAL_H

#include "cm/registrations.h"
#include "cm/state.h"

/* The configuration names another incarnation, and there is none to wait for: this process serves an older one, or was
 * about to. */
extern const char refusal_replaced[];

/* The next two may be so for a moment only, because a connection tells of the end of its process late. Who is
 * refused for them with ROWAN_EAGAIN reports again.
 *
 * While other servers keep running there is no cold start to wait for. */
extern const char refusal_restarted[];

/* Another process with this number waits. */
extern const char refusal_taken[];

/* ROWAN_EAGAIN or, for good, ROWAN_EREFUSED. A server that brings no data to a cluster with data is not put off: it is
 * no process of the cluster that came back too early, and would wait until all others stop, to take the place and the
 * replicas of the one that has the data. `config`: in force; NULL: none. */
int refusal_error(const char *why, const struct cluster_config *config, bool has_data);

/* What a report is judged by. */
struct refusal_case {
    const struct cm_state_options *options;
    const struct cluster_config *config; /* in force; NULL: none */
    const struct registrations *registrations;
    uint32_t here;       /* members that are here by their incarnation in force */
    uint32_t connection; /* that the report came by */
    const struct cm_join *join;
};

/* The server's Join names the incarnation that `config` (NULL: none) names. */
bool refusal_is_member(const struct cluster_config *config, uint32_t server, uint64_t incarnation);

/* Why the server can be no member after a cold start from `config`; NULL: it can. Whether it is a
 * replica of anything is the cold start's business. */
const char *refusal_unfit(const struct cluster_config *config, const struct cm_join *join);

/* NULL: it may join, as a member if refusal_is_member, else to wait. A sentence with figures in it
 * stands in `detail`. */
const char *refusal_of(const struct refusal_case *of, char *detail, size_t detail_bytes);

#endif
