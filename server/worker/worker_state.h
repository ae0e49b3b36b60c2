/* worker_state.h - the inside of a worker, shared by worker.c, worker_write.c and worker_peer.c.
 *
 * Batches. Every poll that sends entries has a number, the batch. An entry of batch n goes to all
 * backups of its shard, and to the local map, as part of batch n. For each of these places the
 * worker knows the last batch it handed over (posted) and the last that is durable there (landed).
 * An op is replicated when landed >= its batch at each place, or, at a backup, nothing is
 * outstanding.
 */
#ifndef SERVER_WORKER_STATE_H
#define SERVER_WORKER_STATE_H

#include "common/cluster/cluster.h"
#include "common/cluster/control.h"
#include "common/entry/commit.h"
#include "server/store/log.h"
#include "server/worker/clients.h"
#include "server/worker/op.h"
#include "server/worker/worker.h"

enum {
    WORKER_EVENTS = 128,    /* requests taken in one poll */
    WORKER_HELD = 16384,    /* requests whose answer found no room: more than one connection's */
    WORKER_WASTE = 1 << 20, /* bytes of answers put together in a poll to find that none has room */
    WORKER_FENCES = 1024,   /* local fences outstanding */
    WORKER_PEER_BATCHES = 64,     /* posted ones whose load is kept apart */
    WORKER_MAX_CLIENT_OPS = 1024, /* writes of one client connection in the table */
    WORKER_LARGE_WAITING = 2,     /* of those, kept for writes that wait for one of their key */
    WORKER_FORGET = 4,            /* clients forgotten in one poll */
    COMMIT_VALUE_BYTES = 4096,    /* of one commit versions entry, at most */
    COMMIT_CLIENT_ROWS = (COMMIT_VALUE_BYTES - COMMIT_HEAD_BYTES) / COMMIT_CLIENT_BYTES,
    WORKER_LOWS_TOLD = 1024,
    WORKER_QUESTIONS = 64, /* for versions that backups never got, at a time */
};

/* Key and value of requests that may fill a fabric's buffers. */
#ifdef ROWAN_SIM /* test/sim has short values */
enum { WORKER_LARGE_BYTES = 1 << 10 };
#else
enum { WORKER_LARGE_BYTES = 16 << 10 };
#endif

/* Of entries on the way to one backup: what a full one must still have room for. */
#define WORKER_MAX_IN_FLIGHT_BYTES FABRIC_SEGMENT_BYTES

/* How soon the next clients are tried whose answers found no room. */
#define WORKER_ROUND_NS NS_PER_MS

/* How often commit versions that changed are spread; how soon they are tried again when the log has
 * no room for them. */
#define WORKER_COMMIT_NS       (15 * NS_PER_MS)
#define WORKER_COMMIT_RETRY_NS NS_PER_S
/* How often clients' lowest unanswered numbers are. */
#define WORKER_LOWS_NS NS_PER_S

#define WORKER_RECONNECT_NS  (20 * NS_PER_MS)
#define WORKER_FENCE_LOOK_NS (100 * NS_PER_US)
#define WORKER_MEMORY_NS     (10 * NS_PER_MS) /* before an index without memory is tried again */

/* Entries. */
struct load {
    uint32_t ops, blocks, bytes;
};

static inline void load_add(struct load *load, struct load more)
{
    load->ops += more.ops;
    load->blocks += more.blocks;
    load->bytes += more.bytes;
}

static inline void load_subtract(struct load *load, struct load less)
{
    load->ops -= less.ops;
    load->blocks -= less.blocks;
    load->bytes -= less.bytes;
}

struct peer_batch {
    uint64_t batch;
    struct load load;
};

struct peer {
    enum link_kind kind;
    uint32_t server;
    uint32_t control_endpoint; /* its index there */
    char address[CLUSTER_MAX_ADDRESS_BYTES + 1];
    struct fabric_conn *conn; /* NULL: not connected and not trying */
    bool connected;
    bool needed; /* backs a shard of this worker */
    bool full;   /* its PM takes no more */
    uint64_t retry_ns;
    uint64_t open_batch;     /* the batch that has blocks added and is not posted; 0: none */
    uint64_t posted, landed; /* batches */
    struct load owed; /* of writes in flight that, as far as we know, have not landed there */
    struct load open; /* of that: in the open batch */
    struct peer_batch sent[WORKER_PEER_BATCHES]; /* and in posted ones, a ring */
    uint32_t sent_first, sent_count;
    bool commit_behind; /* may not have been told the commit versions that were spread */
};

/* A backup asks for versions that it never got. */
struct question {
    uint32_t peer; /* its position */
    uint16_t shard;
    uint64_t first, last;
    uint64_t end;    /* over when so many segments were visited */
    uint32_t blocks; /* found, and sent */
};

struct fetch {
    struct question questions[WORKER_QUESTIONS];
    uint32_t count;
    uint64_t visited; /* segments that were looked through, ever */
    uint64_t segment; /* the one `scan` is in, if `inside`, else the next */
    bool inside;
    struct entry_scan scan;
    uint16_t lost_shard; /* what was found nowhere last, and logged */
    uint64_t lost_first;
};

/* Clients' lowest unanswered numbers on their way into the log. */
struct client_lows {
    uint64_t spread_ns; /* when next; 0: nothing happened since the last time */
    uint64_t requests;  /* that had come by then */
    bool gone;          /* clients were forgotten since */
    uint32_t count;
    struct commit_client rows[COMMIT_CLIENT_ROWS];
    /* What was taken last, by the low bits of the client's id: a client of many shards is written
     * once. */
    struct commit_client told[WORKER_LOWS_TOLD];
};

struct fence {
    uint64_t batch;
    struct pm_ticket ticket;
};

/* A request: parsed; its message is not released yet. What its first look found is kept with it for the
 * rest of the poll; one that is kept for a later poll is looked at anew. */
struct request {
    struct client_link *client;
    struct shard_state *shard; /* NULL: not to be served here, as `status` says */
    int status;
    bool refused; /* its message is released, all that is left to do is to answer ROWAN_EBUSY */
    uint64_t hash;
    uint64_t hint; /* for index_find_hinted; 0: none */
    uint64_t message;
    const uint8_t *key, *value;
    struct message_request header;
};

struct worker {
    struct server_common *common;
    uint32_t number;
    struct fabric_endpoint *endpoint;
    struct inbox inbox, outbox;
    struct cluster_config *config;
    struct worker_counts counts;

    struct shard_state *shards[STORE_SHARD_IDS]; /* by id; those this worker owns */
    struct shard_state *active;                  /* those with writes in flight */

    struct peer peers[CLUSTER_MAX_MEMBERS];
    uint32_t peer_count;

    struct client_link *clients, *doomed;
    struct clients known;                /* by their ids, connected or not */
    struct request taken[WORKER_EVENTS]; /* in this poll */
    uint32_t taken_count;
    struct request held[WORKER_HELD + WORKER_EVENTS]; /* until there is room for their answers */
    uint32_t held_count;

    struct write_table ops;
    struct op *replying[OP_TABLE_SIZE]; /* OP_REPLYING, oldest first */
    uint32_t replying_count;
    bool stuck;             /* a completion found no memory for the index */
    uint32_t large_waiting; /* OP_WAITING whose message is large */
    struct load in_flight;

    struct log log;
    bool log_ready;
    uint64_t batch;        /* of this poll */
    uint64_t round;        /* of looks whether held requests find room by now */
    uint64_t wasted_bytes; /* of answers that were put together in this poll and found no room */
    bool stored;           /* this poll stored into the t-log */
    struct fence fences[WORKER_FENCES];
    uint32_t fence_first, fence_count;
    uint64_t local_landed; /* the last batch that is durable in the local map */

    struct shard_state *first_commit; /* those whose commit version is to be spread */
    uint64_t commit_ns;               /* when; 0: not decided */
    struct client_lows lows;
    struct fetch fetch;
    struct unions *unions; /* NULL: every shard is united */

    struct digest_jobs jobs;

    uint8_t key[ENTRY_MAX_KEY_BYTES];
    uint8_t value[ENTRY_MAX_VALUE_BYTES]; /* of a reply, what is copied */
    _Alignas(64) uint8_t staging[ENTRY_MAX_BLOCK_LIMIT];
};

/* A fabric may have only a few buffers for such messages. */
static inline bool request_is_large(const struct message_request *header)
{
    return header->key_bytes + header->value_bytes > WORKER_LARGE_BYTES;
}

/* --- worker.c --- */

/* Sends a reply without a value; false when the client has no room for it. */
bool worker_reply(struct worker *worker, struct client_link *client, uint32_t operation,
                  uint32_t tag, int status, uint64_t version);

/* The key's slot must belong to the shard: a client with a wrong map must not plant a key here. 0 or
 * ROWAN_ENOTMINE. */
int worker_check_slot(const struct worker *worker, const struct request *request);

/* The object at an index offset: 0 and its header, ROWAN_ENOTFOUND (none, or a tombstone), or
 * ROWAN_EDAMAGED. */
int worker_object(struct worker *worker, uint64_t offset, struct entry_header *header);

/* The shard a request names, if this worker may serve it: 0, ROWAN_ENOTMINE, EEPOCH, or
 * EBUSY while its replicas are being united. */
int worker_find_shard(struct worker *worker, const struct message_request *request,
                      struct shard_state **out);

/* One writer: a plain increment, made readable by other threads. */
void worker_count(_Atomic uint64_t *counter);

/* Gives a message of the client back to the fabric. */
void worker_release(struct client_link *client, uint64_t message);

/* --- worker_client.c --- */

/* A client has connected: `id` of its handshake, 0 if it is none that could ask again. Its older
 * connection is doomed. */
void worker_client_accepted(struct worker *worker, struct fabric_conn *conn, uint32_t id);

/* The connection is to be closed, and the link freed, by worker_client_bury in this poll. Until then
 * it stays whole: some requests taken in this poll may be its own. */
void worker_client_doom(struct worker *worker, struct client_link *client);
void worker_client_bury(struct worker *worker, uint64_t now_ns);

/* The records of a shard that this worker leads came from a scan or a union: their clients, too, are
 * forgotten if they do not connect. To be called before the shard is served. */
void worker_client_recall(struct worker *worker, const struct shard_state *shard, uint64_t now_ns);

/* Forgets clients whose time is over; lowers *wake_ns to the next. True: there were some. */
bool worker_client_forget(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* Is the request one that the client of this connection may send? */
bool worker_client_may_ask(const struct client_link *client, const struct message_request *request);

/* --- worker_write.c --- */

/* Takes in a put, conditional put or delete, and the message with it. False if the client has no
 * room for the refusal: then nothing happened and the message stays the caller's. */
bool worker_write(struct worker *worker, const struct request *request);

/* Posts what the poll stored and added, completes what has landed. True if anything moved; lowers
 * *wake_ns while a local fence is under way. */
bool worker_write_advance(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* The client's connection has gone. */
void worker_write_forget(struct worker *worker, struct client_link *client);

/* Sends every write in flight that may not have landed at the peer to it again. */
void worker_write_resend(struct worker *worker, uint32_t peer);

/* --- worker_commit.c --- */

/* The shard's resolved prefix has grown: it is spread by a later worker_commit_poll. */
void worker_commit_changed(struct worker *worker, struct shard_state *shard);

/* A client was forgotten by all shards: its operations below `lowest` are over. Spread likewise, in one
 * row for all of them. */
void worker_commit_client_gone(struct worker *worker, uint32_t client, uint32_t lowest);

/* Once per poll, before worker_write_advance, which posts and fences: spreads what changed, when it
 * is time. True if entries were written; lowers *wake_ns to that time. */
bool worker_commit_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* --- worker_fetch.c --- */

/* A peer asks for versions of a shard that it never got. Questions beyond WORKER_QUESTIONS are dropped,
 * and asked again. */
void worker_fetch_take(struct worker *worker, struct peer *peer, const Rowan__Fetch *asked);

/* Looks for them a bit further, and adds what is found to the peer's batch of this poll. */
bool worker_fetch_poll(struct worker *worker);

/* --- worker_union.c --- */

/* The shard is `recovering`: unites its replicas, then clears that. Errors: ROWAN_ENOMEM. */
int worker_union_begin(struct worker *worker, struct shard_state *shard);

/* Once per poll, before worker_write_advance. True if anything moved; lowers *wake_ns. */
bool worker_union_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* A TailIs or Failure of a peer; a peer's connection has gone. */
void worker_union_message(struct worker *worker, const struct peer *peer, uint32_t tag,
                          const Rowan__ControlMessage *message, uint64_t now_ns);
void worker_union_peer_down(struct worker *worker, const struct peer *peer);
void worker_union_close(struct worker *worker);

/* --- worker_peer.c --- */

/* The peers of the configuration; and the positions of a shard's backups among them. */
void worker_peer_configure(struct worker *worker);
void worker_peer_resolve(struct worker *worker, struct shard_state *shard);

/* Connects where a connection is missing; lowers *wake_ns to the next attempt. */
void worker_peer_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns);

/* An event of a peer's connection (`event->conn->user` is the peer). */
void worker_peer_event(struct worker *worker, const struct fabric_event *event, uint64_t now_ns);

/* Adds a block to the peer's batch of this poll; there is room. Posts it. */
void worker_peer_add(struct worker *worker, struct peer *peer, const void *block, uint32_t bytes);

/* The peer is to get these entries, as part of the open batch if it is connected. */
void worker_peer_owe(struct peer *peer, struct load load);
void worker_peer_post(struct worker *worker);

static inline bool peer_has_landed(const struct peer *peer, uint64_t batch)
{
    return peer->landed >= batch ||
           (peer->connected && peer->landed == peer->posted && peer->open_batch == 0);
}

#endif
