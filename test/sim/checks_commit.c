/* Commit versions (design, section 4; hazard H9): when a primary stores one, every version up to it is on all
 * replicas. The first one of an epoch also says that the union is over: of earlier epochs no entry is on some
 * replicas only. A replica that believes a wrong one leaves entries out of a union, long after.
 */
#include "common/entry/commit.h"
#include "test/sim/checks_state.h"

void checks_commit_note(struct checks *checks, uint32_t number)
{
    struct checks_entry *entry = &checks->entries[number];
    uint32_t *first = &checks->unsettled[entry->header.shard];
    entry->next_unsettled = *first;
    *first = number;
}

/* True: it is settled, one way or the other. */
static bool settle(struct checks *checks, struct checks_entry *entry, uint64_t commit)
{
    const struct entry_header *header = &entry->header;
    bool of_this_epoch = version_epoch(header->version) == version_epoch(commit);
    if (header->version > commit)
        return false;
    if (checks_is_everywhere(checks, entry) ||
        (!of_this_epoch && !checks_is_anywhere(checks, entry)))
        return true;
    checks_fail(
        checks, "C6", entry->key, header->shard,
        of_this_epoch
            ? "version %lx of shard %u is not on all replicas, and %lx is told to be committed"
            : "version %lx of shard %u is on some replicas only, and the union of %lx is over",
        header->version, header->shard, commit);
    return true;
}

static void take_row(struct checks *checks, const struct commit_shard *row)
{
    uint32_t *link = &checks->unsettled[row->shard];
    while (*link) {
        struct checks_entry *entry = &checks->entries[*link];
        if (settle(checks, entry, row->version))
            *link = entry->next_unsettled;
        else
            link = &entry->next_unsettled;
    }
}

void checks_commit_stored(struct checks *checks, const uint8_t *block, uint32_t value_bytes)
{
    struct commit_value value;
    if (commit_decode(block + ENTRY_HEADER_BYTES, value_bytes, &value)) {
        checks_fail(checks, "C6", JOURNAL_NO_KEY, JOURNAL_NO_SHARD,
                    "commit versions that cannot be read were stored");
        return;
    }
    for (uint32_t i = 0; i < value.shards; i++) {
        const struct commit_shard row = commit_shard_at(&value, i);
        take_row(checks, &row);
    }
}
