#include "server/worker/worker_reply.h"

#include "common/base/error.h"
#include "common/base/fault.h"

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
    if (!FAULT(NO_ROOM) && fabric_send(client->conn, iov, count) != ROWAN_EAGAIN)
        return true;
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

int worker_find_shard(struct worker *worker, const struct message_request *request,
                      struct shard_state **out)
{
    struct shard_state *shard = worker->shards[request->shard];
    if (!shard)
        return ROWAN_ENOTMINE;
    if (shard->epoch != request->epoch)
        return ROWAN_EEPOCH;
    if (atomic_load_explicit(&shard->recovering, memory_order_relaxed))
        return ROWAN_EBUSY;
    *out = shard;
    return 0;
}

int worker_check_slot(const struct worker *worker, const struct request *request)
{
    uint16_t slot = slot_of_key(request->key, request->header.key_bytes);
    const struct shard *shard = cluster_shard_of_slot(worker->config, slot);
    return shard->id == request->header.shard ? 0 : ROWAN_ENOTMINE;
}

void worker_release(struct client_link *client, uint64_t message)
{
    if (client->conn)
        fabric_message_release(client->conn, message);
}
