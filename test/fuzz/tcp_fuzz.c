/* tcp_fuzz.c - arbitrary bytes from a peer of the tcp fabric, in pieces of arbitrary sizes, on a real
 * socket: instead of a greeting, as messages, as blocks, as blocks of a frame that is right so far, as bulk
 * writes, and as bytes of one that is inside of a grant.
 * After each input the endpoint has forgotten that peer, and another one is served as ever.
 *
 *   byte 0     what the bytes are (3 bits)
 *   byte 1     sizes of the pieces are drawn from this seed
 *   the rest   what is sent
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/fabric/tcp.h"
#include "test/lib/heap_pm.h"
#include "test/lib/tcp_raw.h"

enum { SEGMENTS = 4, /* and one more in the PM */ POLLS = 100000, FRAME_BLOCKS = 3 };
enum what { GREETING, MESSAGES, BLOCKS, FRAMES, BULK, WRITES, WHATS };

/* What the peer of a bulk write is granted: in the last segment, which is not posted. */
enum { GRANT_BYTES = 4096 };

static struct heap_pm *pm;
static struct fabric *fabrics[2];
static struct fabric_endpoint *owner, *good;
static struct fabric_zone *zone;
static struct fabric_conn *conn;
static struct sockaddr_in address = {.sin_family = AF_INET};
static uint64_t now_ns = 1;
static uint32_t accepted, answered, connected, revoked;
static struct fabric_conn *raw; /* accepted last */

static void take(struct fabric_endpoint *endpoint, const struct fabric_event *event)
{
    static const struct fabric_iov answer = {.data = "answer", .bytes = 6};

    switch (event->kind) {
    case FABRIC_ACCEPTED:
        accepted++;
        raw = event->conn;
        break;
    case FABRIC_REVOKED:
        revoked++;
        break;
    case FABRIC_CONNECTED:
        connected++;
        break;
    case FABRIC_MESSAGE:
        ASSERT((uintptr_t)event->data % 8 == 0 && event->bytes <= FABRIC_MAX_MESSAGE_BYTES);
        if (endpoint == good)
            answered++;
        else if (event->bytes == 8 && memcmp(event->data, "question", 8) == 0)
            ASSERT(fabric_send(event->conn, &answer, 1, FABRIC_COPY, 0) <= 0);
        fabric_message_release(event->conn, event->message);
        break;
    case FABRIC_SEALED:
        pm_zero(&pm->pm, event->context * FABRIC_SEGMENT_BYTES, FABRIC_SEGMENT_BYTES);
        ASSERT(fabric_zone_post(zone, event->context * FABRIC_SEGMENT_BYTES, event->context) == 0);
        break;
    case FABRIC_CLOSED:
        ASSERT(event->conn != conn);
        break;
    default:
        break;
    }
}

static void poll_both(void)
{
    struct fabric_endpoint *const endpoints[] = {owner, good};

    now_ns += NS_PER_MS;
    for (unsigned side = 0; side < 2; side++) {
        struct fabric_event events[8];
        const unsigned count = fabric_poll(endpoints[side], now_ns, events, 8);

        for (unsigned i = 0; i < count; i++)
            take(endpoints[side], &events[i]);
        fabric_flush(endpoints[side]);
    }
}

static void open_owner(void)
{
    uint32_t draw;
    char text[64];

    do {
        fabric_endpoint_close(owner);
        fabric_close(fabrics[0]);
        owner = NULL;
        random_entropy(&draw, sizeof draw);
        snprintf(text, sizeof text, "tcp:127.%u.%u.1:%u", 1 + draw % 250, draw / 250 % 250,
                 12000 + draw / 62500 % 16000);
        ASSERT(fabric_open(NULL, text, &fabrics[0]) == 0);
    } while (fabric_endpoint_open(fabrics[0], 0, &owner) != 0);
    address = ((struct tcp_fabric *)fabrics[0])->address.v4;
    ASSERT(fabric_register(fabrics[0], &pm->pm) == 0);
    ASSERT(fabric_zone_open(owner, &pm->pm, SEGMENTS, &zone) == 0);
    for (uint32_t i = 0; i < SEGMENTS; i++)
        ASSERT(fabric_zone_post(zone, (uint64_t)i * FABRIC_SEGMENT_BYTES, i) == 0);
    ASSERT(fabric_open("tcp", NULL, &fabrics[1]) == 0);
    ASSERT(fabric_endpoint_open(fabrics[1], 0, &good) == 0);
    fabric_endpoint_identity(good, &(struct fabric_identity){.kind = FABRIC_CLIENT});
    ASSERT(fabric_connect(good, text, 0, 0, &conn) == 0);
    for (unsigned i = 0; connected == 0 && i < POLLS; i++)
        poll_both();
    ASSERT(connected == 1);
}

static int greet(enum tcp_greeting_kind kind, uint64_t token, struct tcp_greeting *welcome)
{
    struct tcp_greeting hello = raw_hello(9, token);
    const int fd = raw_connect(&address);
    int got = 0;

    hello.kind = kind;
    ASSERT(fd >= 0 && raw_send(fd, &hello, sizeof hello));
    for (unsigned i = 0; got == 0 && i < POLLS; i++) {
        poll_both();
        got = raw_receive(fd, welcome, sizeof *welcome);
    }
    ASSERT(got == 1 && welcome->error == 0);
    return fd;
}

static void send_pieces(int fd, uint8_t seed, const uint8_t *data, size_t size)
{
    struct random random;

    random_init(&random, seed);
    while (size > 0) {
        const size_t most = random_below(&random, 2) == 0 ? 9 : 3000;
        size_t piece = 1 + random_below(&random, most);

        piece = piece < size ? piece : size;
        if (send(fd, data, piece, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)piece)
            return; /* thrown out */
        data += piece;
        size -= piece;
        poll_both();
    }
}

static void send_frame_head(int fd, const uint8_t **data, size_t *size)
{
    uint8_t head[TCP_FRAME_HEAD_BYTES];
    uint32_t sizes[FRAME_BLOCKS];

    if (*size < FRAME_BLOCKS)
        return;
    for (unsigned i = 0; i < FRAME_BLOCKS; i++)
        sizes[i] = 64 * (1 + (uint32_t)(*data)[i]);
    *data += FRAME_BLOCKS;
    *size -= FRAME_BLOCKS;
    send_pieces(fd, 0, head, raw_frame_head(head, sizes, FRAME_BLOCKS));
}

/* A socket for bulk writes, and something that is granted; a head that is right, too, or nothing yet. */
static int open_bulk(bool with_head, uint64_t token, uint64_t *offset)
{
    struct tcp_greeting welcome;
    const uint32_t before = accepted;
    struct fabric_grant grant;
    int fd;

    for (unsigned i = 0; raw == NULL && accepted == before && i < POLLS; i++)
        poll_both();
    ASSERT(raw);
    *offset = (uint64_t)SEGMENTS * FABRIC_SEGMENT_BYTES;
    ASSERT(fabric_grant(raw, *offset, GRANT_BYTES, 0, &grant) == 0);
    fd = greet(GREETING_BULK, token, &welcome);
    if (with_head) {
        const struct tcp_write_head head = {
            .magic = TCP_WRITE_MAGIC, .bytes = 1024, .key = grant.words[0], .at = 64};

        send_pieces(fd, 1, (const uint8_t *)&head, sizeof head);
    }
    return fd;
}

static bool is_zero(uint64_t offset, uint64_t bytes)
{
    const uint8_t *at = pm_at(&pm->pm, offset);

    return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

static void ask_good(void)
{
    static const struct fabric_iov question = {.data = "question", .bytes = 8};
    const uint32_t before = answered;

    ASSERT(fabric_send(conn, &question, 1, FABRIC_COPY, 0) == 0);
    for (unsigned i = 0; answered == before && i < POLLS; i++)
        poll_both();
    ASSERT(answered == before + 1);
}

static void feed(enum what what, uint8_t seed, const uint8_t *data, size_t size)
{
    const struct tcp_endpoint *endpoint = (struct tcp_endpoint *)owner;
    struct tcp_greeting welcome;
    int messages = -1, blocks = -1, bulk = -1;
    const uint32_t ended = revoked;
    uint64_t offset = 0;

    raw = NULL;

    if (what == GREETING) {
        messages = raw_connect(&address);
        ASSERT(messages >= 0);
        send_pieces(messages, seed, data, size);
    } else {
        messages = greet(GREETING_MESSAGES, 0, &welcome);
        ASSERT(welcome.zone == 1);
        const uint64_t token = welcome.token;

        blocks = greet(GREETING_BLOCKS, token, &welcome);
        if (what >= BULK)
            bulk = open_bulk(what == WRITES, token, &offset);
        if (what == FRAMES)
            send_frame_head(blocks, &data, &size);
        send_pieces(what == MESSAGES ? messages : what >= BULK ? bulk : blocks, seed, data, size);
    }
    poll_both();
    ask_good();
    close(messages);
    if (blocks >= 0)
        close(blocks);
    if (bulk >= 0)
        close(bulk);
    for (unsigned i = 0; endpoint->counts[LIST_ALL] > 1 && i < POLLS; i++)
        poll_both();
    ASSERT(endpoint->counts[LIST_ALL] == 1 && endpoint->counts[LIST_CUT] == 0);
    for (unsigned i = 0; bulk >= 0 && revoked == ended && i < POLLS; i++)
        poll_both();
    ASSERT(revoked == ended + (bulk >= 0));
    if (bulk >= 0) {
        ASSERT(is_zero(offset, 64) &&
               is_zero(offset + GRANT_BYTES, FABRIC_SEGMENT_BYTES - GRANT_BYTES));
        pm_zero(&pm->pm, offset, GRANT_BYTES);
    }
    ASSERT(endpoint->zone_members == 0 && endpoint->out_count == endpoint->free_out_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!owner) {
        log_set_level(LOG_ERROR);
        pm = heap_pm_create((uint64_t)(SEGMENTS + 1) * FABRIC_SEGMENT_BYTES);
        open_owner();
    }
    if (size < 2)
        return 0;
    feed((enum what)((data[0] & 7) % WHATS), data[1], data + 2, size - 2);
    return 0;
}
