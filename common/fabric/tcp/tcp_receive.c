/* tcp_receive.c - messages in. One read takes what the socket has, many messages, into the chunk of
 * the endpoint; whole ones are delivered where they lie. A message that the end of a read has cut
 * moves to a slab of its own, which the next read fills; a cut head moves to the connection.
 *
 * 1. What is unread in a chunk begins with a head, at a multiple of 8; so every message does. A cut
 *    head is put in front of the next read's bytes, and a slab's message is filled by the first part
 *    of a gathered read, so that what follows begins with a head again.
 * 2. A delivered message is linked to its connection through its head, whose bytes nobody needs any
 *    more. A slab has one reference for each, and one for what is unread in it.
 * 3. While the owner holds TCP_HELD messages or TCP_HELD_BYTES of a connection, nothing more is taken
 *    or read: the peer's window closes (F5).
 * 4. Who finds no memory waits on LIST_NO_MEMORY with what it has read; each slab that becomes free wakes
 *    all who wait. A peer that makes no progress for TCP_STALL_NS with half a message is closed then.
 * 5. A message that was cut is whole TCP_MESSAGE_NS later, whatever progress it makes, or its connection is closed:
 *    a peer that drips would keep its memory for ever. No time counts while the peer cannot send because we find
 *    no memory to read into; it begins anew when there is some.
 */
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/tcp/tcp.h"

/* In the place of a head, while the owner has the message. */
struct held {
    struct held *next, *prev;
};

static_assert(sizeof(struct held) == sizeof(struct tcp_message_head), "it takes a head's place");
static_assert(_Alignof(struct held) == 8, "a head lies at a multiple of 8");
static_assert(TCP_CHUNK_BYTES / 8 == 1 << 15 && TCP_SLABS < 1 << 16, "a place has 31 bits");

/* What the owner knows a message by: its bytes, and its place, which is a slab and an eighth of the offset there. */
static uint64_t message_pack(const struct tcp_slab *slab, uint32_t at, uint32_t bytes)
{
    return (uint64_t)bytes << 32 | (slab->id << 15 | at / 8);
}

static struct tcp_slab *message_slab(const struct tcp_endpoint *endpoint, uint64_t message)
{
    const uint32_t id = (uint32_t)message >> 15;

    ASSERT(id < TCP_SLABS && endpoint->slabs.by_id[id]);
    return endpoint->slabs.by_id[id];
}

/* --- deliver and release --- */

static bool holds_too_much(const struct tcp_in *in)
{
    return in->held_count >= TCP_HELD || in->held_bytes >= TCP_HELD_BYTES;
}

/* The reference for the message is the caller's gift. */
static void deliver(struct tcp_conn *conn, struct tcp_slab *slab, uint32_t at, uint32_t bytes,
                    struct fabric_event *event)
{
    struct tcp_in *in = &conn->in;
    struct held *held = (struct held *)(void *)(slab->data + at);

    held->prev = NULL;
    held->next = in->held;
    if (in->held)
        in->held->prev = held;
    in->held = held;
    in->held_count++;
    in->held_bytes += bytes;
    in->stopped = holds_too_much(in);
    in->number++;
    event->kind = FABRIC_MESSAGE;
    event->conn = &conn->base.base;
    event->bytes = bytes;
    event->data = held + 1;
    event->message = message_pack(slab, at, bytes);
}

void tcp_message_release(struct fabric_conn *base, uint64_t message)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    struct tcp_endpoint *endpoint = conn->endpoint;
    struct tcp_in *in = &conn->in;

    if (conn->base.state == CONN_DEAD) /* all are released together */
        return;
    struct tcp_slab *slab = message_slab(endpoint, message);
    const struct held *held =
        (const struct held *)(const void *)(slab->data + (size_t)(message & 0x7fff) * 8);

    if (held->prev)
        held->prev->next = held->next;
    else
        in->held = held->next;
    if (held->next)
        held->next->prev = held->prev;
    ASSERT(in->held_count > 0 && in->held_bytes >= message >> 32);
    in->held_count--;
    in->held_bytes -= message >> 32;
    slab_unref(endpoint, slab);
    if (in->stopped && !holds_too_much(in)) {
        in->stopped = false;
        conn_list_add(&conn->base, LIST_ACTIVE);
    }
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

static bool is_whole(const struct tcp_in *in)
{
    return in->buffer && in->got == in->need;
}

static void take_buffer(struct tcp_conn *conn, struct fabric_event *event)
{
    struct tcp_in *in = &conn->in;
    struct tcp_slab *slab = in->buffer;
    struct tcp_message_head head;

    memcpy(&head, slab->data, sizeof head);
    in->buffer = NULL;
    conn_list_remove(&conn->base, LIST_PARTIAL);
    deliver(conn, slab, 0, head.bytes, event);
}

/* 5: from now on the peer may send the rest. */
static void begin(struct tcp_conn *conn)
{
    conn->in.progress_ns = conn->in.begun_ns = conn->endpoint->base.now_ns;
    conn_list_add(&conn->base, LIST_PARTIAL);
    conn_list_add(&conn->base, LIST_BEGUN);
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
    in->got = left;
    in->need = bytes;
    begin(conn);
    drop_unread(conn);
    return true;
}

/* The next message of what is unread: 1, or 0: none is whole. */
static unsigned take_unread(struct tcp_conn *conn, struct fabric_event *event)
{
    struct tcp_in *in = &conn->in;
    const uint32_t left = in->end - in->at;
    struct tcp_message_head head;
    uint32_t bytes;

    if (left < sizeof head) {
        memcpy(in->head, in->chunk->data + in->at, left);
        in->head_got = left;
        drop_unread(conn);
        return 0;
    }
    memcpy(&head, in->chunk->data + in->at, sizeof head);
    if (head.magic != TCP_MESSAGE_MAGIC || head.bytes > FABRIC_MAX_MESSAGE_BYTES ||
        head.number != in->number) {
        log_event(LOG_WARN, "connection_garbage", "endpoint=%u peer=%u message=%llu",
                  conn->endpoint->base.index, conn->base.peer.id, (unsigned long long)in->number);
        drop_unread(conn);
        conn_break(&conn->base, ROWAN_EFORMAT, false);
        return 0;
    }
    bytes = message_wire_bytes(head.bytes);
    if (bytes <= left) {
        in->chunk->refs++;
        deliver(conn, in->chunk, in->at, head.bytes, event);
        in->at += bytes;
        if (in->at == in->end)
            drop_unread(conn);
        return 1;
    }
    if (conn->base.state != CONN_OPEN) /* its rest will never come */
        drop_unread(conn);
    else if (!keep_cut(conn, bytes))
        conn_list_add(&conn->base, LIST_NO_MEMORY); /* 4 */
    return 0;
}

static unsigned take_messages(struct tcp_conn *conn, struct fabric_event *events, unsigned max)
{
    struct tcp_in *in = &conn->in;
    unsigned count = 0;

    while (count < max && !in->stopped && !conn_is_listed(&conn->base, LIST_NO_MEMORY)) {
        if (is_whole(in))
            take_buffer(conn, &events[count++]);
        else if (in->chunk && take_unread(conn, &events[count]))
            count++;
        else if (!in->chunk)
            break;
    }
    return count;
}

/* --- read --- */

static void account_read(struct tcp_conn *conn, struct tcp_slab *chunk, uint32_t got)
{
    struct tcp_in *in = &conn->in;

    if (in->buffer) {
        const uint32_t rest = in->need - in->got;
        const uint32_t part = got < rest ? got : rest;

        in->got += part;
        in->progress_ns = conn->endpoint->base.now_ns;
        conn_list_remove(&conn->base, LIST_PARTIAL);
        conn_list_add(&conn->base, LIST_PARTIAL);
        if (is_whole(in))
            conn_list_remove(&conn->base, LIST_BEGUN);
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

static void read_more(struct tcp_conn *conn)
{
    struct tcp_in *in = &conn->in;
    struct tcp_slab *chunk = slab_chunk(conn->endpoint);
    struct iovec iov[2];
    unsigned count = 0;
    size_t asked = 0;
    uint32_t room;
    ssize_t got;

    if (!chunk) {
        conn_list_add(&conn->base, LIST_NO_MEMORY);
        conn_list_remove(&conn->base, LIST_PARTIAL); /* 5: it is not the peer who waits */
        conn_list_remove(&conn->base, LIST_BEGUN);
        return;
    }
    ASSERT(!in->chunk && (in->head_got == 0 || !in->buffer));
    if (in->buffer && !conn_is_listed(&conn->base, LIST_BEGUN))
        begin(conn);
    if (in->buffer)
        iov[count++] = (struct iovec){in->buffer->data + in->got, in->need - in->got};
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

    if (in->chunk || is_whole(in))
        return true;
    return conn->base.state == CONN_OPEN && conn->messages.readable;
}

static void close_for(struct tcp_conn *conn, const char *event)
{
    log_event(LOG_WARN, event, "endpoint=%u peer=%u bytes=%u of=%u", conn->endpoint->base.index,
              conn->base.peer.id, conn->in.got, conn->in.need);
    conn_list_remove(&conn->base, LIST_PARTIAL);
    conn_list_remove(&conn->base, LIST_BEGUN);
    conn_break(&conn->base, ROWAN_ECLOSED, false);
}

void tcp_in_check(struct tcp_endpoint *endpoint)
{
    struct tcp_conn *conn = (struct tcp_conn *)endpoint->base.lists[LIST_PARTIAL].first;

    if (endpoint->base.lists[LIST_NO_MEMORY].first && conn &&
        endpoint->base.now_ns - conn->in.progress_ns >= TCP_STALL_NS) /* 4 */
        close_for(conn, "connection_stalled");
    while ((conn = (struct tcp_conn *)endpoint->base.lists[LIST_BEGUN].first) &&
           endpoint->base.now_ns - conn->in.begun_ns >= TCP_MESSAGE_NS) /* 5 */
        close_for(conn, "message_overdue");
}

void tcp_in_fini(struct tcp_conn *conn)
{
    struct tcp_in *in = &conn->in;

    drop_unread(conn);
    if (in->buffer)
        slab_unref(conn->endpoint, in->buffer);
    in->buffer = NULL;
    while (in->held) {
        struct tcp_slab *slab = slab_of(conn->endpoint, in->held);

        in->held = in->held->next; /* before its slab is free */
        slab_unref(conn->endpoint, slab);
    }
}
