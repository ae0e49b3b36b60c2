/* split.c - see split.h.
 *
 * Invariants of what it makes:
 *  P1 An id is not that of another row; and no version of one that had it before is as high as one of the child's first epoch.
 *     A child's epoch is above the parent's last one that was written in.
 *  P2 Children have the replicas of their parent as long as it is one.
 *  P3 A parent is ended when every replica of its row has copied all, in the epoch that is in force. What was told of that
 *     row says nothing of one with another epoch: its backups have other places.
 */
#include "cm/split.h"

#include <stdio.h>
#include <string.h>

/* So that none is used up while a lineage lasts. */
enum { LAST_EPOCH = CLUSTER_MAX_EPOCH - (1 << 16) };

bool split_concerns(const struct cluster_config *config, const struct shard *shard)
{
    return shard->split != SPLIT_NONE || cluster_parent(config, shard);
}

uint32_t split_slot(const struct cluster_config *config, const struct loads *loads, uint32_t id)
{
    const struct shard *shard = cluster_shard(config, id);
    if (!shard || shard->first_slot == shard->last_slot)
        return 0;
    const uint32_t slot = loads->shards[id].split;
    return slot > shard->first_slot && slot <= shard->last_slot
               ? slot
               : (shard->first_slot + shard->last_slot + 1u) / 2;
}

/* The server, a replica, which would have no space for a second copy; 0: none, as far as is known. */
static uint32_t without_space(const struct cluster_config *config, const struct shard *shard,
                              const struct loads *loads)
{
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct member *member = &config->members[i];
        if (shard_names(shard, member->server) && loads_lack_space(loads, config, member, shard))
            return member->server;
    }
    return 0;
}

const char *split_refusal(const struct cm_plan *plan, const struct cluster_config *config,
                          const struct loads *loads, uint32_t max_shards, char *why,
                          size_t why_bytes)
{
    const struct shard *shard = cluster_shard(config, plan->shard);
    if (!shard)
        snprintf(why, why_bytes, "there is no shard %u (rowan shards lists them)", plan->shard);
    else if (shard->split != SPLIT_NONE)
        return NULL;
    else if (shard->first_slot == shard->last_slot)
        snprintf(why, why_bytes, "shard %u is a single slot, which cannot be split", shard->id);
    else if (plan->to <= shard->first_slot || plan->to > shard->last_slot)
        snprintf(why, why_bytes, "shard %u can be split at slots %u to %u", shard->id,
                 shard->first_slot + 1, shard->last_slot);
    else if (shard_is_kept(config, shard) || shard->epoch >= LAST_EPOCH ||
             config->epoch_floor >= LAST_EPOCH)
        snprintf(why, why_bytes, "shard %u is not served, or its epochs are used up", shard->id);
    else if (cluster_parent(config, shard) || shard->filling_count > 0)
        snprintf(why, why_bytes,
                 "shard %u is being split, moved or filled already: wait until that is over (rowan "
                 "shards)",
                 shard->id);
    else if (config->served_count >= (max_shards ? max_shards : CLUSTER_MAX_SHARDS) ||
             config->shard_count + 2 > CLUSTER_MAX_SHARDS)
        snprintf(why, why_bytes,
                 "there are %u shards already, and no more than %u are allowed "
                 "(rowan-cm --max-shards)",
                 config->served_count, max_shards);
    else if (without_space(config, shard, loads))
        snprintf(why, why_bytes,
                 "server %u has no space for a second copy of shard %u, which a split takes for a "
                 "while: give it more, or move the shard (rowan move)",
                 without_space(config, shard, loads), shard->id);
    else
        return NULL;
    return why;
}

/* P1 */
static uint16_t next_id(struct cluster_config *config, const struct cluster_config *used,
                        const struct shard *other)
{
    uint16_t id = config->next_shard;
    do
        id = (uint16_t)((id + 1u) % CLUSTER_MAX_SHARDS);
    while (cluster_shard(used, id) || (other && other->id == id));
    config->next_shard = id;
    return id;
}

struct cluster_config *split_make(const struct cm_plan *plan, const struct cluster_config *config)
{
    struct cluster_config *next =
        cluster_copy_for(config, config->member_count, config->shard_count + 2);
    if (!next)
        return NULL;
    const struct shard *old = cluster_shard(config, plan->shard);
    const uint32_t at = (uint32_t)(old - config->shards);
    struct shard *low = &next->shards[at], *high = low + 1;
    memmove(high + 1, high, (config->shard_count - at - 1) * sizeof *high);
    *high = *old;
    low->id = next_id(next, config, NULL);
    high->id = next_id(next, config, low);
    low->last_slot = (uint16_t)(plan->to - 1);
    high->first_slot = (uint16_t)plan->to;
    low->epoch = high->epoch =
        1 + (old->epoch > config->epoch_floor ? old->epoch : config->epoch_floor);
    struct shard *parent = &next->shards[config->shard_count + 1];
    *parent = *old;
    parent->split = SPLIT_PARENT;
    parent->epoch++;
    next->term++;
    return cluster_finished(next); /* the plan is not refused */
}

/* P2 */
void split_follow(struct cluster_config *config)
{
    for (uint32_t i = 0; i < config->served_count; i++) {
        struct shard *child = &config->shards[i];
        const struct shard *parent = cluster_parent(config, child);
        if (!parent)
            continue;
        struct shard now = *parent;
        now.id = child->id;
        now.split = SPLIT_NONE;
        now.first_slot = child->first_slot;
        now.last_slot = child->last_slot;
        now.epoch = child->epoch;
        if (memcmp(&now, child, sizeof now) == 0)
            continue;
        now.epoch++;
        *child = now;
    }
}

/* P3 */
static bool is_copied(const struct shard *parent, const uint8_t *filled)
{
    const uint32_t all = ((UINT32_C(1) << parent->backup_count) - 1) | SPLIT_COPIED_PRIMARY;
    return parent->split == SPLIT_PARENT && (filled[parent->id] & all) == all;
}

bool split_is_due(const struct cluster_config *config, const uint8_t *filled)
{
    for (uint32_t i = config->served_count; i < config->shard_count; i++) {
        const struct shard *row = &config->shards[i];
        if (row->split == SPLIT_ENDED || is_copied(row, filled))
            return true;
    }
    return false;
}

void split_drop_ended(struct cluster_config *config)
{
    uint32_t left = config->served_count;
    for (uint32_t i = config->served_count; i < config->shard_count; i++) {
        const struct shard row = config->shards[i];
        if (row.split != SPLIT_ENDED)
            config->shards[left++] = row;
        else if (row.epoch > config->epoch_floor)
            config->epoch_floor = row.epoch;
    }
    config->shard_count = left;
}

void split_advance(const struct cluster_config *old, struct cluster_config *config,
                   const uint8_t *filled)
{
    split_drop_ended(config);
    for (uint32_t i = config->served_count; i < config->shard_count; i++) {
        struct shard *row = &config->shards[i];
        if (!is_copied(row, filled) || row->epoch != cluster_shard(old, row->id)->epoch)
            continue;
        row->split = SPLIT_ENDED;
        row->epoch++;
        row->worker = row->backup_count = 0;
        memset(row->backups, 0, sizeof row->backups);
        shard_mend_move(row);
    }
}
