/* verbs_hello_test.c - the bytes of the verbs handshake: written down by hand, and what a peer may not say. */
#include "common/base/error.h"
#include "common/fabric/verbs/verbs_hello.h"
#include "test/lib/unit.h"

static const uint8_t golden[VERBS_HELLO_BYTES] = {
    0x56, 0x48, 0x4c, 0x4f, 0x01, 0x00, 0x01, 0x00, /* "VHLO", layout 1, hello */
    0,    0,    0,    0,    0,    0,    0,    0,    /* GID ::ffff:10.1.1.2 */
    0,    0,    0xff, 0xff, 10,   1,    1,    2,    /* */
    0x34, 0x12, 0,    0,    0x00, 0x04, 0,    0,    /* LID, MTU 1024 */
    0x56, 0x34, 0x12, 0,    0x11, 0x22, 0x33, 0x44, /* datagrams: queue pair, key */
    0xff, 0x3f, 0,    0,    0xef, 0xbe, 0xad, 0xde, /* connection 16383, token */
    0,    0,    0,    0,    0x03, 0x02, 0x01, 0,    /* no error; RC: queue pair */
    0x06, 0x05, 0x04, 0,    0x02, 0,    0,    0,    /* PSN, a zone of whole segments */
    0x00, 0x01, 0,    0,    0x10, 0,    0,    0,    /* blocks of 256 B, 16 reads */
    0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /* the fence's address */
    0xdd, 0xcc, 0xbb, 0xaa, 0x09, 0x08, 0x07, 0,    /* and key; the queue pair for writes */
    0x0c, 0,    0,    0,                            /* the timeout; zeros to the end */
};

static const struct verbs_hello sound = {
    .kind = VERBS_HELLO,
    .gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 1, 2},
    .lid = 0x1234,
    .mtu = 1024,
    .ud_number = 0x123456,
    .ud_key = 0x44332211,
    .connection = 16383,
    .token = 0xdeadbeef,
    .rc = {.qp_number = 0x010203,
           .write_number = 0x070809,
           .psn = 0x040506,
           .has_zone = true,
           .whole_segments = true,
           .timeout = 12,
           .block_limit = 256,
           .reads = 16,
           .fence_address = UINT64_C(0x0102030405060708),
           .fence_key = 0xaabbccdd},
};

TEST(a_hello_has_these_bytes)
{
    uint8_t bytes[VERBS_HELLO_BYTES];

    memset(bytes, 0xee, sizeof bytes);
    verbs_hello_encode(&sound, bytes);
    assert_memory_equal(bytes, golden, sizeof golden);
}

TEST(a_hello_is_read_back)
{
    struct verbs_hello hello;

    assert_int_equal(verbs_hello_decode(golden, sizeof golden, &hello), 0);
    assert_int_equal(hello.kind, VERBS_HELLO);
    assert_memory_equal(hello.gid, sound.gid, sizeof sound.gid);
    assert_int_equal(hello.lid, sound.lid);
    assert_int_equal(hello.mtu, sound.mtu);
    assert_int_equal(hello.ud_number, sound.ud_number);
    assert_int_equal(hello.ud_key, sound.ud_key);
    assert_int_equal(hello.connection, sound.connection);
    assert_int_equal(hello.token, sound.token);
    assert_int_equal(hello.rc.qp_number, sound.rc.qp_number);
    assert_int_equal(hello.rc.psn, sound.rc.psn);
    assert_int_equal(hello.rc.write_number, sound.rc.write_number);
    assert_true(hello.rc.has_zone && hello.rc.whole_segments);
    assert_int_equal(hello.rc.timeout, sound.rc.timeout);
    assert_int_equal(hello.rc.block_limit, sound.rc.block_limit);
    assert_int_equal(hello.rc.reads, sound.rc.reads);
    assert_int_equal(hello.rc.fence_address, sound.rc.fence_address);
    assert_int_equal(hello.rc.fence_key, sound.rc.fence_key);
}

static void refused(uint32_t at, uint32_t value, unsigned bytes)
{
    uint8_t bad[VERBS_HELLO_BYTES];
    struct verbs_hello hello = {.mtu = 77};

    memcpy(bad, golden, sizeof bad);
    memcpy(bad + at, &value, bytes);
    assert_int_equal(verbs_hello_decode(bad, sizeof bad, &hello), ROWAN_EFORMAT);
    assert_int_equal(hello.mtu, 77);
}

TEST(what_no_peer_says_is_refused)
{
    struct verbs_hello hello;

    assert_int_equal(verbs_hello_decode(golden, sizeof golden - 1, &hello), ROWAN_EFORMAT);
    assert_int_equal(verbs_hello_decode(golden, 0, &hello), ROWAN_EFORMAT);
    refused(0, 0x4f4c4857, 4); /* magic */
    refused(4, 2, 2);          /* layout */
    refused(6, 0, 2);          /* kind */
    refused(6, 4, 2);
    refused(26, 1, 2); /* a hole */
    refused(28, 0, 4); /* MTU */
    refused(28, 128, 4);
    refused(28, 1500, 4);
    refused(28, 8192, 4);
    refused(32, 0, 4); /* queue pairs have 24 bits */
    refused(32, 1 << 24, 4);
    refused(40, 16384, 4); /* connection */
    refused(48, 1, 4);     /* an error in a hello */
    refused(52, 1 << 24, 4);
    refused(52, 0, 4);       /* no queue pair, yet all else of it */
    refused(56, 1 << 24, 4); /* PSN */
    refused(60, 3, 4);       /* kind of zone */
    refused(60, 0, 4);       /* no zone, yet a timeout */
    refused(68, 256, 4);     /* reads */
    refused(84, 1 << 24, 4);
    refused(88, 0, 4); /* timeout */
    refused(88, 9, 4);
    refused(88, 19, 4);
    refused(88, 256 + 12, 4);
    for (uint32_t at = 92; at < VERBS_HELLO_BYTES; at++)
        refused(at, 1, 1);
}

TEST(ready_and_refusal_say_nothing_else)
{
    uint8_t bytes[VERBS_HELLO_BYTES];
    struct verbs_hello said = sound, hello;

    said.kind = VERBS_READY;
    verbs_hello_encode(&said, bytes);
    assert_int_equal(verbs_hello_decode(bytes, sizeof bytes, &hello), 0);
    assert_int_equal(hello.kind, VERBS_READY);
    bytes[30] = 1;
    assert_int_equal(verbs_hello_decode(bytes, sizeof bytes, &hello), ROWAN_EFORMAT);

    said.kind = VERBS_REFUSAL;
    said.error = ROWAN_ETOOMANY;
    verbs_hello_encode(&said, bytes);
    assert_int_equal(verbs_hello_decode(bytes, sizeof bytes, &hello), 0);
    assert_int_equal(hello.kind, VERBS_REFUSAL);
    assert_int_equal(hello.error, ROWAN_ETOOMANY);
    bytes[100] = 1;
    assert_int_equal(verbs_hello_decode(bytes, sizeof bytes, &hello), ROWAN_EFORMAT);
    said.error = 0; /* a refusal without a reason */
    verbs_hello_encode(&said, bytes);
    assert_int_equal(verbs_hello_decode(bytes, sizeof bytes, &hello), ROWAN_EFORMAT);
    said.error = 5;
    verbs_hello_encode(&said, bytes);
    assert_int_equal(verbs_hello_decode(bytes, sizeof bytes, &hello), ROWAN_EFORMAT);
}

UNIT_MAIN(NULL, NULL)
