/* world_checks.h - for world.c: the rules of each configuration that follows another one. */
#ifndef TEST_UNIT_CM_WORLD_CHECKS_H
#define TEST_UNIT_CM_WORLD_CHECKS_H

#include "test/unit/cm/world.h"

void world_check_next(struct world_store *store, const struct cluster_config *before,
                      const struct cluster_config *after);

#endif
