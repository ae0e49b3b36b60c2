/* figures.c - what Prometheus is told about the cluster by whoever manages it, or waits to. */
#include "cm/cm_internal.h"

struct figures {
    uint64_t leads, cut, term, lease_ms, members, kept, absent, draining, replicas;
    uint64_t shards, under_replicated, filling, unserved, incomplete, moving, splitting;
    uint64_t connections, turned_away, refused_logins, unknown_messages;
    uint64_t ended_unread, ended_guests, ended_crowded;
};

_Static_assert(sizeof(struct figures) == CM_FIGURES * sizeof(uint64_t), "a counter for each");

#define GAUGE(name, help, field)                                                                   \
    {                                                                                              \
        name, help, "", METRIC_GAUGE, offsetof(struct figures, field), 0                           \
    }

#define ENDED(why, field)                                                                          \
    {                                                                                              \
        "rowan_connections_ended_total", "Connections that were ended for the sake of others.",    \
            "why=\"" why "\"", METRIC_COUNTER, offsetof(struct figures, field), 0                  \
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
    {"rowan_cm_connections_refused_total",
     "Connections that were refused, as the manager has all that it may have.", "", METRIC_COUNTER,
     offsetof(struct figures, turned_away), 0},
    {"rowan_refused_total", "What was refused for want of a login or of a right.", "what=\"login\"",
     METRIC_COUNTER, offsetof(struct figures, refused_logins), 0},
    ENDED("unread", ended_unread),
    ENDED("guest", ended_guests),
    ENDED("crowded", ended_crowded),
    {"rowan_cm_unknown_messages_total",
     "Messages that this process, or a server which it told something, did not know.", "",
     METRIC_COUNTER, offsetof(struct figures, unknown_messages), 0},
};

void figures_register(const struct cm *cm)
{
    metrics_add(cm->options.metrics, rows, sizeof rows / sizeof rows[0], cm->figures, "");
}

static void count_members(struct figures *figures, const struct cluster_config *config)
{
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct member *member = &config->members[i];
        figures->members += !member->kept;
        figures->kept += member->kept;
        figures->draining += !member->kept && !cluster_wants(config, member->server);
    }
    for (uint32_t i = 0; i < config->wanted_count; i++) {
        const struct member *member = cluster_member(config, config->wanted[i]);
        figures->absent += !member || member->kept;
    }
}

static void count_shards(struct figures *figures, const struct cluster_config *config)
{
    figures->shards = config->served_count;
    figures->splitting = config->shard_count - config->served_count;
    for (uint32_t i = 0; i < config->served_count; i++) {
        const struct shard *shard = &config->shards[i];
        figures->under_replicated += shard->backup_count + 1 < config->replicas;
        figures->filling += shard->filling_count > 0;
        figures->unserved += shard_is_kept(config, shard);
        figures->incomplete += shard->possibly_incomplete;
        figures->moving += shard->move_to != 0;
    }
}

void figures_update(struct cm *cm)
{
    const struct cluster_config *config = cm_state_config(cm->state);
    const struct fabric_ended *ended = &cm->endpoint->ended;
    struct figures figures = {.leads = cm->leads,
                              .cut = cm->cut,
                              .connections = cm->open_count,
                              .turned_away = cm->turned_away,
                              .refused_logins = cm->refused_logins,
                              .unknown_messages = cm->unknown_messages,
                              .ended_unread = counter_get(&ended->unread),
                              .ended_guests = counter_get(&ended->guests),
                              .ended_crowded = counter_get(&ended->crowded)};
    if (config) {
        figures.term = config->term;
        figures.lease_ms = config->lease_ms;
        figures.replicas = config->replicas;
        count_members(&figures, config);
        count_shards(&figures, config);
    }
    for (uint32_t i = 0; i < CM_FIGURES; i++)
        counter_set(&cm->figures[i], ((const uint64_t *)&figures)[i]);
}
