#include "test/lib/heap_pm.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/assert.h"

static bool heap_store_lands(struct heap_pm *heap, uint64_t offset, size_t bytes)
{
    ASSERT(offset <= heap->pm.bytes && bytes <= heap->pm.bytes - offset);
    return atomic_fetch_add(&heap->stores, 1) < heap->crash_after;
}

static void heap_store(struct pm *pm, uint64_t offset, const void *source, size_t bytes)
{
    if (heap_store_lands((struct heap_pm *)pm, offset, bytes))
        memcpy(pm->base + offset, source, bytes);
}

static void heap_zero(struct pm *pm, uint64_t offset, size_t bytes)
{
    if (heap_store_lands((struct heap_pm *)pm, offset, bytes))
        memset(pm->base + offset, 0, bytes);
}

static struct pm_ticket heap_fence_start(struct pm *pm)
{
    return (struct pm_ticket){atomic_fetch_add(&((struct heap_pm *)pm)->fences, 1) + 1};
}

static int heap_fence_done(struct pm *pm, struct pm_ticket ticket)
{
    (void)pm;
    (void)ticket;
    return 1;
}

static void heap_close(struct pm *pm)
{
    heap_pm_destroy((struct heap_pm *)pm);
}

static const struct pm_ops HEAP_OPS = {
    .close = heap_close,
    .store = heap_store,
    .zero = heap_zero,
    .fence_start = heap_fence_start,
    .fence_done = heap_fence_done,
};

struct heap_pm *heap_pm_create(uint64_t bytes)
{
    struct heap_pm *heap = calloc(1, sizeof(*heap));
    ASSERT(heap);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT(base != MAP_FAILED);
    heap->pm = (struct pm){.ops = &HEAP_OPS,
                           .base = base,
                           .bytes = bytes,
                           .fd = -1,
                           .durability = PM_NONE,
                           .backend = "sim"};
    heap->crash_after = UINT64_MAX;
    return heap;
}

void heap_pm_destroy(struct heap_pm *heap)
{
    if (!heap)
        return;
    munmap(heap->pm.base, heap->pm.bytes);
    free(heap);
}
