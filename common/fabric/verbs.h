/* verbs.h - what the files of the verbs backend share; nobody else includes it but its tests.
 *
 *   verbs_device.c   the device: which one, its GID, MTU, limits; what is missing and what mends it
 *   verbs_memory.c   registered memory and its keys
 *   verbs_fabric.c   fabric and endpoints: open, close, sleep
 *   verbs_poll.c     poll and flush: completions, which connection has work, the order of the steps
 *   verbs_conn.c     a connection's life, and the lists it is on
 *   verbs_connect.c  the handshake, over an endpoint of the tcp backend
 *   verbs_hello.c    the bytes of that handshake: encode, decode
 *   verbs_packet.c   datagrams (UD): windows, acknowledgements, sending again
 *   verbs_message.c  messages: cut into datagrams, put together, held, released
 *   verbs_rc.c       a connection's reliable queue pair (RC)
 *   verbs_rowan.c    Rowan sends and bulk writes: the sender's side
 *   verbs_grant.c    the receiver's side of bulk writes: keys
 *   verbs_zone.c     the landing zone: segments in order, sealing; the three ways to receive:
 *   verbs_slots.c      slots of a shared receive queue, or of each connection's own
 *   verbs_mlx5.c       whole segments in a multi-packet shared receive queue, through DevX
 *   mlx5_layout.h, mlx5_command.c   the bytes that DevX wants
 *
 * A process has one fabric with one device, protection domain and registration for all endpoints. An
 * endpoint has one completion queue for all its queue pairs, one UD queue pair for the messages of all its
 * connections, and for each connection between servers one RC queue pair.
 *
 * The tcp connection that set a connection up lives as long as it: its end is the connection's end, so a
 * dead peer is noticed though nothing is sent, and refusal, admission and limits are those of tcp.
 */
#ifndef FABRIC_VERBS_H
#define FABRIC_VERBS_H

#include <infiniband/verbs.h>

#include "common/base/clock.h"
#include "common/fabric/fabric.h"
#include "common/fabric/verbs_device.h"
#include "common/fabric/verbs_hello.h"

enum {
    VERBS_MAX_REGIONS = 16,
    VERBS_MAX_CONNS = 16384, /* of an endpoint */

    VERBS_BLOCKS =
        8192, /* of one connection's queue of Rowan sends: a value of 1 MiB has 4687 of 256 B */
    VERBS_MARKS = 1024, /* batches there */
};

struct verbs_conn;
struct verbs_rc;
struct verbs_zone;

/* --- work requests ---
 *
 * A wr_id says whose a completion is without pointing at it: completions may outlive the queue pair (rxe
 * leaves them in the queue). The connection's number and generation tell, and that wc.qp_num is its own. */
enum verbs_work_kind {
    VERBS_WORK_UD_SEND = 1, /* number: of the send buffer, or as verbs_packet.c wants */
    VERBS_WORK_UD_RECEIVE,  /* number: of the receive buffer */
    VERBS_WORK_RC,          /* connection: its number; number: as verbs_rowan.c wants */
    VERBS_WORK_LANDING, /* a receive into the zone; connection: of VERBS_RECEIVE_CONNECTION; number: of the
                               slot */
};

static inline uint64_t verbs_work(enum verbs_work_kind kind, uint32_t connection, uint32_t number)
{
    return (uint64_t)kind << 56 | (uint64_t)(connection & 0xffffff) << 32 | number;
}
static inline enum verbs_work_kind verbs_work_kind(uint64_t wr_id)
{
    return (enum verbs_work_kind)(wr_id >> 56);
}
static inline uint32_t verbs_work_connection(uint64_t wr_id)
{
    return (uint32_t)(wr_id >> 32) & 0xffffff;
}
static inline uint32_t verbs_work_number(uint64_t wr_id)
{
    return (uint32_t)wr_id;
}

/* --- process --- */

struct verbs_region {
    struct pm *pm; /* NULL: memory of the backend itself */
    const uint8_t *base;
    uint64_t bytes;
    struct ibv_mr *mr; /* local access only: nobody else gets its key */
};

struct verbs_fabric {
    struct fabric base;
    struct fabric_verbs_options options;
    struct verbs_device *device;
    struct fabric *control; /* tcp: sets connections up */
    uint32_t region_count;
    struct verbs_region regions[VERBS_MAX_REGIONS];
};

/* --- endpoints --- */

enum verbs_list_kind {
    VLIST_ALL,
    VLIST_HANDSHAKE, /* not open yet */
    VLIST_ACTIVE,    /* has work that no completion will announce again */
    VLIST_DIRTY,     /* has something to hand over */
    VLIST_TIMED,     /* packets wait for an acknowledgement, or one is owed */
    VLIST_DEAD,
    VLIST_COUNT,
};

struct verbs_link {
    struct verbs_conn *next, *prev;
};

struct verbs_list {
    struct verbs_conn *first, *last;
};

struct verbs_endpoint {
    struct fabric_endpoint base;
    struct verbs_fabric *fabric;
    struct verbs_device *device;
    uint32_t index;
    struct fabric_endpoint *control; /* of fabric->control, with the same index */
    int epoll_fd;                    /* what a reactor sleeps on: control, channel, timer */
    int timer_fd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    bool armed;
    bool closing;
    uint64_t now_ns;

    struct verbs_packets *packets;   /* the UD queue pair and its buffers */
    struct verbs_messages *messages; /* memory that messages are put together in */

    struct verbs_conn **conns; /* by number; verbs_conn.c */
    uint32_t conn_room;
    uint32_t counts[VLIST_COUNT];
    struct verbs_list lists[VLIST_COUNT];

    struct verbs_zone *zone;
};

/* --- connections --- */

enum verbs_conn_state {
    VCONN_DIALLING, /* active: tcp connects */
    VCONN_GREETING, /* active: hello sent; passive: hello awaited */
    VCONN_READYING, /* passive: answered, waits for "ready" */
    VCONN_OPEN,
    VCONN_BREAKING, /* CLOSED will come */
    VCONN_DEAD,     /* freed by the next poll */
};

struct verbs_conn {
    struct fabric_conn base;
    struct verbs_endpoint *endpoint;
    enum verbs_conn_state state;
    bool active;
    bool announced;
    int error;
    uint32_t number; /* in endpoint->conns; with `token` in every packet to us */
    uint32_t token;
    uint32_t listed;
    uint64_t context;
    uint64_t since_ns;
    struct fabric_identity peer;
    struct fabric_conn *control; /* tcp; NULL: gone */
    struct verbs_hello theirs;

    struct verbs_stream *stream; /* messages; from the hello on */
    struct verbs_rc *rc;         /* NULL: not between servers */

    struct verbs_link links[VLIST_COUNT];
};

static inline bool verbs_is_listed(const struct verbs_conn *conn, enum verbs_list_kind list)
{
    return conn->listed & UINT32_C(1) << list;
}

/* --- verbs_memory.c --- */

/* Errors: ROWAN_ETOOMANY ENOMEM EUNSUPPORTED EPERMISSION, with a line in the log that says what mends it. */
int verbs_register(struct fabric *fabric, struct pm *pm);

/* The region that all of [data, data + bytes) lies in, NULL: none. */
const struct verbs_region *verbs_region_of(const struct verbs_fabric *fabric, const void *data,
                                           uint64_t bytes);
const struct verbs_region *verbs_region_of_pm(const struct verbs_fabric *fabric,
                                              const struct pm *pm);

/* --- verbs_conn.c --- */

int verbs_conn_create(struct verbs_endpoint *endpoint, bool active, struct verbs_conn **out);
void verbs_list_add(struct verbs_conn *conn, enum verbs_list_kind list); /* at the end */
void verbs_list_remove(struct verbs_conn *conn, enum verbs_list_kind list);
struct verbs_conn *verbs_list_take(struct verbs_endpoint *endpoint, enum verbs_list_kind list);

/* The connection with that number; NULL: there is none. */
struct verbs_conn *verbs_conn_of(const struct verbs_endpoint *endpoint, uint32_t number);

/* Ends it: its queue pair is destroyed at once, so that nothing of it lands or is read any more; CLOSED
 * with `error` will come. What was in flight is unknown. */
void verbs_conn_break(struct verbs_conn *conn, int error);
void verbs_conn_bury(struct verbs_conn *conn);
void verbs_conn_reap(struct verbs_endpoint *endpoint);
void verbs_conn_close(struct fabric_conn *conn);

/* --- verbs_rc.c, verbs_rowan.c: Rowan sends and bulk writes ---
 *
 * Connections between servers have an RC queue pair; on the side with a landing zone it takes its receives
 * where the zone says. All calls are the endpoint's. */

/* verbs_rc_open: makes the queue pair, in INIT, and fills our part of the hello. Errors: ROWAN_ENOMEM
 * ETOOMANY EUNSUPPORTED. */
int verbs_rc_open(struct verbs_conn *conn, struct verbs_rc_hello *ours);

/* verbs_rc_connect: to RTS with what the peer's hello says; checked. Sets conn->base.has_zone. Errors:
 * ROWAN_EFORMAT EUNSUPPORTED. */
int verbs_rc_connect(struct verbs_conn *conn, const struct verbs_rc_hello *theirs);

/* Destroys the queue pair: when it returns, nothing of this connection lands. Revokes its grants. */
void verbs_rc_close(struct verbs_conn *conn);

/* A completion of VERBS_WORK_RC with our qp_num; errors break the connection. */
void verbs_rc_completion(struct verbs_conn *conn, const struct ibv_wc *wc);

/* LANDED and WRITTEN events. verbs_rc_has_events: the poll could go on at once. */
unsigned verbs_rc_poll(struct verbs_conn *conn, struct fabric_event *events, unsigned max);
bool verbs_rc_has_events(const struct verbs_conn *conn);

/* Hands over what waits; called by flush for connections on VLIST_DIRTY. */
void verbs_rc_push(struct verbs_conn *conn);

/* Of the peer's device: what of verbs_rc_completion happened without a completion (an asynchronous
 * event that names this queue pair). */
void verbs_rc_failed(struct verbs_conn *conn);

uint32_t verbs_rowan_room(const struct fabric_conn *conn);
int verbs_rowan_add(struct fabric_conn *conn, const void *block, uint32_t bytes);
int verbs_rowan_post(struct fabric_conn *conn, uint64_t context);
int verbs_write(struct fabric_conn *conn, const struct fabric_grant *grant, uint64_t at,
                const void *data, uint32_t bytes, uint64_t context);

/* --- verbs_grant.c --- */
int verbs_grant(struct fabric_conn *conn, uint64_t offset, uint64_t bytes, uint64_t context,
                struct fabric_grant *out);
void verbs_revoke(struct fabric_conn *conn, const struct fabric_grant *grant);

/* --- verbs_zone.c --- */
int verbs_zone_open(struct fabric_endpoint *endpoint, struct pm *pm, uint32_t depth,
                    struct fabric_zone **out);
void verbs_zone_close(struct fabric_zone *zone);
int verbs_zone_post(struct fabric_zone *zone, uint64_t offset, uint64_t context);

/* A completion of VERBS_WORK_LANDING. */
void verbs_zone_completion(struct verbs_zone *zone, const struct ibv_wc *wc);

/* Posts slots, seals, REVOKED; each poll of the endpoint. */
unsigned verbs_zone_poll(struct verbs_zone *zone, uint64_t now_ns, struct fabric_event *events,
                         unsigned max);

/* How soon verbs_zone_poll must be called though nothing completes; UINT64_MAX: never. */
uint64_t verbs_zone_wait_ns(const struct verbs_zone *zone);

/* --- the ways to receive: an ops table, so that one more is an addition --- */

struct verbs_receive_ops {
    const char *name; /* for the log and rowan-doctor */

    /* Errors: ROWAN_ENOMEM EUNSUPPORTED. */
    int (*open)(struct verbs_zone *zone);
    void (*close)(struct verbs_zone *zone);

    /* Creates the connection's RC queue pair in INIT, with its receives where they belong. On mlx5 it may be
     * a DevX object. */
    int (*attach)(struct verbs_zone *zone, struct verbs_conn *conn);
    void (*detach)(struct verbs_zone *zone,
                   struct verbs_conn *conn); /* after the pair is destroyed */

    /* A segment was posted; hand receives for it to the device. */
    void (*post)(struct verbs_zone *zone);
    void (*completion)(struct verbs_zone *zone, const struct ibv_wc *wc);

    /* True: the oldest posted segment is sealed now. */
    bool (*is_sealed)(struct verbs_zone *zone, uint64_t now_ns);
};

extern const struct verbs_receive_ops verbs_receive_shared;       /* verbs_slots.c */
extern const struct verbs_receive_ops verbs_receive_connection;   /* verbs_slots.c */
extern const struct verbs_receive_ops verbs_receive_multi_packet; /* verbs_mlx5.c */

#endif
