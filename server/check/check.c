/* Reads a server's PM from front to back: superblock, run records, configuration, meta table, replica table, void table, segments. Each copy is
 * looked at by the same functions as an open of the store uses. */
#include "server/check/check.h"

#include <stdlib.h>

#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/cluster/cluster.h"

static void find(struct check_report *report, enum check_kind kind, uint64_t number,
                 uint64_t offset, uint64_t bytes)
{
    report->found[kind]++;
    if (report->place_count < CHECK_MOST_PLACES)
        report->places[report->place_count++] = (struct check_place){
            .kind = kind, .number = number, .offset = report->offset + offset, .bytes = bytes};
}

/* --- the head --- */

static void check_head(const struct pm *pm, struct check_report *report)
{
    static const uint64_t heads[2] = {0, HEAD_SECOND_OFFSET};
    struct run_slot slot;
    for (unsigned copy = 0; copy < 2; copy++) {
        if (!superblock_is_whole(pm, copy, &report->superblock))
            find(report, CHECK_SUPERBLOCK, copy, heads[copy], SUPERBLOCK_BYTES);
        for (unsigned parity = 0; parity < 2; parity++) {
            if (run_read(pm, copy, parity, &slot) == RUN_DAMAGED)
                find(report, CHECK_RUN, parity, heads[copy] + RUN_OFFSET + parity * RUN_STRIDE,
                     RUN_BYTES);
        }
    }
    int error = store_read_run(pm, &report->run);
    report->has_run = error == 0;
    report->run_is_damaged = error == ROWAN_EDAMAGED;
}

/* A copy with the right checksum that is no configuration is damaged, too. */
static int check_config(const struct pm *pm, const struct store_geometry *at, unsigned copy,
                        struct check_report *report)
{
    struct check_config *found = &report->configs[copy];
    struct config_head head;
    struct cluster_config *config = NULL;
    int error = 0;
    found->state = config_read(pm, at->configs[copy], &head);
    if (found->state == CONFIG_COPY_WHOLE)
        error = cluster_decode(pm_at(pm, at->configs[copy] + CONFIG_HEAD_BYTES), head.byte_count,
                               &config);
    if (error == ROWAN_ENOMEM)
        return error;
    if (error)
        found->state =
            error == ROWAN_EINCOMPATIBLE ? CONFIG_COPY_OF_OTHER_VERSION : CONFIG_COPY_DAMAGED;
    if (found->state == CONFIG_COPY_DAMAGED)
        find(report, CHECK_CONFIG, copy, at->configs[copy], CONFIG_COPY_BYTES);
    if (config) {
        found->term = config->term;
        found->members = config->member_count;
        found->shards = config->shard_count;
    }
    cluster_release(config);
    return 0;
}

/* --- the replica table --- */

static void check_row(const struct pm *pm, const struct store_geometry *at, uint16_t shard,
                      struct check_report *report)
{
    struct row rows[2];
    enum row_copy copies[2];
    const int counts = rows_choose(pm, at, shard, rows, copies);
    struct replica_row row = {.state = REPLICA_DAMAGED};
    if (counts >= 0)
        row = row_decode(&rows[counts], copies[counts] == ROW_TORN);
    for (unsigned i = 0; i < 2; i++) {
        const bool lost = counts < 0 || row.torn;
        if (copies[i] >= ROW_TORN && (!lost || i == 0))
            find(report, lost ? CHECK_REPLICA : CHECK_ROW, shard,
                 at->replicas[i] + (uint64_t)shard * ROW_BYTES, ROW_BYTES);
    }
    if (row.state != REPLICA_NONE)
        report->rows[report->row_count++] = (struct check_row){.shard = shard, .row = row};
}

/* --- segments --- */

static void add_void(const struct pm *pm, const struct store_geometry *at,
                     const struct void_row *row, struct check_report *report)
{
    uint64_t words[2];
    struct segment_meta meta;
    if (row->segment < report->superblock.segments &&
        metas_choose(pm, at, row->segment, words, &meta) != METAS_DAMAGED &&
        void_is_of(row, row->segment, &meta))
        report->voids[report->void_count++] =
            (struct check_void){.segment = row->segment, .from = row->from, .bytes = row->bytes};
}

static void check_voids(const struct pm *pm, const struct store_geometry *at,
                        struct check_report *report)
{
    for (uint32_t i = 0; i < STORE_VOIDS; i++) {
        struct void_row rows[2];
        enum void_copy copies[2];
        for (unsigned k = 0; k < 2; k++) {
            copies[k] = void_read(pm, at->voids[k], i, &rows[k]);
            if (copies[k] == VOID_TORN)
                find(report, CHECK_VOID, i, at->voids[k] + (uint64_t)i * VOID_BYTES, VOID_BYTES);
            else if (copies[k] == VOID_WHOLE && (k == 0 || memcmp(&rows[0], &rows[1], VOID_BYTES)))
                add_void(pm, at, &rows[k], report);
        }
    }
}

static bool is_void(const struct check_report *report, uint64_t segment, uint32_t at)
{
    for (uint32_t i = 0; i < report->void_count; i++) {
        const struct check_void *range = &report->voids[i];
        if (range->segment == segment && at >= range->from && at - range->from < range->bytes)
            return true;
    }
    return false;
}

static void check_blocks(const struct pm *pm, uint64_t segment, uint64_t start, bool committed,
                         struct check_report *report)
{
    const struct entry_format format = {report->superblock.entry_seed,
                                        report->superblock.block_limit};
    uint32_t place = 0, place_bytes = 0;
    for (uint32_t at = 0, bytes; at <= STORE_SEGMENT_BYTES; at += bytes) {
        const uint8_t *block = pm_at(pm, start + at);
        struct entry_header header = {.type = 0};
        bytes = ENTRY_ALIGN;
        bool end = at == STORE_SEGMENT_BYTES;
        bool zero = !end && (is_void(report, segment, at) || bytes_are_zero(block, ENTRY_ALIGN));
        bool whole = !end && !zero &&
                     entry_decode(&format, block, STORE_SEGMENT_BYTES - at, &header, &bytes) == 0;
        if (!end && !zero && !whole) {
            place = place_bytes ? place : at;
            bytes = ENTRY_ALIGN;
            place_bytes = at + bytes - place;
            continue;
        }
        if (place_bytes)
            find(report, committed ? CHECK_BLOCK : CHECK_TORN, segment, start + place, place_bytes);
        place_bytes = 0;
        if (!whole)
            continue;
        report->blocks[header.type]++;
        report->entries += header.block == 0 && header.type != ENTRY_CHECKPOINT;
        report->block_bytes += bytes;
    }
}

static void check_segment(const struct pm *pm, const struct store_geometry *at, uint64_t segment,
                          struct check_report *report)
{
    const uint64_t start = at->segments + segment * STORE_SEGMENT_BYTES;
    struct segment_meta meta, copy;
    uint64_t words[2];
    enum meta_copies copies = metas_choose(pm, at, segment, words, &meta);
    if (copies != METAS_WHOLE) {
        unsigned damaged = meta_decode(segment, words[0], &copy);
        find(report, copies == METAS_DAMAGED ? CHECK_SEGMENT : CHECK_WORD, segment,
             at->metas[damaged] + segment * META_BYTES, META_BYTES);
    }
    if (copies == METAS_DAMAGED) /* as store_open takes it */
        meta = (struct segment_meta){.state = SEGMENT_USED, .owner = OWNER_UNKNOWN};
    report->states[meta.state]++;
    report->owners[meta.owner]++;
    if (meta.state == SEGMENT_FREE) {
        if (!bytes_are_zero(pm_at(pm, start), STORE_SEGMENT_BYTES))
            find(report, CHECK_STALE, segment, start, STORE_SEGMENT_BYTES);
    } else if (meta.state != SEGMENT_DIRTY) { /* whose bytes nobody needs */
        check_blocks(pm, segment, start, meta.state == SEGMENT_COMMITTED || meta.closed, report);
    }
}

/* --- all --- */

static bool format_is_sound(const struct superblock *block)
{
    return block->block_limit >= ENTRY_MIN_BLOCK_LIMIT &&
           block->block_limit <= ENTRY_MAX_BLOCK_LIMIT && block->block_limit % ENTRY_ALIGN == 0;
}

int check_pm(const struct pm *pm, struct check_report **out)
{
    struct check_report *report = calloc(1, sizeof(*report));
    if (!report)
        return ROWAN_ENOMEM;
    report->offset = pm->offset;
    int error = superblock_read(pm, &report->superblock);
    if (!error && !format_is_sound(&report->superblock))
        error = ROWAN_EFORMAT;
    if (error) {
        free(report);
        return error;
    }
    const struct store_geometry at = store_geometry(report->superblock.segments);
    check_head(pm, report);
    if (check_config(pm, &at, 0, report) || check_config(pm, &at, 1, report)) {
        free(report);
        return ROWAN_ENOMEM;
    }
    for (uint32_t shard = 0; shard < STORE_SHARD_IDS; shard++)
        check_row(pm, &at, (uint16_t)shard, report);
    check_voids(pm, &at, report);
    for (uint64_t i = 0; i < report->superblock.segments; i++)
        check_segment(pm, &at, i, report);
    *out = report;
    return 0;
}

uint64_t check_found(const struct check_report *report)
{
    uint64_t found = report->run_is_damaged;
    for (unsigned i = 0; i < CHECK_KINDS; i++)
        found += report->found[i];
    return found;
}
