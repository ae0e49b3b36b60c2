/* crc.h - CRC32C (Castagnoli, RFC 3720 appendix B.4), computed by isa-l, and CRC16/XMODEM. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* The CRC32C of `bytes` bytes continued from `seed` (0 for the plain CRC32C): the usual
 * pre- and post-inversion is applied, so crc32c(0, "123456789", 9) is 0xe3069283, and
 * crc32c(crc32c(0, a), b) is the CRC32C of a followed by b. */
uint32_t crc32c(uint32_t seed, const void *data, size_t bytes);

/* The same of the 32 B at `head` and then of `rest`, a multiple of 32 B: of a block whose header was copied.
 * One call, and no more than the checksum where it is short, as most are. */
uint32_t crc32c_headed(uint32_t seed, const void *head, const void *rest, size_t rest_bytes);

/* CRC16/XMODEM: polynomial 0x1021, initial value 0, nothing reflected; of "123456789" 0x31c3. By
 * carry-less multiplication where the processor has it. */
uint16_t crc16_xmodem(const void *data, size_t bytes);

/* The same on any processor, for those without, and for a test that runs on one with it. */
uint16_t crc16_xmodem_by_table(const void *data, size_t bytes);

#endif
