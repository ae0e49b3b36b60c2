/* sim_fabric_state.h - the inside of the simulated network, shared by
 *
 *   sim_fabric.c   fabrics, endpoints, handshakes, polling
 *   sim_path.c     hosts and what lies between them: blocks, stalls, breaks, stops; the next time
 *   sim_conn.c     connections and messages
 *   sim_rowan.c    Rowan sends: what is on its way to a landing zone
 *   sim_landing.c  landing zones: space, stores, sealing
 *
 *  1. Whatever will happen at a later time is in the alarms; whatever may happen now is found by the poll of
 *     an endpoint whose due_ns is not later than now. Whoever changes something of a connection wakes it
 *     (sim_conn_wake).
 *  2. A connection that was cut has no peer: what it still brings lies in the wreck of the side that hears it.
 */
#ifndef SIM_FABRIC_STATE_H
#define SIM_FABRIC_STATE_H

#include "common/base/list.h"
#include "common/base/random.h"
#include "common/fabric/shut_out.h"
#include "test/sim/journal.h"
#include "test/sim/sim_fabric.h"

enum {
    SIM_MAX_MEMORIES = 4,
    SIM_MAX_ENDPOINTS = 256,
    SIM_MAX_NAME = 64,
    SIM_MAX_HOSTS = 32,                /* names, since the beginning */
    SIM_MAX_UNRELEASED_BYTES = 4 << 20 /* of a connection and direction */
};

#define SIM_HANDSHAKE_NS (5 * NS_PER_S) /* a connection that nobody answers; as on shm and tcp */
#define SIM_CUT_NS       (1 * NS_PER_S) /* a block that the receiver has a part of; as on tcp */

/* A process by its name, whether it lives or not. Number 0 are all without a name. */
struct sim_host {
    char name[SIM_MAX_NAME];
    bool stopped;
};

/* From one host to another. */
struct sim_path {
    bool blocked;
    bool silent;         /* blocked for silence_ns: its connections were broken */
    uint64_t blocked_ns; /* since */
    uint64_t hold_ns;    /* nothing arrives before */
};

/* Times at which something may happen, a binary heap. */
struct sim_alarms {
    uint64_t *times;
    uint32_t count, room;
};

struct sim_conn_list {
    struct sim_conn *first, *last;
};

struct sim_conn_link {
    struct sim_conn *next, *prev;
};

struct sim_network {
    struct sim_network_options options;
    struct random random;
    struct sim_network_counts counts;
    uint64_t trace, progress;
    struct sim_fabric *fabrics;
    struct {
        struct sim_endpoint *first, *last;
    } endpoints;
    struct sim_conn_list connecting; /* state CONN_CONNECTING, oldest first */
    uint32_t opened;                 /* fabrics, since the beginning */
    uint64_t conns;                  /* likewise */
    struct sim_alarms *alarms;
    uint64_t silence_at_ns; /* the next path falls silent; WAKE_NEVER */
    uint32_t host_count;
    struct sim_host hosts[SIM_MAX_HOSTS];
    struct sim_path paths[SIM_MAX_HOSTS][SIM_MAX_HOSTS]; /* from, to */
};

struct sim_fabric {
    struct fabric head; /* first */
    struct sim_network *network;
    struct sim_fabric *next;
    char address[SIM_MAX_NAME]; /* empty: none */
    uint32_t host;
    uint32_t number; /* for the trace */
    struct pm *memories[SIM_MAX_MEMORIES];
    uint32_t memory_count;
    uint32_t endpoint_count;
};

/* What waits in a connection for its owner's poll, in order. A message waits there in `data`. */
struct sim_item {
    struct fabric_event event;
    uint64_t at_ns; /* arrives */
    struct {
        struct sim_item *next, *prev;
    } link; /* of one queue */
    _Alignas(8) uint8_t data[];
};

struct sim_queue {
    struct sim_item *first, *last;
};

/* A block, or (bytes 0) the end of a batch. */
struct sim_block {
    const uint8_t *data;
    uint32_t bytes;
    uint32_t batch_blocks;   /* end: how many blocks the batch had */
    uint64_t context;        /* end: of the LANDED event */
    uint64_t at_ns;          /* once flushed: when it arrives */
    struct pm_ticket ticket; /* end, once landed */
};

/* Somebody who stores into a zone, and the space that is his: a part of one segment. */
struct sim_lander {
    struct sim_zone *zone; /* NULL: none */
    bool is_void;          /* the owner waits for it no longer */
    bool is_told;          /* that it is void, and where */
    bool ends_with_conn;   /* and is never void: what is left over of a cut connection, or tcp */
    uint64_t segment;      /* number of, since the zone was opened */
    uint64_t at, end;      /* the next byte goes to; in the PM */
    uint64_t since_ns;
    uint64_t resume_ns; /* he pauses inside a block until then */
    const uint8_t *data;
    uint32_t bytes, stored; /* of the block at hand */
    uint32_t limit;         /* bytes of it that are ever stored */
    struct {
        struct sim_lander *next, *prev;
    } link;          /* of the zone */
    uint32_t fabric; /* number of the sender's; for the trace */
    uint64_t conn_number;
    struct fabric_identity who;
};

enum sim_landing { LANDING_DONE, LANDING_WAITS, LANDING_VOID };

/* What a cut connection still brings: blocks whose bytes were copied. */
struct sim_wreck {
    struct sim_lander lander;
    uint64_t given_up_ns; /* by the sender */
    uint32_t count, next;
    struct sim_block blocks[];
};

enum sim_conn_state {
    CONN_CONNECTING,
    CONN_OPEN,
    CONN_CUT,    /* its owner does not know yet: closes_ns */
    CONN_BROKEN, /* he does, or has closed it himself */
};

struct sim_conn {
    struct fabric_conn head; /* first */
    struct sim_endpoint *endpoint;
    struct sim_conn *peer; /* NULL: none yet, or none any more */
    enum sim_conn_state state;
    bool over; /* closed, or its CLOSED event was handed out: freed by the next poll */
    uint64_t number;
    uint64_t context;
    uint32_t remote;           /* host of the peer */
    struct sim_conn_link link; /* of the endpoint */

    bool listed; /* among those of the endpoint with something to do */
    struct sim_conn *next_busy;
    bool dirty; /* among those to flush */
    struct sim_conn *next_dirty;

    /* CUT, or refused. */
    uint64_t closes_ns; /* WAKE_NEVER: it does not */
    int close_error;
    bool is_told; /* by the peer's side: blocks and stalls hold it up */

    struct sim_queue incoming; /* for the owner */
    struct sim_queue outgoing; /* sent, not flushed */
    struct sim_queue unreleased;
    uint64_t message_bytes; /* of these: */
    bool refused;           /* a send, since a message was released */
    uint32_t messages;      /* in `outgoing`, in the peer's `incoming`, or unreleased there */
    uint64_t last_at_ns;    /* of what went into `incoming` */

    /* Blocks, a ring: [fenced, landed) have landed and wait for their fences, [landed, flushed) are on their
     * way, [flushed, posted) wait for a flush, [posted, added) are in the open batch. */
    struct sim_block *blocks;
    uint32_t ring_room; /* a power of two */
    uint64_t block_fenced, block_landed, block_flushed, block_posted, block_added;
    uint32_t blocks_in_flight; /* until their batch's LANDED event */
    uint32_t batch_blocks;     /* of the open batch */
    uint64_t last_block_at_ns;
    struct sim_lander lander;
    struct sim_wreck *wreck; /* of the peer that was; for our zone */

    /* CONNECTING: to whom, as whom, and when that is heard. */
    struct sim_conn_link connecting;
    uint32_t to_index;
    struct fabric_identity identity; /* of who connected */
    uint64_t connect_ns, connect_at_ns;
};

struct sim_posted {
    uint64_t offset, context;
    uint32_t open;     /* landers who store into it, and are waited for */
    uint64_t stuck_ns; /* since when the owner waits for these; 0: he does not */
};

/* A segment that is sealed, and not quiet. */
struct sim_unquiet {
    uint64_t segment, context;
    struct sim_unquiet *next;
};

struct sim_zone {
    struct fabric_zone head; /* first */
    struct sim_endpoint *endpoint;
    struct pm *pm;
    uint32_t depth;
    struct sim_posted *posted; /* a ring: [reported, sealed) to report, [sealed, count) to fill */
    uint64_t reported, sealed, count;
    uint32_t tail; /* bytes used of the segment at `sealed` */
    struct {
        struct sim_lander *first, *last;
    } landers;
    struct sim_unquiet *unquiet; /* oldest first */
    uint64_t last_conn;          /* number of that whose block landed last; 0: none */
    bool last_in_batch;          /* and it was not the last of its batch */
};

struct sim_endpoint {
    struct fabric_endpoint head; /* first */
    struct sim_fabric *fabric;
    struct {
        struct sim_endpoint *next, *prev;
    } link; /* of the network */
    uint32_t index;
    uint64_t due_ns;            /* 1 */
    struct sim_conn_list conns; /* oldest first */
    struct sim_conn *busy, *last_busy;
    struct sim_conn *dirty;
    struct sim_zone *zone;
    uint32_t turn; /* which connection is polled first */
    bool room;     /* a peer has made some for what was refused */
};

/* --- sim_fabric.c --- */

static inline struct sim_network *sim_network_of(const struct sim_conn *conn)
{
    return conn->endpoint->fabric->network;
}

static inline uint64_t sim_network_now(const struct sim_network *network)
{
    return network->options.clock->now_ns;
}

uint64_t sim_network_delay(struct sim_network *network);
void sim_network_mix(struct sim_network *network, const void *data, size_t bytes);
bool sim_address_is_valid(const char *address);
bool sim_fabric_registered(const struct sim_fabric *fabric, const void *data, uint64_t bytes);

/* --- sim_path.c --- */

/* Its number, the same for all time. */
uint32_t sim_host(struct sim_network *network, const char *address);

/* Something may happen at that time. */
void sim_alarm(struct sim_network *network, uint64_t at_ns);

/* When what would arrive at `at_ns` does; WAKE_NEVER as long as the path is blocked. */
static inline uint64_t sim_path_at(const struct sim_network *network, uint32_t from, uint32_t to,
                                   uint64_t at_ns)
{
    const struct sim_path *path = &network->paths[from][to];
    if (path->blocked)
        return WAKE_NEVER;
    return at_ns < path->hold_ns ? path->hold_ns : at_ns;
}

/* Breaks what was blocked for too long. */
void sim_network_silence(struct sim_network *network);

/* --- sim_conn.c --- */

struct sim_conn *sim_conn_create(struct sim_endpoint *endpoint, uint64_t context);
/* Takes it from its endpoint; it was cut. */
void sim_conn_free(struct sim_conn *conn);

/* Its endpoint's next poll looks at it. */
void sim_conn_wake(struct sim_conn *conn);
/* Its endpoint's next flush does. */
void sim_conn_dirty(struct sim_conn *conn);
/* There is nothing to look at. */
bool sim_conn_rests(const struct sim_conn *conn);
/* When there is. */
uint64_t sim_conn_due_ns(const struct sim_conn *conn);

/* Would its owner's poll find something? */
bool sim_conn_has_work(const struct sim_conn *conn);

/* Something for the owner. Arrives after all that went before. */
struct sim_item *sim_conn_push(struct sim_conn *conn, enum fabric_event_kind kind,
                               uint64_t context);

/* Ends a connection as a cut cable does: both sides hear of it, each at its time, the seed decides what of
 * the rest arrives. */
void sim_conn_break(struct sim_conn *conn);

/* The same, found by the owner: he hears of it at once. */
void sim_conn_fail(struct sim_conn *conn);

/* F11, F12: the passive side of a connection; nothing of it lands any more, but for a claim (one_sided). */
void sim_conn_supersede(struct sim_conn *conn);

/* A handshake ends with an error. */
void sim_conn_refuse(struct sim_conn *conn, int error);

/* It is CONNECTING no longer. */
void sim_conn_answered(struct sim_conn *conn);

/* The owner's next event, if one has arrived. */
bool sim_conn_next(struct sim_conn *conn, struct fabric_event *event);
void sim_conn_flush(struct sim_conn *conn);
void sim_conn_journal(const struct sim_conn *conn, const char *what);

int sim_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t index,
                uint64_t context, struct fabric_conn **out);
void sim_conn_close(struct fabric_conn *conn);
int sim_send(struct fabric_conn *conn, const struct fabric_iov *iov, unsigned count);
void sim_message_release(struct fabric_conn *conn, uint64_t message);

/* --- sim_rowan.c --- */

uint32_t sim_rowan_room(const struct fabric_conn *conn);
int sim_rowan_add(struct fabric_conn *conn, const void *block, uint32_t bytes);
int sim_rowan_post(struct fabric_conn *conn, uint64_t context);
void sim_rowan_flush(struct sim_conn *conn);

/* What the connection's owner does for blocks in his poll: stores his own (one_sided), or takes in those of
 * the peer; and those of a peer that was. */
void sim_rowan_step(struct sim_conn *conn);
/* Some more of what is on its way to the owner lands, before his end. */
void sim_rowan_arrive(struct sim_conn *conn);
/* When there is something to do for that; WAKE_NEVER. */
uint64_t sim_rowan_due_ns(const struct sim_conn *conn);
bool sim_rowan_rests(const struct sim_conn *conn);
/* Would sim_rowan_step get on with it? */
bool sim_rowan_has_work(const struct sim_conn *conn);

/* The connection is cut, both know their closes_ns: a part of the sender's blocks lands until its peer
 * hears of it. `lands` false: the peer has closed it, nothing new does. `gave_up`: the sender has. */
void sim_rowan_cut(struct sim_conn *sender, bool lands, bool gave_up);

/* The owner hears of the end, or (`by_owner`) closes it, perhaps by his death. Nothing of it lands after. */
void sim_rowan_end(struct sim_conn *conn, bool by_owner);

/* one_sided: the owner is stopped, perhaps in the middle of a store. */
void sim_rowan_stop(struct sim_conn *conn);

/* --- sim_landing.c --- */

int sim_zone_open(struct fabric_endpoint *endpoint, struct pm *pm, uint32_t depth,
                  struct fabric_zone **out);
void sim_zone_close(struct fabric_zone *zone);
int sim_zone_post(struct fabric_zone *zone, uint64_t offset, uint64_t context);
void sim_close_segment(struct fabric_zone *zone);
uint64_t sim_zone_begun(const struct fabric_zone *zone);
int sim_shut_out(struct fabric_zone *zone, uint32_t server, uint64_t incarnation, uint64_t context);
unsigned sim_shut_out_events(struct sim_zone *zone, struct fabric_event *events, unsigned max);
bool sim_zone_next(struct sim_zone *zone, struct fabric_event *event);
uint64_t sim_zone_due_ns(const struct sim_zone *zone);
/* Would sim_zone_next find something, or sim_shut_out_events get on? */
bool sim_zone_has_work(const struct sim_zone *zone);
/* No segment is posted that anything could go into. */
bool sim_zone_is_dry(const struct sim_zone *zone);

/* Its owner goes on after a stop: what he waited for, he waits for anew. */
void sim_zone_awake(struct sim_zone *zone);

/* Nothing more goes into the open segment. */
void sim_zone_seal_early(struct sim_zone *zone);

/* What a block of `bytes` takes of a zone. */
uint32_t sim_zone_slot(const struct sim_zone *zone, uint32_t bytes);

/* How much fits into what is open; 0: nothing is. */
uint32_t sim_zone_room(const struct sim_zone *zone);

/* Takes space of `bytes`, of which the first block takes `first`. False: the zone is dry. */
bool sim_zone_claim(struct sim_zone *zone, struct sim_lander *lander, uint32_t bytes,
                    uint32_t first);

/* The block that goes there next; `limit`: how much of it ever does. */
void sim_lander_begin(struct sim_lander *lander, const struct sim_block *block, uint32_t limit);

/* Stores a piece or the rest of the block. LANDING_DONE: all of it is stored. */
enum sim_landing sim_lander_step(struct sim_lander *lander);

/* Stores `bytes` more of the block. */
void sim_lander_store(struct sim_lander *lander, uint32_t bytes);

/* Gives the space up: nobody stores there any more. Tells of a block of which a part is there. */
void sim_lander_end(struct sim_lander *lander);

/* The lander lies elsewhere now. */
void sim_lander_moved(struct sim_lander *lander);

#endif
