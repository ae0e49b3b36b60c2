/* verbs_hello.c - the bytes of the handshake (verbs_hello.h), little-endian, at fixed offsets. What a kind
 * does not use is 0, and a peer that fills it speaks another layout. */
#include <endian.h>
#include <string.h>

#include "common/base/error.h"
#include "common/fabric/verbs/verbs.h"
#include "common/fabric/verbs/verbs_hello.h"

enum {
    AT_MAGIC = 0,
    AT_LAYOUT = 4,
    AT_KIND = 6,
    AT_GID = 8,
    AT_LID = 24,
    AT_MTU = 28,
    AT_UD_NUMBER = 32,
    AT_UD_KEY = 36,
    AT_CONNECTION = 40,
    AT_TOKEN = 44,
    AT_ERROR = 48,
    AT_RC_NUMBER = 52,
    AT_RC_PSN = 56,
    AT_RC_ZONE = 60,
    AT_RC_BLOCK_LIMIT = 64,
    AT_RC_READS = 68,
    AT_RC_FENCE_ADDRESS = 72,
    AT_RC_FENCE_KEY = 80,
    AT_RC_WRITE_NUMBER = 84,
    AT_RC_TIMEOUT = 88,
    AT_END = 92,

    NUMBER_24_BITS = 0xffffff,
    MOST_READS = 255,
    MOST_ERROR = 1000,
};

/* At AT_RC_ZONE. */
enum { NO_ZONE = 0, ZONE_OF_SLOTS = 1, ZONE_OF_SEGMENTS = 2 };

static_assert((int)AT_END <= (int)VERBS_HELLO_BYTES, "it fits");

static void put_16(uint8_t *out, uint32_t at, uint16_t value)
{
    value = htole16(value);
    memcpy(out + at, &value, sizeof value);
}

static void put_32(uint8_t *out, uint32_t at, uint32_t value)
{
    value = htole32(value);
    memcpy(out + at, &value, sizeof value);
}

static void put_64(uint8_t *out, uint32_t at, uint64_t value)
{
    value = htole64(value);
    memcpy(out + at, &value, sizeof value);
}

static uint16_t get_16(const uint8_t *in, uint32_t at)
{
    uint16_t value;

    memcpy(&value, in + at, sizeof value);
    return le16toh(value);
}

static uint32_t get_32(const uint8_t *in, uint32_t at)
{
    uint32_t value;

    memcpy(&value, in + at, sizeof value);
    return le32toh(value);
}

static uint64_t get_64(const uint8_t *in, uint32_t at)
{
    uint64_t value;

    memcpy(&value, in + at, sizeof value);
    return le64toh(value);
}

static void encode_rc(const struct verbs_rc_hello *rc, uint8_t *out)
{
    put_32(out, AT_RC_NUMBER, rc->qp_number);
    put_32(out, AT_RC_PSN, rc->psn);
    put_32(out, AT_RC_ZONE,
           !rc->has_zone        ? NO_ZONE
           : rc->whole_segments ? ZONE_OF_SEGMENTS
                                : ZONE_OF_SLOTS);
    put_32(out, AT_RC_BLOCK_LIMIT, rc->block_limit);
    put_32(out, AT_RC_READS, rc->reads);
    put_64(out, AT_RC_FENCE_ADDRESS, rc->fence_address);
    put_32(out, AT_RC_FENCE_KEY, rc->fence_key);
    put_32(out, AT_RC_WRITE_NUMBER, rc->write_number);
    put_32(out, AT_RC_TIMEOUT, rc->timeout);
}

void verbs_hello_encode(const struct verbs_hello *hello, uint8_t out[VERBS_HELLO_BYTES])
{
    memset(out, 0, VERBS_HELLO_BYTES);
    put_32(out, AT_MAGIC, VERBS_HELLO_MAGIC);
    put_16(out, AT_LAYOUT, VERBS_LAYOUT);
    put_16(out, AT_KIND, (uint16_t)hello->kind);
    if (hello->kind == VERBS_REFUSAL)
        put_32(out, AT_ERROR, (uint32_t)hello->error);
    if (hello->kind != VERBS_HELLO)
        return;
    memcpy(out + AT_GID, hello->gid, sizeof hello->gid);
    put_16(out, AT_LID, hello->lid);
    put_32(out, AT_MTU, hello->mtu);
    put_32(out, AT_UD_NUMBER, hello->ud_number);
    put_32(out, AT_UD_KEY, hello->ud_key);
    put_32(out, AT_CONNECTION, hello->connection);
    put_32(out, AT_TOKEN, hello->token);
    encode_rc(&hello->rc, out);
}

static bool is_zero(const uint8_t *in, uint32_t from, uint32_t to)
{
    uint8_t any = 0;

    for (uint32_t at = from; at < to; at++)
        any |= in[at];
    return any == 0;
}

static bool is_mtu(uint32_t bytes)
{
    return bytes >= 256 && bytes <= 4096 && (bytes & (bytes - 1)) == 0;
}

static bool decode_rc(const uint8_t *in, struct verbs_rc_hello *rc)
{
    const uint32_t zone = get_32(in, AT_RC_ZONE), timeout = get_32(in, AT_RC_TIMEOUT);

    *rc = (struct verbs_rc_hello){.qp_number = get_32(in, AT_RC_NUMBER),
                                  .write_number = get_32(in, AT_RC_WRITE_NUMBER),
                                  .psn = get_32(in, AT_RC_PSN),
                                  .has_zone = zone != NO_ZONE,
                                  .whole_segments = zone == ZONE_OF_SEGMENTS,
                                  .timeout = (uint8_t)timeout,
                                  .block_limit = get_32(in, AT_RC_BLOCK_LIMIT),
                                  .reads = get_32(in, AT_RC_READS),
                                  .fence_address = get_64(in, AT_RC_FENCE_ADDRESS),
                                  .fence_key = get_32(in, AT_RC_FENCE_KEY)};
    if (rc->qp_number == 0)
        return is_zero(in, AT_RC_NUMBER, AT_END);
    return rc->qp_number <= NUMBER_24_BITS && rc->write_number <= NUMBER_24_BITS &&
           rc->psn <= NUMBER_24_BITS && zone <= ZONE_OF_SEGMENTS && rc->reads <= MOST_READS &&
           (zone == NO_ZONE ? timeout == 0
                            : timeout >= VERBS_LEAST_TIMEOUT && timeout <= VERBS_MOST_TIMEOUT);
}

static bool decode_hello(const uint8_t *in, struct verbs_hello *hello)
{
    memcpy(hello->gid, in + AT_GID, sizeof hello->gid);
    hello->lid = get_16(in, AT_LID);
    hello->mtu = get_32(in, AT_MTU);
    hello->ud_number = get_32(in, AT_UD_NUMBER);
    hello->ud_key = get_32(in, AT_UD_KEY);
    hello->connection = get_32(in, AT_CONNECTION);
    hello->token = get_32(in, AT_TOKEN);
    return is_zero(in, AT_LID + 2, AT_MTU) && is_zero(in, AT_ERROR, AT_RC_NUMBER) &&
           is_zero(in, AT_END, VERBS_HELLO_BYTES) && is_mtu(hello->mtu) && hello->ud_number > 0 &&
           hello->ud_number <= NUMBER_24_BITS && hello->connection < VERBS_MAX_CONNS &&
           decode_rc(in, &hello->rc);
}

static bool decode_refusal(const uint8_t *in, struct verbs_hello *hello)
{
    hello->error = (int32_t)get_32(in, AT_ERROR);
    return hello->error < 0 && hello->error >= -MOST_ERROR && is_zero(in, AT_GID, AT_ERROR) &&
           is_zero(in, AT_RC_NUMBER, VERBS_HELLO_BYTES);
}

int verbs_hello_decode(const void *bytes, size_t count, struct verbs_hello *out)
{
    const uint8_t *in = bytes;
    struct verbs_hello hello = {0};
    bool is_sound = false;

    if (count != VERBS_HELLO_BYTES || get_32(in, AT_MAGIC) != VERBS_HELLO_MAGIC ||
        get_16(in, AT_LAYOUT) != VERBS_LAYOUT)
        return ROWAN_EFORMAT;
    switch (get_16(in, AT_KIND)) {
    case VERBS_HELLO:
        hello.kind = VERBS_HELLO;
        is_sound = decode_hello(in, &hello);
        break;
    case VERBS_READY:
        hello.kind = VERBS_READY;
        is_sound = is_zero(in, AT_GID, VERBS_HELLO_BYTES);
        break;
    case VERBS_REFUSAL:
        hello.kind = VERBS_REFUSAL;
        is_sound = decode_refusal(in, &hello);
        break;
    default:
        break;
    }
    if (!is_sound)
        return ROWAN_EFORMAT;
    *out = hello;
    return 0;
}
