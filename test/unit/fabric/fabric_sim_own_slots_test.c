/* fabric_sim_own_slots_test.c - the fabric inside a thread against the conformance cases, with slots that each
 * connection is dealt, as by FABRIC_RECEIVE_CONNECTION. */
#include "test/unit/fabric/sim_host.h"

int main(void)
{
    return sim_host_run(
        "fabric_sim_own_slots",
        &(struct sim_network_options){
            .block_limit = 256, .landing_stride = 256, .own_slots = 16, .own_ns = 100 * NS_PER_US});
}
