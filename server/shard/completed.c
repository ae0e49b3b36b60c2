/* An array that doubles. When it is full, what was acknowledged meanwhile leaves first, then the older half is reduced to
 * marks. Both move what stays to the front only. */
#include "server/shard/completed.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/fault.h"

enum { COMPLETED_FIRST = 64 };

/* The first `count` go. */
static void drop_first(struct completed *completed, uint32_t count)
{
    completed->count -= count;
    completed->older = completed->older > count ? completed->older - count : 0;
    if (count && completed->count)
        memmove(completed->items, completed->items + count,
                completed->count * sizeof *completed->items);
}

static void drop_acknowledged(struct completed *completed)
{
    uint32_t kept = 0, older = 0;
    for (uint32_t i = 0; completed->acknowledged && i < completed->count; i++) {
        const struct completed_item item = completed->items[i];
        if (acknowledged_has(completed->acknowledged, item.client, item.operation))
            continue;
        older += i < completed->older;
        completed->items[kept++] = item;
    }
    if (completed->acknowledged) {
        completed->count = kept;
        completed->older = older;
    }
}

static int by_client(const void *a, const void *b)
{
    const struct completed_item *left = a, *right = b;
    if (left->client != right->client)
        return left->client < right->client ? -1 : 1;
    return (left->operation < right->operation) - (left->operation > right->operation);
}

/* The items from `from` to `to` become marks that begin at `at`; returns the end of those. */
static uint32_t mark(struct completed *completed, uint32_t from, uint32_t to, uint32_t at)
{
    struct completed_item *items = completed->items;
    qsort(items + from, to - from, sizeof *items, by_client);
    for (uint32_t i = from; i < to; i++) {
        if (i > from && items[i].client == items[at - 1].client)
            continue;
        items[at] = items[i];
        items[at++].version = RECORDS_UNKNOWN;
    }
    return at;
}

/* The first `count` items. Those of before the last completed_age stay apart, so that they go with it. */
static void mark_first(struct completed *completed, uint32_t count)
{
    if (count == 0)
        return;
    completed->marked++;
    const uint32_t older = completed->older < count ? completed->older : count;
    const uint32_t marked = mark(completed, 0, older, 0);
    const uint32_t end = mark(completed, older, count, marked);
    completed->older -= completed->older < count ? older - marked : count - end;
    memmove(completed->items + end, completed->items + count,
            (completed->count - count) * sizeof *completed->items);
    completed->count -= count - end;
}

/* For one item more. Doubles unless a good part was freed, so that about as many additions follow a walk as it reads items.
 * False: no memory. */
static bool grow(struct completed *completed)
{
    drop_acknowledged(completed);
    if (completed->count < completed->capacity && completed->count <= completed->capacity / 2)
        return true;
    if (completed->capacity >= COMPLETED_MAX) {
        mark_first(completed, completed->count / 2);
        if (completed->count <= completed->capacity / 4 * 3)
            return true;
    }
    if (completed->capacity == COMPLETED_MAX_MARKED) {
        completed->older = 0; /* one mark for each client */
        mark_first(completed, completed->count);
        const uint32_t limit = completed->capacity / 4 * 3;
        const uint32_t more = completed->count > limit ? completed->count - limit : 0;
        completed->lost += more;
        drop_first(completed, more);
        return true;
    }
    const uint32_t capacity = completed->capacity ? 2 * completed->capacity : COMPLETED_FIRST;
    struct completed_item *items = completed->capacity && FAULT(NO_RECORD)
                                       ? NULL
                                       : realloc(completed->items, capacity * sizeof *items);
    if (!items) {
        mark_first(completed, completed->count / 2);
        return completed->count < completed->capacity;
    }
    completed->items = items;
    completed->capacity = capacity;
    return true;
}

void completed_add(struct completed *completed, uint32_t client, uint32_t operation,
                   uint64_t version)
{
    if (client == 0 ||
        (completed->acknowledged && acknowledged_has(completed->acknowledged, client, operation)))
        return;
    if (completed->count == completed->capacity && !grow(completed)) {
        completed->lost++;
        return;
    }
    completed->items[completed->count++] =
        (struct completed_item){.version = version, .client = client, .operation = operation};
}

void completed_age(struct completed *completed)
{
    drop_first(completed, completed->older);
    completed->older = completed->count;
    if (completed->count == 0)
        completed_clear(completed);
}

/* From the last to the first, as what leaves moves others to the front only; where some became marks meanwhile, anew. The
 * cursor's `clients` says that it has begun, `buckets` how often that was so. */
uint32_t completed_list(const struct completed *completed, struct records_cursor *cursor,
                        struct records_row *rows, uint32_t max, bool *over)
{
    uint32_t left =
        cursor->clients && cursor->buckets == completed->marked && cursor->bucket < completed->count
            ? cursor->bucket
            : completed->count;
    uint32_t count = 0;
    for (; left > 0 && count < max; count++) {
        const struct completed_item *item = &completed->items[--left];
        rows[count] = (struct records_row){
            .client = item->client, .operation = item->operation, .version = item->version};
    }
    *cursor =
        (struct records_cursor){.clients = true, .bucket = left, .buckets = completed->marked};
    *over = left == 0;
    return count;
}

void completed_clear(struct completed *completed)
{
    free(completed->items);
    *completed =
        (struct completed){.acknowledged = completed->acknowledged, .lost = completed->lost};
}
