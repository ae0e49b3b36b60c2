/* cluster.c - the configuration as a value: made once, checked once, then shared by reference.
 *
 * Invariants of a configuration that passed cluster_finish:
 *  K1 members rise by server, shards by first slot, by_id by shard id; so lookups are searches.
 *  K2 shards cover every slot exactly once; shard_of_slot agrees with them.
 *  K3 every server that a shard names is a member, and none is named twice in one shard.
 *  K4 a shard names a kept member only as a full replica, and then its primary is a kept one.
 *  K5 nothing in it changes any more but the count of references.
 *  K6 rows of shards that are split, or were, stand behind the served ones; children have the replicas of their parent.
 */
#include "common/cluster/cluster.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/crc.h"
#include "common/base/error.h"

/* One allocation holds the head and the three arrays, so that a release is one free. */
struct cluster_config *cluster_create(uint32_t member_count, uint32_t shard_count)
{
    if (member_count > CLUSTER_MAX_MEMBERS || shard_count > CLUSTER_MAX_SHARDS)
        return NULL;

    size_t head = sizeof(struct cluster_config);
    size_t members = member_count * sizeof(struct member);
    size_t shards = shard_count * sizeof(struct shard);
    uint8_t *block = calloc(1, head + members + shards + shard_count * sizeof(uint16_t));
    if (!block)
        return NULL;

    struct cluster_config *config = (struct cluster_config *)(void *)block;
    config->member_count = member_count;
    config->shard_count = shard_count;
    config->members = (struct member *)(void *)(block + head);
    config->shards = (struct shard *)(void *)(block + head + members);
    config->by_id = (uint16_t *)(void *)(block + head + members + shards);
    atomic_init(&config->references, 1);
    return config;
}

_Static_assert(sizeof(struct cluster_config) % _Alignof(struct member) == 0, "members follow it");
_Static_assert(sizeof(struct member) % _Alignof(struct shard) == 0, "shards follow the members");

bool cluster_text_is_right(const char *text, size_t capacity)
{
    if (text[0] == '\0' || !memchr(text, '\0', capacity))
        return false;
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    }
    return true;
}

bool member_is_right(const struct member *member)
{
    return member->server >= 1 && member->server <= CLUSTER_MAX_SERVER &&
           member->incarnation != 0 && member->workers >= 1 &&
           member->workers <= CLUSTER_MAX_WORKERS &&
           cluster_text_is_right(member->address, sizeof member->address);
}

static bool members_are_right(const struct cluster_config *config)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const struct member *member = &config->members[i];
        if (!member_is_right(member) || member->server <= before ||
            (member->kept && config->lease_ms == 0))
            return false;
        before = member->server;
    }
    return true;
}

static bool wanted_are_right(const struct cluster_config *config)
{
    if (config->wanted_count > CLUSTER_MAX_MEMBERS ||
        (config->wanted_count > 0 && config->lease_ms == 0))
        return false;
    for (uint32_t i = 0; i < config->wanted_count; i++) {
        if (config->wanted[i] > CLUSTER_MAX_SERVER ||
            config->wanted[i] <= (i ? config->wanted[i - 1] : 0))
            return false;
    }
    return true;
}

uint32_t shard_replicas(const struct shard *shard, uint32_t servers[CLUSTER_MAX_REPLICAS])
{
    servers[0] = shard->primary;
    memcpy(servers + 1, shard->backups, shard->backup_count * sizeof servers[0]);
    return 1 + shard->backup_count;
}

static bool has(const uint32_t *servers, uint32_t count, uint32_t server)
{
    for (uint32_t i = 0; i < count; i++) {
        if (servers[i] == server)
            return true;
    }
    return false;
}

/* K3, K4 */
static bool servers_are_right(const struct cluster_config *config, const struct shard *shard)
{
    uint32_t servers[CLUSTER_MAX_REPLICAS];
    const uint32_t full = shard_replicas(shard, servers), all = full + shard->filling_count;
    memcpy(servers + full, shard->filling, shard->filling_count * sizeof servers[0]);
    for (uint32_t i = 0; i < all; i++) {
        const struct member *member = cluster_member(config, servers[i]);
        if (!member || has(servers, i, servers[i]) ||
            (member->kept && (i >= full || !shard_is_kept(config, shard))))
            return false;
    }
    return true;
}

static bool is_mixed(const struct cluster_config *config, const struct shard *shard)
{
    bool runs = false;
    for (uint32_t i = 0; i < shard->backup_count && !runs; i++)
        runs = !cluster_member(config, shard->backups[i])->kept;
    return runs && shard_is_kept(config, shard);
}

static bool move_is_right(const struct shard *shard)
{
    struct shard mended = *shard;
    shard_mend_move(&mended);
    return mended.move_from == shard->move_from && mended.move_to == shard->move_to;
}

static bool shard_is_right(const struct cluster_config *config, const struct shard *shard,
                           uint32_t first_slot)
{
    if ((shard->split == SPLIT_NONE && shard->first_slot != first_slot) ||
        shard->last_slot < shard->first_slot || shard->last_slot >= SLOT_COUNT ||
        shard->split > SPLIT_ENDED || shard->id >= CLUSTER_MAX_SHARDS)
        return false;
    if (shard->epoch == 0 || shard->epoch > CLUSTER_MAX_EPOCH)
        return false;
    if (shard->backup_count > CLUSTER_MAX_REPLICAS - 1 ||
        shard->filling_count > CLUSTER_MAX_REPLICAS - 1 - shard->backup_count)
        return false;
    return servers_are_right(config, shard) && move_is_right(shard) &&
           shard->worker < cluster_member(config, shard->primary)->workers;
}

/* K6 */
static bool follows(const struct shard *child, const struct shard *parent)
{
    return child->primary == parent->primary && child->worker == parent->worker &&
           child->backup_count == parent->backup_count &&
           memcmp(child->backups, parent->backups,
                  child->backup_count * sizeof child->backups[0]) == 0 &&
           child->filling_count == 0 && parent->filling_count == 0;
}

static bool parent_is_right(const struct cluster_config *config, const struct shard *parent)
{
    for (uint32_t i = 0; i < config->served_count; i++) {
        const struct shard *child = &config->shards[i];
        const bool apart =
            child->last_slot < parent->first_slot || child->first_slot > parent->last_slot;
        if (!apart && (child->first_slot < parent->first_slot ||
                       child->last_slot > parent->last_slot || !follows(child, parent)))
            return false;
    }
    return true;
}

static bool parents_are_right(const struct cluster_config *config)
{
    for (uint32_t i = config->served_count; i < config->shard_count; i++) {
        const struct shard *row = &config->shards[i];
        if (row->split == SPLIT_PARENT && !parent_is_right(config, row))
            return false;
    }
    return true;
}

static int compare_by_id(const void *a, const void *b, void *context)
{
    const struct shard *shards = context;
    return (int)shards[*(const uint16_t *)a].id - (int)shards[*(const uint16_t *)b].id;
}

/* Fills by_id; false if an id is there twice. */
static bool sort_by_id(struct cluster_config *config)
{
    bool rising = true;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        config->by_id[i] = (uint16_t)i;
        if (i > 0 && config->shards[i].id <= config->shards[i - 1].id)
            rising = false;
    }
    if (rising)
        return true;

    qsort_r(config->by_id, config->shard_count, sizeof config->by_id[0], compare_by_id,
            config->shards);
    for (uint32_t i = 1; i < config->shard_count; i++) {
        if (config->shards[config->by_id[i]].id == config->shards[config->by_id[i - 1]].id)
            return false;
    }
    return true;
}

static bool leases_are_right(const struct cluster_config *config)
{
    if (config->lease_ms == 0)
        return config->manager == 0;
    return config->manager != 0 && config->lease_ms >= CLUSTER_MIN_LEASE_MS &&
           config->lease_ms <= CLUSTER_MAX_LEASE_MS;
}

int cluster_finish(struct cluster_config *config)
{
    if (config->term == 0 || config->cluster == 0)
        return ROWAN_EFORMAT;
    if (config->block_limit == 0 || config->block_limit % CLUSTER_BLOCK_STRIDE != 0)
        return ROWAN_EFORMAT;
    if (config->balance < BALANCE_ON || config->balance >= BALANCE_MODES)
        return ROWAN_EFORMAT;
    if (config->replicas < 1 || config->replicas > CLUSTER_MAX_REPLICAS)
        return ROWAN_EFORMAT;
    if (!leases_are_right(config) || !members_are_right(config) || !wanted_are_right(config) ||
        !users_are_right(config->users))
        return ROWAN_EFORMAT;

    uint32_t next_slot = 0;
    config->served_count = 0;
    config->mixed = false;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        if (!shard_is_right(config, &config->shards[i], next_slot))
            return ROWAN_EFORMAT;
        config->mixed = config->mixed || is_mixed(config, &config->shards[i]);
        if (config->shards[i].split != SPLIT_NONE)
            continue;
        if (config->served_count++ != i) /* K6 */
            return ROWAN_EFORMAT;
        next_slot = config->shards[i].last_slot + 1u;
    }
    if (next_slot != SLOT_COUNT || !sort_by_id(config) || !parents_are_right(config))
        return ROWAN_EFORMAT;

    for (uint32_t i = 0; i < config->served_count; i++) {
        for (uint32_t slot = config->shards[i].first_slot; slot <= config->shards[i].last_slot;
             slot++)
            config->shard_of_slot[slot] = (uint16_t)i;
    }
    return ROWAN_OK;
}

struct cluster_config *cluster_finished(struct cluster_config *config)
{
    const int error = cluster_finish(config);
    ASSERT(!error);
    return config;
}

struct cluster_config *cluster_hold(struct cluster_config *config)
{
    uint32_t before = atomic_fetch_add_explicit(&config->references, 1, memory_order_relaxed);
    ASSERT(before > 0);
    return config;
}

void cluster_release(struct cluster_config *config)
{
    if (!config)
        return;
    uint32_t before = atomic_fetch_sub_explicit(&config->references, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before > 1)
        return;
    users_release(config->users);
    free(config);
}

struct cluster_config *cluster_copy(const struct cluster_config *config)
{
    return cluster_copy_for(config, config->member_count, config->shard_count);
}

struct cluster_config *cluster_copy_for(const struct cluster_config *config, uint32_t member_count,
                                        uint32_t shard_count)
{
    ASSERT(member_count >= config->member_count && shard_count >= config->shard_count);
    struct cluster_config *copy = cluster_create(member_count, shard_count);
    if (!copy)
        return NULL;

    memcpy(copy, config, offsetof(struct cluster_config, member_count));
    users_hold(copy->users);
    copy->served_count = config->served_count;
    copy->mixed = config->mixed;
    memcpy(copy->members, config->members, config->member_count * sizeof config->members[0]);
    memcpy(copy->shards, config->shards, config->shard_count * sizeof config->shards[0]);
    memcpy(copy->by_id, config->by_id, config->shard_count * sizeof config->by_id[0]);
    memcpy(copy->shard_of_slot, config->shard_of_slot, sizeof copy->shard_of_slot);
    return copy;
}

const struct member *cluster_member(const struct cluster_config *config, uint32_t server)
{
    uint32_t low = 0, high = config->member_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (config->members[middle].server < server)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == config->member_count || config->members[low].server != server)
        return NULL;
    return &config->members[low];
}

const struct shard *cluster_shard(const struct cluster_config *config, uint32_t id)
{
    uint32_t low = 0, high = config->shard_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (config->shards[config->by_id[middle]].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == config->shard_count || config->shards[config->by_id[low]].id != id)
        return NULL;
    return &config->shards[config->by_id[low]];
}

bool shard_is_kept(const struct cluster_config *config, const struct shard *shard)
{
    return shard->waits || cluster_member(config, shard->primary)->kept; /* K4 */
}

const struct shard *cluster_parent(const struct cluster_config *config, const struct shard *shard)
{
    for (uint32_t i = config->served_count; i < config->shard_count; i++) {
        const struct shard *row = &config->shards[i];
        if (row->split == SPLIT_PARENT && row != shard && row->first_slot <= shard->first_slot &&
            row->last_slot >= shard->last_slot)
            return row;
    }
    return NULL;
}

bool shard_has_backup(const struct shard *shard, uint32_t server)
{
    return has(shard->backups, shard->backup_count, server);
}

bool shard_has_filling(const struct shard *shard, uint32_t server)
{
    return has(shard->filling, shard->filling_count, server);
}

void shard_mend_move(struct shard *shard)
{
    if (shard->move_from != shard->move_to && shard_names(shard, shard->move_from) &&
        shard_names(shard, shard->move_to))
        return;
    shard->move_from = shard->move_to = 0;
}

bool cluster_wants(const struct cluster_config *config, uint32_t server)
{
    return config->wanted_count == 0 || has(config->wanted, config->wanted_count, server);
}

uint32_t cluster_seed(const struct cluster_config *config)
{
    return crc32c(0, config->secret, sizeof config->secret);
}

const char *cluster_balance_name(enum cluster_balance balance)
{
    static const char *const names[BALANCE_MODES] = {"on", "off", "dry-run"};
    return names[balance];
}
