/* suffix.h - the uncommitted suffix of one shard: where the entries lie that a start's scan found above the settled
 * version. Log reconciliation reads it.
 *
 * Kept from the scan until the shard's epoch has its first commit version. 16 B an entry; it covers what was written
 * into segments that were not committed yet. Commit versions do not shorten it: what they cover another replica may have
 * lost by damage.
 */
#ifndef SERVER_SUFFIX_H
#define SERVER_SUFFIX_H

#include <stdbool.h>
#include <stdint.h>

struct suffix_item {
    uint64_t version;
    uint64_t offset; /* of the contiguous entry in the map */
};

struct suffix {
    struct suffix_item *items;
    uint32_t count, capacity;
    uint64_t above; /* items at or below it are not needed; some may still be in `items` */
    bool sorted;    /* suffix_sort was called */
    uint64_t
        contiguous; /* once sorted: from `above` up to it, in one epoch, no version is missing. Where an epoch ended
                            nobody knows, so it never leads into the next */
};

/* Errors: ROWAN_ENOMEM, and nothing changed. */
int suffix_add(struct suffix *suffix, uint64_t version, uint64_t offset);

/* Items at or below `version` are not needed. Cheap to call often. */
void suffix_drop(struct suffix *suffix, uint64_t version);

/* Sorts by version and drops repeats of a version. After it, suffix_add is a mistake until suffix_clear. */
void suffix_sort(struct suffix *suffix);

/* suffix_merge: moves `more`'s items to `suffix` and sorts it. Errors: ROWAN_ENOMEM, and nothing
 * changed. */
int suffix_merge(struct suffix *suffix, struct suffix *more);

/* The position of the first item above `version` in a sorted suffix; `count` if there is none. */
uint32_t suffix_find(const struct suffix *suffix, uint64_t version);

/* Does a sorted suffix hold this version? */
bool suffix_has(const struct suffix *suffix, uint64_t version);

void suffix_clear(struct suffix *suffix); /* and frees the memory */

#endif
