/* slot.c - the slot of a key: CRC16/XMODEM, and the hash tag rule of the Redis Cluster
 * specification. */
#include "common/cluster/slot.h"

#include <stdbool.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "common/base/crc.h"

/* Of a key that may have a tag. Not inline: the many that have none keep no registers for it. */
static __attribute__((noinline)) uint16_t slot_of_tag(const uint8_t *bytes, size_t count)
{
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

static inline bool may_have_tag(const uint8_t *bytes, size_t count)
{
#if defined(__SSE2__)
    if (count >= 16) {
        const __m128i open = _mm_set1_epi8('{');
        __m128i found = _mm_cmpeq_epi8(_mm_loadu_si128((const void *)(bytes + count - 16)), open);
        for (size_t at = 0; at + 16 < count; at += 16)
            found = _mm_or_si128(found,
                                 _mm_cmpeq_epi8(_mm_loadu_si128((const void *)(bytes + at)), open));
        return _mm_movemask_epi8(found) != 0;
    }
#endif
    return true;
}

uint16_t slot_of_key(const void *key, uint32_t key_bytes)
{
    if (may_have_tag(key, key_bytes))
        return slot_of_tag(key, key_bytes);
    return crc16_xmodem(key, key_bytes) % SLOT_COUNT;
}
