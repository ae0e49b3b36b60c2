/* conn.h - what backends share of connections and endpoints: lists, life, the order of a poll, and sleep. Only
 * backends and their tests include it.
 *
 *   handshake (states below CONN_OPEN) --> OPEN -- conn_break --> BREAKING -- CLOSED --> DEAD -- a later poll --> freed
 *   an active one that fails: handshake -- conn_break --> BREAKING
 *   any state -- fabric_conn_close, or a passive handshake that fails --> DEAD
 *
 * 1. A connection that the owner knows of ends in exactly one CLOSED event, unless the owner closed it. One that the
 *    owner never heard of (a handshake that failed at the passive side) ends silently.
 * 2. What ends a connection stops it at once (`stop`): nothing more lands, and the peer learns of it. All else is freed
 *    by a later poll, because messages that were handed out together with CLOSED lie in its memory. Calls on it answer
 *    ECLOSED.
 * 3. A connection is on LIST_ACTIVE while it has work that no socket, bell or completion will announce again. Each
 *    poll starts with another connection and takes at most a share of events from each.
 * 4. While armed (asleep), whatever must go on by time alone sets the timer, so a reactor sleeps without a deadline.
 * 5. A peer that makes no progress for PARTIAL_STALL_NS with half a message, or after twice that is so slow that the whole would
 *    take longer than PARTIAL_PACE_NS, is closed while others wait for memory. One whose message is not whole PARTIAL_NS after it was begun is closed, whatever progress it makes: a peer that drips
 *    would keep its memory for ever. No time counts while it is we who cannot take the rest.
 * 6. A guest (F13, guests.c) is one from the poll that announces it on, so that its owner, who learns of it then, may
 *    trust it before anything else happens to it.
 */
#ifndef FABRIC_CONN_H
#define FABRIC_CONN_H

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/list.h"
#include "common/fabric/fabric.h"
#include "common/pm/pm_tap.h"

/* --- registered memory: which bytes of this process may be sent from or landed in --- */

enum { REGIONS_MAX = 16 /* of a fabric */ };

struct region {
    const uint8_t *base;
    uint64_t bytes;
    uint32_t key; /* verbs: the device's name for it */
};

/* All 0 at start; filled before endpoints use it, then read by
 * all threads. */
struct regions {
    uint32_t count;
    struct region all[REGIONS_MAX];
};

/* Whether all of [data, data + bytes) lies in [base, base + held_bytes). */
static inline bool region_holds(const uint8_t *base, uint64_t held_bytes, const void *data,
                                uint64_t bytes)
{
    const uintptr_t offset = (uintptr_t)data - (uintptr_t)base; /* may wrap: too big */

    return offset <= held_bytes && bytes <= held_bytes - offset;
}

/* Errors: ROWAN_ETOOMANY. */
static inline int regions_add(struct regions *regions, const struct pm *pm)
{
    if (regions->count == REGIONS_MAX)
        return ROWAN_ETOOMANY;
    regions->all[regions->count++] = (struct region){.base = pm->base, .bytes = pm->bytes};
    return 0;
}

/* The one that all of [data, data + bytes) lies in; NULL: none. */
static inline const struct region *regions_find(const struct regions *regions, const void *data,
                                                uint64_t bytes)
{
    for (uint32_t i = 0; i < regions->count; i++) {
        if (region_holds(regions->all[i].base, regions->all[i].bytes, data, bytes))
            return &regions->all[i];
    }
    return NULL;
}

/* --- connections --- */

enum conn_state {
    CONN_CONNECTING, /* active: the peer is being reached; tcp: and greeted */
    CONN_GREETING,   /* shm, verbs, active: hello sent, no welcome yet */
    CONN_EXPECTING,  /* passive: no hello yet; the owner does not know of it */
    CONN_RESOLVING,  /* verbs: the hello is heard, the way to the peer is being found */
    CONN_JOINING, /* tcp: the same once more for the socket for blocks; verbs: "ready" is awaited */
    CONN_REFUSING, /* verbs, passive: said why not; the end is awaited */
    CONN_OPEN,
    CONN_BREAKING, /* no more sends; CLOSED comes when what had arrived is delivered */
    CONN_DEAD,     /* CLOSED is delivered or fabric_conn_close was called */
};

enum conn_list_kind {
    LIST_ALL,
    LIST_HANDSHAKE, /* not open yet, the oldest first */
    LIST_ACTIVE,    /* 3 */
    LIST_DIRTY,     /* has something to hand over at the next flush */
    LIST_BEGUN,     /* the peer may send the rest of a message (5), the longest first */
    LIST_NO_MEMORY, /* tcp, verbs: found no memory for what comes */
    LIST_GUEST,     /* 6, the oldest first */
    LIST_DEAD,
    LIST_OWN,        /* the backend's own begin here */
    CONN_LISTS = 15, /* of all kinds */
};

struct conn_link {
    struct conn *next, *prev;
};

struct conn_list {
    struct conn *first, *last;
};

/* A message that has come in part (5). */
struct partial {
    uint32_t got, need;
    uint64_t grown_ns; /* when it last grew */
    uint64_t begun_ns; /* since when the peer may send the rest of it */
};

/* The head of every backend's connection. */
struct conn {
    struct fabric_conn base;
    enum conn_state state;
    bool active;     /* this side called fabric_connect */
    bool was_open;   /* the handshake is done */
    bool announced;  /* CONNECTED or ACCEPTED was delivered */
    bool kept;       /* it has a descriptor that is not for clients (descriptors.h) */
    bool drain;      /* BREAKING: what had arrived is still delivered */
    uint32_t layout; /* of what is exchanged, as the greetings chose it */
    int error;       /* BREAKING: what CLOSED says */
    uint32_t listed; /* a bit for each list */
    uint32_t number; /* in endpoint->conns */
    uint64_t context;
    uint64_t since_ns; /* when the handshake began (0: not known yet), or it became a guest */
    uint64_t source;   /* tells the address that a passive one came from; 0: not known */
    struct fabric_identity peer;
    struct send_window *window; /* of Rowan sends (window.h); NULL: the peer has no zone for us */
    struct partial partial;
    struct conn_link links[CONN_LISTS];
};

struct endpoint;
struct zone;

/* What a backend does its own way. */
struct conn_backend {
    /* Of an endpoint. open: what is its own; listens (listen_fd). Errors: of fabric_endpoint_open. leave: its connections end next.
     * free: what `open` made, also after it failed. */
    size_t endpoint_bytes, conn_bytes;
    uint32_t most_conns;
    int (*open)(struct endpoint *endpoint);
    void (*leave)(struct endpoint *endpoint); /* NULL: nothing to do */
    void (*free)(struct endpoint *endpoint);

    /* Whether one more may be accepted now (NULL: yes); the socket of one who was, which is the backend's, also if it
     * fails. Errors: ROWAN_ENOMEM ETOOMANY. Both NULL: nobody connects. */
    bool (*make_room)(struct endpoint *endpoint);
    int (*accepted)(struct endpoint *endpoint, int fd);

    /* Of its landing zone (endpoint.h): likewise, and a segment is posted. When it closes no connection is left. */
    size_t zone_bytes;
    int (*zone_open)(struct zone *zone);
    void (*zone_posted)(struct zone *zone);
    void (*zone_close)(struct zone *zone);      /* NULL: nothing to do */
    void (*close_segment)(struct zone *zone);   /* the oldest that is not sealed; NULL: it cannot */
    uint64_t (*begun)(const struct zone *zone); /* fabric_zone_begun; NULL: nobody knows */

    /* F12: its connections are stopped. How many segments must be sealed until nothing of it lands; NULL: nothing
     * does already. */
    uint64_t (*shut_out)(struct zone *zone, const struct fabric_shut_out *out);

    /* Each poll: sockets, bells, completions, deadlines; then the events of the landing zone. */
    unsigned (*step)(struct endpoint *endpoint, struct fabric_event *events, unsigned max);

    /* Of connections that are open or drained: events; whether they have work (3); all that had arrived is delivered. */
    unsigned (*move)(struct conn *conn, struct fabric_event *events, unsigned max);
    bool (*has_work)(const struct conn *conn);
    bool (*is_drained)(const struct conn *conn);

    /* Of one that became a guest, and whom its owner trusts: how it receives. Both NULL: all the same. Errors: ROWAN_ENOMEM. */
    int (*guest_came)(struct conn *conn);
    void (*guest_went)(struct conn *conn);

    void (*push)(struct conn *conn); /* of an open one: hands over what waits */
    /* Behind these: hands over what they gathered. NULL: nothing to do. */
    void (*flush)(struct endpoint *endpoint);
    /* 2; `state` is BREAKING, then DEAD: may come twice. Behind it the connection leaves all lists but LIST_ACTIVE. */
    void (*stop)(struct conn *conn);

    /* Gives back what nobody needs any more; false: not all yet, the next poll asks again. NULL: all at once. */
    bool (*release)(struct conn *conn);
    void (*destroy)(struct conn *conn); /* what hangs on it */

    /* How soon a poll must come although nothing wakes; UINT64_MAX: it need not. */
    uint64_t (*interval_ns)(const struct endpoint *endpoint);
    void (*arm)(struct endpoint *endpoint); /* NULL: nothing to do */
    void (*disarm)(struct endpoint *endpoint);
};

/* The head of every backend's fabric. */
struct conn_fabric {
    struct fabric base;
    const struct conn_backend *backend;
    struct regions regions;
};

/* The head of every backend's endpoint. */
struct endpoint {
    struct fabric_endpoint base;
    const struct conn_backend *backend;
    const struct conn_fabric *fabric;
    struct zone *zone; /* NULL: there is none */
    uint32_t block_limit;
    uint32_t index;
    int epoll_fd; /* what a reactor sleeps on */
    int timer_fd; /* watched with the tag ENDPOINT_TIMER */
    int listen_fd; /* the backend's; -1: none; watched with the tag ENDPOINT_LISTENER, edge-triggered */
    bool listen_ready;  /* there may be somebody to accept; the backend sets it */
    bool listen_paused; /* out of descriptors */
    bool accepts_kept;  /* who is accepted now is `kept` */
    uint64_t paused_ns;
    bool closing; /* the endpoint as a whole */
    bool armed;
    bool timer_on;   /* was set in this sleep */
    bool polling;    /* inside of endpoint_poll, which sets the timer at its end */
    uint64_t now_ns; /* of the last poll */
    uint32_t counts[CONN_LISTS];
    struct conn_list lists[CONN_LISTS];
    struct conn **conns; /* most_conns; most of the pages are never touched */
};

#define ENDPOINT_TIMER    UINT64_MAX
#define ENDPOINT_LISTENER (UINT64_MAX - 1)

/* --- lists --- */

/* for (CONN_EACH(...)): all of a list; the one at hand may leave it. `type` begins with a struct conn. */
#define CONN_EACH(type, it, endpoint, kind)                                                        \
    struct type *it = (struct type *)(endpoint)->lists[kind].first, *it##_next;                    \
    it && (it##_next = (struct type *)((struct conn *)it)->links[kind].next, true);                \
    it = it##_next

static inline struct endpoint *conn_endpoint(const struct conn *conn)
{
    return (struct endpoint *)conn->base.endpoint;
}

static inline bool conn_is_listed(const struct conn *conn, unsigned kind)
{
    return conn->listed & UINT32_C(1) << kind;
}

void conn_list_append(struct conn *conn, unsigned kind); /* it is not there */

/* At the end, unless it is there. */
static inline void conn_list_add(struct conn *conn, unsigned kind)
{
    if (!conn_is_listed(conn, kind))
        conn_list_append(conn, kind);
}

/* It is there. */
static inline void conn_list_unlink(struct conn *conn, unsigned kind)
{
    struct endpoint *endpoint = conn_endpoint(conn);

    LIST_REMOVE(&endpoint->lists[kind], conn, links[kind]);
    conn->listed &= ~(UINT32_C(1) << kind);
    endpoint->counts[kind]--;
}

static inline void conn_list_remove(struct conn *conn, unsigned kind)
{
    if (conn_is_listed(conn, kind))
        conn_list_unlink(conn, kind);
}

/* The first, taken off; NULL: there is none. */
static inline struct conn *conn_list_take(struct endpoint *endpoint, unsigned kind)
{
    struct conn *conn = endpoint->lists[kind].first;

    if (conn)
        conn_list_unlink(conn, kind);
    return conn;
}

/* Calls `visit` for each that is on the list now, taken off; it may put it back. */
void conn_list_visit(struct endpoint *endpoint, unsigned kind, void (*visit)(struct conn *conn));

/* --- life --- */

/* Open, or broken while what had arrived is still delivered. */
static inline bool conn_moves(const struct conn *conn)
{
    return conn->state == CONN_OPEN || (conn->state == CONN_BREAKING && conn->drain);
}

/* Under the lowest number that is nobody's; what is the backend's is all 0. Errors: ROWAN_ENOMEM ETOOMANY. */
int conn_create(struct endpoint *endpoint, bool active, struct conn **out);

/* Ends the handshake: it is open. */
void conn_opened(struct conn *conn);

/* Marks it for close: CLOSED with `error` will come; with `drain` after all that had arrived. */
void conn_break(struct conn *conn, int error, bool drain);

/* Ends it silently, or after CLOSED. */
void conn_end(struct conn *conn);

/* F11: `newer` is passive and admitted, leads to a landing zone, and its peer has not been told so. */
void conn_supersede(struct conn *newer);

/* Breaks those whose handshake takes longer. */
void conn_check_handshakes(struct endpoint *endpoint, uint64_t limit_ns);

/* --- guests (6) --- */

/* It is announced in this poll: a guest, if it is to be one. */
void guest_enter(struct conn *conn);

/* It asked for too much, or others want its place. */
void guest_end(struct conn *conn, int error);

/* Ends who takes too long. */
void guests_check(struct endpoint *endpoint);

/* --- messages that have come in part (tcp, verbs) --- */

#define PARTIAL_STALL_NS (500 * NS_PER_MS)
#define PARTIAL_PACE_NS  (5 * NS_PER_S)
#define PARTIAL_NS       (10 * NS_PER_S)

/* 5: from now on the peer may send the rest of conn->partial; until the connection leaves LIST_BEGUN. */
void partial_begin(struct conn *conn);

/* More has come. True: nothing is missing any more. */
bool partial_grow(struct conn *conn, uint32_t bytes);

/* Closes who takes too long, and who stalls or drips while others wait for memory: on LIST_NO_MEMORY, or for such as this one has.
 * `helps` says so; NULL: nobody does. */
typedef bool partial_helps(const struct conn *conn);
void partial_check(struct endpoint *endpoint, partial_helps *helps);

/* --- endpoint --- */

/* Ends and frees all connections. */
void endpoint_end(struct endpoint *endpoint);

/* Accepts who waits. Without descriptors nobody is for ACCEPT_PAUSE_NS; the log says so at most every 10 s. */
#define ACCEPT_PAUSE_NS (50 * NS_PER_MS)
void endpoint_accept(struct endpoint *endpoint);

/* As fabric_admit_peer, of a passive one; ROWAN_ETOOMANY for a client where the last descriptors are left. */
int endpoint_admit(const struct conn *conn);

/* Watches a descriptor; `tag` comes back in the event. Errors: ROWAN_EIO. */
int endpoint_watch(struct endpoint *endpoint, int fd, uint32_t what, uint64_t tag);

void close_fd(int fd);          /* -1 is fine */
int fd_set_nonblocking(int fd); /* Errors: ROWAN_EIO. */

/* --- of the ops table --- */
unsigned endpoint_poll(struct fabric_endpoint *endpoint, uint64_t now_ns,
                       struct fabric_event *events, unsigned max);
void endpoint_flush(struct fabric_endpoint *endpoint);
void endpoint_source(struct fabric_endpoint *endpoint, struct event_source *out);
void conn_close(struct fabric_conn *conn);
void conn_trust(struct fabric_endpoint *endpoint, struct fabric_conn *conn);

/* Of the records of a tap (pm_tap.h): one for each worker of each server, never 0. */
static inline uint32_t conn_tap_sender(const struct fabric_identity *from)
{
    return (from->id << 6 | (from->role & 63)) & (PM_TAP_SENDERS - 1);
}

#endif
