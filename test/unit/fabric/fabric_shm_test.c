/* fabric_shm_test.c - the shm backend against the conformance cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "test/lib/fabric_conformance.h"
#include "test/unit/fabric/shm_world.h"

int main(void)
{
    struct shm_host host;
    int failed;

    shm_host_init(&host);
    failed = fabric_conformance_run("fabric_shm", &host.backend);
    shm_host_fini(&host);
    return failed;
}
