/* verbs_stream.h - messages over datagrams, as verbs_packet.c, verbs_stream.c, verbs_message.c, verbs_inbox.c
 * and verbs_slab.c share it.
 *
 * A connection's datagrams with data are numbered. The receiver keeps those that come early in their receive
 * buffers, answers with the number that it expects next, which behind it have arrived, and up to which it takes
 * any. The sender sends again what is missing though later ones have arrived, and all when nothing is heard.
 */
#ifndef FABRIC_VERBS_STREAM_H
#define FABRIC_VERBS_STREAM_H

#include "common/fabric/verbs/verbs.h"

enum {
    PACKET_GRH_BYTES =
        40, /* in front of each datagram, by the device (IB specification, 11.4.1.2) */
    PACKET_RECEIVES = 2048, /* buffers of the ring */
    PACKET_IN_PLACE = 1024, /* of these with messages that their owners hold */
    PACKET_SENDS = 1024,
    PACKET_CHAIN = 64, /* sends that are posted together; the last of them is signalled */

    STREAM_WINDOW = 64, /* datagrams of a connection on their way */
    STREAM_WINDOW_MIN = 8,
    STREAM_TRIES = 4, /* unanswered, before a silent peer is gone: it may be us who stood still */
    STREAM_DISORDER = 8, /* a datagram is lost when one that was sent so many later has arrived */
    STREAM_HELD = 1024,  /* messages that a connection's owner may hold; a window's more may come */
    STREAM_HELD_BYTES = 512 << 10,

    MESSAGE_MANY = 2048, /* messages of an endpoint sent and not acknowledged */
    MESSAGE_MOST = 128,  /* of a connection; MESSAGE_FEW while the endpoint has many */
    MESSAGE_FEW = 8,
    /* Likewise; one more message may go beyond. What was taken must reach an owner who holds it all. */
    MESSAGE_BYTES = STREAM_HELD_BYTES / 2,
};

#define STREAM_RTO_NS     (20 * NS_PER_MS) /* before a round trip was measured */
#define STREAM_RTO_MIN_NS (5 * NS_PER_MS)
#define STREAM_RTO_MAX_NS (320 * NS_PER_MS)
#define STREAM_SILENT_NS  (5 * NS_PER_S)    /* a peer that does not answer is gone */
#define STREAM_OWED_NS    (1 * NS_PER_MS)   /* how late an acknowledgement may be */
#define STREAM_REFUSED_NS (50 * NS_PER_MS)  /* before the system is asked again for memory */
#define STREAM_UNREAD_NS  (500 * NS_PER_MS) /* a shut window, in memory others want */

/* --- the bytes in front of each datagram, little-endian --- */

enum packet_flags {
    PACKET_DATA = 1, /* `sequence` counts, and there may be payload */
    PACKET_FIRST = 2,
    PACKET_LAST = 4,   /* datagram of a message */
    PACKET_ASK = 8,    /* answer at once */
    PACKET_AGAIN = 16, /* there is memory for `acked` again: send it, and what follows, again */
    PACKET_FLAGS = 31,
};

struct packet_head {
    uint32_t connection; /* the receiver's number and token */
    uint32_t token;
    uint32_t sequence;
    uint32_t acked; /* all before it has arrived */
    uint32_t limit; /* numbers before it may be sent */
    uint16_t flags;
    uint16_t bytes;         /* of payload */
    uint32_t message_bytes; /* of the whole message; data only */
    uint32_t zero;
    uint64_t early; /* bit i: number `acked` + i has arrived, too; bit 0 is 0 */
};

static_assert(sizeof(struct packet_head) == 40 &&
                  (PACKET_GRH_BYTES + sizeof(struct packet_head)) % 8 == 0,
              "a message is read where it lies, 8 B-aligned");
static_assert(offsetof(struct packet_head, flags) == 20 &&
                  offsetof(struct packet_head, message_bytes) == 24 &&
                  offsetof(struct packet_head, early) == 32,
              "layout");
static_assert(STREAM_WINDOW == 64, "a bit of 64 for each");

/* a comes behind b */
static inline bool is_behind(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

/* --- memory (verbs_slab.c) --- */

/* A message that has come: in a receive buffer or in a slab. */
struct verbs_held {
    struct {
        struct verbs_held *next, *prev;
    } link;
    struct verbs_slab *slab; /* NULL: it lies in the ring */
    const uint8_t *data;
    uint32_t bytes;
};

/* Memory of one message. */
struct verbs_slab {
    struct verbs_slab *next; /* free, or sent behind it on the connection */
    uint8_t *data;
    uint32_t key; /* to send from it */
    enum verbs_slab_kind kind;
    struct verbs_held held; /* the message has come */

    /* The message is sent. */
    uint32_t bytes;
    uint32_t sequence; /* of its first datagram */
    uint32_t packets;
    uint64_t last_post; /* the device reads it until so many sends are complete */
};

/* NULL: the share of memory is used up, the system gives none, or `bytes` is more than a message has. */
struct verbs_slab *verbs_slab_get(struct verbs_slabs *slabs, uint32_t bytes);
void verbs_slab_give(struct verbs_slabs *slabs, struct verbs_slab *slab);

/* True, once: memory was refused so long ago that it is worth asking for again. */
bool verbs_slabs_may_ask(struct verbs_slabs *slabs);
void verbs_slabs_fini(struct verbs_slabs *slabs);

/* --- messages out (verbs_message.c) --- */

struct verbs_stream {
    struct ibv_ah *ah;
    uint32_t payload;   /* bytes of a datagram */
    uint64_t last_post; /* the device has done with it when so many sends are complete */

    /* out: acked <= send_next <= sent <= next_sequence */
    struct verbs_slab *first, *last;
    struct verbs_slab *cursor; /* send_next is one of its datagrams; NULL: all are sent */
    uint32_t out_count;
    uint64_t out_bytes;
    uint32_t next_sequence; /* of the next message */
    uint32_t send_next, sent, acked, limit;
    uint32_t window;               /* at most so many on their way; smaller after losses */
    bool went_back;                /* since something was acknowledged or a timer ran out */
    uint64_t arrived;              /* bit i: number acked + i, says the peer */
    uint64_t again;                /* likewise: is lost and must be sent again */
    uint32_t posts;                /* datagrams with data so far, those sent again counted again */
    uint32_t newest;               /* the latest post that has arrived */
    uint32_t order[STREAM_WINDOW]; /* of number % STREAM_WINDOW: which post was its last */
    bool probes;                   /* asks whether more may be sent */
    uint64_t rto_ns, srtt_ns, rttvar_ns;
    uint64_t timer_ns; /* when to send again; 0: nothing waits */
    uint64_t heard_ns; /* of the peer; or when we began to wait */
    uint32_t unheard;  /* timers that have run out since */
    uint64_t progress_ns;
    bool is_timed; /* a round trip is being measured */
    uint32_t timed_sequence;
    uint64_t timed_ns;

    /* in */
    uint32_t expected, told_limit;
    bool is_shut;                             /* as it was told last */
    bool answers;                             /* an acknowledgement is due at once */
    bool dropped;                             /* and says that `expected` was dropped */
    uint64_t early;                           /* bit i: number expected + i has arrived */
    struct verbs_held *places[STREAM_WINDOW]; /* of number % STREAM_WINDOW: where it lies */
    uint32_t owed;                            /* datagrams not acknowledged */
    uint64_t owed_ns;                         /* since when */
    struct verbs_slab *partial;               /* NULL: no message is begun */
    struct {
        struct verbs_held *first, *last;
    } held;
    struct verbs_held *inbox; /* from here on they are not given out yet; NULL: all are */
    uint32_t held_count;
    uint64_t held_bytes;
};

/* --- verbs_packet.c --- */

struct verbs_packets {
    struct ibv_qp *qp;
    uint32_t key;
    uint32_t sends, receives;   /* sizes of the queues */
    uint64_t posted, completed; /* sends */
    bool failed;                /* the queue pair: is replaced when its completions are gone */

    struct verbs_buffer ring;
    uint32_t stride;
    uint32_t in_place;   /* buffers whose messages are held */
    uint32_t idle_count; /* buffers to be posted */
    uint32_t *idle;
    struct verbs_held *held; /* of each buffer; `data` is NULL: it holds nothing */

    struct verbs_buffer heads; /* one for each place of the send queue */
    uint32_t chained;
    struct ibv_send_wr chain[PACKET_CHAIN];
    struct ibv_sge pieces[PACKET_CHAIN][2]; /* head, payload */
};

/* Errors: ROWAN_ENOMEM EPERMISSION EUNSUPPORTED. */
int verbs_packets_open(struct verbs_endpoint *endpoint);

/* Destroys the queue pair: the device reads and writes nothing more. */
void verbs_packets_stop(struct verbs_endpoint *endpoint);
void verbs_packets_close(struct verbs_endpoint *endpoint);

/* Places of the completion queue that datagrams take. */
uint32_t verbs_packets_places(const struct verbs_device *device);

/* Puts a datagram into the chain, with head->bytes of payload; verbs_packet_fits. Sets stream->last_post. */
void verbs_packet_add(struct verbs_conn *conn, const struct packet_head *head, const uint8_t *data,
                      uint32_t bytes, uint32_t key);
bool verbs_packet_fits(const struct verbs_endpoint *endpoint);

/* Hands the chain, and the receive buffers that are free again, to the device. */
void verbs_packets_push(struct verbs_endpoint *endpoint);
void verbs_packet_completion(struct verbs_endpoint *endpoint, const struct ibv_wc *wc);

/* The queue pair has failed: all connections break. */
void verbs_packets_fail(struct verbs_endpoint *endpoint, const char *reason);

/* The completion queue is empty: replaces a failed queue pair. */
void verbs_packets_renew(struct verbs_endpoint *endpoint);
void verbs_packet_give(struct verbs_endpoint *endpoint, struct verbs_held *held);

/* --- verbs_stream.c --- */

/* With what conn->theirs says; takes `ah`, whether it fails or not. Errors: ROWAN_ENOMEM. */
int verbs_stream_open(struct verbs_conn *conn, struct ibv_ah *ah);

void verbs_stream_close(struct verbs_conn *conn);

/* A datagram of the peer, checked so far: the payload of head->bytes lies at `data`. True: it lies there as
 * a held message now. */
bool verbs_stream_input(struct verbs_conn *conn, const struct packet_head *head,
                        const uint8_t *data, struct verbs_held *in_place);
void verbs_stream_push(struct verbs_conn *conn);
void verbs_stream_check(struct verbs_endpoint *endpoint);

/* The earliest time that verbs_stream_check has something to do; UINT64_MAX: none. */
uint64_t verbs_stream_wake_ns(const struct verbs_endpoint *endpoint);

/* Something was sent: the timer runs. */
void verbs_stream_added(struct verbs_conn *conn);

/* The owner has given messages back, or there is memory again. */
void verbs_stream_opened(struct verbs_conn *conn);

/* --- verbs_message.c --- */
int verbs_send(struct fabric_conn *conn, const struct fabric_iov *iov, unsigned count);

/* Frees what is done with. */
void verbs_message_done(struct verbs_conn *conn);
void verbs_message_fini(struct verbs_conn *conn);

/* Gives back memory that others want and whose receivers do not read. */
void verbs_message_check(struct verbs_endpoint *endpoint);

/* --- verbs_inbox.c --- */
enum inbox_result { INBOX_COPIED, INBOX_IN_PLACE, INBOX_NO_MEMORY, INBOX_GARBAGE };

/* The next datagram in order. */
enum inbox_result verbs_inbox_store(struct verbs_conn *conn, const struct packet_head *head,
                                    const uint8_t *data, struct verbs_held *in_place);
bool verbs_inbox_is_full(const struct verbs_stream *stream); /* the owner holds too much */

/* Keeps a datagram that comes before its turn, where it lies; there is none of that number yet. */
void verbs_inbox_keep(struct verbs_conn *conn, uint32_t sequence, const uint8_t *data,
                      struct verbs_held *in_place);

/* The next datagram in order, which was kept (bit 0 of stream->early) and is not any more. */
enum inbox_result verbs_inbox_store_kept(struct verbs_conn *conn, struct packet_head *head);
unsigned verbs_inbox_poll(struct verbs_conn *conn, struct fabric_event *events, unsigned max);
void verbs_inbox_fini(struct verbs_conn *conn);
void verbs_inbox_check(struct verbs_endpoint *endpoint);

void verbs_message_release(struct fabric_conn *conn, uint64_t message);

#endif
