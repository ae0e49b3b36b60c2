/* fill.c - see fill.h.
 *
 * Invariants of what it makes:
 *  G1 A replica becomes full only if it filled in the row that is in force and has all; a full one stays full, if the shard was
 *     not kept.
 *  G2 A shard that changed has a higher epoch; one that did not is as it was.
 */
#include "cm/fill.h"

#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"

struct work {
    const struct fill_from *from;
    struct cluster_config *config;
    uint32_t running; /* members that are not kept */
    uint32_t
        held[CLUSTER_MAX_MEMBERS]; /* by position of the member, shards that it is a replica of */
};

static uint32_t replicas(const struct shard *shard)
{
    return 1 + shard->backup_count + shard->filling_count;
}

static bool holds(const struct shard *shard, uint32_t server)
{
    return shard->primary == server || shard_has_backup(shard, server) ||
           shard_has_filling(shard, server);
}

static bool may_change(const struct cluster_config *config, const struct shard *shard)
{
    return shard->epoch < CLUSTER_MAX_EPOCH && !shard_is_kept(config, shard);
}

static uint32_t running_of(const struct cluster_config *config)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->member_count; i++)
        count += !config->members[i].kept;
    return count;
}

/* A replica of a shard that nobody keeps is a member that runs: there are more of these exactly if one is none. */
static bool lacks(const struct cluster_config *config, uint32_t running, const struct shard *shard)
{
    return replicas(shard) < config->replicas && replicas(shard) < running;
}

static bool is_due(const struct fill_from *from)
{
    const struct cluster_config *old = from->old;
    const uint32_t running = running_of(old);
    bool due = from->join_count + from->back.count > 0;
    for (uint32_t i = 0; i < old->shard_count && !due; i++)
        due = may_change(old, &old->shards[i]) &&
              (from->filled[i] || lacks(old, running, &old->shards[i]));
    return due;
}

/* Into the order of members. */
static void add_members(struct work *work)
{
    struct cluster_config *config = work->config;
    uint32_t count = work->from->old->member_count;
    for (uint32_t i = 0; i < work->from->join_count; i++) {
        uint32_t at = count++;
        for (; at > 0 && config->members[at - 1].server > work->from->joins[i]->server; at--)
            config->members[at] = config->members[at - 1];
        config->members[at] = join_member(work->from->joins[i]);
    }
    ASSERT(count == config->member_count);
}

static void drop_kept(struct cluster_config *config)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        bool named = !config->members[i].kept;
        for (uint32_t k = 0; k < config->shard_count && !named; k++)
            named = holds(&config->shards[k], config->members[i].server);
        if (named)
            config->members[left++] = config->members[i];
    }
    config->member_count = left;
}

/* G1 */
static bool end_filling(struct shard *shard, uint8_t filled)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < shard->filling_count; i++) {
        if (filled >> i & 1)
            shard->backups[shard->backup_count++] = shard->filling[i];
        else
            shard->filling[left++] = shard->filling[i];
    }
    const bool changed = left < shard->filling_count;
    memset(&shard->filling[left], 0, (shard->filling_count - left) * sizeof shard->filling[0]);
    shard->filling_count = left;
    return changed;
}

static void begin_filling(struct work *work, struct shard *shard)
{
    const struct cluster_config *config = work->config;
    uint32_t best = config->member_count;
    for (uint32_t i = 0; i < config->member_count; i++) {
        if (config->members[i].kept || holds(shard, config->members[i].server))
            continue;
        if (best == config->member_count || work->held[i] < work->held[best])
            best = i;
    }
    ASSERT(best < config->member_count);
    work->held[best]++;
    shard->filling[shard->filling_count++] = config->members[best].server;
}

static void count_held(struct work *work)
{
    for (uint32_t i = 0; i < work->config->shard_count; i++) {
        for (uint32_t m = 0; m < work->config->member_count; m++)
            work->held[m] += holds(&work->config->shards[i], work->config->members[m].server);
    }
}

int fill_make(const struct fill_from *from, struct cluster_config **out)
{
    *out = NULL;
    if (!is_due(from))
        return ROWAN_OK;
    struct work work = {.from = from};
    work.config = cluster_copy_for(from->old, from->old->member_count + from->join_count);
    if (!work.config)
        return ROWAN_ENOMEM;
    struct cluster_config *config = work.config;
    config->term++;
    add_members(&work);
    comeback_apply(&from->back, from->old, config);
    work.running = running_of(config);
    count_held(&work);
    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct shard *shard = &config->shards[i];
        if (!may_change(config, shard))
            continue;
        bool changed = end_filling(shard, from->filled[i]);
        for (; lacks(config, work.running, shard); changed = true)
            begin_filling(&work, shard);
        if (changed && shard->epoch == from->old->shards[i].epoch)
            shard->epoch++; /* G2 */
    }
    drop_kept(config);
    int error = cluster_finish(config);
    ASSERT(!error); /* `old` was right, and join_is_right checked each report */
    *out = config;
    return ROWAN_OK;
}

static void list_joined(const struct cluster_config *before, const struct cluster_config *after,
                        struct fill_story *out)
{
    size_t at = 0;
    for (uint32_t i = 0; i < after->member_count; i++) {
        const struct member *member = &after->members[i],
                            *old = cluster_member(before, member->server);
        if (old && (!old->kept || member->kept))
            continue;
        out->joined++;
        if (at < sizeof out->servers)
            at += (size_t)snprintf(out->servers + at, sizeof out->servers - at, "%s%u",
                                   at ? "," : "", member->server);
    }
}

bool fill_story(const struct cluster_config *before, const struct cluster_config *after,
                struct fill_story *out)
{
    *out = (struct fill_story){0};
    list_joined(before, after, out);
    for (uint32_t i = 0; i < after->shard_count; i++) {
        const struct shard *old = &before->shards[i], *now = &after->shards[i];
        bool began = false, ended = false;
        for (uint32_t k = 0; k < now->filling_count; k++)
            began = began || !shard_has_filling(old, now->filling[k]);
        for (uint32_t k = 0; k < now->backup_count; k++)
            ended = ended || shard_has_filling(old, now->backups[k]);
        out->began += began;
        out->ended += ended;
        out->left += now->filling_count > 0;
    }
    return out->joined + out->began + out->ended > 0;
}
