/* verbs_ends.h - two processes and a connection from side 1 to side 0, on devices made of software, as the backend
 * sees its ends. Time goes on as the test wants it. Include after cmocka.h. */
#ifndef TEST_VERBS_ENDS_H
#define TEST_VERBS_ENDS_H

#include "common/base/error.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_stream.h"
#include "test/lib/soft_verbs.h"
#include "test/unit/fabric/host_fixture.h"

static struct fabric_conn *active, *passive;
static struct verbs_conn *near, *far; /* the same two */
static uint64_t clock_ns, tick_ns;    /* each look at the clock moves it on */

static inline uint64_t ticking_ns(void *context)
{
    (void)context;
    return clock_ns += tick_ns;
}

static inline void connect_ends(void)
{
    world_connect(&world, 1, 0, 0, &active, &passive);
    near = (struct verbs_conn *)active;
    far = (struct verbs_conn *)passive;
    world_poll_times(&world, 10);
}

static inline int open_ends(void **state)
{
    (void)state;
    soft_verbs_configure(&(struct soft_config){.seed = 1});
    host_init_verbs(&host, FABRIC_RECEIVE_SHARED, 0);
    host.backend.now_ns = ticking_ns;
    clock_ns = NS_PER_S;
    tick_ns = NS_PER_US;
    world_open(&world, &host.backend, 2, 16 << 20);
    connect_ends();
    return 0;
}

static inline int close_ends(void **state)
{
    soft_verbs_faults(NULL);
    return close_host(state);
}

static inline struct verbs_endpoint *endpoint_of(unsigned side)
{
    return (struct verbs_endpoint *)world.sides[side].endpoint;
}

#endif
