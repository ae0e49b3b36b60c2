/* The start of a server on its PM.
 *
 * Invariants:
 *  R1  Only a checksum admits a block (design, H6). An entry counts from the replica row's first
 *      epoch up to the last epoch that is over, and only for a shard that this server holds: no
 *      other bytes come back (H15), and none of an epoch that is still to be handed out (C9).
 *  R2  Digest logs and clean logs are scanned first. So an entry whose blocks lie apart is copied only if
 *      nobody has copied it before: a digest role, a cleaner, or a start, this one included. There a copy lies in one
 *      piece; pieces of torn ones are put together only if none of those segments has a whole one.
 *  R3  The other segments come in order of allocation: entries of one primary then come in the order of their versions,
 *      and a commit version after all that it covers. What a cleaner copied, in any order, lies below the prefix's start.
 *  R4  A shard's suffix has all that was found above its settled version, also what a commit version covers: another
 *      replica may have lost that by damage. If the data are possibly incomplete, nothing is settled, and every entry is
 *      reconciled, at 16 B of memory each.
 *  R5  Nothing found is changed but the state of segments, and what is torn or damaged, which becomes void (torn.h); a
 *      crash at any point starts over.
 *  R6  What is at or below the settled version of the replica row was durable, applied and committed here: if it is in
 *      no segment it is dead, and nobody misses it. Not so if the data are possibly incomplete.
 *  R7  A record stub gives back a completion record, nothing else. Neither a stub nor an entry gives one that nobody asks
 *      for, as far as the workers' tables of clients tell (recover_clients.h).
 *
 *      WIPE --> CLIENTS --> SCAN --> SETTLE --> FENCE --> done
 */
#include "server/shard/recover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/shard/apply.h"
#include "server/shard/join.h"
#include "server/shard/recover_clients.h"
#include "server/shard/recover_places.h"
#include "server/shard/recover_row.h"
#include "server/store/log.h"
#include "server/store/torn.h"
#include "server/store/wipe.h"

enum { RECOVER_STEP_BYTES = 1 << 20 };

enum recover_phase {
    RECOVER_WIPE,
    RECOVER_CLIENTS,
    RECOVER_SCAN,
    RECOVER_SETTLE,
    RECOVER_FENCE,
    RECOVER_DONE
};

struct recover_shard {
    struct shard_state *state;
    struct suffix copies; /* in digest and clean logs: long entries, and those that the prefix is to
                             count; sorted once these logs are scanned */
    uint32_t counted;     /* of `copies`, how many were added to the prefix, in order */
    struct suffix made;   /* copied by this start; few, not sorted */
};

/* A copy of a long entry, of which the blocks in front of `offset` were met. */
struct recover_copy {
    uint16_t shard, block; /* the next block */
    uint64_t version, start, offset;
};

struct recover {
    struct server_common *common;
    enum recover_phase phase;
    struct recover_shard *shards; /* those held, in the order of their ids */
    uint32_t shard_count;
    struct recover_shard **by_id; /* STORE_SHARD_IDS; NULL: not held */
    struct wipe wipe;
    struct recover_place *places; /* R2, R3 */
    uint64_t place_count, place;
    bool in_segment;
    bool blocks_seen; /* in the current segment */
    bool torn_seen;   /* likewise; then it is gone through once more */
    bool in_copies;   /* R2: digest and clean logs are being scanned */
    bool possibly_incomplete;
    struct entry_scan scan;
    struct recover_copy copy;
    struct recover_clients clients;
    uint64_t heads; /* segments whose heads are still to be read for CLIENTS */
    struct join join;
    struct log log; /* of joined entries */
    struct pm_ticket ticket;
    struct recover_counts counts;
    uint64_t records_lost;
    uint8_t key[ENTRY_MAX_KEY_BYTES];
};

static bool is_held(const struct shard *row, uint32_t server)
{
    return row->primary == server || shard_has_backup(row, server);
}

static int add_shard(struct recover *recover, const struct recover_options *options,
                     const struct shard *row)
{
    const struct server_common *common = recover->common;
    struct recover_shard *shard = &recover->shards[recover->shard_count];
    struct recover_row found = {0};
    int error = recover_row_read(options, row, &found);
    if (error)
        return error;
    error = shard_state_create(common->pm, &common->format, row, common->server, &shard->state);
    if (error)
        return error;
    recover->shard_count++;
    recover->by_id[row->id] = shard;
    shard->state->live = store_live(common->store);
    if (shard->state->primary)
        recover_clients_lead(&recover->clients, row->id, row->epoch);
    shard->state->first_epoch = found.first_epoch;
    shard->state->possibly_incomplete = recover->possibly_incomplete;
    const uint64_t settled = found.settled;
    prefix_init(&shard->state->prefix, settled);
    suffix_drop(&shard->state->suffix, settled); /* R4 */
    atomic_init(&shard->state->commit, settled);
    atomic_init(&shard->state->settled, settled);
    atomic_init(&shard->state->dur_settled, settled);
    atomic_init(&shard->state->recovering, shard->state->primary && row->epoch > 1);
    return 0;
}

static int add_shards(struct recover *recover, const struct recover_options *options, char *why,
                      size_t why_bytes)
{
    const struct cluster_config *config = options->config;
    for (uint32_t i = 0; i < config->shard_count; i++) {
        const struct shard *row = &config->shards[i];
        if (!is_held(row, recover->common->server))
            continue;
        int error = add_shard(recover, options, row);
        if (error == ROWAN_EDAMAGED)
            snprintf(why, why_bytes, "the PM should hold a replica of shard %u, and does not",
                     row->id);
        else if (error)
            snprintf(why, why_bytes, "shard %u could not be opened", row->id);
        if (error)
            return error;
    }
    return 0;
}

/* --- applying what is found --- */

/* Adds copies below `version` to the prefix: their blocks may be nowhere else any more. In order of
 * version, because the prefix keeps few ranges. */
static void count_copies(struct recover_shard *of, uint64_t version)
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
        count_copies(of, header->version);
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

/* R2: the segments of copies are scanned. */
static int recover_pieces(struct recover *recover)
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

static int recover_block(struct recover *recover, const struct entry_header *header,
                         uint64_t offset)
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

/* --- scanning --- */

static int enter_segment(struct recover *recover)
{
    const struct store *store = recover->common->store;
    uint64_t segment = recover->places[recover->place].segment;
    const enum segment_owner owner = store_meta(store, segment).owner;
    int error = 0;
    if (recover->in_copies && owner != OWNER_DIGEST && owner != OWNER_CLEAN)
        error = recover_pieces(recover);
    entry_scan_init(&recover->scan, &recover->common->format,
                    pm_at(recover->common->pm, store_segment_offset(store, segment)),
                    STORE_SEGMENT_BYTES, 0);
    recover->in_segment = true;
    recover->copy = (struct recover_copy){0};
    recover->blocks_seen = recover->torn_seen = false;
    return error;
}

/* The segment is scanned. One in which nothing landed becomes free. Bytes in one that was not committed may have come
 * from the caches of the processor: the last run may have ended before it flushed what it received. What was found
 * counts from now on, so it is made durable, by the fence at the end. */
static void leave_segment(struct recover *recover)
{
    struct store *store = recover->common->store;
    uint64_t segment = recover->places[recover->place++].segment;
    if (store_meta(store, segment).state != SEGMENT_COMMITTED)
        pm_flush(recover->common->pm, store_segment_offset(store, segment), STORE_SEGMENT_BYTES);
    recover->in_segment = false;
    recover->counts.segments++;
    if (!recover->blocks_seen && store_segment_is_zero(store, segment, 0, STORE_SEGMENT_BYTES)) {
        store_transition(store, segment, SEGMENT_DIRTY);
        store_transition(store, segment, SEGMENT_FREE);
        recover->counts.released++;
    } else if (store_meta(store, segment).state == SEGMENT_USING) {
        store_transition(store, segment, SEGMENT_USED);
    }
}

static void void_place(void *context, uint32_t position)
{
    struct recover *recover = context;
    const struct server_common *common = recover->common;
    torn_void(common->pm, &common->format,
              store_segment_offset(common->store, recover->places[recover->place].segment) +
                  position);
    recover->counts.voided++;
}

/* What was passed over, from there on, was it but zeros? Pads count here, too. */
static void note_gap(struct recover *recover, uint32_t from, uint32_t to)
{
    recover->torn_seen |= !torn_is_zero(recover->scan.base + from, to - from);
}

/* Scans one block, or a stretch of holes, of the current segment; at its end the places that are torn become void. */
static int scan_step(struct recover *recover)
{
    const struct store *store = recover->common->store;
    const uint32_t from = recover->scan.position;
    struct entry_header header;
    uint32_t offset, bytes;
    const enum entry_scan_result result =
        entry_scan_next(&recover->scan, false, &header, &offset, &bytes);
    note_gap(recover, from, result == ENTRY_SCAN_BLOCK ? offset : recover->scan.position);
    if (result == ENTRY_SCAN_BLOCK)
        return recover_block(recover, &header,
                             store_segment_offset(store, recover->places[recover->place].segment) +
                                 offset);
    if (result == ENTRY_SCAN_END) {
        recover->scan.position = 0;
        if (recover->torn_seen)
            torn_step(&recover->scan, STORE_SEGMENT_BYTES, void_place, recover);
        leave_segment(recover);
    }
    return 0;
}

/* The head of the next segment of a worker's log, the newest first. */
static int read_clients(struct recover *recover)
{
    const struct store *store = recover->common->store;
    while (recover->heads > 0 && !recover_clients_know_all(&recover->clients)) {
        uint64_t segment = recover->places[--recover->heads].segment;
        if (store_meta(store, segment).owner == OWNER_WORKER)
            return recover_clients_read(&recover->clients, store_segment_offset(store, segment));
    }
    recover->phase = RECOVER_SCAN;
    return 0;
}

static int scan_some(struct recover *recover)
{
    uint32_t scanned = 0;
    while (scanned < RECOVER_STEP_BYTES && recover->place < recover->place_count &&
           (scanned == 0 || !FAULT(SHORT_BATCH))) {
        int error = recover->in_segment ? 0 : enter_segment(recover);
        uint32_t before = recover->scan.position;
        if (!error)
            error = scan_step(recover);
        if (error)
            return error;
        scanned += recover->in_segment ? recover->scan.position - before : STORE_SEGMENT_BYTES;
    }
    if (recover->place < recover->place_count)
        return 0;
    recover->phase = RECOVER_SETTLE;
    return recover->in_copies ? recover_pieces(recover) : 0;
}

/* --- the end --- */

static void settle_shard(struct recover_shard *of)
{
    struct shard_state *shard = of->state;
    if (!of->copies.sorted)
        suffix_sort(&of->copies);
    count_copies(of, UINT64_MAX);
    suffix_clear(&of->copies);
    suffix_clear(&of->made);
    suffix_sort(&shard->suffix);
}

static void write_rows(struct recover *recover)
{
    for (uint32_t id = 0; id < STORE_SHARD_IDS; id++) {
        const struct recover_shard *shard = recover->by_id[id];
        recover_row_write(recover->common->store, (uint16_t)id, shard ? shard->state : NULL);
    }
}

static void settle(struct recover *recover)
{
    for (uint32_t i = 0; i < recover->shard_count; i++)
        settle_shard(&recover->shards[i]);
    if (recover->log.open)
        store_transition(recover->common->store, recover->log.segment, SEGMENT_USED);
    write_rows(recover);
    recover->ticket = pm_fence_start(recover->common->pm);
    recover->phase = RECOVER_FENCE;
}

static void report(const struct recover *recover)
{
    const struct recover_counts *counts = &recover->counts;
    log_event(
        counts->strange ? LOG_WARN : LOG_INFO, "recovered",
        "shards=%u segments=%lu entries=%lu records=%lu copied=%lu passed_over=%lu strange=%lu "
        "zeroed=%lu released=%lu voided=%lu",
        recover->shard_count, counts->segments, counts->entries, counts->records, counts->copied,
        counts->passed_over, counts->strange, counts->zeroed, counts->released, counts->voided);
    if (recover->records_lost)
        log_event(LOG_WARN, "records_lost",
                  "operations=%lu a retry of one of them would be carried out again",
                  recover->records_lost);
}

int recover_poll(struct recover *recover, bool *busy)
{
    int done;
    *busy = true;
    switch (recover->phase) {
    case RECOVER_WIPE:
        done = wipe_poll(&recover->wipe);
        if (done < 0)
            return done;
        if (done == 1)
            recover->phase = RECOVER_CLIENTS;
        recover->counts.zeroed = recover->wipe.zeroed;
        *busy = done == 1 || !recover->wipe.fencing;
        return 0;
    case RECOVER_CLIENTS:
        return read_clients(recover);
    case RECOVER_SCAN:
        return scan_some(recover);
    case RECOVER_SETTLE:
        settle(recover);
        return 0;
    case RECOVER_FENCE:
        done = pm_fence_done(recover->common->pm, recover->ticket);
        if (done == 1)
            done = store_replica_sync(recover->common->store);
        *busy = done == 1;
        if (done != 1)
            return done;
        report(recover);
        recover->phase = RECOVER_DONE;
        break;
    case RECOVER_DONE:
        break;
    }
    return 1;
}

int recover_create(const struct recover_options *options, struct recover **out, char *why,
                   size_t why_bytes)
{
    struct recover *recover = calloc(1, sizeof *recover);
    snprintf(why, why_bytes, "the data could not be read");
    if (!recover)
        return ROWAN_ENOMEM;
    recover->common = options->common;
    recover->possibly_incomplete = options->possibly_incomplete;
    recover->shards = calloc(options->config->shard_count, sizeof *recover->shards);
    recover->by_id = calloc(STORE_SHARD_IDS, sizeof(struct recover_shard *));
    int error = recover->shards && recover->by_id ? 0 : ROWAN_ENOMEM;
    if (!error)
        error = join_init(&recover->join, &options->common->format);
    if (!error)
        error = recover_clients_init(&recover->clients, options->common);
    if (!error)
        error = recover_places(options->common->store, &recover->places, &recover->place_count);
    if (!error)
        error = add_shards(recover, options, why, why_bytes);
    if (error) {
        recover_destroy(recover);
        return error;
    }
    recover->heads = recover->place_count;
    recover->in_copies = true;
    wipe_init(&recover->wipe, options->common->store, options->rebooted);
    log_init(&recover->log, options->common->store, OWNER_DIGEST, 0);
    *out = recover;
    return 0;
}

struct shard_state *recover_take(struct recover *recover, uint16_t shard)
{
    ASSERT(recover->phase == RECOVER_DONE);
    struct recover_shard *found = recover->by_id[shard];
    struct shard_state *state = found ? found->state : NULL;
    if (found)
        found->state = NULL;
    return state;
}

struct recover_counts recover_counts(const struct recover *recover)
{
    return recover->counts;
}

void recover_destroy(struct recover *recover)
{
    if (!recover)
        return;
    for (uint32_t i = 0; i < recover->shard_count; i++) {
        suffix_clear(&recover->shards[i].copies);
        suffix_clear(&recover->shards[i].made);
        shard_state_destroy(recover->shards[i].state);
    }
    join_fini(&recover->join);
    recover_clients_fini(&recover->clients);
    free(recover->places);
    free(recover->by_id);
    free(recover->shards);
    free(recover);
}
