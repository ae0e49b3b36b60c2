/* verbs_fuzz.c - what a peer of the verbs fabric sends: the bytes of the handshake, and datagrams with any
 * head and any length, over a network made of software. After each input the endpoint has forgotten that
 * peer, and another one is served as ever.
 *
 *   byte 0     what follows: a hello; datagrams in short form; datagrams with whole heads
 *   the rest   short form: flags, sequence, acked, limit, message bytes (2), payload bytes (2), odd (each 1 B
 *              unless said otherwise); whole: 32 B of a head from `sequence` on, payload bytes (2)
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/verbs_stream.h"

enum { POLLS = 100000, SHORT_BYTES = 9, WHOLE_BYTES = 34 };
enum what { HELLO, SHORT, WHOLE };

static struct fabric *fabrics[3];
static struct fabric_endpoint *owner, *good, *bad;
static struct fabric_conn *conn, *bad_conn;
static struct verbs_slab *payload;
static char address[64];
static uint64_t now_ns = 1;
static uint32_t answered, connected, bad_connected;

static void take(struct fabric_endpoint *endpoint, const struct fabric_event *event)
{
    static const struct fabric_iov answer = {.data = "answer", .bytes = 6};

    switch (event->kind) {
    case FABRIC_CONNECTED:
        connected += endpoint == good;
        bad_connected += endpoint == bad;
        break;
    case FABRIC_MESSAGE:
        ASSERT((uintptr_t)event->data % 8 == 0 && event->bytes <= FABRIC_MAX_MESSAGE_BYTES);
        if (endpoint == good)
            answered++;
        else if (event->bytes == 8 && memcmp(event->data, "question", 8) == 0)
            ASSERT(fabric_send(event->conn, &answer, 1, FABRIC_COPY, 0) <= 0);
        fabric_message_release(event->conn, event->message);
        break;
    case FABRIC_CLOSED:
        ASSERT(event->conn != conn);
        if (event->conn == bad_conn)
            bad_conn = NULL;
        break;
    default:
        break;
    }
}

static void poll_all(void)
{
    struct fabric_endpoint *const endpoints[] = {owner, good, bad};

    now_ns += NS_PER_MS;
    for (unsigned side = 0; side < 3; side++) {
        struct fabric_event events[8];
        const unsigned count = fabric_poll(endpoints[side], now_ns, events, 8);

        for (unsigned i = 0; i < count; i++)
            take(endpoints[side], &events[i]);
        fabric_flush(endpoints[side]);
    }
}

static void open_side(unsigned side, const char *text, struct fabric_endpoint **out)
{
    ASSERT(fabric_open("verbs", text, &fabrics[side]) == 0);
    ASSERT(fabric_endpoint_open(fabrics[side], 0, out) == 0);
    fabric_endpoint_identity(*out, &(struct fabric_identity){.kind = FABRIC_CLIENT, .id = side});
}

static void open_all(void)
{
    uint32_t draw;

    do {
        fabric_close(fabrics[0]);
        random_entropy(&draw, sizeof draw);
        snprintf(address, sizeof address, "verbs:127.%u.%u.1:%u", 1 + draw % 250, draw / 250 % 250,
                 12000 + draw / 62500 % 16000);
        ASSERT(fabric_open(NULL, address, &fabrics[0]) == 0);
    } while (fabric_endpoint_open(fabrics[0], 0, &owner) != 0);
    open_side(1, NULL, &good);
    open_side(2, NULL, &bad);
    payload = verbs_slab_take(&((struct verbs_endpoint *)bad)->messages->out, 4096);
    ASSERT(payload);
    ASSERT(fabric_connect(good, address, 0, 0, &conn) == 0);
    for (unsigned i = 0; connected == 0 && i < POLLS; i++)
        poll_all();
    ASSERT(connected == 1);
}

/* --- what the peer sends --- */

static void send_packet(struct packet_head *head, uint32_t bytes)
{
    struct verbs_conn *sender = (struct verbs_conn *)bad_conn;
    const uint32_t most = sender->stream->payload;
    const uint32_t sent = bytes < most ? bytes : most;
    const struct ibv_sge piece = {
        .addr = (uintptr_t)payload->data, .length = sent, .lkey = payload->key};

    while (!verbs_packet_room(sender->endpoint))
        poll_all();
    verbs_packet_add(sender, head, &piece, sent > 0);
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

static void ask_good(void)
{
    static const struct fabric_iov question = {.data = "question", .bytes = 8};
    const uint32_t before = answered;

    ASSERT(fabric_send(conn, &question, 1, FABRIC_COPY, 0) == 0);
    for (unsigned i = 0; answered == before && i < POLLS; i++)
        poll_all();
    ASSERT(answered == before + 1);
}

static void feed(bool is_whole, const uint8_t *data, size_t size)
{
    const struct verbs_endpoint *endpoint = (struct verbs_endpoint *)owner;
    const size_t least = is_whole ? WHOLE_BYTES : SHORT_BYTES;

    bad_connected = 0;
    ASSERT(fabric_connect(bad, address, 0, 0, &bad_conn) == 0);
    for (unsigned i = 0; bad_connected == 0 && i < POLLS; i++)
        poll_all();
    ASSERT(bad_connected == 1);
    while (bad_conn && size >= least) {
        const size_t taken = is_whole ? send_whole(data) : send_short(data);

        data += taken;
        size -= taken;
        poll_all();
    }
    ask_good();
    fabric_conn_close(bad_conn);
    bad_conn = NULL;
    for (unsigned i = 0; endpoint->counts[VLIST_ALL] > 1 && i < POLLS; i++)
        poll_all();
    ASSERT(endpoint->counts[VLIST_ALL] == 1 && endpoint->counts[VLIST_PARTIAL] == 0);
    ASSERT(endpoint->packets->in_place == 0);
}

static void hello(const uint8_t *data, size_t size)
{
    uint8_t again[VERBS_HELLO_BYTES];
    struct verbs_hello found;

    if (verbs_hello_decode(data, size, &found) != 0)
        return;
    verbs_hello_encode(&found, again);
    ASSERT(size == sizeof again && memcmp(again, data, size) == 0); /* there is one way to say it */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!owner) {
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
