/* pm_file.c - a map of a file of any file system. A fence is a ticket for the next sync to start; a
 * helper thread runs one sync at a time, so all fences that arrive during one share the next: the
 * device sees one write per batch, however many ask.
 *
 * Any thread may start a fence, and the number of a sync is drawn where it starts.
 *
 * 1. done <= started <= asked <= started + 1.
 * 2. A ticket is the number of a sync that had not started when the ticket was issued, so that sync
 *    meets every store made before.
 * 3. After a failed sync none starts: the kernel may have dropped the pages and marked them clean,
 *    and a second sync would call lost bytes durable.
 *
 *            fence_start              helper_run             sync returned 0
 *   resting ------------> asked ------------> syncing ------------------------> resting, or asked
 *                                                |
 *                                                +-- sync failed --> failed (for ever)
 *
 * fdatasync is enough for stores through the mapping: the first store to a clean page faults and
 * marks it dirty in the page cache, and msync(MS_SYNC) is in Linux nothing but the fdatasync of the
 * range (mm/msync.c).
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/pm/pm_map.h"
#include "common/pm/pm_populate.h"
#include "common/reactor/reactor.h"
#include "common/reactor/thread.h"

struct pm_file {
    struct pm pm;
    struct pm_map map;
    struct pm_populate populate; /* a map in memory */
    struct reactor *reactor;     /* to wake when a sync has ended, or NULL */
    pm_file_sync *sync;
    pthread_t helper; /* with PM_NONE none before the first pm_sync_start */
    bool helped;

    pthread_mutex_t mutex; /* guards the next three; held for a few instructions only */
    pthread_cond_t changed;
    uint64_t asked;   /* the highest sync that somebody wants */
    uint64_t started; /* the highest sync that has begun */
    bool closing;

    _Atomic uint64_t done; /* the highest sync that succeeded */
    _Atomic int error;     /* ROWAN_EIO once one has failed */
};

/* Waits until a sync is wanted and starts it. False: the map closes and none is wanted. */
static bool begin_sync(struct pm_file *file)
{
    bool wanted;

    pthread_mutex_lock(&file->mutex);
    while (file->asked == file->started && !file->closing)
        pthread_cond_wait(&file->changed, &file->mutex);
    wanted = file->asked > file->started;
    if (wanted)
        file->started++;
    ASSERT(file->asked == file->started);
    pthread_mutex_unlock(&file->mutex);
    return wanted;
}

static void *helper_run(void *argument)
{
    struct pm_file *file = argument;
    bool failed = false;

    while (!failed && begin_sync(file)) {
        failed = file->sync(file->pm.fd) < 0;
        if (failed) {
            log_event(LOG_ERROR, "pm_sync_failed", "reason=\"%s\"", strerror(errno));
            atomic_store_explicit(&file->error, ROWAN_EIO, memory_order_release);
        } else {
            atomic_fetch_add_explicit(&file->done, 1, memory_order_release);
        }
        if (file->reactor)
            reactor_wake(file->reactor);
    }
    return NULL;
}

static int start_helper(struct pm_file *file)
{
    int error = 0;

    if (!file->helped)
        error = thread_start(&file->helper, "pm-sync", helper_run, file);
    file->helped = !error;
    return error;
}

static void file_close(struct pm *pm)
{
    struct pm_file *file = (struct pm_file *)pm;

    if (file->helped) {
        pthread_mutex_lock(&file->mutex);
        file->closing = true;
        pthread_cond_signal(&file->changed);
        pthread_mutex_unlock(&file->mutex);
        pthread_join(file->helper, NULL);
    }
    pthread_cond_destroy(&file->changed);
    pthread_mutex_destroy(&file->mutex);
    pm_populate_stop(&file->populate);
    pm_map_close(&file->map);
    free(file);
}

static void file_store(struct pm *pm, uint64_t offset, const void *source, size_t bytes)
{
    ASSERT(offset <= pm->bytes && bytes <= pm->bytes - offset);
    if (is_one_word(offset, bytes))
        store_word(pm->base + offset, source);
    else
        memcpy(pm->base + offset, source, bytes);
}

/* Apart, so that a store within a window saves no registers. */
static __attribute__((noinline, cold)) void enter_and_store(struct pm *pm, uint64_t offset,
                                                            const void *source, size_t bytes)
{
    struct pm_file *file = (struct pm_file *)pm;

    ASSERT(offset <= pm->bytes && bytes <= pm->bytes - offset);
    if (bytes > 0)
        pm_populate_enter(&file->populate, offset, bytes);
    file_store(pm, offset, source, bytes);
}

static void window_store(struct pm *pm, uint64_t offset, const void *source, size_t bytes)
{
    ASSERT(offset <= pm->bytes && bytes <= pm->bytes - offset);
    if (bytes > 0 && pm_populate_entered(&((struct pm_file *)pm)->populate, offset, bytes))
        file_store(pm, offset, source, bytes);
    else
        enter_and_store(pm, offset, source, bytes);
}

static void file_zero(struct pm *pm, uint64_t offset, size_t bytes)
{
    ASSERT(offset <= pm->bytes && bytes <= pm->bytes - offset);
    memset(pm->base + offset, 0, bytes);
}

static struct pm_ticket ask(struct pm_file *file)
{
    struct pm_ticket ticket;

    pthread_mutex_lock(&file->mutex);
    ticket.number = file->started + 1;
    if (file->asked != ticket.number) {
        file->asked = ticket.number;
        pthread_cond_signal(&file->changed);
    }
    pthread_mutex_unlock(&file->mutex);
    return ticket;
}

static struct pm_ticket file_fence_start(struct pm *pm)
{
    return pm->durability == PM_NONE ? (struct pm_ticket){0} : ask((struct pm_file *)pm);
}

static struct pm_ticket file_sync_start(struct pm *pm)
{
    struct pm_file *file = (struct pm_file *)pm;

    if (start_helper(file))
        atomic_store_explicit(&file->error, ROWAN_EIO, memory_order_release);
    return ask(file);
}

static int file_sync_done(struct pm *pm, struct pm_ticket ticket)
{
    struct pm_file *file = (struct pm_file *)pm;
    uint64_t done = atomic_load_explicit(&file->done, memory_order_acquire);
    int error = atomic_load_explicit(&file->error, memory_order_acquire);

    if (error)
        return error;
    return done >= ticket.number;
}

static int file_fence_done(struct pm *pm, struct pm_ticket ticket)
{
    const int done = file_sync_done(pm, ticket);

    return done == 0 && pm->durability != PM_FENCE ? 1 : done;
}

static uint64_t file_sync_count(const struct pm *pm)
{
    const struct pm_file *file = (const struct pm_file *)pm;

    return atomic_load_explicit(&file->done, memory_order_acquire);
}

#define FILE_OPS(how_to_store)                                                                     \
    {                                                                                              \
        .close = file_close, .store = how_to_store, .zero = file_zero,                             \
        .fence_start = file_fence_start, .fence_done = file_fence_done,                            \
        .sync_start = file_sync_start, .sync_done = file_sync_done, .sync_count = file_sync_count  \
    }

static const struct pm_ops file_ops = FILE_OPS(file_store);
/* Of a map whose windows are entered. */
static const struct pm_ops window_ops = FILE_OPS(window_store);

int pm_file_create(const struct pm_map *map, enum pm_durability durability, struct reactor *reactor,
                   struct pm **out)
{
    struct pm_file *file = calloc(1, sizeof(*file));
    int error;

    if (!file)
        return ROWAN_ENOMEM;
    file->map = *map;
    file->reactor = reactor;
    file->sync = fdatasync;
    file->pm = pm_map_head(map, &file_ops, durability, "file");
    pthread_mutex_init(&file->mutex, NULL);
    pthread_cond_init(&file->changed, NULL);
    if (durability != PM_NONE) {
        error = start_helper(file);
        if (error)
            goto fail;
    }
    if (map->in_memory && map->lock_fd >= 0)
        pm_populate_start(&file->populate, map->base, map->bytes);
    else if (map->in_memory && pm_populate_windows(&file->populate, map->base, map->bytes))
        file->pm.ops = &window_ops;
    *out = &file->pm;
    return 0;

fail:
    pthread_cond_destroy(&file->changed);
    pthread_mutex_destroy(&file->mutex);
    free(file);
    return error;
}

void pm_file_set_sync(struct pm *pm, pm_file_sync *sync)
{
    struct pm_file *file = (struct pm_file *)pm;

    ASSERT(pm->ops == &file_ops || pm->ops == &window_ops);
    pthread_mutex_lock(&file->mutex); /* the helper reads it after it has held the mutex */
    ASSERT(file->asked == 0);
    file->sync = sync;
    pthread_mutex_unlock(&file->mutex);
}
