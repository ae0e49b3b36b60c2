/* ids.h - client ids: which connections want one, and which ids this manager may give. A pure part of
 * the state (state.h); state.c reserves the blocks. */
#ifndef CM_IDS_H
#define CM_IDS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CM_MAX_CONNECTIONS = 4096,
    CM_CLIENT_ID_BLOCK = 1024, /* ids reserved by one change of the configuration */
};

/* So that no id is given twice though nobody knows how many of them were reserved (recovery.h), ids come in series: such a
 * manager begins the next one. Each has half of what the ones before have left: the first all below 2^31. The first block of
 * a series waits until every server has stored a configuration that is in it (proposal_may_reserve): so once one of its
 * ids is given, no server brings an earlier series any more.
 *
 * ids_series_end: the id behind the series that `next`, the first one not reserved, is in; at last UINT32_MAX. No block
 * reaches it. ids_series_is_new: none of that series is reserved. */
uint32_t ids_series_end(uint32_t next);
bool ids_series_is_new(uint32_t next);

struct ids {
    uint32_t next, end; /* ours: next up to below end */
    uint32_t wanting;   /* connections */
    uint32_t cursor;    /* the connection to serve first, so that all get their turn */
    struct {
        bool wants;
        uint32_t tag; /* of its request */
    } places[CM_MAX_CONNECTIONS];
};

/* All zeros: nobody wants one, none is ours. */

/* At most one request a connection: ids_wants must be false. */
void ids_want(struct ids *ids, uint32_t connection, uint32_t tag);
bool ids_wants(const struct ids *ids, uint32_t connection);

/* The connection has ended; it may have wanted none. */
void ids_forget(struct ids *ids, uint32_t connection);

/* Ids from `first` to below `end` are ours from now on; those left of an earlier block are given up.
 * ids_grant(ids, 0, 0) gives up all. */
void ids_grant(struct ids *ids, uint32_t first, uint32_t end);

/* Removes the next request, in turn; false if nobody waits. */
bool ids_turn(struct ids *ids, uint32_t *connection, uint32_t *tag);

/* Like ids_turn, with an id that is never given again; false also if none is ours. */
bool ids_give(struct ids *ids, uint32_t *connection, uint32_t *tag, uint32_t *id);

#endif
