/* suffix.h - the uncommitted suffix of one shard: where the entries lie that this replica has above its settled version.
 * Log reconciliation reads it.
 *
 * A start's scan fills it. A backup's digest role goes on with every entry that it applies, and drops what is settled; a
 * primary drops it when its reconciliation is over. Commit versions alone do not shorten it: what they cover another
 * replica may have lost by damage.
 *
 * MEMORY. 24 B an item. The array doubles, so it takes up to four times that of the most items there were at once. These
 * are what was written since the oldest segment was opened that is not settled: at 128 B an entry and two segments
 * (4 MiB) in work 64 Ki items, 6 MiB at most, in all shards of a server together; more while a backup of one of them is
 * away.
 */
#ifndef SERVER_SUFFIX_H
#define SERVER_SUFFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "server/shard/completed.h"

struct suffix_item {
    uint64_t version;
    uint64_t
        offset; /* of the contiguous entry in the map; 0: the entry was superseded, and is not in one
                            piece here, or gone: the version is not missing, and nobody can be shown it */
    uint32_t client, operation; /* client 0: nobody asks for it again */
};

struct suffix {
    struct suffix_item *items;
    uint32_t count, capacity;
    uint64_t above; /* items at or below it are not needed; some may still be in `items` */
    bool sorted;    /* nothing was added or dropped since the last suffix_sort */
    uint64_t
        contiguous; /* once sorted: from `above` up to it, in one epoch, no version is missing. Where an epoch ended
                            nobody knows, so it never leads into the next */
    struct completed *completed; /* what leaves at or below `above` is added there; or NULL */
};

/* For suffix_append. Errors: ROWAN_ENOMEM, and nothing changed. */
int suffix_grow(struct suffix *suffix);
static inline int suffix_reserve(struct suffix *suffix)
{
    return suffix->count < suffix->capacity ? 0 : suffix_grow(suffix);
}

/* After suffix_reserve. */
static inline void suffix_append(struct suffix *suffix, struct suffix_item item)
{
    suffix->items[suffix->count++] = item;
    suffix->sorted = false;
}

/* suffix_add_item: with both. What is at or below `above` leaves at once. Errors: ROWAN_ENOMEM, and nothing changed.
 * suffix_add: one that nobody asks for again. */
int suffix_add_item(struct suffix *suffix, struct suffix_item item);
int suffix_add(struct suffix *suffix, uint64_t version, uint64_t offset);

/* Items at or below `version` are not needed. Cheap to call often. */
void suffix_drop(struct suffix *suffix, uint64_t version);

/* Sorts by version and drops repeats of a version: one that can be shown stays. Cheap if it is sorted. */
void suffix_sort(struct suffix *suffix);

/* suffix_merge: moves `more`'s items to `suffix` and sorts it. Errors: ROWAN_ENOMEM, and nothing
 * changed. */
int suffix_merge(struct suffix *suffix, struct suffix *more);

/* The position of the first item above `version` in a sorted suffix; `count` if there is none. */
uint32_t suffix_find(const struct suffix *suffix, uint64_t version);

/* Does a sorted suffix hold this version? */
bool suffix_has(const struct suffix *suffix, uint64_t version);

/* Empty, and the memory is freed; nothing leaves for `completed`. */
void suffix_clear(struct suffix *suffix);

#endif
