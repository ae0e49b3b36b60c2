/* The thread of pm_populate.h: in steps, so that a close need not wait for long. */
#include "common/pm/pm_populate.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "common/pm/pm_thread.h"

enum { STEP_BYTES = 4 << 20 };

static void *populate_run(void *argument)
{
    struct pm_populate *populate = argument;

    for (uint64_t at = 0; at < populate->bytes; at += STEP_BYTES) {
        const uint64_t left = populate->bytes - at;

        if (atomic_load_explicit(&populate->stop, memory_order_relaxed) ||
            madvise(populate->base + at, left < STEP_BYTES ? left : STEP_BYTES,
                    MADV_POPULATE_WRITE) < 0)
            break;
    }
    return NULL;
}

void pm_populate_start(struct pm_populate *populate, void *base, uint64_t bytes)
{
    populate->base = base;
    populate->bytes = bytes;
    populate->running = !pm_thread_start(&populate->thread, "pm-populate", populate_run, populate);
}

void pm_populate_stop(struct pm_populate *populate)
{
    if (!populate->running)
        return;
    atomic_store_explicit(&populate->stop, true, memory_order_relaxed);
    pthread_join(populate->thread, NULL);
    populate->running = false;
}
