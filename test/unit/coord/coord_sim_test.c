/* coord_sim_test.c - the backend in memory (test/sim) against the conformance cases: as it is without options,
 * and with requests, answers and watches that come late and sessions that outlive their handles. */

#include "test/lib/asserts.h"
#include "test/lib/coord_conformance.h"
#include "test/sim/sim_coord.h"

struct world {
    struct sim_clock clock;
    struct sim_registry_options options;
    struct sim_registry *registry;
};

static void start(void *context)
{
    struct world *world = context;
    sim_clock_init(&world->clock);
    world->registry = sim_registry_create(&world->options);
}

static void stop(void *context)
{
    struct world *world = context;
    sim_registry_destroy(world->registry);
}

static struct coord *open_handle(void *context)
{
    return sim_coord_open(((struct world *)context)->registry);
}

static uint64_t tick(void *context)
{
    struct world *world = context;
    world->clock.now_ns += 100 * NS_PER_US;
    return world->clock.now_ns;
}

enum { LATE = 20, WORLDS = 2 + LATE };

static struct world worlds[WORLDS];
static struct coord_backend backends[WORLDS];

static void add(unsigned i, const char *name, uint64_t max_delay_ns, uint64_t session_ns)
{
    struct sim_registry_options options = {
        .seed = i, .max_delay_ns = max_delay_ns, .session_ns = session_ns};
    if (max_delay_ns)
        options.clock = &worlds[i].clock;
    worlds[i].options = options;
    backends[i] = (struct coord_backend){.name = name,
                                         .context = &worlds[i],
                                         .start = start,
                                         .stop = stop,
                                         .open = open_handle,
                                         .tick = tick};
}

int main(void)
{
    add(0, "sim, at once", 0, 0);
    for (unsigned i = 1; i <= LATE; i++)
        add(i, "sim, late", i * NS_PER_MS, 0);
    add(LATE + 1, "sim, late, sessions that outlive their handles", NS_PER_MS, NS_PER_S);
    return coord_conformance_run("coord_sim", backends, WORLDS);
}
