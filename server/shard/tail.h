/* tail.h - where the entries of one shard lie that a start's scan found above what is known to be
 * on all replicas: the part of the log that a union is about.
 *
 * Kept from the scan until the shard's epoch has its first commit version. 16 B an entry; commit
 * versions met during the scan keep it short (about what 15 ms of writes are).
 */
#ifndef SERVER_TAIL_H
#define SERVER_TAIL_H

#include <stdbool.h>
#include <stdint.h>

struct tail_item {
    uint64_t version;
    uint64_t offset; /* of the contiguous entry in the map */
};

struct tail {
    struct tail_item *items;
    uint32_t count, room;
    uint64_t above; /* items at or below it are not needed; some may still be in `items` */
    bool sorted;    /* tail_sort was called */
};

/* Errors: ROWAN_ENOMEM, and nothing changed. */
int tail_add(struct tail *tail, uint64_t version, uint64_t offset);

/* Items at or below `version` are not needed. Cheap to call often. */
void tail_drop(struct tail *tail, uint64_t version);

/* Sorts by version and drops repeats of a version. After it, tail_add is a mistake until tail_clear. */
void tail_sort(struct tail *tail);

/* tail_merge: `more`'s items become `tail`'s, which is sorted then; `more` is empty. Errors:
 * ROWAN_ENOMEM, and nothing changed. */
int tail_merge(struct tail *tail, struct tail *more);

/* The position of the first item above `version` in a sorted tail; `count` if there is none. */
uint32_t tail_find(const struct tail *tail, uint64_t version);

void tail_clear(struct tail *tail); /* and gives the memory back */

#endif
