/* fabric_tcp_test.c - the tcp backend against the conformance cases. */
#include "test/lib/asserts.h"
#include "test/lib/fabric_conformance.h"
#include "test/unit/fabric/fabric_host.h"

int main(void)
{
    struct fabric_host host;
    int failed;

    host_init(&host, OVER_TCP);
    failed = fabric_conformance_run("fabric_tcp", &host.backend);
    host_fini(&host);
    return failed;
}
