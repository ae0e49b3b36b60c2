/* failover.c - see failover.h.
 *
 * Invariants of what it makes:
 *  F1 A shard has a full replica of before, and no other. It loses one only if another one is left that is not silent.
 *  F2 A shard that changed has a higher epoch; one that did not is as it was.
 */
#include "cm/failover.h"

#include <stdio.h>
#include <string.h>

#include "cm/led.h"
#include "cm/split.h"
#include "common/base/assert.h"
#include "common/base/error.h"

struct work {
    struct cluster_config *config; /* with the members of before */
    const bool *silent;            /* by position of the member */
    struct led led;
};

static uint32_t position(const struct work *work, uint32_t server)
{
    return (uint32_t)(cluster_member(work->config, server) - work->config->members);
}

static bool is_silent(const struct work *work, uint32_t server)
{
    return work->silent[position(work, server)];
}

/* Leaves those that are not silent, in their order. */
static uint32_t drop_silent(const struct work *work, uint32_t *servers, uint32_t count)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_silent(work, servers[i]))
            servers[left++] = servers[i];
    }
    memset(&servers[left], 0, (count - left) * sizeof servers[0]);
    return left;
}

/* By the backup that leads fewest shards. */
static void promote(struct work *work, struct shard *shard)
{
    const uint32_t best = led_fewest(&work->led, shard->backups, shard->backup_count);
    led_give(&work->led, shard, shard->backups[best]);
    shard->backup_count--;
    memmove(&shard->backups[best], &shard->backups[best + 1],
            (shard->backup_count - best) * sizeof shard->backups[0]);
    shard->backups[shard->backup_count] = 0;
}

/* F1. False: nobody is left, and the silent ones are kept. Those that were kept before are not silent. */
static bool has_full(const struct work *work, const struct shard *shard)
{
    bool any = !is_silent(work, shard->primary);
    for (uint32_t i = 0; i < shard->backup_count; i++)
        any = any || !is_silent(work, shard->backups[i]);
    return any;
}

static void keep_full(const struct work *work, const struct shard *shard)
{
    work->config->members[position(work, shard->primary)].kept = true;
    for (uint32_t i = 0; i < shard->backup_count; i++)
        work->config->members[position(work, shard->backups[i])].kept = true;
}

/* True if it changed. */
static bool change_shard(struct work *work, struct shard *shard)
{
    const uint32_t before = shard->backup_count + shard->filling_count;
    shard->filling_count = drop_silent(work, shard->filling, shard->filling_count);
    const bool full = has_full(work, shard), leads = !is_silent(work, shard->primary);
    if (full)
        shard->backup_count = drop_silent(work, shard->backups, shard->backup_count);
    else
        keep_full(work, shard);
    if (full && !leads)
        promote(work, shard);
    shard_mend_move(shard);
    return (full && !leads) || shard->backup_count + shard->filling_count != before;
}

/* Nobody holds a shard that is ended: who its row names is a member, nothing else. One is present (manage.c, M3). */
static bool change_ended(struct work *work, struct shard *shard)
{
    if (!is_silent(work, shard->primary))
        return false;
    uint32_t at = 0;
    while (work->silent[at] || work->config->members[at].kept)
        at++;
    shard->primary = work->config->members[at].server;
    return true;
}

static void drop_members(struct work *work)
{
    struct cluster_config *config = work->config;
    uint32_t left = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        if (!work->silent[i] || config->members[i].kept)
            config->members[left++] = config->members[i];
    }
    config->member_count = left;
}

int failover_make(const struct cluster_config *old, const bool *silent, struct cluster_config **out,
                  char *why, size_t why_bytes)
{
    struct work work = {.config = cluster_copy(old), .silent = silent};
    struct cluster_config *config = work.config;
    if (!config)
        return ROWAN_ENOMEM;
    config->term++;
    led_count(&work.led, config);
    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct shard *shard = &config->shards[i];
        if (cluster_parent(config, shard))
            continue; /* split_follow */
        if (shard->split == SPLIT_ENDED ? !change_ended(&work, shard) : !change_shard(&work, shard))
            continue;
        if (shard->epoch++ < CLUSTER_MAX_EPOCH) /* F2 */
            continue;
        snprintf(why, why_bytes,
                 "shard %u has used up its %d epochs and cannot get another primary; copy its data "
                 "to a new cluster",
                 shard->id, CLUSTER_MAX_EPOCH);
        cluster_release(config);
        return ROWAN_ETOOMANY;
    }
    split_follow(config);
    drop_members(&work);
    int error = cluster_finish(config);
    ASSERT(!error); /* `old` was right */
    *out = config;
    return ROWAN_OK;
}

enum fate { REMOVED, KEPT };

/* The servers that met with it; how many. */
static uint32_t list(const struct cluster_config *before, const struct cluster_config *after,
                     enum fate fate, char *out, size_t bytes)
{
    uint32_t count = 0;
    size_t at = (size_t)snprintf(out, bytes, "-");
    for (uint32_t i = 0; i < before->member_count && at + 1 < bytes; i++) {
        const struct member *old = &before->members[i], *now = cluster_member(after, old->server);
        if (fate == REMOVED ? now != NULL : !now || !now->kept || old->kept)
            continue;
        at = count++ ? at : 0;
        at += (size_t)snprintf(out + at, bytes - at, "%s%u", at ? "," : "", old->server);
    }
    return count;
}

bool failover_story(const struct cluster_config *before, const struct cluster_config *after,
                    char *out, size_t bytes)
{
    char removed[80], kept[80];
    if (list(before, after, REMOVED, removed, sizeof removed) +
            list(before, after, KEPT, kept, sizeof kept) ==
        0)
        return false;
    uint32_t promoted = 0, unserved = 0;
    for (uint32_t i = 0; i < after->shard_count; i++) {
        const struct shard *old = cluster_shard(before, after->shards[i].id);
        promoted += old && old->primary != after->shards[i].primary;
        unserved += shard_is_kept(after, &after->shards[i]);
    }
    snprintf(out, bytes, "removed=%s kept=%s promoted=%u unserved=%u", removed, kept, promoted,
             unserved);
    return true;
}
