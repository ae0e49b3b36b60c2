/* Invariants:
 *  N1  Every range is of one epoch, and no range has the counter 0: nothing with that counter ever
 *      arrives. So ranges never touch across epochs, and the prefix enters an epoch by prefix_settle
 *      alone.
 *  N2  Ranges rise, are disjoint, do not touch each other, and do not touch the prefix.
 *  N3  What is forgotten counts as not arrived: the prefix never claims a version that is not there.
 */
#include "server/shard/prefix.h"

#include <string.h>

#include "common/base/assert.h"

void prefix_init(struct prefix *prefix, uint64_t upto)
{
    prefix->upto = upto;
    prefix->count = 0;
}

static void remove_ranges(struct prefix *prefix, uint32_t at, uint32_t count)
{
    memmove(&prefix->ranges[at], &prefix->ranges[at + count],
            (prefix->count - at - count) * sizeof prefix->ranges[0]);
    prefix->count -= count;
}

/* Joins the range that touches the prefix to it, if there is one (N2). */
static void extend(struct prefix *prefix)
{
    if (prefix->count && prefix->ranges[0].first == prefix->upto + 1) {
        prefix->upto = prefix->ranges[0].last;
        remove_ranges(prefix, 0, 1);
    }
}

/* A range of its own for `version`, in front of range `at`; if there are too many the highest goes. */
static bool insert(struct prefix *prefix, uint32_t at, uint64_t version)
{
    if (prefix->count == PREFIX_RANGES) {
        if (at == PREFIX_RANGES)
            return false;
        prefix->count--;
    }
    memmove(&prefix->ranges[at + 1], &prefix->ranges[at],
            (prefix->count - at) * sizeof prefix->ranges[0]);
    prefix->ranges[at] = (struct prefix_range){version, version};
    prefix->count++;
    return true;
}

/* The first range that does not lie wholly below `version`; searched from the end, as most are new. */
static uint32_t find_range(const struct prefix *prefix, uint64_t version)
{
    uint32_t at = prefix->count;
    while (at > 0 && prefix->ranges[at - 1].last >= version)
        at--;
    return at;
}

static bool in_range(const struct prefix *prefix, uint32_t at, uint64_t version)
{
    return at < prefix->count && prefix->ranges[at].first <= version;
}

static bool add_behind(struct prefix *prefix, uint64_t version)
{
    const uint32_t at = find_range(prefix, version);
    if (in_range(prefix, at, version))
        return false;
    bool below = at > 0 && prefix->ranges[at - 1].last + 1 == version;
    bool above = at < prefix->count && prefix->ranges[at].first == version + 1;
    if (below && above) {
        prefix->ranges[at - 1].last = prefix->ranges[at].last;
        remove_ranges(prefix, at, 1);
    } else if (below) {
        prefix->ranges[at - 1].last = version;
    } else if (above) {
        prefix->ranges[at].first = version;
    } else {
        return insert(prefix, at, version);
    }
    return true;
}

bool prefix_add_any(struct prefix *prefix, uint64_t version)
{
    if (version <= prefix->upto || version_counter(version) == 0) /* N1 */
        return false;
    if (version != prefix->upto + 1)
        return add_behind(prefix, version);
    prefix->upto = version;
    extend(prefix);
    return true;
}

bool prefix_has(const struct prefix *prefix, uint64_t version)
{
    if (version <= prefix->upto)
        return version_epoch(version) == version_epoch(prefix->upto);
    return in_range(prefix, find_range(prefix, version), version);
}

void prefix_settle(struct prefix *prefix, uint32_t epoch)
{
    uint64_t start = version_make(epoch, 0);
    if (start <= prefix->upto)
        return;
    prefix->upto = start;
    uint32_t settled = 0;
    while (settled < prefix->count && prefix->ranges[settled].last < start)
        settled++;
    remove_ranges(prefix, 0, settled);
    extend(prefix);
}

bool prefix_hole(const struct prefix *prefix, uint64_t commit, uint64_t *first, uint64_t *last)
{
    if (commit <= prefix->upto)
        return false;
    ASSERT(version_epoch(prefix->upto) == version_epoch(commit));
    *first = prefix->upto + 1;
    *last = commit;
    if (prefix->count && prefix->ranges[0].first - 1 < commit)
        *last = prefix->ranges[0].first - 1;
    return true;
}
