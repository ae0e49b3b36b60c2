/* roll.h - the roll-call: which servers have reported for duty and wait for a configuration that
 * names them. A part of the state (state.h), as pure as it is. */
#ifndef CM_ROLL_H
#define CM_ROLL_H

#include "cm/join.h"

struct candidate {
    bool present;
    bool contested; /* another process has reported by this number: one of the two may have ended */
    uint32_t connection, rival; /* by which that one did */
    struct cm_join join;
};

/* All zeros: nobody is here. */
struct roll {
    uint32_t count; /* present ones */
    struct candidate candidates[CLUSTER_MAX_MEMBERS];
};

/* The candidate with this number; NULL: not here. */
const struct candidate *roll_find(const struct roll *roll, uint32_t server);

/* Takes the place of an earlier report by the same server. At most CLUSTER_MAX_MEMBERS different
 * ones. */
void roll_add(struct roll *roll, uint32_t connection, const struct cm_join *join);

/* Another process reports by the number of one that is here, which does not count until one of the two connections is
 * closed: of a process that has ended its connection may tell much later. */
void roll_contest(struct roll *roll, uint32_t server, uint32_t rival);

/* Is it here, and nobody else in its place? */
bool roll_counts(const struct roll *roll, uint32_t server);

/* They may not be there. */
void roll_remove(struct roll *roll, uint32_t server);
void roll_remove_connection(struct roll *roll, uint32_t connection);

/* The report against those of all others that are here (join_fits). */
bool roll_fits(const struct roll *roll, const struct cm_join *join, char *why, size_t why_bytes);

#endif
