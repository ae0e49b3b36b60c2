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
 *      for, as far as the workers' tables of clients tell (recover_clients.h).
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

/* The checked, contiguous entry at `offset` in the map. */
static int recover_entry(struct recover *recover, struct recover_shard *of,
                         const struct entry_header *header, uint64_t offset)
{
    const struct server_common *common = recover->common;
    struct apply_entry entry =
        apply_describe(common->pm, &common->format, header, offset, recover->key);
    struct applied did;
    if (!recover_clients_ask(&recover->clients, header))
        entry.client_id = 0; /* R7 */
    if (!recover->in_copies)
        recover_count_copies(of, header->version);
    int error = apply_entry(of->state, &entry, &did);
    if (!error)
        error = suffix_add(&of->state->suffix, header->version, offset);
    if (!error && recover->in_copies &&
        (header->blocks > 1 || header->version > of->state->prefix.upto))
        error = suffix_add(&of->copies, header->version, offset);
    if (error || did.record == ROWAN_ENOMEM)
        return error ? error : did.record;
    recover->records_lost += did.record == ROWAN_EBUSY;
    recover->counts.entries++;
    return 0;
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

static int recover_joined(struct recover *recover, struct recover_shard *shard,
                          const struct entry_header *header, struct join_entry *entry)
{
    uint64_t offset = find_copy(shard, header->version);
    int error = 0;
    if (offset == 0 && join_is_contiguous(entry, &recover->common->format, header)) {
        offset = entry->offsets[0];
    } else if (offset == 0 && !recover->possibly_incomplete &&
               header->version <= atomic_load(&shard->state->settled)) {
        /* R6: it was copied, and the copy was cleaned; or another copy, in one piece, begins here. */
        join_keep_piece(entry, &recover->common->format, header);
        return 0;
    } else if (offset == 0) {
        error = join_copy(entry, &recover->common->format, header, &recover->log, &offset);
        if (!error)
            error = suffix_add(&shard->made, header->version, offset);
        recover->counts.copied += !error;
    }
    if (!error)
        error = recover_entry(recover, shard, header, offset);
    if (!error)
        join_remove(entry);
    return error;
}

/* R2: a block of a long entry in a segment of copies. */
static int recover_piece(struct recover *recover, struct recover_shard *shard,
                         const struct entry_header *header, uint64_t offset)
{
    struct recover_copy *copy = &recover->copy;
    struct join_entry *entry = join_add(&recover->join, header, offset);
    if (header->block == 0)
        *copy = (struct recover_copy){
            .shard = header->shard, .version = header->version, .start = offset};
    else if (offset != copy->offset || header->block != copy->block ||
             header->shard != copy->shard || header->version != copy->version)
        return 0;
    copy->block = (uint16_t)(header->block + 1);
    copy->offset = offset + entry_block_bytes(&recover->common->format, header->key_bytes,
                                              header->value_bytes, header->block);
    if (copy->block < header->blocks)
        return 0;
    if (entry)
        join_remove(entry);
    return recover_entry(recover, shard, header, copy->start);
}

/* The shard of a block, if the block counts (R1). */
static struct recover_shard *shard_of(struct recover *recover, const struct entry_header *header)
{
    struct recover_shard *shard = recover->by_id[header->shard];
    uint32_t epoch = version_epoch(header->version);
    if (!shard || epoch < shard->state->first_epoch || version_counter(header->version) == 0) {
        recover->counts.passed_over++;
        return NULL;
    }
    if (epoch >= shard->state->epoch) {
        recover->counts.strange++;
        return NULL;
    }
    return shard;
}

static int recover_object(struct recover *recover, const struct entry_header *header,
                          uint64_t offset)
{
    struct recover_shard *shard = shard_of(recover, header);
    if (!shard)
        return 0;
    if (header->blocks == 1)
        return recover_entry(recover, shard, header, offset);
    if (recover->in_copies)
        return recover_piece(recover, shard, header, offset);
    struct join_entry *entry = join_add(&recover->join, header, offset);
    return entry ? recover_joined(recover, shard, header, entry) : 0;
}

/* R7 */
static int recover_record(struct recover *recover, const struct entry_header *header)
{
    struct recover_shard *shard = shard_of(recover, header);
    if (!shard || !shard->state->primary || !recover_clients_ask(&recover->clients, header))
        return 0;
    int error =
        records_add(&shard->state->records, header->client_id, header->operation, header->version);
    recover->records_lost += error == ROWAN_EBUSY;
    recover->counts.records++;
    return error == ROWAN_EBUSY ? 0 : error;
}

int recover_pieces(struct recover *recover)
{
    for (uint32_t i = 0; i < recover->shard_count; i++)
        suffix_sort(&recover->shards[i].copies);
    recover->in_copies = false;
    int error = 0;
    for (uint32_t i = 0; i < JOIN_ENTRIES && !error; i++) {
        struct join_entry *entry = &recover->join.entries[i];
        if (!join_is_whole(entry))
            continue;
        struct entry_header header;
        entry_peek(pm_at(recover->common->pm, entry->offsets[0]), &header);
        error = recover_joined(recover, recover->by_id[header.shard], &header, entry);
    }
    return error;
}

static void recover_commit(struct recover *recover, const struct commit_shard *row)
{
    struct recover_shard *found = recover->by_id[row->shard];
    uint32_t epoch = version_epoch(row->version);
    if (!found || epoch < found->state->first_epoch || epoch >= found->state->epoch)
        return;
    apply_commit(found->state, row->version);
}

/* The lowest unanswered number of a client is one for all shards, also if another worker or server
 * wrote it. */
static void recover_client(struct recover *recover, const struct commit_client *row)
{
    for (uint32_t i = 0; i < recover->shard_count; i++) {
        struct shard_state *shard = recover->shards[i].state;
        if (shard->primary)
            records_found_lowest(&shard->records, row->client, row->lowest);
    }
}

static void recover_commits(struct recover *recover, const struct entry_header *header,
                            uint64_t offset)
{
    const uint8_t *at = pm_at(recover->common->pm, offset);
    struct commit_value value;
    if (apply_decode_commits(header, at, &value)) {
        recover->counts.strange += !recover_clients_is_part(header, at);
        return;
    }
    for (uint32_t i = 0; i < value.shards; i++) {
        const struct commit_shard row = commit_shard_at(&value, i);
        recover_commit(recover, &row);
    }
    for (uint32_t i = 0; i < value.clients; i++) {
        const struct commit_client row = commit_client_at(&value, i);
        recover_client(recover, &row);
    }
}

int recover_block(struct recover *recover, const struct entry_header *header, uint64_t offset)
{
    recover->blocks_seen = true;
    if (header->type == ENTRY_PUT || header->type == ENTRY_DELETE)
        return recover_object(recover, header, offset);
    if (header->type == ENTRY_RECORD)
        return recover_record(recover, header);
    if (header->type == ENTRY_COMMIT_VERSIONS)
        recover_commits(recover, header, offset);
    return 0;
}
