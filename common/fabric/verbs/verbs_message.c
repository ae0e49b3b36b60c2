/* verbs_message.c - messages out. Each is a record with its pieces, which lie in registered memory: the
 * sender's own, or a slab that they were copied to. Datagrams are cut out of it when they are sent, and
 * again when they are sent again.
 *
 * 1. A record is free when all its datagrams are acknowledged, the device has done with them, and SENT was
 *    given; records are freed in the order they were sent.
 * 2. Records and slabs are for all connections of the endpoint. When one was asked for in vain, a connection
 *    that has the like and whose peer took nothing for STREAM_UNREAD_NS is closed.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_stream.h"

struct verbs_records {
    struct verbs_records *next;
    struct out_message records[MESSAGE_RECORDS_GROWN];
};

int verbs_messages_open(struct verbs_endpoint *endpoint)
{
    struct verbs_messages *messages = calloc(1, sizeof *messages);

    if (!messages)
        return ROWAN_ENOMEM;
    messages->out.device = messages->in.device = endpoint->device;
    messages->out.now_ns = messages->in.now_ns = &endpoint->now_ns;
    endpoint->messages = messages;
    return 0;
}

void verbs_messages_close(struct verbs_endpoint *endpoint)
{
    struct verbs_messages *messages = endpoint->messages;

    if (!messages)
        return;
    verbs_slabs_fini(&messages->out);
    verbs_slabs_fini(&messages->in);
    while (messages->records) {
        struct verbs_records *records = messages->records;

        messages->records = records->next;
        free(records);
    }
    free(messages);
    endpoint->messages = NULL;
}

/* --- records --- */

static bool grow(struct verbs_messages *messages)
{
    struct verbs_records *records;

    if (messages->record_count == MESSAGE_RECORDS)
        return false;
    records = malloc(sizeof *records);
    if (!records)
        return false;
    records->next = messages->records;
    messages->records = records;
    messages->record_count += MESSAGE_RECORDS_GROWN;
    for (uint32_t i = 0; i < MESSAGE_RECORDS_GROWN; i++) {
        records->records[i].next = messages->free_records;
        messages->free_records = &records->records[i];
    }
    return true;
}

static struct out_message *take_record(struct verbs_conn *conn)
{
    struct verbs_messages *messages = conn->endpoint->messages;
    const bool is_scarce = messages->records_used >= MESSAGE_RECORDS / 2;
    struct out_message *message;

    if (conn->stream->out_count >= (is_scarce ? MESSAGE_FEW : MESSAGE_MOST) ||
        conn->stream->out_bytes >= MESSAGE_BYTES)
        return NULL;
    if (!messages->free_records && !grow(messages)) {
        messages->record_wanted = true;
        return NULL;
    }
    message = messages->free_records;
    messages->free_records = message->next;
    messages->records_used++;
    message->next = NULL;
    message->slab = NULL;
    message->piece_count = 0;
    message->last_post = 0;
    return message;
}

static void give_record(struct verbs_messages *messages, struct out_message *message)
{
    if (message->slab)
        verbs_slab_give(&messages->out, message->slab);
    message->next = messages->free_records;
    messages->free_records = message;
    messages->records_used--;
}

/* --- send --- */

static void add_piece(struct out_message *message, const void *data, uint32_t bytes, uint32_t key)
{
    struct verbs_piece *last =
        message->piece_count > 0 ? &message->pieces[message->piece_count - 1] : NULL;

    if (bytes == 0)
        return;
    if (last && last->data + last->bytes == data && last->key == key)
        last->bytes += bytes;
    else
        message->pieces[message->piece_count++] =
            (struct verbs_piece){.data = data, .bytes = bytes, .key = key};
}

uint32_t verbs_message_pieces(const struct out_message *message, uint32_t offset, uint32_t bytes,
                              struct ibv_sge *out)
{
    uint32_t count = 0, i = 0;

    for (; bytes > 0 && offset >= message->pieces[i].bytes; i++)
        offset -= message->pieces[i].bytes;
    for (; bytes > 0; i++) {
        const struct verbs_piece *piece = &message->pieces[i];
        const uint32_t left = piece->bytes - offset;
        const uint32_t part = left < bytes ? left : bytes;

        ASSERT(i < message->piece_count && count < VERBS_MAX_SGE);
        out[count++] = (struct ibv_sge){
            .addr = (uintptr_t)piece->data + offset, .length = part, .lkey = piece->key};
        bytes -= part;
        offset = 0;
    }
    return count;
}

/* Whether each datagram can be gathered by the device: one of its pieces is the head. */
static bool can_gather(const struct verbs_conn *conn, const struct out_message *message)
{
    const uint32_t most = conn->endpoint->device->max_sge - 1;
    uint32_t in_packet = 0, room = conn->stream->payload;

    for (uint32_t i = 0; i < message->piece_count; i++) {
        uint32_t left = message->pieces[i].bytes;

        if (++in_packet > most)
            return false;
        for (; left >= room; room = conn->stream->payload) {
            left -= room;
            in_packet = left > 0;
        }
        room -= left;
    }
    return true;
}

static int copy(struct verbs_conn *conn, const struct fabric_iov *iov, unsigned count,
                struct out_message *message)
{
    uint8_t *to;

    message->piece_count = 0;
    if (message->bytes == 0)
        return 0;
    message->slab = verbs_slab_take(&conn->endpoint->messages->out, message->bytes);
    if (!message->slab)
        return ROWAN_EAGAIN;
    to = message->slab->data;
    for (unsigned i = 0; i < count; i++) {
        if (iov[i].bytes > 0)
            memcpy(to, iov[i].data, iov[i].bytes);
        to += iov[i].bytes;
    }
    add_piece(message, message->slab->data, message->bytes, message->slab->key);
    return 0;
}

/* Errors: ROWAN_EINVALID: not registered. */
static int gather(struct verbs_conn *conn, const struct fabric_iov *iov, unsigned count,
                  struct out_message *message)
{
    for (unsigned i = 0; i < count; i++) {
        const struct verbs_region *region =
            verbs_region_of(conn->endpoint->fabric, iov[i].data, iov[i].bytes);

        if (iov[i].bytes == 0)
            continue;
        if (!region)
            return ROWAN_EINVALID;
        add_piece(message, iov[i].data, iov[i].bytes, region->mr->lkey);
    }
    return can_gather(conn, message) ? 0 : copy(conn, iov, count, message);
}

static void append(struct verbs_conn *conn, struct out_message *message)
{
    struct verbs_stream *stream = conn->stream;

    message->sequence = stream->next_sequence;
    message->packets = message->bytes == 0 ? 1 : (message->bytes - 1) / stream->payload + 1;
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
    verbs_stream_added(conn);
}

int verbs_send(struct fabric_conn *base, const struct fabric_iov *iov, unsigned count,
               unsigned flags, uint64_t context)
{
    struct verbs_conn *conn = (struct verbs_conn *)base;
    struct out_message *message;
    uint64_t bytes = 0;
    int error;

    if (conn->state != VCONN_OPEN)
        return ROWAN_ECLOSED;
    if (count > FABRIC_MAX_IOV)
        return ROWAN_EINVALID;
    for (unsigned i = 0; i < count; i++)
        bytes += iov[i].bytes;
    if (bytes > FABRIC_MAX_MESSAGE_BYTES)
        return ROWAN_EINVALID;
    message = take_record(conn);
    if (!message)
        return ROWAN_EAGAIN;
    message->bytes = (uint32_t)bytes;
    message->is_signalled = flags & FABRIC_SIGNAL;
    message->context = context;
    error =
        flags & FABRIC_COPY ? copy(conn, iov, count, message) : gather(conn, iov, count, message);
    if (error) {
        give_record(conn->endpoint->messages, message);
        return error;
    }
    append(conn, message);
    return 0;
}

/* --- done --- */

static bool is_done(const struct verbs_conn *conn, const struct out_message *message)
{
    return !is_behind(message->sequence + message->packets, conn->stream->acked) &&
           message->last_post <= conn->endpoint->packets->completed; /* 1 */
}

static void free_first(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;
    struct out_message *message = stream->first;

    stream->first = message->next;
    if (!stream->first)
        stream->last = NULL;
    stream->out_count--;
    stream->out_bytes -= message->bytes;
    give_record(conn->endpoint->messages, message);
}

void verbs_message_done(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;

    while (stream->first && !stream->first->is_signalled && is_done(conn, stream->first))
        free_first(conn);
    if (verbs_message_has_events(conn))
        verbs_list_add(conn, VLIST_ACTIVE);
    if (stream->first && !is_done(conn, stream->first) &&
        !is_behind(stream->first->sequence + stream->first->packets, stream->acked))
        verbs_list_add(conn, VLIST_DRAINING);
    else
        verbs_list_remove(conn, VLIST_DRAINING);
}

bool verbs_message_has_events(const struct verbs_conn *conn)
{
    const struct out_message *first = conn->stream->first;

    return first && first->is_signalled && is_done(conn, first);
}

unsigned verbs_message_poll(struct verbs_conn *conn, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    while (count < max && verbs_message_has_events(conn)) {
        events[count++] = (struct fabric_event){.kind = FABRIC_SENT,
                                                .conn = &conn->base,
                                                .context = conn->stream->first->context,
                                                .peer = conn->peer};
        free_first(conn);
        verbs_message_done(conn);
    }
    return count;
}

void verbs_message_fini(struct verbs_conn *conn)
{
    while (conn->stream->first)
        free_first(conn);
    conn->stream->cursor = NULL;
}

/* --- 2 --- */

static bool has_wanted(const struct verbs_messages *messages, const struct verbs_stream *stream)
{
    if (messages->record_wanted && stream->first)
        return true;
    for (const struct out_message *message = stream->first; message; message = message->next) {
        if (message->slab && messages->out.wanted[message->slab->kind])
            return true;
    }
    return false;
}

static bool is_wanted(const struct verbs_messages *messages)
{
    bool wanted = messages->record_wanted;

    for (unsigned kind = 0; kind < VSLAB_KINDS; kind++)
        wanted |= messages->out.wanted[kind];
    return wanted;
}

void verbs_message_check(struct verbs_endpoint *endpoint)
{
    struct verbs_messages *messages = endpoint->messages;
    struct verbs_conn *longest = NULL;

    if (!is_wanted(messages))
        return;
    for (struct verbs_conn *conn = endpoint->lists[VLIST_TIMED].first; conn;
         conn = conn->links[VLIST_TIMED].next) {
        if (endpoint->now_ns - conn->stream->progress_ns >= STREAM_UNREAD_NS &&
            (!longest || conn->stream->progress_ns < longest->stream->progress_ns) &&
            has_wanted(messages, conn->stream))
            longest = conn;
    }
    messages->record_wanted = false;
    memset(messages->out.wanted, 0, sizeof messages->out.wanted);
    if (!longest || endpoint->counts[VLIST_TIMED] == 1) /* nobody else waits */
        return;
    log_event(LOG_WARN, "peer_does_not_read", "endpoint=%u peer=%u", endpoint->index,
              longest->peer.id);
    verbs_conn_break(longest, ROWAN_ETOOMANY);
}
