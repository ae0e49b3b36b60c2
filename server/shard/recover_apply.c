/* What a start makes of each block that it finds.
 *
 * Invariants, with those of recover.c:
 *  R1  Only a checksum admits a block (design, H6). An entry counts from the replica row's first
 *      epoch up to the last epoch that is over, and only for a shard that this server holds: no
 *      other bytes come back (H15), and none of an epoch that is still to be handed out (C9).
 *  R2  Digest logs and clean logs are scanned first. So an entry whose blocks lie apart is copied only if
 *      nobody has copied it before: a digest role, a cleaner, or a start, this one included. There a copy lies in one
 *      piece; pieces of torn ones are put together only if none of those segments has a whole one.
 *  R4  A shard's suffix has all that was found above its settled version, also what a commit version covers: another
 *      replica may have lost that by damage. If the data are possibly incomplete, nothing is settled, and every entry is
 *      reconciled, at 16 B of memory each.
 *  R7  A record stub gives back a completion record, nothing else. Neither a stub nor an entry gives one that nobody asks
 *      for, as far as the workers' tables of clients tell (recover_clients.h). At a backup, of which no table speaks, the
 *      newest at or below its settled version are kept, as many as completed.h holds; a checkpoint tells those it covers.
 *  R10 All parts join into one log, so that a start on a full PM takes no more segments than it fills. It is a part's while
 *      that copies an entry. Another that comes then has done nothing with its block, and comes back with it in its next poll.
 */
#include "server/shard/recover_state.h"

#include "common/base/error.h"
#include "server/shard/apply.h"

/* In order of version, because the prefix keeps few ranges. */
void recover_count_copies(struct recover_shard *of, uint64_t version)
{
    while (of->counted < of->copies.count && of->copies.items[of->counted].version < version)
        prefix_add(&of->state->prefix, of->copies.items[of->counted++].version);
}

/* The checked, contiguous entry at `offset` in the map, of which the hash is known. */
static int recover_hashed(struct recover_part *part, struct recover_shard *of,
                          const struct entry_header *header, struct apply_entry *entry)
{
    const uint64_t offset = entry->offset;
    if (!recover_clients_ask(&part->recover->clients, header))
        entry->client_id = 0; /* R7 */
    if (!part->in_copies)
        recover_count_copies(of, header->version);
    const int applied = apply_entry(of->state, entry);
    int error = applied < 0 ? applied : suffix_add_item(&of->state->suffix, apply_item(entry));
    if (!error && part->in_copies &&
        (header->blocks > 1 || header->version > of->state->prefix.upto))
        error = suffix_add(&of->copies, header->version, offset);
    const int record =
        !error && of->state->primary
            ? records_add(&of->state->records, entry->client_id, entry->operation, entry->version)
            : 0;
    if (error || record == ROWAN_ENOMEM)
        return error ? error : record;
    part->records_lost += record == ROWAN_EBUSY;
    part->counts.entries++;
    return 0;
}

static int recover_entry(struct recover_part *part, struct recover_shard *of,
                         const struct entry_header *header, uint64_t offset)
{
    const struct server_common *common = part->recover->common;
    struct apply_entry entry =
        apply_describe(common->pm, &common->format, header, offset, part->key);
    return recover_hashed(part, of, header, &entry);
}

/* R2: where the joined entry lies already, or 0. */
static uint64_t find_copy(const struct recover_shard *shard, uint64_t version)
{
    uint32_t at = suffix_find(&shard->copies, version - 1);
    if (at < shard->copies.count && shard->copies.items[at].version == version)
        return shard->copies.items[at].offset;
    at = 0;
    while (at < shard->made.count && shard->made.items[at].version != version)
        at++;
    return at < shard->made.count ? shard->made.items[at].offset : 0;
}

/* R10 */
static int copy_joined(struct recover_part *part, const struct entry_header *header,
                       struct join_entry *entry, uint64_t *offset)
{
    struct recover *recover = part->recover;
    if (atomic_exchange_explicit(&recover->log_is_in_use, true, memory_order_acquire))
        return ROWAN_EAGAIN;
    const int error = join_copy(entry, &recover->common->format, header, &recover->log, offset);
    atomic_store_explicit(&recover->log_is_in_use, false, memory_order_release);
    return error;
}

static int recover_joined(struct recover_part *part, struct recover_shard *shard,
                          const struct entry_header *header, struct join_entry *entry)
{
    uint64_t offset = find_copy(shard, header->version);
    int error = 0;
    if (offset == 0 && join_is_contiguous(entry, &part->recover->common->format, header)) {
        offset = entry->offsets[0];
    } else if (offset == 0 &&
               !atomic_load_explicit(&shard->state->possibly_incomplete, memory_order_relaxed) &&
               header->version <= atomic_load(&shard->state->settled)) {
        /* R6: it was copied, and the copy was cleaned; or another copy, in one piece, begins here. */
        join_keep_piece(entry, &part->recover->common->format, header);
        return 0;
    } else if (offset == 0) {
        error = copy_joined(part, header, entry, &offset);
        if (!error)
            error = suffix_add(&shard->made, header->version, offset);
        part->counts.copied += !error;
    }
    if (!error)
        error = recover_entry(part, shard, header, offset);
    if (!error)
        join_remove(entry);
    return error;
}

/* R2: a block of a long entry in a segment of copies. */
static int recover_piece(struct recover_part *part, struct recover_shard *shard,
                         const struct entry_header *header, uint64_t offset)
{
    struct join_entry *entry = join_add(&part->join, header, offset);
    if (!join_piece_add(&part->copy, header, offset,
                        entry_block_bytes(&part->recover->common->format, header->key_bytes,
                                          header->value_bytes, header->block)))
        return 0;
    if (entry)
        join_remove(entry);
    return recover_entry(part, shard, header, part->copy.start);
}

/* R1: does the block count? */
static bool block_counts(struct recover_part *part, const struct recover_shard *shard,
                         const struct recover_found *found)
{
    const struct entry_header *header = &found->header;
    const struct store *store = part->recover->common->store;
    const uint32_t epoch = version_epoch(header->version);
    if (!shard || version_counter(header->version) == 0 ||
        (epoch < shard->state->first_epoch &&
         !shard_counts(shard->state, header->version, store,
                       store_segment_at(store, found->offset)))) {
        part->counts.passed_over++;
        return false;
    }
    part->counts.strange += epoch >= shard->state->epoch;
    return epoch < shard->state->epoch;
}

static int recover_object(struct recover_part *part, const struct recover_block *block)
{
    const struct entry_header *header = &block->found->header;
    const uint64_t offset = block->found->offset;
    if (header->blocks == 1) {
        struct apply_entry entry = apply_make(header, offset, recover_key(part->recover, offset),
                                              block->found->hash, block->hint);
        return recover_hashed(part, block->shard, header, &entry);
    }
    if (part->in_copies)
        return recover_piece(part, block->shard, header, offset);
    struct join_entry *entry = join_add(&part->join, header, offset);
    return entry ? recover_joined(part, block->shard, header, entry) : 0;
}

/* R7 */
static int recover_record(struct recover_part *part, struct recover_shard *shard,
                          const struct entry_header *header)
{
    if (!shard->state->primary)
        completed_add(&shard->state->completed, header->client_id, header->operation,
                      header->version);
    if (!shard->state->primary || !recover_clients_ask(&part->recover->clients, header))
        return 0;
    int error =
        records_add(&shard->state->records, header->client_id, header->operation, header->version);
    part->records_lost += error == ROWAN_EBUSY;
    part->counts.records++;
    return error == ROWAN_EBUSY ? 0 : error;
}

int recover_pieces(struct recover_part *part)
{
    struct recover *recover = part->recover;
    for (uint32_t i = part->number; i < recover->shard_count; i += recover->part_count)
        suffix_sort(&recover->shards[i].copies);
    part->in_copies = false;
    int error = 0;
    for (uint32_t i = 0; i < JOIN_ENTRIES && !error; i++) {
        struct join_entry *entry = &part->join.entries[i];
        if (!join_is_whole(entry))
            continue;
        struct entry_header header;
        entry_peek(pm_at(part->recover->common->pm, entry->offsets[0]), &header);
        error = recover_joined(part, recover->by_id[header.shard], &header, entry);
    }
    part->in_copies = error == ROWAN_EAGAIN;
    return error;
}

static void recover_commit(struct recover_part *part, const struct commit_shard *row)
{
    struct recover_shard *found = part->recover->by_id[row->shard];
    uint32_t epoch = version_epoch(row->version);
    if (!found || found->part != part || epoch < found->state->first_epoch ||
        epoch >= found->state->epoch)
        return;
    apply_commit(found->state, row->version);
}

/* The lowest unanswered number of a client is one for all shards, also if another worker or server
 * wrote it. */
static void recover_client(struct recover_part *part, const struct commit_client *row)
{
    const struct recover *recover = part->recover;
    for (uint32_t i = part->number; i < recover->shard_count; i += recover->part_count) {
        struct shard_state *shard = recover->shards[i].state;
        if (shard->primary)
            records_found_lowest(&shard->records, row->client, row->lowest);
    }
}

static void recover_commits(struct recover_part *part, const struct entry_header *header,
                            uint64_t offset)
{
    const uint8_t *at = pm_at(part->recover->common->pm, offset);
    struct commit_value value;
    struct commit_part of_table;
    if (apply_decode_commits(header, at, &value, NULL)) {
        part->counts.strange +=
            part->number == 0 && apply_decode_commits(header, at, &value, &of_table);
        return;
    }
    for (uint32_t i = 0; i < value.shards; i++) {
        const struct commit_shard row = commit_shard_at(&value, i);
        recover_commit(part, &row);
    }
    for (uint32_t i = 0; i < value.clients; i++) {
        const struct commit_client row = commit_client_at(&value, i);
        recover_client(part, &row);
    }
}

bool recover_choose(struct recover_part *part, const struct recover_found *found,
                    struct recover_block *block)
{
    const struct recover *recover = part->recover;
    const struct entry_header *header = &found->header;
    *block = (struct recover_block){.found = found};
    if (header->type == ENTRY_COMMIT_VERSIONS)
        return true;
    block->shard = recover->by_id[header->shard];
    if (header->type == ENTRY_CHECKPOINT)
        return block->shard && part == block->shard->part;
    return part == (block->shard ? block->shard->part : &recover->parts[0]) &&
           block_counts(part, block->shard, found);
}

int recover_block(struct recover_part *part, const struct recover_block *block)
{
    const struct entry_header *header = &block->found->header;
    if (header->type == ENTRY_CHECKPOINT)
        return recover_checkpoint_apply(part, block->shard, block->found);
    if (header->type == ENTRY_RECORD)
        return recover_record(part, block->shard, header);
    if (header->type != ENTRY_COMMIT_VERSIONS)
        return recover_object(part, block);
    recover_commits(part, header, block->found->offset);
    return 0;
}
