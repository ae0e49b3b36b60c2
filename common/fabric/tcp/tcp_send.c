/* tcp_send.c - messages out. What a role sends between two flushes is gathered in a buffer that the
 * connection has only while it is needed, and handed over with one call.
 *
 * 1. Bytes leave in the order they were added; the buffer is given back when all have left, so sent < added
 *    while there is one.
 * 2. A connection whose peer does not read is blocked: it keeps its buffer and answers EAGAIN. At most
 *    TCP_OUTS_BLOCKED are: one more closes the one that has been blocked longest, so that others find
 *    a buffer.
 * 3. A message that is larger than a buffer gets a larger slab and goes alone. There are few of these, and of the
 *    chunks that messages come in. A connection whose peer does not read pins both: what is sent to it, and the
 *    requests that its owner holds until there is a place for their answers, each of them in a chunk of all. When a
 *    slab is wanted in vain, the blocked connection is closed that pins most of that kind, if its peer has taken
 *    nothing for TCP_UNREAD_NS; at once if it pins more than TCP_PINNED, whatever it takes now and then.
 */
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/tcp/tcp.h"

void tcp_out_fini(struct tcp_conn *conn)
{
    if (conn->out.slab)
        slab_unref(conn->endpoint, conn->out.slab);
    conn->out.slab = NULL;
}

/* --- hand over --- */

static void account_sent(struct tcp_conn *conn, size_t bytes)
{
    struct tcp_out *out = &conn->out;

    out->sent += (uint32_t)bytes;
    out->progress_ns = conn->endpoint->base.now_ns;
    if (out->sent == out->added) /* 1 */
        tcp_out_fini(conn);
}

static void cut_off(struct tcp_conn *conn)
{
    struct endpoint *endpoint = &conn->endpoint->base;

    log_event(LOG_WARN, "peer_does_not_read", "endpoint=%u peer=%u", endpoint->index,
              conn->base.peer.id);
    counter_add(&endpoint->base.ended.unread, 1);
    conn_break(&conn->base, ROWAN_ETOOMANY, false);
}

/* 2 */
static void set_blocked(struct tcp_conn *conn)
{
    struct tcp_endpoint *endpoint = conn->endpoint;
    struct tcp_conn *longest = (struct tcp_conn *)endpoint->base.lists[LIST_BLOCKED].first;

    conn->messages.writable = false;
    if (conn->base.base.guest) { /* F13 */
        guest_end(&conn->base, ROWAN_ETOOMANY);
        return;
    }
    if (conn_is_listed(&conn->base, LIST_BLOCKED))
        return;
    if (endpoint->base.counts[LIST_BLOCKED] >= TCP_OUTS_BLOCKED && longest)
        cut_off(longest);
    conn_list_add(&conn->base, LIST_BLOCKED);
}

/* 3 */
static struct tcp_conn *find_debtor(struct tcp_endpoint *endpoint, uint32_t wanted)
{
    struct tcp_conn *debtor = NULL;
    uint32_t most = 0;

    for (CONN_EACH(tcp_conn, conn, &endpoint->base, LIST_BLOCKED)) {
        const struct tcp_slab *out = conn->out.slab;
        const uint32_t pinned = tcp_in_pinned(conn, wanted) + (out && wanted >> out->kind & 1);

        if (pinned <= most ||
            (pinned <= TCP_PINNED && endpoint->base.now_ns - conn->out.progress_ns < TCP_UNREAD_NS))
            continue;
        debtor = conn;
        most = pinned;
    }
    return debtor;
}

/* One at a time: what it gives back may be enough. */
void tcp_out_check(struct tcp_endpoint *endpoint)
{
    const uint32_t wanted = endpoint->slabs.wanted;
    struct tcp_conn *debtor;

    endpoint->slabs.wanted = 0;
    if (!wanted)
        return;
    debtor = find_debtor(endpoint, wanted);
    if (debtor)
        cut_off(debtor);
}

void tcp_out_push(struct tcp_conn *conn)
{
    struct tcp_out *out = &conn->out;

    while (conn->base.state == CONN_OPEN && conn->messages.writable && out->slab) {
        const uint32_t asked = out->added - out->sent;
        const struct iovec piece = {out->slab->data + out->sent, asked};
        const ssize_t sent = tcp_write(conn->messages.fd, &piece, 1);

        if (sent > 0) {
            account_sent(conn, (size_t)sent);
            if ((size_t)sent < asked)
                set_blocked(conn);
        } else if (sent == ROWAN_EAGAIN) {
            set_blocked(conn);
        } else if (
            conn->in
                .stopped) { /* its owner may hold what it has for want of a place for an answer */
            conn_break(&conn->base, ROWAN_ECLOSED, false);
        } else {
            conn->messages.writable = false; /* what had arrived is read before CLOSED */
            conn->messages.readable = true;
            conn_list_add(&conn->base, LIST_ACTIVE);
        }
    }
    if (conn->messages.writable)
        conn_list_remove(&conn->base, LIST_BLOCKED);
}

/* --- add --- */

/* Begins a message with its head; returns where the rest goes. */
static inline uint8_t *begin_message(struct tcp_conn *conn, uint32_t bytes, uint8_t *to)
{
    const struct tcp_message_head head = {
        .magic = TCP_MESSAGE_MAGIC, .bytes = bytes, .number = conn->out_number++};

    memset(to + message_wire_bytes(bytes) - 8, 0, 8); /* before the message, which has most of it */
    memcpy(to, &head, sizeof head);
    return to + sizeof head;
}

/* Writes the message, with head and padding, to `to`. */
static void lay_out(struct tcp_conn *conn, const struct fabric_iov *iov, unsigned count,
                    uint32_t bytes, uint8_t *to)
{
    window_copy(begin_message(conn, bytes, to), iov, count);
    conn_list_add(&conn->base, LIST_DIRTY);
}

/* Whether `wire` bytes find a place behind what waits. */
static bool fits(const struct tcp_out *out, uint32_t wire)
{
    return out->slab->kind == SLAB_OUT && wire <= TCP_OUT_BYTES - out->added;
}

static enum slab_kind kind_for(uint32_t wire)
{
    if (wire <= TCP_OUT_BYTES)
        return SLAB_OUT;
    return wire <= TCP_MIDDLE_BYTES ? SLAB_MIDDLE : SLAB_LARGE; /* 3 */
}

/* To the buffer, which the connection may not have yet. */
static int add(struct tcp_conn *conn, const struct fabric_iov *iov, unsigned count, uint32_t bytes)
{
    const uint32_t wire = message_wire_bytes(bytes);
    struct tcp_out *out = &conn->out;

    if (out->slab && !fits(out, wire))
        return ROWAN_EAGAIN;
    if (!out->slab) {
        out->slab = slab_take(conn->endpoint, kind_for(wire));
        if (!out->slab)
            return ROWAN_EAGAIN;
        out->added = out->sent = 0;
        out->progress_ns = conn->endpoint->base.now_ns;
    }
    lay_out(conn, iov, count, bytes, out->slab->data + out->added);
    out->added += wire;
    return 0;
}

/* Any message. */
static __attribute__((noinline)) int send_any(struct tcp_conn *conn, const struct fabric_iov *iov,
                                              unsigned count)
{
    uint32_t bytes;
    int error = window_check_message(&conn->base, iov, count, &bytes);

    if (error)
        return error;
    error = add(conn, iov, count, bytes);
    if (error == ROWAN_EAGAIN && !conn->endpoint->base.base.holds && conn->out.slab &&
        conn->messages.writable) {
        tcp_out_push(conn);
        error = conn->base.state != CONN_OPEN ? ROWAN_ECLOSED : add(conn, iov, count, bytes);
    }
    return error;
}

/* Short messages that find their place behind another, as most do: its connection is on LIST_DIRTY already. */
int tcp_send(struct fabric_conn *base, const struct fabric_iov *iov, unsigned count)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;
    struct tcp_out *out = &conn->out;
    uint32_t bytes, wire;

    if (conn->base.state != CONN_OPEN || !conn_is_listed(&conn->base, LIST_DIRTY) || !out->slab ||
        !window_is_short(iov, count, &bytes))
        return send_any(conn, iov, count);
    wire = message_wire_bytes(bytes);
    if (!fits(out, wire))
        return send_any(conn, iov, count);
    window_copy_short(begin_message(conn, bytes, out->slab->data + out->added), iov, count);
    out->added += wire;
    return 0;
}
