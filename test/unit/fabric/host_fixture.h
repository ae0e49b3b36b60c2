/* host_fixture.h - a host, and the processes that run on it, for the cases of a test program. Include once. */
#ifndef TEST_HOST_FIXTURE_H
#define TEST_HOST_FIXTURE_H

#include "test/unit/fabric/fabric_host.h"

static struct fabric_host host;
static struct world world;

static inline void open_host(enum host_kind kind, unsigned sides, uint64_t pm_bytes)
{
    host_init(&host, kind);
    world_open(&world, &host.backend, sides, pm_bytes);
}

static inline int close_host(void **state)
{
    (void)state;
    world_close(&world);
    host_fini(&host);
    return 0;
}

#endif
