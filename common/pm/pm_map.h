/* pm_map.h - the file or device beneath a map: opened, locked, its space reserved, mapped. What
 * the backends of the pm seam share; nobody outside common/pm includes it. */
#ifndef PM_PM_MAP_H
#define PM_PM_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/pm/pm.h"

struct pm_map {
    uint8_t *base;
    uint64_t bytes;
    uint64_t offset; /* in the file or device */
    int fd;          /* ours alone: the kernel tells a failed sync once per open file description */
    int lock_fd;     /* another open file description, never handed out; -1 for a peer's map */
    bool synchronous; /* DAX: a flushed cache line is durable, no sync is needed */
    bool in_memory;   /* tmpfs and its kin: nothing here outlives the host */
};

/* pm_map_open: see pm_open. */
int pm_map_open(const struct pm_open_options *options, struct pm_map *out);

/* pm_map_open_read: see pm_open_read. */
int pm_map_open_read(const char *path, uint64_t offset, uint64_t bytes, struct pm_map *out);

/* pm_map_open_peer: see pm_open_peer. `fd` stays the caller's: the map opens the file again. */
int pm_map_open_peer(int fd, uint64_t offset, uint64_t bytes, struct pm_map *out);

/* Unmaps, unlocks, closes. */
void pm_map_close(struct pm_map *map);

#endif
