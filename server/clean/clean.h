/* clean.h - the clean role: takes COMMITTED segments of which little is live, copies what is live into a log of its own,
 * and makes them FREE again (paper, section 4.4; Rosenblum and Ousterhout, The design and implementation of a
 * log-structured file system, 1992). It writes checkpoints, too (store/checkpoint.h). One for each server.
 */
#ifndef SERVER_CLEAN_H
#define SERVER_CLEAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/reactor/reactor.h"
#include "server/role.h"

struct clean;

/* A segment with as many per cent of live bytes, or more, is cleaned only if there is no space at all. */
enum { CLEAN_LIVE_PERCENT = 75, CLEAN_MAX_PERCENT = 95 };

/* It does nothing before it is given shards to read (COMMAND_READ); one that has left the server it is given to be freed
 * (COMMAND_SHARD). Errors: ROWAN_ENOMEM. */
int clean_create(struct server_common *common, uint32_t live_percent, bool checkpoints,
                 struct clean **out);
void clean_destroy(struct clean *clean);

/* clean_tune: these two, from now on. Any thread. */
void clean_tune(struct clean *clean, uint32_t live_percent, bool checkpoints);
enum poll_result clean_poll(void *role, uint64_t now_ns, uint64_t *wake_ns);

/* It is asked no questions. inbox_wake: there is little space. */
struct role *clean_role(struct clean *clean);

/* Segments made free since the start. Any thread. */
uint64_t clean_segments(const struct clean *clean);

/* May tombstones that go make space soon? Any thread. */
bool clean_hopes(const struct clean *clean);

/* Checkpoints written since the start. Any thread. */
uint64_t clean_checkpoints(const struct clean *clean);

#endif
