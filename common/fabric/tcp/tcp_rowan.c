/* tcp_rowan.c - Rowan sends at the sender. What is posted between two flushes goes out as one frame
 * (or a few), gathered straight from registered memory; the peer answers with the count of blocks that
 * have landed.
 *
 * 1. landed <= framed <= posted <= added <= landed + TCP_BLOCKS, in blocks since the beginning.
 * 2. A frame that was sent in part is finished before the next begins.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

enum { ACK_READ_BYTES = 1024 };

struct block {
    const uint8_t *data;
    uint32_t bytes;
};

struct mark { /* the end of a batch */
    uint64_t end;
    uint64_t context;
};

struct tcp_sender {
    uint64_t added, posted, framed, landed; /* blocks */
    uint64_t mark_head, mark_tail;

    /* The frame on its way: the last `frame_blocks` before `framed`. */
    uint32_t frame_blocks;
    uint32_t head_bytes;
    uint64_t frame_bytes, frame_sent; /* equal: none */

    uint32_t ack_got; /* of a count that a read has cut */
    uint8_t ack[8];

    uint8_t head[TCP_FRAME_HEAD_BYTES];
    struct block blocks[TCP_BLOCKS];
    struct mark marks[TCP_MARKS];
};

int sender_create(struct tcp_conn *conn)
{
    conn->sender = calloc(1, sizeof *conn->sender);
    return conn->sender ? 0 : ROWAN_ENOMEM;
}

void sender_destroy(struct tcp_sender *sender)
{
    free(sender);
}

/* --- add and post --- */

static uint32_t room(const struct tcp_sender *sender)
{
    if (sender->mark_tail - sender->mark_head == TCP_MARKS)
        return 0;
    return TCP_BLOCKS - (uint32_t)(sender->added - sender->landed);
}

uint32_t tcp_rowan_room(const struct fabric_conn *base)
{
    const struct tcp_conn *conn = (const struct tcp_conn *)base;

    return conn->state == CONN_OPEN && conn->sender ? room(conn->sender) : 0;
}

int tcp_rowan_add(struct fabric_conn *base, const void *block, uint32_t bytes)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    struct tcp_sender *sender = conn->sender;

    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (!sender || bytes == 0 || bytes % FABRIC_STRIDE != 0 || bytes > TCP_BLOCK_BYTES ||
        !regions_hold(&conn->endpoint->fabric->regions, block, bytes))
        return ROWAN_EINVALID;
    if (room(sender) == 0)
        return ROWAN_EAGAIN;
    sender->blocks[sender->added++ % TCP_BLOCKS] = (struct block){.data = block, .bytes = bytes};
    return 0;
}

int tcp_rowan_post(struct fabric_conn *base, uint64_t context)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    struct tcp_sender *sender = conn->sender;

    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (!sender || sender->posted == sender->added)
        return 0;
    sender->posted = sender->added;
    sender->marks[sender->mark_tail++ % TCP_MARKS] =
        (struct mark){.end = sender->posted, .context = context};
    list_add(conn, LIST_DIRTY);
    return 0;
}

/* --- frames --- */

static void begin_frame(struct tcp_sender *sender)
{
    const uint64_t waiting = sender->posted - sender->framed;
    const uint32_t blocks = waiting < TCP_FRAME_BLOCKS ? (uint32_t)waiting : TCP_FRAME_BLOCKS;
    const struct tcp_frame_head head = {.magic = TCP_FRAME_MAGIC, .blocks = (uint16_t)blocks};

    sender->frame_blocks = blocks;
    sender->head_bytes = frame_head_bytes(blocks);
    sender->frame_bytes = sender->head_bytes;
    sender->frame_sent = 0;
    memset(sender->head + sender->head_bytes - 8, 0, 8);
    memcpy(sender->head, &head, sizeof head);
    for (uint32_t i = 0; i < blocks; i++) {
        const uint32_t bytes = sender->blocks[(sender->framed + i) % TCP_BLOCKS].bytes;
        const uint16_t strides = (uint16_t)(bytes / FABRIC_STRIDE);

        memcpy(sender->head + sizeof head + i * sizeof strides, &strides, sizeof strides);
        sender->frame_bytes += bytes;
    }
    sender->framed += blocks;
}

/* Adds what of [data, data + bytes) is not among the first *skip bytes. */
static void add_piece(struct iovec *pieces, unsigned *count, uint64_t *skip, const uint8_t *data,
                      uint32_t bytes)
{
    struct iovec *last = *count > 0 ? &pieces[*count - 1] : NULL;

    if (*skip >= bytes) {
        *skip -= bytes;
        return;
    }
    data += *skip;
    bytes -= (uint32_t)*skip;
    *skip = 0;
    if (last && (const uint8_t *)last->iov_base + last->iov_len == data)
        last->iov_len += bytes;
    else
        pieces[(*count)++] = (struct iovec){(void *)(uintptr_t)data, bytes};
}

/* What is left of the frame, as pieces: entries of one log lie behind each other, so they are few. */
static unsigned gather_frame(const struct tcp_sender *sender, struct iovec *pieces)
{
    const uint64_t first = sender->framed - sender->frame_blocks;
    uint64_t skip = sender->frame_sent;
    unsigned count = 0;

    add_piece(pieces, &count, &skip, sender->head, sender->head_bytes);
    for (uint32_t i = 0; i < sender->frame_blocks; i++) {
        const struct block *block = &sender->blocks[(first + i) % TCP_BLOCKS];

        add_piece(pieces, &count, &skip, block->data, block->bytes);
    }
    return count;
}

void sender_push(struct tcp_conn *conn)
{
    struct tcp_sender *sender = conn->sender;

    while (conn->blocks.writable) {
        struct iovec pieces[TCP_FRAME_BLOCKS + 1];
        uint64_t asked;
        ssize_t sent;

        if (sender->frame_sent == sender->frame_bytes) { /* 2 */
            if (sender->framed == sender->posted)
                return;
            begin_frame(sender);
        }
        asked = sender->frame_bytes - sender->frame_sent;
        sent = tcp_write(conn->blocks.fd, pieces, gather_frame(sender, pieces));
        if (sent > 0)
            sender->frame_sent += (uint64_t)sent;
        if (sent < 0 || (uint64_t)sent < asked)
            conn->blocks.writable = false;
        if (sent == ROWAN_ECLOSED) { /* what had arrived is read before CLOSED */
            conn->blocks.readable = true;
            list_add(conn, LIST_ACTIVE);
        }
    }
}

/* --- acknowledgements --- */

/* False: nonsense. */
static bool take_acks(struct tcp_sender *sender, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        size_t part = sizeof sender->ack - sender->ack_got;
        uint64_t landed;

        part = bytes < part ? bytes : part;
        memcpy(sender->ack + sender->ack_got, data, part);
        sender->ack_got += (uint32_t)part;
        data += part;
        bytes -= part;
        if (sender->ack_got < sizeof sender->ack)
            break;
        sender->ack_got = 0;
        memcpy(&landed, sender->ack, sizeof landed);
        if (landed <= sender->landed || landed > sender->framed) /* 1 */
            return false;
        sender->landed = landed;
    }
    return true;
}

static void read_acks(struct tcp_conn *conn)
{
    uint8_t data[ACK_READ_BYTES];
    const struct iovec piece = {data, sizeof data};
    const ssize_t got = tcp_read(conn->blocks.fd, &piece, 1);

    socket_was_read(&conn->blocks, got, sizeof data);
    if (got > 0 && !take_acks(conn->sender, data, (size_t)got))
        tcp_conn_break(conn, ROWAN_EFORMAT, false);
    else if (got == ROWAN_ECLOSED)
        tcp_conn_break(conn, ROWAN_ECLOSED, true);
}

static bool has_landed(const struct tcp_sender *sender)
{
    return sender->mark_head < sender->mark_tail &&
           sender->marks[sender->mark_head % TCP_MARKS].end <= sender->landed;
}

bool sender_has_events(const struct tcp_conn *conn)
{
    return conn->sender &&
           (has_landed(conn->sender) || (conn->state == CONN_OPEN && conn->blocks.readable));
}

unsigned sender_poll(struct tcp_conn *conn, struct fabric_event *events, unsigned max)
{
    struct tcp_sender *sender = conn->sender;
    unsigned count = 0;

    if (conn->state == CONN_OPEN && conn->blocks.readable)
        read_acks(conn);
    while (count < max && has_landed(sender)) {
        events[count++] =
            (struct fabric_event){.kind = FABRIC_LANDED,
                                  .conn = &conn->base,
                                  .context = sender->marks[sender->mark_head % TCP_MARKS].context,
                                  .peer = conn->peer};
        sender->mark_head++;
    }
    return count;
}
