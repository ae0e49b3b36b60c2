/* What a run was drawn to be, in one line: the head of its story. */
#include "common/base/clock.h"
#include "test/sim/swarm.h"

static void tell_cluster(const struct sim_cluster_options *cluster, FILE *out)
{
    static const char *const durability[] = {
        [PM_FENCE] = "fence", [PM_ASYNC] = "async", [PM_NONE] = "none"};
    fprintf(out,
            " servers=%u replicas=%u shards=%u workers=%u digests=%u reactors=%u idle_wakes=%u "
            "clients=%u depth=%u "
            "landing_segments=%u block_limit=%u stride=%u max_messages=%u pm_bytes=%lu per_id=%u "
            "span=%u "
            "timeout_ms=%lu delay_us=%lu fence_us=%lu silence_ms=%lu drift_ppm=%u durability=%s "
            "one_sided=%d void_us=%lu early_seal=%u coord_delay_us=%lu "
            "coord_session_ms=%lu "
            "coord_lost=%u lease_ms=%u heat_us=%u start_wait_ms=%u goodbye_wait_ms=%u",
            cluster->servers, cluster->replicas, cluster->shards, cluster->workers,
            cluster->digests, cluster->reactors, cluster->idle_wakes, cluster->clients,
            cluster->depth, cluster->landing_segments, cluster->block_limit,
            cluster->landing_stride, cluster->max_messages, cluster->pm_bytes,
            cluster->operations_per_id, cluster->span, cluster->timeout_ns / NS_PER_MS,
            cluster->max_delay_ns / NS_PER_US, cluster->fence_ns / NS_PER_US,
            cluster->silence_ns / NS_PER_MS, cluster->drift_ppm, durability[cluster->durability],
            cluster->one_sided, cluster->void_ns / NS_PER_US, cluster->early_seal,
            cluster->registry.max_delay_ns / NS_PER_US, cluster->registry.session_ns / NS_PER_MS,
            cluster->registry.lost_reply, cluster->lease_ms, cluster->heat_us,
            cluster->start_wait_ms, cluster->goodbye_wait_ms);
}

void swarm_tell(const struct swarm *swarm, FILE *out)
{
    const struct load_options *load = &swarm->load;
    fprintf(out,
            "segment_bytes=%u chunk_buckets=%u message_bytes=%u fill_rate=%lu safety_ms=%lu "
            "keep_ms=%lu tombstones_ms=%lu "
            "checkpoint_ms=%lu living=%d gone=%u third=%d last_pm_bytes=%lu",
            swarm->segment_bytes, swarm->chunk_buckets, swarm->message_bytes,
            swarm->cluster.fill_rate, swarm->safety_ns / NS_PER_MS, swarm->keep_ns / NS_PER_MS,
            swarm->tombstones_ns / NS_PER_MS, swarm->checkpoint_ns / NS_PER_MS, swarm->living,
            swarm->gone, swarm->cluster.third, swarm->cluster.last_pm_bytes);
    tell_cluster(&swarm->cluster, out);
    fprintf(out,
            " operations=%lu keys=%u hot=%u pause_us=%lu burst=%u key_bytes=%u value_bytes=%u "
            "long_in=%u "
            "forged_in=%u "
            "gets=%u puts=%u put_ifs=%u deletes=%u small=%d fault_pause_ms=%lu fault_length_ms=%lu "
            "power_loss_in=%u together=%d flip_in=%u flip_server=%u faults=",
            load->operations, load->keys, load->hot_keys, load->mean_pause_ns / NS_PER_US,
            load->burst, load->max_key_bytes, load->max_value_bytes, load->long_in, load->forged_in,
            load->gets, load->puts, load->put_ifs, load->deletes, load->may_fill,
            swarm->nemesis.mean_pause_ns / NS_PER_MS, swarm->nemesis.max_length_ns / NS_PER_MS,
            swarm->nemesis.power_loss_in, swarm->nemesis.power_together, swarm->nemesis.flip_in,
            swarm->nemesis.flip_server);
    const char *comma = "";
    for (unsigned i = 0; i < NEMESIS_FAULTS; i++) {
        if (swarm->nemesis.weights[i]) {
            fprintf(out, "%s%s:%u", comma, nemesis_name((enum nemesis_fault)i),
                    swarm->nemesis.weights[i]);
            comma = ",";
        }
    }
    fprintf(out, " sites=");
    comma = "";
    for (unsigned i = 0; i < FAULT_SITE_COUNT; i++) {
        if (swarm->faults.one_in[i]) {
            fprintf(out, "%s%s:%u", comma, sim_fault_name((enum fault_site)i),
                    swarm->faults.one_in[i]);
            comma = ",";
        }
    }
    fprintf(out, "\n");
}
