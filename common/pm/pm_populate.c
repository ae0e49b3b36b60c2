/* The thread of pm_populate.h works in steps, so that a close need not wait for long. */
#include "common/pm/pm_populate.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "common/reactor/thread.h"

enum { STEP_BYTES = 4 << 20 };

/* At most `most` bytes from `at` on. False: the kernel cannot. */
static bool populate_some(const struct pm_populate *populate, uint64_t at, uint64_t most)
{
    const uint64_t left = populate->bytes - at;

    return madvise(populate->base + at, left < most ? left : most, MADV_POPULATE_WRITE) == 0;
}

static void *populate_run(void *argument)
{
    struct pm_populate *populate = argument;

    for (uint64_t at = 0; at < populate->bytes; at += STEP_BYTES) {
        if (atomic_load_explicit(&populate->stop, memory_order_relaxed) ||
            !populate_some(populate, at, STEP_BYTES))
            break;
    }
    return NULL;
}

void pm_populate_start(struct pm_populate *populate, uint8_t *base, uint64_t bytes)
{
    populate->base = base;
    populate->bytes = bytes;
    populate->running = !thread_start(&populate->thread, "pm-populate", populate_run, populate);
}

bool pm_populate_windows(struct pm_populate *populate, uint8_t *base, uint64_t bytes)
{
    populate->base = base;
    populate->bytes = bytes;
    populate->entered = calloc((bytes >> PM_WINDOW_SHIFT) + 1, sizeof *populate->entered);
    return populate->entered;
}

/* Each window once, also if the kernel cannot. */
void pm_populate_enter(struct pm_populate *populate, uint64_t offset, size_t bytes)
{
    const uint64_t last = (offset + bytes - 1) >> PM_WINDOW_SHIFT;

    for (uint64_t window = offset >> PM_WINDOW_SHIFT; window <= last; window++) {
        if (!atomic_exchange_explicit(&populate->entered[window], 1, memory_order_relaxed))
            (void)populate_some(populate, window << PM_WINDOW_SHIFT, 1 << PM_WINDOW_SHIFT);
    }
}

void pm_populate_stop(struct pm_populate *populate)
{
    free(populate->entered);
    populate->entered = NULL;
    if (!populate->running)
        return;
    atomic_store_explicit(&populate->stop, true, memory_order_relaxed);
    pthread_join(populate->thread, NULL);
    populate->running = false;
}
