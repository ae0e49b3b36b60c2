/* slot.h - a key's slot is the Redis Cluster slot (Redis Cluster specification, "Key distribution
 * model"): CRC16 (XMODEM) mod 16384 of the key, or of what stands between the first { and the next
 * } when that is not empty, so that keys sharing a tag stay together. */
#ifndef CLUSTER_SLOT_H
#define CLUSTER_SLOT_H

#include <stdint.h>

enum { SLOT_COUNT = 16384 };

uint16_t slot_of_key(const void *key, uint32_t key_bytes);

#endif
