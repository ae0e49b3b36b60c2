/* fabric.h - the network seam, with the semantics of RDMA verbs.
 *
 * What holds on every backend, because it holds on verbs:
 *
 *  F1  Order holds within a connection and direction only: its blocks land in the order they were
 *      added, its messages arrive in the order they were sent. Nothing is said between the two, nor
 *      between connections.
 *
 *  F2  A LANDED event says: every block of that batch, and of the batches posted before it on the
 *      connection, is visible in the peer's landing zone and durable there as the zone's PM
 *      promises. The peer's roles did nothing for it.
 *
 *  F3  When a connection breaks, what was in flight is unknown: any part of it may have landed, or
 *      may have arrived as a message. The CLOSED event is the last of that connection.
 *
 *  F4  A message is copied when it is sent. Blocks lie in registered memory, which must not change until
 *      LANDED says so. After CLOSED or fabric_conn_close nothing reads it any more.
 *
 *  F5  A received message's bytes belong to the receiver until it releases the message; messages
 *      may be released in any order. While too much is unreleased, the sender has no room.
 *
 *  F6  Blocks land in the posted segments one after another, whoever sent them, each at the next
 *      multiple of the receiver's `landing_stride`; a block never crosses a segment's end. What lies
 *      between two blocks, and the rest at a segment's end, keeps the bytes it had (zeros).
 *
 *  F7  SEALED: every block that will ever land in that segment has landed; segments are sealed in
 *      the order they were posted. QUIET: nobody can write to it any more, so it may be reused.
 *
 *  F8  A dry landing zone (no segment posted) delays senders and fails nothing; messages go on.
 *
 *  F9  Nothing blocks. A full queue answers ROWAN_EAGAIN and has changed nothing.
 *
 *  F11 A newer connection of a server's role to an endpoint with a landing zone ends the older one of the same role and
 *      incarnation, before the peer can send on the newer one: nothing of the older lands behind what is sent again on the newer.
 *
 *  F12 A SHUT_OUT event says: nothing that the server which was shut out has sent, or sends, lands in this zone any
 *      more, wherever it was stopped, and what has landed is durable. A VOID event, before the SEALED one of its
 *      segment, names bytes of it that do not count, though somebody may store there until the segment is quiet. The
 *      zone's owner stores in the zone's PM, before it polls again, that nobody reads them: so at SHUT_OUT that is
 *      durable, too. A block that is whole there when VOID is told stays so, and may count.
 *
 *  F13 A guest is who connected to an endpoint that has guests (fabric_endpoint_guests) and has not shown who it is; its
 *      owner says who has (fabric_conn_trust). Guests take nothing from others: one message of at most
 *      FABRIC_GUEST_BYTES at a time, FABRIC_GUEST_NS from ACCEPTED on, FABRIC_MAX_GUESTS places, of which one source
 *      address has FABRIC_MAX_GUESTS_OF_ONE; for one more the oldest is closed. Nobody waits for a guest that does not
 *      read. Who proved to the landing zone that it is a server (fabric_endpoint_secret) is none.
 *
 * An endpoint belongs to one role on one thread: all its calls, its connections and its landing
 * zone are that thread's. Different endpoints of a fabric may be used by different threads.
 *
 * Backends: shm (processes of one host), tcp (any network), verbs (RDMA), and in test/sim one inside a
 * thread.
 */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/auth/mac.h"
#include "common/base/clock.h"
#include "common/base/version.h"
#include "common/metrics/counter.h"
#include "common/pm/pm.h"
#include "common/reactor/reactor.h"

#ifdef ROWAN_SIM /* test/sim chooses a power of two: small segments are soon full */
extern uint32_t fabric_segment_bytes;
#define FABRIC_SEGMENT_BYTES fabric_segment_bytes
#else
#define FABRIC_SEGMENT_BYTES (UINT32_C(4) << 20)
#endif

enum {
    FABRIC_STRIDE = 64,
    FABRIC_MAX_MESSAGE_BYTES = (1 << 20) + 4096, /* a value of 1 MiB, a key of 1 KiB, headers */
    FABRIC_MAX_IOV = 40,                         /* pieces of one message */
    FABRIC_MAX_ZONE_SENDERS = 256,               /* connections that send into one landing zone */
    FABRIC_MAX_SHUT_OUT = 64,                    /* servers, of one landing zone */
    FABRIC_WHY_BYTES = 544,
    FABRIC_SECRET_BYTES = 16,
    FABRIC_GUEST_BYTES = 1024,
    FABRIC_MAX_GUESTS = 1024, /* of an endpoint */
    FABRIC_MAX_GUESTS_OF_ONE = 512,
};

#define FABRIC_GUEST_NS (5 * NS_PER_S)

enum fabric_kind { FABRIC_CLIENT = 1, FABRIC_SERVER = 2, FABRIC_CM = 3 };

/* Who a process is: carried by the handshake of every connection, as it lies here (greeting.h). */
struct fabric_identity {
    uint64_t cluster; /* 0: not known yet (a client or server that asks a CM) */
    uint64_t term;    /* of the configuration the process holds */
    uint64_t incarnation;
    uint32_t id;   /* server or client number */
    uint32_t role; /* of the endpoint that connects: worker number for a server */
    enum fabric_kind kind;
    struct version_range messages; /* layouts it speaks (proto/message.h); all 0: this program's */
};

/* Is it that process of a server? Whoever connects asks: another one may have its address by now. */
static inline bool fabric_is_server(const struct fabric_identity *who, uint32_t server,
                                    uint64_t incarnation)
{
    return who->kind == FABRIC_SERVER && who->id == server && who->incarnation == incarnation;
}

/* Who accepted a connection, as both of its ends know him: what proofs name, so that nobody in between can pass them on. As it lies
 * here. All 0 where an address cannot be another's (shm), or nothing is proved by it yet (verbs). */
struct fabric_acceptor {
    uint8_t host
        [16]; /* that was dialled, and that the acceptor listens at: IPv6, or IPv4 mapped into it */
    uint64_t incarnation;
    uint32_t id;
    uint16_t port;
    uint16_t kind; /* enum fabric_kind; 0: he did not know yet who he is */
};

_Static_assert(sizeof(struct fabric_acceptor) == 32 &&
                   offsetof(struct fabric_acceptor, incarnation) == 16 &&
                   offsetof(struct fabric_acceptor, kind) == 30,
               "proofs are over these bytes");

struct fabric;
struct fabric_endpoint;
struct fabric_conn;
struct fabric_zone;

struct fabric_iov {
    const void *data;
    uint32_t bytes;
};

enum fabric_event_kind {
    FABRIC_CONNECTED, /* an active connection is usable; `peer` tells whom it reached, `context` is as given to
                       * fabric_connect */
    FABRIC_ACCEPTED, /* a passive one is usable; `peer` tells who */
    FABRIC_CLOSED,   /* broken, refused or closed by the peer; `error` says which; the connection is
                       gone when the next fabric_poll is called. Not after fabric_close */
    FABRIC_MESSAGE, /* a message came: `data`, `bytes`, `message` and `conn`; the event says no more */
    FABRIC_LANDED, /* F2: `context` */
    FABRIC_SEALED, /* F7: `context` as given to fabric_zone_post; `quiet` */
    FABRIC_QUIET,  /* F7: for a segment whose SEALED event was not quiet yet */
    FABRIC_VOID, /* F12: `data` and `bytes` in the zone's PM, `context` as given to fabric_zone_post */
    FABRIC_SHUT_OUT, /* F12: `context` as given to fabric_shut_out; `error`: ROWAN_EIO if a sync has failed, so that
                      * nobody knows what is durable */
};

struct fabric_event {
    enum fabric_event_kind kind;
    int error;
    bool quiet;
    uint32_t bytes;
    struct fabric_conn *conn;
    uint64_t context;
    const void *data; /* 8 B-aligned */
    uint64_t message; /* names the message for fabric_message_release */
    struct fabric_identity peer;
};

/* What the hardware or backend can do. */
struct fabric_caps {
    const char *backend;     /* "shm" | "tcp" | "verbs" | "sim" */
    uint32_t block_limit;    /* bytes of the largest block that lands in one piece */
    uint32_t landing_stride; /* F6, of this process's zones: 64 where blocks lie without gaps, else
                                the slots, a power of two */
    uint32_t max_batch_blocks; /* in flight on one connection (fabric_rowan_room at rest); no fewer
                                  than a value of 1 MiB has in blocks of the limit */
    bool shares_messages;      /* a peer may still change what it has sent (shm) */
};

/* --- the ops table: one per backend. The functions below say what each does. --- */

struct fabric_ops {
    void (*close)(struct fabric *fabric);
    int (*register_memory)(struct fabric *fabric, struct pm *pm);
    int (*endpoint_open)(struct fabric *fabric, uint32_t index, struct fabric_endpoint **out);
    void (*endpoint_close)(struct fabric_endpoint *endpoint);
    void (*endpoint_source)(struct fabric_endpoint *endpoint, struct event_source *out);
    unsigned (*poll)(struct fabric_endpoint *endpoint, uint64_t now_ns, struct fabric_event *events,
                     unsigned max);
    int (*connect)(struct fabric_endpoint *endpoint, const char *address, uint32_t index,
                   uint64_t context, struct fabric_conn **out);
    void (*conn_close)(struct fabric_conn *conn);
    int (*send)(struct fabric_conn *conn, const struct fabric_iov *iov, unsigned count);
    void (*message_release)(struct fabric_conn *conn, uint64_t message);
    uint32_t (*rowan_room)(const struct fabric_conn *conn);
    int (*rowan_add)(struct fabric_conn *conn, const void *block, uint32_t bytes);
    int (*rowan_post)(struct fabric_conn *conn, uint64_t context);
    void (*flush)(struct fabric_endpoint *endpoint);
    int (*zone_open)(struct fabric_endpoint *endpoint, struct pm *pm, uint32_t depth,
                     struct fabric_zone **out);
    int (*zone_post)(struct fabric_zone *zone, uint64_t offset, uint64_t context);
    void (*close_segment)(struct fabric_zone *zone);
    uint64_t (*zone_begun)(const struct fabric_zone *zone);
    int (*shut_out)(struct fabric_zone *zone, uint32_t server, uint64_t incarnation,
                    uint64_t context);
    /* NULL: it has no guests. conn NULL: all of them. */
    void (*trust)(struct fabric_endpoint *endpoint, struct fabric_conn *conn);
    /* NULL: no proofs. fabric_proof_again */
    bool (*proof_again)(const struct fabric_conn *conn, uint8_t code[MAC_BYTES]);
};

/* The heads of every backend's structs. */
struct fabric {
    const struct fabric_ops *ops;
    struct fabric_caps caps;
    char why[FABRIC_WHY_BYTES]; /* fabric_why */
};

/* Decides, on the endpoint's thread, whether a peer may connect: 0, or the ROWAN_E* it is refused
 * with (the peer's CLOSED event carries it). */
typedef int fabric_admit(void *context, const struct fabric_identity *peer);

/* Connections that an endpoint has ended for the sake of others, since it was opened; any thread reads them. */
struct fabric_ended {
    struct counter unread; /* whose peers do not read, and kept memory that others wanted */
    struct counter
        guests; /* F13: that took too long, asked for too much, or gave their place to newer ones */
    struct counter
        crowded; /* who had said nothing yet, and clients that were refused, as descriptors ran short */
    struct counter unproved; /* over tcp: said to be a server's, and did not show it */
};

struct fabric_endpoint {
    const struct fabric_ops *ops;
    fabric_admit *admit; /* NULL: everybody may */
    void *admit_context;
    const struct fabric_zone *shut_outs; /* NULL: nobody was shut out yet */
    struct fabric_identity identity;     /* of this side; see fabric_endpoint_identity */
    bool has_secret, demands_secret;     /* fabric_endpoint_secret */
    uint8_t secret[FABRIC_SECRET_BYTES];
    uint32_t secrets;              /* how many there were, with this one */
    bool has_former, signs_former; /* the latter: until a peer does not take it */
    uint8_t former[FABRIC_SECRET_BYTES];
    struct reactor *reactor; /* see fabric_endpoint_reactor */
    int error;               /* see fabric_endpoint_error */
    bool holds;              /* see fabric_flush; the owner sets it */
    bool has_guests;         /* fabric_endpoint_guests */
    struct fabric_ended ended;
};

/* For backends. fabric_admit_peer: may the peer connect? 0, or the ROWAN_E* it is refused with.
 * fabric_layout: what the connection's `layout` is, on both sides; 0: there is none in common. */
int fabric_admit_peer(const struct fabric_endpoint *endpoint, const struct fabric_identity *peer);

/* F11: the same role of the same process of a server. Who names no incarnation is nobody's same. */
bool fabric_is_same_sender(const struct fabric_identity *a, const struct fabric_identity *b);
uint16_t fabric_layout(const struct fabric_endpoint *endpoint, const struct fabric_identity *peer);

struct fabric_conn {
    const struct fabric_ops *ops;
    struct fabric_endpoint *endpoint;
    void *user;     /* the owner's, NULL at start */
    bool has_zone;  /* the peer's endpoint has a landing zone: Rowan sends are possible */
    bool unproved;  /* a server, over tcp, that has not shown the secret (fabric_endpoint_secret) */
    uint32_t shown; /* the number of the secret that it has shown; 0: none */
    bool guest;     /* F13 */
    uint16_t layout; /* of messages: the highest that both ends speak */
    struct fabric_acceptor acceptor;
};

/* A server that is shut out (shut_out.h). */
struct fabric_shut_out {
    uint32_t state; /* enum shut_out_state */
    uint32_t server;
    uint64_t incarnation; /* and those below */
    uint64_t context;
    uint64_t sealed; /* so many segments must be sealed until nothing of it can land */
    struct pm_ticket ticket;
};

struct fabric_zone {
    const struct fabric_ops *ops;
    uint32_t shut_out_waiting; /* of these, for their events */
    struct fabric_shut_out shut_outs[FABRIC_MAX_SHUT_OUT];
};

/* --- process --- */

/* fabric_open_shm: `address` names this process: "shm:/absolute/directory/name". Its endpoints are
 * sockets there, and the first one makes them; NULL for a process that only connects. A second
 * living process at one address is refused. Errors: ROWAN_EINVALID EINUSE EPERMISSION EIO ENOMEM.
 */
int fabric_open_shm(const char *address, struct fabric **out);

/* fabric_open_tcp: `address` is "tcp:HOST:PORT", the host an IPv4 address, an [IPv6] one or localhost;
 * no names, since to look one up would block. Endpoint i listens on PORT + i of that address. Errors:
 * ROWAN_EINVALID ENOMEM; an address in use is met when an endpoint is opened (ROWAN_EINUSE). */
int fabric_open_tcp(const char *address, struct fabric **out);

/* How a landing zone receives over verbs (common/fabric/README.md). */
enum fabric_receive {
    FABRIC_RECEIVE_AUTO,         /* the first of these that the device can */
    FABRIC_RECEIVE_MULTI_PACKET, /* one shared queue of whole segments (mlx5) */
    FABRIC_RECEIVE_SHARED,       /* one shared queue of slots */
};

/* All 0: found by itself. */
struct fabric_verbs_options {
    const char *device; /* "mlx5_0"; NULL: whose GID is the address, else the first active one */
    uint32_t gid_index_plus_1; /* 0: RoCEv2 with an IPv4 address first */
    enum fabric_receive receive;
    uint32_t slot_bytes; /* a power of two, 256 to the path MTU; 0: 256 */
};

/* fabric_open_verbs: `address` is "verbs:HOST:PORT", as for tcp: connections are set up over tcp there.
 * NULL for a process that only connects. Says in the log which device, GID, MTU and way to receive it
 * chose, and what mends what is missing. Errors: as for tcp, ROWAN_ENOTFOUND (no such device),
 * EUNSUPPORTED (the device lacks what it must have), EPERMISSION (locked memory). */
int fabric_open_verbs(const char *address, const struct fabric_verbs_options *options,
                      struct fabric **out);

/* fabric_open_with: chooses the backend by the address's scheme. `address` may be NULL; then `scheme` decides
 * ("shm", "tcp", "verbs", or the address of a peer). `verbs` may be NULL. Errors: as above, ROWAN_EADDRESS (no
 * scheme), EUNSUPPORTED (one that is not known). fabric_open: the same with all defaults. */
int fabric_open_with(const char *scheme, const char *address,
                     const struct fabric_verbs_options *verbs, struct fabric **out);

static inline int fabric_open(const char *scheme, const char *address, struct fabric **out)
{
    return fabric_open_with(scheme, address, NULL, out);
}

/* All endpoints must be closed. NULL is fine. */
static inline void fabric_close(struct fabric *fabric)
{
    if (fabric)
        fabric->ops->close(fabric);
}

static inline const struct fabric_caps *fabric_caps(const struct fabric *fabric)
{
    return &fabric->caps;
}

/* fabric_register: blocks may be sent straight from `pm`, and its bytes may be landing zone. Before the endpoints
 * that use it. Errors: ROWAN_ETOOMANY; verbs: ROWAN_EUNSUPPORTED (memory, or a
 * durability, that RDMA cannot have), EPERMISSION ENOMEM (locked memory). */
static inline int fabric_register(struct fabric *fabric, struct pm *pm)
{
    return fabric->ops->register_memory(fabric, pm);
}

/* fabric_why: what was wrong when fabric_register failed last, and what to do, in one sentence without its full
 * stop; "": the error says it. Valid until the next call or fabric_close. */
static inline const char *fabric_why(const struct fabric *fabric)
{
    return fabric->why;
}

/* --- endpoint --- */

/* fabric_endpoint_open: number `index` (0, 1, ...) of this process, to which peers connect by the
 * process's address and this number; any number where the process has no address. */
static inline int fabric_endpoint_open(struct fabric *fabric, uint32_t index,
                                       struct fabric_endpoint **out)
{
    const int error = fabric->ops->endpoint_open(fabric, index, out);
    if (!error)
        (*out)->identity.messages = VERSION_RANGE(MESSAGES);
    return error;
}

/* Closes its connections and its landing zone too. NULL is fine. */
static inline void fabric_endpoint_close(struct fabric_endpoint *endpoint)
{
    if (endpoint)
        endpoint->ops->endpoint_close(endpoint);
}

/* Who we say we are in handshakes that start after this call. Needed before fabric_connect. */
static inline void fabric_endpoint_identity(struct fabric_endpoint *endpoint,
                                            const struct fabric_identity *identity)
{
    endpoint->identity = *identity;
    if (identity->messages.highest == 0)
        endpoint->identity.messages = VERSION_RANGE(MESSAGES);
}

static inline void fabric_endpoint_admit(struct fabric_endpoint *endpoint, fabric_admit *admit,
                                         void *context)
{
    endpoint->admit = admit;
    endpoint->admit_context = context;
}

/* What all servers of a cluster have. Over tcp, who connects to a landing zone proves that he has it, and so does the other side;
 * with `demands` who does not is nobody (refused, or ROWAN_EUNREACHABLE). shm leaves that to the directory's permissions, verbs
 * to its network. From then on: of connections made before, and announced later, the owner ends those that are unproved.
 * `former`: while servers change to `secret`, one or the other is shown and taken; NULL: they do not. */
static inline void fabric_endpoint_secret(struct fabric_endpoint *endpoint, const uint8_t *secret,
                                          const uint8_t *former, bool demands)
{
    if (!endpoint->has_secret || memcmp(endpoint->secret, secret, sizeof endpoint->secret) != 0)
        endpoint->secrets++;
    endpoint->has_former = endpoint->signs_former = former != NULL;
    if (former)
        memcpy(endpoint->former, former, sizeof endpoint->former);
    memcpy(endpoint->secret, secret, sizeof endpoint->secret);
    endpoint->has_secret = true;
    endpoint->demands_secret = demands;
}

/* Has the peer to show the secret, and has not, or only one that does not count any more? */
static inline bool fabric_is_unproved(const struct fabric_conn *conn)
{
    return conn->unproved ||
           (conn->shown && conn->shown + conn->endpoint->has_former < conn->endpoint->secrets);
}

/* By which who dialled shows on a connection that lives that it has the present secret, too. False: none is asked for there. */
static inline bool fabric_proof_again(const struct fabric_conn *conn, uint8_t code[MAC_BYTES])
{
    return conn->ops->proof_again && conn->ops->proof_again(conn, code);
}

/* It has. */
static inline void fabric_proved_again(struct fabric_conn *conn)
{
    conn->unproved = false;
    conn->shown = conn->endpoint->secrets;
}

/* F13. Whether who is accepted from now on is a guest; false: all who are guests are trusted. None at first. */
static inline void fabric_endpoint_guests(struct fabric_endpoint *endpoint, bool has_guests)
{
    endpoint->has_guests = has_guests;
    if (!has_guests && endpoint->ops->trust)
        endpoint->ops->trust(endpoint, NULL);
}

/* Optional, before the first connection: which reactor to wake when a fence is done that LANDED
 * events wait for. Without it a sleeping endpoint looks for itself now and then. */
static inline void fabric_endpoint_reactor(struct fabric_endpoint *endpoint,
                                           struct reactor *reactor)
{
    endpoint->reactor = reactor;
}

/* How a reactor sleeps on this endpoint. */
static inline void fabric_endpoint_source(struct fabric_endpoint *endpoint,
                                          struct event_source *out)
{
    endpoint->ops->endpoint_source(endpoint, out);
}

/* fabric_poll: up to `max` events; also moves everything that waits (sends to a dry zone, syncs,
 * handshakes, sealing) one step on. `data` of a MESSAGE is valid until released. */
static inline unsigned fabric_poll(struct fabric_endpoint *endpoint, uint64_t now_ns,
                                   struct fabric_event *events, unsigned max)
{
    return endpoint->ops->poll(endpoint, now_ns, events, max);
}

/* fabric_endpoint_error: 0, or ROWAN_EIO: what the endpoint stands on (an RDMA device, its completion queue) has
 * failed for good, and the log has said what and what mends it. All its connections end in CLOSED, none can be made
 * any more, and no segment is sealed: whoever cannot live without it looks after each poll, and ends. */
static inline int fabric_endpoint_error(const struct fabric_endpoint *endpoint)
{
    return endpoint->error;
}

/* fabric_flush: hands over all that was sent and posted on the endpoint since the last flush; until
 * then a backend may hold it back. Once per poll of the role.
 * While the owner has set `holds` of the endpoint, it does hold messages back, fabric_poll notwithstanding; those of a
 * connection that is closed before the flush never leave. Then some backends have room for fewer. */
static inline void fabric_flush(struct fabric_endpoint *endpoint)
{
    endpoint->ops->flush(endpoint);
}

/* --- connection --- */

/* fabric_connect: starts a connection to endpoint `index` of the process at `address`. Ends in
 * CONNECTED or CLOSED (ROWAN_EUNREACHABLE, or what the peer refused with), both with `context`, and
 * later CLOSED events of the connection carry it too. Nothing may be sent before CONNECTED.
 * Errors at once: ROWAN_EINVALID ENOMEM ETOOMANY EIO (fabric_endpoint_error). */
static inline int fabric_connect(struct fabric_endpoint *endpoint, const char *address,
                                 uint32_t index, uint64_t context, struct fabric_conn **out)
{
    return endpoint->ops->connect(endpoint, address, index, context, out);
}

/* No event of the connection comes after this; unreleased messages are gone; what was in flight is
 * unknown. Its memory, and that of its messages, stays until the next fabric_poll of the endpoint, so
 * that the rest of a batch of events may still be looked at. Waits for nothing (F4). NULL is fine. */
static inline void fabric_conn_close(struct fabric_conn *conn)
{
    if (conn)
        conn->ops->conn_close(conn);
}

/* The peer has shown who it is: a guest no longer (F13). Of no effect on who is none. */
static inline void fabric_conn_trust(struct fabric_conn *conn)
{
    if (conn->guest)
        conn->ops->trust(conn->endpoint, conn);
}

/* --- messages --- */

/* fabric_send: one message of at most FABRIC_MAX_MESSAGE_BYTES, copied from up to FABRIC_MAX_IOV
 * pieces. Errors: ROWAN_EAGAIN (the peer has not made room; try again after a poll), ROWAN_ECLOSED,
 * ROWAN_EINVALID. */
static inline int fabric_send(struct fabric_conn *conn, const struct fabric_iov *iov,
                              unsigned count)
{
    return conn->ops->send(conn, iov, count);
}

static inline void fabric_message_release(struct fabric_conn *conn, uint64_t message)
{
    conn->ops->message_release(conn, message);
}

/* --- Rowan sends --- */

/* How many blocks may be added now. */
static inline uint32_t fabric_rowan_room(const struct fabric_conn *conn)
{
    return conn->ops->rowan_room(conn);
}

/* fabric_rowan_add: appends a block (registered memory, `bytes` a multiple of 64, at most the block
 * limit) to the connection's open batch. Its byte 0 is 0 and its first 8 bytes are not all 0, as of every
 * block of an entry: that some receivers tell blocks from empty places by, and others take for a header
 * (FABRIC_RECEIVE_MULTI_PACKET; connections to these refuse other blocks). Errors: ROWAN_EAGAIN ECLOSED
 * EINVALID. */
static inline int fabric_rowan_add(struct fabric_conn *conn, const void *block, uint32_t bytes)
{
    return conn->ops->rowan_add(conn, block, bytes);
}

/* fabric_rowan_post: closes the batch; one LANDED event with `context` will say that all of it
 * landed. An empty batch posts nothing and gives no event. Errors: ROWAN_ECLOSED. */
static inline int fabric_rowan_post(struct fabric_conn *conn, uint64_t context)
{
    return conn->ops->rowan_post(conn, context);
}

/* --- landing zone --- */

/* fabric_zone_open: one for an endpoint, closed with it. Peers that connect to it afterwards can send into it.
 * `depth`: how many segments may be posted and not yet sealed, 2 to 1024. */
static inline int fabric_zone_open(struct fabric_endpoint *endpoint, struct pm *pm, uint32_t depth,
                                   struct fabric_zone **out)
{
    return endpoint->ops->zone_open(endpoint, pm, depth, out);
}

/* fabric_zone_post: gives the segment of FABRIC_SEGMENT_BYTES at `offset`, all zeros and fenced, to
 * the zone, behind those posted before. Errors: ROWAN_EAGAIN (`depth` segments are posted). */
static inline int fabric_zone_post(struct fabric_zone *zone, uint64_t offset, uint64_t context)
{
    return zone->ops->zone_post(zone, offset, context);
}

/* fabric_close_segment: no block begins any more in the oldest segment that is posted and not sealed, though it is not
 * full; SEALED follows when those that have begun there are decided. Where a device places blocks (verbs) a few may still
 * begin, and with a queue of multi-packet receives nothing changes; nor if none is posted. */
static inline void fabric_close_segment(struct fabric_zone *zone)
{
    zone->ops->close_segment(zone);
}

/* fabric_zone_begun: of the segments that were ever posted, in how many, from the first on, something may lie by now. What is
 * posted behind them is all zeros. Where a device places blocks nobody knows, and it is as many as were posted. */
static inline uint64_t fabric_zone_begun(const struct fabric_zone *zone)
{
    return zone->ops->zone_begun(zone);
}

/* fabric_shut_out: ends all connections that a server made to the zone's endpoint under an incarnation up to this one
 * (CLOSED, ROWAN_ECLOSED; messages that were not handed out are dropped), and refuses new ones
 * (ROWAN_EREFUSED) until fabric_readmit. SHUT_OUT follows (F12); how soon, if the peer stands still, is the backend's
 * to say. Another call for the server before that takes the place of the first, with the higher incarnation.
 * Errors: ROWAN_ETOOMANY (FABRIC_MAX_SHUT_OUT others are shut out), and nothing has changed. */
static inline int fabric_shut_out(struct fabric_zone *zone, uint32_t server, uint64_t incarnation,
                                  uint64_t context)
{
    return zone->ops->shut_out(zone, server, incarnation, context);
}

/* fabric_readmit: the server is shut out no longer, so its place is free for another; fabric_endpoint_admit decides
 * again. If SHUT_OUT has not come it never does. One that is not shut out: nothing changes. */
void fabric_readmit(struct fabric_zone *zone, uint32_t server);

#endif
