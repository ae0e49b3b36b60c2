/* crc.h - CRC32C (Castagnoli, RFC 3720 appendix B.4), computed by isa-l, CRC16/XMODEM and CRC-8/AUTOSAR. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The CRC32C of `bytes` bytes continued from `seed` (0 for the plain CRC32C): the usual
 * pre- and post-inversion is applied, so crc32c(0, "123456789", 9) is 0xe3069283, and
 * crc32c(crc32c(0, a), b) is the CRC32C of a followed by b. */
uint32_t crc32c(uint32_t seed, const void *data, size_t bytes);

/* CRC16/XMODEM: polynomial 0x1021, initial value 0, nothing reflected; of "123456789" 0x31c3. By
 * carry-less multiplication where the processor has it. */
uint16_t crc16_xmodem(const void *data, size_t bytes);

/* The same on any processor, for those without, and for a test that runs on one with it. */
uint16_t crc16_xmodem_by_table(const void *data, size_t bytes);

/* CRC-8/AUTOSAR: polynomial 0x2f, initial value and final exclusive-or 0xff, nothing reflected; of "123456789" 0xdf.
 * Finds any three flipped bits among up to 119. Bit by bit: for a few bytes now and then. */
uint8_t crc8_autosar(const void *data, size_t bytes);

/* --- the CRC32C of short blocks --- */

/* Is there an instruction for this polynomial? */
static inline int crc32c_has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

/* Only where there is; a multiple of 32 B. As assembly it goes inline into code for any x86-64. */
static inline uint64_t crc32c_by_words(uint64_t crc, const uint8_t *at, size_t bytes)
{
    for (const uint8_t *end = at + bytes; at != end; at += 32) {
        uint64_t a, b, c, d; /* not an array: that would be copied first */
        memcpy(&a, at, 8);
        memcpy(&b, at + 8, 8);
        memcpy(&c, at + 16, 8);
        memcpy(&d, at + 24, 8);
        __asm__("crc32q %1, %0" : "+r"(crc) : "rm"(a));
        __asm__("crc32q %1, %0" : "+r"(crc) : "rm"(b));
        __asm__("crc32q %1, %0" : "+r"(crc) : "rm"(c));
        __asm__("crc32q %1, %0" : "+r"(crc) : "rm"(d));
    }
    return crc;
}

/* Whether crc32c_short takes so many bytes; isa-l is faster where there is enough to fold. */
static inline int crc32c_is_short(size_t bytes)
{
    return bytes <= 512 && bytes % 32 == 0 && crc32c_has_instruction();
}

/* crc32c of the 32 B at `head` and then of `rest`: of a block whose header was copied. Calls nothing. */
static inline uint32_t crc32c_short(uint32_t seed, const void *head, const void *rest,
                                    size_t rest_bytes)
{
    return ~(uint32_t)crc32c_by_words(crc32c_by_words(~seed, head, 32), rest, rest_bytes);
}

/* The same of any number of bytes. */
static inline uint32_t crc32c_headed(uint32_t seed, const void *head, const void *rest,
                                     size_t rest_bytes)
{
    if (crc32c_is_short(rest_bytes))
        return crc32c_short(seed, head, rest, rest_bytes);
    return crc32c(crc32c(seed, head, 32), rest, rest_bytes);
}

#endif
