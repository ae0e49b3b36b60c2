/* What power losses may take where nothing is fenced, and from when on. Of a shard acknowledged writes may be lost only
 * if the hosts of all its full replicas lost something since it was last served; one that did not brings all of them, also one that
 * was filled before and that only the next configuration calls full.
 *
 *   served --a host loses--> in doubt --next configuration--> [a loss, if all of its replicas lost] --served--> ...
 *
 * While a shard is in doubt, entries of its epochs so far need not be on all replicas.
 */
#include <string.h>

#include "common/base/assert.h"
#include "test/sim/checks_state.h"

/* Not one whose PM was lost, or who is no member. */
static uint32_t bit_of(const struct checks *checks, uint32_t server)
{
    const struct member *member = cluster_member(checks->config, server);
    const bool holds = member && !sim_cluster_has_lost(checks->cluster, member);
    return (uint32_t)holds << (server - 1);
}

/* In the configuration in force. */
static uint32_t replicas_of(const struct checks *checks, const struct shard *shard)
{
    uint32_t set = bit_of(checks, shard->primary);
    for (uint32_t i = 0; i < shard->backup_count; i++)
        set |= bit_of(checks, shard->backups[i]);
    return set;
}

bool checks_is_replica(const struct checks *checks, uint16_t shard_id, uint32_t server)
{
    const struct shard *shard = checks->config ? cluster_shard(checks->config, shard_id) : NULL;
    if (checks->gone[shard_id])
        return false;
    return !shard || replicas_of(checks, shard) >> server & 1;
}

static bool is_here(struct checks *checks, const struct checks_entry *entry, uint32_t server)
{
    return entry->cleaned >> server & 1 || checks_is_whole(checks, entry, server);
}

/* A log reconciliation brings nothing to a replica that fills (server/worker/worker_reconcile.c): the copying that begins
 * behind it brings the newest of each key, and the last one made the replica full. */
static bool is_behind_copy(struct checks *checks, const struct checks_entry *entry, uint32_t server)
{
    const bool copied =
        version_epoch(entry->header.version) < checks->copied_epochs[server][entry->header.shard];
    uint32_t at =
        copied && entry->key != JOURNAL_NO_KEY ? checks->keys[entry->key].last_entry : CHECKS_NONE;
    while (at && (checks->entries[at].header.version <= entry->header.version ||
                  !is_here(checks, &checks->entries[at], server)))
        at = checks->entries[at].next_of_key;
    return at != CHECKS_NONE;
}

bool checks_is_held(struct checks *checks, const struct checks_entry *entry, uint32_t server)
{
    /* Of epochs before a replica's first it got what was the newest of each key. */
    return version_epoch(entry->header.version) <
               checks->first_epochs[server][entry->header.shard] ||
           is_here(checks, entry, server) || is_behind_copy(checks, entry, server);
}

bool checks_is_everywhere(struct checks *checks, struct checks_entry *entry)
{
    const struct shard *shard = checks->config && !checks->gone[entry->header.shard]
                                    ? cluster_shard(checks->config, entry->header.shard)
                                    : NULL;
    for (uint32_t i = 0; shard && !entry->everywhere && i < checks->cluster->options.servers; i++) {
        if (replicas_of(checks, shard) >> i & 1 && !checks_is_held(checks, entry, i))
            return false;
    }
    entry->everywhere |= shard != NULL;
    return true;
}

void checks_loss_at(struct checks *checks, uint32_t server)
{
    if (!checks->config || checks->cluster->options.durability == PM_FENCE)
        return;
    checks->lost_unfenced = true;
    checks_doubt_at(checks, server);
}

void checks_doubt_at(struct checks *checks, uint32_t server)
{
    for (uint32_t i = 0; checks->config && i < checks->config->shard_count; i++) {
        const struct shard *shard = &checks->config->shards[i];
        struct checks_doubt *doubt = &checks->doubts[shard->id];
        doubt->servers |= UINT32_C(1) << server;
        doubt->epoch = shard->epoch;
    }
}

bool checks_in_doubt(const struct checks *checks, uint16_t shard, uint32_t epoch)
{
    const struct checks_doubt *doubt = &checks->doubts[shard];
    return doubt->servers && epoch <= doubt->epoch;
}

bool checks_lost_at(const struct checks *checks, uint16_t shard, uint32_t server)
{
    return checks->doubts[shard].servers >> server & 1;
}

/* Nobody serves the shard now, and whoever does so next begins with what is left. */
static void add_loss(struct checks *checks, const struct shard *before, const struct shard *shard)
{
    if (checks->loss_count == checks->loss_room)
        checks->losses = checks_grow(checks->losses, &checks->loss_room, sizeof *checks->losses);
    checks->losses[checks->loss_count++] = (struct checks_loss){
        .first_slot = before->first_slot,
        .last_slot = before->last_slot,
        .loss = {.at_ns = checks->cluster->clock.now_ns, .version = version_make(shard->epoch, 0)}};
    checks->doubts[shard->id].lost = true;
    checks->counts.losses++;
    for (uint32_t i = 0; i < checks->entry_count; i++)
        checks->entries[i].done &=
            !checks_is_of(checks, shard->id, checks->entries[i].header.shard);
    for (uint32_t i = 0; i < checks->key_count; i++) {
        struct checks_key *key = &checks->keys[i];
        if (cluster_shard_of_slot(checks->config, key->slot)->id != shard->id)
            continue;
        key->settled = 0;
        memset(key->shown, 0, sizeof key->shown);
    }
}

/* Is an entry of the row's epoch known? */
static bool was_written(const struct checks *checks, const struct shard *shard)
{
    bool any = false;
    for (uint32_t i = 0; i < checks->entry_count && !any; i++) {
        const struct checks_entry *entry = &checks->entries[i];
        any = entry->header.shard == shard->id &&
              version_epoch(entry->header.version) == shard->epoch;
    }
    return any;
}

/* Not the same one again: a configuration may come while who leads the shard since then takes up what is left. */
static bool is_a_loss(const struct checks *checks, const struct shard *before, uint32_t whole)
{
    const struct checks_doubt *doubt = &checks->doubts[before->id];
    return before->split == SPLIT_NONE && (whole & ~doubt->servers) == 0 &&
           (!doubt->lost || was_written(checks, before));
}

void checks_loss_config(struct checks *checks, const struct cluster_config *next)
{
    for (uint32_t i = 0; checks->config && i < next->shard_count; i++) {
        const struct shard *shard = &next->shards[i],
                           *before = cluster_shard(checks->config, shard->id);
        if (!before || shard->epoch == before->epoch)
            continue;
        if (shard->possibly_incomplete &&
            (!before->possibly_incomplete || checks->doubts[shard->id].servers))
            checks->incomplete[shard->id] = shard->epoch;
        const uint32_t all = replicas_of(checks, before), whole = all | replicas_of(checks, shard);
        if (is_a_loss(checks, before, whole))
            add_loss(checks, before, shard);
        for (uint32_t k = 0; k < checks->cluster->options.servers; k++) {
            if (shard->possibly_incomplete && !before->possibly_incomplete && all >> k & 1 &&
                !sim_cluster_is_rebooted_unfenced(checks->cluster, k + 1))
                checks_fail(checks, "loss", JOURNAL_NO_KEY, shard->id,
                            "shard %u is called possibly incomplete, and the host of server %u has "
                            "run all the time",
                            shard->id, k + 1);
        }
    }
}

void checks_loss_served(struct checks *checks, uint16_t id, uint32_t epoch)
{
    struct checks_doubt *doubt = &checks->doubts[id];
    const struct shard *shard = cluster_shard(checks->config, id);
    if (!doubt->servers || epoch <= doubt->epoch)
        return;
    if (doubt->lost && !shard->possibly_incomplete)
        checks_fail(checks, "loss", JOURNAL_NO_KEY, id,
                    "shard %u may lack acknowledged writes, and the configuration does not say so",
                    id);
    *doubt = (struct checks_doubt){0};
}

uint32_t checks_losses(const struct checks *checks, uint32_t key, struct linear_loss *out,
                       uint32_t room)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < checks->loss_count; i++) {
        if (!checks_loss_concerns(&checks->losses[i], checks->keys[key].slot))
            continue;
        ASSERT(count < room);
        out[count++] = checks->losses[i].loss;
    }
    return count;
}
