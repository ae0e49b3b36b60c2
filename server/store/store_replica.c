/* The replica table: a row for each shard id, in two copies that lie far apart.
 * DRAM holds what was set last. PM follows in rounds, so setting a row costs one store to DRAM, and all rows that
 * were set meanwhile share the two fences of a round.
 *
 * Invariants:
 *  T1 A copy is written only while the other one is whole and durable. So a power loss tears one of them at most;
 *     of two whole ones the one with the higher sequence counts.
 *  T3 A round in which a replica begins, becomes full or ends is durable with every `durability`: configurations are, and a start
 *     that is named full there, and has a row that fills, or a damaged one, cannot begin.
 *  T2 After a round both copies of its rows are equal and durable: the loss of either loses nothing.
 *
 * Crash-safe steps of a round. A row is not stored at once: its words land in any order.
 *   1. Store the first copy of each row, with the next sequence. Its checksum COMMITS, by the fence of 2.
 *   2. Fence. After a crash before that, the second copy, whole and older, may count.
 *   3. Store the same bytes as the second copy.
 *   4. Fence. After a crash before that, the first copy counts.
 *  An open finds what a crash left unequal: then the copy that does not count is the first one of the next round.
 *  It starts a fence before that (T1): what it takes for whole may be stores of a process that ended unfenced.
 *
 * A fence orders only with durability `fence`. With another one a host's crash may tear both copies. Then each still
 * has its first part, which did not change: the replica is there, and of what is settled nobody knows (`torn`). No
 * harm: all data of that run are possibly incomplete, and a start asks for all of them.
 *
 *      NONE --a row was set--> FIRST --fenced--> SECOND --fenced--> NONE      (store_replica_sync)
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/crc.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "server/store/store_state.h"

#define FIRST_EPOCH_MAX ((UINT32_C(1) << 24) - 1)

enum round_phase { ROUND_NONE, ROUND_FIRST, ROUND_SECOND };

struct replica {
    struct replica_row row;
    uint64_t sequence; /* of the last copy written or found */
    uint8_t first;     /* which copy a round writes first */
    bool changed;      /* is in `changed` */
};

struct store_replicas {
    enum round_phase phase;
    struct pm_ticket ticket;
    bool synced; /* T3: of this round, which the ticket is a sync's */
    uint32_t changed_count, round_count;
    uint16_t changed[STORE_SHARD_IDS]; /* to be written in the next round */
    uint16_t round[STORE_SHARD_IDS];   /* being written */
    struct replica rows[STORE_SHARD_IDS];
};

/* --- one copy --- */

/* Of the first `bytes` of the row. */
static uint32_t row_checksum(uint16_t shard, const struct row *row, size_t bytes)
{
    return crc32c(crc32c(0, &shard, sizeof(shard)), row, bytes);
}

enum row_copy row_read(const struct pm *pm, uint64_t table, uint16_t shard, struct row *row)
{
    memcpy(row, pm_at(pm, table + (uint64_t)shard * ROW_BYTES), sizeof(*row));
    if (bytes_are_zero(row, sizeof(*row))) /* nearly all are, and a start reads all */
        return ROW_UNUSED;
    if (row->state > REPLICA_FULL || row->first_epoch > FIRST_EPOCH_MAX ||
        row->checksum != row_checksum(shard, row, offsetof(struct row, checksum)))
        return ROW_DAMAGED;
    return row->sequence > 0 && row->settled_checksum ==
                                    row_checksum(shard, row, offsetof(struct row, settled_checksum))
               ? ROW_WHOLE
               : ROW_TORN;
}

int rows_choose(const struct pm *pm, const struct store_geometry *at, uint16_t shard,
                struct row rows[2], enum row_copy copies[2])
{
    for (unsigned i = 0; i < 2; i++)
        copies[i] = row_read(pm, at->replicas[i], shard, &rows[i]);
    if (copies[0] == ROW_DAMAGED && copies[1] == ROW_DAMAGED)
        return -1;
    if (copies[0] > ROW_WHOLE || copies[1] > ROW_WHOLE)
        return copies[1] < copies[0]; /* the one that is less damaged */
    return rows[1].sequence > rows[0].sequence;
}

struct replica_row row_decode(const struct row *row, bool torn)
{
    return (struct replica_row){.state = (enum replica_state)row->state,
                                .first_epoch = row->first_epoch,
                                .first_allocation = row->first_allocation,
                                .settled = torn ? 0 : row->settled,
                                .torn = torn};
}

/* --- the table --- */

static void set_changed(struct store_replicas *table, uint16_t shard)
{
    if (table->rows[shard].changed)
        return;
    table->rows[shard].changed = true;
    table->changed[table->changed_count++] = shard;
}

/* One row at the open: damaged copies are added to *damaged. */
static void open_row(struct store *store, uint16_t shard, uint64_t *damaged)
{
    struct store_replicas *table = store->replicas;
    struct row rows[2];
    enum row_copy copies[2];
    const int counts = rows_choose(store->pm, &store->at, shard, rows, copies);
    if (copies[0] == ROW_UNUSED && copies[1] == ROW_UNUSED)
        return; /* its part of `table` stays untouched, and takes no memory */
    struct replica *replica = &table->rows[shard];
    for (unsigned i = 0; i < 2; i++)
        *damaged += copies[i] >= ROW_TORN;
    if (counts < 0) {
        replica->row.state = REPLICA_DAMAGED;
        return;
    }
    const bool torn = copies[counts] == ROW_TORN;
    replica->row = row_decode(&rows[counts], torn);
    replica->sequence = torn ? 0 : rows[counts].sequence; /* both copies get the next one */
    replica->first = counts == 0;
    if (torn || memcmp(&rows[0], &rows[1], sizeof(rows[0])) != 0)
        set_changed(table, shard);
}

int store_replicas_open(struct store *store)
{
    store->replicas = calloc(1, sizeof(*store->replicas));
    if (!store->replicas)
        return ROWAN_ENOMEM;
    uint64_t damaged = 0;
    for (uint32_t shard = 0; shard < STORE_SHARD_IDS; shard++)
        open_row(store, (uint16_t)shard, &damaged);
    if (damaged)
        log_event(LOG_WARN, "replica_rows_damaged", "copies=%lu", damaged);
    store->replicas->phase = ROUND_SECOND; /* T1: as at the end of a round of no rows */
    store->replicas->ticket = pm_fence_start(store->pm);
    return 0;
}

void store_replica_set(struct store *store, uint16_t shard, const struct replica_row *row)
{
    ASSERT(row->state <= REPLICA_FULL && row->first_epoch <= FIRST_EPOCH_MAX);
    store->replicas->rows[shard].row = *row;
    set_changed(store->replicas, shard);
}

struct replica_row store_replica(const struct store *store, uint16_t shard)
{
    return store->replicas->rows[shard].row;
}

/* --- rounds --- */

static uint64_t copy_offset(const struct store *store, unsigned copy, uint16_t shard)
{
    return store->at.replicas[copy] + (uint64_t)shard * ROW_BYTES;
}

/* True: T3. */
static bool store_first(struct store *store, uint16_t shard)
{
    struct replica *replica = &store->replicas->rows[shard];
    struct row row = {.state = (uint32_t)replica->row.state,
                      .first_epoch = replica->row.first_epoch,
                      .sequence = ++replica->sequence,
                      .first_allocation = replica->row.first_allocation,
                      .settled = replica->row.settled};
    row.checksum = row_checksum(shard, &row, offsetof(struct row, checksum));
    row.settled_checksum = row_checksum(shard, &row, offsetof(struct row, settled_checksum));
    pm_store(store->pm, copy_offset(store, replica->first, shard), &row, sizeof(row));
    struct row former;
    memcpy(&former, pm_at(store->pm, copy_offset(store, !replica->first, shard)), sizeof(former));
    return former.state != row.state || former.first_epoch != row.first_epoch ||
           former.first_allocation != row.first_allocation;
}

static void store_second(struct store *store, uint16_t shard)
{
    unsigned first = store->replicas->rows[shard].first;
    struct row row; /* the first copy's, whatever was set since */
    memcpy(&row, pm_at(store->pm, copy_offset(store, first, shard)), sizeof(row));
    pm_store(store->pm, copy_offset(store, !first, shard), &row, sizeof(row));
}

static void round_begin(struct store *store)
{
    struct store_replicas *table = store->replicas;
    table->round_count = table->changed_count;
    table->changed_count = 0;
    table->synced = false;
    for (uint32_t i = 0; i < table->round_count; i++) {
        uint16_t shard = table->round[i] = table->changed[i];
        table->rows[shard].changed = false;
        table->synced |= store_first(store, shard);
    }
}

int store_replica_sync(struct store *store)
{
    struct store_replicas *table = store->replicas;
    for (;;) {
        int done = table->phase == ROUND_NONE ? 1
                   : table->synced            ? pm_sync_done(store->pm, table->ticket)
                                              : pm_fence_done(store->pm, table->ticket);
        if (done != 1)
            return done;
        if (table->phase == ROUND_FIRST) {
            for (uint32_t i = 0; i < table->round_count; i++)
                store_second(store, table->round[i]);
            table->phase = ROUND_SECOND;
        } else if (table->changed_count > 0) {
            round_begin(store);
            table->phase = ROUND_FIRST;
        } else {
            table->phase = ROUND_NONE;
            return 1;
        }
        table->ticket = table->synced ? pm_sync_start(store->pm) : pm_fence_start(store->pm);
    }
}
