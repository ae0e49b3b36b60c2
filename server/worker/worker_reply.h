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

/* The shard a request names, if this worker may serve it; else NULL, and ROWAN_ENOTMINE, EEPOCH, or EBUSY while its logs are
 * being reconciled, or in a poll that began without a lease. */
int worker_find_shard(struct worker *worker, const struct message_request *request,
                      struct shard_state **out);

/* What a shard that was split off has of that key in its parent, as long as that is here (server/shard/split.h); 0: nothing. For
 * whoever has not found it in the shard. */
uint64_t worker_find_in_parent(const struct worker *worker, const struct shard_state *shard,
                               uint64_t hash, const uint8_t *key, uint32_t key_bytes);

/* A request of that type is answered. `begun_ns`: `now_ns` of the poll that took it, 0: of this one. What ended well, most of
 * all, is put together: worker_count_ended counts and dates operations of a kind that did so one after the other, and began
 * together, as of `now_ns` (0: it looks itself). Not inline: what is rare keeps out of the way of the rest. */
void worker_count_ended(struct worker *worker, int kind, uint64_t now_ns);
void worker_count_other(struct worker *worker, uint8_t type, enum worker_outcome outcome,
                        uint64_t begun_ns);
enum worker_outcome worker_outcome(int status);

static inline void worker_count(struct worker *worker, uint8_t type, int status, uint64_t begun_ns)
{
    struct ended *ended = &worker->ended[type - 1];
    if (status) {
        worker_count_other(worker, type, worker_outcome(status), begun_ns);
        return;
    }
    if (ended->begun_ns != begun_ns) {
        worker_count_ended(worker, type - 1, 0);
        ended->begun_ns = begun_ns;
    }
    ended->count++;
}

/* Gives a message of the client back to the fabric. */
void worker_release(struct client_link *client, uint64_t message);

#endif
