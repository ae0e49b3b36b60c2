/* sim_coord.h - the coordination seam in memory: handles share one `struct sim_registry`, which
 * holds the value and knows who leads. One thread.
 */
#ifndef SIM_COORD_H
#define SIM_COORD_H

#include "common/coord/coord.h"

struct sim_registry;

/* Aborts without memory. Destroyed after all its handles were closed. */
struct sim_registry *sim_registry_create(void);
void sim_registry_destroy(struct sim_registry *registry);

/* Closed by coord_close. Aborts without memory. */
struct coord *sim_coord_open(struct sim_registry *registry);

#endif
