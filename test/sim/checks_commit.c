/* Commit versions (design, section 4; hazard H9): when a primary stores one, every version up to it is on all
 * replicas. The first one of an epoch also says that the reconciliation is over: of earlier epochs no entry is on some
 * replicas only. A replica that believes a wrong one leaves entries out of a reconciliation, long after.
 */
#include <stdio.h>

#include "common/entry/commit.h"
#include "server/control/control_state.h"
#include "test/sim/checks_state.h"

void checks_commit_note(struct checks *checks, uint32_t number)
{
    struct checks_entry *entry = &checks->entries[number];
    uint32_t *first = &checks->unsettled[entry->header.shard];
    if (entry->unsettled)
        return;
    entry->unsettled = true;
    entry->next_unsettled = *first;
    *first = number;
}

/* Behind a loss, as behind damage, what was superseded is not brought to who lacks it; so it is where a possible loss was told, though
 * somebody had everything. */
static bool is_before_loss(const struct checks *checks, const struct checks_entry *entry)
{
    bool before = version_epoch(entry->header.version) < checks->incomplete[entry->header.shard];
    for (uint32_t i = 0; entry->key != JOURNAL_NO_KEY && i < checks->loss_count; i++)
        before |= checks_loss_concerns(&checks->losses[i], checks->keys[entry->key].slot) &&
                  entry->header.version < checks->losses[i].loss.version;
    return before;
}

bool checks_is_missed(struct checks *checks, const struct checks_entry *entry)
{
    bool missed = !checks->flips && !is_before_loss(checks, entry);
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++)
        missed |= checks_is_replica(checks, entry->header.shard, i) &&
                  !checks_is_whole(checks, entry, i) && !checks_is_superseded(checks, entry, i);
    return missed;
}

static uint64_t replicas(const struct checks *checks, const struct checks_entry *entry)
{
    uint64_t set = 0;
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++)
        set |= (uint64_t)checks_is_replica(checks, entry->header.shard, i) << i;
    return set;
}

static uint64_t held_by(struct checks *checks, const struct checks_entry *entry)
{
    uint64_t set = 0;
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++)
        set |= (uint64_t)checks_is_held(checks, entry, i) << i;
    return set;
}

/* True: it is settled, one way or the other. */
static bool settle(struct checks *checks, struct checks_entry *entry, uint64_t commit)
{
    const struct entry_header *header = &entry->header;
    bool of_this_epoch = version_epoch(header->version) == version_epoch(commit);
    if (header->version > commit)
        return false;
    if (checks_is_everywhere(checks, entry) ||
        (!of_this_epoch &&
         (!checks_is_anywhere(checks, entry) || !checks_is_missed(checks, entry))))
        return true;
    checks_fail(
        checks, "C6", entry->key, header->shard,
        of_this_epoch
            ? "version %lx of shard %u is not on all replicas, and %lx is told to be committed; "
              "held "
              "by (bits) %lx of %lx"
            : "version %lx of shard %u is on some replicas only, and the reconciliation of %lx is "
              "over; held by (bits) %lx of %lx",
        header->version, header->shard, commit, held_by(checks, entry), replicas(checks, entry));
    return true;
}

static void take_row(struct checks *checks, const struct commit_shard *row)
{
    uint32_t *link = &checks->unsettled[row->shard];
    if (checks_in_doubt(checks, row->shard, version_epoch(row->version)))
        return;
    while (*link) {
        struct checks_entry *entry = &checks->entries[*link];
        entry->unsettled = !settle(checks, entry, row->version);
        if (entry->unsettled)
            link = &entry->next_unsettled;
        else
            *link = entry->next_unsettled;
    }
}

void checks_commit_stored(struct checks *checks, const uint8_t *block, uint32_t value_bytes)
{
    struct commit_value value;
    struct commit_part part;
    if (commit_decode(block + ENTRY_HEADER_BYTES, value_bytes, &value, &part) == 0)
        return; /* a worker's table of clients: its versions are not committed */
    if (commit_decode(block + ENTRY_HEADER_BYTES, value_bytes, &value, NULL)) {
        checks_fail(checks, "C6", JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                    "commit versions that cannot be read were stored");
        return;
    }
    for (uint32_t i = 0; i < value.shards; i++) {
        const struct commit_shard row = commit_shard_at(&value, i);
        take_row(checks, &row);
    }
}

/* --- what backups know --- */

static const struct shard_state *state_at(const struct checks *checks, uint32_t server,
                                          uint32_t position)
{
    const struct control *control = checks_control(checks, server);
    return control && control->config && control->shards ? control->shards[position] : NULL;
}

static bool backup_agrees(const struct checks *checks, uint32_t position, uint32_t backup,
                          uint64_t commit, struct checks_lag *lag)
{
    const struct shard_state *state = state_at(checks, backup - 1, position);
    uint64_t known = state ? atomic_load_explicit(&state->commit, memory_order_relaxed) : 0;
    if (known == commit || checks_lost_block(&checks->servers[backup - 1]))
        return true;
    lag->backup = backup;
    snprintf(lag->why, sizeof lag->why,
             "shard %u: server %u knows commit version %lx, and its primary %lx", lag->shard,
             backup, known, commit);
    return false;
}

static bool shard_agrees(const struct checks *checks, uint32_t position, struct checks_lag *lag)
{
    const struct shard *shard = &checks->config->shards[position];
    const struct shard_state *state = state_at(checks, shard->primary - 1, position);
    uint64_t commit = state ? atomic_load_explicit(&state->commit, memory_order_relaxed) : 0;
    uint64_t resolved = state ? atomic_load_explicit(&state->version, memory_order_relaxed) : 0;
    uint64_t start = version_make(shard->epoch, 0);
    *lag = (struct checks_lag){.shard = shard->id, .primary = shard->primary};
    if (commit != (resolved > start ? resolved : start)) {
        snprintf(lag->why, sizeof lag->why,
                 "shard %u: primary %u has resolved %lx, and told commit version %lx", shard->id,
                 shard->primary, resolved, commit);
        return false;
    }
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        if (!backup_agrees(checks, position, shard->backups[i], commit, lag))
            return false;
    }
    return true;
}

bool checks_commits_agree(const struct checks *checks, struct checks_lag *lag)
{
    for (uint32_t i = 0; i < checks->config->shard_count; i++) {
        if (!shard_agrees(checks, i, lag))
            return false;
    }
    return true;
}
