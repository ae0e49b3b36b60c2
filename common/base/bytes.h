/* bytes.h - are bytes all zero? */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool bytes_are_zero(const void *at, size_t bytes)
{
    const uint8_t *first = at;
    return bytes == 0 || (first[0] == 0 && memcmp(first, first + 1, bytes - 1) == 0);
}

#endif
