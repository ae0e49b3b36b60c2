/* entry_log.h - a log of entries on a heap map, for tests and benchmarks of what points to entries.
 */
#ifndef TEST_LIB_ENTRY_LOG_H
#define TEST_LIB_ENTRY_LOG_H

#include "common/entry/entry.h"
#include "test/lib/heap_pm.h"

struct entry_log {
    struct heap_pm *heap;
    struct entry_format format;
    uint64_t end; /* where the next entry goes; offset 0 is never one */
};

void entry_log_init(struct entry_log *log, uint64_t bytes);
void entry_log_fini(struct entry_log *log);

/* Appends an entry of one block with `value_bytes` zeros as value; its offset. One thread. */
uint64_t entry_log_append(struct entry_log *log, enum entry_type type, const void *key,
                          uint16_t key_bytes, uint32_t value_bytes, uint64_t version);

/* Key number `number`, the same for ever: writes `key_bytes` (at least 8) bytes. */
void entry_log_key(uint64_t number, void *key, uint16_t key_bytes);

#endif
