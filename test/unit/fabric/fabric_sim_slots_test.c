/* fabric_sim_slots_test.c - the fabric inside a thread against the conformance cases, with slots of one small block each. */
#include "test/unit/fabric/sim_host.h"

int main(void)
{
    return sim_host_run("fabric_sim_slots",
                        &(struct sim_network_options){.block_limit = 256, .landing_stride = 256});
}
