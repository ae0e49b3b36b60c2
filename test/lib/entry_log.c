#include "test/lib/entry_log.h"

#include <string.h>

#include "common/base/assert.h"

void entry_log_init(struct entry_log *log, uint64_t bytes)
{
    log->heap = heap_pm_create(bytes);
    log->format = (struct entry_format){.seed = 0x5eed, .block_limit = ENTRY_MAX_BLOCK_LIMIT};
    log->end = ENTRY_ALIGN;
}

void entry_log_fini(struct entry_log *log)
{
    heap_pm_destroy(log->heap);
}

uint64_t entry_log_append(struct entry_log *log, enum entry_type type, const void *key,
                          uint16_t key_bytes, uint32_t value_bytes, uint64_t version)
{
    static const uint8_t value[1024];
    ASSERT(value_bytes <= sizeof(value));
    struct entry_header header = {.type = type,
                                  .shard = 1,
                                  .version = version,
                                  .key_bytes = key_bytes,
                                  .value_bytes = value_bytes,
                                  .blocks = 1};
    uint32_t bytes = entry_bytes(&log->format, key_bytes, value_bytes);
    uint64_t offset = log->end;
    ASSERT(bytes <= log->heap->pm.bytes - offset);
    entry_encode_block(&log->format, &header, key, value, log->heap->pm.base + offset);
    log->end = offset + bytes;
    return offset;
}

void entry_log_key(uint64_t number, void *key, uint16_t key_bytes)
{
    ASSERT(key_bytes >= sizeof(number));
    memset(key, 'k', key_bytes);
    memcpy((uint8_t *)key + key_bytes - sizeof(number), &number, sizeof(number));
}
