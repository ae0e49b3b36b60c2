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

/* Not inline: what is rare keeps out of the way of the rest. */
enum worker_outcome worker_outcome_of_error(int status);

static inline enum worker_outcome worker_outcome(int status)
{
    return status ? worker_outcome_of_error(status) : OUTCOME_OK;
}

/* A request of that type has its outcome. `begun_ns`: `now_ns` of the poll that took it, 0: of this one. What begins and ends
 * in one poll is dated when that ends. */
static inline void worker_count(struct worker *worker, uint8_t type, enum worker_outcome outcome,
                                uint64_t begun_ns)
{
    struct worker_counts *counts = &worker->counts;
    counter_add(&counts->requests[type - 1][outcome], 1);
    if (outcome >= OUTCOMES_DONE)
        return;
    if (begun_ns == 0 || begun_ns == worker->now_ns)
        worker->ended[type - 1]++;
    else
        latencies_add(&counts->latencies[type - 1], worker->now_ns - begun_ns, 1);
}

/* Gives a message of the client back to the fabric. */
void worker_release(struct client_link *client, uint64_t message);

#endif
