#include "test/sim/load_value.h"

#include <string.h>
#include <xxhash.h>

#include "common/base/assert.h"

enum { NUMBER_BYTES = 8, FALSE_VALUE_BYTES = 16 };
_Static_assert(ENTRY_HEADER_BYTES + 64 + FALSE_VALUE_BYTES <= LOAD_FALSE_BYTES, "room for one");

/* No number of a value, as those count from 1. */
static const uint8_t FALSE_VALUE[FALSE_VALUE_BYTES] = "a false entry!!";

void load_value_make(struct random *random, uint64_t number, uint8_t *value, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += 8) {
        uint64_t word = random_u64(random);
        memcpy(value + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
    if (bytes >= NUMBER_BYTES)
        memcpy(value, &number, NUMBER_BYTES);
}

uint64_t load_value_hash(const uint8_t *value, uint32_t bytes)
{
    uint64_t hash = XXH3_64bits(value, bytes);
    return hash ? hash : 1;
}

bool load_value_is_false(const uint8_t *value, uint32_t bytes)
{
    return bytes == FALSE_VALUE_BYTES && memcmp(value, FALSE_VALUE, FALSE_VALUE_BYTES) == 0;
}

/* Where in its own entry, block by block and header by header, byte `at` of the payload lies. */
static uint32_t place_of(uint32_t block_limit, uint32_t at)
{
    uint32_t capacity = block_limit - ENTRY_HEADER_BYTES;
    return at / capacity * block_limit + ENTRY_HEADER_BYTES + at % capacity;
}

uint32_t load_value_forge(const struct load_false_entry *entry, uint32_t block_limit,
                          uint32_t key_bytes, uint32_t shift, uint8_t *value, uint32_t bytes,
                          uint32_t from)
{
    const struct entry_format format = {.seed = entry->seed, .block_limit = block_limit};
    const struct entry_header header = {.type = entry->type,
                                        .shard = entry->shard,
                                        .version = entry->version,
                                        .key_bytes = entry->key_bytes,
                                        .value_bytes =
                                            entry->type == ENTRY_PUT ? FALSE_VALUE_BYTES : 0,
                                        .blocks = 1};
    uint8_t block[LOAD_FALSE_BYTES];
    ASSERT(entry->key_bytes <= sizeof entry->key && shift < ENTRY_ALIGN);
    uint32_t block_bytes = entry_encode_block(&format, &header, entry->key, FALSE_VALUE, block);
    for (uint32_t at = from < NUMBER_BYTES ? NUMBER_BYTES : from;;) {
        uint32_t place = place_of(block_limit, key_bytes + at);
        uint32_t aligned = (place + ENTRY_ALIGN - 1) / ENTRY_ALIGN * ENTRY_ALIGN;
        uint32_t inside = aligned % block_limit;
        at += aligned - place + shift;
        if (at + block_bytes > bytes)
            return 0;
        /* A block's first place is its header's; what lies across two blocks is whole in none. */
        if (inside && inside + shift + block_bytes <= block_limit) {
            memcpy(value + at, block, block_bytes);
            return at + block_bytes;
        }
        at += ENTRY_HEADER_BYTES;
    }
}
