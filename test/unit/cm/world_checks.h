/* world_checks.h - for world.c: the rules of each configuration that follows another one. */
#ifndef TEST_UNIT_CM_WORLD_CHECKS_H
#define TEST_UNIT_CM_WORLD_CHECKS_H

#include "test/unit/cm/world.h"

void world_check_next(struct world_store *store, const struct cluster_config *before,
                      const struct cluster_config *after);

/* A member renews. Once in each configuration it says that it has space, and no load; unless the test tells loads. */
void world_note_renewal(struct world *world, uint32_t connection,
                        const struct world_renewal *renewal);

#endif
