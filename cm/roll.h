/* roll.h - the roll-call: which servers have reported for duty and wait for a configuration that
 * names them. A part of the state (state.h), as pure as it is. */
#ifndef CM_ROLL_H
#define CM_ROLL_H

#include "cm/join.h"

struct candidate {
    bool present;
    uint32_t connection;
    uint64_t heard; /* which of the reports was its last */
    struct cm_join join;
};

/* All zeros: nobody is here. */
struct roll {
    uint32_t count;   /* present ones */
    uint64_t reports; /* so far */
    uint64_t newest;  /* the first report of the candidate that came last */
    struct candidate candidates[CLUSTER_MAX_MEMBERS];
};

/* The candidate with this number; NULL: not here. */
const struct candidate *roll_find(const struct roll *roll, uint32_t server);

/* Takes the place of an earlier report by the same server, or repeats it. At most CLUSTER_MAX_MEMBERS different
 * ones. */
void roll_add(struct roll *roll, uint32_t connection, const struct cm_join *join);

/* Has everybody reported since the last one came? One that ended before, and whose connection does not tell so
 * yet, has not. */
bool roll_is_settled(const struct roll *roll);

/* They may not be there. */
void roll_remove(struct roll *roll, uint32_t server);
void roll_remove_connection(struct roll *roll, uint32_t connection);

/* The report against those of all others that are here (join_fits). */
bool roll_fits(const struct roll *roll, const struct cm_join *join, char *why, size_t why_bytes);

#endif
