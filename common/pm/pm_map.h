/* pm_map.h - the file or device beneath a map: opened, locked, its space reserved, mapped. What
 * the backends of the pm seam share, and these; nobody outside common/pm and its tests includes it. */
#ifndef PM_PM_MAP_H
#define PM_PM_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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

/* The head of the backend of that name. */
static inline struct pm pm_map_head(const struct pm_map *map, const struct pm_ops *ops,
                                    enum pm_durability durability, const char *backend)
{
    return (struct pm){ops, map->base, map->bytes, map->fd, map->offset, durability, backend};
}

/* The aligned 8-byte word, the unit that a crash leaves whole and that protocols publish with, is stored by one instruction.
 * Longer copies are left to memcpy and libpmem: on x86-64 both move aligned words whole. */
static inline bool is_one_word(uint64_t offset, size_t bytes)
{
    return bytes == sizeof(uint64_t) && offset % sizeof(uint64_t) == 0;
}

static inline void store_word(uint8_t *target, const void *source)
{
    uint64_t word;

    memcpy(&word, source, sizeof(word));
    __atomic_store_n((uint64_t *)(void *)target, word, __ATOMIC_RELEASE);
}

/* The backends; of dax the map is synchronous. They own `map` on success. Errors: ROWAN_ENOMEM. */
int pm_dax_create(const struct pm_map *map, struct pm **out);
int pm_file_create(const struct pm_map *map, enum pm_durability durability, struct reactor *reactor,
                   struct pm **out);

/* Syncs a file: 0, or -1 and errno. */
typedef int pm_file_sync(int fd);

/* Puts `sync` in the place of fdatasync: a failing medium cannot be had otherwise. For tests;
 * before the first fence; `pm` must be of the file backend. */
void pm_file_set_sync(struct pm *pm, pm_file_sync *sync);

#endif
