/* shm_message.c - messages: for each direction of a connection a byte ring with one writer and one
 * reader.
 *
 * A message of up to SHM_SMALL_BYTES is one record and the receiver reads it where it lies. A
 * larger one travels as fragments that the receiver copies into one of its endpoint's few buffers;
 * the sender keeps what does not fit yet and moves on as room comes (out_poll).
 *
 * 1. published <= tail, head <= published <= head + bytes (sender); head <= cursor <= tail
 *    (receiver). What the peer writes is checked against these before it is used, and a record's
 *    length is read once: what decides what we read or free is never read again from shared memory.
 * 2. A record's bytes are written before the tail moves over it (release), read after the tail was
 *    read (acquire), and overwritten only after the head has moved over it: the same two rules for
 *    the way back.
 * 3. Records are released in any order, the head moves over the released front (fifo).
 * 4. A sender without room sets want_room and looks at the head once more; a receiver moves the
 * head and then looks at want_room. All four are sequentially consistent, so one of the two sees
 * the other, and a sender that waits is rung.
 * 5. One large message at a time is on its way on a connection; meanwhile sends answer EAGAIN. So a
 *    send either is refused whole or goes through whole (F9), and messages keep their order (F1).
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/shm/shm.h"

enum {
    RECORD_HEADER = 8,
    FRAGMENT_BYTES = SHM_RING_BYTES / 8,
    FRAGMENT_LEAST = 4096, /* a large message waits for at least that much room */
    STAGING_BYTES = FABRIC_MAX_MESSAGE_BYTES,
    BUFFER_MESSAGE = 1 << 16, /* a message's name is this + its buffer, or */
    NAME_SHIFT = 17,          /* its place in the fifo, shifted, + 1 */
};

#define RECORD_RELEASED (UINT32_C(1) << 31)

static uint32_t padded(uint32_t bytes)
{
    return (bytes + 7) & ~UINT32_C(7);
}

/* --- sending --- */

static uint64_t room_by(const struct shm_out *out)
{
    return SHM_RING_BYTES - (out->tail - out->head);
}

/* Takes over the head that the receiver has set. */
static bool read_head(struct shm_conn *conn)
{
    struct shm_out *out = &conn->out;
    uint64_t head = atomic_load_explicit(&out->ring->head, memory_order_seq_cst);

    if (head - out->head > out->published - out->head || head % 8 != 0) {
        conn_break(&conn->base, ROWAN_EFORMAT, false);
        return false;
    }
    out->head = head;
    return true;
}

/* Room for `need` bytes; if there is none, the receiver knows that we wait (4). */
static bool has_room(struct shm_conn *conn, uint64_t need)
{
    struct shm_out *out = &conn->out;

    if (room_by(out) >= need)
        return true;
    if (!read_head(conn))
        return false;
    if (room_by(out) >= need)
        return true;
    atomic_exchange_explicit(&out->ring->want_room, 1, memory_order_seq_cst);
    return read_head(conn) && room_by(out) >= need;
}

static uint64_t to_end(const struct shm_out *out)
{
    return SHM_RING_BYTES - (out->tail & (SHM_RING_BYTES - 1));
}

/* Where the record at the tail lies. */
static uint8_t *record_at_tail(const struct shm_out *out)
{
    return out->data + (out->tail & (SHM_RING_BYTES - 1));
}

static void write_header(uint8_t *record, uint32_t bytes, enum record_kind kind)
{
    *(uint64_t *)(void *)record = (uint64_t)kind << 32 | bytes;
}

static void write_pad(struct shm_out *out)
{
    uint64_t rest = to_end(out);

    write_header(record_at_tail(out), (uint32_t)rest - RECORD_HEADER, RECORD_PAD);
    out->tail += rest;
}

/* Where the payload of the record at the tail goes. */
static uint8_t *payload(const struct shm_out *out)
{
    return record_at_tail(out) + RECORD_HEADER;
}

static void finish_record(struct shm_conn *conn, uint32_t bytes, enum record_kind kind)
{
    write_header(record_at_tail(&conn->out), bytes, kind);
    conn->out.tail += RECORD_HEADER + padded(bytes);
    conn_list_add(&conn->base, LIST_DIRTY);
}

static int send_whole(struct shm_conn *conn, const struct fabric_iov *iov, unsigned count,
                      uint32_t bytes)
{
    struct shm_out *out = &conn->out;
    const uint64_t need = RECORD_HEADER + padded(bytes);
    const uint64_t rest = to_end(out);

    if (!has_room(conn, rest < need ? rest + need : need))
        return conn->base.state == CONN_OPEN ? ROWAN_EAGAIN : ROWAN_ECLOSED;
    if (rest < need)
        write_pad(out);
    window_copy(payload(out), iov, count);
    finish_record(conn, bytes, RECORD_WHOLE);
    return 0;
}

/* Copies the bytes behind the first `from` of the pieces. */
static void copy_part(uint8_t *to, const struct fabric_iov *iov, uint32_t from, uint32_t bytes)
{
    for (; bytes > 0; iov++) {
        uint32_t part = iov->bytes;

        if (from >= part) {
            from -= part;
            continue;
        }
        part = part - from < bytes ? part - from : bytes;
        memcpy(to, (const uint8_t *)iov->data + from, part);
        to += part;
        bytes -= part;
        from = 0;
    }
}

/* One more fragment of a large message of which `left` bytes are to come; how many of them it has. 0: no room for it. */
static uint32_t send_fragment(struct shm_conn *conn, const struct fabric_iov *iov, uint32_t from,
                              uint32_t left, bool first)
{
    struct shm_out *out = &conn->out;
    const uint64_t total = left;
    const uint32_t extra = first ? sizeof total : 0;
    const uint32_t least =
        RECORD_HEADER + extra + padded(left < FRAGMENT_LEAST ? left : FRAGMENT_LEAST);
    uint64_t rest = to_end(out), most;
    uint32_t bytes;

    if (!has_room(conn, rest < least ? rest + least : least))
        return 0;
    if (rest < least) {
        write_pad(out);
        rest = to_end(out);
    }
    most = room_by(out) < rest ? room_by(out) : rest;
    if (most > FRAGMENT_BYTES)
        most = FRAGMENT_BYTES;
    bytes = (uint32_t)most - RECORD_HEADER - extra;
    if (bytes > left)
        bytes = left;
    if (first)
        memcpy(payload(out), &total, sizeof total);
    copy_part(payload(out) + extra, iov, from, bytes);
    finish_record(conn, bytes + extra, first ? RECORD_FIRST : RECORD_MORE);
    return bytes;
}

static int send_large(struct shm_conn *conn, const struct fabric_iov *iov, uint32_t bytes)
{
    struct shm_out *out = &conn->out;
    uint32_t sent, part;

    if (!out->staging) {
        out->staging = malloc(STAGING_BYTES);
        if (!out->staging)
            return ROWAN_EAGAIN;
    }
    sent = part = send_fragment(conn, iov, 0, bytes, true);
    if (sent == 0)
        return conn->base.state == CONN_OPEN ? ROWAN_EAGAIN : ROWAN_ECLOSED;
    for (; part > 0 && sent < bytes; sent += part)
        part = send_fragment(conn, iov, sent, bytes - sent, false);
    copy_part(out->staging, iov, sent, bytes - sent); /* where the caller cannot change it */
    out->rest = (struct fabric_iov){.data = out->staging, .bytes = bytes - sent};
    conn_list_add(&conn->base, LIST_ACTIVE);
    return 0;
}

/* Any message. */
static __attribute__((noinline)) int send_any(struct shm_conn *conn, const struct fabric_iov *iov,
                                              unsigned count)
{
    uint32_t bytes;
    const int error = window_check_message(&conn->base, iov, count, &bytes);

    if (error)
        return error;
    if (conn->out.rest.bytes > 0)
        return ROWAN_EAGAIN;
    return bytes > SHM_SMALL_BYTES ? send_large(conn, iov, bytes)
                                   : send_whole(conn, iov, count, bytes);
}

static __attribute__((noinline)) int sent_first(struct shm_conn *conn)
{
    conn_list_append(&conn->base, LIST_DIRTY);
    return 0;
}

/* Short messages that find their place at once, as most do. */
int shm_send(struct fabric_conn *base, const struct fabric_iov *iov, unsigned count)
{
    struct shm_conn *conn = (struct shm_conn *)base;
    struct shm_out *out = &conn->out;
    const uint64_t tail = out->tail, at = tail & (SHM_RING_BYTES - 1);
    uint8_t *const record = out->data + at;
    uint32_t bytes;

    if (conn->base.state != CONN_OPEN || out->rest.bytes > 0 ||
        !window_is_short(iov, count, &bytes))
        return send_any(conn, iov, count);
    const uint64_t need = RECORD_HEADER + padded(bytes);

    if (SHM_RING_BYTES - at < need || room_by(out) < need)
        return send_any(conn, iov, count);
    out->tail = tail + need;
    write_header(record, bytes, RECORD_WHOLE);
    window_copy_short(record + RECORD_HEADER, iov, count);
    return conn_is_listed(&conn->base, LIST_DIRTY) ? 0 : sent_first(conn);
}

bool out_publish(struct shm_conn *conn)
{
    struct shm_out *out = &conn->out;

    if (out->published == out->tail)
        return false;
    out->published = out->tail;
    atomic_store_explicit(&out->ring->tail, out->tail, memory_order_release);
    return true;
}

void out_poll(struct shm_conn *conn)
{
    struct fabric_iov *rest = &conn->out.rest;
    uint32_t part = 1;

    while (part > 0 && rest->bytes > 0 && conn->base.state == CONN_OPEN) {
        part = send_fragment(conn, rest, 0, rest->bytes, false);
        rest->data = (const uint8_t *)rest->data + part;
        rest->bytes -= part;
    }
}

bool out_is_idle(const struct shm_conn *conn)
{
    return conn->out.rest.bytes == 0;
}

/* --- receiving --- */

/* Over what is released. */
static __attribute__((noinline)) void move_head(struct shm_conn *conn)
{
    struct shm_in *in = &conn->in;
    uint64_t at = in->fifo_head, moved = 0;
    uint32_t record;

    while (at != in->fifo_tail && (record = in->fifo[at % SHM_FIFO]) & RECORD_RELEASED) {
        moved += record - RECORD_RELEASED;
        at++;
    }
    if (moved == 0)
        return;
    in->head += moved;
    in->fifo_head = at;
    conn_list_add(&conn->base, LIST_DIRTY);
}

/* Moves the cursor over a record and notes it until it is released. */
static inline void take_record(struct shm_in *in, uint32_t payload_bytes, uint32_t released)
{
    const uint32_t record = RECORD_HEADER + padded(payload_bytes);

    in->cursor += record;
    in->fifo[in->fifo_tail++ % SHM_FIFO] = record | released;
}

bool in_publish(struct shm_conn *conn)
{
    struct shm_in *in = &conn->in;

    if (in->published == in->head)
        return false;
    in->published = in->head;
    atomic_exchange_explicit(&in->ring->head, in->head, memory_order_seq_cst);
    return atomic_load_explicit(&in->ring->want_room, memory_order_seq_cst) &&
           atomic_exchange_explicit(&in->ring->want_room, 0, memory_order_seq_cst);
}

/* Closes who holds a buffer for a message that it does not go on with. */
static void break_stalled(struct shm_endpoint *endpoint)
{
    for (unsigned i = 0; i < SHM_BUFFERS; i++) {
        const struct shm_buffer *buffer = &endpoint->buffers[i];

        if (buffer->owner && !buffer->delivered && in_is_empty(buffer->owner) &&
            endpoint->base.now_ns - buffer->progress_ns > SHM_STALL_NS)
            conn_break(&buffer->owner->base, ROWAN_ETIMEDOUT, false);
    }
}

static struct shm_buffer *take_buffer(struct shm_conn *conn)
{
    struct shm_endpoint *endpoint = conn->endpoint;

    for (unsigned i = 0; i < SHM_BUFFERS; i++) {
        struct shm_buffer *buffer = &endpoint->buffers[i];

        if (buffer->owner)
            continue;
        if (!buffer->data)
            buffer->data = aligned_alloc(SHM_LINE, FABRIC_MAX_MESSAGE_BYTES);
        if (!buffer->data)
            return NULL;
        buffer->owner = conn;
        buffer->delivered = false;
        buffer->progress_ns = endpoint->base.now_ns;
        return buffer;
    }
    break_stalled(endpoint);
    return NULL;
}

void in_free_buffers(struct shm_conn *conn)
{
    for (unsigned i = 0; i < SHM_BUFFERS; i++) {
        if (conn->endpoint->buffers[i].owner == conn)
            conn->endpoint->buffers[i].owner = NULL;
    }
    conn->in.buffer = NULL;
}

/* What a look at the next record told. */
enum look { LOOK_NOTHING, LOOK_PART, LOOK_MESSAGE, LOOK_NONSENSE };

/* Copies a fragment to its place; `event` is filled in when it was the last. */
static enum look take_fragment(struct shm_conn *conn, const uint8_t *data, uint32_t bytes,
                               struct fabric_event *event)
{
    struct shm_in *in = &conn->in;
    struct shm_buffer *buffer = in->buffer;

    if (bytes > in->large_bytes - in->large_got || (bytes == 0 && in->large_bytes > 0))
        return LOOK_NONSENSE;
    memcpy(buffer->data + in->large_got, data, bytes);
    in->large_got += bytes;
    buffer->progress_ns = conn->endpoint->base.now_ns;
    if (in->large_got < in->large_bytes)
        return LOOK_PART;
    buffer->delivered = true;
    in->buffer = NULL;
    event->data = buffer->data;
    event->bytes = in->large_bytes;
    event->message = BUFFER_MESSAGE + (uint64_t)(buffer - conn->endpoint->buffers);
    return LOOK_MESSAGE;
}

static enum look take_first(struct shm_conn *conn, const uint8_t *data, uint32_t bytes,
                            struct fabric_event *event)
{
    struct shm_in *in = &conn->in;
    uint64_t total;

    if (in->buffer || bytes < sizeof total)
        return LOOK_NONSENSE;
    total = *(const volatile uint64_t *)(const void *)data; /* once (1) */
    if (total > FABRIC_MAX_MESSAGE_BYTES || total == 0)
        return LOOK_NONSENSE;
    if (conn->base.base.guest) /* F13: what fits in its ring takes nothing of ours */
        return LOOK_NONSENSE;
    in->buffer = take_buffer(conn);
    if (!in->buffer)
        return LOOK_NOTHING;
    in->large_bytes = (uint32_t)total;
    in->large_got = 0;
    return take_fragment(conn, data + sizeof total, bytes - (uint32_t)sizeof total, event);
}

/* A record that is no whole message; `bytes` of it lie at `place`. */
static enum look take_other(struct shm_conn *conn, uint64_t kind, const uint8_t *place,
                            uint32_t bytes, struct fabric_event *event)
{
    struct shm_in *in = &conn->in;
    enum look look;

    switch (kind) {
    case RECORD_PAD:
        take_record(in, bytes, RECORD_RELEASED);
        return LOOK_PART;
    case RECORD_FIRST:
        look = take_first(conn, place + RECORD_HEADER, bytes, event);
        break;
    case RECORD_MORE:
        look =
            in->buffer ? take_fragment(conn, place + RECORD_HEADER, bytes, event) : LOOK_NONSENSE;
        break;
    default:
        return LOOK_NONSENSE;
    }
    if (look == LOOK_PART || look == LOOK_MESSAGE)
        take_record(in, bytes, RECORD_RELEASED);
    return look;
}

/* One record; `avail` bytes lie between cursor and tail, at most the ring's. */
static inline enum look take_next(struct shm_conn *conn, uint64_t avail, struct fabric_event *event)
{
    struct shm_in *in = &conn->in;
    const uint64_t at = in->cursor & (SHM_RING_BYTES - 1);
    const uint8_t *place = in->data + at;
    const uint64_t header = *(const volatile uint64_t *)(const void *)place;
    const uint32_t bytes = (uint32_t)header;
    const uint64_t record = RECORD_HEADER + (((uint64_t)bytes + 7) & ~UINT64_C(7));

    if (in->fifo_tail - in->fifo_head == SHM_FIFO)
        return LOOK_NOTHING;
    if (record > avail || record > SHM_RING_BYTES - at)
        return LOOK_NONSENSE;
    if (header >> 32 != RECORD_WHOLE)
        return take_other(conn, header >> 32, place, bytes, event);
    if (in->buffer || bytes > in->most_bytes)
        return LOOK_NONSENSE;
    event->data = place + RECORD_HEADER;
    event->bytes = bytes;
    event->message = in->fifo_tail << NAME_SHIFT | 1;
    take_record(in, bytes, 0);
    return LOOK_MESSAGE;
}

unsigned in_poll(struct shm_conn *conn, struct fabric_event *events, unsigned max)
{
    struct shm_in *in = &conn->in;
    const uint64_t tail = atomic_load_explicit(&in->ring->tail, memory_order_acquire);
    enum look look = LOOK_PART;
    unsigned count = 0;

    if (tail - in->published > SHM_RING_BYTES ||
        tail - in->published < in->cursor - in->published || tail % 8 != 0)
        look = LOOK_NONSENSE;
    if (conn->base.base.guest && max > 1) /* in turn with all others */
        max = 1;
    while (count < max && in->cursor != tail && (look == LOOK_PART || look == LOOK_MESSAGE)) {
        events->kind = FABRIC_MESSAGE;
        events->conn = &conn->base.base;
        look = take_next(conn, tail - in->cursor, events);
        events += look == LOOK_MESSAGE;
        count += look == LOOK_MESSAGE;
    }
    move_head(conn);
    if (look == LOOK_NONSENSE) {
        conn_break(&conn->base, ROWAN_EFORMAT, false);
        conn->base.drain = false; /* if it was breaking already */
    }
    return count;
}

bool in_is_empty(const struct shm_conn *conn)
{
    return atomic_load_explicit(&conn->in.ring->tail, memory_order_acquire) == conn->in.cursor;
}

static __attribute__((noinline)) void release_buffer(struct shm_conn *conn, uint64_t message)
{
    const uint64_t index = message - BUFFER_MESSAGE;

    ASSERT(index < SHM_BUFFERS && conn->endpoint->buffers[index].owner == conn &&
           conn->endpoint->buffers[index].delivered);
    conn->endpoint->buffers[index].owner = NULL;
}

/* What is rare lies in functions of its own, so that the rest saves no registers. */
void shm_message_release(struct fabric_conn *base, uint64_t message)
{
    struct shm_conn *conn = (struct shm_conn *)base;
    struct shm_in *in = &conn->in;

    if (conn->base.state == CONN_DEAD)
        return;
    if (message & BUFFER_MESSAGE) {
        release_buffer(conn, message);
        return;
    }
    message >>= NAME_SHIFT;
    uint32_t *record = &in->fifo[message % SHM_FIFO];
    const uint64_t first = in->fifo_head;

    ASSERT(message - first < in->fifo_tail - first && !(*record & RECORD_RELEASED));
    if (message != first) {
        *record |= RECORD_RELEASED;
        return;
    }
    in->head += *record;
    in->fifo_head = first + 1;
    if (first + 1 != in->fifo_tail && in->fifo[(first + 1) % SHM_FIFO] & RECORD_RELEASED)
        move_head(conn);
    else
        conn_list_add(&conn->base, LIST_DIRTY);
}
