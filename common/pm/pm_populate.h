/* pm_populate.h - enters a map's pages into this process's page table ahead of the stores.
 *
 * A page of a file in memory (tmpfs) is there when the file's space was reserved, but the first store to it through
 * a map faults: 1 us and more for each 4 KiB, and a log never stores twice into a page.
 *
 * Of its owner's map a thread takes these faults, from the start of the map to its end; so the whole map counts as this
 * process's memory, used or not. Of a peer's, who maps as much for each of its workers and owners, whoever stores
 * takes those of a whole window when it enters one: no page that it does not come near.
 */
#ifndef PM_POPULATE_H
#define PM_POPULATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PM_WINDOW_SHIFT = 16 }; /* of 64 KiB: some 15 us */

struct pm_populate {
    uint8_t *base;
    uint64_t bytes;
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    _Atomic uint8_t *entered; /* for each window */
};

/* Starts the thread. Does nothing where there is no thread to be had, or the kernel (before 5.14) cannot: then
 * stores fault as ever. */
void pm_populate_start(struct pm_populate *populate, uint8_t *base, uint64_t bytes);

/* From now on stores enter windows; false: no memory for that. */
bool pm_populate_windows(struct pm_populate *populate, uint8_t *base, uint64_t bytes);

/* Waits for one step at most. Before the map is unmapped; fine where nothing was started. */
void pm_populate_stop(struct pm_populate *populate);

/* Was the window entered in which a store of `bytes` (not 0) at `offset` ends? If not, pm_populate_enter comes before
 * the store: for all its windows. Any thread. */
static inline bool pm_populate_entered(const struct pm_populate *populate, uint64_t offset,
                                       size_t bytes)
{
    const uint64_t last = (offset + bytes - 1) >> PM_WINDOW_SHIFT;
    return atomic_load_explicit(&populate->entered[last], memory_order_relaxed);
}
void pm_populate_enter(struct pm_populate *populate, uint64_t offset, size_t bytes);

#endif
