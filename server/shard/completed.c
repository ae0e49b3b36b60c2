/* An array that doubles. When it is full, what was acknowledged meanwhile leaves first. */
#include "server/shard/completed.h"

#include <stdlib.h>
#include <string.h>

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

/* For one item more. Doubles unless half was freed, so that as many additions follow a walk as it reads items. False: no
 * memory. */
static bool grow(struct completed *completed)
{
    drop_acknowledged(completed);
    if (completed->count < completed->capacity && completed->count <= completed->capacity / 2)
        return true;
    if (completed->capacity == COMPLETED_MAX) {
        const uint32_t more = completed->count - COMPLETED_MAX / 2;
        completed->lost += more;
        drop_first(completed, more);
        return true;
    }
    const uint32_t capacity = completed->capacity ? 2 * completed->capacity : COMPLETED_FIRST;
    struct completed_item *items = realloc(completed->items, capacity * sizeof *items);
    if (!items)
        return completed->count < completed->capacity;
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

/* From the last to the first, as what leaves moves others to the front only. The cursor's `clients` says that it has begun. */
uint32_t completed_list(const struct completed *completed, struct records_cursor *cursor,
                        struct records_row *rows, uint32_t max, bool *over)
{
    uint32_t left =
        cursor->clients && cursor->bucket < completed->count ? cursor->bucket : completed->count;
    uint32_t count = 0;
    for (; left > 0 && count < max; count++) {
        const struct completed_item *item = &completed->items[--left];
        rows[count] = (struct records_row){
            .client = item->client, .operation = item->operation, .version = item->version};
    }
    *cursor = (struct records_cursor){.clients = true, .bucket = left};
    *over = left == 0;
    return count;
}

void completed_clear(struct completed *completed)
{
    free(completed->items);
    *completed =
        (struct completed){.acknowledged = completed->acknowledged, .lost = completed->lost};
}
