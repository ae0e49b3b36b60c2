/* verbs_hello.c - the bytes of the handshake (verbs_hello.h), little-endian, as they lie in memory. What a kind
 * does not use is 0, and a peer that fills it speaks another layout. */
#include <string.h>

#include "common/base/error.h"
#include "common/fabric/verbs/verbs.h"
#include "common/fabric/verbs/verbs_hello.h"

enum { NUMBER_24_BITS = 0xffffff, MOST_READS = 255, MOST_ERROR = 1000 };

/* In `zone`. */
enum { NO_ZONE = 0, ZONE_OF_SLOTS = 1, ZONE_OF_SEGMENTS = 2 };

struct wire_rc {
    uint32_t number, psn, zone, block_limit, reads;
    uint64_t fence_address;
    uint32_t fence_key, write_number, timeout;
} __attribute__((packed));

struct wire {
    uint32_t magic;
    uint16_t layout, kind;
    uint8_t gid[16];
    uint16_t lid, zero;
    uint32_t mtu, ud_number, ud_key, connection, token;
    int32_t error; /* of a refusal */
    struct wire_rc rc;
    uint8_t zeros[36];
} __attribute__((packed));

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "hellos are sent as they lie in memory");
static_assert(sizeof(struct wire) == VERBS_HELLO_BYTES && offsetof(struct wire, gid) == 8 &&
                  offsetof(struct wire, mtu) == 28 && offsetof(struct wire, error) == 48 &&
                  offsetof(struct wire, rc) == 52 && offsetof(struct wire, zeros) == 92 &&
                  offsetof(struct wire_rc, fence_address) == 20,
              "layout");

static struct wire_rc encode_rc(const struct verbs_rc_hello *rc)
{
    return (struct wire_rc){.number = rc->qp_number,
                            .psn = rc->psn,
                            .zone = !rc->has_zone        ? NO_ZONE
                                    : rc->whole_segments ? ZONE_OF_SEGMENTS
                                                         : ZONE_OF_SLOTS,
                            .block_limit = rc->block_limit,
                            .reads = rc->reads,
                            .fence_address = rc->fence_address,
                            .fence_key = rc->fence_key,
                            .write_number = rc->write_number,
                            .timeout = rc->timeout};
}

void verbs_hello_encode(const struct verbs_hello *hello, uint8_t out[VERBS_HELLO_BYTES])
{
    struct wire wire = {
        .magic = VERBS_HELLO_MAGIC, .layout = VERBS_LAYOUT, .kind = (uint16_t)hello->kind};

    if (hello->kind == VERBS_REFUSAL)
        wire.error = hello->error;
    if (hello->kind == VERBS_HELLO) {
        memcpy(wire.gid, hello->gid, sizeof wire.gid);
        wire.lid = hello->lid;
        wire.mtu = hello->mtu;
        wire.ud_number = hello->ud_number;
        wire.ud_key = hello->ud_key;
        wire.connection = hello->connection;
        wire.token = hello->token;
        wire.rc = encode_rc(&hello->rc);
    }
    memcpy(out, &wire, sizeof wire);
}

static bool is_zero(const void *bytes, size_t count)
{
    static const uint8_t zeros[VERBS_HELLO_BYTES];

    return memcmp(bytes, zeros, count) == 0;
}

static bool is_mtu(uint32_t bytes)
{
    return bytes >= 256 && bytes <= 4096 && (bytes & (bytes - 1)) == 0;
}

static bool decode_rc(const struct wire_rc *in, struct verbs_rc_hello *rc)
{
    *rc = (struct verbs_rc_hello){.qp_number = in->number,
                                  .write_number = in->write_number,
                                  .psn = in->psn,
                                  .has_zone = in->zone != NO_ZONE,
                                  .whole_segments = in->zone == ZONE_OF_SEGMENTS,
                                  .timeout = (uint8_t)in->timeout,
                                  .block_limit = in->block_limit,
                                  .reads = in->reads,
                                  .fence_address = in->fence_address,
                                  .fence_key = in->fence_key};
    if (in->number == 0)
        return is_zero(in, sizeof *in);
    return in->number <= NUMBER_24_BITS && in->write_number <= NUMBER_24_BITS &&
           in->psn <= NUMBER_24_BITS && in->zone <= ZONE_OF_SEGMENTS && in->reads <= MOST_READS &&
           (in->zone == NO_ZONE
                ? in->timeout == 0
                : in->timeout >= VERBS_LEAST_TIMEOUT && in->timeout <= VERBS_MOST_TIMEOUT);
}

static bool decode_hello(const struct wire *in, struct verbs_hello *hello)
{
    memcpy(hello->gid, in->gid, sizeof hello->gid);
    hello->lid = in->lid;
    hello->mtu = in->mtu;
    hello->ud_number = in->ud_number;
    hello->ud_key = in->ud_key;
    hello->connection = in->connection;
    hello->token = in->token;
    return in->zero == 0 && in->error == 0 && is_zero(in->zeros, sizeof in->zeros) &&
           is_mtu(in->mtu) && in->ud_number > 0 && in->ud_number <= NUMBER_24_BITS &&
           in->connection < VERBS_MAX_CONNS && decode_rc(&in->rc, &hello->rc);
}

int verbs_hello_decode(const void *bytes, size_t count, struct verbs_hello *out)
{
    struct verbs_hello hello = {0};
    struct wire wire;
    bool is_sound = false;

    if (count != sizeof wire)
        return ROWAN_EFORMAT;
    memcpy(&wire, bytes, sizeof wire);
    if (wire.magic != VERBS_HELLO_MAGIC || wire.layout != VERBS_LAYOUT)
        return ROWAN_EFORMAT;
    hello.kind = (enum verbs_hello_kind)wire.kind;
    if (wire.kind == VERBS_HELLO) {
        is_sound = decode_hello(&wire, &hello);
    } else if (wire.kind == VERBS_READY || wire.kind == VERBS_REFUSAL) {
        hello.error = wire.error;
        is_sound = wire.kind == VERBS_READY ? wire.error == 0
                                            : wire.error < 0 && wire.error >= -MOST_ERROR;
        wire.error = 0;
        is_sound = is_sound && is_zero(wire.gid, sizeof wire - offsetof(struct wire, gid));
    }
    if (!is_sound)
        return ROWAN_EFORMAT;
    *out = hello;
    return 0;
}
