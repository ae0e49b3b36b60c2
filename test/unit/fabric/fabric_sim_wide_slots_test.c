/* fabric_sim_wide_slots_test.c - the fabric inside a thread against the conformance cases, with slots that a block may take two of,
 * which senders claim themselves. */
#include "test/unit/fabric/sim_host.h"

int main(void)
{
    return sim_host_run("fabric_sim_wide_slots",
                        &(struct sim_network_options){
                            .block_limit = 1024, .landing_stride = 512, .one_sided = true});
}
