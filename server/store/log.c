/* An append log: fills one segment after another. It keeps no durable state of its own: at a start
 * the entries' checksums tell where each segment ends. */
#include "server/store/log.h"

void log_init(struct log *log, struct store *store, enum segment_owner owner, uint32_t owner_number)
{
    *log = (struct log){.store = store, .owner = owner, .owner_number = owner_number};
}

void log_watch(struct log *log, void (*closing)(void *context),
               void (*opened)(void *context, uint32_t bytes), void *context)
{
    log->closing = closing;
    log->opened = opened;
    log->context = context;
}

void log_close(struct log *log)
{
    ASSERT(log->open);
    if (log->closing)
        log->closing(log->context);
    store_transition(log->store, log->segment, SEGMENT_USED);
    log->open = false;
}

/* The open segment, if any, has not enough left. */
int log_reserve_segment(struct log *log, uint32_t bytes)
{
    const uint64_t old = log->segment;
    const bool was_open = log->open;
    uint64_t segment;
    int error = store_allocate(log->store, log->owner, log->owner_number, &segment);
    if (error)
        return error;
    if (was_open && log->closing)
        log->closing(log->context);
    log->open = true;
    log->allocation = store_meta(log->store, segment).allocation;
    if (log->segments++ == 0)
        log->first_allocation = log->allocation;
    log->segment = segment;
    log->start = store_segment_offset(log->store, segment);
    log->tail = 0;
    if (log->opened)
        log->opened(log->context, bytes);
    if (was_open)
        store_transition(log->store, old, SEGMENT_USED);
    return 0;
}
