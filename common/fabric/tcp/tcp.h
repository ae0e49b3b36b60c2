/* tcp.h - what the files of the tcp backend share (README.md says what is in which); nobody else includes it but its
 * tests. */
#ifndef FABRIC_TCP_H
#define FABRIC_TCP_H

#include <netinet/in.h>
#include <string.h>
#include <sys/uio.h>

#include "common/base/assert.h"
#include "common/base/random.h"
#include "common/fabric/endpoint.h"
#include "common/fabric/tcp/tcp_wire.h"

enum {
    TCP_MAX_CONNS = 16384,    /* of an endpoint */
    TCP_MAX_HALF_OPEN = 1024, /* sockets that have not said, or servers not shown, who they are */

    TCP_BLOCK_BYTES = 64 << 10,
    TCP_BLOCKS = 4096, /* of one connection's queue of Rowan sends */

    /* Memory that messages lie in (tcp_slab.c). */
    TCP_SLAB_ALIGNMENT = 256 << 10, /* so the head of a message tells its slab */
    TCP_CHUNK_BYTES = TCP_SLAB_ALIGNMENT - 64,
    TCP_CHUNKS = 256,
    TCP_MIDDLE_BYTES = 64 << 10,
    TCP_MIDDLES = 1024,
    TCP_LARGE_BYTES = FABRIC_MAX_MESSAGE_BYTES + 64,
    TCP_LARGES = 32,

    TCP_READ_ROOM = 16 << 10,  /* least room for a read of messages */
    TCP_READ_BYTES = 64 << 10, /* most that one read of messages takes */
    TCP_HELD_BYTES =
        512 << 10, /* of messages that a connection's owner may hold; one more may go beyond */

    TCP_OUT_BYTES = 32 << 10, /* copied bytes that wait on one connection */
    TCP_OUTS = 1024,          /* connections with something to send */
    TCP_OUTS_BLOCKED = 960,   /* and of these, whose peers do not read */
    TCP_OUTS_KEPT = 16,       /* free ones that are not given back */
    TCP_PINNED = 16,     /* slabs: more than a peer that reads keeps others from (tcp_send.c, 3) */
    TCP_LARGES_KEPT = 4, /* likewise */
    TCP_SLABS_KEPT = 16, /* likewise, of chunks and middles: aligned, so each is mapped anew */

    TCP_BOUNCE_BYTES = 16 << 10,  /* tcp_landing.c */
    TCP_SOCKET_BYTES = 128 << 10, /* SO_SNDBUF and SO_RCVBUF for messages; the kernel doubles it */
    TCP_WIDE_SOCKET_BYTES = 1 << 20, /* likewise, of a socket between servers */
};

/* Times, all compared with the now_ns of polls. */
#define TCP_CHECK_NS     (1 * NS_PER_MS) /* between looks at what is only a matter of time */
#define TCP_HANDSHAKE_NS (5 * NS_PER_S)
/* Half-open longer than this: may be closed for another. A hello follows its connection at once. */
#define TCP_HALF_OPEN_NS (200 * NS_PER_MS)
#define TCP_CUT_NS       (1 * NS_PER_S)    /* age of a cut block */
#define TCP_UNREAD_NS    (500 * NS_PER_MS) /* of a peer, while it keeps memory that others want */
#define TCP_WAIT_NS      (2 * NS_PER_US)   /* between looks at the sockets while awake */

struct tcp_conn;
struct tcp_zone;

/* An IPv4 or IPv6 address with port. */
union tcp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct tcp_fabric {
    struct conn_fabric base;
    union tcp_address address; /* all 0: it has none */
};

enum tcp_list_kind {
    LIST_HALF_OPEN = LIST_OWN, /* in the handshake: TCP_MAX_HALF_OPEN */
    LIST_BLOCKED,    /* has something to send, and its peer does not read; the longest first */
    LIST_LANDING,    /* blocks can be read */
    LIST_NO_SEGMENT, /* blocks wait for a segment */
    LIST_CUT,        /* has a cut block in the zone */
    LIST_FENCING,    /* blocks have landed that are not acknowledged */
    LIST_GUEST_IN,   /* guests of which something can be read, or that are trusted since */
    TCP_LISTS,
};

static_assert((int)TCP_LISTS <= (int)CONN_LISTS, "each has its link");

/* --- memory for messages --- */

enum slab_kind { SLAB_CHUNK, SLAB_MIDDLE, SLAB_LARGE, SLAB_OUT, SLAB_KINDS };

struct tcp_slab {
    struct tcp_slab *next_free;
    uint32_t refs; /* messages and readers in it */
    uint32_t used; /* bytes; chunks only */
    enum slab_kind kind;
    _Alignas(16) uint8_t data[];
};

static_assert(sizeof(struct tcp_slab) + TCP_CHUNK_BYTES <= TCP_SLAB_ALIGNMENT, "slab_of");

struct tcp_slabs {
    struct tcp_slab *free[SLAB_KINDS];
    uint32_t counts[SLAB_KINDS], free_count[SLAB_KINDS]; /* of all, and of these */
    uint32_t
        wanted; /* a bit for each kind that was asked for in vain since tcp_out_check last looked */
    struct tcp_slab *chunk; /* the one that is read into, or NULL */
};

struct tcp_endpoint {
    struct endpoint base;

    bool more_events;     /* the last look at the sockets did not see all */
    uint64_t waited_ns;   /* when the sockets were last looked at */
    uint64_t checked_ns;  /* when deadlines were */
    uint64_t guests_ns;   /* since when guests are looked at: tcp_guest.c, 3 */
    uint32_t guests_left; /* so many more times */

    struct tcp_slabs slabs;

    struct tcp_zone *zone;
    uint32_t zone_members;
    uint8_t *bounce;           /* TCP_BOUNCE_BYTES, with a zone */
    union tcp_address address; /* where it listens; all 0: nowhere */
};

/* --- connections --- */

/* Messages in. Bytes that were read lie in a chunk, from `at` to `end`; a message that the end of a
 * read has cut is put together in `buffer`. */
struct tcp_in {
    struct tcp_slab *chunk; /* NULL: nothing unread here */
    uint32_t at, end;
    struct tcp_slab *buffer; /* NULL: no cut message */
    uint32_t head_got;       /* bytes of a cut head */
    uint8_t head[sizeof(struct tcp_message_head)];
    uint64_t number;   /* of the next message */
    struct held *held; /* messages with the owner */
    uint64_t held_bytes;
    bool stopped; /* nothing is read: the owner holds too much, or it is a guest (tcp_guest.c) */
};

/* What begins at a place where a head does. */
enum unread { UNREAD_WHOLE, UNREAD_CUT_HEAD, UNREAD_CUT, UNREAD_GARBAGE };

static inline enum unread look_at_unread(const void *data, uint32_t left, uint64_t number,
                                         uint32_t *bytes)
{
    struct tcp_message_head head;

    if (left < sizeof head)
        return UNREAD_CUT_HEAD;
    memcpy(&head, data, sizeof head);
    *bytes = head.bytes;
    if (head.magic != TCP_MESSAGE_MAGIC || head.bytes > FABRIC_MAX_MESSAGE_BYTES ||
        head.number != number)
        return UNREAD_GARBAGE;
    return message_wire_bytes(head.bytes) <= left ? UNREAD_WHOLE : UNREAD_CUT;
}

/* Messages out. */
struct tcp_out {
    struct tcp_slab *slab; /* NULL: nothing waits to be sent or reported */
    uint32_t added, sent;  /* bytes */
    uint64_t progress_ns;  /* when the peer last took something of it */
};

/* One of a connection's sockets. */
struct tcp_socket {
    int fd;          /* -1: none */
    bool readable;   /* there may be bytes that were not read */
    bool writable;   /* the last send was not refused */
    bool said_hello; /* active */
    bool ended;      /* its end was announced: no edge comes any more, so it is read up to there */
};

/* After a read that gave `got` of the `asked` bytes. The end may have come with the last bytes, in one
 * edge: a short read is the last one only as long as there is no end to find. */
static inline void socket_was_read(struct tcp_socket *socket, ssize_t got, size_t asked)
{
    socket->readable = got > 0 && ((size_t)got == asked || socket->ended);
}

struct tcp_conn {
    struct conn base;
    struct tcp_endpoint *endpoint;
    struct tcp_socket messages, blocks;
    uint64_t token;
    union tcp_address address; /* active */

    uint64_t nonce; /* of the active side's proof */
    bool former;    /* that is, or was, made with the former secret */
    uint32_t greeting_got;
    struct tcp_greeting greeting; /* being received */

    struct tcp_in in;
    struct tcp_out out;
    uint64_t out_number; /* of the next message sent */

    struct tcp_landing *landing; /* passive, and we have one for the peer */
    struct tcp_guest *guest; /* it is one; NULL: it is none, or is none any more and was told all */
};

enum tcp_socket_kind { SOCKET_MESSAGES, SOCKET_BLOCKS }; /* one bit of a tag */

/* --- tcp_connect.c --- */
void tcp_conn_stop(struct conn *conn);
void tcp_conn_destroy(struct conn *conn);
int tcp_connect(struct fabric_endpoint *endpoint, const char *address, uint32_t index,
                uint64_t context, struct fabric_conn **out);
bool tcp_make_room(struct endpoint *endpoint);
bool tcp_proof_again(const struct fabric_conn *conn, uint8_t code[MAC_BYTES]);
int tcp_accepted(struct endpoint *endpoint, int fd);

/* The next step of a handshake, after something happened on a socket. */
void tcp_connect_step(struct tcp_conn *conn);

/* --- tcp_socket.c --- */

/* Takes "tcp:HOST:PORT" apart and adds `index` to the port. Errors: ROWAN_EINVALID (and a line in the
 * log that says what is wrong), those of names_look. */
int tcp_address_parse(const char *text, uint32_t index, union tcp_address *out);

/* Adds to the port. Errors: ROWAN_EINVALID. */
int tcp_address_index(union tcp_address *address, uint32_t index);

/* IPv6, or IPv4 mapped into it (RFC 4291, section 2.5.5.2). */
void tcp_address_bytes(const union tcp_address *address, uint8_t host[16], uint16_t *port);

/* Errors: ROWAN_EINUSE EPERMISSION EINVALID (not an address of this host) ETOOMANY EIO. */
int tcp_listen(const union tcp_address *address, int *out_fd);

/* Starts to connect. Errors: ROWAN_EUNREACHABLE ETOOMANY (no descriptors). */
int tcp_start_connect(const union tcp_address *address, int *out_fd);

void tcp_set_options(int fd);

/* Tells the address of the peer, not its port: of IPv6, the network. 0: it has gone. */
uint64_t tcp_source(int fd);

/* Makes the buffers of a socket between servers larger. */
void tcp_widen(int fd, enum tcp_socket_kind kind);

/* Bytes read or sent (at least 1). Errors: ROWAN_EAGAIN ECLOSED (after a write: what had arrived can be read, and then
 * the end). Short means: no more now. */
ssize_t tcp_read(int fd, const struct iovec *iov, unsigned count);
ssize_t tcp_write(int fd, const struct iovec *iov, unsigned count);

/* --- tcp_slab.c --- */

/* NULL: the endpoint's share of memory is used up. One reference is the caller's. */
struct tcp_slab *slab_take(struct tcp_endpoint *endpoint, enum slab_kind kind);
void slab_unused(struct tcp_endpoint *endpoint, struct tcp_slab *slab);

/* Who found no memory looks again. */
void slabs_try_again(struct tcp_endpoint *endpoint);

static inline void slab_unref(struct tcp_endpoint *endpoint, struct tcp_slab *slab)
{
    ASSERT(slab->refs > 0);
    if (--slab->refs == 0)
        slab_unused(endpoint, slab);
}

/* Of a message that is received, by its head: that lies in a chunk, or begins a slab. */
static inline struct tcp_slab *slab_of(const void *head)
{
    return (struct tcp_slab *)((uintptr_t)head & ~(uintptr_t)(TCP_SLAB_ALIGNMENT - 1));
}

/* The chunk to read into, with TCP_READ_ROOM or more left; no reference. NULL: no memory. */
struct tcp_slab *slab_chunk(struct tcp_endpoint *endpoint);
void slabs_fini(struct tcp_endpoint *endpoint);

/* --- tcp_receive.c --- */
unsigned tcp_in_poll(struct tcp_conn *conn, struct fabric_event *events, unsigned max);

/* True: tcp_in_poll could go on at once. */
bool tcp_in_has_work(const struct tcp_conn *conn);
/* How many slabs of these kinds (a bit for each) messages of the connection keep from others. */
uint32_t tcp_in_pinned(const struct tcp_conn *conn, uint32_t kinds);
void tcp_in_fini(struct tcp_conn *conn);
void tcp_message_release(struct fabric_conn *conn, uint64_t message);

/* Of what was read elsewhere, and begins with a head: takes it over. False: no memory. */
bool tcp_in_take_over(struct tcp_conn *conn, const void *data, uint32_t bytes);

/* The peer sends no messages. */
void tcp_tell_garbage(const struct tcp_conn *conn);

/* --- tcp_guest.c --- */
extern const struct fabric_ops tcp_guest_ops; /* of a guest's connection */
void tcp_guest_release(struct fabric_conn *conn, uint64_t message);
int tcp_guest_came(struct conn *conn);
void tcp_guest_went(struct conn *conn);

/* Something happened on its socket. */
void tcp_guest_event(struct tcp_conn *conn);

/* Messages of guests, of a few in each poll. tcp_guests_wait_ns: when the next may come of those on LIST_GUEST_IN. */
unsigned tcp_guests_poll(struct tcp_endpoint *endpoint, struct fabric_event *events, unsigned max);
uint64_t tcp_guests_wait_ns(const struct tcp_endpoint *endpoint);

/* --- tcp_send.c --- */
int tcp_send(struct fabric_conn *conn, const struct fabric_iov *iov, unsigned count);
void tcp_out_push(struct tcp_conn *conn);
/* Gives back memory that others want: of connections whose peers do not read. */
void tcp_out_check(struct tcp_endpoint *endpoint);
void tcp_out_fini(struct tcp_conn *conn);

/* --- tcp_rowan.c --- */

/* Active, and the peer has a zone for us: the connection's `window`. */
struct tcp_sender {
    struct send_window window;
    uint64_t framed; /* blocks */

    /* The frame on its way: the last `frame_blocks` before `framed`. */
    uint32_t frame_blocks;
    uint32_t head_bytes;
    uint64_t frame_bytes, frame_sent; /* equal: none */
    uint8_t head[TCP_FRAME_HEAD_BYTES];

    /* The peer's count on its way: a read may cut it. */
    uint32_t count_got;
    uint8_t count[8];
};

void sender_push(struct tcp_conn *conn);
unsigned sender_poll(struct tcp_conn *conn, struct fabric_event *events, unsigned max);
bool sender_has_events(const struct tcp_conn *conn);

/* --- tcp_landing.c --- */

/* Errors: ROWAN_ENOMEM ETOOMANY. */
int landing_create(struct tcp_conn *conn);

/* Nothing of this connection lands any more; a cut block becomes a hole. */
void landing_end(struct tcp_conn *conn);
void landing_destroy(struct tcp_conn *conn);

/* Reads blocks of all connections that have some. */
void landing_poll(struct tcp_endpoint *endpoint);

/* Closes those whose cut block is too old. */
void landing_check(struct tcp_endpoint *endpoint);

/* Fences what arrived, and acknowledges what is durable. */
void receipts_fence(struct tcp_endpoint *endpoint);
int tcp_zone_open(struct zone *zone);
void tcp_zone_posted(struct zone *zone);
void tcp_close_segment(struct zone *zone);
uint64_t tcp_zone_begun(const struct zone *zone);
unsigned zone_poll_sealed(struct tcp_zone *zone, struct fabric_event *events, unsigned max);

/* Where the next block goes. */
struct zone_cursor {
    uint64_t segment; /* counted from the first one posted */
    uint32_t at;
};

/* A segment's `own`: how many cut blocks lie in it. While there is one it is not sealed. */
struct tcp_zone {
    struct zone base;
    struct zone_cursor cursor;
};

#endif
