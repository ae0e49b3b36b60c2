/* story.c - compares two configurations. */
#include "cm/story.h"

#include <stdio.h>

/* --- what is given up --- */

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

bool story_of_certainty(const struct cluster_config *before, const struct cluster_config *after,
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

bool story_of_replicas(const struct cluster_config *before, const struct cluster_config *after,
                       char *out, size_t bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; before && i < before->member_count && at < bytes; i++) {
        const struct member *member = &before->members[i],
                            *now = cluster_member(after, member->server);
        uint32_t count = 0, first = 0;
        if (now && now->incarnation == member->incarnation)
            continue; /* a process that goes on was left out as planned */
        for (uint32_t k = before->shard_count; k > 0; k--) {
            const struct shard *old = &before->shards[k - 1], *new = cluster_shard(after, old->id);
            if (old->split == SPLIT_ENDED || !shard_is_full_at(old, member->server) ||
                (new &&shard_is_full_at(new, member->server)))
                continue;
            first = old->id;
            count++;
        }
        if (count > 0)
            at += (size_t)snprintf(
                out + at, bytes - at, "%sserver %u of %u shards, the first %u",
                at ? ", " : "replicas that came without whole data count no more: ", member->server,
                count, first);
    }
    return at > 0;
}

/* --- what becomes of members and shards --- */

enum fate { REMOVED, KEPT, JOINED };

static bool has_met(const struct member *old, const struct member *now, enum fate fate)
{
    if (fate == REMOVED)
        return !now;
    return fate == KEPT ? now && now->kept && !old->kept : !old || (old->kept && !now->kept);
}

/* The servers that met with it, or "-"; how many. */
static uint32_t list(const struct cluster_config *before, const struct cluster_config *after,
                     enum fate fate, char *out, size_t bytes)
{
    const struct cluster_config *all = fate == JOINED ? after : before;
    uint32_t count = 0;
    size_t at = 0;
    snprintf(out, bytes, "-");
    for (uint32_t i = 0; i < all->member_count; i++) {
        const uint32_t server = all->members[i].server;
        if (!has_met(cluster_member(before, server), cluster_member(after, server), fate))
            continue;
        if (at < bytes)
            at += (size_t)snprintf(out + at, bytes - at, "%s%u", count ? "," : "", server);
        count++;
    }
    return count;
}

bool story_of_failover(const struct cluster_config *before, const struct cluster_config *after,
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

static uint32_t count_waiting(const struct cluster_config *config, uint32_t *first)
{
    uint32_t count = 0;
    for (uint32_t i = config ? config->served_count : 0; i > 0; i--) {
        if (!shard_is_kept(config, &config->shards[i - 1]))
            continue;
        *first = config->shards[i - 1].id;
        count++;
    }
    return count;
}

bool story_of_waiting(const struct cluster_config *before, const struct cluster_config *after,
                      char *out, size_t bytes)
{
    uint32_t first = 0, unused;
    const uint32_t count = count_waiting(after, &first);
    if (count == 0 || count == count_waiting(before, &unused))
        return false;
    size_t at = (size_t)snprintf(
        out, bytes, "%u shards, the first of them %u, are not served: they wait for server", count,
        first);
    const char *separator = " ";
    for (uint32_t i = 0; i < after->member_count && at < bytes; i++) {
        if (!after->members[i].kept)
            continue;
        at += (size_t)snprintf(out + at, bytes - at, "%s%u", separator, after->members[i].server);
        separator = ", ";
    }
    if (at < bytes)
        snprintf(out + at, bytes - at,
                 " to come back with its data; rowan give-up goes on without them");
    return true;
}

/* The process is a member in both. */
static bool stays(const struct cluster_config *before, const struct cluster_config *after,
                  uint32_t server)
{
    const struct member *old = cluster_member(before, server), *now = cluster_member(after, server);
    return old && now && old->incarnation == now->incarnation && !old->kept && !now->kept;
}

bool story_of_fill(const struct cluster_config *before, const struct cluster_config *after,
                   struct story_fill *out)
{
    *out = (struct story_fill){0};
    out->joined = list(before, after, JOINED, out->servers, sizeof out->servers);
    for (uint32_t i = 0; i < after->shard_count; i++) {
        const struct shard *now = &after->shards[i], *old = cluster_shard(before, now->id);
        if (!old)
            continue;
        bool began = false, ended = false, dropped = false;
        for (uint32_t k = 0; k < now->filling_count; k++)
            began = began || !shard_has_filling(old, now->filling[k]);
        for (uint32_t k = 0; k < now->backup_count; k++)
            ended = ended || shard_has_filling(old, now->backups[k]);
        out->began += began;
        out->ended += ended;
        for (uint32_t k = 0; k < before->member_count; k++) {
            const uint32_t server = before->members[k].server;
            dropped = dropped || (shard_names(old, server) && !shard_names(now, server) &&
                                  stays(before, after, server));
        }
        out->left += now->filling_count > 0;
        out->swapped += now->primary != old->primary && stays(before, after, old->primary);
        out->dropped += dropped;
    }
    return out->joined + out->began + out->ended + out->swapped + out->dropped > 0;
}
