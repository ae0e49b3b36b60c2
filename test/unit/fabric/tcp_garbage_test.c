/* tcp_garbage_test.c - a peer that sends bytes as it likes: cut anywhere, stopped anywhere, or plain
 * nonsense. What is right arrives, what is not costs that peer its connection, and another one goes on.
 */
#define TEST_FIXTURE open_all, close_all

#include "common/base/error.h"
#include "common/fabric/tcp/tcp.h"
#include "test/lib/tcp_raw.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { OWNER, OTHER, RAW, SIDES = 2 };
enum { PM_BYTES = 32 << 20, SEGMENT = FABRIC_SEGMENT_BYTES, STREAM_BYTES = 1 << 20 };

static struct fabric_conn *other, *other_passive;
static uint32_t other_blocks;
static uint8_t stream[STREAM_BYTES];

/* The raw peer's sockets. */
static int messages, blocks;
static struct tcp_greeting welcome;

static int open_all(void **state)
{
    (void)state;
    open_host(OVER_TCP, SIDES, PM_BYTES);
    messages = blocks = -1;
    other_blocks = 0;
    return 0;
}

static void close_raw(void)
{
    if (messages >= 0)
        close(messages);
    if (blocks >= 0)
        close(blocks);
    messages = blocks = -1;
}

static int close_all(void **state)
{
    close_raw();
    return close_host(state);
}

static struct side *owner(void)
{
    return &world.sides[OWNER];
}

/* Polls until the owner's answer is there. */
static void wait_welcome(int fd)
{
    int got;

    for (unsigned i = 0; (got = raw_receive(fd, &welcome, sizeof welcome)) == 0 && i < 100000; i++)
        world_poll(&world);
    assert_int_equal(got, 1);
    assert_int_equal(welcome.kind, GREETING_WELCOME);
}

static void wait_closed(int fd)
{
    for (unsigned i = 0; !raw_is_closed(fd) && i < 100000; i++)
        world_poll(&world);
    assert_true(raw_is_closed(fd));
}

/* A connection as a server's, both sockets where there is a zone. */
static void shake_hands(void)
{
    const uint32_t accepted = side_count(owner(), FABRIC_ACCEPTED);
    struct tcp_greeting hello = raw_hello(RAW, 0);

    messages = host_connect();
    assert_true(raw_send(messages, &hello, sizeof hello));
    wait_welcome(messages);
    assert_int_equal(welcome.error, 0);
    if (welcome.zone) {
        hello = raw_hello(RAW, welcome.token);
        blocks = host_connect();
        assert_true(raw_send(blocks, &hello, sizeof hello));
        wait_welcome(blocks);
        assert_int_equal(welcome.error, 0);
    }
    world_wait(&world, OWNER, FABRIC_ACCEPTED, accepted + 1);
    assert_int_equal(side_event(owner(), FABRIC_ACCEPTED, accepted)->peer.id, RAW);
}

/* A block as world_add_block makes them. */
static uint32_t raw_block(uint8_t *to, uint32_t number, uint32_t bytes)
{
    block_fill(to, RAW, number, bytes);
    return bytes;
}

static uint32_t raw_frame(uint8_t *to, uint32_t first, const uint32_t *sizes, uint32_t count)
{
    uint32_t bytes = raw_frame_head(to, sizes, count);

    for (uint32_t i = 0; i < count; i++)
        bytes += raw_block(to + bytes, first + i, sizes[i]);
    return bytes;
}

static void wait_acknowledged(uint64_t count)
{
    uint64_t ack = 0;

    for (unsigned i = 0; ack < count && i < 1000000; i++) {
        raw_receive(blocks, &ack, sizeof ack);
        world_poll(&world);
    }
    assert_int_equal(ack, count);
}

static void connect_other(void)
{
    world_connect(&world, OTHER, OWNER, 0, &other, &other_passive);
}

/* Another peer of the owner lands a block and is answered. */
static void other_works(void)
{
    const uint32_t landed = side_count(&world.sides[OTHER], FABRIC_LANDED);
    const uint32_t got = side_count(owner(), FABRIC_MESSAGE);
    const struct fabric_iov iov = {.data = "still here", .bytes = 10};

    if (other->has_zone) {
        assert_int_equal(world_add_block(&world, OTHER, other, 0, other_blocks++, 128), 0);
        assert_int_equal(fabric_rowan_post(other, 0), 0);
        world_wait(&world, OTHER, FABRIC_LANDED, landed + 1);
    }
    assert_int_equal(fabric_send(other, &iov, 1), 0);
    world_wait(&world, OWNER, FABRIC_MESSAGE, got + 1);
    fabric_message_release(other_passive, side_event(owner(), FABRIC_MESSAGE, got)->message);
}

/* --- cut anywhere --- */

TEST(blocks_cut_at_every_byte_land)
{
    static const uint32_t first[] = {64, 192, 64}, second[] = {128};
    uint32_t bytes;

    bytes = raw_frame(stream, 0, first, 3);
    bytes += raw_frame(stream + bytes, 3, second, 1);
    side_open_zone(&world, OWNER, 4, 4);
    for (uint32_t cut = 0; cut <= bytes; cut++) {
        uint64_t at = (uint64_t)cut * 448; /* round after round they lie behind each other */

        shake_hands();
        assert_true(raw_send(blocks, stream, cut));
        world_poll_times(&world, 3);
        assert_true(raw_send(blocks, stream + cut, bytes - cut));
        wait_acknowledged(4);
        close_raw();
        world_wait(&world, OWNER, FABRIC_CLOSED, cut + 1);
        for (uint32_t i = 0; i < 4; i++) {
            struct block_head head;

            assert_true(block_is_whole(pm_at(owner()->pm, at), SEGMENT - at, &head));
            assert_int_equal(head.number, i);
            at += head.bytes;
        }
        assert_int_equal(owner()->pm->base[at], 0);
    }
}

static void blocks_that_come_byte_by_byte_land(uint32_t posted)
{
    static const uint32_t sizes[] = {64, 1024, 128};
    uint32_t next[SIDE_MAX] = {0};
    const uint32_t bytes = raw_frame(stream, 0, sizes, 3);

    side_open_zone(&world, OWNER, 4, posted);
    shake_hands();
    for (uint32_t i = 0; i < bytes; i++) {
        assert_true(raw_send(blocks, stream + i, 1));
        side_poll(&world, OWNER);
    }
    wait_acknowledged(3);
    assert_int_equal(world_walk_zone(&world, OWNER, 1, next), 3);
}

WORLD_CASE(blocks_that_come_byte_by_byte_land_with_room, blocks_that_come_byte_by_byte_land(4))
WORLD_CASE(blocks_that_come_byte_by_byte_land_in_the_last_segment,
           blocks_that_come_byte_by_byte_land(1))

/* Frames of all sizes, sent in pieces of all sizes, while segments come late. */
TEST(blocks_in_random_pieces_land_in_order)
{
    enum { BLOCKS = 3000, SEGMENTS = 7 };
    static uint8_t frame[TCP_FRAME_HEAD_BYTES + 40 * 65536];
    uint32_t next[SIDE_MAX] = {0}, made = 0, posted = 0, length = 0, sent = 0;
    struct random random;
    uint64_t ack = 0;

    random_init(&random, 11);
    side_open_zone(&world, OWNER, 8, 0);
    shake_hands();
    for (uint32_t turn = 0; ack < BLOCKS && turn < 4000000; turn++) {
        if (sent == length && made < BLOCKS) {
            uint32_t sizes[40], count = 1 + (uint32_t)random_below(&random, 40);

            count = count < BLOCKS - made ? count : BLOCKS - made;
            for (uint32_t i = 0; i < count; i++)
                sizes[i] = 64 * (1 + (uint32_t)random_below(
                                         &random, random_below(&random, 20) == 0 ? 1024 : 40));
            length = raw_frame(frame, made, sizes, count);
            made += count;
            sent = 0;
        }
        if (sent < length) {
            const uint32_t most = random_below(&random, 3) == 0 ? 30 : 60000;
            uint32_t piece = 1 + (uint32_t)random_below(&random, most);
            ssize_t taken;

            piece = piece < length - sent ? piece : length - sent;
            taken = send(blocks, frame + sent, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
            sent += taken > 0 ? (uint32_t)taken : 0;
        }
        if (random_below(&random, 400) == 0 && posted < SEGMENTS) {
            assert_int_equal(fabric_zone_post(owner()->zone, (uint64_t)posted * SEGMENT, posted),
                             0);
            posted++;
        }
        side_poll(&world, OWNER);
        raw_receive(blocks, &ack, sizeof ack);
    }
    assert_int_equal(ack, BLOCKS);
    assert_int_equal(world_walk_zone(&world, OWNER, SEGMENTS, next), BLOCKS);
}

/* Each frame would fit into the buffer, and its block not into the zone. */
TEST(small_frames_that_find_the_zone_full_wait)
{
    enum { SMALL = 3 << 10, FITS = SEGMENT / SMALL, COUNT = FITS + 20 };

    side_open_zone(&world, OWNER, 4, 1);
    connect_other();
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint64_t at = (uint64_t)i * SMALL;

        assert_int_equal(world_add_block(&world, OTHER, other, at, i, SMALL), 0);
        assert_int_equal(fabric_rowan_post(other, i), 0);
        fabric_flush(world.sides[OTHER].endpoint);
        if (i % 50 == 0)
            world_poll(&world);
        while (fabric_rowan_room(other) == 0)
            world_poll(&world);
    }
    world_wait(&world, OTHER, FABRIC_LANDED, FITS);
    world_poll_times(&world, 300);
    assert_int_equal(side_count(&world.sides[OTHER], FABRIC_LANDED), FITS);
    assert_int_equal(fabric_zone_post(owner()->zone, SEGMENT, 1), 0);
    world_wait(&world, OTHER, FABRIC_LANDED, COUNT);
    assert_int_equal(world_walk_zone(&world, OWNER, 2, (uint32_t[SIDE_MAX]){0}), COUNT);
}

TEST(messages_cut_at_every_byte_arrive)
{
    static uint8_t text[70000];
    const uint32_t sizes[] = {5, 0, 24};
    uint32_t bytes = 0, got = 0;

    pattern_fill(text, sizeof text, 1);
    for (uint32_t i = 0; i < 3; i++)
        bytes += raw_message(stream + bytes, i, text, sizes[i]);
    for (uint32_t cut = 0; cut <= bytes; cut++) {
        shake_hands();
        assert_true(raw_send(messages, stream, cut));
        world_poll_times(&world, 3);
        assert_true(raw_send(messages, stream + cut, bytes - cut));
        world_wait(&world, OWNER, FABRIC_MESSAGE, got + 3);
        for (uint32_t i = 0; i < 3; i++) {
            const struct fabric_event *event = side_event(owner(), FABRIC_MESSAGE, got++);

            assert_int_equal(event->bytes, sizes[i]);
            assert_memory_equal(event->data, text, sizes[i]);
            assert_int_equal((uintptr_t)event->data % 8, 0);
            fabric_message_release(event->conn, event->message);
        }
        close_raw();
        world_wait(&world, OWNER, FABRIC_CLOSED, cut + 1);
    }
}

TEST(a_greeting_cut_at_every_byte_is_answered)
{
    const struct tcp_greeting hello = raw_hello(RAW, 0);

    for (uint32_t cut = 0; cut <= sizeof hello; cut++) {
        messages = host_connect();
        assert_true(raw_send(messages, &hello, cut));
        world_poll_times(&world, 3);
        assert_true(raw_send(messages, (const uint8_t *)&hello + cut, sizeof hello - cut));
        wait_welcome(messages);
        assert_int_equal(welcome.error, 0);
        close_raw();
        world_wait(&world, OWNER, FABRIC_CLOSED, cut + 1);
    }
}

/* --- nonsense --- */

/* Sends `bytes` of the stream on a fresh connection's socket and sees it closed with EFORMAT. */
static void is_thrown_out(bool on_blocks, uint32_t bytes)
{
    const uint32_t closed = side_count(owner(), FABRIC_CLOSED);

    shake_hands();
    assert_true(raw_send(on_blocks ? blocks : messages, stream, bytes));
    world_wait(&world, OWNER, FABRIC_CLOSED, closed + 1);
    assert_int_equal(side_event(owner(), FABRIC_CLOSED, closed)->error, ROWAN_EFORMAT);
    wait_closed(messages);
    close_raw();
    other_works();
}

TEST(lengths_of_blocks_that_lie_end_the_connection)
{
    static const uint32_t none[] = {64, 0, 64}, beyond[] = {TCP_BLOCK_BYTES + 64},
                          wrapped[] = {UINT16_MAX * 64};

    side_open_zone(&world, OWNER, 4, 4);
    connect_other();
    is_thrown_out(true, raw_frame_head(stream, none, 3));
    is_thrown_out(true, raw_frame_head(stream, beyond, 1));
    is_thrown_out(true, raw_frame_head(stream, wrapped, 1));
}

TEST(heads_of_frames_that_lie_end_the_connection)
{
    struct tcp_frame_head heads[] = {
        {.magic = TCP_FRAME_MAGIC, .blocks = 0},
        {.magic = TCP_FRAME_MAGIC, .blocks = TCP_FRAME_BLOCKS + 1},
        {.magic = TCP_FRAME_MAGIC, .blocks = UINT16_MAX},
        {.magic = TCP_FRAME_MAGIC, .blocks = 1, .zero = 1},
        {.magic = TCP_FRAME_MAGIC ^ 0x100, .blocks = 1},
        {.magic = 0, .blocks = 1},
    };

    side_open_zone(&world, OWNER, 4, 4);
    connect_other();
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        memcpy(stream, &heads[i], sizeof heads[i]);
        is_thrown_out(true, sizeof heads[i]);
    }
}

TEST(heads_of_messages_that_lie_end_the_connection)
{
    const struct tcp_message_head heads[] = {
        {.magic = TCP_MESSAGE_MAGIC, .bytes = FABRIC_MAX_MESSAGE_BYTES + 1},
        {.magic = TCP_MESSAGE_MAGIC, .bytes = UINT32_MAX},
        {.magic = TCP_MESSAGE_MAGIC, .bytes = UINT32_MAX - 7},
        {.magic = TCP_MESSAGE_MAGIC, .bytes = 8, .number = 1},
        {.magic = TCP_MESSAGE_MAGIC ^ 1, .bytes = 8},
    };

    connect_other();
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        memcpy(stream, &heads[i], sizeof heads[i]);
        is_thrown_out(false, sizeof heads[i]);
    }
}

TEST(messages_before_the_nonsense_arrive)
{
    const uint32_t bytes = raw_message(stream, 0, "right", 5);

    memset(stream + bytes, 0x5a, 64);
    shake_hands();
    assert_true(raw_send(messages, stream, bytes + 64));
    world_wait(&world, OWNER, FABRIC_CLOSED, 1);
    assert_int_equal(side_count(owner(), FABRIC_MESSAGE), 1);
    assert_memory_equal(side_event(owner(), FABRIC_MESSAGE, 0)->data, "right", 5);
}

TEST(garbage_instead_of_a_greeting_is_closed_at_once)
{
    struct random random;

    connect_other();
    random_init(&random, 5);
    for (uint32_t round = 0; round < 200; round++) {
        const uint32_t bytes = 1 + (uint32_t)random_below(&random, 300);

        for (uint32_t i = 0; i < bytes; i++)
            stream[i] = (uint8_t)random_u64(&random);
        stream[0] |= 0x80; /* no byte of the magic has it */
        messages = host_connect();
        assert_true(raw_send(messages, stream, bytes));
        wait_closed(messages);
        close_raw();
    }
    other_works();
    assert_int_equal(side_count(owner(), FABRIC_ACCEPTED), 1);
    assert_int_equal(side_count(owner(), FABRIC_CLOSED), 0);
}

TEST(another_layout_is_told_so)
{
    struct tcp_greeting hello = raw_hello(RAW, 0);

    hello.layouts = (struct greeting_layouts){VERSION_TCP_HIGHEST + 1, VERSION_TCP_HIGHEST + 2};
    messages = host_connect();
    assert_true(raw_send(messages, &hello, sizeof hello));
    wait_welcome(messages);
    assert_int_equal(welcome.error, ROWAN_EINCOMPATIBLE);
    assert_int_equal(welcome.layouts.highest, VERSION_TCP_HIGHEST);
    wait_closed(messages);
    assert_int_equal(owner()->event_count, 0);
}

TEST(a_newer_peer_that_speaks_our_layout_too_is_welcome)
{
    struct tcp_greeting hello = raw_hello(RAW, 0);

    hello.layouts = (struct greeting_layouts){VERSION_TCP_HIGHEST, VERSION_TCP_HIGHEST + 5};
    messages = host_connect();
    assert_true(raw_send(messages, &hello, sizeof hello));
    wait_welcome(messages);
    assert_int_equal(welcome.error, 0);
    assert_int_equal(((struct conn *)side_event(owner(), FABRIC_ACCEPTED, 0)->conn)->layout,
                     VERSION_TCP_HIGHEST);
}

TEST(a_wrong_token_finds_no_connection)
{
    struct tcp_greeting hello = raw_hello(RAW, 0);

    side_open_zone(&world, OWNER, 2, 2);
    messages = host_connect();
    assert_true(raw_send(messages, &hello, sizeof hello));
    wait_welcome(messages);
    assert_int_equal(welcome.zone, 1);
    hello = raw_hello(RAW, welcome.token ^ 1);
    blocks = host_connect();
    assert_true(raw_send(blocks, &hello, sizeof hello));
    wait_closed(blocks);
    close(blocks);
    assert_int_equal(owner()->event_count, 0);
    /* The right one still does, and once only. */
    hello = raw_hello(RAW, welcome.token);
    blocks = host_connect();
    assert_true(raw_send(blocks, &hello, sizeof hello));
    world_wait(&world, OWNER, FABRIC_ACCEPTED, 1);
    close(blocks);
    blocks = host_connect();
    assert_true(raw_send(blocks, &hello, sizeof hello));
    wait_closed(blocks);
}

/* --- silence --- */

TEST(half_a_handshake_ends_after_its_time)
{
    const struct tcp_greeting hello = raw_hello(RAW, 0);
    int nothing, half;

    side_open_zone(&world, OWNER, 2, 2);
    nothing = host_connect();
    half = host_connect();
    messages = host_connect(); /* says hello, but never opens the other socket */
    assert_true(raw_send(half, &hello, 64));
    assert_true(raw_send(messages, &hello, sizeof hello));
    wait_welcome(messages);
    world_poll_times(&world, 100);
    assert_false(raw_is_closed(nothing) || raw_is_closed(half) || raw_is_closed(messages));
    host.skipped_ns += TCP_HANDSHAKE_NS + NS_PER_S;
    wait_closed(nothing);
    wait_closed(half);
    wait_closed(messages);
    assert_int_equal(owner()->event_count, 0);
    close(nothing);
    close(half);
}

enum { BYTES = 64 << 10, FIT = SEGMENT / BYTES };

/* With a block of the raw peer in it, and begins the next. */
static void other_fills_the_segment(void)
{
    for (uint32_t i = 0; i < FIT; i++) {
        assert_int_equal(world_add_block(&world, OTHER, other, 0, i, BYTES), 0);
        assert_int_equal(fabric_rowan_post(other, 0), 0);
        world_wait(&world, OTHER, FABRIC_LANDED, i + 1);
    }
}

/* The raw peer sends a frame of one block but for its last `left` bytes, and the other one goes on. What it sent. */
static uint32_t begin_a_block(uint32_t left)
{
    static const uint32_t sizes[] = {BYTES};
    const uint32_t sent = raw_frame(stream, 0, sizes, 1) - left;

    side_open_zone(&world, OWNER, 4, 4);
    connect_other();
    shake_hands();
    assert_true(raw_send(blocks, stream, sent));
    world_poll_times(&world, 50);
    other_fills_the_segment();
    return sent;
}

TEST(a_sender_stalled_in_a_block_does_not_hold_the_segment)
{
    begin_a_block(1);
    world_poll_times(&world, 100);
    assert_int_equal(side_count(owner(), FABRIC_SEALED), 0); /* its last byte may still come */
    assert_int_equal(side_count(owner(), FABRIC_CLOSED), 0);
    host.skipped_ns += TCP_CUT_NS + NS_PER_S;
    world_wait(&world, OWNER, FABRIC_SEALED, 1);
    assert_int_equal(side_event(owner(), FABRIC_CLOSED, 0)->peer.id, RAW);
    assert_true(side_event(owner(), FABRIC_SEALED, 0)->quiet);
    wait_closed(blocks);
    /* The others' blocks lie behind the space that it keeps. */
    assert_true(block_is_whole(pm_at(owner()->pm, BYTES), BYTES, &(struct block_head){0}));
    other_blocks = FIT;
    other_works();
}

TEST(a_cut_block_whose_rest_comes_in_time_lands)
{
    uint32_t sent;

    sent = begin_a_block(BYTES - 1000);
    assert_int_equal(side_count(owner(), FABRIC_SEALED), 0);
    assert_true(raw_send(blocks, stream + sent, BYTES - 1000));
    wait_acknowledged(1);
    world_wait(&world, OWNER, FABRIC_SEALED, 1);
    assert_int_equal(world_walk_segment(&world, OWNER, 0, (uint32_t[SIDE_MAX]){0}), FIT);
}

UNIT_MAIN(NULL, NULL)
