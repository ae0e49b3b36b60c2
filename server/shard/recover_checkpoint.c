/* A start from a checkpoint (store/checkpoint.h). All of a checkpoint is read before any of it is used, so that one which is
 * not whole costs nothing but this: then everything is scanned. Of one that is, the segments come first among those that are
 * scanned, and those that it covers are left out.
 *
 *  R11 A checkpoint is used if all its blocks are there, and it speaks of each shard that is held here, under the same first
 *      epoch, all of epochs that are over (R1), and with completion records if the shard is led here; and not where data are damaged or may be incomplete:
 *      there everything counts that can be found; if power was lost without fences, in segments that were a checkpoint's,
 *      too. What it covers are segments that are USED or COMMITTED under the allocation number that it names. Items that
 *      lead elsewhere are nothing: their entries were moved or superseded (clean_checkpoint.c, Y2).
 *  R12 Application of a shard begins with its part of the checkpoint, on an empty index, because the checkpoint's segments
 *      have the first places.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/shard/apply.h"
#include "server/shard/recover_state.h"

/* --- is there one? --- */

/* What a checkpoint is known to say, up to where its segments are read. */
struct candidate {
    uint64_t id;
    uint32_t blocks;
    bool sound;                      /* none was missing, and it says the right things */
    bool ended;                      /* it is whole */
    uint32_t shards;                 /* that it speaks of, of those that are held */
    uint64_t first, last;            /* places */
    struct checkpoint_segment *rows; /* segments that it covers; room for all that there are */
    uint64_t row_count;
};

struct recover_checkpoint {
    struct recover *recover;
    struct recover_place *places; /* segments of checkpoints, by allocation */
    uint64_t count, next;
    struct candidate now, best;
};

/* R11 */
static bool fits(const struct recover_shard *of, const struct checkpoint_shard *row)
{
    return row->first_epoch == of->state->first_epoch &&
           version_epoch(row->commit) < of->state->epoch && index_can_restore(row->buckets) &&
           (!of->state->primary || row->leads);
}

static void meet(struct recover_checkpoint *all, const struct entry_header *header,
                 const uint8_t *value_at, uint64_t place)
{
    struct candidate *now = &all->now;
    struct checkpoint_value value;
    if (header->version != now->id)
        *now = (struct candidate){
            .id = header->version, .sound = true, .first = place, .rows = now->rows};
    now->sound &=
        header->operation == ++now->blocks && !checkpoint_decode(header, value_at, &value);
    if (now->sound && value.kind == CHECKPOINT_SEGMENTS)
        now->sound = value.count <= store_segments(all->recover->common->store) - now->row_count;
    if (!now->sound)
        return;
    for (uint32_t i = 0; value.kind == CHECKPOINT_SEGMENTS && i < value.count; i++)
        checkpoint_row(&value, i, &now->rows[now->row_count++], sizeof *now->rows);
    const struct recover_shard *of = all->recover->by_id[header->shard];
    if (value.kind == CHECKPOINT_SHARD && of) {
        now->sound = fits(of, &value.shard);
        now->shards++;
    }
    if (value.kind != CHECKPOINT_END || now->shards < all->recover->shard_count ||
        now->row_count == 0)
        return;
    now->ended = true;
    now->last = place;
    const struct candidate before = all->best;
    all->best = *now;
    *now = (struct candidate){.rows = before.rows};
}

static void read_segment(struct recover_checkpoint *all, uint64_t place)
{
    const struct server_common *common = all->recover->common;
    const uint64_t offset = store_segment_offset(common->store, all->places[place].segment);
    struct entry_scan scan;
    struct entry_header header;
    uint32_t position, bytes;
    enum entry_scan_result result;
    entry_scan_init(&scan, &common->format, pm_at(common->pm, offset), STORE_SEGMENT_BYTES, 0);
    while ((result = entry_scan_next(&scan, false, &header, &position, &bytes)) != ENTRY_SCAN_END) {
        if (result == ENTRY_SCAN_BLOCK && header.type == ENTRY_CHECKPOINT)
            meet(all, &header, pm_at(common->pm, offset + position + ENTRY_HEADER_BYTES), place);
    }
}

/* --- using it --- */

static int compare_rows(const void *a, const void *b)
{
    const uint64_t left = ((const struct checkpoint_segment *)a)->allocation;
    const uint64_t right = ((const struct checkpoint_segment *)b)->allocation;
    return left != right ? (left < right ? -1 : 1) : 0;
}

/* The row of a segment that is covered; NULL: it is not. */
static const struct checkpoint_segment *row_of(const struct recover_checkpoint *all,
                                               uint64_t segment)
{
    const struct segment_meta meta = store_meta(all->recover->common->store, segment);
    const struct checkpoint_segment key = {.allocation = meta.allocation};
    if (meta.state != SEGMENT_USED && meta.state != SEGMENT_COMMITTED)
        return NULL;
    return bsearch(&key, all->best.rows, all->best.row_count, sizeof key, compare_rows);
}

/* The places of the checkpoint, and behind them those that it does not cover. */
static int use(struct recover_checkpoint *all)
{
    struct recover *recover = all->recover;
    struct candidate *best = &all->best;
    const uint64_t own = best->last - best->first + 1;
    struct recover_place *places = calloc(own + recover->place_count, sizeof *places);
    recover->covered = calloc(store_segments(recover->common->store), sizeof *recover->covered);
    bool memory = places && recover->covered;
    for (uint32_t i = 0; i < recover->part_count && memory; i++) {
        struct recover_part *part = &recover->parts[i];
        part->restored = calloc(store_segments(recover->common->store), sizeof *part->restored);
        memory = part->restored;
    }
    if (!memory) {
        free(places);
        return ROWAN_ENOMEM;
    }
    qsort(best->rows, best->row_count, sizeof *best->rows, compare_rows);
    memcpy(places, all->places + best->first, own * sizeof *places);
    uint64_t count = own;
    for (uint64_t i = 0; i < recover->place_count; i++) {
        const struct recover_place *place = &recover->places[i];
        const struct checkpoint_segment *row = row_of(all, place->segment);
        if (row)
            recover->covered[place->segment] = *row;
        else
            places[count++] = *place;
    }
    recover->covered_count = own + recover->place_count - count;
    free(recover->places);
    recover->places = places;
    recover->place_count = count;
    recover->checkpoint_blocks = best->blocks;
    recover->common->checkpoint = best->id;
    recover->common->checkpoint_last =
        store_meta(recover->common->store, places[own - 1].segment).allocation;
    return 0;
}

/* Where a host has lost what was not fenced, a segment may have been used again that its word calls a checkpoint's. */
void recover_checkpoint_disown(struct store *store)
{
    for (uint64_t i = 0; i < store_segments(store); i++) {
        if (store_meta(store, i).owner == OWNER_CHECKPOINT)
            store_set_owner(store, i, OWNER_BACKUP_LOG);
    }
}

int recover_checkpoint_open(struct recover *recover)
{
    struct recover_checkpoint *all = calloc(1, sizeof *all);
    if (!all)
        return ROWAN_ENOMEM;
    const uint64_t segments = store_segments(recover->common->store);
    all->recover = recover;
    recover->checkpoint = all;
    all->now.rows = calloc(segments, sizeof *all->now.rows);
    all->best.rows = calloc(segments, sizeof *all->best.rows);
    if (!all->now.rows || !all->best.rows)
        return ROWAN_ENOMEM;
    return recover_places(recover->common->store, true, &all->places, &all->count);
}

void recover_checkpoint_close(struct recover *recover)
{
    struct recover_checkpoint *all = recover->checkpoint;
    if (!all)
        return;
    free(all->now.rows);
    free(all->best.rows);
    free(all->places);
    free(all);
    recover->checkpoint = NULL;
}

int recover_checkpoint_step(struct recover *recover)
{
    struct recover_checkpoint *all = recover->checkpoint;
    if (!recover->needs_all && all->next < all->count) {
        read_segment(all, all->next++);
        return 0;
    }
    const int error = all->best.ended ? use(all) : 0;
    if (!error && all->count > 0 && recover->place_count > 0 && !all->best.ended)
        log_event(LOG_INFO, "checkpoint_ignored", "segments=%lu: all data are scanned", all->count);
    recover_checkpoint_close(recover);
    return error ? error : 1;
}

/* --- applying it --- */

/* The items that lead to what is covered. Their entries were whole when their segments were committed. Only where there
 * are tombstones they are read. */
static uint32_t choose_items(struct recover_part *part, const struct checkpoint_value *value,
                             uint32_t from, uint32_t count, uint64_t *items)
{
    const struct recover *recover = part->recover;
    const struct live *live = store_live(recover->common->store);
    const uint64_t segments = store_segments(recover->common->store);
    uint32_t kept = 0;
    for (uint32_t i = from; i < from + count; i++) {
        uint64_t item;
        checkpoint_row(value, i, &item, sizeof item);
        const uint64_t offset = index_item_offset(item), segment = live_segment(live, offset);
        if (offset < live->start || segment >= segments ||
            recover->covered[segment].allocation == 0)
            continue;
        if (recover->covered[segment].tombstones > 0)
            live_indexed(live, offset, 0);
        else
            part->restored[segment]++;
        items[kept++] = item;
    }
    return kept;
}

static int restore_buckets(struct recover_part *part, const struct recover_shard *of,
                           const struct checkpoint_value *value)
{
    uint64_t items[CHECKPOINT_BUCKET_ITEMS];
    uint32_t at = 0;
    int error =
        value->first_bucket <= of->buckets && value->count <= of->buckets - value->first_bucket
            ? 0
            : ROWAN_EDAMAGED;
    for (uint32_t i = 0; i < value->count && !error; i++) {
        const uint32_t kept = choose_items(part, value, at, value->counts[i], items);
        error = index_restore_bucket(of->state->index, value->first_bucket + i, items, kept);
        part->counts.restored += kept;
        at += value->counts[i];
    }
    return error;
}

/* An item that has gone since the checkpoint began counts as of average length. */
int recover_checkpoint_settle(const struct recover *recover)
{
    const struct store *store = recover->common->store;
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < recover->part_count; i++)
        blocks += recover->parts[i].checkpoint_blocks;
    if (blocks != recover->checkpoint_blocks)
        return ROWAN_EDAMAGED; /* some were found whole, and then were not */
    for (uint64_t i = 0; recover->covered && i < store_segments(store); i++) {
        const struct checkpoint_segment *row = &recover->covered[i];
        uint64_t items = 0;
        for (uint32_t j = 0; j < recover->part_count; j++)
            items += recover->parts[j].restored[i];
        if (items > 0)
            live_restored(store_live(store), i, items,
                          row->items > 0 ? row->strides * items / row->items : items);
    }
    return 0;
}

static int restore_shard(struct recover_shard *of, const struct checkpoint_shard *row)
{
    struct shard_state *shard = of->state;
    of->buckets = row->buckets;
    (void)apply_commit(shard, row->commit);
    atomic_store_explicit(&shard->version, atomic_load(&shard->settled), memory_order_relaxed);
    return index_restore(shard->index, row->buckets);
}

/* R7 */
static int restore_records(struct recover_part *part, struct shard_state *shard,
                           const struct checkpoint_value *value)
{
    int error = 0;
    for (uint32_t i = 0; i < value->count && !error; i++) {
        struct checkpoint_record row;
        checkpoint_row(value, i, &row, sizeof row);
        const struct entry_header header = {.type = ENTRY_RECORD,
                                            .shard = shard->id,
                                            .version = row.version,
                                            .client_id = row.client,
                                            .operation = row.operation};
        if (!shard->primary && row.version > 0)
            completed_add(&shard->completed, row.client, row.operation, row.version);
        else if (!shard->primary)
            continue; /* a client's lowest number: it comes with commit versions */
        else if (row.version == 0)
            records_found_lowest(&shard->records, row.client, row.operation);
        else if (recover_clients_ask(&part->recover->clients, &header))
            error = records_add(&shard->records, row.client, row.operation, row.version);
        part->records_lost += error == ROWAN_EBUSY;
        if (error == ROWAN_EBUSY)
            error = 0;
    }
    return error;
}

int recover_checkpoint_apply(struct recover_part *part, struct recover_shard *of,
                             const struct recover_found *found)
{
    struct checkpoint_value value;
    const uint8_t *at = pm_at(part->recover->common->pm, found->offset);
    if (checkpoint_decode(&found->header, at + ENTRY_HEADER_BYTES, &value))
        return ROWAN_EDAMAGED; /* since it was found whole */
    if (value.kind == CHECKPOINT_SHARD)
        return restore_shard(of, &value.shard);
    if (value.kind == CHECKPOINT_BUCKETS)
        return restore_buckets(part, of, &value);
    if (value.kind == CHECKPOINT_RECORDS)
        return restore_records(part, of->state, &value);
    return 0;
}
