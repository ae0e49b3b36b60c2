/* join.c - checks on what a server says of itself. Pure. */
#include "cm/join.h"

#include <string.h>

bool join_is_right(const struct cm_join *join)
{
    const struct member member = join_member(join);
    return member_is_right(&member) && join->block_limit > 0 &&
           join->block_limit % CLUSTER_BLOCK_STRIDE == 0 &&
           cluster_text_is_right(join->fabric, sizeof join->fabric) &&
           cluster_text_is_right(join->durability, sizeof join->durability);
}

bool join_knows_better(const struct cm_join *join, const struct cluster_config *config)
{
    const bool other = join->known_term == config->term && join->known_manager != 0 &&
                       join->known_manager != config->manager;
    return other || join->known_term > config->term ||
           (join->data_cluster == config->cluster && join->stored_term > config->term);
}

struct member join_member(const struct cm_join *join)
{
    struct member member = {
        .server = join->server, .incarnation = join->incarnation, .workers = join->workers};
    memcpy(member.address, join->address, sizeof member.address);
    return member;
}

enum join_quality join_quality(const struct cm_join *join, const struct cluster_config *config,
                               uint16_t shard)
{
    if (cluster_is_unwritten(config))
        return JOIN_WHOLE;
    if (join->data_cluster == 0)
        return JOIN_EMPTY;
    const struct shard *row = cluster_shard(config, shard), *parent = cluster_parent(config, row);
    bool whole = !join->possibly_incomplete && !damage_concerns(&join->damage, config, shard);
    for (uint32_t i = 0; (parent || row->split == SPLIT_PARENT) && i < config->shard_count; i++) {
        const struct shard *other = &config->shards[i];
        if (other == parent || cluster_parent(config, other) == (parent ? parent : row))
            whole = whole && !damage_concerns(&join->damage, config, other->id);
    }
    return !whole ? JOIN_INCOMPLETE : join->torn ? JOIN_TORN : JOIN_WHOLE;
}
