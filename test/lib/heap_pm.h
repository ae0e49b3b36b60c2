/* heap_pm.h - a PM map on the heap, for tests that need no file: every store is durable at once,
 * until the moment the test chooses for a crash.
 */
#ifndef TEST_LIB_HEAP_PM_H
#define TEST_LIB_HEAP_PM_H

#include <stdatomic.h>

#include "common/pm/pm.h"

struct heap_pm {
    struct pm pm;
    _Atomic uint64_t stores; /* pm_store and pm_zero calls so far */
    _Atomic uint64_t fences; /* pm_fence_start calls so far */
    uint64_t crash_after;    /* stores beyond this number are lost; UINT64_MAX: none is */
};

/* `bytes` of zeros, which the host hands out page by page. Aborts without memory. */
struct heap_pm *heap_pm_create(uint64_t bytes);
void heap_pm_destroy(struct heap_pm *heap);

#endif
