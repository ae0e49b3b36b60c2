/* loss.c - compares two configurations. */
#include "cm/loss.h"

#include <stdio.h>

static uint32_t count_incomplete(const struct cluster_config *config, uint32_t *first)
{
    uint32_t count = 0;
    for (uint32_t i = config ? config->shard_count : 0; i > 0; i--) {
        if (!config->shards[i - 1].possibly_incomplete)
            continue;
        *first = config->shards[i - 1].id;
        count++;
    }
    return count;
}

bool loss_of_certainty(const struct cluster_config *before, const struct cluster_config *after,
                       char *out, size_t bytes)
{
    uint32_t first = 0, unused;
    uint32_t count = count_incomplete(after, &first);
    if (count <= count_incomplete(before, &unused))
        return false;
    snprintf(
        out, bytes,
        "possible loss: %u shards, the first of them %u, were started from data that may lack "
        "acknowledged writes, because on every machine that held them they were damaged, or it "
        "restarted and their durability was not fence; rowan status goes on showing it",
        count, first);
    return true;
}

/* Of one server: shards that it held, and does not any more. */
struct dropped {
    uint32_t count, first;
};

/* A process that goes on was left out as planned. */
static bool goes_on(const struct member *member, const struct cluster_config *after)
{
    const struct member *now = cluster_member(after, member->server);
    return now && now->incarnation == member->incarnation;
}

static void drop(struct dropped *all, const struct cluster_config *before,
                 const struct cluster_config *after, uint32_t server, const struct shard *old)
{
    const struct shard *now = cluster_shard(after, old->id);
    const uint32_t position = cluster_position(before, server);
    if ((now && shard_is_full_at(now, server)) || goes_on(&before->members[position], after))
        return;
    struct dropped *dropped = &all[position];
    if (dropped->count++ == 0)
        dropped->first = old->id;
}

bool loss_of_replicas(const struct cluster_config *before, const struct cluster_config *after,
                      char *out, size_t bytes)
{
    struct dropped all[CLUSTER_MAX_MEMBERS] = {0};
    for (uint32_t i = 0; before && i < before->shard_count; i++) {
        const struct shard *old = &before->shards[i];
        if (old->split == SPLIT_ENDED)
            continue;
        drop(all, before, after, old->primary, old);
        for (uint32_t k = 0; k < old->backup_count; k++)
            drop(all, before, after, old->backups[k], old);
    }

    const char *separator = "replicas that came without whole data count no more: ";
    size_t at = 0;
    for (uint32_t i = 0; before && i < before->member_count && at < bytes; i++) {
        if (all[i].count == 0)
            continue;
        at += (size_t)snprintf(out + at, bytes - at, "%sserver %u of %u shards, the first %u",
                               separator, before->members[i].server, all[i].count, all[i].first);
        separator = ", ";
    }
    return at > 0;
}
