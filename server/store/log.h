/* log.h - an append log made of segments: a worker's t-log, or the log into which a digest role
 * joins the blocks of long entries. One owner, on one thread. */
#ifndef SERVER_LOG_H
#define SERVER_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/assert.h"
#include "common/base/fault.h"
#include "common/entry/entry.h"
#include "server/store/store.h"

struct log {
    struct store *store;
    enum segment_owner owner;
    uint32_t owner_number;
    bool open;                                     /* there is a current segment */
    uint64_t segment;                              /* the current one */
    uint64_t start;                                /* its offset in the map */
    uint32_t tail;                                 /* bytes of it that are reserved */
    uint64_t segments;                             /* allocated since the start */
    uint64_t first_allocation, allocation;         /* of them: the first, and the last */
    void (*closing)(void *context);                /* NULL: nobody asked */
    void (*opened)(void *context, uint32_t bytes); /* likewise */
    void *context;
};

void log_init(struct log *log, struct store *store, enum segment_owner owner,
              uint32_t owner_number);

/* log_watch: `closing` is called before the current segment becomes USED: whoever sees it USED sees what was published then.
 * `opened` (or NULL) is called when there is a new current segment, before `bytes` of it are reserved for whoever needed
 * it, and before the old one becomes USED. It may take from the segment (log_take), but has to leave those bytes. */
void log_watch(struct log *log, void (*closing)(void *context),
               void (*opened)(void *context, uint32_t bytes), void *context);

/* log_reserve: `bytes` (a multiple of 64, at most a segment) that lie in one segment; their place
 * in the map goes to *offset. They are zeros until the caller stores there. When a new segment is
 * needed, the rest of the old one stays zero and the old one becomes USED. Errors: ROWAN_EFULL, and nothing
 * changed. */
int log_reserve_segment(struct log *log, uint32_t bytes);
static inline uint64_t log_take(struct log *log, uint32_t bytes);
static inline int log_reserve(struct log *log, uint32_t bytes, uint64_t *offset)
{
    ASSERT(bytes > 0 && bytes % ENTRY_ALIGN == 0 && bytes <= STORE_SEGMENT_BYTES);
    if (!log->open || log->tail + bytes > STORE_SEGMENT_BYTES || FAULT(EARLY_ROLL)) {
        int error = log_reserve_segment(log, bytes);
        if (error)
            return error;
    }
    *offset = log_take(log, bytes);
    return 0;
}

/* The same of the current segment, which has room for them. */
static inline uint64_t log_take(struct log *log, uint32_t bytes)
{
    ASSERT(log->open && bytes <= STORE_SEGMENT_BYTES - log->tail);
    const uint64_t offset = log->start + log->tail;
    log->tail += bytes;
    return offset;
}

/* log_close: the current segment becomes USED, although it has space. There must be one. */
void log_close(struct log *log);

/* What can be reserved without a new segment. */
static inline uint32_t log_room(const struct log *log)
{
    return log->open ? STORE_SEGMENT_BYTES - log->tail : 0;
}

#endif
