/* verbs.h - what the files of the verbs backend share (README.md says what is in which); nobody else includes it but
 * its tests.
 *
 * A process has one fabric with one device, protection domain and registration for all endpoints. An
 * endpoint has one completion queue for all its queue pairs, one UD queue pair for the messages of all its
 * connections, and for each connection into a landing zone an RC queue pair. Receives of a shared queue complete
 * in one of the zone's own (verbs_slots.c).
 *
 * The tcp connection that set a connection up lives as long as it: its end is the connection's end, so a
 * dead peer is noticed though nothing is sent, and refusal, admission and limits are those of tcp.
 */
#ifndef FABRIC_VERBS_H
#define FABRIC_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "common/fabric/endpoint.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_hello.h"

enum {
    VERBS_MAX_CONNS = 16384, /* of an endpoint */

    VERBS_BLOCKS = 8192, /* of one connection's window: a value of 1 MiB has 4687 of 256 B */

    VERBS_JOBS = 256,  /* address handles that the endpoints of a fabric wait for */
    VERBS_SILENT = 64, /* addresses that are known for not answering */

    VERBS_FAILURES = 16, /* of queue pairs, that an endpoint may not have heard of yet */
};

/* Times, all compared with the now_ns of polls. */
#define VERBS_HANDSHAKE_NS (5 * NS_PER_S)
#define VERBS_CONTROL_NS   (20 * NS_PER_US)  /* between looks at tcp while awake */
#define VERBS_CHECK_NS     (250 * NS_PER_US) /* between looks at what is only a matter of time */

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
    VERBS_WORK_RC,          /* connection: its number; number: enum verbs_rc_work */
    VERBS_WORK_LANDING,     /* a receive into the zone, in its own queue (verbs_slots.c) */
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

/* An address handle that is wanted (verbs_resolve.c). */
struct verbs_job {
    struct {
        struct verbs_job *next, *prev;
    } link;
    bool waits;
    struct verbs_conn *conn; /* NULL: is gone */
    struct ibv_ah_attr attributes;
    _Atomic bool is_done;
    struct ibv_ah *ah; /* NULL: nobody answers to that address */
};

struct verbs_resolver {
    pthread_mutex_t mutex;
    pthread_cond_t wanted;
    pthread_t thread;
    bool runs, ends;
    uint32_t count; /* of jobs */
    struct {
        struct verbs_job *first, *last;
    } jobs; /* that wait */
    uint32_t silent_count, silent_next;
    union ibv_gid
        silent[VERBS_SILENT]; /* addresses that nobody answered to when they were asked last */
};

struct verbs_fabric {
    struct conn_fabric base;
    struct verbs_device *device;
    struct fabric *control;          /* tcp: sets connections up */
    struct ibv_mr *mrs[REGIONS_MAX]; /* local access only: nobody else gets their keys */

    /* What devices say outside of completion queues, for the endpoints' threads (verbs_async.c). */
    pthread_mutex_t async_mutex;
    struct {
        struct verbs_endpoint *first, *last;
    } endpoints;
    struct verbs_resolver resolver;
    _Atomic(const char *) fatal; /* why the device is of no use any more; NULL: it is */
};

/* --- endpoints --- */

enum verbs_list_kind {
    LIST_TIMED = LIST_OWN, /* packets wait for an acknowledgement, or one is owed */
    LIST_DRAINING,         /* a message is acknowledged, but the device may still read it */
    VERBS_LISTS,
};

/* Memory of messages (verbs_slab.c). */
enum verbs_slab_kind { VSLAB_SMALL, VSLAB_MIDDLE, VSLAB_LARGE, VSLAB_HUGE, VSLAB_KINDS };

struct verbs_extent; /* slabs that were made together */

struct verbs_slabs {
    struct verbs_device *device;
    struct verbs_extent *extents;
    struct verbs_slab *free[VSLAB_KINDS];
    uint32_t counts[VSLAB_KINDS];
    uint32_t wanted;        /* a bit for each kind of which one was asked for in vain */
    const uint64_t *now_ns; /* of the endpoint's poll */
    uint64_t refused_ns;    /* when memory was last refused; 0: not, or that is long ago */
};

struct verbs_messages {
    struct verbs_slabs out, in;
    uint32_t out_count; /* sent and not acknowledged */
};

struct verbs_endpoint {
    struct endpoint base;
    struct verbs_fabric *fabric;
    struct verbs_device *device;
    struct fabric_endpoint *control; /* of fabric->control, with the same index */
    struct event_source control_source;
    struct {
        struct verbs_endpoint *next, *prev;
    } link;      /* of the fabric's */
    int wake_fd; /* another endpoint's thread heard something of the device */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;

    /* Places that no queue has yet. An overrun ends a completion queue for good, and a queue pair in error completes
     * all that it holds, so whoever creates one takes its places first. Completions of a destroyed queue pair may still
     * lie there when its places are given back: they are polled before the next one has shaken hands. */
    uint32_t cq_free;
    bool more_completions; /* the last look at the queue did not see all */
    bool more_control;     /* likewise tcp */
    uint64_t control_ns;   /* when tcp was last polled */
    uint64_t checked_ns;   /* when deadlines were looked at */

    struct verbs_packets *packets; /* the UD queue pair and its buffers */
    struct verbs_messages messages;

    _Atomic bool has_resolved; /* an address handle was made */

    struct verbs_zone *zone;

    /* Queue pairs of which the device says that they have failed; under the fabric's async_mutex. */
    uint32_t failed[VERBS_FAILURES];
    uint32_t failed_count; /* more than have a place: all of the endpoint's */
    _Atomic bool has_failures;

    /* The device says that half of the zone's slots are used; set by whoever hears it (verbs_async.c). */
    _Atomic bool limit_reached;
};

/* --- connections --- */

/* CONN_CONNECTING: tcp connects. CONN_EXPECTING, CONN_GREETING: a hello is awaited. CONN_RESOLVING: it was heard; the
 * way to the peer is looked for (verbs_resolve.c). CONN_JOINING, passive: answered; "ready" or the first datagram is
 * awaited. CONN_REFUSING, passive: said why not; the end is awaited. */
struct verbs_conn {
    struct conn base;
    struct verbs_endpoint *endpoint;
    bool was_readied;            /* passive: "ready" has come */
    uint32_t token;              /* with `number` in every packet to us */
    struct fabric_conn *control; /* tcp; NULL: gone */
    struct verbs_hello theirs;
    struct verbs_job *job;       /* CONN_RESOLVING */
    struct verbs_stream *stream; /* messages; from the hello on */
    struct verbs_rc *rc;         /* NULL: not between servers */
};

/* The connection with that number; NULL: there is none. */
static inline struct verbs_conn *verbs_conn_of(const struct verbs_endpoint *endpoint,
                                               uint32_t number)
{
    return number < VERBS_MAX_CONNS ? (struct verbs_conn *)endpoint->base.conns[number] : NULL;
}

/* --- verbs_memory.c --- */

/* Errors: ROWAN_ETOOMANY ENOMEM EUNSUPPORTED EPERMISSION; fabric_why says what mends it. */
int verbs_register(struct fabric *fabric, struct pm *pm);

/* Before the fabric's device is closed, when no endpoint is left. */
void verbs_unregister_all(struct verbs_fabric *fabric);

/* --- verbs_packet.c: the rest of it is in verbs_stream.h --- */

/* The device or a completion queue has failed: so has the endpoint, for good (fabric_endpoint_error). Says so in the
 * log, once; all connections break. */
void verbs_endpoint_fail(struct verbs_endpoint *endpoint, const char *reason);

/* --- verbs_async.c --- */
void verbs_async_join(struct verbs_endpoint *endpoint);
void verbs_async_leave(struct verbs_endpoint *endpoint);

/* drain: takes what the device said, on the thread of `endpoint`, and wakes the endpoints that it concerns.
 * poll: breaks connections of this endpoint that it concerns. */
void verbs_async_drain(const struct verbs_endpoint *endpoint);
void verbs_async_poll(struct verbs_endpoint *endpoint);

/* --- verbs_connect.c --- */

/* The tcp address that stands for a verbs address. Errors: ROWAN_EINVALID. */
enum { VERBS_ADDRESS_BYTES = 256 };
int verbs_control_address(const char *address, char out[VERBS_ADDRESS_BYTES]);
int verbs_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t index,
                  uint64_t context, struct fabric_conn **out);
int verbs_connect_admit(void *context, const struct fabric_identity *peer);

/* Polls tcp: the next steps of handshakes, and the ends of connections. */
void verbs_connect_poll(struct verbs_endpoint *endpoint);

void verbs_conn_stop(struct conn *conn);
bool verbs_conn_release(struct conn *conn); /* when the device reads nothing of it any more */
void verbs_conn_destroy(struct conn *conn);

/* The handshake is done: the peer said so, or sent its first datagram. */
void verbs_connect_opened(struct verbs_conn *conn);

/* The address handle of a connection in CONN_RESOLVING; NULL: nobody answers to that address. */
void verbs_connect_resolved(struct verbs_conn *conn, struct ibv_ah *ah);

/* --- verbs_resolve.c --- */

/* All endpoints have left. Waits for a call into the kernel that is under way: about a second at most. */
void verbs_resolver_fini(struct verbs_fabric *fabric);

/* With the lock; shown for tests. What is worked on next; NULL: nothing waits. Whether an address has answered. */
struct verbs_job *verbs_resolver_next(struct verbs_resolver *resolver);
void verbs_resolver_remember(struct verbs_resolver *resolver, const union ibv_gid *gid,
                             bool answers);

/* Wants an address handle with what conn->theirs says: verbs_connect_resolved will be called by a poll, unless
 * verbs_resolve_forget is first. Errors: ROWAN_ETOOMANY (too many are wanted already) ENOMEM. */
int verbs_resolve(struct verbs_conn *conn);
void verbs_resolve_forget(struct verbs_conn *conn);
void verbs_resolve_poll(struct verbs_endpoint *endpoint);

/* --- verbs_rc.c: Rowan sends ---
 *
 * A connection between servers has an RC queue pair if the endpoint that was connected to has a landing zone:
 * the active side sends, the passive one receives. All calls are the endpoint's. */

/* verbs_rc_open: makes the queue pair, in INIT, and fills our part of the hello. It makes none, and the part is
 * all 0, unless both are servers and a passive side has a zone. Errors: ROWAN_ENOMEM ETOOMANY EUNSUPPORTED EIO. */
int verbs_rc_open(struct verbs_conn *conn, struct verbs_rc_hello *ours);

/* verbs_rc_connect: to RTS with what conn->theirs says; checked. Sets conn->base.has_zone. When the passive
 * side has no queue pair ours is closed again, and that is no error; likewise where there is none of ours.
 * Errors: ROWAN_EFORMAT EUNSUPPORTED EIO. */
int verbs_rc_connect(struct verbs_conn *conn);

/* Destroys the queue pair: when it returns, nothing of this connection lands. */
void verbs_rc_close(struct verbs_conn *conn);

/* A completion of VERBS_WORK_RC with the number of this connection; one of a former queue pair is passed
 * over, an error breaks the connection. */
void verbs_rc_completion(struct verbs_conn *conn, const struct ibv_wc *wc);

/* Of an open connection: hands over what waits. May break the connection. */
void verbs_rc_push(struct verbs_conn *conn);

/* An asynchronous event says that the queue pair with that number (qp_num) is in error. */
void verbs_rc_failed(struct verbs_endpoint *endpoint, uint32_t qp_number);
int verbs_rowan_add(struct fabric_conn *conn, const void *block, uint32_t bytes);

/* --- verbs_zone.c --- */
int verbs_zone_open(struct zone *zone);
void verbs_zone_close(struct zone *zone);
void verbs_close_segment(struct zone *base);
void verbs_zone_posted(struct zone *zone);

/* Hands receives to the device, seals, and while the endpoint is armed makes sure that what must wake it will; each
 * poll of the endpoint. */
unsigned verbs_zone_poll(struct verbs_zone *zone, uint64_t now_ns, struct fabric_event *events,
                         unsigned max);

/* How soon verbs_zone_poll must be called though nothing completes; UINT64_MAX: never. */
uint64_t verbs_zone_wait_ns(const struct verbs_zone *zone);

extern const struct verbs_receive_ops verbs_receive_shared;       /* verbs_slots.c */
extern const struct verbs_receive_ops verbs_receive_multi_packet; /* verbs_mlx5.c */

#endif
