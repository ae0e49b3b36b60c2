/* worker_write.h - the way of a write: admitted, given a version, stored, sent, completed, answered. May call
 * what answers, reads, sends to peers and lists commit versions. */
#ifndef SERVER_WORKER_WRITE_H
#define SERVER_WORKER_WRITE_H

#include "server/worker/worker_state.h"

/* Takes in a put, conditional put or delete, and the message with it. False if the client has no
 * room for the refusal: then nothing happened and the message stays the caller's. */
bool worker_write(struct worker *worker, struct request *request);

/* Posts what the poll stored and added, completes what has landed. True if anything moved; lowers
 * *wake_ns while a local fence is under way. */
bool worker_write_advance(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* The client's connection has gone. */
void worker_write_forget(struct worker *worker, struct client_link *client);

/* Sends every write in flight that may not have landed at the peer to it again; of a deposed shard it notes that nothing of
 * it can land there any more (shard->cut). */
void worker_write_resend(struct worker *worker, uint32_t peer);

/* The first write in flight of the shard ends without an answer, with its completion record: its client has to be told that it
 * is in doubt. Writes that waited for it may be started or refused. */
void worker_write_give_up(struct worker *worker, struct shard_state *shard);

#endif
