/* shm.h - what the files of the shm backend share (README.md says what is in which); nobody else includes it but its
 * tests. */
#ifndef FABRIC_SHM_H
#define FABRIC_SHM_H

#include "common/fabric/endpoint.h"
#include "common/fabric/shm/shm_layout.h"

enum {
    SHM_NAME_BYTES = 64,
    SHM_SMALL_BYTES = SHM_RING_BYTES / 4, /* messages above travel as fragments */
    SHM_FIFO = 4096,                      /* records that a receiver holds of one connection */
    SHM_BUFFERS = 8,                      /* large messages an endpoint holds or puts together */
    SHM_BLOCK_BYTES = 64 << 10,
    SHM_BLOCKS = 4096, /* of one connection's queue of Rowan sends */
    SHM_FENCES = 64,   /* claims there that wait for their fence */
};

/* Times, all compared with the now_ns of polls. */
#define SHM_CHECK_NS       (1 * NS_PER_MS)   /* between looks at the sockets while awake */
#define SHM_SLEPT_CHECK_NS (100 * NS_PER_US) /* likewise, after a sleep that no bell ended */
#define SHM_SWEEP_NS       (250 * NS_PER_MS) /* longest sleep of who has accepted a connection */
#define SHM_HANDSHAKE_NS   (5 * NS_PER_S)
#define SHM_STALL_NS       (2 * NS_PER_S)   /* a half-sent large message others wait for */
#define SHM_VOID_NS        (1 * NS_PER_S)   /* a claim of a closed segment */
#define SHM_VOID_STEP_NS   (20 * NS_PER_MS) /* of that, most that counts between two looks */

struct shm_conn;
struct shm_zone;

struct shm_fabric {
    struct conn_fabric base;
    int directory_fd; /* -1: it has no address */
    char name[SHM_NAME_BYTES];
};

/* One buffer for a message larger than a record. */
struct shm_buffer {
    uint8_t *data;          /* NULL until first needed */
    struct shm_conn *owner; /* NULL: free */
    bool delivered;         /* whole and in the receiver's hands */
    uint64_t progress_ns;   /* when it last grew */
};

struct shm_endpoint {
    struct endpoint base;
    int event_fd;
    int sweep_fd; /* a timer, every SHM_SWEEP_NS while `sweeps` */
    bool sweeps;
    int door_fd;
    struct shm_doorbell *door;
    struct shm_zone *zone;

    bool woken; /* look at the sockets in the next poll */
    bool slept; /* likewise, if the last look is some time ago */
    bool rung;  /* the last sleep was: the ring is still to be taken */
    uint32_t sleep_number;
    uint64_t checked_ns; /* when the sockets were last looked at */

    uint64_t serial; /* of the next connection */
    struct shm_buffer buffers[SHM_BUFFERS];
};

struct shm_out {
    struct shm_ring *ring;
    uint8_t *data;
    uint64_t tail;      /* written up to here */
    uint64_t published; /* and visible to the receiver up to here */
    uint64_t head;      /* as last seen */

    uint8_t *staging;
    struct fabric_iov rest; /* of a large message on its way, in `staging`; empty: none is */
};

struct shm_in {
    struct shm_ring *ring;
    const uint8_t *data;
    uint64_t cursor;    /* read up to here */
    uint64_t head;      /* released up to here */
    uint64_t published; /* and known to the sender up to here */

    /* Of a record that is a whole message: SHM_SMALL_BYTES; FABRIC_GUEST_BYTES from a guest (F13). */
    uint32_t most_bytes;
    struct shm_buffer *buffer; /* of the large message being put together, or NULL */
    uint32_t large_bytes;
    uint32_t large_got;

    uint64_t fifo_head, fifo_tail;
    uint32_t fifo[SHM_FIFO]; /* bytes of each record between head and cursor; RECORD_RELEASED */
};

/* Rowan sends (shm_rowan.c). */
struct shm_fence { /* of a claim */
    uint64_t end;
    struct pm_ticket ticket;
};

struct shm_rowan {
    struct send_window window;
    struct zone_control *control;
    struct zone_sender *self;
    struct pm *pm;
    uint32_t depth;
    bool no_segment; /* the last try found no segment */
    uint64_t stored; /* blocks */
    uint64_t fence_head, fence_tail;
    struct shm_fence fences[SHM_FENCES];
};

struct shm_conn {
    struct conn
        base; /* was open: out, in and peer_door are there; `number`: of its bit in our doorbell */
    struct shm_endpoint *endpoint;
    int zone_member; /* our zone's sender slot that the peer uses, or -1 */
    uint64_t serial; /* tells it from others that had the number before */

    int socket_fd;

    /* Active: whom to connect to. */
    char *directory;
    char name[SHM_NAME_BYTES];
    uint32_t index;

    struct shm_channel *channel;
    int channel_fd; /* active: until the hello is sent */

    struct shm_doorbell *peer_door;
    int peer_event_fd; /* of layouts before VERSION_SHM_RING */
    uint32_t peer_slot;
    bool unheard; /* the system had no memory to wake the peer: the connection breaks */

    struct shm_rowan *rowan; /* the `window`; NULL: the peer has no zone for us */
    struct shm_out out;
    struct shm_in in;
};

enum { LIST_SWEPT = LIST_OWN }; /* open; their rings are looked at in turn */

#define SHM_TAG_WAKE  (UINT64_MAX - 2)
#define SHM_TAG_SWEEP (UINT64_MAX - 3)
#define SHM_WATCHED   (EPOLLIN | EPOLLRDHUP) /* not edge-triggered */

/* --- shm_connect.c --- */
void shm_conn_stop(struct conn *conn);
int shm_guest_came(struct conn *conn);
void shm_guest_went(struct conn *conn);
bool shm_conn_release(
    struct conn *conn); /* false: a sync is under way, which it would have to wait for */
void shm_conn_destroy(struct conn *conn);

/* Tells the peer that there is something on this connection. */
void conn_ring(struct shm_conn *conn);

int shm_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t index,
                uint64_t context, struct fabric_conn **out);
int shm_accepted(struct endpoint *endpoint, int fd);

/* Its timer, while it has accepted a connection. */
void shm_sweep(struct shm_endpoint *endpoint, bool sweeps);

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

/* Moves a large message on. */
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

/* Claims space for what is posted and stores it there. */
void shm_rowan_push(struct shm_conn *conn);
unsigned shm_rowan_poll(struct shm_conn *conn, struct fabric_event *events, unsigned max);

/* Blocks wait: for a fence, or for a segment. */
static inline bool shm_rowan_is_fencing(const struct shm_rowan *rowan)
{
    return rowan->fence_head != rowan->fence_tail;
}

static inline bool shm_rowan_waits(const struct shm_rowan *rowan)
{
    return rowan && rowan->window.batch_head != rowan->window.batch_tail;
}

/* Z4, Z5: records how many claims a full segment has and moves the position on. True: this call
 * moved it. */
bool zone_advance(struct zone_control *control, uint32_t depth, uint64_t position);

/* Steps of a Rowan send (see shm_rowan.c), for tests that stop a sender between two. */
enum shm_step {
    STEP_INTENT,
    STEP_CHECKED, /* not revoked */
    STEP_FULL,
    STEP_CLAIMED,
    STEP_STORED,
    STEP_DONE,
};
typedef void shm_step_hook(enum shm_step step, struct shm_conn *conn);
extern shm_step_hook *shm_step_hook_installed; /* NULL; set before threads start */

static inline void shm_step(enum shm_step at, struct shm_conn *conn)
{
    if (__builtin_expect(shm_step_hook_installed != NULL, 0))
        shm_step_hook_installed(at, conn);
}

/* --- shm_zone.c --- */
enum member_state { MEMBER_FREE, MEMBER_ACTIVE, MEMBER_LINGERING };

struct zone_member {
    enum member_state state;
    bool shut_out;
    struct fabric_identity peer;
    struct shm_conn *conn; /* ACTIVE */
    int socket_fd;         /* LINGERING */
    int pid_fd;            /* -1 where the kernel gives none: the socket's end tells it, too */
};

struct unquiet {
    uint64_t segment;
    uint64_t context;
};

struct shm_zone {
    struct zone base;
    struct zone_control *control;
    int control_fd;

    /* Of segment `sealed`: */
    uint32_t cursor;
    uint32_t end;  /* strides up to the end of the last claim that is DONE */
    bool has_void; /* a claim behind that one is VOID, and was not told */
    uint32_t voided;
    bool stuck;          /* the claim at the cursor is EMPTY */
    uint64_t stuck_ns;   /* for how long it has waited for such claims, as Z5 counts */
    uint64_t checked_ns; /* when that was last counted; 0: not yet */

    uint32_t lingering;
    struct zone_member members[FABRIC_MAX_ZONE_SENDERS];

    uint32_t unquiet_count;  /* at most `depth` */
    struct unquiet *unquiet; /* sealed, and not quiet yet */
};

int shm_zone_open(struct zone *zone);
void shm_zone_close(struct zone *zone);
void shm_zone_posted(struct zone *zone);
void shm_close_segment(struct zone *zone);
uint64_t shm_zone_begun(const struct zone *zone);
uint64_t shm_shut_out(struct zone *zone, const struct fabric_shut_out *out);

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

#endif
