/* A worker. A poll takes up to 128 events, walks the requests among them in stages (hash and bucket
 * prefetch, entry prefetch, serve) so that cache misses overlap, then posts one batch to each backup
 * and completes what has landed. Reads are answered at once from the index, straight from the log;
 * writes take their way through worker_write.c.
 * This file is the uppermost layer (worker_state.h): what an event means to the others is decided here.
 *
 * Invariants:
 *  W1  Only the worker that owns a shard hands out its versions, and its index is written by no
 *      other role.
 *  W2  A read sees only entries that are on all replicas: the index is updated by completions, and
 *      by a start before the shard is served (worker_reconcile.c).
 *  W3  A request is refused before any data is touched, or it is carried out; nothing in between.
 *  W12 Offsets are followed between reclaim_enter and reclaim_leave of a poll. What is kept beyond it is held: what Fetch
 *      asks for. Uncommitted suffixes need not be: what they name is not cleaned before they are reconciled (digest.c, D6). Batches on their way are not: they wait for
 *      peers that may wait for this server's space. Their bytes are safe because their segment is not committed: not that
 *      of writes in flight, as their versions are not settled, and no other from worker_sends_from on.
 *  W13 An answer that tells of data (a value, its absence, a conflict, a write that is done) leaves if the lease held after
 *      it was put together, by a clock read after that: a process may have been stopped between the begin of its poll and
 *      its look at the data, and another server may lead the shard by now. Without a lease what was put together in this
 *      poll is dropped with its connections, and the clients ask again; nothing is looked at for a request that comes
 *      when the lease is over. What goes to backups needs no lease.
 *  W17 Over shm a client may change its request at any time. The header that is checked is a copy (proto/message.c). So is the key
 *      of a write, or the index would have it by another key than the log and the backups; of a client that may not do everything,
 *      which its user's prefix is held against; and of a request that is held, which is judged anew each time. Of a value nothing is
 *      judged.
 */
#include "server/worker/worker.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/copy.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/worker/worker_client.h"
#include "server/worker/worker_commit.h"
#include "server/worker/worker_epoch.h"
#include "server/worker/worker_fetch.h"
#include "server/worker/worker_fill.h"
#include "server/worker/worker_peer.h"
#include "server/worker/worker_read.h"
#include "server/worker/worker_reconcile.h"
#include "server/worker/worker_reply.h"
#include "server/worker/worker_settled.h"
#include "server/worker/worker_split.h"
#include "server/worker/worker_trace.h"
#include "server/worker/worker_write.h"

/* --- events --- */

/* W17. Not inline: gets keep out of its way. */
static __attribute__((noinline)) void own_key(struct worker *worker, struct request *request)
{
    const bool taken = request >= worker->taken && request < worker->taken + WORKER_EVENTS;
    uint8_t *place = taken ? worker->taken_keys[request - worker->taken] : worker->held_key;
    const uint32_t bytes = request->header.key_bytes;
    copy_short(place, request->value - bytes, bytes);
    request->key = place;
    request->hash = index_hash(place, bytes);
}

/* W14, W17. Not inline: what is rare keeps out of the way of the rest. */
static __attribute__((noinline)) void limit(struct worker *worker, struct request *request)
{
    own_key(worker, request);
    const int error = worker_client_allow(worker, request->client, request);
    if (!error)
        return;
    request->status = error;
    request->shard = NULL;
}

/* Which shard a request is for, if its client may send it. */
static void resolve(struct worker *worker, struct request *request)
{
    request->status = worker_find_shard(worker, &request->header, &request->shard);
    if (request->client->limited)
        limit(worker, request);
}

/* It logs in; or it is garbage, which ends its connection and nothing else. */
static __attribute__((noinline)) void client_no_request(struct worker *worker,
                                                        struct client_link *client,
                                                        const struct fabric_event *event)
{
    if (message_type(event->data, event->bytes) == MESSAGE_CONTROL) {
        worker_client_control(worker, client, event);
        return;
    }
    log_event(LOG_WARN, "client_garbage", "worker=%u bytes=%u", worker->number, event->bytes);
    worker_client_mark(worker, client);
}

static void client_message(struct worker *worker, struct client_link *client,
                           const struct fabric_event *event, uint64_t now_ns)
{
    struct request *request = &worker->taken[worker->taken_count];
    if (!message_parse_request(event->data, event->bytes, &request->header, &request->key,
                               &request->value) ||
        !worker_client_may_ask(client, &request->header)) {
        client_no_request(worker, client, event);
        return;
    }
    worker->taken_count++;
    request->client = client;
    request->message = event->message;
    request->refused = false;
    request->arrived_ns = worker_trace_choose(worker, now_ns);
    if (worker->shares_messages && request->header.type != MESSAGE_GET) { /* W17 */
        uint8_t *place = worker->taken_keys[request - worker->taken];
        copy_short(place, request->key, request->header.key_bytes);
        request->key = place;
    }
    request->hash = index_hash(request->key, request->header.key_bytes);
    resolve(worker, request);
    request->bucket = request->shard ? index_prefetch(request->shard->index, request->hash) : NULL;
}

/* False: it is no message of a peer, which has lost its connection for it. */
static bool peer_message(struct worker *worker, struct worker_peer *peer,
                         const struct fabric_event *event, uint64_t now_ns)
{
    Rowan__ControlMessage *message;
    uint32_t tag;
    int error = control_decode(event->data, event->bytes, &tag, &message);
    fabric_message_release(event->conn, event->message);
    if (error) {
        log_event(LOG_WARN, "peer_garbage", "worker=%u server=%u error=%s", worker->number,
                  peer->server, error_name(error));
        if (error != ROWAN_EFORMAT) /* there is no memory to read it: it is asked for again */
            return true;
        worker_peer_break(worker, peer, error, now_ns);
        return false;
    }
    if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SPACE_IS) {
        const Rowan__SpaceIs *is = message->space_is;
        peer->space = is->none ? SPACE_NONE : is->full ? SPACE_SHORT : SPACE_ENOUGH;
        peer->full = is->full && !is->cleaning;
        worker->peers_short = false;
        for (uint32_t i = 0; i < worker->peer_count; i++)
            worker->peers_short |= worker->peers[i].space != SPACE_ENOUGH;
    } else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_FETCH)
        worker_fetch_ask(worker, peer, message->fetch);
    else if (message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SETTLED_IS)
        worker_settled_told(worker, peer, message->settled_is);
    else if (!worker_fetch_answered(worker, peer, tag, message) &&
             !worker_fill_answered(worker, peer, tag, message, now_ns))
        worker_reconcile_message(worker, peer, tag, message, now_ns);
    control_free(message);
    return true;
}

static void peer_ended(struct worker *worker, struct worker_peer *peer)
{
    worker_reconcile_peer_down(worker, peer);
    worker_fill_peer_down(worker, peer);
}

static void peer_event(struct worker *worker, const struct fabric_event *event, uint64_t now_ns)
{
    struct worker_peer *peer = event->conn->user;
    switch (worker_peer_event(worker, event, now_ns)) {
    case PEER_UP:
        worker_write_resend(worker, (uint32_t)(peer - worker->peers));
        break;
    case PEER_DOWN:
        peer_ended(worker, peer);
        break;
    case PEER_MESSAGE:
        if (!peer_message(worker, peer, event, now_ns))
            peer_ended(worker, peer);
        break;
    case PEER_NO_NEWS:
        break;
    }
}

static void handle_event(struct worker *worker, const struct fabric_event *event, uint64_t now_ns)
{
    if (event->kind == FABRIC_ACCEPTED) {
        worker_client_accepted(worker, event->conn,
                               event->peer.kind == FABRIC_CLIENT ? event->peer.id : 0);
        return;
    }
    const enum link_kind *kind = event->conn->user;
    if (!kind)
        return; /* closed: there was no memory for it when it was accepted, or it brought garbage */
    struct client_link *client = event->conn->user;
    if (*kind == LINK_PEER) {
        peer_event(worker, event, now_ns);
    } else if (event->kind == FABRIC_CLOSED) {
        client->conn = NULL;
        worker_client_mark(worker, client);
    } else if (event->kind == FABRIC_MESSAGE && !client->closing) {
        client_message(worker, client, event, now_ns);
    }
}

/* --- requests --- */

/* One in WORKER_SAMPLE on average, at random: clients' batches may have a rhythm. */
static void sample(struct worker *worker, const struct request *request)
{
    worker->sample_random = worker->sample_random * 1664525 + 1013904223; /* Numerical Recipes */
    worker->sample_in = worker->sample_random % (2 * WORKER_SAMPLE);
    work_sample(&request->shard->work, request->hash, request->key, request->header.key_bytes);
}

/* False if the client has no room for the reply: the request is to be kept. */
static bool serve(struct worker *worker, struct request *request)
{
    const struct message_request *header = &request->header;
    const int status = request->status;
    if (!status) {
        work_add(&request->shard->work, header->type == MESSAGE_GET ? WORK_GET : WORK_WRITE);
        if (worker->sample_in-- == 0)
            sample(worker, request);
    }
    if (!status && header->type != MESSAGE_GET)
        return worker_write(worker, request);
    bool answered =
        status ? worker_reply(worker, request->client, header->operation, header->tag, status, 0)
               : worker_read(worker, request);
    if (answered && status)
        worker_count(worker, header->type, status, request->begun_ns);
    if (answered && !request->refused)
        worker_release(request->client, request->message);
    return answered;
}

/* The same, but behind what the client has already found no room for in this poll. */
static bool serve_in_turn(struct worker *worker, struct request *request)
{
    struct client_link *client = request->client;
    if (client->blocked_batch == worker->batch)
        return false;
    if (serve(worker, request))
        return true;
    client->blocked_batch = worker->batch;
    return false;
}

/* Keeps a request whose answer found no room; but no buffer that others need for a client that does
 * not read, and nothing of a guest. */
static void keep(struct worker *worker, struct request *request)
{
    if (request->client->conn && request->client->conn->guest)
        worker_client_mark(worker, request->client);
    if (request_is_large(&request->header)) {
        worker_release(request->client, request->message);
        request->refused = true;
        request->status = ROWAN_EBUSY;
    }
    ASSERT(worker->held_count < WORKER_HELD + WORKER_EVENTS);
    struct request *held = &worker->held[worker->held_count++];
    *held = *request;
    if (held->begun_ns == 0)
        held->begun_ns = worker->now_ns;
    request->client->held++;
}

static void serve_arrived(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->taken_count; i++) {
        struct request *request = &worker->taken[i];
        if (request->bucket)
            request->hint =
                index_prefetch_entry(request->shard->index, request->bucket, request->hash);
    }
    for (uint32_t i = 0; i < worker->taken_count; i++) {
        struct request *request = &worker->taken[i];
        if (!serve_in_turn(worker, request))
            keep(worker, request);
    }
    worker->requests += worker->taken_count;
    worker->taken_count = 0;
}

/* Whether there is room by now can only be found by putting the answer together, a mebibyte of it
 * maybe. So that clients that do not read cost the others little, a poll spends WORKER_WASTE on it; a
 * round goes on in the next ones, until each client was tried once. */
static bool may_try(struct worker *worker, struct client_link *client, bool *all)
{
    if (client->blocked_batch == worker->batch)
        return false;
    if (client->tried_round != worker->round && worker->wasted_bytes < WORKER_WASTE)
        return true;
    *all &= client->tried_round == worker->round;
    client->blocked_batch = worker->batch; /* its newer requests wait, too */
    return false;
}

/* Requests whose answer found no room, each client's oldest first. True if one was answered. */
static bool serve_held(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    uint32_t count = worker->held_count, kept = 0;
    bool all = true;
    worker->wasted_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct request *request = &worker->held[i];
        struct client_link *client = request->client;
        bool tries = may_try(worker, client, &all);
        if (tries && !request->refused) {
            own_key(worker, request);
            resolve(worker, request);
            request->hint = (struct index_hint){0};
        }
        if (tries && serve_in_turn(worker, request)) {
            client->held--;
            continue;
        }
        if (tries)
            client->tried_round = worker->round;
        worker->held[kept++] = *request;
    }
    worker->held_count = kept;
    worker->round += all;
    if (!all)
        wake_at(wake_ns, now_ns + WORKER_ROUND_NS);
    return kept < count;
}

/* --- notes from the control role --- */

static void adopt_config(struct worker *worker, struct cluster_config *config)
{
    struct cluster_config *before = worker->config;
    worker->config = config;
    worker_client_users(worker);
    fabric_endpoint_guests(worker->endpoint, config->users && config->users->required);
    worker_epoch_adopt(worker, before);
    cluster_release(before);
}

/* What lies in the segment is made durable before the control role can see it as closed (G3): its fences are no fences of this thread. */
static void close_segment(void *context)
{
    struct worker *worker = context;
    worker_peer_log_closes(worker);
    (void)pm_fence_start(worker->common->pm);
    worker_epoch_close(worker);
}

static void adopt_shard(struct worker *worker, struct shard_state *shard, uint64_t now_ns)
{
    ASSERT(shard->primary && worker->config);
    if (!worker->log_ready) {
        log_init(&worker->log, worker->common->store, OWNER_WORKER, worker->number);
        log_watch(&worker->log, close_segment, worker_commit_table, worker);
        worker->log_ready = true;
    }
    worker->shards[shard->id] = shard;
    worker_client_recall(worker, shard, now_ns);
    if (worker->config->lease_ms) {
        worker_epoch_own(worker, shard);
        return;
    }
    worker_peer_resolve(worker, shard);
    if (atomic_load_explicit(&shard->recovering, memory_order_relaxed))
        worker_reconcile_begin(worker, shard);
}

static void execute_commands(struct worker *worker, uint64_t now_ns)
{
    struct command command;
    const bool all = atomic_load_explicit(&worker->common->handed_out, memory_order_acquire);
    while (command_pop(&worker->role.inbox, &command)) {
        if (role_take(&worker->role, &command))
            continue;
        if (command.kind == COMMAND_CONFIG) {
            adopt_config(worker, command.config);
        } else if (command.kind == COMMAND_SHARD) {
            adopt_shard(worker, command.shard, now_ns);
        } else if (command.kind == COMMAND_SETTLED) {
            worker->settled_news = true;
        } else if (command.kind == COMMAND_COMMITTED) {
            worker_epoch_committed(worker, command.term);
            worker_peer_committed(worker, command.term, now_ns);
        } else {
            ASSERT(command.kind == COMMAND_QUERY);
            query_begin(&worker->queries, command.query, worker->shards[command.query->shard]);
        }
    }
    worker->has_all = all;
}

/* --- the role --- */

/* W12 */
static uint64_t held(struct worker *worker)
{
    if (!worker->has_all)
        return reclaim_since(&worker->reclaim);
    const uint64_t fetch = worker_fetch_held(worker), fill = worker_fill_held(worker);
    return fetch < fill ? fetch : fill;
}

/* W13 */
static void begin_lease(struct worker *worker, uint64_t now_ns)
{
    const uint64_t lease_ns = atomic_load_explicit(&worker->common->lease_ns, memory_order_relaxed);
    worker->lease_over = now_ns >= lease_ns;
    worker->endpoint->holds = lease_ns != UINT64_MAX;
}

/* W13. What of this poll may not leave is gone before the flush. True: there was some. */
static bool check_lease(struct worker *worker)
{
    const bool cut = worker->told && !worker_lease_holds(worker);
    worker->told = false;
    if (cut)
        worker_client_cut(worker);
    return cut;
}

/* The clock is read once for all that ended in this poll. */
static void count_latencies(struct worker *worker)
{
    uint64_t now_ns = 0;
    for (int kind = 0; kind < WORKER_KINDS; kind++) {
        if (worker->ended[kind].count == 0)
            continue;
        if (now_ns == 0)
            now_ns = clock_now_ns(worker->common->clock);
        worker_count_ended(worker, kind, now_ns);
    }
    counter_set(&worker->counts.in_flight, worker->in_flight.parts & LOAD_OPS);
}

enum poll_result worker_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct worker *worker = role;
    worker->now_ns = now_ns;
    worker->epoch = reclaim_enter(&worker->common->reclaim, &worker->reclaim);
    worker_peer_poll_begins(worker);
    worker_trace_tune(worker);
    begin_lease(worker, now_ns);
    execute_commands(worker, now_ns);
    worker_peer_poll(worker, now_ns, wake_ns);
    worker->batch++;
    worker_client_reap(worker, now_ns); /* those that were cut, while their messages are there */

    struct fabric_event events[WORKER_EVENTS];
    unsigned count =
        fabric_poll(worker->endpoint, now_ns, events, FAULT(SHORT_BATCH) ? 1 : WORKER_EVENTS);
    server_watch(worker->common, worker->endpoint);
    for (unsigned i = 0; i < count; i++)
        handle_event(worker, &events[i], now_ns);
    /* After the fabric's poll, which may have made room without an event. */
    bool busy = serve_held(worker, now_ns, wake_ns);
    if (worker->role.part)
        busy |= recover_help(&worker->role.part, now_ns, wake_ns);
    const bool clients = worker->taken_count > 0;
    serve_arrived(worker);
    worker_client_bound(worker);

    /* Before the post and the fence: the end of a client may start writes that waited for it. */
    worker_client_reap(worker, now_ns);
    busy |= worker_client_forget(worker, now_ns, wake_ns);
    busy |= worker_client_answer(worker);
    busy |= worker_epoch_depose(worker, now_ns, wake_ns);
    busy |= worker_reconcile_poll(worker, now_ns, wake_ns);
    busy |= worker_fill_poll(worker, clients, now_ns, wake_ns);
    busy |= worker_split_poll(worker, clients, now_ns, wake_ns);
    busy |= worker_fetch_poll(worker, now_ns, wake_ns);
    busy |= worker_settled_poll(worker, now_ns, wake_ns);
    busy |= worker_commit_poll(worker, now_ns, wake_ns);
    busy |= worker_write_advance(worker, now_ns, wake_ns);
    busy |= worker_epoch_poll(worker);
    busy |= command_answer(&worker->queries, &worker->role.outbox, worker->common);
    busy |= check_lease(worker);
    count_latencies(worker);
    fabric_flush(worker->endpoint);
    worker_peer_poll_ends(worker);
    reclaim_leave(&worker->reclaim, held(worker));
    return busy || count ? POLL_BUSY : POLL_IDLE;
}

/* A client of another cluster, left over from before this one had its addresses, must not think that
 * this is still its own. */
static int admit(void *context, const struct fabric_identity *peer)
{
    const struct worker *worker = context;
    if (worker->config && peer->cluster != 0 && peer->cluster != worker->config->cluster)
        return ROWAN_ECLUSTER;
    if (peer->kind != FABRIC_CLIENT) /* servers and CMs have nothing to say to a worker */
        return ROWAN_EREFUSED;
    bool is_new = peer->id && !clients_knows(&worker->known, peer->id);
    return is_new && clients_full(&worker->known) ? ROWAN_ETOOMANY : 0;
}

int worker_create(struct server_common *common, uint32_t number, struct worker **out)
{
    struct worker *worker = aligned_alloc(64, (sizeof *worker + 63) / 64 * 64);
    if (!worker)
        return ROWAN_ENOMEM;
    memset(worker, 0, sizeof *worker);
    worker->round = 1; /* a new client was tried in none */
    atomic_init(&worker->sending.from, WORKER_SENDS_NOTHING);
    worker->common = common;
    worker->number = worker->sample_random = worker->tracing.random = number;
    worker->tracing.left = UINT32_MAX;
    clients_init(&worker->known);
    int error = write_table_init(&worker->ops);
    if (error)
        goto fail;
    error = role_init(&worker->role, common, WORKER_ASKED);
    if (error)
        goto fail_ops;
    error = fabric_endpoint_open(common->fabric, number, &worker->endpoint);
    if (error)
        goto fail_role;
    fabric_endpoint_admit(worker->endpoint, admit, worker);
    worker->shares_messages = fabric_caps(common->fabric)->shares_messages;
    reclaim_join(&common->reclaim, &worker->reclaim);
    *out = worker;
    return 0;

fail_role:
    role_fini(&worker->role);
fail_ops:
    write_table_fini(&worker->ops);
fail:
    free(worker);
    return error;
}

void worker_destroy(struct worker *worker)
{
    if (!worker)
        return;
    fabric_endpoint_close(worker->endpoint);
    struct client_link *client;
    while ((client = worker->clients.first)) {
        LIST_REMOVE(&worker->clients, client, all);
        worker_client_free(client);
    }
    clients_fini(&worker->known);
    role_fini(&worker->role);
    for (uint32_t id = 0; id < STORE_SHARD_IDS; id++)
        shard_state_destroy(worker->shards[id]);
    queries_drop(&worker->queries);
    worker_reconcile_close(worker);
    worker_fill_close(worker);
    write_table_fini(&worker->ops);
    cluster_release(worker->config);
    users_release(worker->users);
    free(worker);
}

struct fabric_endpoint *worker_endpoint(struct worker *worker)
{
    return worker->endpoint;
}

struct role *worker_role(struct worker *worker)
{
    return &worker->role;
}

uint64_t worker_sends_from(const struct worker *worker)
{
    return atomic_load_explicit(&worker->sending.from, memory_order_acquire);
}

uint32_t worker_incomplete(const struct worker *worker, uint32_t place)
{
    return atomic_load_explicit(&worker->incomplete[place], memory_order_relaxed);
}

const struct worker_counts *worker_counts(const struct worker *worker)
{
    return &worker->counts;
}

const struct traces *worker_traces(const struct worker *worker)
{
    return &worker->tracing.kept;
}
