/* first.c - balance of the first configuration, by counting.
 *
 * Invariants of what it makes: any two members lead numbers of shards that differ by at most one, and
 * back numbers that differ by at most one; so do the numbers that two workers of a member own.
 */
#include "cm/first.h"

#include <string.h>

#include "common/base/assert.h"

bool first_options_are_right(const struct cm_state_options *options)
{
    if (options->server_count < 1 || options->server_count > CLUSTER_MAX_MEMBERS ||
        options->replicas < 1 || options->replicas > CLUSTER_MAX_REPLICAS ||
        options->replicas > options->server_count || options->shards > CLUSTER_MAX_SHARDS ||
        options->cluster == 0 || options->incarnation == 0)
        return false;
    if (options->lease_ms != 0 &&
        (options->lease_ms < CLUSTER_MIN_LEASE_MS || options->lease_ms > CLUSTER_MAX_LEASE_MS))
        return false;
    for (uint32_t i = 0; i < options->server_count; i++) {
        if (options->servers[i] < 1 || options->servers[i] > CLUSTER_MAX_SERVER ||
            (i > 0 && options->servers[i] <= options->servers[i - 1]))
            return false;
    }
    return true;
}

static uint32_t shard_count_of(const struct cm_state_options *options, const struct member *members)
{
    if (options->shards > 0)
        return options->shards;
    uint32_t each = FIRST_SHARDS_PER_SERVER;
    for (uint32_t i = 0; i < options->server_count; i++) {
        if (members[i].workers > each)
            each = members[i].workers;
    }
    return each * options->server_count;
}

/* The member that backs fewest shards and is no replica of `shard` yet; of equals the first from
 * `start` on, round the circle. */
static uint32_t least_burdened(const struct shard *shard, const struct member *members,
                               uint32_t member_count, uint32_t start, const uint32_t *burden)
{
    uint32_t best = member_count;
    for (uint32_t step = 0; step < member_count; step++) {
        uint32_t i = (start + step) % member_count;
        if (shard_is_full_at(shard, members[i].server))
            continue;
        if (best == member_count || burden[i] < burden[best])
            best = i;
    }
    ASSERT(best < member_count);
    return best;
}

/* Gives one shard that `from` backs to `to`; false if `to` is a replica of all of them. */
static bool move_backup(struct cluster_config *config, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct shard *shard = &config->shards[i];
        if (shard_is_full_at(shard, to))
            continue;
        for (uint32_t j = 0; j < shard->backup_count; j++) {
            if (shard->backups[j] == from) {
                shard->backups[j] = to;
                return true;
            }
        }
    }
    return false;
}

/* The member that backs fewest may be the last shard's primary, which cannot back it. Then the counts
 * end two apart, and a move or two makes them level. Each move narrows the gap, so this ends. */
static void level_backups(struct cluster_config *config, uint32_t *burden)
{
    for (;;) {
        uint32_t low = 0, high = 0;
        for (uint32_t i = 1; i < config->member_count; i++) {
            low = burden[i] < burden[low] ? i : low;
            high = burden[i] > burden[high] ? i : high;
        }
        if (burden[high] - burden[low] <= 1 ||
            !move_backup(config, config->members[high].server, config->members[low].server))
            return;
        burden[high]--;
        burden[low]++;
    }
}

static void place_shards(struct cluster_config *config)
{
    const struct member *members = config->members;
    uint32_t count = config->member_count;
    uint32_t burden[CLUSTER_MAX_MEMBERS] = {0};

    for (uint32_t i = 0; i < config->shard_count; i++) {
        struct shard *shard = &config->shards[i];
        uint32_t round = i / count, leader = i % count;
        shard->id = (uint16_t)i;
        shard->first_slot = (uint16_t)(i * SLOT_COUNT / config->shard_count);
        shard->last_slot = (uint16_t)((i + 1) * SLOT_COUNT / config->shard_count - 1);
        shard->epoch = 1;
        shard->primary = members[leader].server;
        shard->worker = round % members[leader].workers;
        while (shard->backup_count < config->replicas - 1) {
            uint32_t start = leader + 1 + round % count;
            uint32_t backup = least_burdened(shard, members, count, start, burden);
            burden[backup]++;
            shard->backups[shard->backup_count++] = members[backup].server;
        }
    }
    level_backups(config, burden);
}

_Static_assert((uint64_t)CLUSTER_MAX_SHARDS *SLOT_COUNT <= UINT32_MAX, "no overflow above");

struct cluster_config *first_place(const struct cm_state_options *options,
                                   const struct registrations *registrations)
{
    struct member members[CLUSTER_MAX_MEMBERS] = {0};
    uint32_t block_limit = UINT32_MAX;
    for (uint32_t i = 0; i < options->server_count; i++) {
        const struct cm_join *join = &registrations_find(registrations, options->servers[i])->join;
        members[i] = join_member(join);
        if (join->block_limit < block_limit)
            block_limit = join->block_limit;
    }
    struct cluster_config *config =
        cluster_create(options->server_count, shard_count_of(options, members));
    if (!config)
        return NULL;
    config->term = 1;
    config->cluster = options->cluster;
    config->block_limit = block_limit;
    config->replicas = options->replicas;
    config->has_secret = true;
    memcpy(config->secret, options->secret, sizeof config->secret);
    config->next_client_id = CLUSTER_FIRST_CLIENT_ID;
    config->lease_ms = options->lease_ms;
    config->manager = options->lease_ms ? options->incarnation : 0;
    config->wanted_count = options->lease_ms ? options->server_count : 0;
    memcpy(config->wanted, options->servers, config->wanted_count * sizeof config->wanted[0]);
    memcpy(config->members, members, options->server_count * sizeof members[0]);
    place_shards(config);
    return cluster_finished(config); /* cm_state_create and join_is_right made sure */
}
