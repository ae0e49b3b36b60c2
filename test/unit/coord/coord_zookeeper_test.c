/* coord_zookeeper_test.c - the ZooKeeper backend against the conformance cases, on a real ZooKeeper server. */

#include "test/lib/coord_conformance.h"
#include "test/unit/coord/zookeeper_fixture.h"

static void start(void *context)
{
    (void)context;
    path_number++;
}

static void stop(void *context)
{
    (void)context;
}

static struct coord *open_own(void *context)
{
    (void)context;
    return open_handle(SESSION_MS);
}

static uint64_t tick(void *context)
{
    (void)context;
    wait_pause();
    return clock_now_ns(clock_system());
}

int main(void)
{
    const struct coord_backend backend = {
        .name = "zookeeper", .start = start, .stop = stop, .open = open_own, .tick = tick};
    if (!start_server())
        return 0;
    int failed = coord_conformance_run("coord_zookeeper", &backend, 1);
    zookeeper_server_fini(&server);
    return failed;
}
