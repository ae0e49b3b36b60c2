/* verbs_hello.c - the bytes of the handshake (verbs_hello.h), little-endian, as they lie in memory. What a kind
 * does not use is 0, and a peer that fills it speaks another layout. */
#include <string.h>

#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/fabric/verbs/verbs.h"

enum { NUMBER_24_BITS = 0xffffff, MOST_READS = 255 };

static const struct greeting_layouts LAYOUTS = {VERSION_VERBS_LOWEST, VERSION_VERBS_HIGHEST};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "hellos are sent as they lie in memory");

struct verbs_hello verbs_hello_make(enum verbs_hello_kind kind)
{
    return (struct verbs_hello){.magic = VERBS_HELLO_MAGIC, .layouts = LAYOUTS, .kind = kind};
}

static bool is_sound_rc(const struct verbs_rc_hello *rc)
{
    if (rc->qp_number == 0)
        return bytes_are_zero(rc, sizeof *rc);
    return rc->qp_number <= NUMBER_24_BITS && rc->psn <= NUMBER_24_BITS && rc->zero == 0 &&
           rc->zone <= VERBS_ZONE_OF_SEGMENTS && rc->reads > 0 && rc->reads <= MOST_READS &&
           (rc->zone == VERBS_NO_ZONE
                ? rc->timeout == 0
                : rc->timeout >= VERBS_LEAST_TIMEOUT && rc->timeout <= VERBS_MOST_TIMEOUT);
}

static bool is_sound(const struct verbs_hello *hello)
{
    const size_t own = offsetof(struct verbs_hello, gid);

    if (hello->kind == VERBS_READY || hello->kind == VERBS_REFUSAL)
        return bytes_are_zero(hello->gid, sizeof *hello - own) &&
               (hello->kind == VERBS_READY
                    ? hello->error == 0
                    : hello->error != 0 && hello->error == greeting_refusal(hello->error));
    return hello->kind == VERBS_HELLO && hello->error == 0 && hello->lid <= UINT16_MAX &&
           hello->mtu >= 256 && hello->mtu <= 4096 && (hello->mtu & (hello->mtu - 1)) == 0 &&
           hello->ud_number > 0 && hello->ud_number <= NUMBER_24_BITS &&
           hello->connection < VERBS_MAX_CONNS && is_sound_rc(&hello->rc) &&
           bytes_are_zero(hello->zeros, sizeof hello->zeros);
}

int verbs_hello_read(const void *bytes, size_t count, struct verbs_hello *out, uint32_t *layout)
{
    struct verbs_hello hello = {0};
    uint32_t chosen;
    int error;

    memcpy(&hello, bytes, count < sizeof hello ? count : sizeof hello);
    if (count < offsetof(struct verbs_hello, kind) || hello.magic != VERBS_HELLO_MAGIC)
        return ROWAN_EFORMAT;
    error = greeting_choose("verbs", LAYOUTS, hello.layouts, &chosen);
    if (error)
        return error;
    if (count != sizeof hello || !is_sound(&hello))
        return ROWAN_EFORMAT;
    *out = hello;
    *layout = chosen;
    return 0;
}
