/* crc.c - CRC32C by isa-l, whose crc32_iscsi leaves both inversions to the caller. CRC16 by table, or
 * 16 bytes at a time by carry-less multiplication (see crc16_by_blocks). */
#include "common/base/crc.h"

#include <isa-l/crc.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

/* The CRC of each byte alone. */
static const uint16_t crc16_of_byte[256] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
    0xc18c, 0xd1ad, 0xe1ce, 0xf1ef, 0x1231, 0x0210, 0x3273, 0x2252, 0x52b5, 0x4294, 0x72f7, 0x62d6,
    0x9339, 0x8318, 0xb37b, 0xa35a, 0xd3bd, 0xc39c, 0xf3ff, 0xe3de, 0x2462, 0x3443, 0x0420, 0x1401,
    0x64e6, 0x74c7, 0x44a4, 0x5485, 0xa56a, 0xb54b, 0x8528, 0x9509, 0xe5ee, 0xf5cf, 0xc5ac, 0xd58d,
    0x3653, 0x2672, 0x1611, 0x0630, 0x76d7, 0x66f6, 0x5695, 0x46b4, 0xb75b, 0xa77a, 0x9719, 0x8738,
    0xf7df, 0xe7fe, 0xd79d, 0xc7bc, 0x48c4, 0x58e5, 0x6886, 0x78a7, 0x0840, 0x1861, 0x2802, 0x3823,
    0xc9cc, 0xd9ed, 0xe98e, 0xf9af, 0x8948, 0x9969, 0xa90a, 0xb92b, 0x5af5, 0x4ad4, 0x7ab7, 0x6a96,
    0x1a71, 0x0a50, 0x3a33, 0x2a12, 0xdbfd, 0xcbdc, 0xfbbf, 0xeb9e, 0x9b79, 0x8b58, 0xbb3b, 0xab1a,
    0x6ca6, 0x7c87, 0x4ce4, 0x5cc5, 0x2c22, 0x3c03, 0x0c60, 0x1c41, 0xedae, 0xfd8f, 0xcdec, 0xddcd,
    0xad2a, 0xbd0b, 0x8d68, 0x9d49, 0x7e97, 0x6eb6, 0x5ed5, 0x4ef4, 0x3e13, 0x2e32, 0x1e51, 0x0e70,
    0xff9f, 0xefbe, 0xdfdd, 0xcffc, 0xbf1b, 0xaf3a, 0x9f59, 0x8f78, 0x9188, 0x81a9, 0xb1ca, 0xa1eb,
    0xd10c, 0xc12d, 0xf14e, 0xe16f, 0x1080, 0x00a1, 0x30c2, 0x20e3, 0x5004, 0x4025, 0x7046, 0x6067,
    0x83b9, 0x9398, 0xa3fb, 0xb3da, 0xc33d, 0xd31c, 0xe37f, 0xf35e, 0x02b1, 0x1290, 0x22f3, 0x32d2,
    0x4235, 0x5214, 0x6277, 0x7256, 0xb5ea, 0xa5cb, 0x95a8, 0x8589, 0xf56e, 0xe54f, 0xd52c, 0xc50d,
    0x34e2, 0x24c3, 0x14a0, 0x0481, 0x7466, 0x6447, 0x5424, 0x4405, 0xa7db, 0xb7fa, 0x8799, 0x97b8,
    0xe75f, 0xf77e, 0xc71d, 0xd73c, 0x26d3, 0x36f2, 0x0691, 0x16b0, 0x6657, 0x7676, 0x4615, 0x5634,
    0xd94c, 0xc96d, 0xf90e, 0xe92f, 0x99c8, 0x89e9, 0xb98a, 0xa9ab, 0x5844, 0x4865, 0x7806, 0x6827,
    0x18c0, 0x08e1, 0x3882, 0x28a3, 0xcb7d, 0xdb5c, 0xeb3f, 0xfb1e, 0x8bf9, 0x9bd8, 0xabbb, 0xbb9a,
    0x4a75, 0x5a54, 0x6a37, 0x7a16, 0x0af1, 0x1ad0, 0x2ab3, 0x3a92, 0xfd2e, 0xed0f, 0xdd6c, 0xcd4d,
    0xbdaa, 0xad8b, 0x9de8, 0x8dc9, 0x7c26, 0x6c07, 0x5c64, 0x4c45, 0x3ca2, 0x2c83, 0x1ce0, 0x0cc1,
    0xef1f, 0xff3e, 0xcf5d, 0xdf7c, 0xaf9b, 0xbfba, 0x8fd9, 0x9ff8, 0x6e17, 0x7e36, 0x4e55, 0x5e74,
    0x2e93, 0x3eb2, 0x0ed1, 0x1ef0,
};

uint16_t crc16_xmodem_by_table(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint16_t crc = 0;

    for (size_t i = 0; i < bytes; i++)
        crc = (uint16_t)((crc << 8) ^ crc16_of_byte[((crc >> 8) ^ at[i]) & 0xff]);
    return crc;
}

#if defined(__x86_64__)

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

#else

uint16_t crc16_xmodem(const void *data, size_t bytes)
{
    return crc16_xmodem_by_table(data, bytes);
}

#endif
