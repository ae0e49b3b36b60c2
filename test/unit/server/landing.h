/* landing.h - for tests of a server as a backup, on the stage: what a sender puts into the open segment
 * of its landing zone, one entry behind the other; and what the server asks and says then. */
#ifndef TEST_UNIT_SERVER_LANDING_H
#define TEST_UNIT_SERVER_LANDING_H

#include "common/cluster/control.h"
#include "common/entry/entry.h"
#include "stage.h"

struct landing {
    struct stage *stage;
    struct puppet_conn *peer, *tool; /* server 2's worker; somebody who asks for status */
    uint64_t offset;                 /* of what lands next */
};

/* Both connect. */
struct landing landing_begin(struct stage *stage);

/* A block; returns its place. A put of counter `counter` in epoch 1, of STAGE_BACKED. An entry of commit
 * versions with that value; or of one shard. Nobody is polled. */
uint64_t landing_block(struct landing *landing, struct entry_header header, const char *key,
                       const void *value);
uint64_t landing_put(struct landing *landing, uint64_t counter);
void landing_value(struct landing *landing, const void *value, uint32_t bytes);
void landing_commit(struct landing *landing, uint16_t shard, uint64_t version);

/* The open segment is sealed; what comes lands in the next one. */
void landing_seal(struct landing *landing);

/* The next question for versions of STAGE_BACKED that the server asked its primary; false if there was
 * none. It is for these counters of epoch 1; or there is none. */
bool landing_next_fetch(struct landing *landing, uint64_t *first, uint64_t *last);
void landing_assert_fetch(struct landing *landing, uint64_t first, uint64_t last);
void landing_assert_no_fetch(struct landing *landing);

/* What a tool is told of STAGE_BACKED, by status and by a digest. */
struct landing_said {
    bool missing, busy, full;
    uint64_t commit, version, settled, segments_free, segments_used, segments_committed;
};
struct landing_said landing_ask(struct landing *landing);

/* A control message comes on the connection. */
void landing_tell(struct puppet_conn *conn, Rowan__ControlMessage *message);

#endif
