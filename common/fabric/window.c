/* window.c - the window of Rowan sends; see window.h. */
#include "common/fabric/window.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"

int window_open(struct conn *conn, size_t bytes, uint32_t most)
{
    ASSERT((most & (most - 1)) == 0);
    conn->window = calloc(1, bytes);
    if (!conn->window)
        return ROWAN_ENOMEM;
    conn->window->ring.mask = most - 1;
    conn->window->ring.blocks = calloc(most, sizeof *conn->window->ring.blocks);
    return conn->window->ring.blocks ? 0 : ROWAN_ENOMEM;
}

void window_close(struct conn *conn)
{
    if (conn->window)
        free(conn->window->ring.blocks);
    free(conn->window);
    conn->window = NULL;
}

uint32_t window_rowan_room(const struct fabric_conn *base)
{
    const struct conn *conn = (const struct conn *)base;
    const struct send_window *window = conn->window;

    if (conn->state != CONN_OPEN || !window ||
        window->batch_tail - window->batch_head == WINDOW_BATCHES)
        return 0;
    return window->ring.mask + 1 - (uint32_t)(window->added - window->landed);
}

int window_rowan_add(struct fabric_conn *base, const void *block, uint32_t bytes)
{
    struct conn *conn = (struct conn *)base;
    struct send_window *window = conn->window;
    const struct region *region;

    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (!window || bytes == 0 || !window_is_strided(bytes) ||
        bytes > conn_endpoint(conn)->block_limit)
        return ROWAN_EINVALID;
    region = window->region;
    if (!region || !region_holds(region->base, region->bytes, block, bytes)) {
        region = regions_find(&conn_endpoint(conn)->fabric->regions, block, bytes);
        if (!region)
            return ROWAN_EINVALID;
        window->region = region;
    }
    if (window->batch_tail - window->batch_head == WINDOW_BATCHES ||
        window->added - window->landed > window->ring.mask)
        return ROWAN_EAGAIN;
    window->ring.blocks[window->added++ & window->ring.mask] =
        (struct window_block){.data = block, .bytes = bytes, .key = region->key};
    return 0;
}

int window_rowan_post(struct fabric_conn *base, uint64_t context)
{
    struct conn *conn = (struct conn *)base;
    struct send_window *window = conn->window;

    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (!window || window->posted == window->added)
        return 0;
    ASSERT(window->batch_tail - window->batch_head <
           WINDOW_BATCHES); /* or add had found none free */
    window->posted = window->added;
    window->batches[window->batch_tail++ % WINDOW_BATCHES] =
        (struct window_batch){.end = window->posted, .context = context};
    conn_list_add(conn, LIST_DIRTY);
    return 0;
}

unsigned window_events(struct conn *conn, struct fabric_event *events, unsigned max)
{
    struct send_window *window = conn->window;
    unsigned count = 0;

    for (; count < max && window_has_landed(window); window->batch_head++)
        events[count++] = (struct fabric_event){
            .kind = FABRIC_LANDED,
            .conn = &conn->base,
            .context = window->batches[window->batch_head % WINDOW_BATCHES].context};
    return count;
}
