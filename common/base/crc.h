/* crc.h - CRC32C (Castagnoli, RFC 3720 appendix B.4), computed by isa-l. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* The CRC32C of `bytes` bytes continued from `seed` (0 for the plain CRC32C): the usual
 * pre- and post-inversion is applied, so crc32c(0, "123456789", 9) is 0xe3069283, and
 * crc32c(crc32c(0, a), b) is the CRC32C of a followed by b. */
uint32_t crc32c(uint32_t seed, const void *data, size_t bytes);

#endif
