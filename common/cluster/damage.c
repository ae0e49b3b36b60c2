/* A shard's slots are a range, so the lowest and the highest speak for all between them. */
#include "common/cluster/damage.h"

static uint32_t find(const struct damage *damage, uint16_t shard)
{
    uint32_t at = 0;
    while (at < damage->count && damage->shards[at].shard != shard)
        at++;
    return at;
}

void damage_add(struct damage *damage, uint16_t shard, uint16_t slot)
{
    const uint32_t at = find(damage, shard);
    if (at == DAMAGE_MAX_SHARDS) {
        damage->all = true;
        return;
    }
    struct damaged_shard *found = &damage->shards[at];
    if (at == damage->count) {
        damage->count++;
        *found = (struct damaged_shard){.shard = shard, .first_slot = DAMAGE_NO_SLOT};
    }
    if (slot == DAMAGE_NO_SLOT)
        return;
    if (slot < found->first_slot)
        found->first_slot = slot;
    if (slot > found->last_slot)
        found->last_slot = slot;
}

void damage_found(struct damage *damage, uint16_t shard)
{
    const uint32_t at = find(damage, shard);
    if (at == DAMAGE_MAX_SHARDS || at < damage->count)
        return;
    damage_add(damage, shard, DAMAGE_NO_SLOT);
    damage->shards[at].found = true;
}

bool damage_was_found(const struct damage *damage, uint16_t shard)
{
    const uint32_t at = find(damage, shard);
    return at < damage->count && damage->shards[at].found;
}

/* Do the slots of what says that it is of the shard belong to it? */
static bool is_sound(const struct damaged_shard *damaged, const struct cluster_config *config)
{
    const struct shard *shard = cluster_shard(config, damaged->shard);
    return damaged->first_slot == DAMAGE_NO_SLOT ||
           (shard && damaged->first_slot >= shard->first_slot &&
            damaged->last_slot <= shard->last_slot);
}

bool damage_concerns(const struct damage *damage, const struct cluster_config *config,
                     uint16_t shard)
{
    bool concerns = damage->all;
    for (uint32_t i = 0; i < damage->count && !concerns; i++)
        concerns = !damage->shards[i].found &&
                   (damage->shards[i].shard == shard || !is_sound(&damage->shards[i], config));
    return concerns;
}
