/* verbs_slab.c - memory that messages lie in: copies that are sent until they are acknowledged, and messages
 * that are put together. Slabs of four sizes are made as they are needed, many at a time, and registered as
 * a whole; an endpoint keeps what it has made.
 *
 * 1. A slab is with one owner or on the list of free ones. At most kinds[].count of a kind are made.
 * 2. Where the system gives no memory, or lets no more be locked, it is not asked again for STREAM_REFUSED_NS: each
 *    try maps pages, calls into the kernel and ends in a line of the log, and a peer or an owner that finds none
 *    comes again at once.
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/fabric/verbs/verbs_stream.h"

static const struct {
    uint32_t bytes, count, grown;
} kinds[VSLAB_KINDS] = {
    [VSLAB_SMALL] = {512, 4096, 256},
    [VSLAB_MIDDLE] = {8 << 10, 1024, 32},
    [VSLAB_LARGE] = {64 << 10, 128, 8},
    [VSLAB_HUGE] = {FABRIC_MAX_MESSAGE_BYTES, 32, 1},
};

struct verbs_extent {
    struct verbs_extent *next;
    struct verbs_buffer buffer;
    struct verbs_slab slabs[];
};

/* 2: from now on. */
static bool refused(struct verbs_slabs *slabs)
{
    slabs->refused_ns = *slabs->now_ns;
    return false;
}

bool verbs_slabs_may_ask(struct verbs_slabs *slabs)
{
    if (slabs->refused_ns == 0 || *slabs->now_ns - slabs->refused_ns < STREAM_REFUSED_NS)
        return false;
    slabs->refused_ns = 0;
    return true;
}

static bool grow(struct verbs_slabs *slabs, enum verbs_slab_kind kind)
{
    const uint32_t count = kinds[kind].grown;
    struct verbs_extent *extent;

    if (slabs->counts[kind] + count > kinds[kind].count || /* 1 */
        (slabs->refused_ns != 0 && !verbs_slabs_may_ask(slabs)))
        return false;
    extent = calloc(1, sizeof *extent + count * sizeof extent->slabs[0]);
    if (!extent)
        return refused(slabs);
    if (verbs_buffer_open(slabs->device, (uint64_t)count * kinds[kind].bytes, &extent->buffer)) {
        free(extent);
        return refused(slabs);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct verbs_slab *slab = &extent->slabs[i];

        slab->data = extent->buffer.data + (size_t)i * kinds[kind].bytes;
        slab->key = extent->buffer.mr->lkey;
        slab->kind = kind;
        slab->held.slab = slab;
        verbs_slab_give(slabs, slab);
    }
    slabs->counts[kind] += count;
    extent->next = slabs->extents;
    slabs->extents = extent;
    return true;
}

struct verbs_slab *verbs_slab_get(struct verbs_slabs *slabs, uint32_t bytes)
{
    unsigned kind = VSLAB_SMALL;
    struct verbs_slab *slab;

    while (kind < VSLAB_HUGE && bytes > kinds[kind].bytes)
        kind++;
    if (bytes > kinds[kind].bytes)
        return NULL;
    if (!slabs->free[kind] && !grow(slabs, (enum verbs_slab_kind)kind)) {
        slabs->wanted |= UINT32_C(1) << kind;
        return NULL;
    }
    slab = slabs->free[kind];
    slabs->free[kind] = slab->next;
    slab->next = NULL;
    return slab;
}

void verbs_slab_give(struct verbs_slabs *slabs, struct verbs_slab *slab)
{
    ASSERT(!slab->next);
    slab->next = slabs->free[slab->kind];
    slabs->free[slab->kind] = slab;
}

void verbs_slabs_fini(struct verbs_slabs *slabs)
{
    while (slabs->extents) {
        struct verbs_extent *extent = slabs->extents;

        slabs->extents = extent->next;
        verbs_buffer_close(&extent->buffer);
        free(extent);
    }
}
