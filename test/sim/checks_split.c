/* Shards that are split: which shard an entry is of now. An entry of a parent lies on the replicas of its children until those have
 * copies of it, with the same version; then the parent is gone, and what is left of it anywhere is dead. */
#include "test/sim/checks_state.h"

static bool is_gone(const struct cluster_config *config, uint16_t id)
{
    const struct shard *row = cluster_shard(config, id);
    return !row || row->split == SPLIT_ENDED;
}

void checks_split_config(struct checks *checks, const struct cluster_config *next)
{
    const struct cluster_config *before = checks->config;
    for (uint32_t i = 0; before && i < before->shard_count; i++)
        checks->gone[before->shards[i].id] = is_gone(next, before->shards[i].id);
    for (uint32_t i = 0; before && i < next->shard_count; i++) {
        const struct shard *row = &next->shards[i], *parent = cluster_parent(next, row);
        if (!parent || cluster_shard(before, row->id))
            continue;
        checks->parents[row->id] = 1u + parent->id;
        checks->doubts[row->id] = checks->doubts[parent->id];
        checks->counts.split_off++;
    }
}

bool checks_is_of(const struct checks *checks, uint16_t shard, uint16_t ancestor)
{
    uint32_t at = 1u + shard;
    while (at && at - 1 != ancestor)
        at = checks->parents[at - 1];
    return at;
}

struct checks_entry *checks_entry_of(struct checks *checks, uint16_t shard, uint64_t version)
{
    struct checks_entry *entry = NULL;
    for (uint32_t at = 1u + shard; at && !entry; at = checks->parents[at - 1])
        entry = checks_entry(checks, (uint16_t)(at - 1), version);
    return entry;
}
