/* verbs_fuzz.c - what a peer of the verbs fabric sends: the bytes of the handshake, and datagrams with any
 * head and any length, over a network made of software. Meanwhile a message to the peer is outstanding, of
 * which it acknowledges what the input says. After each input the endpoint has forgotten that peer, and
 * another one is still served.
 *
 *   byte 0     what follows: a hello; datagrams in short form; datagrams with whole heads
 *   the rest   short form: flags, sequence, acked, limit, message bytes (2), payload bytes (2), odd (each 1 B
 *              unless said otherwise); whole: 32 B of a head from `sequence` on, payload bytes (2)
 */
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_stream.h"
#include "test/fuzz/fabric_fuzz.h"

enum { SHORT_BYTES = 9, WHOLE_BYTES = 34 };
enum what { HELLO, SHORT, WHOLE };

static struct fabric_conn *bad_conn;
static struct verbs_slab *payload;
static uint32_t accepted; /* connections of the bad one */

static void handle_event(enum fuzz_side side, const struct fabric_event *event)
{
    static const uint8_t zeros[5000]; /* some datagrams */
    static const struct fabric_iov message = {.data = zeros, .bytes = sizeof zeros};

    if (side == OWNER && event->kind == FABRIC_ACCEPTED && event->peer.id == BAD) {
        ASSERT(fabric_send(event->conn, &message, 1) == 0);
        accepted++;
    }
    if (event->kind == FABRIC_CLOSED && event->conn == bad_conn)
        bad_conn = NULL;
}

/* A connection waits for an address handle, which another thread makes. */
static bool is_resolving(void)
{
    for (enum fuzz_side side = OWNER; side < FUZZ_SIDES && fuzz.endpoints[side]; side++) {
        for (CONN_EACH(conn, it, (struct endpoint *)fuzz.endpoints[side], LIST_HANDSHAKE)) {
            if (it->state == CONN_RESOLVING)
                return true;
        }
    }
    return false;
}

static void open_all(void)
{
    fuzz.handle = handle_event;
    fuzz.is_waiting = is_resolving;
    fuzz_open_owner("verbs");
    fuzz_open_peer("verbs", GOOD);
    fuzz_open_peer("verbs", BAD);
    payload = verbs_slab_get(&((struct verbs_endpoint *)fuzz.endpoints[BAD])->messages.out, 4096);
    ASSERT(payload);
    fuzz_connect(GOOD, &fuzz.conn);
}

/* --- what the peer sends --- */

static void send_packet(struct packet_head *head, uint32_t bytes)
{
    struct verbs_conn *sender = (struct verbs_conn *)bad_conn;
    const uint32_t most = sender->stream->payload;
    const uint32_t sent = bytes < most ? bytes : most;

    while (!verbs_packet_fits(sender->endpoint)) {
        fuzz.bad_is_silent = false;
        fuzz_poll();
    }
    verbs_packet_add(sender, head, payload->data, sent, payload->key);
    verbs_packets_push(sender->endpoint);
}

static uint32_t get_16(const uint8_t *data)
{
    return data[0] | (uint32_t)data[1] << 8;
}

static size_t send_short(const uint8_t *data)
{
    const struct verbs_conn *sender = (struct verbs_conn *)bad_conn;
    const uint32_t bytes = get_16(data + 6);
    struct packet_head head = {.connection = sender->theirs.connection,
                               .token = sender->theirs.token,
                               .flags = data[0],
                               .sequence = data[1],
                               .acked = data[2],
                               .limit = data[3],
                               .message_bytes = get_16(data + 4) * 16};

    if (head.message_bytes > 16 * 4096)
        head.message_bytes -= 16 * 4096; /* so that sizes of one datagram are met, too */
    head.bytes = (uint16_t)(bytes < sender->stream->payload ? bytes : sender->stream->payload);
    head.token += data[8] == 1;
    head.connection += data[8] == 2;
    head.zero = data[8] == 3;
    head.early = data[8] > 5 ? data[8] >> 1 : 0;
    head.bytes = (uint16_t)(head.bytes + (data[8] == 4));
    if (data[8] == 5)
        head.message_bytes = head.bytes;
    send_packet(&head, bytes);
    return SHORT_BYTES;
}

static size_t send_whole(const uint8_t *data)
{
    const struct verbs_conn *sender = (struct verbs_conn *)bad_conn;
    struct packet_head head = {.connection = sender->theirs.connection,
                               .token = sender->theirs.token};

    memcpy(&head.sequence, data, 32);
    send_packet(&head, get_16(data + 32));
    return WHOLE_BYTES;
}

static void feed(bool is_whole, const uint8_t *data, size_t size)
{
    const struct verbs_endpoint *endpoint = (struct verbs_endpoint *)fuzz.endpoints[OWNER];
    const size_t least = is_whole ? WHOLE_BYTES : SHORT_BYTES;
    const uint32_t before = accepted;

    fuzz_connect(BAD, &bad_conn);
    fuzz.bad_is_silent = true; /* or it would acknowledge by itself */
    for (unsigned i = 0; accepted == before && i < FUZZ_POLLS; i++)
        fuzz_poll();
    ASSERT(accepted == before + 1);
    while (bad_conn && size >= least) {
        const size_t taken = is_whole ? send_whole(data) : send_short(data);

        data += taken;
        size -= taken;
        fuzz_poll();
    }
    fuzz.bad_is_silent = false;
    fuzz_ask_good();
    fabric_conn_close(bad_conn);
    bad_conn = NULL;
    for (unsigned i = 0; endpoint->base.counts[LIST_ALL] > 1 && i < FUZZ_POLLS; i++)
        fuzz_poll();
    ASSERT(endpoint->base.counts[LIST_ALL] == 1 && endpoint->base.counts[LIST_BEGUN] == 0);
    ASSERT(endpoint->packets->in_place == 0);
}

static void hello(const uint8_t *data, size_t size)
{
    struct verbs_hello found;
    uint32_t layout = 0;

    if (verbs_hello_read(data, size, &found, &layout) == 0)
        ASSERT(size == sizeof found && layout == VERSION_VERBS_HIGHEST);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!fuzz.conn) {
        log_set_level(LOG_ERROR);
        open_all();
    }
    if (size < 1)
        return 0;
    if (data[0] % 3 == HELLO)
        hello(data + 1, size - 1);
    else
        feed(data[0] % 3 == WHOLE, data + 1, size - 1);
    return 0;
}
