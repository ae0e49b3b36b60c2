/* tcp_fuzz.c - arbitrary bytes from a peer of the tcp fabric, in pieces of arbitrary sizes, on a real
 * socket: instead of a greeting, as messages, as blocks, as blocks of a frame that is right so far, as bulk
 * writes, as bytes of one that is inside of a grant, and as bytes of one with the grant's key and any place.
 * After each input the endpoint has forgotten that peer, and another one is served as ever.
 *
 *   byte 0     what the bytes are (3 bits)
 *   byte 1     sizes of the pieces are drawn from this seed
 *   the rest   what is sent
 */
#include "common/base/log.h"
#include "common/fabric/tcp/tcp.h"
#include "test/fuzz/fabric_fuzz.h"
#include "test/lib/heap_pm.h"
#include "test/lib/tcp_raw.h"

enum { SEGMENTS = 4, /* and one more in the PM */ FRAME_BLOCKS = 3 };
enum what { GREETING, MESSAGES, BLOCKS, FRAMES, BULK, WRITES, HEADS, WHATS };

/* What the peer of a bulk write is granted: in the last segment, which is not posted. */
enum { GRANT_BYTES = 4096 };

static struct heap_pm *pm;
static struct fabric_zone *zone;
static struct sockaddr_in address;
static uint32_t accepted, revoked;
static struct fabric_conn *raw; /* accepted last */

static void handle_event(enum fuzz_side side, const struct fabric_event *event)
{
    (void)side;
    switch (event->kind) {
    case FABRIC_ACCEPTED:
        accepted++;
        raw = event->conn;
        break;
    case FABRIC_REVOKED:
        revoked++;
        break;
    case FABRIC_SEALED:
        pm_zero(&pm->pm, event->context * FABRIC_SEGMENT_BYTES, FABRIC_SEGMENT_BYTES);
        ASSERT(fabric_zone_post(zone, event->context * FABRIC_SEGMENT_BYTES, event->context) == 0);
        break;
    default:
        break;
    }
}

static void open_all(void)
{
    fuzz.handle = handle_event;
    fuzz_open_owner("tcp");
    address = ((struct tcp_fabric *)fuzz.fabrics[OWNER])->address.v4;
    pm = heap_pm_create((uint64_t)(SEGMENTS + 1) * FABRIC_SEGMENT_BYTES);
    ASSERT(fabric_register(fuzz.fabrics[OWNER], &pm->pm) == 0);
    ASSERT(fabric_zone_open(fuzz.endpoints[OWNER], &pm->pm, SEGMENTS, &zone) == 0);
    for (uint32_t i = 0; i < SEGMENTS; i++)
        ASSERT(fabric_zone_post(zone, (uint64_t)i * FABRIC_SEGMENT_BYTES, i) == 0);
    fuzz_open_peer("tcp", GOOD);
    fuzz_connect(GOOD, &fuzz.conn);
}

static int greet(enum tcp_greeting_kind kind, uint64_t token, struct tcp_greeting *welcome)
{
    struct tcp_greeting hello = raw_hello(9, token);
    const int fd = raw_connect(&address);
    int got = 0;

    hello.kind = kind;
    ASSERT(fd >= 0 && raw_send(fd, &hello, sizeof hello));
    for (unsigned i = 0; got == 0 && i < FUZZ_POLLS; i++) {
        fuzz_poll();
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
        fuzz_poll();
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

/* Length and place of a write, up to 4 MiB. */
static void read_head(struct tcp_write_head *head, const uint8_t **data, size_t *size)
{
    if (*size < 4)
        return;
    head->bytes = 64 * ((*data)[0] | (uint32_t)(*data)[1] << 8);
    head->at = 64 * ((*data)[2] | (uint64_t)(*data)[3] << 8);
    *data += 4;
    *size -= 4;
}

/* Opens a socket for bulk writes with a grant. `head`: sends the head of a write under it, too, or NULL. */
static int open_bulk(struct tcp_write_head *head, uint64_t token, uint64_t *offset)
{
    struct tcp_greeting welcome;
    const uint32_t before = accepted;
    struct fabric_grant grant;
    int fd;

    for (unsigned i = 0; raw == NULL && accepted == before && i < FUZZ_POLLS; i++)
        fuzz_poll();
    ASSERT(raw);
    *offset = (uint64_t)SEGMENTS * FABRIC_SEGMENT_BYTES;
    ASSERT(fabric_grant(raw, *offset, GRANT_BYTES, 0, &grant) == 0);
    fd = greet(GREETING_BULK, token, &welcome);
    if (head) {
        head->key = grant.words[0];
        send_pieces(fd, 1, (const uint8_t *)head, sizeof *head);
    }
    return fd;
}

static bool is_zero(uint64_t offset, uint64_t bytes)
{
    const uint8_t *at = pm_at(&pm->pm, offset);

    return at[0] == 0 && memcmp(at, at + 1, bytes - 1) == 0;
}

static void feed(enum what what, uint8_t seed, const uint8_t *data, size_t size)
{
    const struct tcp_endpoint *endpoint = (struct tcp_endpoint *)fuzz.endpoints[OWNER];
    struct tcp_write_head head = {.magic = TCP_WRITE_MAGIC, .bytes = 1024, .at = 64};
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
        if (what == HEADS)
            read_head(&head, &data, &size);
        if (what >= BULK)
            bulk = open_bulk(what >= WRITES ? &head : NULL, token, &offset);
        if (what == FRAMES)
            send_frame_head(blocks, &data, &size);
        send_pieces(what == MESSAGES ? messages : what >= BULK ? bulk : blocks, seed, data, size);
    }
    fuzz_poll();
    fuzz_ask_good();
    close(messages);
    if (blocks >= 0)
        close(blocks);
    if (bulk >= 0)
        close(bulk);
    for (unsigned i = 0; endpoint->base.counts[LIST_ALL] > 1 && i < FUZZ_POLLS; i++)
        fuzz_poll();
    ASSERT(endpoint->base.counts[LIST_ALL] == 1 && endpoint->base.counts[LIST_CUT] == 0);
    for (unsigned i = 0; bulk >= 0 && revoked == ended && i < FUZZ_POLLS; i++)
        fuzz_poll();
    ASSERT(revoked == ended + (bulk >= 0));
    if (bulk >= 0) {
        ASSERT((what == HEADS || is_zero(offset, 64)) &&
               is_zero(offset + GRANT_BYTES, FABRIC_SEGMENT_BYTES - GRANT_BYTES));
        pm_zero(&pm->pm, offset, GRANT_BYTES);
    }
    ASSERT(endpoint->zone_members == 0 && endpoint->out_count == endpoint->free_out_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!fuzz.conn) {
        log_set_level(LOG_ERROR);
        open_all();
    }
    if (size < 2)
        return 0;
    feed((enum what)((data[0] & 7) % WHATS), data[1], data + 2, size - 2);
    return 0;
}
