/* cold.c - the configuration after a cold start.
 *
 * Invariants of what it makes:
 *  D1 Which replicas count, and who leads, is comeback.c's to say, of members that are all kept ones: B1 and B2 hold.
 *  D2 Only full replicas of a shard are replicas of it afterwards.
 */
#include "cm/cold.h"

#include <stdio.h>
#include <string.h>

#include "cm/split.h"
#include "common/base/assert.h"
#include "common/base/error.h"

/* Writes the sentence for a shard that nobody brings, with the names of its servers. */
static int report_nowhere(const struct cluster_config *config, const struct shard *shard, char *why,
                          size_t why_bytes)
{
    char servers[CLUSTER_MAX_REPLICAS * 8] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        if (config->shards[i].epoch < CLUSTER_MAX_EPOCH)
            continue;
        snprintf(why, why_bytes,
                 "shard %u has used up its %d epochs and cannot be started again; copy its data to "
                 "a new cluster",
                 config->shards[i].id, CLUSTER_MAX_EPOCH);
        return ROWAN_ETOOMANY;
    }
    for (uint32_t i = 0; i < shard->backup_count; i++)
        at += (size_t)snprintf(servers + at, sizeof servers - at, ", %u", shard->backups[i]);
    snprintf(why, why_bytes,
             "shard %u is nowhere: all that held it (server %u%s) came with an empty PM; give one "
             "of them its PM file back, and start the configuration manager and all servers again",
             shard->id, shard->primary, servers);
    return ROWAN_ENOTFOUND;
}

/* D1, D2: nobody runs, and nobody fills. NULL: no memory. */
static struct cluster_config *stand_still(const struct cluster_config *old)
{
    struct cluster_config *config = cluster_copy(old);
    if (!config)
        return NULL;
    split_drop_ended(config);
    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct shard *shard = &config->shards[i];
        shard->filling_count = shard->move_from = shard->move_to = 0;
        memset(shard->filling, 0, sizeof shard->filling);
    }
    cluster_finished(config); /* by_id */
    for (uint32_t i = 0; i < config->member_count; i++)
        config->members[i].kept = true;
    return config;
}

int cold_start(const struct cluster_config *old, struct comeback *back, bool partly,
               struct cluster_config **out, char *why, size_t why_bytes)
{
    struct cluster_config *still = stand_still(old), *config = still ? cluster_copy(still) : NULL;
    int error = config ? ROWAN_OK : ROWAN_ENOMEM;
    *out = NULL;
    if (!error) {
        config->term++;
        comeback_admit(back, still);
        comeback_apply(back, still, config);
        comeback_drop_kept(config);
    }
    for (uint32_t i = 0; !partly && !error && i < config->shard_count; i++) {
        if (shard_is_kept(config, &config->shards[i]))
            error = report_nowhere(config, &config->shards[i], why, why_bytes);
    }
    bool any = back->count > 0;
    for (uint32_t i = 0; i < old->member_count; i++)
        any = any || !old->members[i].kept;
    cluster_release(still);
    if (error || !any) {
        cluster_release(config);
        return error;
    }
    *out = cluster_finished(config); /* join_is_right checked each report */
    return ROWAN_OK;
}
