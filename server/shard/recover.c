/* The start of a server on its PM: its phases. The scan is recover_scan.c's; what each block means, recover_apply.c's.
 *
 * Invariants, with those of these two:
 *  R3  The other segments come in order of allocation: entries of one primary then come in the order of their versions,
 *      and a commit version after all that it covers. What a cleaner copied, in any order, lies below the prefix's start.
 *  R5  Nothing found is changed but the state of segments, and what is torn or damaged, which becomes void (torn.h); a
 *      crash at any point starts over.
 *  R6  What is at or below the settled version of the replica row was durable, applied and committed here: if it is in
 *      no segment it is dead, and nobody misses it. Not so if the data are possibly incomplete.
 *  R13 Where no shard of the configuration is held, nothing that is found would count, and where nothing is torn or damaged nothing
 *      has to become void: so nothing is scanned. A checkpoint is not looked at, and not used.
 *
 *      WIPE --> CLIENTS --> CHECKPOINT --> SCAN --> SETTLE --> FENCE --> done
 */
#include "server/shard/recover.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "server/shard/recover_state.h"

#define RECOVER_TELL_NS (2 * NS_PER_S) /* from one line about progress to the next */

/* --- the order of segments: R2 and R3 --- */

enum { PLACE_CLASS_SHIFT = 62 }; /* above any allocation number */

static uint64_t class_of(enum segment_owner owner)
{
    return owner == OWNER_DIGEST ? 0 : owner == OWNER_CLEAN ? 1 : 2;
}

static int compare(const void *a, const void *b)
{
    const struct recover_place *left = a, *right = b;
    return left->order != right->order ? (left->order < right->order ? -1 : 1) : 0;
}

int recover_places(const struct store *store, bool of_checkpoints, struct recover_place **out,
                   uint64_t *count)
{
    const uint64_t segments = store_segments(store);
    struct recover_place *places = calloc(segments, sizeof *places);
    if (!places)
        return ROWAN_ENOMEM;
    *count = 0;
    for (uint64_t i = 0; i < segments; i++) {
        const struct segment_meta meta = store_meta(store, i);
        if (meta.state == SEGMENT_FREE || meta.state == SEGMENT_DIRTY ||
            (meta.owner == OWNER_CHECKPOINT) != of_checkpoints)
            continue;
        places[(*count)++] = (struct recover_place){
            .order = class_of(meta.owner) << PLACE_CLASS_SHIFT | meta.allocation,
            .segment = i,
            .has_copies = of_checkpoints || class_of(meta.owner) < 2,
            .of_checkpoint = of_checkpoints};
    }
    qsort(places, *count, sizeof *places, compare);
    *out = places;
    return 0;
}

/* --- the shards --- */

static bool is_held(const struct shard *row, uint32_t server)
{
    return row->split != SPLIT_ENDED && (row->primary == server || shard_has_backup(row, server));
}

static int add_shard(struct recover *recover, const struct recover_options *options,
                     const struct shard *row)
{
    const struct server_common *common = recover->common;
    struct recover_shard *shard = &recover->shards[recover->shard_count];
    struct replica_row found = {.state = REPLICA_NONE};
    int error = recover_row_read(options, row, &found);
    if (error)
        return error;
    error = shard_state_create(common->pm, &common->format, row, common->server, &shard->state);
    if (error)
        return error;
    shard->part = &recover->parts[recover->shard_count++ % recover->part_count];
    recover->by_id[row->id] = shard;
    shard->state->live = store_live(common->store);
    if (shard->state->primary)
        recover_clients_lead(&recover->clients, row->id, row->epoch);
    const struct shard *parent = cluster_parent(options->config, row);
    if (parent)
        atomic_init(&shard->state->parent, parent->id);
    shard->state->first_epoch = found.first_epoch;
    shard->state->first_allocation = found.first_allocation;
    atomic_init(&shard->state->possibly_incomplete, recover_is_incomplete(options, row->id));
    const uint64_t settled = found.settled;
    prefix_init(&shard->state->prefix, settled);
    suffix_drop(&shard->state->suffix, settled); /* R4 */
    if (!shard->state->primary)
        shard->state->suffix.completed = &shard->state->completed;
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

/* R13 */
static bool needs_scan(const struct recover_options *options)
{
    const struct cluster_config *config = options->config;
    bool needs = !options->verified || options->possibly_incomplete;
    for (uint32_t i = 0; i < config->shard_count && !needs; i++)
        needs = is_held(&config->shards[i], options->common->server);
    return needs;
}

static void leave_places(struct recover *recover)
{
    for (uint64_t i = 0; i < recover->place_count; i++)
        (void)recover_leave(recover, recover->places[i].segment, true);
    recover->place_count = 0;
}

/* --- the phases --- */

/* The head of the next segment of a worker's log, the newest first. 1: no more is needed. */
static int read_clients(struct recover *recover)
{
    const struct store *store = recover->common->store;
    while (recover->heads > 0 && recover->clients.unknown > 0) {
        uint64_t segment = recover->places[--recover->heads].segment;
        if (store_meta(store, segment).owner == OWNER_WORKER)
            return recover_clients_read(&recover->clients, store_segment_offset(store, segment));
    }
    return 1;
}

static void tell_progress(struct recover *recover, uint64_t now_ns)
{
    if (recover->begun_ns == 0)
        recover->begun_ns = recover->told_ns = now_ns;
    if (now_ns - recover->told_ns < RECOVER_TELL_NS)
        return;
    recover->told_ns = now_ns;
    uint64_t scanned, segments;
    recover_progress(recover, &scanned, &segments);
    log_event(LOG_INFO, "recovering", "segments=%lu of=%lu", scanned, segments);
}

/* 1: all parts are over; the first error that one met. */
static int scan_some(struct recover *recover, uint64_t now_ns, uint64_t *wake_ns, bool *busy)
{
    struct recover_part *own = &recover->parts[0];
    uint32_t over = 0;
    tell_progress(recover, now_ns);
    *busy = !atomic_load_explicit(&own->over, memory_order_relaxed) &&
            recover_help(&own, now_ns, wake_ns);
    for (uint32_t i = 0; i < recover->part_count; i++) {
        if (!atomic_load_explicit(&recover->parts[i].over, memory_order_acquire))
            continue;
        if (recover->parts[i].error)
            return recover->parts[i].error;
        over++;
    }
    if (!*busy)
        wake_at(wake_ns, now_ns + RECOVER_WAIT_NS);
    return over == recover->part_count;
}

static void write_rows(struct recover *recover)
{
    for (uint32_t id = 0; id < STORE_SHARD_IDS; id++) {
        const struct recover_shard *shard = recover->by_id[id];
        recover_row_write(recover->common->store, (uint16_t)id, shard ? shard->state : NULL);
    }
}

static int settle(struct recover *recover)
{
    const int error = recover_checkpoint_settle(recover);
    if (error)
        return error;
    if (recover->log.open)
        log_close(&recover->log);
    write_rows(recover);
    recover->ticket = pm_fence_start(recover->common->pm);
    return 1;
}

static void report(const struct recover *recover, uint64_t now_ns)
{
    const struct recover_counts counts = recover_counts(recover);
    log_event(counts.strange ? LOG_WARN : LOG_INFO, "recovered",
              "shards=%u segments=%lu covered=%lu restored=%lu entries=%lu records=%lu copied=%lu "
              "passed_over=%lu strange=%lu zeroed=%lu released=%lu voided=%lu parts=%u scan_ms=%lu",
              recover->shard_count, counts.segments, recover->covered_count, counts.restored,
              counts.entries, counts.records, counts.copied, counts.passed_over, counts.strange,
              counts.zeroed, counts.released, counts.voided, recover->part_count,
              (now_ns - recover->begun_ns) / NS_PER_MS);
    uint64_t lost = 0;
    for (uint32_t i = 0; i < recover->part_count; i++)
        lost += recover->parts[i].records_lost;
    if (lost)
        log_event(LOG_WARN, "records_lost",
                  "operations=%lu a retry of one of them would be carried out again", lost);
}

int recover_poll(struct recover *recover, uint64_t now_ns, uint64_t *wake_ns, bool *busy)
{
    int over = 1;
    *busy = true;
    switch (recover->phase) {
    case RECOVER_WIPE:
        over = wipe_poll(&recover->wipe);
        *busy = over == 1 || !recover->wipe.fencing;
        break;
    case RECOVER_CLIENTS:
        over = read_clients(recover);
        break;
    case RECOVER_CHECKPOINT:
        over = recover_checkpoint_step(recover);
        if (over == 1)
            atomic_store_explicit(&recover->scanning, true, memory_order_release);
        break;
    case RECOVER_SCAN:
        over = scan_some(recover, now_ns, wake_ns, busy);
        *busy |= over == 1;
        break;
    case RECOVER_SETTLE:
        over = settle(recover);
        break;
    case RECOVER_FENCE:
        over = pm_fence_done(recover->common->pm, recover->ticket);
        if (over == 1)
            over = store_replica_sync(recover->common->store);
        *busy = over == 1;
        if (over == 1)
            report(recover, now_ns);
        break;
    case RECOVER_DONE:
        return 1;
    }
    if (over != 1)
        return over;
    recover->phase++;
    return recover->phase == RECOVER_DONE;
}

int recover_create(const struct recover_options *options, struct recover **out, char *why,
                   size_t why_bytes)
{
    struct recover *recover = calloc(1, sizeof *recover);
    snprintf(why, why_bytes, "the data could not be read");
    if (!recover)
        return ROWAN_ENOMEM;
    recover->common = options->common;
    const bool scans = needs_scan(options);
    recover->needs_all = options->possibly_incomplete || options->damage || !scans;
    recover->shards = calloc(options->config->shard_count, sizeof *recover->shards);
    recover->by_id = calloc(STORE_SHARD_IDS, sizeof(struct recover_shard *));
    int error = recover->shards && recover->by_id ? 0 : ROWAN_ENOMEM;
    if (!error)
        error = recover_scan_open(recover, options->parts ? options->parts : 1);
    if (!error)
        error = recover_clients_init(&recover->clients, options->common);
    if (options->possibly_incomplete && !options->damage)
        recover_checkpoint_disown(options->common->store);
    if (!error)
        error =
            recover_places(options->common->store, false, &recover->places, &recover->place_count);
    if (!error && !scans)
        leave_places(recover);
    if (!error)
        error = recover_checkpoint_open(recover);
    if (!error)
        error = add_shards(recover, options, why, why_bytes);
    if (error) {
        recover_destroy(recover);
        return error;
    }
    recover->heads = recover->place_count;
    wipe_init(&recover->wipe, options->common->store, options->rebooted);
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

struct recover_part *recover_part(struct recover *recover, uint32_t number)
{
    ASSERT(number < recover->part_count);
    return &recover->parts[number];
}

struct recover_counts recover_counts(const struct recover *recover)
{
    struct recover_counts sum = {.zeroed = recover->wipe.zeroed};
    for (uint32_t i = 0; i < recover->part_count; i++) {
        const uint64_t *counts = (const uint64_t *)&recover->parts[i].counts;
        for (uint32_t j = 0; j < sizeof sum / sizeof *counts; j++)
            ((uint64_t *)&sum)[j] += counts[j];
    }
    return sum;
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
    recover_scan_close(recover);
    recover_clients_fini(&recover->clients);
    recover_checkpoint_close(recover);
    free(recover->covered);
    free(recover->places);
    free(recover->by_id);
    free(recover->shards);
    free(recover);
}
