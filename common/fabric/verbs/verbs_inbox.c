/* verbs_inbox.c - messages in. One that came in one datagram stays where the device wrote it; a longer one
 * is put together in a slab. Whole ones wait on their connection's inbox for the owner, who holds them until
 * it releases them.
 *
 * 1. Every whole message is on its connection's list of held ones, given out or not.
 * 2. Memory is for all connections of the endpoint: who finds none waits on LIST_NO_MEMORY and is asked again when a slab
 *    is released, or after a while where the system gave none.
 * 3. A message has its time (conn.h, 5), but while the owner holds so much that the peer may not send. (A message that
 *    is begun has its memory.)
 * 4. A datagram that came before its turn lies in the ring, in places[number % STREAM_WINDOW], while its bit
 *    of `early` is set; such buffers are counted with those of held messages.
 */
#include <string.h>

#include "common/base/assert.h"
#include "common/fabric/verbs/verbs_stream.h"

bool verbs_inbox_is_full(const struct verbs_stream *stream)
{
    return stream->held_count >= STREAM_HELD || stream->held_bytes >= STREAM_HELD_BYTES;
}

/* 1 */
static void queue_message(struct verbs_conn *conn, struct verbs_held *held, const uint8_t *data,
                          uint32_t bytes)
{
    struct verbs_stream *stream = conn->stream;

    held->data = data;
    held->bytes = bytes;
    LIST_APPEND(&stream->held, held, link);
    stream->held_count++;
    stream->held_bytes += bytes;
    if (!stream->inbox)
        stream->inbox = held;
    conn_list_add(&conn->base, LIST_ACTIVE);
}

static enum inbox_result store_whole(struct verbs_conn *conn, const struct packet_head *head,
                                     const uint8_t *data, struct verbs_held *in_place)
{
    struct verbs_slab *slab;

    if (head->bytes != head->message_bytes)
        return INBOX_GARBAGE;
    if (in_place) {
        queue_message(conn, in_place, data, head->bytes);
        return INBOX_IN_PLACE;
    }
    slab = verbs_slab_get(&conn->endpoint->messages.in, head->bytes);
    if (!slab)
        return INBOX_NO_MEMORY;
    memcpy(slab->data, data, head->bytes);
    queue_message(conn, &slab->held, slab->data, head->bytes);
    return INBOX_COPIED;
}

static enum inbox_result store_first(struct verbs_conn *conn, const struct packet_head *head,
                                     const uint8_t *data)
{
    struct verbs_stream *stream = conn->stream;

    if (head->message_bytes > FABRIC_MAX_MESSAGE_BYTES || head->bytes == 0 ||
        head->bytes >= head->message_bytes)
        return INBOX_GARBAGE;
    if (conn->base.base.guest) /* F13: one packet at a time */
        return INBOX_GARBAGE;
    stream->partial = verbs_slab_get(&conn->endpoint->messages.in, head->message_bytes);
    if (!stream->partial)
        return INBOX_NO_MEMORY;
    memcpy(stream->partial->data, data, head->bytes);
    conn->base.partial = (struct partial){.got = head->bytes, .need = head->message_bytes};
    if (!verbs_inbox_is_full(stream)) /* 3 */
        partial_begin(&conn->base);
    return INBOX_COPIED;
}

static enum inbox_result store_more(struct verbs_conn *conn, const struct packet_head *head,
                                    const uint8_t *data)
{
    struct verbs_stream *stream = conn->stream;
    const uint32_t got = conn->base.partial.got, need = conn->base.partial.need;
    const bool is_last = head->flags & PACKET_LAST;

    if (head->message_bytes != need || head->bytes == 0 || head->bytes > need - got ||
        is_last != (head->bytes == need - got))
        return INBOX_GARBAGE;
    memcpy(stream->partial->data + got, data, head->bytes);
    if (!partial_grow(&conn->base, head->bytes))
        return INBOX_COPIED;
    queue_message(conn, &stream->partial->held, stream->partial->data, need);
    stream->partial = NULL;
    return INBOX_COPIED;
}

enum inbox_result verbs_inbox_store(struct verbs_conn *conn, const struct packet_head *head,
                                    const uint8_t *data, struct verbs_held *in_place)
{
    const bool is_first = head->flags & PACKET_FIRST;

    if (is_first == (conn->stream->partial != NULL))
        return INBOX_GARBAGE;
    if (!is_first)
        return store_more(conn, head, data);
    return head->flags & PACKET_LAST ? store_whole(conn, head, data, in_place)
                                     : store_first(conn, head, data);
}

/* --- before their turn --- */

void verbs_inbox_keep(struct verbs_conn *conn, uint32_t sequence, const uint8_t *data,
                      struct verbs_held *in_place)
{
    struct verbs_stream *stream = conn->stream;
    const uint32_t ahead = sequence - stream->expected;

    ASSERT(ahead > 0 && ahead < STREAM_WINDOW && !(stream->early >> ahead & 1));
    in_place->data = data;
    stream->places[sequence % STREAM_WINDOW] = in_place;
    stream->early |= UINT64_C(1) << ahead; /* 4 */
}

enum inbox_result verbs_inbox_store_kept(struct verbs_conn *conn, struct packet_head *head)
{
    struct verbs_stream *stream = conn->stream;
    struct verbs_held *place = stream->places[stream->expected % STREAM_WINDOW];
    enum inbox_result result;

    ASSERT(stream->early & 1);
    stream->early &= ~UINT64_C(1);
    memcpy(head, place->data - sizeof *head, sizeof *head);
    result = verbs_inbox_store(conn, head, place->data, place);
    if (result != INBOX_IN_PLACE)
        verbs_packet_give(conn->endpoint, place);
    return result;
}

/* --- to the owner --- */

unsigned verbs_inbox_poll(struct verbs_conn *conn, struct fabric_event *events, unsigned max)
{
    struct verbs_stream *stream = conn->stream;
    unsigned count = 0;

    for (; count < max && stream->inbox; count++) {
        const struct verbs_held *held = stream->inbox;

        stream->inbox = held->link.next;
        events[count] = (struct fabric_event){.kind = FABRIC_MESSAGE,
                                              .bytes = held->bytes,
                                              .conn = &conn->base.base,
                                              .data = held->data,
                                              .message = (uintptr_t)held};
    }
    return count;
}

/* 2 */
static void wake_waiting(struct verbs_endpoint *endpoint)
{
    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_NO_MEMORY)) {
        verbs_stream_opened(conn);
    }
}

static void release_held(struct verbs_conn *conn, struct verbs_held *held)
{
    struct verbs_endpoint *endpoint = conn->endpoint;
    struct verbs_stream *stream = conn->stream;

    LIST_REMOVE(&stream->held, held, link);
    ASSERT(stream->held_count > 0 && stream->held_bytes >= held->bytes);
    stream->held_count--;
    stream->held_bytes -= held->bytes;
    if (held->slab)
        verbs_slab_give(&endpoint->messages.in, held->slab);
    else
        verbs_packet_give(endpoint, held);
}

void verbs_message_release(struct fabric_conn *base, uint64_t message)
{
    struct verbs_conn *conn = (struct verbs_conn *)base;

    if (conn->base.state == CONN_DEAD) /* all are released together */
        return;
    release_held(conn, (struct verbs_held *)(uintptr_t)message);
    if (conn->stream->partial && conn->base.state == CONN_OPEN &&
        !conn_is_listed(&conn->base, LIST_BEGUN) && !verbs_inbox_is_full(conn->stream)) /* 3 */
        partial_begin(&conn->base);
    wake_waiting(conn->endpoint);
    verbs_stream_opened(conn);
}

void verbs_inbox_fini(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;

    while (stream->held.first)
        release_held(conn, stream->held.first);
    for (; stream->early; stream->early &= stream->early - 1) {
        const uint32_t number = stream->expected + (uint32_t)__builtin_ctzll(stream->early);

        verbs_packet_give(conn->endpoint, stream->places[number % STREAM_WINDOW]);
    }
    if (stream->partial)
        verbs_slab_give(&conn->endpoint->messages.in, stream->partial);
    wake_waiting(conn->endpoint);
}

void verbs_inbox_check(struct verbs_endpoint *endpoint)
{
    partial_check(&endpoint->base, NULL);
    if (verbs_slabs_may_ask(&endpoint->messages.in)) /* 2 */
        wake_waiting(endpoint);
}
