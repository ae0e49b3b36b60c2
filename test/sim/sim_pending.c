/* Seams that are not here yet. */
#include "test/sim/sim_coord.h"
#include "test/sim/sim_fabric.h"
#include "test/sim/sim_pm.h"
#define WEAK __attribute__((weak))
WEAK void sim_network_stop(struct sim_network *n, const char *a, bool s)
{
    (void)n;
    (void)a;
    (void)s;
}
WEAK void sim_network_block(struct sim_network *n, const char *a, const char *b, bool s)
{
    (void)n;
    (void)a;
    (void)b;
    (void)s;
}
WEAK void sim_network_stall(struct sim_network *n, const char *a, const char *b, uint64_t s)
{
    (void)n;
    (void)a;
    (void)b;
    (void)s;
}
WEAK void sim_network_heal(struct sim_network *n)
{
    (void)n;
}
WEAK uint64_t sim_registry_next_ns(const struct sim_registry *r)
{
    (void)r;
    return WAKE_NEVER;
}
WEAK void sim_coord_part(struct coord *c, bool p)
{
    (void)c;
    (void)p;
}
WEAK void sim_coord_expire(struct coord *c)
{
    (void)c;
}
WEAK void sim_registry_lose_replies(struct sim_registry *r, uint32_t l)
{
    (void)r;
    (void)l;
}
WEAK struct sim_pm_loss sim_pm_power_loss(struct sim_pm *p, struct random *r, sim_pm_stored *l,
                                          void *c)
{
    (void)p;
    (void)r;
    (void)l;
    (void)c;
    return (struct sim_pm_loss){0};
}
