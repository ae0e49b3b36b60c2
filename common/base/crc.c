/* crc.c - CRC32C by isa-l, whose crc32_iscsi leaves both inversions to the caller. CRC16 by table, or
 * 16 bytes at a time by carry-less multiplication (see crc16_by_blocks). */
#include "common/base/crc.h"

#include <immintrin.h>
#include <isa-l/crc.h>
#include <string.h>

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

uint8_t crc8_autosar(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint8_t crc = 0xff;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (uint8_t)(crc << 1 ^ (crc & 0x80 ? 0x2f : 0));
    }
    return crc ^ 0xff;
}

/* --- CRC16 --- */

/* The CRC of each half of a byte alone. */
static const uint16_t crc16_of_half[16] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
    0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
};

uint16_t crc16_xmodem_by_table(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint16_t crc = 0;

    for (size_t i = 0; i < 2 * bytes; i++) {
        const unsigned half = i % 2 ? at[i / 2] & 15 : at[i / 2] >> 4;

        crc = (uint16_t)(crc << 4 ^ crc16_of_half[crc >> 12 ^ half]);
    }
    return crc;
}

/* The remainder of word * x^16 by the polynomial P = x^16 + x^12 + x^5 + 1 (Barrett; Gopal et al., "Fast
 * CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). The quotient is the
 * product of the word and m = floor(x^80 / P) without its low 64 bits: exact, because the dividend has
 * degree 79 at most. m is x^64 + CRC16_QUOTIENT. The remainder is what quotient * P has below x^16,
 * since the dividend has nothing there. */
#define CRC16_QUOTIENT UINT64_C(0x11303471a041b343)

__attribute__((target("pclmul"))) static inline uint64_t crc16_word(uint64_t word)
{
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)word),
                                                 _mm_cvtsi64_si128((long long)CRC16_QUOTIENT), 0);
    const uint64_t quotient =
        word ^ (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(product, product));

    return (quotient ^ quotient << 5 ^ quotient << 12) & 0xffff;
}

static uint64_t load_big_endian(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return __builtin_bswap64(word);
}

static uint64_t load_bytes(const uint8_t *at, size_t bytes)
{
    uint64_t word = 0;

    for (size_t i = 0; i < bytes; i++)
        word = word << 8 | at[i];
    return word;
}

/* Zeros in front change nothing when the initial value is 0, so the odd bytes come first. */
static inline __attribute__((target("pclmul"))) uint64_t crc16_by_words(const uint8_t *at,
                                                                        size_t bytes)
{
    const size_t odd = bytes % 8;
    const uint8_t *end = at + bytes;
    uint64_t crc = 0;

    if (odd > 0)
        crc = crc16_word(load_bytes(at, odd));
    for (at += odd; at != end; at += 8)
        crc = crc16_word(load_big_endian(at) ^ crc << 48);
    return crc;
}

/* x^n mod P for the n of its name. */
#define CRC16_X64  0xb861
#define CRC16_X128 0xaefc
#define CRC16_X192 0x650b

/* The same, by 16 B: all that was read so far stays below x^128 and is worth the same mod P, its upper word times
 * x^192 mod P and its lower word times x^128 mod P being added to the next 16 B. In the end x^64 mod P brings the
 * upper word down, and again what that leaves above x^64. */
static __attribute__((target("pclmul,ssse3"))) uint16_t crc16_by_blocks(const uint8_t *at,
                                                                        size_t bytes)
{
    const __m128i swap = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i fold = _mm_set_epi64x(CRC16_X192, CRC16_X128);
    const __m128i down = _mm_set_epi64x(0, CRC16_X64);
    const uint8_t *end = at + bytes;
    const size_t odd = bytes % 16;
    __m128i sum = _mm_setzero_si128();

    if (odd > 0) {
        const unsigned __int128 first =
            ((unsigned __int128)load_big_endian(at) << 64 | load_big_endian(at + 8)) >>
            (128 - 8 * odd);
        sum = _mm_set_epi64x((long long)(uint64_t)(first >> 64), (long long)(uint64_t)first);
    }
    for (at += odd; at != end; at += 16) {
        const __m128i block =
            _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)at), swap);
        sum = _mm_xor_si128(block, _mm_xor_si128(_mm_clmulepi64_si128(sum, fold, 0x11),
                                                 _mm_clmulepi64_si128(sum, fold, 0x00)));
    }
    const __m128i once = _mm_clmulepi64_si128(sum, down, 0x01);
    const __m128i twice = _mm_clmulepi64_si128(once, down, 0x01);
    sum = _mm_xor_si128(sum, _mm_xor_si128(once, twice));
    return (uint16_t)crc16_word((uint64_t)_mm_cvtsi128_si64(sum));
}

uint16_t crc16_xmodem(const void *data, size_t bytes)
{
    if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("ssse3"))
        return crc16_xmodem_by_table(data, bytes);
    return bytes < 16 ? (uint16_t)crc16_by_words(data, bytes) : crc16_by_blocks(data, bytes);
}
