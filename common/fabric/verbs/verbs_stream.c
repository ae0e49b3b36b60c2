/* verbs_stream.c - a connection's datagrams: reliable and in order over a network that loses, doubles and
 * reorders them (verbs_stream.h says how). Timers as in RFC 6298, with other bounds.
 *
 * 1. acked <= send_next <= sent <= next_sequence; `cursor` is the message that send_next lies in.
 *    At most STREAM_WINDOW are on their way; what the peer says of them is in `arrived`, bit by bit. Bit 0 is
 *    0 there, for the peer waits for that one.
 * 2. A receiver grants at most STREAM_WINDOW numbers beyond what it expects, and none anew while its owner
 *    holds too much (F5); a grant is never taken back. What it has no memory for it drops, and asks for
 *    again when there is some. What comes early it keeps, if the ring has buffers to spare.
 * 3. While something waits to be acknowledged or sent, the timer runs: what was sent goes again; if nothing
 *    could be sent, we ask whether more may be. A peer that leaves all of that unanswered for
 *    STREAM_SILENT_NS, and STREAM_TRIES times, is gone. One that answers may keep its window shut for ever.
 * 4. A receiver acknowledges with its own data, after half a window, when asked, when something is wrong,
 *    or after STREAM_OWED_NS.
 * 5. Lost is what has not arrived though something that was sent STREAM_DISORDER datagrams later has (RFC
 *    8985 with a count in place of the clock): so the loss of what was sent again is noticed likewise.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_stream.h"

/* --- life --- */

int verbs_stream_open(struct verbs_conn *conn, struct ibv_ah *ah)
{
    const uint32_t ours = conn->endpoint->device->mtu_bytes;
    const uint32_t mtu = conn->theirs.mtu < ours ? conn->theirs.mtu : ours;
    struct verbs_stream *stream = calloc(1, sizeof *stream);

    if (!stream) {
        ibv_destroy_ah(ah);
        return ROWAN_ENOMEM;
    }
    conn->stream = stream;
    stream->ah = ah;
    stream->payload = mtu - (uint32_t)sizeof(struct packet_head);
    stream->limit = stream->told_limit = stream->window = STREAM_WINDOW;
    stream->rto_ns = STREAM_RTO_NS;
    return 0;
}

void verbs_stream_close(struct verbs_conn *conn)
{
    if (!conn->stream)
        return;
    verbs_message_fini(conn);
    verbs_inbox_fini(conn);
    ibv_destroy_ah(conn->stream->ah);
    free(conn->stream);
}

/* --- out --- */

static uint32_t send_limit(const struct verbs_stream *stream)
{
    const uint32_t window = stream->acked + stream->window;

    return is_behind(stream->limit, window) ? window : stream->limit;
}

/* What every datagram tells; and so nothing is owed any more. */
static struct packet_head make_head(struct verbs_conn *conn, unsigned flags)
{
    struct verbs_stream *stream = conn->stream;

    stream->is_shut = verbs_inbox_is_full(stream);
    if (!stream->is_shut)
        stream->told_limit = stream->expected + STREAM_WINDOW; /* 2 */
    if (stream->dropped)
        flags |= PACKET_AGAIN;
    stream->answers = stream->dropped = false;
    stream->owed = 0;
    return (struct packet_head){.connection = conn->theirs.connection,
                                .token = conn->theirs.token,
                                .sequence = stream->send_next,
                                .acked = stream->expected,
                                .limit = stream->told_limit,
                                .flags = (uint16_t)flags,
                                .early = stream->early};
}

void verbs_stream_added(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;

    if (stream->timer_ns == 0) { /* 3: we begin to wait */
        stream->heard_ns = conn->endpoint->base.now_ns;
        stream->unheard = 0;
        stream->timer_ns = conn->endpoint->base.now_ns + stream->rto_ns;
    }
    conn_list_add(&conn->base, LIST_TIMED);
    conn_list_add(&conn->base, LIST_DIRTY);
}

/* Datagram `number`, which lies in `message`. */
static void send_data(struct verbs_conn *conn, struct verbs_slab *message, uint32_t number,
                      unsigned flags)
{
    struct verbs_stream *stream = conn->stream;
    const uint32_t index = number - message->sequence;
    const uint32_t offset = index * stream->payload;
    const uint32_t left = message->bytes - offset;
    struct packet_head head;

    head = make_head(conn, flags | PACKET_DATA | (index == 0 ? PACKET_FIRST : 0) |
                               (index + 1 == message->packets ? PACKET_LAST : 0));
    head.sequence = number;
    head.bytes = (uint16_t)(left < stream->payload ? left : stream->payload);
    head.message_bytes = message->bytes;
    stream->order[number % STREAM_WINDOW] = ++stream->posts;
    verbs_packet_add(conn, &head, message->data + offset, head.bytes, message->key);
    message->last_post = stream->last_post;
}

/* The next one in order; after going back, one that has arrived is passed over. */
static void send_next(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;
    struct verbs_slab *message = stream->cursor;
    const uint32_t number = stream->send_next++;
    const bool is_last = stream->send_next == message->sequence + message->packets;
    unsigned flags = stream->went_back ? PACKET_ASK : 0;

    if (is_last)
        stream->cursor = message->next;
    if (stream->arrived >> (number - stream->acked) & 1)
        return;
    if (stream->send_next == send_limit(stream) || (!stream->cursor && message->packets > 1))
        flags |= PACKET_ASK;
    if (is_behind(stream->send_next, stream->sent)) {
        stream->sent = stream->send_next;
        if (!stream->is_timed) { /* only of what was sent once (Karn) */
            stream->is_timed = true;
            stream->timed_sequence = number;
            stream->timed_ns = conn->endpoint->base.now_ns;
        }
    }
    send_data(conn, message, number, flags);
}

/* The first message, from this one on, that ends behind `number`; NULL: none. */
static struct verbs_slab *skip_to(struct verbs_slab *message, uint32_t number)
{
    while (message && !is_behind(message->sequence + message->packets, number))
        message = message->next;
    return message;
}

static void send_lost(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;
    struct verbs_slab *message = stream->first;

    while (stream->again && verbs_packet_fits(conn->endpoint)) {
        const uint32_t number = stream->acked + (uint32_t)__builtin_ctzll(stream->again);

        stream->again &= stream->again - 1;
        message = skip_to(message, number);
        send_data(conn, message, number, stream->again ? 0 : PACKET_ASK);
    }
}

static void send_bare(struct verbs_conn *conn)
{
    const struct packet_head head = make_head(conn, conn->stream->probes ? PACKET_ASK : 0);

    conn->stream->probes = false;
    verbs_packet_add(conn, &head, NULL, 0, 0);
}

static bool is_bare_due(const struct verbs_stream *stream)
{
    return stream->answers || stream->probes || stream->owed >= STREAM_WINDOW / 2;
}

static bool has_data(const struct verbs_stream *stream)
{
    return stream->again || (stream->cursor && is_behind(send_limit(stream), stream->send_next));
}

void verbs_stream_push(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;

    send_lost(conn);
    while (!stream->again && has_data(stream) && verbs_packet_fits(conn->endpoint))
        send_next(conn);
    if (is_bare_due(stream) && verbs_packet_fits(conn->endpoint))
        send_bare(conn);
    if (conn->base.state != CONN_OPEN)
        return;
    if (is_bare_due(stream) || has_data(stream))
        conn_list_add(&conn->base, LIST_ACTIVE); /* the send queue is full: the next poll goes on */
    if (stream->owed > 0 || stream->timer_ns != 0)
        conn_list_add(&conn->base, LIST_TIMED);
}

/* --- acknowledgements --- */

static void go_back(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;

    stream->cursor = skip_to(stream->first, stream->acked);
    stream->send_next = stream->acked;
    stream->again = 0;
    stream->is_timed = false;
    stream->went_back = true;
    conn_list_add(&conn->base, LIST_DIRTY);
}

/* RFC 6298, 2. */
static void measure(struct verbs_stream *stream, uint64_t now_ns)
{
    const uint64_t sample = now_ns - stream->timed_ns;

    stream->is_timed = false;
    if (stream->srtt_ns == 0) {
        stream->srtt_ns = sample;
        stream->rttvar_ns = sample / 2;
    } else {
        const uint64_t off =
            sample > stream->srtt_ns ? sample - stream->srtt_ns : stream->srtt_ns - sample;

        stream->rttvar_ns = stream->rttvar_ns - stream->rttvar_ns / 4 + off / 4;
        stream->srtt_ns = stream->srtt_ns - stream->srtt_ns / 8 + sample / 8;
    }
}

static void reset_rto(struct verbs_stream *stream)
{
    uint64_t rto_ns = STREAM_RTO_NS;

    if (stream->srtt_ns > 0)
        rto_ns = stream->srtt_ns + 4 * stream->rttvar_ns + STREAM_OWED_NS;
    if (rto_ns < STREAM_RTO_MIN_NS)
        rto_ns = STREAM_RTO_MIN_NS;
    stream->rto_ns = rto_ns > STREAM_RTO_MAX_NS ? STREAM_RTO_MAX_NS : rto_ns;
}

static void count_arrival(struct verbs_stream *stream, uint32_t number)
{
    const uint32_t order = stream->order[number % STREAM_WINDOW];

    if (is_behind(order, stream->newest))
        stream->newest = order;
}

static void advance(struct verbs_conn *conn, uint32_t acked)
{
    struct verbs_stream *stream = conn->stream;
    const uint64_t now_ns = conn->endpoint->base.now_ns;
    const uint32_t by = acked - stream->acked;

    for (uint32_t number = stream->acked; number != acked; number++)
        count_arrival(stream, number);
    stream->arrived = by < STREAM_WINDOW ? stream->arrived >> by & ~UINT64_C(1) : 0; /* 1 */
    stream->again = by < STREAM_WINDOW ? stream->again >> by : 0;

    if (stream->is_timed && is_behind(acked, stream->timed_sequence))
        measure(stream, now_ns);
    stream->acked = acked;
    if (is_behind(acked, stream->send_next)) { /* sent again for nothing */
        stream->send_next = acked;
        stream->cursor = skip_to(stream->cursor, acked);
    }
    if (stream->window < STREAM_WINDOW)
        stream->window++;
    stream->went_back = false;
    stream->progress_ns = now_ns;
    reset_rto(stream);
    stream->timer_ns = acked == stream->next_sequence ? 0 : now_ns + stream->rto_ns;
    verbs_message_done(conn);
}

/* 5 */
static void find_lost(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;
    const uint32_t in_flight = stream->send_next - stream->acked;
    const uint64_t sent = in_flight < STREAM_WINDOW ? (UINT64_C(1) << in_flight) - 1 : UINT64_MAX;

    for (uint64_t holes = sent & ~stream->arrived & ~stream->again; holes; holes &= holes - 1) {
        const uint32_t number = stream->acked + (uint32_t)__builtin_ctzll(holes);
        const uint32_t order = stream->order[number % STREAM_WINDOW];

        if (!is_behind(stream->newest, order + STREAM_DISORDER - 1))
            continue;
        stream->again |= holes & -holes;
        if (stream->is_timed && stream->timed_sequence == number)
            stream->is_timed = false;
    }
    if (stream->again)
        conn_list_add(&conn->base, LIST_DIRTY);
}

static void handle_early(struct verbs_conn *conn, uint64_t early)
{
    struct verbs_stream *stream = conn->stream;

    for (uint64_t news = early & ~stream->arrived; news; news &= news - 1)
        count_arrival(stream, stream->acked + (uint32_t)__builtin_ctzll(news));
    stream->arrived |= early;
    stream->again &= ~early;
    if (stream->arrived)
        find_lost(conn);
}

/* Whether it tells only of what was sent, and grants no more than a window. */
static bool is_sound_answer(const struct verbs_stream *stream, const struct packet_head *head)
{
    const uint32_t in_flight = stream->sent - head->acked;
    const bool is_new = head->acked - stream->acked <= stream->sent - stream->acked;

    /* What is half of all numbers away is neither behind nor before anything. */
    if ((!is_new && !is_behind(stream->acked, head->acked)) ||
        head->limit - head->acked > STREAM_WINDOW)
        return false;
    return !(head->early & 1) && (in_flight >= STREAM_WINDOW || head->early >> in_flight == 0);
}

/* False: nonsense. */
static bool handle_answer(struct verbs_conn *conn, const struct packet_head *head)
{
    struct verbs_stream *stream = conn->stream;

    if (!is_sound_answer(stream, head))
        return false;
    if (!is_behind(stream->acked, head->acked)) {
        if (head->acked != stream->acked)
            advance(conn, head->acked);
        handle_early(conn, head->early);
        if ((head->flags & PACKET_AGAIN) && !stream->went_back &&
            stream->acked != stream->send_next)
            go_back(conn);
    }
    if (is_behind(head->limit, stream->limit))
        stream->limit = head->limit;
    if (has_data(stream))
        conn_list_add(&conn->base, LIST_DIRTY);
    return true;
}

/* --- in --- */

static void owe(struct verbs_conn *conn, bool at_once)
{
    struct verbs_stream *stream = conn->stream;

    if (stream->owed++ == 0)
        stream->owed_ns = conn->endpoint->base.now_ns;
    stream->answers |= at_once;
    if (is_bare_due(stream))
        conn_list_add(&conn->base, LIST_DIRTY);
    conn_list_add(&conn->base, LIST_TIMED);
}

static void garbage(struct verbs_conn *conn, const struct packet_head *head)
{
    log_event(LOG_WARN, "connection_garbage", "endpoint=%u peer=%u sequence=%u expected=%u",
              conn->endpoint->base.index, conn->base.peer.id, head->sequence,
              conn->stream->expected);
    conn_break(&conn->base, ROWAN_EFORMAT, true);
}

/* What became of datagram `expected`. False: nothing more is taken. */
static bool was_stored(struct verbs_conn *conn, const struct packet_head *head,
                       enum inbox_result result)
{
    struct verbs_stream *stream = conn->stream;

    if (result == INBOX_GARBAGE) {
        garbage(conn, head);
        return false;
    }
    if (result == INBOX_NO_MEMORY) { /* 2; verbs_stream_opened asks for it */
        conn_list_add(&conn->base, LIST_NO_MEMORY);
        owe(conn, true);
        return false;
    }
    stream->expected++;
    stream->early >>= 1;
    return true;
}

/* It, and those behind it that came early. True: it lies where it is as a held message. */
static bool store_next(struct verbs_conn *conn, const struct packet_head *head, const uint8_t *data,
                       struct verbs_held *in_place)
{
    struct verbs_stream *stream = conn->stream;
    const bool was_late = stream->early != 0;
    const enum inbox_result result = verbs_inbox_store(conn, head, data, in_place);
    struct packet_head kept;

    if (!was_stored(conn, head, result))
        return false;
    owe(conn, was_late || (head->flags & PACKET_ASK));
    while ((stream->early & 1) && was_stored(conn, &kept, verbs_inbox_store_kept(conn, &kept)))
        ;
    return result == INBOX_IN_PLACE;
}

bool verbs_stream_input(struct verbs_conn *conn, const struct packet_head *head,
                        const uint8_t *data, struct verbs_held *in_place)
{
    struct verbs_stream *stream = conn->stream;

    stream->heard_ns = conn->endpoint->base.now_ns;
    stream->unheard = 0;
    if ((head->flags & ~PACKET_FLAGS) || head->zero != 0 || !handle_answer(conn, head)) {
        garbage(conn, head);
        return false;
    }
    if (!(head->flags & PACKET_DATA)) {
        if (head->bytes > 0)
            garbage(conn, head);
        else if (head->flags & PACKET_ASK)
            owe(conn, true);
        return false;
    }
    if (!is_behind(stream->told_limit, head->sequence)) { /* more than we granted */
        garbage(conn, head);
        return false;
    }
    if (head->sequence == stream->expected)
        return store_next(conn, head, data, in_place);
    owe(conn, true);
    if (!in_place || !is_behind(head->sequence, stream->expected) ||
        stream->early >> (head->sequence - stream->expected) & 1)
        return false;
    verbs_inbox_keep(conn, head->sequence, data, in_place);
    return true;
}

void verbs_stream_opened(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;

    if (conn->base.state != CONN_OPEN)
        return;
    if (conn_is_listed(&conn->base, LIST_NO_MEMORY)) {
        conn_list_remove(&conn->base, LIST_NO_MEMORY);
        stream->dropped = stream->answers = true;
    }
    if (stream->is_shut && !verbs_inbox_is_full(stream))
        stream->answers = true;
    if (stream->answers)
        conn_list_add(&conn->base, LIST_DIRTY);
}

/* --- time --- */

/* 3 */
static void timer_ran_out(struct verbs_conn *conn)
{
    struct verbs_stream *stream = conn->stream;
    const uint64_t now_ns = conn->endpoint->base.now_ns;

    if (stream->unheard++ >= STREAM_TRIES && now_ns - stream->heard_ns >= STREAM_SILENT_NS) {
        log_event(LOG_WARN, "peer_is_silent", "endpoint=%u peer=%u", conn->endpoint->base.index,
                  conn->base.peer.id);
        conn_break(&conn->base, ROWAN_ECLOSED, true);
        return;
    }
    stream->rto_ns =
        stream->rto_ns * 2 < STREAM_RTO_MAX_NS ? stream->rto_ns * 2 : STREAM_RTO_MAX_NS;
    stream->timer_ns = now_ns + stream->rto_ns;
    if (stream->acked != stream->send_next || !stream->cursor) {
        /* Only for this: a gap that the peer tells of may be mere disorder. */
        stream->window /= 2;
        if (stream->window < STREAM_WINDOW_MIN)
            stream->window = STREAM_WINDOW_MIN;
        stream->arrived = 0;
        go_back(conn);
    } else {
        stream->probes = true;
    }
    conn_list_add(&conn->base, LIST_DIRTY);
}

void verbs_stream_check(struct verbs_endpoint *endpoint)
{
    const uint64_t now_ns = endpoint->base.now_ns;

    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_TIMED)) {
        struct verbs_stream *stream = conn->stream;
        if (stream->owed > 0 && now_ns - stream->owed_ns >= STREAM_OWED_NS) {
            stream->answers = true;
            conn_list_add(&conn->base, LIST_DIRTY);
        }
        if (stream->timer_ns != 0 && now_ns >= stream->timer_ns)
            timer_ran_out(conn);
        if (conn->base.state != CONN_OPEN || (stream->owed == 0 && stream->timer_ns == 0))
            conn_list_remove(&conn->base, LIST_TIMED);
    }
    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_DRAINING)) {
        verbs_message_done(conn);
    }
}

uint64_t verbs_stream_wake_ns(const struct verbs_endpoint *endpoint)
{
    uint64_t wake_ns = UINT64_MAX;

    for (CONN_EACH(verbs_conn, conn, &endpoint->base, LIST_TIMED)) {
        const struct verbs_stream *stream = conn->stream;
        const uint64_t owed_ns = stream->owed_ns + STREAM_OWED_NS;

        if (stream->owed > 0 && owed_ns < wake_ns)
            wake_ns = owed_ns;
        if (stream->timer_ns != 0 && stream->timer_ns < wake_ns)
            wake_ns = stream->timer_ns;
    }
    return wake_ns;
}
