/* The start of a server on its PM: its phases, and the scan. What each block means is recover_apply.c's.
 *
 * Invariants, with those of recover_apply.c:
 *  R3  The other segments come in order of allocation: entries of one primary then come in the order of their versions,
 *      and a commit version after all that it covers. What a cleaner copied, in any order, lies below the prefix's start.
 *  R5  Nothing found is changed but the state of segments; a crash at any point starts over.
 *  R6  What is at or below the settled version of the replica row was durable, applied and committed here: if it is in
 *      no segment it is dead, and nobody misses it. Not so if the data are possibly incomplete.
 *
 *      WIPE --> CLIENTS --> SCAN --> SETTLE --> FENCE --> done
 */
#include "server/shard/recover.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/shard/recover_row.h"
#include "server/shard/recover_state.h"

enum { RECOVER_STEP_BYTES = 1 << 20 };

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
    recover->blocks_seen = false;
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

/* Scans one block, or a stretch of holes, of the current segment. */
static int scan_step(struct recover *recover)
{
    const struct store *store = recover->common->store;
    struct entry_header header;
    uint32_t offset, bytes;
    switch (entry_scan_next(&recover->scan, false, &header, &offset, &bytes)) {
    case ENTRY_SCAN_BLOCK:
        return recover_block(recover, &header,
                             store_segment_offset(store, recover->places[recover->place].segment) +
                                 offset);
    case ENTRY_SCAN_STOPPED:
        return 0;
    case ENTRY_SCAN_END:
        leave_segment(recover);
        return 0;
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
    recover_count_copies(of, UINT64_MAX);
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
        "zeroed=%lu released=%lu",
        recover->shard_count, counts->segments, counts->entries, counts->records, counts->copied,
        counts->passed_over, counts->strange, counts->zeroed, counts->released);
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
