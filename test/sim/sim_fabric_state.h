/* sim_fabric_state.h - the inside of the simulated network, shared by sim_fabric.c (processes,
 * endpoints, handshakes, polling), sim_conn.c (connections and messages) and sim_landing.c (Rowan
 * sends and landing zones). */
#ifndef SIM_FABRIC_STATE_H
#define SIM_FABRIC_STATE_H

#include "common/base/random.h"
#include "test/sim/sim_fabric.h"

enum {
    SIM_MAX_MEMORIES = 4,
    SIM_MAX_ENDPOINTS = 256,
    SIM_MAX_NAME = 64,
    SIM_MAX_UNRELEASED_BYTES = 4 << 20 /* of a connection and direction */
};

struct sim_network {
    struct sim_network_options options;
    struct random random;
    struct sim_network_counts counts;
    uint64_t trace, progress;
    struct sim_fabric *fabrics;
    uint32_t opened;              /* fabrics, since the beginning */
    uint32_t connecting;          /* connections in state CONN_CONNECTING */
    char parted[2][SIM_MAX_NAME]; /* empty: nobody is */
};

struct sim_fabric {
    struct fabric head; /* first */
    struct sim_network *network;
    struct sim_fabric *next;
    char address[SIM_MAX_NAME]; /* empty: none */
    uint32_t number;            /* for the trace */
    struct pm *memories[SIM_MAX_MEMORIES];
    uint32_t memory_count;
    struct sim_endpoint *endpoints[SIM_MAX_ENDPOINTS];
};

/* What waits in a connection for its owner's poll, in order. A message waits there in `data`. */
struct sim_item {
    struct fabric_event event;
    uint64_t at_ns; /* arrives */
    struct sim_item *next;
    struct sim_item *previous;             /* in the list of unreleased messages */
    unsigned flags;                        /* of the send */
    uint64_t signal;                       /* context of the SENT event */
    struct fabric_iov iov[FABRIC_MAX_IOV]; /* without FABRIC_COPY: gathered on arrival */
    unsigned iov_count;
    _Alignas(8) uint8_t data[];
};

struct sim_queue {
    struct sim_item *first, *last;
};

/* A block, or (bytes 0) the end of a batch. */
struct sim_block {
    const void *data;
    uint32_t bytes;
    uint32_t batch_blocks; /* end: how many blocks the batch had */
    uint64_t context;      /* end: of the LANDED event */
    uint64_t at_ns;        /* once flushed: when it arrives */
};

enum sim_conn_state { CONN_CONNECTING, CONN_OPEN, CONN_BROKEN };

struct sim_conn {
    struct fabric_conn head; /* first */
    struct sim_endpoint *endpoint;
    struct sim_conn *peer; /* NULL: none yet, or gone */
    enum sim_conn_state state;
    bool over; /* closed, or its CLOSED event was handed out: freed by the next poll */
    uint64_t context;
    struct sim_conn *next, *previous; /* of the endpoint */

    struct sim_queue incoming; /* for the owner */
    struct sim_queue outgoing; /* sent, not flushed */
    struct sim_item *unreleased;
    uint64_t message_bytes; /* of these: */
    uint32_t messages;      /* in `outgoing`, in the peer's `incoming`, or unreleased there */
    uint64_t last_at_ns;    /* of what went into the peer's `incoming` */

    /* Blocks, a ring: [landed, flushed) are on their way, [flushed, posted) wait for a flush,
     * [posted, added) are in the open batch. */
    struct sim_block *blocks;
    uint64_t block_landed, block_flushed, block_posted, block_added;
    uint32_t blocks_in_flight; /* until their batch's LANDED event */
    uint32_t batch_blocks;     /* of the open batch */
    uint64_t last_block_at_ns;
    bool fencing; /* the batch whose end is at `block_landed` waits for the peer's fence */
    struct pm_ticket ticket;

    /* CONNECTING: to whom, as whom, and when that is heard. */
    char to[SIM_MAX_NAME];
    uint32_t to_index;
    struct fabric_identity identity;
    uint64_t connect_at_ns;
};

struct sim_posted {
    uint64_t offset, context;
};

struct sim_zone {
    struct fabric_zone head; /* first */
    struct sim_endpoint *endpoint;
    struct pm *pm;
    uint32_t depth;
    struct sim_posted *posted; /* a ring: [reported, sealed) to report, [sealed, count) to fill */
    uint64_t reported, sealed, count;
    uint32_t tail;                 /* bytes used of the segment at `sealed` */
    const struct sim_conn *lander; /* whose block landed last; only compared */
    bool lander_in_batch;          /* and it was not the last of its batch */
};

struct sim_endpoint {
    struct fabric_endpoint head; /* first */
    struct sim_fabric *fabric;
    uint32_t index;
    uint32_t slot;          /* in the fabric's array */
    struct sim_conn *conns; /* oldest first */
    struct sim_conn *last_conn;
    struct sim_zone *zone;
    uint32_t turn; /* which connection is polled first */
};

/* --- sim_fabric.c --- */

static inline struct sim_network *sim_network_of(const struct sim_conn *conn)
{
    return conn->endpoint->fabric->network;
}

uint64_t sim_network_now(const struct sim_network *network);
uint64_t sim_network_delay(struct sim_network *network);
void sim_network_mix(struct sim_network *network, const void *data, size_t bytes);
bool sim_address_is_valid(const char *address);
bool sim_fabric_registered(const struct sim_fabric *fabric, const void *data, uint64_t bytes);

/* --- sim_conn.c --- */

struct sim_conn *sim_conn_create(struct sim_endpoint *endpoint, uint64_t context);
/* Takes it from its endpoint; its peer's pointer to it must be gone. */
void sim_conn_free(struct sim_conn *conn);

/* Something for the owner, `error` for CLOSED. Arrives after all that went before. */
void sim_conn_push(struct sim_conn *conn, enum fabric_event_kind kind, int error, uint64_t context);

/* Ends a connection as a cut cable does: both sides hear of it, the seed decides what of the rest
 * arrives. `to_owner` false: the owner closes it itself. */
void sim_conn_break(struct sim_conn *conn, bool to_owner);

/* The owner's next event, if one has arrived. */
bool sim_conn_next(struct sim_conn *conn, struct fabric_event *event);
void sim_conn_flush(struct sim_conn *conn);

int sim_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t index,
                uint64_t context, struct fabric_conn **out);
void sim_conn_close(struct fabric_conn *conn);
int sim_send(struct fabric_conn *conn, const struct fabric_iov *iov, unsigned count, unsigned flags,
             uint64_t context);
void sim_message_release(struct fabric_conn *conn, uint64_t message);

/* --- sim_landing.c --- */

uint32_t sim_rowan_room(const struct fabric_conn *conn);
int sim_rowan_add(struct fabric_conn *conn, const void *block, uint32_t bytes);
int sim_rowan_post(struct fabric_conn *conn, uint64_t context);
void sim_rowan_flush(struct sim_conn *conn);
/* When the next block on its way arrives; there is one. */
uint64_t sim_rowan_at_ns(const struct sim_conn *conn);
/* Lands a few blocks, and reports batches that are durable. */
void sim_rowan_step(struct sim_conn *conn);
/* The connection ends: some of the blocks land, the rest is lost. */
void sim_rowan_cut(struct sim_conn *conn);

int sim_zone_open(struct fabric_endpoint *endpoint, struct pm *pm, uint32_t depth,
                  struct fabric_zone **out);
void sim_zone_close(struct fabric_zone *zone);
int sim_zone_post(struct fabric_zone *zone, uint64_t offset, uint64_t context);
bool sim_zone_next(struct sim_zone *zone, struct fabric_event *event);

#endif
