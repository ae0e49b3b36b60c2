/* slot.c - the slot of a key: CRC16/XMODEM, and the hash tag rule of the Redis Cluster
 * specification. */
#include "common/cluster/slot.h"

#include <string.h>

#include "common/base/crc.h"

uint16_t slot_of_key(const void *key, uint32_t key_bytes)
{
    const uint8_t *bytes = key;
    size_t count = key_bytes;

    const uint8_t *open = count > 0 ? memchr(bytes, '{', count) : NULL;
    if (open) {
        const uint8_t *tag = open + 1;
        size_t left = count - (size_t)(tag - bytes);
        const uint8_t *close = left > 0 ? memchr(tag, '}', left) : NULL;
        if (close && close > tag) {
            bytes = tag;
            count = (size_t)(close - tag);
        }
    }
    return crc16_xmodem(bytes, count) % SLOT_COUNT;
}
