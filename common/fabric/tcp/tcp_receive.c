/* tcp_receive.c - messages in. One read takes what the socket has, many messages, into the chunk of
 * the endpoint; whole ones are delivered where they lie. A message that the end of a read has cut
 * moves to a slab of its own, which the next read fills; a cut head moves to the connection.
 *
 * 1. What is unread in a chunk begins with a head, at a multiple of 8; so every message does. A cut
 *    head is put in front of the next read's bytes, and a slab's message is filled by the first part
 *    of a gathered read, so that what follows begins with a head again.
 * 2. A delivered message is linked to its connection through its head, whose bytes nobody needs any
 *    more. A slab has one reference for each, and one for what is unread in it.
 * 3. While the owner holds TCP_HELD_BYTES of a connection, with heads and padding, nothing more is taken or read: the
 *    peer's window closes (F5).
 * 4. Who finds no memory waits on LIST_NO_MEMORY with what it has read; each slab that becomes free wakes
 *    all who wait, and so does each check of deadlines. Only whose end was not announced waits: an end takes no
 *    memory, or those whose memory others wait for could never give it back.
 * 5. How long a message that was cut may take: conn.h, 5. The time in which we find no memory to read into does not
 *    count.
 */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/tcp/tcp.h"

/* In the place of a head, while the owner has the message. */
struct held {
    struct held *next;
    struct held **link; /* what points to this one */
};

static_assert(sizeof(struct held) == sizeof(struct tcp_message_head), "it takes a head's place");
static_assert(_Alignof(struct held) == 8, "a head lies at a multiple of 8");
/* What the owner knows a message by: in eighths, its bytes with head and padding, and the address of its head. */
enum { PLACE_BITS = 44 };

static_assert(TCP_LARGE_BYTES / 8 < 1 << (64 - PLACE_BITS), "it has the other bits");

/* --- deliver and release --- */

static bool holds_too_much(const struct tcp_in *in)
{
    return in->held_bytes >= TCP_HELD_BYTES;
}

/* The caller takes the reference for the message, and sets `stopped` behind the last one that it delivers. */
static inline void deliver(struct tcp_conn *conn, uint8_t *data, uint32_t bytes,
                           struct fabric_event *event)
{
    struct tcp_in *in = &conn->in;
    struct held *held = (struct held *)(void *)data;
    const uint32_t wire_bytes = message_wire_bytes(bytes);

    held->link = &in->held;
    held->next = in->held;
    if (in->held)
        in->held->link = &held->next;
    in->held = held;
    in->held_bytes += wire_bytes;
    in->number++;
    event->kind = FABRIC_MESSAGE;
    event->conn = &conn->base.base;
    event->bytes = bytes;
    event->data = held + 1;
    event->message = (uint64_t)(wire_bytes / 8) << PLACE_BITS | (uintptr_t)held / 8;
}

/* The slab has lost a reference of a connection that goes on with what it holds now. */
static __attribute__((noinline)) void released(struct tcp_conn *conn, struct tcp_slab *slab)
{
    struct tcp_in *in = &conn->in;

    if (slab->refs == 0)
        slab_unused(conn->endpoint, slab);
    if (in->stopped && !holds_too_much(in)) {
        in->stopped = false;
        conn_list_add(&conn->base, LIST_ACTIVE);
    }
}

/* What is rare lies in a function of its own, so that the rest saves no registers. */
void tcp_message_release(struct fabric_conn *base, uint64_t message)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    struct tcp_in *in = &conn->in;

    if (conn->base.state == CONN_DEAD) /* all are released together */
        return;
    const struct held *held =
        (const struct held *)(uintptr_t)(message % (UINT64_C(1) << PLACE_BITS) * 8);
    const uint64_t wire_bytes = (message >> PLACE_BITS) * 8;
    struct tcp_slab *slab = slab_of(held);

    *held->link = held->next;
    if (held->next)
        held->next->link = held->link;
    ASSERT(in->held_bytes >= wire_bytes && slab->refs > 0);
    in->held_bytes -= wire_bytes;
    if (--slab->refs == 0 || in->stopped)
        released(conn, slab);
}

/* --- what was read --- */

/* The rest of what is unread goes, and its space with it. */
static void drop_unread(struct tcp_conn *conn)
{
    struct tcp_in *in = &conn->in;
    struct tcp_slab *chunk = in->chunk;

    if (!chunk)
        return;
    in->chunk = NULL;
    if (chunk->used == pad_to_8(in->end))
        chunk->used = in->at;
    slab_unref(conn->endpoint, chunk);
}

static bool is_whole(const struct tcp_conn *conn)
{
    return conn->in.buffer && conn->base.partial.got == conn->base.partial.need;
}

static void take_buffer(struct tcp_conn *conn, struct fabric_event *event)
{
    struct tcp_in *in = &conn->in;
    struct tcp_slab *slab = in->buffer;
    struct tcp_message_head head;

    memcpy(&head, slab->data, sizeof head);
    in->buffer = NULL;
    deliver(conn, slab->data, head.bytes, event);
    in->stopped = holds_too_much(in);
}

/* 1: moves the cut message to a slab. False: no memory. */
static bool keep_cut(struct tcp_conn *conn, uint32_t bytes)
{
    struct tcp_in *in = &conn->in;
    const uint32_t left = in->end - in->at;

    in->buffer = slab_take(conn->endpoint, bytes <= TCP_MIDDLE_BYTES ? SLAB_MIDDLE : SLAB_LARGE);
    if (!in->buffer)
        return false;
    memcpy(in->buffer->data, in->chunk->data + in->at, left);
    conn->base.partial = (struct partial){.got = left, .need = bytes};
    partial_begin(&conn->base);
    drop_unread(conn);
    return true;
}

void tcp_tell_garbage(const struct tcp_conn *conn)
{
    log_event(LOG_WARN, "connection_garbage", "endpoint=%u peer=%u message=%llu",
              conn->endpoint->base.index, conn->base.peer.id, (unsigned long long)conn->in.number);
}

/* 4. What had come before the end, and was not read, is lost with it (F3). */
static void wait_for_memory(struct tcp_conn *conn)
{
    if (conn->messages.ended)
        conn_break(&conn->base, ROWAN_ECLOSED, true);
    else
        conn_list_add(&conn->base, LIST_NO_MEMORY);
}

/* What is not whole: keeps it, or ends the connection. */
static void take_rest(struct tcp_conn *conn, enum unread what, uint32_t bytes)
{
    struct tcp_in *in = &conn->in;

    if (what == UNREAD_CUT_HEAD) {
        in->head_got = in->end - in->at;
        memcpy(in->head, in->chunk->data + in->at, in->head_got);
        drop_unread(conn);
    } else if (what == UNREAD_GARBAGE) {
        tcp_tell_garbage(conn);
        drop_unread(conn);
        conn_break(&conn->base, ROWAN_EFORMAT, false);
    } else if (conn->base.state != CONN_OPEN) { /* its rest will never come */
        drop_unread(conn);
    } else if (!keep_cut(conn, message_wire_bytes(bytes))) {
        wait_for_memory(conn);
    }
}

/* What is unread in the chunk. Not inline: its loop needs all registers. */
static __attribute__((noinline)) unsigned take_unread(struct tcp_conn *conn,
                                                      struct fabric_event *events, unsigned max)
{
    struct tcp_in *in = &conn->in;
    struct tcp_slab *chunk = in->chunk;
    enum unread what = UNREAD_WHOLE;
    unsigned count = 0;
    uint32_t bytes = 0;

    for (; count < max && !holds_too_much(in) && in->at != in->end; count++) {
        what = look_at_unread(chunk->data + in->at, in->end - in->at, in->number, &bytes);
        if (what != UNREAD_WHOLE)
            break;
        deliver(conn, chunk->data + in->at, bytes, &events[count]);
        in->at += message_wire_bytes(bytes);
    }
    chunk->refs += count;
    in->stopped = holds_too_much(in);
    if (in->at == in->end)
        drop_unread(conn);
    else if (what != UNREAD_WHOLE)
        take_rest(conn, what, bytes);
    return count;
}

static unsigned take_messages(struct tcp_conn *conn, struct fabric_event *events, unsigned max)
{
    struct tcp_in *in = &conn->in;
    unsigned count = 0;

    if (max == 0 || in->stopped || conn_is_listed(&conn->base, LIST_NO_MEMORY))
        return 0;
    if (is_whole(conn))
        take_buffer(conn, &events[count++]);
    if (in->chunk)
        count += take_unread(conn, events + count, max - count);
    return count;
}

/* --- read --- */

static void account_read(struct tcp_conn *conn, struct tcp_slab *chunk, uint32_t got)
{
    struct tcp_in *in = &conn->in;

    if (in->buffer) {
        const uint32_t rest = conn->base.partial.need - conn->base.partial.got;
        const uint32_t part = got < rest ? got : rest;

        partial_grow(&conn->base, part);
        got -= part;
    }
    if (got == 0)
        return;
    in->chunk = chunk;
    in->at = chunk->used;
    in->end = in->at + in->head_got + got;
    in->head_got = 0;
    chunk->used = pad_to_8(in->end);
    chunk->refs++;
}

bool tcp_in_take_over(struct tcp_conn *conn, const void *data, uint32_t bytes)
{
    struct tcp_slab *chunk = slab_chunk(conn->endpoint);

    if (!chunk)
        return false;
    memcpy(chunk->data + chunk->used, data, bytes);
    account_read(conn, chunk, bytes);
    return true;
}

static void read_more(struct tcp_conn *conn)
{
    struct tcp_in *in = &conn->in;
    const struct partial *partial = &conn->base.partial;
    struct tcp_slab *chunk = slab_chunk(conn->endpoint);
    struct iovec iov[2];
    unsigned count = 0;
    size_t asked = 0;
    uint32_t room;
    ssize_t got;

    if (!chunk) {
        wait_for_memory(conn);
        conn_list_remove(&conn->base, LIST_BEGUN); /* 5 */
        return;
    }
    ASSERT(!in->chunk && (in->head_got == 0 || !in->buffer));
    if (in->buffer && !conn_is_listed(&conn->base, LIST_BEGUN))
        partial_begin(&conn->base);
    if (in->buffer)
        iov[count++] =
            (struct iovec){in->buffer->data + partial->got, partial->need - partial->got};
    room = TCP_CHUNK_BYTES - chunk->used;
    if (room > TCP_READ_BYTES)
        room = TCP_READ_BYTES;
    memcpy(chunk->data + chunk->used, in->head, in->head_got);
    iov[count++] = (struct iovec){chunk->data + chunk->used + in->head_got, room - in->head_got};
    for (unsigned i = 0; i < count; i++)
        asked += iov[i].iov_len;
    got = tcp_read(conn->messages.fd, iov, count);
    socket_was_read(&conn->messages, got, asked);
    if (got > 0)
        account_read(conn, chunk, (uint32_t)got);
    else if (got != ROWAN_EAGAIN)
        conn_break(&conn->base, ROWAN_ECLOSED, true);
}

unsigned tcp_in_poll(struct tcp_conn *conn, struct fabric_event *events, unsigned max)
{
    struct tcp_in *in = &conn->in;
    unsigned count = take_messages(conn, events, max);

    if (conn->base.state == CONN_OPEN && count < max && conn->messages.readable && !in->chunk &&
        !in->stopped && !conn_is_listed(&conn->base, LIST_NO_MEMORY)) {
        read_more(conn);
        count += take_messages(conn, events + count, max - count);
    }
    return count;
}

bool tcp_in_has_work(const struct tcp_conn *conn)
{
    const struct tcp_in *in = &conn->in;

    if (in->chunk || is_whole(conn))
        return true;
    return conn->base.state == CONN_OPEN && conn->messages.readable;
}

/* Messages follow each other in chunk after chunk, so each slab is met once; a chunk around a message that has a slab of its own,
 * twice. */
uint32_t tcp_in_pinned(const struct tcp_conn *conn, uint32_t kinds)
{
    const struct tcp_in *in = &conn->in;
    const struct tcp_slab *last = in->chunk;
    uint32_t count = last && kinds >> SLAB_CHUNK & 1;

    for (const struct held *held = in->held; held; held = held->next) {
        const struct tcp_slab *slab = slab_of(held);

        count += slab != last && kinds >> slab->kind & 1;
        last = slab;
    }
    return count + (in->buffer && kinds >> in->buffer->kind & 1);
}

void tcp_in_fini(struct tcp_conn *conn)
{
    struct tcp_in *in = &conn->in;

    drop_unread(conn);
    if (in->buffer)
        slab_unref(conn->endpoint, in->buffer);
    in->buffer = NULL;
    while (in->held) {
        struct tcp_slab *slab = slab_of(in->held);

        in->held = in->held->next; /* before its slab is free */
        slab_unref(conn->endpoint, slab);
    }
}
