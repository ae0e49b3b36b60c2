/* fabric_sim_slots_test.c - the fabric inside a thread against the conformance cases, with the small blocks of RDMA:
 * packets of a ring of segments, and slots of one block each. */
#include "test/unit/fabric/sim_host.h"

int main(void)
{
    return sim_host_run("fabric_sim_packets", &(struct sim_network_options){.block_limit = 1024}) +
           sim_host_run("fabric_sim_slots",
                        &(struct sim_network_options){.block_limit = 256, .landing_stride = 256}) +
           sim_host_run("fabric_sim_wide_slots",
                        &(struct sim_network_options){
                            .block_limit = 1024, .landing_stride = 512, .one_sided = true});
}
