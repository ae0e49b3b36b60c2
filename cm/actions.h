/* actions.h - the actions of one step of the state, added in order. Part of the state (state.h). */
#ifndef CM_ACTIONS_H
#define CM_ACTIONS_H

#include "cm/state_inside.h"

struct cm_action *actions_add(struct cm_state *state, enum cm_action_kind kind);

/* To a connection that is open; tag 0: it did not ask. */
struct cm_action *actions_answer(struct cm_state *state, enum cm_action_kind kind,
                                 uint32_t connection, uint32_t tag);

/* Strings must stay until the next step. */
void actions_refuse(struct cm_state *state, uint32_t connection, uint32_t tag, int error,
                    const char *detail);
void actions_stop(struct cm_state *state, int error, const char *detail);
void actions_warn(struct cm_state *state, const char *event, const char *detail);
void actions_tell(struct cm_state *state, const char *event, const char *detail);

/* The configuration in force, or the answer that there is none. */
void actions_configuration(struct cm_state *state, uint32_t connection, uint32_t tag);

#endif
