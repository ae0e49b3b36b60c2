/* leader.h - the state's part in who leads (state.c, S10). */
#ifndef CM_LEADER_H
#define CM_LEADER_H

#include "cm/state_inside.h"

/* The coordination service elected this manager, or did so no longer. */
void leader_elected(struct cm_state *state, bool elected);

/* A configuration came into force in the place of `before`, or NULL, which is still valid. */
void leader_named(struct cm_state *state, const struct cluster_config *before);

/* The stored value was read: this manager begins to lead, leads on, or resigns. */
void leader_follow(struct cm_state *state);

/* After manage_tick. */
void leader_tick(struct cm_state *state);

/* The connection's server is none that this manager knows any more, and is told why. */
void leader_dismiss(struct cm_state *state, uint32_t connection, const char *detail);

#endif
