/* The suffix of one shard: an array that doubles, sorted once. Dropping only raises a bound; what lies
 * below it is squeezed out when the array is full, and by the sort. */
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

/* Room for one more. It grows unless half of it was won back, so that a squeeze is paid for by as many
 * additions as it looks at items. */
static int make_room(struct suffix *suffix)
{
    squeeze(suffix);
    if (suffix->count < suffix->room && suffix->count <= suffix->room / 2)
        return 0;
    uint64_t room = suffix->room ? (uint64_t)suffix->room * 2 : SUFFIX_FIRST_ITEMS;
    struct suffix_item *items =
        room <= UINT32_MAX ? realloc(suffix->items, room * sizeof *items) : NULL;
    if (!items)
        return suffix->count < suffix->room ? 0 : ROWAN_ENOMEM;
    suffix->items = items;
    suffix->room = (uint32_t)room;
    return 0;
}

int suffix_add(struct suffix *suffix, uint64_t version, uint64_t offset)
{
    ASSERT(!suffix->sorted);
    if (version <= suffix->above)
        return 0;
    if (suffix->count == suffix->room) {
        int error = make_room(suffix);
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
    if (suffix->count == 0)
        return;
    qsort(suffix->items, suffix->count, sizeof *suffix->items, by_version);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < suffix->count; i++) {
        if (suffix->items[i].version != suffix->items[kept - 1].version)
            suffix->items[kept++] = suffix->items[i];
    }
    suffix->count = kept;
}

int suffix_merge(struct suffix *suffix, struct suffix *more)
{
    uint64_t room = (uint64_t)suffix->count + more->count;
    if (room > suffix->room) {
        struct suffix_item *items =
            room <= UINT32_MAX ? realloc(suffix->items, room * sizeof *items) : NULL;
        if (!items)
            return ROWAN_ENOMEM;
        suffix->items = items;
        suffix->room = (uint32_t)room;
    }
    if (more->count)
        memcpy(suffix->items + suffix->count, more->items, more->count * sizeof *more->items);
    suffix->count = (uint32_t)room;
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

void suffix_clear(struct suffix *suffix)
{
    free(suffix->items);
    *suffix = (struct suffix){.above = suffix->above};
}
