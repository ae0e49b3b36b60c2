/* sim_host.h - the backend inside a thread (test/sim) against the conformance cases, with travel and fences
 * that take time. */
#ifndef TEST_SIM_HOST_H
#define TEST_SIM_HOST_H

#include "test/lib/asserts.h"
#include "test/lib/fabric_conformance.h"
#include "test/sim/sim_fabric.h"
#include "test/sim/sim_pm.h"

struct sim_host {
    struct sim_clock clock;
    struct sim_network *network;
    uint64_t fence_ns;
    struct fabric_backend backend;
};

static const char *address_of(void *context, unsigned process)
{
    static char address[32];
    (void)context;
    snprintf(address, sizeof address, "sim:server-%u", process);
    return address;
}

static int make_fabric(void *context, unsigned process, struct fabric **out)
{
    const struct sim_host *host = context;
    return sim_fabric_open(host->network, address_of(context, process), out);
}

static int make_pm(void *context, uint64_t bytes, struct pm **out)
{
    struct sim_host *host = context;
    *out = &sim_pm_create(&host->clock, bytes, host->fence_ns)->pm;
    return 0;
}

static uint64_t tick(void *context)
{
    struct sim_host *host = context;
    host->clock.now_ns += NS_PER_US;
    return host->clock.now_ns;
}

/* Of `options`: what is not the host's own. */
static inline int sim_host_run(const char *group, const struct sim_network_options *options)
{
    struct sim_network_options all = *options;
    struct sim_host host = {.fence_ns = 20 * NS_PER_US,
                            .backend = {.context = &host,
                                        .fabric_make = make_fabric,
                                        .address = address_of,
                                        .pm_make = make_pm,
                                        .now_ns = tick}};
    sim_clock_init(&host.clock);
    all.clock = &host.clock;
    all.seed = 1;
    all.max_batch_blocks = 4096;
    all.max_delay_ns = 10 * NS_PER_US;
    host.network = sim_network_create(&all);
    int failed = fabric_conformance_run(group, &host.backend);
    sim_network_destroy(host.network);
    return failed;
}

#endif
