/* An array that doubles, sorted once. suffix_drop only raises a bound; items below it are removed when
 * the array is full, and by the sort. */
#include "server/shard/suffix.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

enum { SUFFIX_FIRST_ITEMS = 64 };

static void squeeze(struct suffix *suffix)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < suffix->count; i++) {
        if (suffix->items[i].version > suffix->above)
            suffix->items[kept++] = suffix->items[i];
    }
    suffix->count = kept;
}

/* The array must hold `count` items. */
static int set_capacity(struct suffix *suffix, uint64_t count)
{
    struct suffix_item *items =
        count <= UINT32_MAX ? realloc(suffix->items, count * sizeof *items) : NULL;
    if (!items)
        return ROWAN_ENOMEM;
    suffix->items = items;
    suffix->capacity = (uint32_t)count;
    return 0;
}

/* For one item more. Doubles unless squeezing freed half, so that as many additions follow a squeeze as
 * it reads items. */
static int grow(struct suffix *suffix)
{
    squeeze(suffix);
    if (suffix->count < suffix->capacity && suffix->count <= suffix->capacity / 2)
        return 0;
    int error = set_capacity(suffix, suffix->capacity ? (uint64_t)suffix->capacity * 2
                                                      : SUFFIX_FIRST_ITEMS);
    return suffix->count < suffix->capacity ? 0 : error;
}

int suffix_add(struct suffix *suffix, uint64_t version, uint64_t offset)
{
    ASSERT(!suffix->sorted);
    if (version <= suffix->above)
        return 0;
    if (suffix->count == suffix->capacity) {
        int error = grow(suffix);
        if (error)
            return error;
    }
    suffix->items[suffix->count++] = (struct suffix_item){.version = version, .offset = offset};
    return 0;
}

void suffix_drop(struct suffix *suffix, uint64_t version)
{
    if (version > suffix->above)
        suffix->above = version;
}

static int by_version(const void *a, const void *b)
{
    const struct suffix_item *left = a, *right = b;
    return left->version != right->version ? (left->version < right->version ? -1 : 1) : 0;
}

void suffix_sort(struct suffix *suffix)
{
    suffix->sorted = true;
    squeeze(suffix);
    if (suffix->count > 0)
        qsort(suffix->items, suffix->count, sizeof *suffix->items, by_version);
    suffix->contiguous = suffix->above;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < suffix->count; i++) {
        const struct suffix_item item = suffix->items[i];
        if (kept > 0 && item.version == suffix->items[kept - 1].version)
            continue;
        suffix->items[kept++] = item;
        suffix->contiguous += item.version == suffix->contiguous + 1;
    }
    suffix->count = kept;
}

int suffix_merge(struct suffix *suffix, struct suffix *more)
{
    uint64_t count = (uint64_t)suffix->count + more->count;
    int error = count > suffix->capacity ? set_capacity(suffix, count) : 0;
    if (error)
        return error;
    if (more->count)
        memcpy(suffix->items + suffix->count, more->items, more->count * sizeof *more->items);
    suffix->count = (uint32_t)count;
    suffix_clear(more);
    suffix_sort(suffix);
    return 0;
}

uint32_t suffix_find(const struct suffix *suffix, uint64_t version)
{
    ASSERT(suffix->sorted);
    uint32_t low = 0, high = suffix->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (suffix->items[middle].version > version)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool suffix_has(const struct suffix *suffix, uint64_t version)
{
    const uint32_t at = suffix_find(suffix, version - 1);
    return at < suffix->count && suffix->items[at].version == version;
}

void suffix_clear(struct suffix *suffix)
{
    free(suffix->items);
    *suffix = (struct suffix){.above = suffix->above};
}
