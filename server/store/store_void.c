/* The void table: bytes of segments that do not count, whatever is or will be stored there by a process that nobody
 * can stop (fabric.h, F12). Once it cannot store there any more they are zeroed.
 *
 * Crash-safe steps. The two copies of a row are stored with no fence between; either one that is whole counts. A row
 * names the segment's allocation, so that it says nothing about a later use of the segment.
 *
 *  A range is noted
 *   1. Store both copies. A right checksum COMMITS, by the next fence: who promises it waits for that.
 *  A range is dropped (nobody can store there any more)
 *   1. The caller zeroes it, and fences.
 *   2. Store zeros over both copies. Lost in a crash, the next open zeroes once more what is zero.
 *  Open (nobody else can store into the map: pm_open)
 *   1. Zero the range of each whole row, if its segment is still that allocation's.
 *   2. Fence.
 *   3. Store zeros over all rows: before the next range is noted. Till then they keep their places, and after a
 *      crash it begins again.
 */
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/crc.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "server/store/store_state.h"

struct store_voids {
    uint32_t found_count; /* rows that the open found */
    struct pm_ticket ticket;
    struct {
        enum { ROW_FREE, ROW_FOUND, ROW_NOTED } state;
        uint64_t segment; /* NOTED */
    } rows[STORE_VOIDS];
};

static uint32_t checksum_of(const struct void_row *row)
{
    return crc32c(0, row, offsetof(struct void_row, checksum));
}

enum void_copy void_read(const struct pm *pm, uint64_t table, uint32_t number, struct void_row *row)
{
    memcpy(row, pm_at(pm, table + number * VOID_BYTES), sizeof *row);
    if (bytes_are_zero(row, sizeof *row))
        return VOID_UNUSED;
    const bool whole = row->checksum == checksum_of(row) && row->from < STORE_SEGMENT_BYTES &&
                       row->bytes <= STORE_SEGMENT_BYTES - row->from;
    return whole ? VOID_WHOLE : VOID_TORN;
}

bool void_is_of(const struct void_row *row, uint64_t segment, const struct segment_meta *meta)
{
    return row->segment == segment && row->allocation == meta->allocation &&
           meta->state >= SEGMENT_USING;
}

static void write_row(struct store *store, uint32_t number, const struct void_row *row)
{
    for (unsigned i = 0; i < 2; i++)
        pm_store(store->pm, store->at.voids[i] + number * VOID_BYTES, row, sizeof *row);
}

static void clear_row(struct store *store, uint32_t number)
{
    write_row(store, number, &(struct void_row){.segment = 0});
    store->voids->rows[number].state = ROW_FREE;
}

/* Zeroes its range, if it counts. */
static bool end_row(struct store *store, const struct void_row *row)
{
    if (row->segment >= store->segments)
        return false;
    const struct segment_meta meta = store_meta(store, row->segment);
    if (!void_is_of(row, row->segment, &meta))
        return false;
    pm_zero(store->pm, store_segment_offset(store, row->segment) + row->from, row->bytes);
    return true;
}

int store_voids_open(struct store *store)
{
    uint32_t ended = 0;
    struct store_voids *voids = calloc(1, sizeof *voids);
    if (!voids)
        return ROWAN_ENOMEM;
    for (uint32_t i = 0; i < STORE_VOIDS; i++) {
        for (unsigned copy = 0; copy < 2; copy++) {
            struct void_row row;
            const enum void_copy is = void_read(store->pm, store->at.voids[copy], i, &row);
            if (is != VOID_UNUSED)
                voids->rows[i].state = ROW_FOUND;
            ended += is == VOID_WHOLE && end_row(store, &row);
        }
        voids->found_count += voids->rows[i].state == ROW_FOUND;
    }
    if (voids->found_count > 0) {
        log_event(LOG_INFO, "void_ranges_zeroed", "rows=%u copies=%u", voids->found_count, ended);
        voids->ticket = pm_fence_start(store->pm);
    }
    store->voids = voids;
    return 0;
}

/* Step 3 of the open. */
static void clear_found(struct store *store)
{
    struct store_voids *voids = store->voids;
    if (voids->found_count == 0 || pm_fence_done(store->pm, voids->ticket) != 1)
        return;
    for (uint32_t i = 0; i < STORE_VOIDS; i++) {
        if (voids->rows[i].state == ROW_FOUND)
            clear_row(store, i);
    }
    voids->found_count = 0;
}

int store_void_add(struct store *store, uint64_t segment, uint32_t from, uint32_t bytes)
{
    ASSERT(bytes > 0 && from < STORE_SEGMENT_BYTES && bytes <= STORE_SEGMENT_BYTES - from);
    uint32_t number = 0;
    clear_found(store);
    while (number < STORE_VOIDS && store->voids->rows[number].state != ROW_FREE)
        number++;
    if (number == STORE_VOIDS)
        return ROWAN_ETOOMANY;
    struct void_row row = {.segment = segment,
                           .allocation = store_meta(store, segment).allocation,
                           .from = from,
                           .bytes = bytes};
    row.checksum = checksum_of(&row);
    write_row(store, number, &row);
    store->voids->rows[number].state = ROW_NOTED;
    store->voids->rows[number].segment = segment;
    return 0;
}

void store_void_drop(struct store *store, uint64_t segment)
{
    for (uint32_t i = 0; i < STORE_VOIDS; i++) {
        if (store->voids->rows[i].state == ROW_NOTED && store->voids->rows[i].segment == segment)
            clear_row(store, i);
    }
}
