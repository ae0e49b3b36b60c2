/* fabric_sim_one_sided_test.c - the fabric inside a thread against the conformance cases; senders claim space and store. */
#include "test/unit/fabric/sim_host.h"

int main(void)
{
    return sim_host_run("fabric_sim_one_sided", &(struct sim_network_options){.one_sided = true});
}
