/* An array that doubles. suffix_drop only raises a bound; items below it are removed when the array is full, and by the
 * sort. Mostly entries come in the order of their versions, so before it sorts it looks whether there is anything to do. */
#include "server/shard/suffix.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

enum { SUFFIX_FIRST_ITEMS = 64 };

static void leave(struct suffix *suffix, const struct suffix_item *item)
{
    if (suffix->completed)
        completed_add(suffix->completed, item->client, item->operation, item->version);
}

static void squeeze(struct suffix *suffix)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < suffix->count; i++) {
        const struct suffix_item item = suffix->items[i];
        if (item.version > suffix->above)
            suffix->items[kept++] = item;
        else
            leave(suffix, &item);
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

/* Doubles unless squeezing freed half, so that as many additions follow a squeeze as it reads items. While the first item is
 * needed, so are most. Not inlined, so that the digest of an entry stays small. */
__attribute__((noinline)) int suffix_grow(struct suffix *suffix)
{
    if (suffix->count > 0 && suffix->items[0].version <= suffix->above)
        squeeze(suffix);
    if (suffix->count < suffix->capacity && suffix->count <= suffix->capacity / 2)
        return 0;
    int error = set_capacity(suffix, suffix->capacity ? (uint64_t)suffix->capacity * 2
                                                      : SUFFIX_FIRST_ITEMS);
    return suffix->count < suffix->capacity ? 0 : error;
}

int suffix_add_item(struct suffix *suffix, struct suffix_item item)
{
    if (item.version <= suffix->above) {
        leave(suffix, &item);
        return 0;
    }
    const int error = suffix_reserve(suffix);
    if (!error)
        suffix_append(suffix, item);
    return error;
}

int suffix_add(struct suffix *suffix, uint64_t version, uint64_t offset)
{
    return suffix_add_item(suffix, (struct suffix_item){.version = version, .offset = offset});
}

void suffix_drop(struct suffix *suffix, uint64_t version)
{
    if (version <= suffix->above)
        return;
    suffix->above = version;
    suffix->sorted = false; /* `contiguous` begins there now */
}

/* Of repeats one that can be shown comes first. */
static int by_version(const void *a, const void *b)
{
    const struct suffix_item *left = a, *right = b;
    if (left->version != right->version)
        return left->version < right->version ? -1 : 1;
    return (left->offset == 0) - (right->offset == 0);
}

static bool is_in_order(const struct suffix *suffix)
{
    uint32_t i = 1;
    while (i < suffix->count && suffix->items[i - 1].version < suffix->items[i].version)
        i++;
    return i >= suffix->count;
}

void suffix_sort(struct suffix *suffix)
{
    if (suffix->sorted)
        return;
    suffix->sorted = true;
    squeeze(suffix);
    if (!is_in_order(suffix))
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
    suffix->sorted = false;
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
    *suffix = (struct suffix){.above = suffix->above, .completed = suffix->completed};
}
