/* worker_reply.h - answering a client, releasing its message, and finding the shard that it names: what every
 * way of a request needs. Calls no other file of the worker. */
#ifndef SERVER_WORKER_REPLY_H
#define SERVER_WORKER_REPLY_H

#include "server/worker/worker_state.h"

/* Whether the server may answer clients now. Reads the clock, unless there are no leases. */
bool worker_lease_holds(const struct worker *worker);

/* Sends a reply without a value; false when the client has no room for it. */
bool worker_reply(struct worker *worker, struct client_link *client, uint32_t operation,
                  uint32_t tag, int status, uint64_t version);

/* The same with a value, which is in iov[1] to iov[count - 1]; iov[0] is filled in here, and of `reply`
 * what every reply has. */
bool worker_reply_pieces(struct worker *worker, struct client_link *client,
                         struct message_reply *reply, struct fabric_iov *iov, unsigned count);

/* The key's slot must belong to the shard: a client with a wrong map must not plant a key here. 0 or
 * ROWAN_ENOTMINE. */
int worker_check_slot(const struct worker *worker, const struct request *request);

/* The shard a request names, if this worker may serve it: 0, ROWAN_ENOTMINE, EEPOCH, or
 * EBUSY while its logs are being reconciled, or in a poll that began without a lease. */
int worker_find_shard(struct worker *worker, const struct message_request *request,
                      struct shard_state **out);

/* What a shard that was split off has of that key in its parent, as long as that is here (server/shard/split.h); 0: nothing. For
 * whoever has not found it in the shard. */
uint64_t worker_find_in_parent(const struct worker *worker, const struct shard_state *shard,
                               uint64_t hash, const uint8_t *key, uint32_t key_bytes);

/* One writer: a plain increment, made readable by other threads. */
static inline void worker_count(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Gives a message of the client back to the fabric. */
void worker_release(struct client_link *client, uint64_t message);

#endif
