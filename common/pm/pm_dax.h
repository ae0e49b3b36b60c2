/* pm_dax.h - the dax backend of the pm seam. Internal to common/pm. */
#ifndef PM_PM_DAX_H
#define PM_PM_DAX_H

#include "common/pm/pm_map.h"

/* Owns `map` (synchronous) on success. Errors: ROWAN_ENOMEM. */
int pm_dax_create(const struct pm_map *map, struct pm **out);

#endif
