/* fabric_tcp_test.c - the tcp backend against the conformance cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "test/lib/fabric_conformance.h"
#include "test/unit/fabric/tcp_world.h"

int main(void)
{
    struct tcp_host host;
    int failed;

    tcp_host_init(&host);
    failed = fabric_conformance_run("fabric_tcp", &host.backend);
    tcp_host_fini(&host);
    return failed;
}
