/* pm_file.h - the file backend of the pm seam. Internal to common/pm and its tests. */
#ifndef PM_PM_FILE_H
#define PM_PM_FILE_H

#include "common/pm/pm_map.h"

/* Owns `map` on success. Errors: ROWAN_ENOMEM. */
int pm_file_create(const struct pm_map *map, enum pm_durability durability, struct reactor *reactor,
                   struct pm **out);

/* Syncs a file: 0, or -1 and errno. */
typedef int pm_file_sync(int fd);

/* Puts `sync` in the place of fdatasync: a failing medium cannot be had otherwise. For tests;
 * before the first fence; `pm` must be of this backend. */
void pm_file_set_sync(struct pm *pm, pm_file_sync *sync);

#endif
