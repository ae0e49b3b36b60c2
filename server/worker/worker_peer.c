/* A worker's connections to the control endpoints of the servers that back its shards: it sends
 * entries on them, and hears on them when a backup's PM is full or lacks a version. A connection that breaks is opened
 * again, and every write in flight that may not have landed is sent once more: the entry is the
 * same, so landing twice does no harm.
 *
 * Into the landing zone go writes in flight and commit versions alone. What a backup lacks of earlier ones goes by message:
 * it looks whether it still does, and takes nothing once a later epoch is adopted, so nothing old lands late.
 */
#include "server/worker/worker_peer.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"

static struct worker_peer *find_peer(struct worker *worker, uint32_t server)
{
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        if (worker->peers[i].server == server)
            return &worker->peers[i];
    }
    return NULL;
}

static void peer_down(struct worker *worker, struct worker_peer *peer, int error, uint64_t now_ns);

static void set_incomplete(struct worker *worker, uint32_t place, uint32_t server)
{
    atomic_store_explicit(&worker->incomplete[place], server, memory_order_relaxed);
}

void worker_peer_cut(struct worker *worker, struct worker_peer *peer, uint64_t now_ns)
{
    peer->conn->user = NULL;
    fabric_conn_close(peer->conn);
    peer_down(worker, peer, ROWAN_EREFUSED, now_ns);
}

/* Peers that are no members any more, or are under another incarnation. Nothing waits for them (worker_epoch.c, Z2). */
static void leave_out(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct worker_peer *peer = &worker->peers[i];
        const struct member *member = cluster_member(worker->config, peer->server);
        if (peer->server == 0 || (member && member->incarnation == peer->incarnation))
            continue;
        if (peer->conn)
            worker_peer_cut(worker, peer, 0);
        *peer = (struct worker_peer){.kind = LINK_PEER};
        set_incomplete(worker, i, 0);
    }
}

/* A free place, or a new one. */
static struct worker_peer *open_peer(struct worker *worker)
{
    struct worker_peer *peer = find_peer(worker, 0);
    ASSERT(peer || worker->peer_count < CLUSTER_MAX_MEMBERS);
    return peer ? peer : &worker->peers[worker->peer_count++];
}

/* What is not sent costs the connection, when the former secret counts no longer, and it is made anew. */
static void show_again(const struct worker_peer *peer)
{
    uint8_t code[MAC_BYTES];
    Rowan__ProofAgain body = ROWAN__PROOF_AGAIN__INIT;
    if (!peer->connected || !peer->conn->endpoint->has_former ||
        !fabric_proof_again(peer->conn, code))
        return;
    body.code = control_bytes(code, sizeof code);
    (void)control_message_send(peer->conn, 0, &CONTROL_MESSAGE(PROOF_AGAIN, proof_again, &body));
}

void worker_peer_configure(struct worker *worker)
{
    const struct cluster_config *config = worker->config;
    fabric_endpoint_identity(worker->endpoint,
                             &(struct fabric_identity){.cluster = config->cluster,
                                                       .term = config->term,
                                                       .incarnation = worker->common->incarnation,
                                                       .id = worker->common->server,
                                                       .role = worker->number,
                                                       .kind = FABRIC_SERVER});
    fabric_endpoint_secret(worker->endpoint, cluster_proof(config), cluster_former_proof(config),
                           config->users && config->users->required);
    leave_out(worker);
    for (uint32_t i = 0; i < worker->peer_count; i++)
        show_again(&worker->peers[i]);
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct member *member = &config->members[i];
        if (member->server == worker->common->server || find_peer(worker, member->server))
            continue;
        struct worker_peer *peer = open_peer(worker);
        *peer = (struct worker_peer){.kind = LINK_PEER,
                                     .server = member->server,
                                     .incarnation = member->incarnation,
                                     .control_endpoint = member->workers};
        memcpy(peer->address, member->address, sizeof peer->address);
    }
}

void worker_peer_need(struct worker *worker, const struct shard *row)
{
    for (uint32_t i = 0; i < row->backup_count; i++)
        find_peer(worker, row->backups[i])->needed = true;
    for (uint32_t i = 0; i < row->filling_count; i++)
        find_peer(worker, row->filling[i])->needed = true;
}

void worker_peer_resolve(struct worker *worker, struct shard_state *shard)
{
    const struct shard *row = cluster_shard(worker->config, shard->id);
    worker_peer_need(worker, row);
    shard->backup_count = 0;
    for (uint32_t i = 0; i < row->backup_count; i++) {
        struct worker_peer *peer = find_peer(worker, row->backups[i]);
        shard->backups[shard->backup_count++] = (uint32_t)(peer - worker->peers);
    }
    shard->full_count = shard->backup_count;
    shard->filled = 0;
    for (uint32_t i = 0; i < row->filling_count; i++)
        shard->backups[shard->backup_count++] =
            (uint32_t)(find_peer(worker, row->filling[i]) - worker->peers);
    worker->fill_wanted |= row->filling_count > 0;
}

void worker_peer_committed(struct worker *worker, uint64_t term, uint64_t now_ns)
{
    for (uint32_t i = 0; i < worker->peer_count && term == worker->config->term; i++) {
        if (worker->peers[i].needed && worker->peers[i].whole_ns == 0)
            worker->peers[i].whole_ns = now_ns;
    }
}

/* Of a peer nothing is overdue if all has landed, or more than at the last look; or if it says that it is short of space (H4).
 * When this server stood still itself, all begins anew. */
static void watch(struct worker *worker, uint64_t now_ns, uint64_t lease_ns)
{
    const bool stood_still = now_ns - worker->watch_ns > lease_ns;
    worker->watch_ns = now_ns + lease_ns;
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct worker_peer *peer = &worker->peers[i];
        const bool overdue =
            !peer->connected || (peer->landed != peer->posted && peer->space == SPACE_ENOUGH);
        if (peer->whole_ns && (!overdue || peer->landed != peer->seen || stood_still))
            peer->whole_ns = now_ns;
        peer->seen = peer->landed;
        set_incomplete(worker, i,
                       peer->whole_ns &&
                               now_ns - peer->whole_ns >= WORKER_INCOMPLETE_LEASES * lease_ns
                           ? peer->server
                           : 0);
    }
}

void worker_peer_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct worker_peer *peer = &worker->peers[i];
        if (peer->conn || !peer->needed)
            continue;
        if (now_ns >= peer->retry_ns) {
            int error = fabric_connect(worker->endpoint, peer->address, peer->control_endpoint, i,
                                       &peer->conn);
            if (!error) {
                peer->conn->user = peer;
                continue;
            }
            if (error != ROWAN_EAGAIN) /* its name is looked up */
                log_event(LOG_WARN, "peer_connect_failed", "worker=%u server=%u error=%s",
                          worker->number, peer->server, error_name(error));
            peer->retry_ns = now_ns + WORKER_RECONNECT_NS;
        }
        wake_at(wake_ns, peer->retry_ns);
    }
    const uint64_t lease_ns = worker->config ? worker->config->lease_ms * NS_PER_MS : 0;
    if (lease_ns == 0)
        return;
    if (now_ns >= worker->watch_ns)
        watch(worker, now_ns, lease_ns);
    wake_at(wake_ns, worker->watch_ns);
}

/* --- what a peer has not got yet --- */

void worker_peer_owe(struct worker_peer *peer, struct load load)
{
    load_add(&peer->owed, load);
    if (peer->connected)
        load_add(&peer->open, load);
}

/* In a full ring the newest batches count as one: none is taken for landed too early. */
static void keep_batch(struct worker_peer *peer)
{
    if (peer->sent_count == WORKER_PEER_BATCHES)
        peer->sent_count--;
    else
        peer->sent[(peer->sent_first + peer->sent_count) % WORKER_PEER_BATCHES].load =
            (struct load){0};
    struct peer_batch *last =
        &peer->sent[(peer->sent_first + peer->sent_count++) % WORKER_PEER_BATCHES];
    last->batch = peer->open_batch;
    load_add(&last->load, peer->open);
    peer->open = (struct load){0};
}

static void forget_landed(struct worker_peer *peer)
{
    while (peer->sent_count && peer->sent[peer->sent_first].batch <= peer->landed) {
        load_subtract(&peer->owed, peer->sent[peer->sent_first].load);
        peer->sent_first = (peer->sent_first + 1) % WORKER_PEER_BATCHES;
        peer->sent_count--;
    }
}

/* --- questions and entries --- */

uint32_t worker_peer_tag(struct worker *worker)
{
    worker->tag += worker->tag == UINT32_MAX ? 2 : 1;
    return worker->tag;
}

/* --- events --- */

static void peer_down(struct worker *worker, struct worker_peer *peer, int error, uint64_t now_ns)
{
    if (peer->connected)
        log_event(LOG_WARN, "peer_lost", "worker=%u server=%u error=%s", worker->number,
                  peer->server, error_name(error));
    peer->conn = NULL;
    peer->connected = false;
    peer->open_batch = 0;
    peer->posted = peer->landed;
    peer->open = (struct load){0};
    peer->sent_count = 0;
    peer->commit_behind = true;
    peer->retry_ns = now_ns + WORKER_RECONNECT_NS;
}

/* A connection that was made is of no use: to another process than the configuration names, which may not know yet
 * that it is to refuse us; or to a build without a landing zone. */
static int unfit(const struct worker_peer *peer, const struct fabric_event *event)
{
    if (!fabric_is_server(&event->peer, peer->server, peer->incarnation) ||
        (event->conn->unproved && event->conn->endpoint->demands_secret))
        return ROWAN_EUNREACHABLE;
    return event->conn->has_zone ? 0 : ROWAN_EUNSUPPORTED;
}

void worker_peer_break(struct worker *worker, struct worker_peer *peer, int error, uint64_t now_ns)
{
    peer->conn->user = NULL; /* what else came on it is ignored */
    fabric_conn_close(peer->conn);
    peer_down(worker, peer, error, now_ns);
}

enum peer_news worker_peer_event(struct worker *worker, const struct fabric_event *event,
                                 uint64_t now_ns)
{
    struct worker_peer *peer = event->conn->user;
    const int error = event->kind == FABRIC_CONNECTED ? unfit(peer, event) : event->error;
    if (event->kind == FABRIC_CONNECTED && !error) {
        log_event(LOG_INFO, "peer_connected", "worker=%u server=%u", worker->number, peer->server);
        peer->connected = true;
        show_again(peer);
        peer->owed = (struct load){0}; /* what is sent again is counted again */
        peer->settled_next = 0;
        worker->settled_owed = true;
        return PEER_UP;
    }
    if (event->kind == FABRIC_CONNECTED) {
        worker_peer_break(worker, peer, error, now_ns);
        return PEER_DOWN;
    }
    if (event->kind == FABRIC_CLOSED) {
        peer_down(worker, peer, error, now_ns);
        return PEER_DOWN;
    }
    if (event->kind == FABRIC_LANDED) {
        ASSERT(event->context > peer->landed && event->context <= peer->posted);
        peer->landed = event->context;
        forget_landed(peer);
    }
    return event->kind == FABRIC_MESSAGE ? PEER_MESSAGE : PEER_NO_NEWS;
}

void worker_peer_add(struct worker *worker, struct worker_peer *peer, const void *block,
                     uint32_t bytes)
{
    int error = fabric_rowan_add(peer->conn, block, bytes);
    /* A break is reported by the CLOSED event that follows; the entry goes out again after it. */
    ASSERT(error == 0 || error == ROWAN_ECLOSED);
    peer->open_batch = worker->batch;
}

int worker_peer_store(struct worker *worker, const struct worker_peer *peer,
                      const struct shard_state *shard, Rowan__StoreEntries *body, uint32_t *tag)
{
    body->shard = shard->id;
    body->epoch = shard->epoch;
    *tag = worker_peer_tag(worker);
    const int error = control_message_send(peer->conn, *tag,
                                           &CONTROL_MESSAGE(STORE_ENTRIES, store_entries, body));
    if (error)
        *tag = 0;
    return error;
}

int worker_peer_bring(struct worker *worker, const struct worker_peer *peer,
                      const struct shard_state *shard, const struct block_list *blocks,
                      uint32_t *tag)
{
    ProtobufCBinaryData data = {.data = blocks->data, .len = blocks->bytes};
    Rowan__StoreEntries body = ROWAN__STORE_ENTRIES__INIT;
    body.n_blocks = 1;
    body.blocks = &data;
    return worker_peer_store(worker, peer, shard, &body, tag);
}

int worker_peer_tell_gone(struct worker *worker, const struct worker_peer *peer,
                          const struct shard_state *shard, const struct prefix_range *gone,
                          uint32_t count, uint32_t *tag)
{
    Rowan__VersionRange ranges[QUERY_GONE_RANGES], *pointers[QUERY_GONE_RANGES];
    Rowan__StoreEntries body = ROWAN__STORE_ENTRIES__INIT;
    for (uint32_t i = 0; i < count; i++) {
        rowan__version_range__init(&ranges[i]);
        ranges[i].first = gone[i].first;
        ranges[i].last = gone[i].last;
        pointers[i] = &ranges[i];
    }
    body.n_gone = count;
    body.gone = pointers;
    return worker_peer_store(worker, peer, shard, &body, tag);
}

int worker_peer_failure(const Rowan__ControlMessage *answer)
{
    if (answer->body_case == ROWAN__CONTROL_MESSAGE__BODY_ENTRIES_STORED)
        return FAULT(ANSWER_LOST) ? ROWAN_EAGAIN : 0;
    return answer->body_case == ROWAN__CONTROL_MESSAGE__BODY_FAILURE && answer->failure->error < 0
               ? answer->failure->error
               : ROWAN_EAGAIN;
}

void worker_peer_post(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct worker_peer *peer = &worker->peers[i];
        if (!peer->open_batch)
            continue;
        int error = fabric_rowan_post(peer->conn, peer->open_batch);
        ASSERT(error == 0 || error == ROWAN_ECLOSED);
        peer->posted = peer->open_batch;
        worker->sending.posted = worker->batch;
        keep_batch(peer);
        peer->open_batch = 0;
    }
}

static uint64_t from(const struct sending *sending)
{
    return atomic_load_explicit(&sending->from, memory_order_relaxed);
}

static void set_from(struct sending *sending, uint64_t allocation)
{
    atomic_store_explicit(&sending->from, allocation, memory_order_release);
}

void worker_peer_poll_begins(struct worker *worker)
{
    worker->sending.poll = worker->log.allocation;
}

/* What this poll has added so far may lie in the segment. */
void worker_peer_log_closes(struct worker *worker)
{
    if (from(&worker->sending) == WORKER_SENDS_NOTHING)
        set_from(&worker->sending, worker->sending.poll);
}

/* At once: what it is a resend of may complete in this poll, if its peer leaves the shard. */
void worker_peer_sends_from(struct worker *worker, uint64_t offset)
{
    struct sending *sending = &worker->sending;
    const struct store *store = worker->common->store;
    const uint64_t allocation = store_meta(store, store_segment_at(store, offset)).allocation;
    if (allocation < sending->poll)
        sending->poll = allocation;
    if (allocation < sending->next)
        sending->next = allocation;
    if (allocation < from(sending))
        set_from(sending, allocation);
}

/* A connection that has gone reads nothing any more (F4). */
void worker_peer_poll_ends(struct worker *worker)
{
    struct sending *sending = &worker->sending;
    const bool new = sending->posted == worker->batch;
    if (from(sending) == WORKER_SENDS_NOTHING && !new)
        return;
    bool outstanding = false, landed = true;
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        const struct worker_peer *peer = &worker->peers[i];
        const bool all = peer->landed == peer->posted;
        outstanding |= !all;
        landed &= all || peer->landed >= sending->batch;
    }
    if (!outstanding) {
        set_from(sending, WORKER_SENDS_NOTHING);
    } else if (from(sending) == WORKER_SENDS_NOTHING || landed) {
        set_from(sending, from(sending) == WORKER_SENDS_NOTHING ? sending->poll : sending->next);
        sending->next = sending->poll;
        sending->batch = worker->batch;
    }
}
