/* loads.c - see loads.h. */
#include "cm/loads.h"

#include <string.h>

#include "common/base/assert.h"

static struct load_member *member_of(struct loads *loads, uint32_t server)
{
    struct load_member *free = NULL;
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        if (loads->members[i].server == server)
            return &loads->members[i];
        if (loads->members[i].server == 0 && !free)
            free = &loads->members[i];
    }
    ASSERT(free); /* loads_follow frees those of who is no member */
    free->server = server;
    return free;
}

const struct load_member *loads_member(const struct loads *loads, const struct member *member)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        if (loads->members[i].server == member->server)
            return loads->members[i].incarnation == member->incarnation ? &loads->members[i] : NULL;
    }
    return NULL;
}

bool loads_knows(const struct loads *loads, uint16_t id, uint32_t server)
{
    bool any = false;
    for (uint32_t i = 0; i < CLUSTER_MAX_REPLICAS; i++)
        any = any || loads->shards[id].at[i].server == server;
    return any;
}

uint32_t loads_at(const struct loads *loads, uint16_t id, uint32_t server)
{
    const struct load_shard *shard = &loads->shards[id];
    for (uint32_t i = 0; i < CLUSTER_MAX_REPLICAS; i++) {
        if (shard->at[i].server == server)
            return shard->at[i].load;
    }
    return 0;
}

/* The newest counts a quarter; alone, if it differs from the mean by more than half of that, which is no noise. */
static uint32_t smooth(uint32_t known, uint32_t load)
{
    const uint32_t apart = load > known ? load - known : known - load;
    return apart > known / 2 ? load : (uint32_t)((3 * (uint64_t)known + load) / 4);
}

static void set_at(struct load_shard *shard, uint32_t server, uint32_t load)
{
    uint32_t place = 0;
    for (uint32_t i = 0; i < CLUSTER_MAX_REPLICAS; i++) {
        if (shard->at[i].server == server) {
            place = i;
            break;
        }
        if (shard->at[i].server == 0)
            place = i;
    }
    shard->at[place].load =
        shard->at[place].server == server ? smooth(shard->at[place].load, load) : load;
    shard->at[place].server = server;
}

void loads_told(struct loads *loads, const struct cluster_config *config, uint32_t server,
                const struct load_report *report, uint64_t now_ns)
{
    const struct member *member = cluster_member(config, server);
    if (!member)
        return; /* it was removed meanwhile */
    struct load_member *entry = member_of(loads, server);
    entry->incarnation = member->incarnation;
    entry->told_ns = now_ns;
    entry->cores = report->cores ? report->cores : 1;
    entry->free_bytes = report->free_bytes;
    for (uint32_t i = 0; i < report->count; i++) {
        const struct load_row *row = &report->rows[i];
        const struct shard *shard =
            row->shard <= UINT16_MAX ? cluster_shard(config, (uint16_t)row->shard) : NULL;
        if (!shard || shard->epoch != row->epoch || !shard_names(shard, server))
            continue;
        struct load_shard *known = &loads->shards[shard->id];
        set_at(known, server, row->load);
        if (shard->primary != server)
            continue;
        const bool inside = row->split > shard->first_slot && row->split <= shard->last_slot;
        known->bytes = row->bytes;
        known->split = inside ? row->split : 0;
        known->below = inside && row->below <= row->load ? row->below : 0;
    }
}

/* Who leads takes the load of leading over from who led, and the other way round. */
static void swap(struct load_shard *shard, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_REPLICAS; i++) {
        const uint32_t server = shard->at[i].server;
        shard->at[i].server = server == from ? to : server == to ? from : server;
    }
}

static bool changed(const struct shard *before, const struct shard *after)
{
    bool same = before->primary == after->primary && before->worker == after->worker &&
                before->backup_count == after->backup_count &&
                before->filling_count == after->filling_count;
    for (uint32_t i = 0; same && i < after->backup_count; i++)
        same = shard_has_backup(before, after->backups[i]);
    return !same;
}

void loads_follow(struct loads *loads, const struct cluster_config *before,
                  const struct cluster_config *config, uint64_t now_ns)
{
    for (uint32_t i = 0; i < CLUSTER_MAX_MEMBERS; i++) {
        struct load_member *member = &loads->members[i];
        if (member->server && !cluster_member(config, member->server))
            *member = (struct load_member){0};
    }
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *now = &config->shards[i], *old = cluster_shard(before, now->id);
        struct load_shard *shard = &loads->shards[now->id];
        if (!old)
            *shard = (struct load_shard){0};
        if (!old || !changed(old, now))
            continue;
        shard->moved_ns = now_ns;
        if (old->primary != now->primary)
            swap(shard, old->primary, now->primary);
        for (uint32_t k = 0; k < CLUSTER_MAX_REPLICAS; k++) {
            if (shard->at[k].server && !shard_names(now, shard->at[k].server))
                memset(&shard->at[k], 0, sizeof shard->at[k]);
        }
    }
}
