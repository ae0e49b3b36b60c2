/* verbs_message.c - messages out. Each is copied into a slab; datagrams are cut out of it when they are sent, and
 * again when they are sent again.
 *
 * 1. A message's slab is free when all its datagrams are acknowledged and the device has done with them; in the
 *    order in which they were sent.
 * 2. Slabs are for all connections of the endpoint. When one was asked for in vain, a connection that has the like
 *    and whose peer took nothing for STREAM_UNREAD_NS is closed.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/fabric/verbs/verbs_stream.h"

/* --- send --- */

/* NULL: too much of the connection's, or of all, is not acknowledged yet. */
static struct verbs_slab *find_slab(struct verbs_conn *conn, uint32_t bytes)
{
    struct verbs_messages *messages = &conn->endpoint->messages;
    const struct verbs_stream *stream = conn->stream;
    const uint32_t most = messages->out_count >= MESSAGE_MANY ? MESSAGE_FEW : MESSAGE_MOST;

    if (stream->out_count >= most || stream->out_bytes >= MESSAGE_BYTES)
        return NULL;
    return verbs_slab_get(&messages->out, bytes);
}

static void append(struct verbs_conn *conn, struct verbs_slab *message)
{
    struct verbs_stream *stream = conn->stream;

    message->sequence = stream->next_sequence;
    message->packets = message->bytes == 0 ? 1 : (message->bytes - 1) / stream->payload + 1;
    message->last_post = 0;
    stream->next_sequence += message->packets;
    if (stream->last)
        stream->last->next = message;
    else
        stream->first = message;
    stream->last = message;
    if (!stream->cursor)
        stream->cursor = message;
    stream->out_count++;
    stream->out_bytes += message->bytes;
    conn->endpoint->messages.out_count++;
    verbs_stream_added(conn);
}

int verbs_send(struct fabric_conn *base, const struct fabric_iov *iov, unsigned count)
{
    struct verbs_conn *conn = (struct verbs_conn *)base;
    struct verbs_slab *message;
    uint32_t bytes;
    const int error = window_check_message(&conn->base, iov, count, &bytes);

    if (error)
        return error;
    message = find_slab(conn, bytes);
    if (!message)
        return ROWAN_EAGAIN;
    message->bytes = bytes;
    window_copy(message->data, iov, count);
    append(conn, message);
    return 0;
}

/* --- done --- */

static bool is_acked(const struct verbs_conn *conn, const struct verbs_slab *message)
{
    return !is_behind(message->sequence + message->packets, conn->stream->acked);
}

static void free_first(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;
    struct verbs_messages *messages = &conn->endpoint->messages;
    struct verbs_slab *message = stream->first;

    stream->first = message->next;
    if (!stream->first)
        stream->last = NULL;
    stream->out_count--;
    stream->out_bytes -= message->bytes;
    messages->out_count--;
    message->next = NULL;
    verbs_slab_give(&messages->out, message);
}

void verbs_message_done(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;

    while (stream->first && is_acked(conn, stream->first) &&
           stream->first->last_post <= conn->endpoint->packets->completed) /* 1 */
        free_first(conn);
    if (stream->first && is_acked(conn, stream->first))
        conn_list_add(&conn->base, LIST_DRAINING);
    else
        conn_list_remove(&conn->base, LIST_DRAINING);
}

void verbs_message_fini(struct verbs_conn *conn)
{
    while (conn->stream->first)
        free_first(conn);
}

/* --- 2 --- */

static bool has_wanted(const struct verbs_slabs *slabs, const struct verbs_stream *stream)
{
    for (const struct verbs_slab *message = stream->first; message; message = message->next) {
        if (slabs->wanted >> message->kind & 1)
            return true;
    }
    return false;
}

void verbs_message_check(struct verbs_endpoint *endpoint)
{
    struct verbs_slabs *slabs = &endpoint->messages.out;
    struct verbs_conn *longest = NULL;

    if (!slabs->wanted)
        return;
    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_TIMED)) {
        if (endpoint->base.now_ns - conn->stream->progress_ns >= STREAM_UNREAD_NS &&
            (!longest || conn->stream->progress_ns < longest->stream->progress_ns) &&
            has_wanted(slabs, conn->stream))
            longest = conn;
    }
    slabs->wanted = 0;
    if (!longest || endpoint->base.counts[LIST_TIMED] == 1) /* nobody else waits */
        return;
    log_event(LOG_WARN, "peer_does_not_read", "endpoint=%u peer=%u", endpoint->base.index,
              longest->base.peer.id);
    conn_break(&longest->base, ROWAN_ETOOMANY, true);
}
