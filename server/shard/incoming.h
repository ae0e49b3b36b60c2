/* incoming.h - one entry whose blocks come in order, in one control message or several, on their way into a log: an
 * answer to Fetch, or what log reconciliation brings. All of it lies in one piece from its first block on.
 *
 * One that is interrupted starts again with its first block, at the same place: so what comes again fills no segments.
 * Its blocks are checked before they come here.
 */
#ifndef SERVER_INCOMING_H
#define SERVER_INCOMING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/entry/entry.h"
#include "server/store/log.h"

struct incoming {
    bool coming;  /* the first block came, and the last did not */
    bool skipped; /* it is here already: nothing is stored */
    struct entry_header header;
    uint32_t next_block;
    uint64_t start,
        offset; /* in the map, of the entry and of its next block; if it is not skipped */
};

/* incoming_take: the next block, or the first of another entry, which is skipped if `is_here` (of others that says
 * nothing). Stored, not fenced. 1: it was the last, and the entry is whole at `start`, if it is not skipped. 0: more are to
 * come. Errors: ROWAN_EAGAIN (neither the first block nor the next one), those of log_reserve; and the entry starts again. */
int incoming_take(struct incoming *incoming, struct log *log, const struct entry_format *format,
                  const struct entry_header *header, const void *block, bool is_here);

#endif
