/* fabric_sim_test.c - the fabric inside a thread against the conformance cases; the receiver places what arrives. */
#include "test/unit/fabric/sim_host.h"

int main(void)
{
    return sim_host_run("fabric_sim", &(struct sim_network_options){.one_sided = false});
}
