/* The versions of one shard that arrived: a prefix, and ranges behind it.
 *
 * Invariants:
 *  N1  Every range is of one epoch, and no range has the counter 0: nothing with that counter ever
 *      arrives. So ranges never touch across epochs, and the prefix enters an epoch by dense_settle
 *      alone.
 *  N2  Ranges rise, are disjoint, do not touch each other, and do not touch the prefix.
 *  N3  What is forgotten counts as not arrived: the prefix never claims a version that is not there.
 */
#include "server/shard/dense.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/entry/entry.h"

void dense_init(struct dense *dense, uint64_t upto)
{
    *dense = (struct dense){.upto = upto};
}

static void remove_ranges(struct dense *dense, uint32_t at, uint32_t count)
{
    memmove(&dense->ranges[at], &dense->ranges[at + count],
            (dense->count - at - count) * sizeof dense->ranges[0]);
    dense->count -= count;
}

/* The prefix takes in the range that touches it, if there is one (N2). */
static void extend(struct dense *dense)
{
    if (dense->count && dense->ranges[0].first == dense->upto + 1) {
        dense->upto = dense->ranges[0].last;
        remove_ranges(dense, 0, 1);
    }
}

/* A range of its own for `version`, in front of range `at`; beyond DENSE_RANGES the highest goes. */
static void insert(struct dense *dense, uint32_t at, uint64_t version)
{
    if (dense->count == DENSE_RANGES) {
        if (at == DENSE_RANGES)
            return;
        dense->count--;
    }
    memmove(&dense->ranges[at + 1], &dense->ranges[at],
            (dense->count - at) * sizeof dense->ranges[0]);
    dense->ranges[at] = (struct dense_range){version, version};
    dense->count++;
}

void dense_add(struct dense *dense, uint64_t version)
{
    if (version <= dense->upto || version_counter(version) == 0) /* N1 */
        return;
    if (version == dense->upto + 1) {
        dense->upto = version;
        extend(dense);
        return;
    }
    /* The first range that does not lie wholly below `version`, from behind: it is mostly the last. */
    uint32_t at = dense->count;
    while (at > 0 && dense->ranges[at - 1].last >= version)
        at--;
    if (at < dense->count && dense->ranges[at].first <= version)
        return;
    bool below = at > 0 && dense->ranges[at - 1].last + 1 == version;
    bool above = at < dense->count && dense->ranges[at].first == version + 1;
    if (below && above) {
        dense->ranges[at - 1].last = dense->ranges[at].last;
        remove_ranges(dense, at, 1);
    } else if (below) {
        dense->ranges[at - 1].last = version;
    } else if (above) {
        dense->ranges[at].first = version;
    } else {
        insert(dense, at, version);
    }
}

void dense_settle(struct dense *dense, uint32_t epoch)
{
    uint64_t start = version_make(epoch, 0);
    if (start <= dense->upto)
        return;
    dense->upto = start;
    uint32_t settled = 0;
    while (settled < dense->count && dense->ranges[settled].last < start)
        settled++;
    remove_ranges(dense, 0, settled);
    extend(dense);
}

bool dense_hole(const struct dense *dense, uint64_t commit, uint64_t *first, uint64_t *last)
{
    if (commit <= dense->upto)
        return false;
    ASSERT(version_epoch(dense->upto) == version_epoch(commit));
    *first = dense->upto + 1;
    *last = commit;
    if (dense->count && dense->ranges[0].first - 1 < commit)
        *last = dense->ranges[0].first - 1;
    return true;
}
