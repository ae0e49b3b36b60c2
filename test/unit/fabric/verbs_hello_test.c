/* verbs_hello_test.c - the bytes of the verbs handshake: written down by hand, and what a peer may not say. */
#include "common/base/error.h"
#include "common/fabric/verbs/verbs_hello.h"
#include "test/lib/unit.h"

static const uint8_t golden[sizeof(struct verbs_hello)] = {
    'V',  'R',  'B',  'R',  'W',  'A',  'N',  '1',  /* */
    0x03, 0,    0,    0,    0x03, 0,    0,    0,    /* lowest and highest layout */
    0x01, 0,    0,    0,    0,    0,    0,    0,    /* hello, no error */
    0,    0,    0,    0,    0,    0,    0,    0,    /* GID ::ffff:10.1.1.2 */
    0,    0,    0xff, 0xff, 10,   1,    1,    2,    /* */
    0x34, 0x12, 0,    0,    0x00, 0x04, 0,    0,    /* LID, MTU 1024 */
    0x56, 0x34, 0x12, 0,    0x11, 0x22, 0x33, 0x44, /* datagrams: queue pair, key */
    0xff, 0x3f, 0,    0,    0xef, 0xbe, 0xad, 0xde, /* connection 16383, token */
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /* RC: the fence's address */
    0xdd, 0xcc, 0xbb, 0xaa, 0x03, 0x02, 0x01, 0,    /* and key; the queue pair for blocks */
    0x06, 0x05, 0x04, 0,    0x02, 0,    0,    0,    /* PSN; a zone of whole segments */
    0x00, 0x01, 0,    0,    0x10, 0,    0,    0,    /* of blocks of 256 B; 16 reads */
    0x0c, 0,    0,    0,    0,    0,    0,    0,    /* the timeout; zeros to the end */
};

static struct verbs_hello make(enum verbs_hello_kind kind, int error)
{
    struct verbs_hello hello = verbs_hello_make(kind);

    hello.error = error;
    if (kind != VERBS_HELLO)
        return hello;
    memcpy(hello.gid, (const uint8_t[16]){[10] = 0xff, 0xff, 10, 1, 1, 2}, 16);
    hello.lid = 0x1234;
    hello.mtu = 1024;
    hello.ud_number = 0x123456;
    hello.ud_key = 0x44332211;
    hello.connection = 16383;
    hello.token = 0xdeadbeef;
    hello.rc = (struct verbs_rc_hello){.qp_number = 0x010203,
                                       .psn = 0x040506,
                                       .zone = VERBS_ZONE_OF_SEGMENTS,
                                       .timeout = 12,
                                       .block_limit = 256,
                                       .reads = 16,
                                       .fence_address = UINT64_C(0x0102030405060708),
                                       .fence_key = 0xaabbccdd};
    return hello;
}

TEST(a_hello_has_these_bytes_and_is_read_back)
{
    const struct verbs_hello hello = make(VERBS_HELLO, 0);
    struct verbs_hello found;
    uint32_t layout = 0;

    assert_memory_equal(&hello, golden, sizeof golden);
    assert_int_equal(verbs_hello_read(golden, sizeof golden, &found, &layout), 0);
    assert_memory_equal(&found, golden, sizeof golden);
    assert_int_equal(layout, 3);
}

/* The hello with `bytes` (4 at most) of `value` at `at`. */
static void read_as(int expected, const void *from, uint32_t at, uint32_t value, unsigned bytes)
{
    uint8_t bad[sizeof golden];
    struct verbs_hello hello = {.mtu = 77};
    uint32_t layout = 88;

    memcpy(bad, from, sizeof bad);
    memcpy(bad + at, &value, bytes);
    assert_int_equal(verbs_hello_read(bad, sizeof bad, &hello, &layout), expected);
    assert_true(expected == 0 || (hello.mtu == 77 && layout == 88));
}

TEST(what_no_peer_says_is_refused)
{
    static const struct {
        uint32_t at, value;
    } rows[] = {
        {0, 0x42524257},                                         /* magic */
        {16, 0},          {16, 4},                               /* kind */
        {20, UINT32_MAX},                                        /* an error in a hello */
        {40, 1 << 16},                                           /* LID */
        {44, 0},          {44, 128},     {44, 1500}, {44, 8192}, /* MTU */
        {48, 0},          {48, 1 << 24},                         /* queue pairs have 24 bits */
        {56, 16384},                                             /* connection */
        {76, 1 << 24},    {76, 0},   /* no queue pair, yet all else of it */
        {80, 1 << 24},    {84, 3},   /* PSN; kind of zone */
        {84, 0},                     /* no zone, yet a timeout */
        {92, 0},          {92, 256}, /* reads */
        {96, 0},          {96, 9},       {96, 19},   {96, 256 + 12}, /* timeout */
    };

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
        read_as(ROWAN_EFORMAT, golden, rows[i].at, rows[i].value, 4);
    for (uint32_t at = 100; at < sizeof golden; at++)
        read_as(ROWAN_EFORMAT, golden, at, 1, 1);
}

TEST(ready_and_refusal_say_nothing_else)
{
    static const struct {
        enum verbs_hello_kind kind;
        int said, expected;
    } rows[] = {
        {VERBS_READY, 0, 0},
        {VERBS_READY, ROWAN_ETOOMANY, ROWAN_EFORMAT},
        {VERBS_REFUSAL, ROWAN_ETOOMANY, 0},
        {VERBS_REFUSAL, 0, ROWAN_EFORMAT}, /* without a reason */
        {VERBS_REFUSAL, 5, ROWAN_EFORMAT},
        {VERBS_REFUSAL, -1001, ROWAN_EFORMAT},
    };

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct verbs_hello said = make(rows[i].kind, rows[i].said);

        read_as(rows[i].expected, &said, 20, (uint32_t)rows[i].said, 4);
        for (uint32_t at = 24; at < sizeof said; at += 4)
            read_as(ROWAN_EFORMAT, &said, at, 1, 4);
    }
}

/* Whatever another version has behind the layouts, and however much of it. */
TEST(layouts_decide_before_anything_else_is_looked_at)
{
    uint8_t bytes[200] = {0};
    struct verbs_hello hello;
    uint32_t layout = 0;

    memcpy(bytes, golden, 16);
    for (size_t count = 0; count < sizeof bytes; count++)
        assert_int_equal(verbs_hello_read(bytes, count, &hello, &layout), ROWAN_EFORMAT);
    bytes[8] = bytes[12] = 4; /* newer */
    for (size_t count = 16; count <= sizeof bytes; count += 92)
        assert_int_equal(verbs_hello_read(bytes, count, &hello, &layout), ROWAN_EINCOMPATIBLE);
    read_as(0, golden, 12, 9, 4); /* 3 to 9 */
    read_as(ROWAN_EINCOMPATIBLE, golden, 12, 2, 4);
}

UNIT_MAIN(NULL, NULL)
