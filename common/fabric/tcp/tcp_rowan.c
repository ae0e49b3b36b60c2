/* tcp_rowan.c - Rowan sends at the sender. What is posted between two flushes goes out as one frame
 * (or a few), gathered straight from registered memory; the peer answers with the count of blocks that
 * have landed.
 *
 * 1. landed <= framed <= posted (window.h), in blocks since the beginning.
 * 2. A frame that was sent in part is finished before the next begins.
 */
#include <string.h>

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"

enum { COUNTS_READ_BYTES = 1024 };

static struct tcp_sender *sender_of(const struct tcp_conn *conn)
{
    return (struct tcp_sender *)conn->base.window;
}

/* --- frames --- */

static void begin_frame(struct tcp_sender *sender)
{
    const struct window_ring ring = sender->window.ring;
    const uint64_t waiting = sender->window.posted - sender->framed;
    const uint32_t blocks = waiting < TCP_FRAME_BLOCKS ? (uint32_t)waiting : TCP_FRAME_BLOCKS;
    const struct tcp_frame_head head = {.magic = TCP_FRAME_MAGIC, .blocks = (uint16_t)blocks};

    sender->frame_blocks = blocks;
    sender->head_bytes = frame_head_bytes(blocks);
    sender->frame_bytes = sender->head_bytes;
    sender->frame_sent = 0;
    memset(sender->head + sender->head_bytes - 8, 0, 8);
    memcpy(sender->head, &head, sizeof head);
    for (uint32_t i = 0; i < blocks; i++) {
        const uint32_t bytes = window_block(&ring, sender->framed + i)->bytes;
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
    const struct window_ring ring = sender->window.ring;
    const uint64_t first = sender->framed - sender->frame_blocks;
    uint64_t skip = sender->frame_sent;
    unsigned count = 0;

    add_piece(pieces, &count, &skip, sender->head, sender->head_bytes);
    for (uint32_t i = 0; i < sender->frame_blocks; i++) {
        const struct window_block *block = window_block(&ring, first + i);

        add_piece(pieces, &count, &skip, block->data, block->bytes);
    }
    return count;
}

/* Sends what is left of the frame, as far as the socket takes it. */
static void send_frame(struct tcp_conn *conn)
{
    struct tcp_sender *sender = sender_of(conn);
    struct iovec pieces[TCP_FRAME_BLOCKS + 1];
    const uint64_t asked = sender->frame_bytes - sender->frame_sent;
    const ssize_t sent = tcp_write(conn->blocks.fd, pieces, gather_frame(sender, pieces));

    if (sent < 0 || (uint64_t)sent < asked)
        conn->blocks.writable = false;
    if (sent == ROWAN_ECLOSED) { /* what had arrived is read before CLOSED */
        conn->blocks.readable = true;
        conn_list_add(&conn->base, LIST_ACTIVE);
    }
    sender->frame_sent += sent > 0 ? (uint64_t)sent : 0;
}

void sender_push(struct tcp_conn *conn)
{
    struct tcp_sender *sender = sender_of(conn);

    while (conn->blocks.writable) {
        if (sender->frame_sent == sender->frame_bytes) { /* 2 */
            if (sender->framed == sender->window.posted)
                return;
            begin_frame(sender);
        }
        send_frame(conn);
    }
}

/* --- what has landed --- */

/* False: nonsense. Counts rise, to `framed` at most. */
static bool take_counts(struct tcp_sender *sender, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        size_t part = sizeof sender->count - sender->count_got;
        uint64_t next;

        part = bytes < part ? bytes : part;
        memcpy(sender->count + sender->count_got, data, part);
        sender->count_got += (uint32_t)part;
        data += part;
        bytes -= part;
        if (sender->count_got < sizeof sender->count)
            break;
        sender->count_got = 0;
        memcpy(&next, sender->count, sizeof next);
        if (next <= sender->window.landed || next > sender->framed)
            return false;
        sender->window.landed = next;
    }
    return true;
}

static void read_counts(struct tcp_conn *conn)
{
    uint8_t data[COUNTS_READ_BYTES];
    const struct iovec piece = {data, sizeof data};
    const ssize_t got = tcp_read(conn->blocks.fd, &piece, 1);

    socket_was_read(&conn->blocks, got, sizeof data);
    if (got > 0 && !take_counts(sender_of(conn), data, (size_t)got))
        conn_break(&conn->base, ROWAN_EFORMAT, false);
    else if (got == ROWAN_ECLOSED)
        conn_break(&conn->base, ROWAN_ECLOSED, true);
}

bool sender_has_events(const struct tcp_conn *conn)
{
    return conn->base.window && (window_has_landed(conn->base.window) ||
                                 (conn->base.state == CONN_OPEN && conn->blocks.readable));
}

unsigned sender_poll(struct tcp_conn *conn, struct fabric_event *events, unsigned max)
{
    if (conn->base.state == CONN_OPEN && conn->blocks.readable) /* 1 */
        read_counts(conn);
    return window_events(&conn->base, events, max);
}
