/* crc.c - CRC32C by isa-l, whose crc32_iscsi leaves both inversions to the caller. */
#include "common/base/crc.h"

#include <isa-l/crc.h>

uint32_t crc32c(uint32_t seed, const void *data, size_t bytes)
{
    const size_t most_bytes = (size_t)1 << 30; /* isa-l counts in int */
    const unsigned char *at = data;
    uint32_t crc = ~seed;

    while (bytes > 0) {
        size_t now_bytes = bytes < most_bytes ? bytes : most_bytes;

        /* isa-l's prototype lacks the const; it only reads. */
        crc = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)now_bytes, crc);
        at += now_bytes;
        bytes -= now_bytes;
    }
    return ~crc;
}
