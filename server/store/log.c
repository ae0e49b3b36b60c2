/* An append log: the tail of one segment after another. It keeps no durable state of its own: at a
 * start the entries' checksums tell where each segment ends. */
#include "server/store/log.h"

#include "common/base/assert.h"
#include "common/base/fault.h"

void log_init(struct log *log, struct store *store, enum segment_owner owner, uint32_t owner_number)
{
    *log = (struct log){.store = store, .owner = owner, .owner_number = owner_number};
}

int log_reserve(struct log *log, uint32_t bytes, uint64_t *offset)
{
    ASSERT(bytes > 0 && bytes % ENTRY_ALIGN == 0 && bytes <= STORE_SEGMENT_BYTES);
    if (!log->open || log->tail + bytes > STORE_SEGMENT_BYTES || FAULT(EARLY_ROLL)) {
        uint64_t segment;
        int error = store_allocate(log->store, log->owner, log->owner_number, &segment);
        if (error)
            return error;
        if (log->open)
            store_transition(log->store, log->segment, SEGMENT_USED);
        log->open = true;
        log->segments++;
        log->segment = segment;
        log->tail = 0;
    }
    *offset = store_segment_offset(log->store, log->segment) + log->tail;
    log->tail += bytes;
    return 0;
}
