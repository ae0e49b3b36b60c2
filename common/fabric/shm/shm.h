/* shm.h - what the files of the shm backend share; nobody else includes it but its tests.
 *
 *   shm_fabric.c   fabric and endpoints: open, close, sleep
 *   shm_poll.c     poll and flush: which connection has work, and the order of the steps
 *   shm_conn.c     a connection's life, its doorbell
 *   shm_connect.c  the handshake
 *   shm_socket.c   addresses, sockets, passed descriptors, sealed memory
 *   shm_message.c  message rings
 *   shm_rowan.c    the sender's side of claims
 *   shm_zone.c     the owner's side of the landing zone
 *   shm_write.c    the writer's side of bulk writes
 *   shm_grant.c    the owner's side of them
 */
#ifndef FABRIC_SHM_H
#define FABRIC_SHM_H

#include "common/base/clock.h"
#include "common/fabric/regions.h"
#include "common/fabric/shm/shm_layout.h"

enum {
    SHM_NAME_BYTES = 64,
    SHM_SMALL_BYTES = SHM_RING_BYTES / 4, /* messages above travel as fragments */
    SHM_FIFO = 4096,                      /* records that a receiver holds of one connection */
    SHM_BUFFERS = 8,                      /* large messages an endpoint holds or puts together */
    SHM_BLOCK_BYTES = 64 << 10,
    SHM_BLOCKS = 4096, /* of one connection's queue of Rowan sends */
    SHM_MARKS = 1024,  /* batches there */
    SHM_FENCES = 64,   /* claims there that wait for their fence */
    SHM_WRITES = 64,   /* bulk writes of one connection in flight */
};

/* Times, all compared with the now_ns of polls. */
#define SHM_CHECK_NS       (1 * NS_PER_MS)   /* between looks at the sockets while awake */
#define SHM_SLEPT_CHECK_NS (100 * NS_PER_US) /* likewise, after a sleep that no bell ended */
#define SHM_PAUSE_NS       (50 * NS_PER_MS)  /* before the next accept, without descriptors */
#define SHM_HANDSHAKE_NS   (5 * NS_PER_S)
#define SHM_STALL_NS       (2 * NS_PER_S)   /* a half-sent large message others wait for */
#define SHM_VOID_NS        (1 * NS_PER_S)   /* a claim of a closed segment */
#define SHM_VOID_STEP_NS   (20 * NS_PER_MS) /* of that, most that counts between two looks */

struct shm_conn;
struct shm_zone;

struct shm_fabric {
    struct fabric base;
    bool has_address;
    int directory_fd;
    char name[SHM_NAME_BYTES];
    struct regions regions;
};

/* Connections linked through `next[list]`. */
enum shm_list_kind { LIST_ACTIVE, LIST_DIRTY, LIST_DEAD, LIST_COUNT };

struct shm_list {
    struct shm_conn *first, *last;
};

/* One buffer for a message larger than a record. */
struct shm_buffer {
    uint8_t *data;          /* NULL until first needed */
    struct shm_conn *owner; /* NULL: free */
    bool delivered;         /* whole and in the receiver's hands */
    uint64_t progress_ns;   /* when it last grew */
};

struct shm_endpoint {
    struct fabric_endpoint base;
    struct shm_fabric *fabric;
    uint32_t index;
    int listen_fd; /* -1: a process without address */
    int epoll_fd;
    int event_fd;
    int timer_fd;
    int door_fd;
    struct shm_doorbell *door;
    struct shm_zone *zone;

    bool armed;
    bool timer_on;      /* was set in this sleep */
    bool listen_paused; /* out of descriptors: the listener is not watched */
    uint64_t paused_ns;
    bool woken; /* look at the sockets in the next poll */
    bool slept; /* likewise, if the last look is some time ago */
    uint32_t sleep_number;
    uint64_t now_ns;
    uint64_t checked_ns; /* when the sockets were last looked at */

    uint64_t serial;     /* of the next connection */
    uint32_t handshakes; /* connections that are not open yet */
    struct shm_list lists[LIST_COUNT];
    struct shm_buffer buffers[SHM_BUFFERS];
    struct shm_conn *conns[SHM_MAX_CONNS]; /* by slot */
};

/* Where the next bytes of a message come from. */
struct shm_source {
    struct fabric_iov iov[FABRIC_MAX_IOV];
    uint32_t count;
    uint32_t piece;
    uint32_t offset; /* in the piece */
    uint32_t left;   /* bytes of the message not in the ring yet */
};

struct shm_out {
    struct shm_ring *ring;
    uint8_t *data;
    uint64_t bytes;
    uint64_t tail;      /* written up to here */
    uint64_t published; /* and visible to the receiver up to here */
    uint64_t head;      /* as last seen */

    bool large; /* a large message is on its way */
    uint8_t *staging;
    struct shm_source source;
};

struct shm_in {
    struct shm_ring *ring;
    const uint8_t *data;
    uint64_t bytes;
    uint64_t cursor;    /* read up to here */
    uint64_t head;      /* released up to here */
    uint64_t published; /* and known to the sender up to here */

    struct shm_buffer *buffer; /* of the large message being put together, or NULL */
    uint32_t large_bytes;
    uint32_t large_got;

    uint64_t fifo_head, fifo_tail;
    uint32_t fifo[SHM_FIFO]; /* bytes of each record between head and cursor; RECORD_RELEASED */
};

struct shm_rowan;  /* shm_rowan.c */
struct shm_writer; /* shm_write.c */

enum conn_state {
    CONN_CONNECTING, /* active: no socket connection yet */
    CONN_GREETING,   /* active: hello sent, no welcome yet */
    CONN_EXPECTING,  /* passive: no hello yet; the owner does not know of it */
    CONN_OPEN,
    CONN_BREAKING, /* no more sends; CLOSED comes when what had arrived is delivered */
    CONN_DEAD,     /* CLOSED is delivered or fabric_conn_close was called; freed by the next poll */
};

struct shm_conn {
    struct fabric_conn base;
    struct shm_endpoint *endpoint;
    enum conn_state state;
    bool active;     /* this side called fabric_connect */
    bool usable;     /* the handshake is done: out, in and peer_door are there */
    bool announced;  /* CONNECTED or ACCEPTED was delivered */
    bool drain;      /* BREAKING: what had arrived is still delivered */
    int error;       /* BREAKING: what CLOSED says */
    int zone_member; /* our zone's sender slot that the peer uses, or -1 */
    uint32_t slot;   /* in the endpoint, and of its bit in our doorbell */
    uint64_t serial; /* tells it from others that had the slot before */
    uint64_t context;
    uint64_t deadline_ns; /* of the handshake; 0: not set yet */
    struct fabric_identity peer;

    struct shm_conn *next[LIST_COUNT];
    bool listed[LIST_COUNT];

    int socket_fd;

    /* Active: whom to connect to. */
    char *directory;
    char name[SHM_NAME_BYTES];
    uint32_t index;

    struct shm_channel *channel;
    int channel_fd; /* active: until the hello is sent */

    struct shm_doorbell *peer_door;
    int peer_event_fd;
    uint32_t peer_slot;

    struct shm_rowan *rowan;   /* NULL: the peer has no zone for us */
    struct shm_writer *writer; /* NULL: nothing was written in bulk yet */
    struct shm_out out;
    struct shm_in in;
};

/* --- shm_fabric.c --- */
extern const struct fabric_ops shm_ops;

/* Watches a socket; `tag` comes back in the event. Errors: ROWAN_EIO. */
int shm_watch(struct shm_endpoint *endpoint, int fd, uint64_t tag);

/* Takes what was rung off the eventfd. */
void shm_drain(struct shm_endpoint *endpoint);

#define SHM_TAG_LISTENER UINT64_MAX
#define SHM_TAG_WAKE     (UINT64_MAX - 1)

/* --- shm_poll.c --- */
unsigned shm_poll(struct fabric_endpoint *endpoint, uint64_t now_ns, struct fabric_event *events,
                  unsigned max);
void shm_flush(struct fabric_endpoint *endpoint);

/* While asleep: sets the timer for what must go on although no peer rings. */
void shm_timer_set(struct shm_endpoint *endpoint);

/* --- shm_conn.c --- */

/* A connection in a slot of its own. Errors: ROWAN_ENOMEM ETOOMANY. */
int conn_create(struct shm_endpoint *endpoint, bool active, struct shm_conn **out);

/* Maps the peer's doorbell and lays the rings over the channel. Owns the descriptors on success.
 * Errors: ROWAN_ENOMEM EFORMAT. */
int conn_attach(struct shm_conn *conn, int door_fd, int event_fd, uint32_t peer_slot);
int conn_map_channel(struct shm_conn *conn, int fd, uint32_t ring_bytes);

/* Puts it on a list, unless it is there. */
void conn_list(struct shm_conn *conn, enum shm_list_kind list);
struct shm_conn *conn_unlist(struct shm_endpoint *endpoint, enum shm_list_kind list);

/* Ends it: CLOSED with `error` will come; with `drain` after all that had arrived. */
void conn_break(struct shm_conn *conn, int error, bool drain);

/* Ends it silently, or after CLOSED. It is freed by the next conn_reap. */
void conn_bury(struct shm_conn *conn);

/* Frees the dead; without `wait` not those that would have to wait for a sync. */
void conn_reap(struct shm_endpoint *endpoint, bool wait);

/* Tells the peer that there is something on this connection. */
void conn_ring(struct shm_conn *conn);

void shm_conn_close(struct fabric_conn *conn);

/* --- shm_connect.c --- */
int shm_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t index,
                uint64_t context, struct fabric_conn **out);
void connect_accept(struct shm_endpoint *endpoint);

/* Listens again after a pause. */
void connect_resume(struct shm_endpoint *endpoint);

/* The next step of a handshake: on a readable socket, and at each look at the sockets. */
void connect_step(struct shm_conn *conn);

/* --- shm_socket.c --- */

/* Takes "shm:/directory/name" apart; `directory` is to be freed. Errors: ROWAN_EINVALID ENOMEM. */
int address_parse(const char *address, char **directory, char name[SHM_NAME_BYTES]);

/* Listens at name.index in the directory. Errors: ROWAN_EINUSE EPERMISSION EIO EINVALID. */
int socket_listen(int directory_fd, const char *name, uint32_t index, int *out_fd);
void socket_unlink(int directory_fd, const char *name, uint32_t index);

/* Errors: ROWAN_EAGAIN (the peer's queue is full) EUNREACHABLE. */
int socket_connect(const char *directory, const char *name, uint32_t index, int *out_fd);

/* One packet with descriptors. Errors: ROWAN_EAGAIN ECLOSED. */
int socket_send(int fd, const void *data, size_t bytes, const int *fds, unsigned fd_count);

/* One packet of exactly `bytes` bytes. On success `fds` are the caller's. Errors: ROWAN_EAGAIN,
 * ECLOSED, EFORMAT (another length, too many descriptors). */
int socket_receive(int fd, void *data, size_t bytes, int fds[SHM_MAX_FDS], unsigned *fd_count);

/* Memory that can neither shrink nor grow, so that no peer can make us fault. Errors:
 * ROWAN_ENOMEM. */
int memory_create(const char *name, uint64_t bytes, int *out_fd, void **out);

/* Maps a peer's memory. Errors: ROWAN_EFORMAT (not sealed, another size) ENOMEM. */
int memory_map(int fd, uint64_t bytes, void **out);

bool is_eventfd(int fd);

/* --- shm_message.c --- */
int shm_send(struct fabric_conn *conn, const struct fabric_iov *iov, unsigned count);
void shm_message_release(struct fabric_conn *conn, uint64_t message);

/* Makes written records visible. True: the peer has to be told. */
bool out_publish(struct shm_conn *conn);

/* Moves a large message on and delivers SENT events. */
void out_poll(struct shm_conn *conn);
bool out_is_idle(const struct shm_conn *conn);

/* Tells the sender of released room. True: it waits for that, ring. */
bool in_publish(struct shm_conn *conn);
unsigned in_poll(struct shm_conn *conn, struct fabric_event *events, unsigned max);

/* False: there may be more to read. */
bool in_is_empty(const struct shm_conn *conn);
void in_free_buffers(struct shm_conn *conn);

/* --- shm_rowan.c --- */

/* `pm` and the control block are the connection's on success. Errors: ROWAN_ENOMEM. */
int shm_rowan_create(struct shm_conn *conn, struct zone_control *control, uint32_t depth,
                     uint32_t sender, struct pm *pm);
void shm_rowan_destroy(struct shm_rowan *rowan);

/* A fence is not done: shm_rowan_destroy would wait for it. */
bool shm_rowan_is_syncing(const struct shm_rowan *rowan);

/* The peer's memory, mapped here; for tests. */
struct pm *shm_rowan_pm(const struct shm_rowan *rowan);

struct zone_control *shm_rowan_control(const struct shm_rowan *rowan);
uint32_t shm_rowan_sender(const struct shm_rowan *rowan); /* our slot there */

uint32_t shm_rowan_room(const struct fabric_conn *conn);
int shm_rowan_add(struct fabric_conn *conn, const void *block, uint32_t bytes);
int shm_rowan_post(struct fabric_conn *conn, uint64_t context);

/* Claims space for what is posted and stores it there. */
void shm_rowan_push(struct shm_conn *conn);
unsigned shm_rowan_poll(struct shm_conn *conn, struct fabric_event *events, unsigned max);

enum shm_rowan_rest { ROWAN_RESTS, ROWAN_DRY, ROWAN_FENCING };
enum shm_rowan_rest shm_rowan_rest(const struct shm_conn *conn);

/* Z4, Z5: records how many claims a full segment has and moves the position on. True: this call
 * moved it. */
bool zone_advance(struct zone_control *control, uint32_t depth, uint64_t position);

/* Steps of a Rowan send (see shm_rowan.c), for tests that stop a sender between two. */
enum shm_step {
    STEP_INTENT,
    STEP_FULL,
    STEP_CLAIMED,
    STEP_STORED,
    STEP_DONE,
    STEP_BUSY,    /* of a bulk write: may be stored now */
    STEP_WRITTEN, /* is stored */
};
typedef void shm_step_hook(enum shm_step step, struct shm_conn *conn);
extern shm_step_hook *shm_step_hook_installed; /* NULL; set before threads start */

static inline void shm_step(enum shm_step at, struct shm_conn *conn)
{
    if (__builtin_expect(shm_step_hook_installed != NULL, 0))
        shm_step_hook_installed(at, conn);
}

/* --- shm_write.c --- */
int shm_write(struct fabric_conn *conn, const struct fabric_grant *grant, uint64_t at,
              const void *data, uint32_t bytes, uint64_t context);
void shm_writer_push(struct shm_conn *conn);
unsigned shm_writer_poll(struct shm_conn *conn, struct fabric_event *events, unsigned max);
bool shm_writer_rests(const struct shm_conn *conn);
bool shm_writer_is_syncing(const struct shm_conn *conn);

/* --- shm_zone.c --- */
int shm_zone_open(struct fabric_endpoint *endpoint, struct pm *pm, uint32_t depth,
                  struct fabric_zone **out);
void shm_zone_close(struct fabric_zone *zone);
int shm_zone_post(struct fabric_zone *zone, uint64_t offset, uint64_t context);

unsigned zone_poll(struct shm_zone *zone, struct fabric_event *events, unsigned max);

/* The slow part: dead senders, helping, voiding; once per look at the sockets. */
void zone_check(struct shm_zone *zone);

/* How soon somebody must look again although no peer rings; UINT64_MAX: not at all. */
uint64_t zone_interval_ns(const struct shm_zone *zone);

/* Gives the peer of a handshake a sender slot. Errors: ROWAN_ETOOMANY. */
int zone_join(struct shm_zone *zone, struct shm_conn *conn, int *out_member);

/* The connection of a member ends. Takes the socket over: until the peer has closed its end too,
 * it may still store. */
void zone_leave(struct shm_zone *zone, int member, int socket_fd);

/* Fills in the zone's part of a welcome; `fds` stay the zone's. */
void zone_describe(const struct shm_zone *zone, struct shm_welcome *welcome, int fds[2]);

/* What shm_grant.c may know of a zone. */
struct shm_grants *shm_zone_grants(struct shm_zone *zone);
struct zone_control *shm_zone_control(const struct shm_zone *zone);
struct pm *shm_zone_pm(const struct shm_zone *zone);

/* --- shm_grant.c --- */
struct shm_grant {
    enum { GRANT_FREE, GRANT_LIVE, GRANT_ENDING, GRANT_OVER } state;
    int member; /* of the zone: whose it is */
    uint64_t generation;
    uint64_t context;
};

struct shm_grants {
    uint32_t ending, over; /* how many are */
    struct shm_grant all[FABRIC_MAX_GRANTS];
};

int shm_grant(struct fabric_conn *conn, uint64_t offset, uint64_t bytes, uint64_t context,
              struct fabric_grant *out);
void shm_revoke(struct fabric_conn *conn, const struct fabric_grant *grant);

/* The member's connection ends; it stores nothing any more. */
void shm_grants_leave(struct shm_zone *zone, int member);
void shm_grants_desert(struct shm_zone *zone, int member);

/* REVOKED events. */
unsigned shm_grants_poll(struct shm_zone *zone, struct fabric_event *events, unsigned max);

#endif
