/* fabric_shm_test.c - the shm backend against the conformance cases. */
#include "test/lib/asserts.h"
#include "test/lib/fabric_conformance.h"
#include "test/unit/fabric/fabric_host.h"

int main(void)
{
    struct fabric_host host;
    int failed;

    host_init(&host, OVER_SHM);
    failed = fabric_conformance_run("fabric_shm", &host.backend);
    host_fini(&host);
    return failed;
}
