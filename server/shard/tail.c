/* The tail of one shard: an array that doubles, sorted once. Dropping only raises a bound; what lies
 * below it is squeezed out when the array is full, and by the sort. */
#include "server/shard/tail.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

enum { TAIL_FIRST_ROOM = 64 };

static void squeeze(struct tail *tail)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < tail->count; i++) {
        if (tail->items[i].version > tail->above)
            tail->items[kept++] = tail->items[i];
    }
    tail->count = kept;
}

/* Room for one more. It grows unless half of it was won back, so that a squeeze is paid for by as many
 * additions as it looks at items. */
static int make_room(struct tail *tail)
{
    squeeze(tail);
    if (tail->count < tail->room && tail->count <= tail->room / 2)
        return 0;
    uint64_t room = tail->room ? (uint64_t)tail->room * 2 : TAIL_FIRST_ROOM;
    struct tail_item *items =
        room <= UINT32_MAX ? realloc(tail->items, room * sizeof *items) : NULL;
    if (!items)
        return tail->count < tail->room ? 0 : ROWAN_ENOMEM;
    tail->items = items;
    tail->room = (uint32_t)room;
    return 0;
}

int tail_add(struct tail *tail, uint64_t version, uint64_t offset)
{
    ASSERT(!tail->sorted);
    if (version <= tail->above)
        return 0;
    if (tail->count == tail->room) {
        int error = make_room(tail);
        if (error)
            return error;
    }
    tail->items[tail->count++] = (struct tail_item){.version = version, .offset = offset};
    return 0;
}

void tail_drop(struct tail *tail, uint64_t version)
{
    if (version > tail->above)
        tail->above = version;
}

static int by_version(const void *a, const void *b)
{
    const struct tail_item *left = a, *right = b;
    return left->version != right->version ? (left->version < right->version ? -1 : 1) : 0;
}

void tail_sort(struct tail *tail)
{
    tail->sorted = true;
    squeeze(tail);
    if (tail->count == 0)
        return;
    qsort(tail->items, tail->count, sizeof *tail->items, by_version);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < tail->count; i++) {
        if (tail->items[i].version != tail->items[kept - 1].version)
            tail->items[kept++] = tail->items[i];
    }
    tail->count = kept;
}

int tail_merge(struct tail *tail, struct tail *more)
{
    uint64_t room = (uint64_t)tail->count + more->count;
    if (room > tail->room) {
        struct tail_item *items =
            room <= UINT32_MAX ? realloc(tail->items, room * sizeof *items) : NULL;
        if (!items)
            return ROWAN_ENOMEM;
        tail->items = items;
        tail->room = (uint32_t)room;
    }
    if (more->count)
        memcpy(tail->items + tail->count, more->items, more->count * sizeof *more->items);
    tail->count = (uint32_t)room;
    tail_clear(more);
    tail_sort(tail);
    return 0;
}

uint32_t tail_find(const struct tail *tail, uint64_t version)
{
    ASSERT(tail->sorted);
    uint32_t low = 0, high = tail->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tail->items[middle].version > version)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void tail_clear(struct tail *tail)
{
    free(tail->items);
    *tail = (struct tail){.above = tail->above};
}
