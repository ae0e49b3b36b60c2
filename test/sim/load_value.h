/* load_value.h - the bytes that clients write. A value of at least 8 B begins with a number of its own; some
 * hold false entries: what somebody can make who knows the format of entries and not the cluster's
 * secret (hazard H6). Pure functions.
 */
#ifndef SIM_LOAD_VALUE_H
#define SIM_LOAD_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/random.h"
#include "common/entry/entry.h"

/* Random bytes behind `number`, of which less than 8 bytes have no room. */
void load_value_make(struct random *random, uint64_t number, uint8_t *value, uint32_t bytes);

/* Never 0. */
uint64_t load_value_hash(const uint8_t *value, uint32_t bytes);

/* A false entry; its value is marked, so that whoever reads it knows. */
struct load_false_entry {
    enum entry_type type; /* PUT or DELETE */
    uint16_t shard;
    uint16_t key_bytes; /* up to 64 */
    uint64_t version;
    uint32_t seed; /* of the checksum */
    char key[64];
};

enum {
    LOAD_FALSE_BYTES = 128,      /* of a false entry, at most */
    LOAD_FALSE_VALUE_BYTES = 512 /* a value of so many has room for one, whatever its key */
};

/* Puts `entry` into `value` at `from` or behind: where a scan looks that steps through the value's own entry, whose
 * key has `key_bytes`; or with a `shift`, so many bytes further. It stays inside one block. Returns the position
 * behind it, or 0 if there is no room any more. */
uint32_t load_value_forge(const struct load_false_entry *entry, uint32_t block_limit,
                          uint32_t key_bytes, uint32_t shift, uint8_t *value, uint32_t bytes,
                          uint32_t from);

/* Is it the value of a false entry? */
bool load_value_is_false(const uint8_t *value, uint32_t bytes);

#endif
