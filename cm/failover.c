/* failover.c - see failover.h.
 *
 * Invariants of what it makes:
 *  F1 A shard has a full replica of before, and no other. It loses one only if another one is left that is not silent; one
 *     that is to wait, only if two are; none, if all that are left are in doubt. A shard that waits loses none.
 *  F3 One of which an entry of the shard was found damaged is promoted only if those of all that are left were: the others go on
 *     without that entry. One whose data are in doubt is not.
 *  F2 A shard that changed has a higher epoch; one that did not is as it was.
 */
#include "cm/failover.h"

#include <stdio.h>
#include <string.h>

#include "cm/comeback.h"
#include "cm/led.h"
#include "cm/split.h"
#include "common/base/error.h"

struct work {
    struct cluster_config *config; /* with the members of before */
    const struct cluster_config *old;
    const bool *silent, *waits; /* by position of the member, as reports are */
    const struct cm_join *const *reports;
    struct led led;
};

static bool is_silent(const struct work *work, uint32_t server)
{
    return work->silent[cluster_position(work->config, server)];
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

/* F1. Those that were kept before are not silent. Who goes: of the silent ones those that do not wait, if somebody is left. True:
 * some stay. */
static bool keep_full(const struct work *work, const struct shard *shard, bool all)
{
    uint32_t servers[CLUSTER_MAX_REPLICAS];
    const uint32_t count = shard_replicas(shard, servers);
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = cluster_position(work->config, servers[i]);
        const bool kept = work->silent[at] && (all || work->waits[at]);
        work->config->members[at].kept = work->config->members[at].kept || kept;
        any = any || kept;
    }
    return any;
}

/* The one that is left runs, and those that wait are kept. A primary that is silent and does not wait is not among them. */
static void wait_for(struct work *work, struct shard *shard)
{
    uint32_t servers[CLUSTER_MAX_REPLICAS], left = 0;
    const uint32_t count = shard_replicas(shard, servers);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = cluster_position(work->config, servers[i]);
        if (!work->silent[at] || work->config->members[at].kept)
            servers[left++] = servers[i];
    }
    if (shard->primary != servers[0])
        shard->worker = 0;
    shard->primary = servers[0];
    shard->backup_count = left - 1;
    memset(shard->backups, 0, sizeof shard->backups);
    memcpy(shard->backups, &servers[1], shard->backup_count * sizeof servers[0]);
    comeback_keep(work->config, shard);
}

/* What is known of its data of that shard. What was found damaged in a run is an entry, of which others have it. */
enum soundness { IN_DOUBT, DAMAGED, SOUND };

static enum soundness soundness_of(const struct work *work, const struct shard *shard,
                                   uint32_t server)
{
    const struct cm_join *report = work->reports[cluster_position(work->config, server)];
    if (!report)
        return SOUND;
    if (join_quality(report, work->old, shard->id) == JOIN_INCOMPLETE)
        return IN_DOUBT;
    return damage_was_found(&report->damage, shard->id) ? DAMAGED : SOUND;
}

/* Puts those in front that are at least that, in their order; returns how many. */
static uint32_t put_first(const struct work *work, const struct shard *shard, uint32_t *servers,
                          uint32_t count, enum soundness least)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t server = servers[i];
        if (soundness_of(work, shard, server) < least)
            continue;
        memmove(&servers[first + 1], &servers[first], (i - first) * sizeof servers[0]);
        servers[first++] = server;
    }
    return first;
}

/* True if it changed. */
static bool change_shard(struct work *work, const struct shard *old, struct shard *shard)
{
    uint32_t servers[CLUSTER_MAX_REPLICAS];
    const uint32_t all = shard_replicas(shard, servers), full = drop_silent(work, servers, all),
                   filling = shard->filling_count;
    const uint32_t complete = put_first(work, old, servers, full, DAMAGED),
                   sound = put_first(work, old, servers, full, SOUND);
    const bool doubt = full > 0 && complete == 0;
    bool changed = full > 0 && full < all;
    shard->filling_count = drop_silent(work, shard->filling, filling);
    if (full == 0 || shard_is_kept(work->old, old)) {
        keep_full(work, shard, true);
        changed = false;
    } else if ((full == 1 || doubt) && keep_full(work, shard, doubt)) {
        wait_for(work, shard);
    } else if (is_silent(work, shard->primary)) {
        led_set(&work->led, shard, servers, sound ? sound : complete, full);
    } else {
        shard->backup_count = drop_silent(work, shard->backups, shard->backup_count);
    }
    shard_mend_move(shard);
    return changed || shard->filling_count < filling;
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

int failover_make(const struct cluster_config *old, const bool *silent, const bool *waits,
                  const struct cm_join *const *reports, struct cluster_config **out, char *why,
                  size_t why_bytes)
{
    struct work work = {.config = cluster_copy(old),
                        .old = old,
                        .silent = silent,
                        .waits = waits,
                        .reports = reports};
    struct cluster_config *config = work.config;
    if (!config)
        return ROWAN_ENOMEM;
    config->term++;
    led_count(&work.led, config);
    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct shard *shard = &config->shards[i];
        if (cluster_parent(config, shard))
            continue; /* split_follow */
        if (shard->split == SPLIT_ENDED ? !change_ended(&work, shard)
                                        : !change_shard(&work, &old->shards[i], shard))
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
    *out = cluster_finished(config);
    return ROWAN_OK;
}
