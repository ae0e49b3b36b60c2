#include "cm/figures.h"

#define GAUGE(name, help, field)                                                                   \
    {                                                                                              \
        name, help, "", METRIC_GAUGE, offsetof(struct figures, field), 0                           \
    }

static const struct metric rows[] = {
    GAUGE("rowan_cm_manages", "1: this process manages the cluster; 0: it is a standby.", leads),
    GAUGE(
        "rowan_cm_coordination_lost",
        "1: it manages, and the coordination service has ended its session: until that answers, no "
        "failed server is replaced.",
        cut),
    GAUGE("rowan_cm_term", "Term of the configuration that it knows; 0: it knows none.", term),
    {"rowan_cm_lease_seconds", "Length of the servers' leases; 0: there are none.", "",
     METRIC_GAUGE, offsetof(struct figures, lease_ms), 1e-3},
    GAUGE("rowan_cm_members", "Servers of the configuration that serve.", members),
    GAUGE("rowan_cm_members_kept",
          "Servers that failed, and are kept for shards of which they have the last full replica.",
          kept),
    GAUGE("rowan_cm_members_absent", "Servers that belong to the cluster and are no members.",
          absent),
    GAUGE("rowan_cm_members_draining", "Members that are being removed.", draining),
    GAUGE("rowan_cm_replicas_wanted", "Replicas that each shard is to have.", replicas),
    GAUGE("rowan_cm_shards", "Shards.", shards),
    GAUGE("rowan_cm_shards_under_replicated", "Shards with fewer full replicas than wanted.",
          under_replicated),
    GAUGE("rowan_cm_shards_filling", "Shards of which a replica is being filled.", filling),
    GAUGE("rowan_cm_shards_unserved",
          "Shards that nobody serves, as all servers with a full replica failed.", unserved),
    GAUGE("rowan_cm_shards_possibly_incomplete",
          "Shards that were started from data which may lack acknowledged writes.", incomplete),
    GAUGE("rowan_cm_shards_moving", "Shards that move from one server to another.", moving),
    GAUGE("rowan_cm_shards_splitting", "Shards that are being split.", splitting),
    GAUGE("rowan_cm_connections", "Connections of servers, clients and tools.", connections),
};

void figures_register(const struct figures *figures, struct metrics *metrics)
{
    metrics_add(metrics, rows, sizeof rows / sizeof rows[0], figures, "");
}

static void update_members(struct figures *figures, const struct cluster_config *config)
{
    uint32_t kept = 0, draining = 0, absent = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct member *member = &config->members[i];
        kept += member->kept;
        draining += !member->kept && !cluster_wants(config, member->server);
    }
    for (uint32_t i = 0; i < config->wanted_count; i++) {
        const struct member *member = cluster_member(config, config->wanted[i]);
        absent += !member || member->kept;
    }
    counter_set(&figures->members, config->member_count - kept);
    counter_set(&figures->kept, kept);
    counter_set(&figures->draining, draining);
    counter_set(&figures->absent, absent);
}

static void update_shards(struct figures *figures, const struct cluster_config *config)
{
    uint32_t under = 0, filling = 0, unserved = 0, incomplete = 0, moving = 0;
    for (uint32_t i = 0; i < config->served_count; i++) {
        const struct shard *shard = &config->shards[i];
        under += shard->backup_count + 1 < config->replicas;
        filling += shard->filling_count > 0;
        unserved += shard_is_kept(config, shard);
        incomplete += shard->possibly_incomplete;
        moving += shard->move_to != 0;
    }
    counter_set(&figures->shards, config->served_count);
    counter_set(&figures->splitting, config->shard_count - config->served_count);
    counter_set(&figures->under_replicated, under);
    counter_set(&figures->filling, filling);
    counter_set(&figures->unserved, unserved);
    counter_set(&figures->incomplete, incomplete);
    counter_set(&figures->moving, moving);
}

void figures_update(struct figures *figures, const struct cm_state *state, uint32_t connections)
{
    const struct cluster_config *config = cm_state_config(state);
    counter_set(&figures->leads, cm_state_leads(state));
    counter_set(&figures->cut, cm_state_is_cut(state));
    counter_set(&figures->connections, connections);
    if (!config)
        return;
    counter_set(&figures->term, config->term);
    counter_set(&figures->lease_ms, config->lease_ms);
    counter_set(&figures->replicas, config->replicas);
    update_members(figures, config);
    update_shards(figures, config);
}
