/* All servers are asked to stop, one after the other, as a power-off of many machines does.
 *
 *  N5 Nobody starts before all have ended. The last one may lose its PM then, if the cluster was whole, and nothing else amiss, and each
 *     shard has three replicas: it does not fall to one while another one said goodbye just before (cm/manage.c, M8).
 */
#include "common/base/assert.h"
#include "test/sim/nemesis_state.h"

enum { REPLICAS = 3 };

void nemesis_stop_in_turn(struct nemesis *nemesis, bool whole)
{
    uint64_t at_ns = nemesis_now(nemesis);
    const uint32_t first = nemesis_draw_server(nemesis);
    nemesis->off = true;
    nemesis->off_calm = whole && nemesis->spell_count == 0 && nemesis->rose_ns != WAKE_NEVER &&
                        at_ns - nemesis->amiss_ns > nemesis_away_ns(nemesis) &&
                        nemesis->cluster->options.replicas >= REPLICAS;
    for (uint32_t i = 0; i < nemesis_servers(nemesis); i++) {
        const uint32_t index = (first + i) % nemesis_servers(nemesis);
        nemesis->start_ns[index] = WAKE_NEVER;
        if (!nemesis_is_up(nemesis, index))
            continue;
        nemesis->kill_ns[index] = at_ns;
        at_ns += 50 * NS_PER_MS + nemesis_below(nemesis, 450 * NS_PER_MS);
    }
}

void nemesis_off(struct nemesis *nemesis)
{
    if (nemesis->off && nemesis->off_calm) {
        nemesis->counts.emptied++;
        sim_cluster_empty_server(nemesis->cluster, nemesis->last + 1);
    }
    nemesis->off = nemesis->off_calm = false;
}
