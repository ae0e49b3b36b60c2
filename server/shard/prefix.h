/* prefix.h - which versions of one shard have arrived at a replica: a prefix without holes and a few
 * ranges behind it.
 *
 * The counter restarts in each epoch at 1 and is contiguous (design, section 5), so within an epoch a
 * hole is a version that did not arrive (yet). The step from one epoch to the next leaves no hole:
 * when the commit version (e, 0) is known, everything of lower epochs is settled.
 *
 * Versions arrive nearly in order, so the ranges behind a hole are few. When there are more than
 * PREFIX_RANGES the highest is forgotten: its versions count as not arrived and are fetched again.
 * What the index shows is not stored once more then (digest_store.c, E2), what was superseded is.
 * Pure, one thread, nothing is allocated.
 */
#ifndef SERVER_PREFIX_H
#define SERVER_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/entry/entry.h"

enum { PREFIX_RANGES = 128 }; /* 2 KiB */

struct prefix_range {
    uint64_t first, last; /* versions of one epoch, both inclusive */
};

struct prefix {
    uint64_t upto; /* every version up to it arrived or is settled */
    uint32_t count;
    struct prefix_range ranges[PREFIX_RANGES]; /* by rising first; disjoint, not touching */
};

/* All versions up to `upto` are there: version_make(epoch, 0) at the start of an epoch. */
void prefix_init(struct prefix *prefix, uint64_t upto);

/* A whole entry with this version has arrived, or the primary has said that it is gone. Twice does no harm. False: nothing
 * changed, as it arrived before, or its epoch is settled, or it is forgotten at once. */
bool prefix_add_any(struct prefix *prefix, uint64_t version);
static inline bool prefix_add(struct prefix *prefix, uint64_t version)
{
    if (version != prefix->upto + 1 || prefix->count > 0 || version_counter(version) == 0)
        return prefix_add_any(prefix, version);
    prefix->upto = version; /* mostly */
    return true;
}

/* Has it arrived for certain? Of a settled epoch nobody knows. */
bool prefix_has(const struct prefix *prefix, uint64_t version);

/* Everything of epochs below `epoch` is settled. Lower epochs than before change nothing. */
void prefix_settle(struct prefix *prefix, uint32_t epoch);

/* True if a version at or below `commit` is missing; then *first to *last, inclusive, is the first
 * hole up to `commit`. `commit`'s epoch was settled before. */
bool prefix_hole(const struct prefix *prefix, uint64_t commit, uint64_t *first, uint64_t *last);

#endif
