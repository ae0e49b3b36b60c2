/* manage.h - what the state does in time where the configuration in force has leases: grants them, takes over from another
 * manager, removes members that are silent, commits, and adds members and replicas. Part of the state (state.h); without leases it only answers renewals
 * with no.
 */
#ifndef CM_MANAGE_H
#define CM_MANAGE_H

#include "cm/state_inside.h"

/* CM_EVENT_RENEW, which manage_tick answers, CM_EVENT_ADOPTED, CM_EVENT_FILLED, and CM_EVENT_PLAN, which manage_plan_answer
 * does. */
void manage_renewed(struct cm_state *state, const struct cm_event *event);
void manage_adopted(struct cm_state *state, const struct cm_event *event);
void manage_filled(struct cm_state *state, const struct cm_event *event);
void manage_planned(struct cm_state *state, const struct cm_event *event);

/* Answers the plans that are in force, or refused. The manager leads. manage_plan_forget: none waits of this connection. */
void manage_plan_answer(struct cm_state *state);
void manage_plan_forget(struct cm_state *state, uint32_t connection);

/* CM_EVENT_TIME. */
void manage_tick(struct cm_state *state);

/* The member of this connection has reported. */
void manage_joined(struct cm_state *state, uint32_t connection, bool serves);

/* The connection is about to be forgotten. */
void manage_closed(struct cm_state *state, uint32_t connection);

/* `before` (NULL: none) was in force, what is in force now was stored since. True: it removed or added members or replicas, and
 * the log tells of it. */
bool manage_installed(struct cm_state *state, const struct cluster_config *before);

/* After each event: logs who is silent, and commits if it may. */
void manage_commit(struct cm_state *state);

/* True: `out` is due before anything else is proposed. This manager leads and has leases in force. */
bool manage_propose(struct cm_state *state, struct proposal *out);

/* CM_EVENT_LOAD; and the part of manage_propose that moves shards by it. */
void manage_loaded(struct cm_state *state, const struct cm_event *event);
bool manage_balance_propose(struct cm_state *state, struct proposal *out);

/* The parts of manage_propose that do what is planned (manage_plan.c), and that of it and of manage_installed that adds members and replicas (manage_fill.c). */
bool manage_plan_propose(struct cm_state *state, struct proposal *out);
bool manage_fill_propose(struct cm_state *state, struct proposal *out);
bool manage_fill_installed(struct cm_state *state, const struct cluster_config *before);

/* As wake_ns of the output. */
uint64_t manage_wake(const struct cm_state *state);

#endif
