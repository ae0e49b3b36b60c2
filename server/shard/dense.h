/* dense.h - which versions of one shard a replica has, as a prefix without holes and a few ranges
 * behind it.
 *
 * The counter restarts in each epoch at 1 and is dense (design, section 5), so within an epoch a
 * hole is a version that did not arrive (yet). The step from one epoch to the next leaves no hole:
 * when the commit version (e, 0) is known, everything of lower epochs is settled.
 *
 * Versions arrive nearly in order, so the ranges behind a hole are few. When there are more than
 * DENSE_RANGES the highest is forgotten: its versions count as not arrived and are fetched again,
 * which does no harm. Pure, one thread, nothing is allocated.
 */
#ifndef SERVER_DENSE_H
#define SERVER_DENSE_H

#include <stdbool.h>
#include <stdint.h>

enum { DENSE_RANGES = 16 };

struct dense_range {
    uint64_t first, last; /* versions of one epoch, both inclusive */
};

struct dense {
    uint64_t upto; /* every version up to it arrived or is settled */
    uint32_t count;
    struct dense_range ranges[DENSE_RANGES]; /* by rising first; disjoint, not touching */
};

/* All versions up to `upto` are there: version_make(epoch, 0) at the start of an epoch. */
void dense_init(struct dense *dense, uint64_t upto);

/* A whole entry with this version has arrived. Twice does no harm. */
void dense_add(struct dense *dense, uint64_t version);

/* Everything of epochs below `epoch` is settled. Lower epochs than before change nothing. */
void dense_settle(struct dense *dense, uint32_t epoch);

/* Is a version missing that is at or below `commit`? Then the first hole: *first to *last,
 * inclusive, *last at most `commit`. `commit`'s epoch was settled before. */
bool dense_hole(const struct dense *dense, uint64_t commit, uint64_t *first, uint64_t *last);

#endif
