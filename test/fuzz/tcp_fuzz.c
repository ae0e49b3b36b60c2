/* tcp_fuzz.c - arbitrary bytes from a peer of the tcp fabric, in pieces of arbitrary sizes, on a real
 * socket: instead of a greeting, as messages, as blocks, and as blocks of a frame that is right so far. After
 * each input the endpoint has forgotten that peer, and another one is served as ever.
 *
 *   byte 0     what the bytes are (2 bits)
 *   byte 1     sizes of the pieces are drawn from this seed
 *   the rest   what is sent
 */
#include "common/base/log.h"
#include "common/fabric/tcp/tcp.h"
#include "test/fuzz/fabric_fuzz.h"
#include "test/lib/heap_pm.h"
#include "test/lib/tcp_raw.h"

enum { SEGMENTS = 4, FRAME_BLOCKS = 3 };
enum what { GREETING, MESSAGES, BLOCKS, FRAMES };

static struct heap_pm *pm;
static struct fabric_zone *zone;
static struct sockaddr_in address;

static void handle_event(enum fuzz_side side, const struct fabric_event *event)
{
    (void)side;
    if (event->kind != FABRIC_SEALED)
        return;
    pm_zero(&pm->pm, event->context * FABRIC_SEGMENT_BYTES, FABRIC_SEGMENT_BYTES);
    ASSERT(fabric_zone_post(zone, event->context * FABRIC_SEGMENT_BYTES, event->context) == 0);
}

static void open_all(void)
{
    fuzz.handle = handle_event;
    fuzz_open_owner("tcp");
    address = ((struct tcp_fabric *)fuzz.fabrics[OWNER])->address.v4;
    pm = heap_pm_create((uint64_t)SEGMENTS * FABRIC_SEGMENT_BYTES);
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

static void feed(enum what what, uint8_t seed, const uint8_t *data, size_t size)
{
    const struct tcp_endpoint *endpoint = (struct tcp_endpoint *)fuzz.endpoints[OWNER];
    struct tcp_greeting welcome;
    int messages, blocks = -1;

    if (what == GREETING) {
        messages = raw_connect(&address);
        ASSERT(messages >= 0);
        send_pieces(messages, seed, data, size);
    } else {
        messages = greet(GREETING_MESSAGES, 0, &welcome);
        ASSERT(welcome.zone == 1);
        blocks = greet(GREETING_BLOCKS, welcome.token, &welcome);
        if (what == FRAMES)
            send_frame_head(blocks, &data, &size);
        send_pieces(what == MESSAGES ? messages : blocks, seed, data, size);
    }
    fuzz_poll();
    fuzz_ask_good();
    close(messages);
    if (blocks >= 0)
        close(blocks);
    for (unsigned i = 0; endpoint->base.counts[LIST_ALL] > 1 && i < FUZZ_POLLS; i++)
        fuzz_poll();
    ASSERT(endpoint->base.counts[LIST_ALL] == 1 && endpoint->base.counts[LIST_CUT] == 0);
    ASSERT(endpoint->zone_members == 0 &&
           endpoint->slabs.counts[SLAB_OUT] == endpoint->slabs.free_count[SLAB_OUT]);
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
    feed((enum what)(data[0] & 3), data[1], data + 2, size - 2);
    return 0;
}
