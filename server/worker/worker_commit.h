/* worker_commit.h - spreads commit versions, and the numbers up to which clients have acknowledged their
 * answers. May call what sends to peers. */
#ifndef SERVER_WORKER_COMMIT_H
#define SERVER_WORKER_COMMIT_H

#include "server/worker/worker_state.h"

/* The shard's resolved prefix has grown: it is spread by a later worker_commit_poll. */
void worker_commit_changed(struct worker *worker, struct shard_state *shard);

/* The shard goes to another owner. */
void worker_commit_forget(struct worker *worker, struct shard_state *shard);

/* A client was forgotten by all shards: its operations below `lowest` are over. Spread likewise, in one
 * row for all of them. */
void worker_commit_client_gone(struct worker *worker, uint32_t client, uint32_t lowest);

/* A segment of the t-log was opened, in which the caller needs `bytes` (log_watch): stores the table of clients at its
 * head, for the next start of this server only. One that takes more than a third of the segment (the largest there is
 * takes less, of 4 MiB) is left out; then an older one counts, and a start keeps more records. */
void worker_commit_table(void *context, uint32_t bytes);

/* Once per poll, before worker_write_advance, which posts and fences: spreads what changed, when it
 * is time. True if entries were written; lowers *wake_ns to that time. */
bool worker_commit_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

#endif
