/* roll.h - the roll-call: which servers have reported for duty and wait for a configuration that
 * names them. A part of the state (state.h), as pure as it is. */
#ifndef CM_ROLL_H
#define CM_ROLL_H

#include "cm/join.h"

struct candidate {
    bool present;
    uint32_t connection;
    struct cm_join join; /* its last report */
};

/* All zeros: nobody is here. */
struct roll {
    uint32_t count; /* present ones */
    uint64_t round; /* rises when one comes, and with roll_call_again */
    struct candidate candidates[CLUSTER_MAX_MEMBERS];
};

/* The candidate with this number; NULL: not here. */
const struct candidate *roll_find(const struct roll *roll, uint32_t server);

/* Takes the place of an earlier report by the same server, or repeats it. At most CLUSTER_MAX_MEMBERS different
 * ones. */
void roll_add(struct roll *roll, uint32_t connection, const struct cm_join *join);

/* Does the last report of everybody carry this round? Each was sent after the round was told, and that was after
 * the last of them had come. One that ended before has sent none, however late its older reports are read. */
bool roll_is_settled(const struct roll *roll);

/* All that was reported so far is too old to count. */
void roll_call_again(struct roll *roll);

/* They may not be there. */
void roll_remove(struct roll *roll, uint32_t server);
void roll_remove_connection(struct roll *roll, uint32_t connection);

/* The report against those of all others that are here (join_fits). */
bool roll_fits(const struct roll *roll, const struct cm_join *join, char *why, size_t why_bytes);

#endif
