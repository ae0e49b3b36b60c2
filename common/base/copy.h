/* copy.h - memcpy for what is mostly 16 to 128 bytes and of a length that only the run knows: requests with their
 * keys, values, the heads of messages. A few loads and stores inline, where the library's costs a call. */
#ifndef BASE_COPY_H
#define BASE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct copy_part {
    uint8_t bytes[16];
};

/* The 16 B at `at`, and the 16 B that end `at` bytes before the end. */
static inline void copy_ends(uint8_t *out, const uint8_t *in, size_t bytes, size_t at)
{
    struct copy_part first, last;

    memcpy(&first, in + at, sizeof first);
    memcpy(&last, in + bytes - at - sizeof last, sizeof last);
    memcpy(out + at, &first, sizeof first);
    memcpy(out + bytes - at - sizeof last, &last, sizeof last);
}

enum { COPY_LEAST = 16, COPY_MOST = 128 };

/* Whether copy_inline takes it. */
static inline bool copy_is_inline(size_t bytes)
{
    return bytes - COPY_LEAST <= COPY_MOST - COPY_LEAST;
}

/* Without a call; COPY_LEAST to COPY_MOST bytes, which do not overlap. */
static inline void copy_inline(void *to, const void *from, size_t bytes)
{
    copy_ends(to, from, bytes, 0);
    if (bytes > 32)
        copy_ends(to, from, bytes, 16);
    if (bytes > 64) {
        copy_ends(to, from, bytes, 32);
        copy_ends(to, from, bytes, 48);
    }
}

/* They do not overlap; of nothing `from` may have no address. */
static inline void copy_short(void *to, const void *from, size_t bytes)
{
    if (copy_is_inline(bytes))
        copy_inline(to, from, bytes);
    else if (bytes > 0)
        memcpy(to, from, bytes);
}

#endif
