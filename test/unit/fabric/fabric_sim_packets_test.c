/* fabric_sim_packets_test.c - the fabric inside a thread against the conformance cases, with the small blocks of RDMA in a ring of
 * segments. */
#include "test/unit/fabric/sim_host.h"

int main(void)
{
    return sim_host_run("fabric_sim_packets", &(struct sim_network_options){.block_limit = 1024});
}
