/* worker_state.h - the inside of a worker: its structs, which the files worker_*.c share.
 *
 * The files form layers. Each calls only those in front of it in this list, which test/checks enforces by
 * their headers: worker_counts, worker_trace, worker_reply, worker_read, worker_peer, worker_commit, worker_write, worker_client,
 * worker_fetch, worker_reconcile_take,
 * worker_reconcile, worker_fill, worker_split, worker_epoch, worker.
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
#include "server/shard/block_list.h"
#include "server/store/log.h"
#include "server/worker/clients.h"
#include "server/worker/pace.h"
#include "server/worker/trace.h"
#include "server/worker/worker.h"
#include "server/worker/write_op.h"

enum {
    WORKER_EVENTS = 128,                           /* requests taken in one poll */
    WORKER_KEY_PLACE = MESSAGE_MAX_KEY_BYTES + 64, /* so that the caches hold many of them */
    WORKER_SAMPLE = 16,
    WORKER_TRACES = 16,     /* writes that are followed at a time */
    WORKER_HELD = 16384,    /* requests whose answer found no room: more than one connection's */
    WORKER_WASTE = 1 << 20, /* bytes of answers put together in a poll to find that none has room */
    WORKER_FENCES = 1024,   /* local fences outstanding */
    WORKER_PEER_BATCHES = 64,     /* posted ones whose load is kept apart */
    WORKER_MAX_CLIENT_OPS = 1024, /* writes of one client connection in the table */
    WORKER_LARGE_WAITING = 2,     /* of those, kept for writes that wait for one of their key */
    WORKER_FORGET = 4,            /* clients forgotten in one poll */
    WORKER_ANSWERS = 4,           /* questions about records answered in one poll */
    WORKER_ASKED = 64,            /* such questions that wait */
    COMMIT_VALUE_BYTES = 4096,    /* of one commit versions entry, at most */
    COMMIT_CLIENT_ROWS = (COMMIT_VALUE_BYTES - COMMIT_HEAD_BYTES) / COMMIT_CLIENT_BYTES,
    WORKER_ACKNOWLEDGED_TOLD = 1024,
    WORKER_QUESTIONS = 64,   /* for versions that backups never got, at a time */
    WORKER_FOUND = 128,      /* entries found for one of them, and not there yet */
    WORKER_RECONCILING = 16, /* shards at a time */
    WORKER_INCOMPLETE_LEASES =
        6, /* without progress before a backup is to leave a shard: cm/fill.h */
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
/* How often clients' lowest unanswered numbers are: after so long, and longer where there are many. What was not told
 * before a crash leaves its records, and stubs of what is cleaned, until the clients are forgotten. */
#define WORKER_ACKNOWLEDGED_NS     (100 * NS_PER_MS)
#define WORKER_ACKNOWLEDGED_ROW_NS (100 * NS_PER_US) /* for each that changed the last time */
#define WORKER_ACKNOWLEDGED_MAX_NS NS_PER_S

/* How often what is settled everywhere is looked for, and told. */
#define WORKER_SETTLED_NS       (100 * NS_PER_MS)
#define WORKER_SETTLED_RETRY_NS NS_PER_MS

#define WORKER_RECONNECT_NS  (20 * NS_PER_MS)
#define WORKER_FENCE_LOOK_NS (100 * NS_PER_US)
#define WORKER_MEMORY_NS     (10 * NS_PER_MS) /* before an index without memory is tried again */

/* How much entries are: operations (the low 20 bits), blocks (20) and bytes (24, in units of ENTRY_ALIGN), in one
 * word, so that they are added and compared together. No load is half of what its parts hold: a peer that was away is
 * owed some 4 MiB for each other backup at most, far from 512 MiB. Only the bytes of all that a worker has in flight
 * may overflow; nobody reads them. */
struct load {
    uint64_t parts;
};

enum { LOAD_BLOCKS_SHIFT = 20, LOAD_BYTES_SHIFT = 40 };
#define LOAD_OPS    ((UINT64_C(1) << LOAD_BLOCKS_SHIFT) - 1)
#define LOAD_COUNTS ((UINT64_C(1) << LOAD_BYTES_SHIFT) - 1)
#define LOAD_HALVES (UINT64_C(1) << 63 | UINT64_C(1) << 39 | UINT64_C(1) << 19)

static inline struct load load_make(uint32_t ops, uint32_t blocks, uint32_t bytes)
{
    return (struct load){ops | (uint64_t)blocks << LOAD_BLOCKS_SHIFT |
                         (uint64_t)(bytes / ENTRY_ALIGN) << LOAD_BYTES_SHIFT};
}

static inline void load_add(struct load *load, struct load more)
{
    load->parts += more.parts;
}

static inline void load_subtract(struct load *load, struct load less)
{
    load->parts -= less.parts;
}

/* Is each part of `load` at most that of `most`? */
static inline bool load_fits(struct load load, struct load most)
{
    return (((most.parts | LOAD_HALVES) - load.parts) & LOAD_HALVES) == LOAD_HALVES;
}

struct peer_batch {
    uint64_t batch;
    struct load load;
};

struct worker_peer {
    enum link_kind kind;
    uint32_t server;
    uint64_t incarnation;
    uint32_t control_endpoint; /* its index there */
    char address[CLUSTER_MAX_ADDRESS_BYTES + 1];
    struct fabric_conn *conn; /* NULL: not connected and not trying */
    bool connected;
    bool needed;             /* backs a shard of this worker */
    enum server_space space; /* of its PM */
    bool full;               /* likewise */
    uint64_t retry_ns;
    uint64_t open_batch;     /* the batch that has blocks added and is not posted; 0: none */
    uint64_t posted, landed; /* batches */
    struct load owed; /* of writes in flight that, as far as we know, have not landed there */
    struct load open; /* of that: in the open batch */
    struct peer_batch sent[WORKER_PEER_BATCHES]; /* and in posted ones, a ring */
    uint32_t sent_first, sent_count;
    uint64_t whole_ns,
        seen; /* worker_peer_watch: nothing was overdue there then (0: it is not watched), and what had landed */
    bool commit_behind; /* may not have been told the commit versions that were spread */
    uint32_t
        settled_next; /* position of the next shard of which it is to be told what is settled */
    bool
        settled_asked; /* it waits for commit versions: it is told of each shard whether its epoch has begun */
};

/* A backup asks for versions that it never got. */
struct question {
    uint32_t peer; /* its position */
    uint16_t shard;
    uint64_t first, last;
    uint64_t since;   /* an epoch: what had the versions then is held until the question is over */
    uint64_t end;     /* all was looked through when so many segments were visited */
    uint32_t entries; /* found, and brought */
    uint32_t gone;    /* ranges told to be so */
    bool damaged;     /* something that may have been one of the versions cannot be read */
    bool telling;     /* the message on its way tells what is gone */
    bool told;        /* that was done, or nothing is */
    uint32_t tag;     /* of the message on its way; 0: none */
    uint64_t retry_ns;

    /* What was found and is not known to be there: the first of them from its block `block` on. The message on its way
     * brings those in front of `sent`, and of that one the blocks in front of `sent_block`. */
    uint32_t count, block, sent, sent_block;
    struct suffix_item found[WORKER_FOUND];

    uint64_t met[QUERY_GONE_VERSIONS / 64]; /* bits from `first` on: versions that lie somewhere */
};

struct fetch {
    struct question questions[WORKER_QUESTIONS];
    uint32_t count;
    uint64_t visited; /* segments that were looked through, ever */
    uint64_t segment; /* the one `scan` is in, if `inside`, else the next */
    bool inside;
    bool judged;    /* what is not whole in that segment is damage that a question may be about */
    uint64_t since; /* an epoch: the oldest question's when the scan went inside */
    struct entry_scan scan;
    uint16_t lost_shard; /* what was found nowhere last, and logged */
    uint64_t lost_first;
};

/* Clients' lowest unanswered numbers on their way into the log. */
struct acknowledged {
    uint64_t spread_ns; /* when next; 0: nothing happened since the last time */
    uint64_t requests;  /* that had come by then */
    uint64_t changed;   /* numbers, by shard, the last time */
    bool gone;          /* clients were forgotten since */
    uint32_t count;
    struct commit_client rows[COMMIT_CLIENT_ROWS];
    /* What was taken last, by the low bits of the client's id: a client of many shards is written
     * once. */
    struct commit_client told[WORKER_ACKNOWLEDGED_TOLD];
};

/* What lies on its way to peers by pointer, for the first time. At the end of a poll: all of it lies in segments of this log
 * from `from` on, and what was posted behind `batch` in those from `next` on. Behind a poll that closed a segment `from` may
 * be too low until the next batch has landed: that keeps segments longer, never too short. */
struct sending {
    _Atomic uint64_t from; /* an allocation number; WORKER_SENDS_NOTHING: all has landed */
    uint64_t next;         /* likewise */
    uint64_t batch;
    uint64_t posted; /* the last batch that was, to any peer */
    uint64_t poll;   /* the allocation number of the log's segment when this poll began */
};

/* worker_trace.h */
struct trace_place {
    struct write_op *op; /* NULL: free */
    uint64_t arrived_ns;
    uint32_t peers[TRACE_BACKUPS]; /* positions, of trace.backups */
    struct trace trace;
};

struct tracing {
    uint32_t one_in; /* the setting; 0: off */
    uint32_t left;   /* requests until one is chosen */
    uint32_t random;
    uint32_t used; /* places */
    struct trace_place places[WORKER_TRACES];
    struct traces kept;
};

struct local_fence {
    uint64_t batch;
    struct pm_ticket ticket;
};

/* Operations of one kind that ended well in this poll, one after the other, and began together (0: in this poll, too). */
struct ended {
    uint64_t begun_ns;
    uint32_t count;
};

/* A request: parsed; its message is not released yet. What its first look found is kept with it for the
 * rest of the poll; one that is kept for a later poll is looked at anew. */
struct request {
    struct client_link *client;
    struct shard_state *shard; /* NULL: not to be served here, as `status` says */
    int status;
    uint64_t begun_ns; /* of the poll that took it, if that was an earlier one; else 0 */
    bool refused; /* its message is released, all that is left to do is to answer ROWAN_EBUSY */
    uint64_t arrived_ns; /* of one that is followed (worker_trace.h); else 0 */
    uint64_t hash;
    const struct index_bucket *bucket; /* index_prefetch; NULL: not looked at */
    struct index_hint hint;
    uint64_t message;
    const uint8_t *key; /* W17: of a client that may not do everything, in memory of the worker */
    const uint8_t *value;
    struct message_request header;
};

_Static_assert((int)BLOCK_LIST_MOST_BYTES <= ENTRY_MAX_VALUE_BYTES, "`value` holds a message");

struct worker {
    struct server_common *common;
    uint32_t number;
    struct fabric_endpoint *endpoint;
    struct role role;
    struct reclaim_role reclaim;
    uint64_t epoch; /* of this poll: what it finds is held since then */
    bool has_all;   /* each shard that was handed out to it has been adopted */
    struct cluster_config *config;
    struct worker_counts counts;
    uint64_t now_ns;   /* of this poll */
    uint64_t requests; /* taken */
    struct ended ended[WORKER_KINDS];
    struct tracing tracing;

    struct shard_state *shards[STORE_SHARD_IDS]; /* by id; those this worker owns */
    struct shard_list active;                    /* those with writes in flight */

    struct worker_peer peers[CLUSTER_MAX_MEMBERS];
    uint32_t peer_count;
    bool peers_short; /* of space, one of them at least */
    struct sending sending;
    uint64_t watch_ns; /* when its peers are looked at next */
    _Atomic uint32_t
        incomplete[CLUSTER_MAX_MEMBERS]; /* by position of the peer; worker_incomplete */

    struct {
        struct client_link *first, *last;
    } clients;
    struct client_link *closing;
    struct users *users;  /* as the configuration has them, one reference; NULL: none */
    struct clients known; /* by their ids, connected or not */
    struct request taken[WORKER_EVENTS];                 /* in this poll */
    uint8_t taken_keys[WORKER_EVENTS][WORKER_KEY_PLACE]; /* W17 */
    bool shares_messages;
    uint32_t taken_count;
    uint32_t sample_in, sample_random;                /* requests until one is sampled (work.h) */
    struct request held[WORKER_HELD + WORKER_EVENTS]; /* until there is room for their answers */
    uint32_t held_count;
    uint8_t held_key[MESSAGE_MAX_KEY_BYTES]; /* of the one that is tried */

    struct write_table ops;
    struct write_op *replying[WRITE_OP_TABLE_SIZE]; /* WRITE_OP_REPLYING, oldest first */
    uint32_t replying_count;
    bool stuck;             /* a completion found no memory for the index */
    uint32_t large_waiting; /* WRITE_OP_WAITING whose message is large */
    struct load in_flight;

    struct log log;
    bool log_ready;
    bool lease_over;       /* when this poll began */
    bool told;             /* W13: since the last check answers told of data */
    uint64_t batch;        /* of this poll */
    uint64_t round;        /* of looks whether held requests find room by now */
    uint64_t wasted_bytes; /* of answers that were put together in this poll and found no room */
    bool stored;           /* this poll stored into the t-log */
    struct local_fence fences[WORKER_FENCES];
    uint32_t fence_first, fence_count;
    uint64_t local_landed; /* the last batch that is durable in the local map */

    struct shard_list commits; /* those whose commit version is to be spread */
    uint64_t commit_ns;        /* when; 0: not decided */
    struct acknowledged acknowledged;
    uint32_t tag; /* of the last question to a peer, or message of entries */
    struct fetch fetch;
    struct reconciliations *reconciliations; /* NULL: every shard is reconciled */
    struct fills *fills;                     /* NULL: nothing was ever to be filled */
    struct pace split_pace;
    bool fill_wanted;         /* some shard has a replica that fills, or had */
    bool fill_without_memory; /* some filling could not begin */
    uint32_t changing;        /* shards whose next epoch is known */
    uint32_t landed;          /* shards of which something is in the backup log */
    bool unsettled;           /* an epoch began since the log was closed for that */
    uint32_t deposed;         /* shards that are to be given back */
    uint64_t cut_ns; /* then: when connections that hold that up are closed; 0: not decided */

    bool settled_news;   /* some replica has settled more */
    bool settled_owed;   /* some peer is to be told */
    uint64_t settled_ns; /* when what is settled everywhere may be looked for next */

    struct queries queries;

    uint8_t key[ENTRY_MAX_KEY_BYTES];
    uint8_t value[ENTRY_MAX_VALUE_BYTES]; /* of a reply, what is copied; or blocks of a message */
    _Alignas(64) uint8_t staging[ENTRY_MAX_BLOCK_LIMIT];
};

/* Its next shard, in the order of the configuration from position *at on, which goes behind it. NULL: there is none. */
static inline struct shard_state *worker_next_shard(const struct worker *worker, uint32_t *at)
{
    struct shard_state *shard = NULL;
    while (!shard && *at < worker->config->shard_count)
        shard = worker->shards[worker->config->shards[(*at)++].id];
    return shard;
}

/* Space in the t-log. Errors: as log_reserve. */
static inline int worker_reserve(struct worker *worker, uint32_t bytes, uint64_t *offset)
{
    const uint64_t segments = worker->log.segments;
    const int error = log_reserve(&worker->log, bytes, offset);
    /* The control role says "full" in time, and commits the old segment. */
    if (worker->log.segments != segments)
        inbox_wake(&worker->role.outbox);
    return error;
}

/* This server is short of space, and cleaning makes some. */
static inline bool worker_cleans(const struct worker *worker)
{
    const struct server_common *common = worker->common;
    return atomic_load_explicit(&common->space, memory_order_relaxed) != SPACE_ENOUGH &&
           !atomic_load_explicit(&common->full, memory_order_relaxed);
}

/* A fabric may have only a few buffers for such messages. */
static inline bool request_is_large(const struct message_request *header)
{
    return header->key_bytes + header->value_bytes > WORKER_LARGE_BYTES;
}

/* The place among a shard's backups of the peer at that position; behind all: it is none of them. */
static inline uint32_t backup_place(const struct shard_state *shard, uint32_t position)
{
    uint32_t place = 0;
    while (place < shard->backup_count && shard->backups[place] != position)
        place++;
    return place;
}

static inline bool backs(const struct shard_state *shard, uint32_t position)
{
    return backup_place(shard, position) < shard->backup_count;
}

static inline bool peer_has_landed(const struct worker_peer *peer, uint64_t batch)
{
    return peer->landed >= batch ||
           (peer->connected && peer->landed == peer->posted && peer->open_batch == 0);
}

#endif
