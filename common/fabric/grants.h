/* grants.h - what backends share of bulk writes at the one who granted them (F10): a table of grants, and the checks
 * before one is given. What a grant is to the peer, and how it is taken back, is the backend's own.
 *
 * 1. A key names a place in the table and how often that was used: no other grant of the table ever has it. A backend
 *    whose device makes the keys takes that one instead (`give`).
 * 2. LIVE until it is revoked or its connection ends; REVOKED is told only when nothing can be written any more.
 *
 *   FREE -- grants_give --> LIVE -- taken back --> OVER -- REVOKED --> FREE
 *                             \-- not at once --> ENDING -- taken back --> OVER
 */
#ifndef FABRIC_GRANTS_H
#define FABRIC_GRANTS_H

#include "common/fabric/conn.h"

enum grant_state { GRANT_FREE, GRANT_LIVE, GRANT_ENDING, GRANT_OVER };

struct grant {
    enum grant_state state;
    uint32_t member; /* shm: of the zone, whose it is */
    uint64_t uses;
    const struct conn *conn; /* LIVE */
    struct fabric_identity peer;
    uint64_t key;
    uint64_t offset, bytes; /* in the zone's PM */
    uint64_t context;
    void *own; /* the backend's: verbs has a memory region */
};

/* Of an endpoint, NULL: none was given yet. */
struct grants {
    uint32_t ending, over; /* how many are */
    struct grant all[FABRIC_MAX_GRANTS];
};

/* The live one of the connection with that key; NULL: none. */
struct grant *grants_find(const struct conn *conn, uint64_t key);

static inline uint32_t grants_index(uint64_t key)
{
    return (uint32_t)(key % FABRIC_MAX_GRANTS);
}

/* The connection ends: all of its are taken back. */
void grants_end(const struct conn *conn);

/* Nothing is written any more under a grant that is ENDING. */
void grants_over(struct endpoint *endpoint, struct grant *grant);

static inline bool grants_wait(const struct endpoint *endpoint)
{
    return endpoint->grants && (endpoint->grants->ending > 0 || endpoint->grants->over > 0);
}

/* Does one of a server that is shut out live, or wait for its event? */
bool grants_are_of(const struct endpoint *endpoint, const struct fabric_shut_out *out);

/* REVOKED events. Asks again for those that are ENDING. */
unsigned grants_events(struct endpoint *endpoint, struct fabric_event *events, unsigned max);

/* The endpoint closes: no event comes any more. */
void grants_close(struct endpoint *endpoint);

/* --- of the ops table --- */
int grants_give(struct fabric_conn *conn, uint64_t offset, uint64_t bytes, uint64_t context,
                struct fabric_grant *out);
void grants_revoke(struct fabric_conn *conn, const struct fabric_grant *grant);

#endif
