/* cold.c - which replicas count after a cold start, and who leads.
 *
 * Invariants of what it makes:
 *  D1 A server that brings no data is a replica of nothing. One whose data may be incomplete, or are damaged as to a
 *     shard, is no replica of that shard if a server with whole data holds it. While nobody can have written, all data
 *     is whole.
 *  D2 Only full replicas of a shard are replicas of it afterwards.
 */
#include "cm/cold.h"

#include <stdio.h>
#include <string.h>

#include "cm/led.h"
#include "cm/split.h"
#include "common/base/assert.h"
#include "common/base/error.h"

struct work {
    struct cluster_config *config;
    const struct registrations *registrations;
    struct led led;
    char *why;
    size_t why_bytes;
};

/* D1: of what the server brings of the shard. */
static enum join_quality quality_of(const struct work *work, uint32_t server, uint16_t shard)
{
    return join_quality(&registrations_find(work->registrations, server)->join, work->config,
                        shard);
}

/* Writes the sentence for a shard that nobody brings, with the names of its servers. */
static int report_nowhere(const struct work *work, const struct shard *shard)
{
    char servers[CLUSTER_MAX_REPLICAS * 8] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < shard->backup_count; i++)
        at += (size_t)snprintf(servers + at, sizeof servers - at, ", %u", shard->backups[i]);
    snprintf(work->why, work->why_bytes,
             "shard %u is nowhere: all that held it (server %u%s) came with an empty PM; give one "
             "of them its PM file back, and start the configuration manager and all servers again",
             shard->id, shard->primary, servers);
    return ROWAN_ENOTFOUND;
}

/* Leaves the replicas that count (D1, D2), if the primary does, or does not, as `stays` says. */
static int keep_replicas(struct work *work, struct shard *shard, bool stays)
{
    uint32_t servers[CLUSTER_MAX_REPLICAS], left = 0;
    const uint32_t count = shard_replicas(shard, servers);
    enum join_quality best = JOIN_EMPTY;
    for (uint32_t i = 0; i < count; i++) {
        enum join_quality quality = quality_of(work, servers[i], shard->id);
        best = quality > best ? quality : best;
    }
    if (best == JOIN_EMPTY)
        return report_nowhere(work, shard);
    for (uint32_t i = 0; i < count; i++) {
        if (quality_of(work, servers[i], shard->id) == best)
            servers[left++] = servers[i];
    }
    if ((servers[0] == shard->primary) != stays)
        return ROWAN_OK;
    led_set(&work->led, shard, servers, left);
    shard->possibly_incomplete = shard->possibly_incomplete || best == JOIN_INCOMPLETE;
    shard->filling_count = shard->move_from = shard->move_to = 0; /* D2: nobody fills */
    memset(shard->filling, 0, sizeof shard->filling);
    return ROWAN_OK;
}

static int raise_epoch(const struct work *work, struct shard *shard)
{
    if (shard->epoch == CLUSTER_MAX_EPOCH) {
        snprintf(work->why, work->why_bytes,
                 "shard %u has used up its %d epochs and cannot be started again; copy its data to "
                 "a new cluster",
                 shard->id, CLUSTER_MAX_EPOCH);
        return ROWAN_ETOOMANY;
    }
    shard->epoch++;
    return ROWAN_OK;
}

/* Those that keep their primary come first: the others go to who leads fewest then. */
static int make(struct work *work)
{
    struct cluster_config *config = work->config;
    int error = ROWAN_OK;
    for (uint32_t i = 0; i < config->shard_count && !error; i++) {
        error = raise_epoch(work, &config->shards[i]);
        if (!error)
            error = keep_replicas(work, &config->shards[i], true);
    }
    for (uint32_t i = 0; i < config->shard_count && !error; i++)
        error = keep_replicas(work, &config->shards[i], false);
    if (error)
        return error;
    split_follow(config);
    cluster_finished(config); /* join_is_right checked each report */
    return ROWAN_OK;
}

int cold_start(const struct cluster_config *old, const struct registrations *registrations,
               struct cluster_config **out, char *why, size_t why_bytes)
{
    struct work work = {.config = cluster_copy(old),
                        .registrations = registrations,
                        .why = why,
                        .why_bytes = why_bytes};
    if (!work.config)
        return ROWAN_ENOMEM;
    work.led.config = work.config;
    work.config->term++;
    split_drop_ended(work.config);
    (void)cluster_finish(work.config); /* by_id */
    for (uint32_t i = 0; i < old->member_count; i++) {
        const struct cm_join *join =
            &registrations_find(registrations, old->members[i].server)->join;
        ASSERT(join->block_limit >= old->block_limit &&
               (join->data_cluster == 0 || join->data_cluster == old->cluster));
        work.config->members[i] = join_member(join);
    }
    int error = make(&work);
    if (error) {
        cluster_release(work.config);
        return error;
    }
    *out = work.config;
    return ROWAN_OK;
}
