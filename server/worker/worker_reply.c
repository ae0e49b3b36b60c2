#include "server/worker/worker_reply.h"

#include "common/base/error.h"
#include "common/base/fault.h"

bool worker_lease_holds(const struct worker *worker)
{
    const uint64_t lease_ns = atomic_load_explicit(&worker->common->lease_ns, memory_order_relaxed);
    return lease_ns == UINT64_MAX || clock_now_ns(worker->common->clock) < lease_ns;
}

/* A refusal tells of none: it would be the same whatever the shard holds. */
static bool tells_of_data(int status)
{
    return status == 0 ||
           (status != ROWAN_EBUSY && status != ROWAN_EEPOCH && status != ROWAN_ENOTMINE);
}

/* W13. There was no room. Perhaps that is because answers of this poll are held: they may leave if the lease holds. True:
 * it is sent. Not inline: what is rare keeps out of the way of the rest. */
static __attribute__((noinline)) bool send_again(struct worker *worker, struct client_link *client,
                                                 const struct fabric_iov *iov, unsigned count)
{
    struct fabric_endpoint *endpoint = worker->endpoint;
    if (!endpoint->holds || client->told_batch != worker->batch || !worker_lease_holds(worker))
        return false;
    endpoint->holds = false;
    const int error = fabric_send(client->conn, iov, count);
    endpoint->holds = true;
    return error != ROWAN_EAGAIN;
}

bool worker_reply_pieces(struct worker *worker, struct client_link *client,
                         struct message_reply *reply, struct fabric_iov *iov, unsigned count)
{
    if (!client->conn)
        return true; /* gone in the same batch of events that brought its request */
    reply->type = MESSAGE_REPLY;
    reply->layout = (uint8_t)client->conn->layout;
    reply->term = worker->config ? worker->config->term : 0;
    iov[0] = (struct fabric_iov){.data = reply, .bytes = sizeof *reply};
    /* A connection that broke is about to report CLOSED: then there is nobody to answer. */
    if (!FAULT(NO_ROOM) && (fabric_send(client->conn, iov, count) != ROWAN_EAGAIN ||
                            send_again(worker, client, iov, count))) {
        if (tells_of_data(reply->status)) {
            client->told_batch = worker->batch;
            worker->told = true;
        }
        return true;
    }
    worker->wasted_bytes += sizeof *reply + reply->value_bytes;
    return false;
}

bool worker_reply(struct worker *worker, struct client_link *client, uint32_t operation,
                  uint32_t tag, int status, uint64_t version)
{
    struct message_reply reply = {
        .status = (int16_t)status, .operation = operation, .tag = tag, .version = version};
    struct fabric_iov iov;
    return worker_reply_pieces(worker, client, &reply, &iov, 1);
}

/* It may be on its way here, from the digest role or from another worker, or this worker gives it back. */
static int absent(const struct worker *worker, const struct message_request *request)
{
    const struct shard *row = worker->config ? cluster_shard(worker->config, request->shard) : NULL;
    return row && row->primary == worker->common->server && row->worker == worker->number &&
                   row->epoch == request->epoch
               ? ROWAN_EBUSY
               : ROWAN_ENOTMINE;
}

/* Not inline: what is rare keeps out of the way of the rest. */
static __attribute__((noinline)) int why_not(const struct worker *worker,
                                             const struct shard_state *shard,
                                             const struct message_request *request)
{
    if (!shard)
        return absent(worker, request);
    if (shard->frozen)
        return ROWAN_ENOTMINE;
    if (shard->epoch != request->epoch)
        return request->epoch == shard->next_epoch ? ROWAN_EBUSY : ROWAN_EEPOCH;
    return !worker->lease_over && shard->deposed ? absent(worker, request) : ROWAN_EBUSY;
}

int worker_find_shard(struct worker *worker, const struct message_request *request,
                      struct shard_state **out)
{
    struct shard_state *shard = worker->shards[request->shard];
    if (!shard || shard->epoch != request->epoch || shard->frozen || worker->lease_over ||
        atomic_load_explicit(&shard->recovering, memory_order_relaxed)) {
        *out = NULL;
        return why_not(worker, shard, request);
    }
    *out = shard;
    return 0;
}

int worker_check_slot(const struct worker *worker, const struct request *request)
{
    uint16_t slot = slot_of_key(request->key, request->header.key_bytes);
    const struct shard *shard = cluster_shard_of_slot(worker->config, slot);
    return shard->id == request->header.shard ? 0 : ROWAN_ENOTMINE;
}

uint64_t worker_find_in_parent(const struct worker *worker, const struct shard_state *shard,
                               uint64_t hash, const uint8_t *key, uint32_t key_bytes)
{
    const struct shard_state *parent =
        worker->shards[atomic_load_explicit(&shard->parent, memory_order_relaxed)];
    if (!parent ||
        cluster_shard_of_slot(worker->config, slot_of_key(key, key_bytes))->id != shard->id)
        return 0;
    return index_find(parent->index, hash, key, key_bytes);
}

/* The poll's own time is late enough for what began before it. */
static uint64_t time_of_end(const struct worker *worker, uint64_t begun_ns)
{
    return begun_ns == worker->now_ns ? clock_now_ns(worker->common->clock) : worker->now_ns;
}

void worker_count_ended(struct worker *worker, int kind, uint64_t now_ns)
{
    struct ended *ended = &worker->ended[kind];
    const uint64_t begun_ns = ended->begun_ns ? ended->begun_ns : worker->now_ns;
    if (now_ns == 0)
        now_ns = time_of_end(worker, begun_ns);
    counter_add(&worker->counts.requests[kind][OUTCOME_OK], ended->count);
    if (ended->count > 0)
        latencies_add(&worker->counts.latencies[kind], now_ns - begun_ns, ended->count);
    *ended = (struct ended){0};
}

void worker_count_other(struct worker *worker, uint8_t type, enum worker_outcome outcome,
                        uint64_t begun_ns)
{
    begun_ns = begun_ns ? begun_ns : worker->now_ns;
    counter_add(&worker->counts.requests[type - 1][outcome], 1);
    if (outcome < OUTCOMES_DONE)
        latencies_add(&worker->counts.latencies[type - 1], time_of_end(worker, begun_ns) - begun_ns,
                      1);
}

enum worker_outcome worker_outcome(int status)
{
    static const enum worker_outcome outcomes[] = {
        [-ROWAN_ENOTFOUND] = OUTCOME_NOT_FOUND, [-ROWAN_EVERSION] = OUTCOME_VERSION,
        [-ROWAN_EFULL] = OUTCOME_FULL,          [-ROWAN_EACCESS] = OUTCOME_REFUSED,
        [-ROWAN_ELOGIN] = OUTCOME_REFUSED,      [-ROWAN_EREFUSED] = OUTCOME_REFUSED,
        [-ROWAN_EBUSY] = OUTCOME_BUSY,          [-ROWAN_EEPOCH] = OUTCOME_MOVED,
        [-ROWAN_ENOTMINE] = OUTCOME_MOVED,
    };
    const uint32_t error = (uint32_t)-status;
    const bool named = error < sizeof outcomes / sizeof outcomes[0] && outcomes[error];
    return status == 0 ? OUTCOME_OK : named ? outcomes[error] : OUTCOME_FAILED;
}

void worker_release(struct client_link *client, uint64_t message)
{
    if (client->conn)
        fabric_message_release(client->conn, message);
}
