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

/* Both connect; to a server that has started again, and is in an epoch that has not begun; or these counters land then. */
struct landing landing_begin(struct stage *stage);
struct landing landing_return(struct stage *stage);
struct landing landing_with_all(struct stage *stage, const uint64_t *counters, size_t count);
#define landing_with(stage, ...)                                                                   \
    landing_with_all(stage, (const uint64_t[]){__VA_ARGS__},                                       \
                     sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

/* A block; returns its place. A put of counter `counter` in epoch 1, of STAGE_BACKED. An entry of commit
 * versions with that value; or of one shard. Nobody is polled. */
uint64_t landing_block(struct landing *landing, struct entry_header header, const char *key,
                       const void *value);
uint64_t landing_put(struct landing *landing, uint64_t counter);
uint64_t landing_put_of(struct landing *landing, uint64_t counter, uint32_t client,
                        uint32_t operation);
void landing_value(struct landing *landing, const void *value, uint32_t bytes);
void landing_commit(struct landing *landing, uint16_t shard, uint64_t version);

/* A put of several blocks; unless it is 0, that commit version lands between its first block and its second. */
void landing_long(struct landing *landing, uint64_t version, uint32_t value_bytes,
                  uint64_t between);

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

#endif
