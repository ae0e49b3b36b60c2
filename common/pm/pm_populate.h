/* pm_populate.h - enters a map's pages into this process's page table ahead of the stores.
 *
 * A page of a file in memory (tmpfs) is there when the file's space was reserved, but the first store to it through
 * a map faults: 1 us for each 4 KiB, and a log never stores twice into a page. A thread takes these faults
 * from the start of the map to its end. So the whole map counts as this process's memory, used or not.
 */
#ifndef PM_POPULATE_H
#define PM_POPULATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct pm_populate {
    uint8_t *base;
    uint64_t bytes;
    pthread_t thread;
    bool running;
    _Atomic bool stop;
};

/* Starts the thread. Does nothing where there is no thread to be had, or the kernel (before 5.14) cannot: then
 * stores fault as ever. */
void pm_populate_start(struct pm_populate *populate, void *base, uint64_t bytes);

/* Waits for one step at most. Before the map is unmapped; fine where it was not started. */
void pm_populate_stop(struct pm_populate *populate);

#endif
