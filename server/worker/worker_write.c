/* The way of a write through a worker: admitted, judged (if conditional), given a version, stored
 * in the t-log, sent to every backup; and when it has landed everywhere: indexed and answered.
 *
 * Invariants:
 *  W4  Versions of a shard complete in order: all its entries take the same connections, whose
 *      blocks land in order (F1), and a resend keeps the order. So the last completed version is
 *      the end of the resolved prefix.
 *  W5  A version is taken only when nothing can refuse the write any more: t-log space is reserved,
 *      and each backup's queue has room.
 *  W6  A conditional write is judged when no write of its key is in flight; later writes of the key
 *      queue behind it.
 *  W7  Entries that have not landed at a backup never exceed WORKER_MAX_IN_FLIGHT_BYTES, so one
 *      that says "full" while it still has that much for each sender can take in what is on the way.
 *  W14 Of a shard that another server is to lead, nothing is sent again (worker_epoch.c, Z6): what was on its way over a
 *      connection that broke is in doubt from then on, and nothing of the shard completes any more.
 *  W11 A write that took effect has a record before anybody is answered, and each request is held
 *      against the records and the table first, so a retry meets its original wherever it is: it
 *      takes over the answer, or gets it again.
 *
 *  op:  WAITING --(W6)--> IN_FLIGHT --(landed everywhere)--> closed, or REPLYING --(room)--> closed
 */
#include "server/worker/worker_write.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/copy.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/worker/worker_commit.h"
#include "server/worker/worker_peer.h"
#include "server/worker/worker_read.h"
#include "server/worker/worker_reply.h"
#include "server/worker/worker_trace.h"

#define WAITS_NS NS_PER_S

/* --- admission --- */

static bool is_full(const struct server_common *common)
{
    return atomic_load_explicit(&common->full, memory_order_relaxed);
}

/* Deletes make space (H13). Where cleaning makes some the client asks again. */
static int check_space(const struct worker *worker, const struct shard_state *shard,
                       enum message_type type)
{
    const enum server_space most = type == MESSAGE_DELETE ? SPACE_SHORT : SPACE_ENOUGH;
    const struct server_common *common = worker->common;
    bool waits = atomic_load_explicit(&common->space, memory_order_relaxed) > most;
    if (!waits && !worker->peers_short)
        return 0;
    bool full = waits && is_full(common);
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        const struct worker_peer *peer = &worker->peers[shard->backups[i]];
        waits |= peer->space > most;
        full |= peer->space > most && peer->full;
    }
    return full ? ROWAN_EFULL : waits ? ROWAN_EBUSY : 0;
}

/* What a backup that takes nothing holds up must leave room for writes that it does not back. So no
 * backup may be owed more than the worker has left: one that is stopped gets half, two a third each,
 * and so on (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998). */
static int check_queues(const struct worker *worker, const struct shard_state *shard,
                        struct load more, uint32_t blocks)
{
    /* All of it may have to be sent again at once, over one connection. */
    struct load left =
        load_make(WRITE_OP_TABLE_SIZE, fabric_caps(worker->common->fabric)->max_batch_blocks,
                  WORKER_MAX_IN_FLIGHT_BYTES);
    load_subtract(&left, (struct load){worker->in_flight.parts & LOAD_COUNTS}); /* not its bytes */
    if (!load_fits(more, left))
        return ROWAN_EBUSY;
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        const struct worker_peer *peer = &worker->peers[shard->backups[i]];
        struct load owed = peer->owed;
        load_add(&owed, more);
        if (!load_fits(owed, left) || (peer->connected && fabric_rowan_room(peer->conn) < blocks))
            return ROWAN_EBUSY;
    }
    return 0;
}

/* What a write of the shard waits for, and where; of more than one, any. */
static void tell_wait(const struct worker *worker, const struct shard_state *shard)
{
    const bool here =
        atomic_load_explicit(&worker->common->space, memory_order_relaxed) != SPACE_ENOUGH;
    const char *what = here ? "space" : "room";
    uint32_t server = worker->common->server;
    uint64_t most = 0;
    for (uint32_t i = 0; !here && i < shard->backup_count; i++) {
        const struct worker_peer *peer = &worker->peers[shard->backups[i]];
        const bool is_short = peer->space != SPACE_ENOUGH;
        if (!is_short && peer->owed.parts <= most)
            continue;
        most = is_short ? UINT64_MAX : peer->owed.parts;
        what = is_short ? "space" : "landing";
        server = peer->server;
    }
    log_event(LOG_WARN, "writes_wait", "shard=%u epoch=%u server=%u for=%s", shard->id,
              shard->epoch, server, what);
}

/* A write of the shard is told to wait. Where for a while all are, the log says so: nothing else does. */
static __attribute__((noinline)) void note_wait(const struct worker *worker,
                                                struct shard_state *shard)
{
    const uint64_t version = version_make(shard->epoch, shard->counter);
    if (shard->waits_version != version || worker->now_ns > shard->waits_seen_ns + WAITS_NS) {
        shard->waits_version = version;
        shard->waits_since_ns = worker->now_ns;
        shard->waits_told = false;
    }
    shard->waits_seen_ns = worker->now_ns;
    if (shard->waits_told || worker->now_ns < shard->waits_since_ns + WAITS_NS)
        return;
    shard->waits_told = true;
    tell_wait(worker, shard);
}

static struct load load_of(const struct write_op *op)
{
    return load_make(1, op->blocks, op->bytes);
}

static int admit(struct worker *worker, const struct shard_state *shard, struct write_op *op,
                 const struct message_request *request)
{
    int error = check_space(worker, shard, request->type);
    if (error)
        return error;
    const struct entry_format *format = &worker->common->format;
    op->bytes = entry_size(format, request->key_bytes, request->value_bytes, &op->blocks);
    return check_queues(worker, shard, load_of(op), op->blocks);
}

/* --- judging --- */

/* The version the key has now goes to *version: 0 if it has no value. */
static int judge(struct worker *worker, struct shard_state *shard, uint64_t hash,
                 const struct message_request *request, const uint8_t *key, uint64_t *version)
{
    struct entry_header header;
    uint64_t offset = index_find(shard->index, hash, key, request->key_bytes);
    if (offset == 0)
        offset = worker_find_in_parent(worker, shard, hash, key, request->key_bytes);
    int error = worker_object(worker, offset, &header);
    if (error == ROWAN_EDAMAGED) {
        shard_found_damage(shard, &worker->common->damages);
        return error;
    }
    *version = error ? 0 : header.version;
    if (request->type == MESSAGE_DELETE)
        return error;
    return *version == request->expected ? 0 : ROWAN_EVERSION;
}

/* --- sending --- */

static void link_in_flight(struct worker *worker, struct shard_state *shard, struct write_op *op)
{
    if (!shard->in_flight.first)
        LIST_APPEND(&worker->active, shard, active_link);
    LIST_APPEND(&shard->in_flight, op, of_shard);
    load_add(&worker->in_flight, load_of(op));
    for (uint32_t i = 0; i < shard->backup_count; i++)
        worker_peer_owe(&worker->peers[shard->backups[i]], load_of(op));
}

/* Encodes block by block in a cached buffer, stores it in the t-log, and adds those very bytes to
 * the batch of each connected backup; one that is not connected gets them when it is (resend). */
static void send_blocks(struct worker *worker, struct shard_state *shard,
                        struct entry_header *header, const uint8_t *key, const uint8_t *value,
                        uint64_t offset)
{
    struct pm *pm = worker->common->pm;
    for (uint32_t block = 0; block < header->blocks; block++) {
        header->block = (uint16_t)block;
        uint32_t bytes =
            entry_encode_block(&worker->common->format, header, key, value, worker->staging);
        pm_store(pm, offset, worker->staging, bytes);
        for (uint32_t i = 0; i < shard->backup_count; i++) {
            struct worker_peer *peer = &worker->peers[shard->backups[i]];
            if (peer->connected)
                worker_peer_add(worker, peer, pm_at(pm, offset), bytes);
        }
        offset += bytes;
    }
    worker->stored = true;
}

static int send_entry(struct worker *worker, struct write_op *op, struct shard_state *shard,
                      const struct message_request *request, const uint8_t *key,
                      const uint8_t *value)
{
    int error = FAULT(NO_SEGMENT) ? ROWAN_EFULL : worker_reserve(worker, op->bytes, &op->offset);
    if (error)
        return error != ROWAN_EFULL || is_full(worker->common) ? error : ROWAN_EBUSY;
    op->shard = shard;
    op->key_bytes = request->key_bytes;
    op->version = version_make(shard->epoch, ++shard->counter);
    op->batch = worker->batch;
    struct entry_header header = {.type =
                                      request->type == MESSAGE_DELETE ? ENTRY_DELETE : ENTRY_PUT,
                                  .shard = shard->id,
                                  .version = op->version,
                                  .key_bytes = request->key_bytes,
                                  .value_bytes = request->value_bytes,
                                  .blocks = (uint16_t)op->blocks,
                                  .client_id = request->client_id,
                                  .operation = request->operation};
    send_blocks(worker, shard, &header, key, value, op->offset);
    op->state = WRITE_OP_IN_FLIGHT;
    link_in_flight(worker, shard, op);
    return 0;
}

/* --- ending --- */

/* Its client has the answer, or has gone. */
static void close_answered(struct worker *worker, struct write_op *op, int status)
{
    if (op->trace)
        worker_trace_answered(worker, op, status);
    write_op_close(&worker->ops, op);
}

static void close_unanswered(struct worker *worker, struct write_op *op)
{
    if (op->trace)
        worker_trace_drop(worker, op);
    write_op_close(&worker->ops, op);
}

/* The op has its outcome; its place in the table goes as soon as the client has taken the reply. */
static void finish(struct worker *worker, struct write_op *op, int status, uint64_t version)
{
    worker_count(worker, op->type, status, op->begun_ns);
    if (!op->client || worker_reply(worker, op->client, op->operation, op->tag, status, version)) {
        close_answered(worker, op, status);
        return;
    }
    op->state = WRITE_OP_REPLYING;
    op->status = status;
    op->version = version;
    worker->replying[worker->replying_count++] = op;
}

static bool reply_again(struct worker *worker)
{
    uint32_t count = worker->replying_count, kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct write_op *op = worker->replying[i];
        if (!op->client ||
            worker_reply(worker, op->client, op->operation, op->tag, op->status, op->version))
            close_answered(worker, op, op->status);
        else
            worker->replying[kept++] = op;
    }
    worker->replying_count = kept;
    return kept < count;
}

/* Judges the write and sends it, or ends it. The message may be released afterwards. */
static void start(struct worker *worker, struct write_op *op, struct shard_state *shard,
                  const struct message_request *request, const uint8_t *key, const uint8_t *value)
{
    uint64_t version = 0;
    int status = admit(worker, shard, op, request);
    if (!status && op->conditional)
        status = judge(worker, shard, op->hash, request, key, &version);
    if (!status && op->trace)
        worker_trace_begin(worker, op, shard);
    if (!status)
        status = send_entry(worker, op, shard, request, key, value);
    if (status == ROWAN_EBUSY)
        note_wait(worker, shard);
    if (status)
        finish(worker, op, status, version);
}

/* The op waits; it keeps the request's message, and a key of its own. */
static void hold(const struct worker *worker, struct write_op *op, const struct request *request)
{
    op->hint = (struct index_hint){0};
    op->message = request->message;
    op->request = request->header;
    copy_short(write_op_key(&worker->ops, op), request->key, request->header.key_bytes);
    op->value = request->value;
}

/* After a write of the key has left: those behind it that may start now. */
static void start_waiting(struct worker *worker, uint64_t hash)
{
    struct write_op *op;
    while ((op = write_op_next_waiting(&worker->ops, hash)) &&
           write_op_may_start(&worker->ops, op)) {
        struct client_link *client = op->client;
        uint64_t message = op->message;
        worker->large_waiting -= request_is_large(&op->request);
        struct shard_state *shard;
        int status = worker_find_shard(worker, &op->request, &shard);
        if (status)
            finish(worker, op, status, 0);
        else
            start(worker, op, shard, &op->request, write_op_key(&worker->ops, op), op->value);
        worker_release(client, message);
    }
}

/* True if the request is answered, by the status; then its message is released. */
static bool refuse(struct worker *worker, const struct request *request, int status,
                   uint64_t version)
{
    if (!worker_reply(worker, request->client, request->header.operation, request->header.tag,
                      status, version))
        return false;
    worker_release(request->client, request->message);
    worker_count_other(worker, request->header.type,
                       status ? worker_outcome(status) : OUTCOME_REPEATED, request->begun_ns);
    return true;
}

/* W11: the retry's client gets the answer of the original. One that waits goes on with the retry's
 * bytes, which are the same: its own lie in a connection that may be about to end. */
static bool take_over(struct worker *worker, const struct request *request)
{
    const struct message_request *header = &request->header;
    struct write_op *op =
        write_op_find(&worker->ops, request->hash, header->client_id, header->operation);
    if (!op)
        return false;
    uint64_t message = request->message;
    struct client_link *client = request->client;
    if (op->state == WRITE_OP_WAITING) {
        message = op->message;
        client = op->client;
        worker->large_waiting -= request_is_large(&op->request);
        worker->large_waiting += request_is_large(header);
        hold(worker, op, request);
    }
    write_op_take_over(op, request->client, header->tag);
    worker_release(client, message);
    return true;
}

/* W11: is the write one that was asked before? True: it is dealt with, or *held says that its answer
 * found no room. */
static bool is_retry(struct worker *worker, const struct request *request, bool *held)
{
    const struct message_request *header = &request->header;
    uint64_t version = 0;
    int verdict = FAULT(NO_MEMORY)
                      ? ROWAN_ENOMEM
                      : records_look(&request->shard->records, header->client_id, header->operation,
                                     header->lowest_unanswered, &version);
    if (verdict == RECORDS_FRESH)
        return false;
    if (verdict == RECORDS_AGAIN)
        return take_over(worker, request);
    if (verdict == RECORDS_DONE)
        verdict = 0;
    else if (verdict == RECORDS_STALE)
        verdict = ROWAN_EUNKNOWN;
    else if (verdict == ROWAN_ENOMEM)
        verdict = ROWAN_EBUSY; /* the client, who knows whether it asked before, asks again */
    *held = !refuse(worker, request, verdict, version);
    return true;
}

/* The message is kept, unless it takes a buffer that writes of other keys need. */
static void keep_waiting(struct worker *worker, struct write_op *op, const struct request *request)
{
    const bool large = request_is_large(&request->header);
    if (large && worker->large_waiting == WORKER_LARGE_WAITING) {
        struct client_link *client = op->client;
        finish(worker, op, ROWAN_EBUSY, 0);
        worker_release(client, request->message);
        return;
    }
    worker->large_waiting += large;
    hold(worker, op, request);
}

bool worker_write(struct worker *worker, struct request *request)
{
    struct client_link *client = request->client;
    bool held = false;
    /* A key that is in the index passed worker_check_slot when it got there. */
    if (!index_confirm(request->shard->index, &request->hint, request->hash, request->key,
                       request->header.key_bytes) &&
        worker_check_slot(worker, request))
        return refuse(worker, request, ROWAN_ENOTMINE, 0);
    /* Else a cold start could take this server for one that nobody has written to (cm/cold.h). Who has an id asks
     * again: the configuration that reserved it is on its way here, if it is not made up. */
    if (cluster_is_unwritten(worker->config))
        return refuse(worker, request,
                      request->header.client_id == 0 ? ROWAN_EREFUSED : ROWAN_EBUSY, 0);
    if (request->header.client_id && is_retry(worker, request, &held))
        return !held;
    /* A client that takes no answers must leave records to others, as a backup must (has_share). */
    bool fair =
        client->ops < WORKER_MAX_CLIENT_OPS && client->ops < WRITE_OP_TABLE_SIZE - worker->ops.used;
    struct write_op *op =
        fair && !FAULT(NO_ROOM) ? write_op_open(&worker->ops, request->hash, client) : NULL;
    if (!op)
        return refuse(worker, request, ROWAN_EBUSY, 0);
    op->conditional = request->header.type != MESSAGE_PUT;
    op->type = request->header.type;
    op->begun_ns = request->begun_ns ? request->begun_ns : worker->now_ns;
    op->hint = request->hint;
    op->client_id = request->header.client_id;
    op->operation = request->header.operation;
    op->tag = request->header.tag;
    if (request->arrived_ns)
        worker_trace_open(worker, op, request);
    if (!write_op_may_start(&worker->ops, op)) {
        keep_waiting(worker, op, request);
        return true;
    }
    start(worker, op, request->shard, &request->header, request->key, request->value);
    worker_release(client, request->message);
    return true;
}

void worker_write_forget(struct worker *worker, struct client_link *client)
{
    struct write_op *op;
    while ((op = client->writes.last)) { /* so that the end of one starts none of the others */
        if (op->state != WRITE_OP_WAITING) {
            write_op_forget_client(op);
            continue;
        }
        uint64_t hash = op->hash;
        worker->large_waiting -= request_is_large(&op->request);
        close_unanswered(worker, op);
        start_waiting(worker, hash);
    }
}

/* --- completion --- */

static bool is_replicated(const struct worker *worker, const struct write_op *op)
{
    if (worker->local_landed < op->batch)
        return false;
    for (uint32_t i = 0; i < op->shard->backup_count; i++) {
        if (!peer_has_landed(&worker->peers[op->shard->backups[i]], op->batch))
            return false;
    }
    return true;
}

/* W11. The room was made when the request came. If the client has been forgotten meanwhile (W10),
 * nobody asks again: nothing is kept, and no room needed. */
static void record(struct worker *worker, const struct write_op *op)
{
    if (!op->client_id || (!op->client && !clients_knows(&worker->known, op->client_id)))
        return;
    (void)records_add(&op->shard->records, op->client_id, op->operation, op->version);
}

static void unlink_in_flight(struct worker *worker, struct shard_state *shard, struct write_op *op)
{
    load_subtract(&worker->in_flight, load_of(op));
    LIST_REMOVE(&shard->in_flight, op, of_shard);
    if (!shard->in_flight.first)
        LIST_REMOVE(&worker->active, shard, active_link);
}

void worker_write_give_up(struct worker *worker, struct shard_state *shard)
{
    struct write_op *op = shard->in_flight.first;
    const uint64_t hash = op->hash;
    record(worker, op);
    unlink_in_flight(worker, shard, op);
    close_unanswered(worker, op);
    start_waiting(worker, hash);
}

/* False if the index had no memory: the op stays, and with it all higher versions of its shard. */
static bool complete(struct worker *worker, struct write_op *op)
{
    struct shard_state *shard = op->shard;
    uint64_t previous;
    const struct entry_header header = {.key_bytes = op->key_bytes};
    const uint8_t *key = entry_key_in_place(&worker->common->format, &header,
                                            pm_at(worker->common->pm, op->offset), worker->key);
    if (FAULT(NO_MEMORY) ||
        index_update_hinted(shard->index, op->hint, op->hash, key, op->key_bytes, op->version,
                            op->offset, &previous) < 0) {
        worker->stuck = true;
        return false;
    }
    if (op->trace)
        worker_trace_indexed(worker, op);
    live_indexed(shard->live, op->offset, previous);
    ASSERT(shard->in_flight.first == op);
    unlink_in_flight(worker, shard, op);
    ASSERT(op->version > atomic_load_explicit(&shard->version, memory_order_relaxed));
    atomic_store_explicit(&shard->version, op->version, memory_order_relaxed);
    worker_commit_changed(worker, shard);
    uint64_t hash = op->hash;
    record(worker, op);
    finish(worker, op, 0, op->version);
    if (write_op_has_others(&worker->ops, hash))
        start_waiting(worker, hash);
    return true;
}

static bool complete_landed(struct worker *worker)
{
    bool any = false;
    worker->stuck = false;
    for (struct shard_state *shard = worker->active.first, *next; shard; shard = next) {
        next = shard->active_link.next; /* what begins meanwhile comes behind it */
        /* What was not sent again over a newer connection may have landed there, or not. */
        struct write_op *op = shard->cut ? NULL : shard->in_flight.first;
        while (op && is_replicated(worker, op) && complete(worker, op)) {
            any = true;
            op = shard->in_flight.first;
        }
    }
    return any;
}

static bool advance_fences(struct worker *worker)
{
    /* With the ring full, a later poll's fence covers these stores too. */
    if (worker->stored && worker->fence_count < WORKER_FENCES) {
        worker->stored = false;
        uint32_t slot = (worker->fence_first + worker->fence_count++) % WORKER_FENCES;
        worker->fences[slot] =
            (struct local_fence){worker->batch, pm_fence_start(worker->common->pm)};
    }
    bool any = false;
    while (worker->fence_count) {
        const struct local_fence *fence = &worker->fences[worker->fence_first];
        if (!server_fenced(worker->common, fence->ticket))
            break;
        worker->local_landed = fence->batch;
        worker->fence_first = (worker->fence_first + 1) % WORKER_FENCES;
        worker->fence_count--;
        any = true;
    }
    return any;
}

bool worker_write_advance(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    worker_trace_look(worker);
    bool any = complete_landed(worker);
    any |= reply_again(worker);
    /* Completions may have started writes that waited: post after them. */
    worker_peer_post(worker);
    any |= advance_fences(worker);
    worker_trace_look(worker);
    /* The PM wakes one thread when a fence is done, which need not be this one. */
    if (worker->fence_count)
        wake_at(wake_ns, now_ns + WORKER_FENCE_LOOK_NS);
    if (worker->stuck)
        wake_at(wake_ns, now_ns + WORKER_MEMORY_NS);
    return any;
}

void worker_write_resend(struct worker *worker, uint32_t peer_position)
{
    struct worker_peer *peer = &worker->peers[peer_position];
    const struct entry_format *format = &worker->common->format;
    for (struct shard_state *shard = worker->active.first; shard; shard = shard->active_link.next) {
        if (!backs(shard, peer_position))
            continue;
        if (shard->deposed && shard->in_flight.last->batch > peer->landed) {
            shard->cut |= UINT64_C(1) << peer_position;
            continue;
        }
        for (struct write_op *op = shard->in_flight.first; op; op = op->of_shard.next) {
            if (op->batch <= peer->landed)
                continue;
            const uint8_t *at = pm_at(worker->common->pm, op->offset);
            struct entry_header header;
            entry_peek(at, &header);
            worker_peer_sends_from(worker, op->offset);
            for (uint32_t block = 0; block < op->blocks; block++) {
                uint32_t bytes =
                    entry_block_bytes(format, header.key_bytes, header.value_bytes, block);
                worker_peer_add(worker, peer, at, bytes);
                at += bytes;
            }
            worker_peer_owe(peer, load_of(op));
            op->batch = worker->batch;
            worker->stored = true; /* so that the local fence reaches this batch too */
        }
    }
}
