/* digest.h - a digest role: scans the backup log and keeps the indexes of the shards it owns. A
 * poller.
 *
 * It scans segments in the order they were posted. A sealed segment it scans to its end; the open
 * one as far as whole entries reach, so that it is never far behind. Landing never touches an
 * index.
 */
#ifndef SERVER_DIGEST_H
#define SERVER_DIGEST_H

#include <stdint.h>

#include "common/reactor/reactor.h"
#include "server/role.h"

struct digest;

/* Errors: ROWAN_ENOMEM. `common` outlives the role. */
int digest_create(struct server_common *common, uint32_t number, struct digest **out);
void digest_destroy(struct digest *digest);

poll_function digest_poll;

struct role *digest_role(struct digest *digest);

/* Entries applied since start. Any thread. */
uint64_t digest_entries(const struct digest *digest);

/* Any thread. Segments of its log from that allocation number on are not to be committed yet: they may hold what came by
 * message and is not applied (of what a replica that fills is brought, any may be at or below its settled version), or what
 * is not settled before the segment that the role scans is left. */
#define DIGEST_STORES_NOTHING UINT64_MAX
uint64_t digest_stores_from(const struct digest *digest);

/* Likewise this segment of its log, to be asked behind that: it holds a part of a long entry that came by message, and waits
 * for the rest. */
bool digest_keeps(const struct digest *digest, uint64_t segment);

/* How often it asked for versions that are missing. Any thread. */
uint64_t digest_fetches(const struct digest *digest);

#endif
