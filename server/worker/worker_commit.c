/* Commit versions: how far each shard of this worker is resolved, written into its t-log and sent to
 * the backups, many shards in one entry. They travel with a poll's other entries: the same post, the
 * same fence.
 *
 * Invariants:
 *  M1  What is spread is the end of the resolved prefix (W4): every version up to it has landed on
 *      every backup and in this log, and lies there in front of the entry that says so.
 *  M2  Nothing is written when nothing changed. A change is spread WORKER_COMMIT_NS after it was
 *      seen, with all that changed until then.
 *  M3  Commit versions never fail anything and never take the last space: with no room in the log
 *      they wait, and a peer that could not be told is told the figures of the day when it can be.
 *      Here they count meanwhile: what is on all replicas is so without an entry that says it, and the
 *      replica row keeps what is settled by it. Else nothing would be settled, committed, cleaned, and
 *      there would never be room. Backups hear by message that the epoch has begun (worker_settled.c).
 *  M4  Each segment of this log begins with a table of all clients that the worker knows, which says up to which versions
 *      it speaks: those that were handed out before (commit.h). So rows about clients in older segments are not needed.
 *      A table is durable before an older one goes. It is stored before the older segment becomes USED, in a poll that
 *      starts a fence at its end; who frees the older segment waits for that poll to be over (reclaim.h), and has
 *      fenced since. A start finds the old segments committed already: the newest of each worker is kept until the
 *      worker has opened one.
 */
#include "server/worker/worker_commit.h"

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/list.h"
#include "server/worker/worker_peer.h"

enum { COMMIT_ROWS = (COMMIT_VALUE_BYTES - COMMIT_HEAD_BYTES) / COMMIT_SHARD_BYTES };

_Static_assert(CLUSTER_MAX_MEMBERS <= 64, "a set of peers is one word");

void worker_commit_changed(struct worker *worker, struct shard_state *shard)
{
    if (shard->commit_listed)
        return;
    shard->commit_listed = true;
    LIST_APPEND(&worker->commits, shard, commit_link);
}

void worker_commit_forget(struct worker *worker, struct shard_state *shard)
{
    if (shard->commit_listed)
        LIST_REMOVE(&worker->commits, shard, commit_link);
    shard->commit_listed = shard->commit_again = false;
}

static uint64_t resolved(const struct shard_state *shard)
{
    uint64_t version = atomic_load_explicit(&shard->version, memory_order_relaxed);
    uint64_t start = version_make(shard->epoch, 0);
    return version > start ? version : start;
}

static bool is_news(const struct shard_state *shard)
{
    if (atomic_load_explicit(&shard->recovering, memory_order_relaxed))
        return false;
    return shard->commit_again ||
           resolved(shard) > atomic_load_explicit(&shard->commit, memory_order_relaxed);
}

/* --- one entry --- */

/* How many rows of a kind one entry holds, which is one block. */
static uint32_t rows_of_entry(const struct worker *worker, uint32_t row_bytes)
{
    uint32_t room = worker->common->format.block_limit - ENTRY_HEADER_BYTES;
    return ((room < COMMIT_VALUE_BYTES ? room : COMMIT_VALUE_BYTES) - COMMIT_HEAD_BYTES) /
           row_bytes;
}

/* Without space commit versions may take the segment that is kept for this worker's log, as else nothing is committed, and
 * nothing cleaned; but nothing else uses it up (M3). */
static bool is_kept(const struct worker *worker)
{
    return atomic_load_explicit(&worker->common->space, memory_order_relaxed) == SPACE_NONE;
}

/* Stores an entry with that value, which lies in worker->value. Errors: ROWAN_EFULL. */
static int store_entry(struct worker *worker, uint32_t value_bytes, uint64_t *offset,
                       uint32_t *bytes)
{
    const struct entry_format *format = &worker->common->format;
    const struct entry_header header = {.type = ENTRY_COMMIT_VERSIONS,
                                        .value_bytes = value_bytes,
                                        .blocks = 1,
                                        .client_id = worker->common->server,
                                        .operation = worker->number};
    *bytes = entry_bytes(format, 0, value_bytes);
    int error = worker_reserve(worker, *bytes, offset);
    if (error)
        return error;
    entry_encode_block(format, &header, NULL, worker->value, worker->staging);
    pm_store(worker->common->pm, *offset, worker->staging, *bytes);
    worker->stored = true;
    return 0;
}

/* To the peers of a set; who cannot take it is told later. */
static void send_entry(struct worker *worker, uint64_t peers, uint64_t offset, uint32_t bytes)
{
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct worker_peer *peer = &worker->peers[i];
        if (!(peers >> i & 1))
            continue;
        if (peer->connected && fabric_rowan_room(peer->conn) > 0)
            worker_peer_add(worker, peer, pm_at(worker->common->pm, offset), bytes);
        else
            peer->commit_behind = true;
    }
}

static void raise_commit(struct shard_state *shard, uint64_t version)
{
    atomic_store_explicit(&shard->commit, version, memory_order_relaxed);
    shard_settle(shard, version);
}

/* M3: no entry could be written. All that is listed counts, and stays to be spread. */
static void count_without_entry(struct worker *worker)
{
    for (struct shard_state *shard = worker->commits.first; shard;
         shard = shard->commit_link.next) {
        if (!is_news(shard))
            continue;
        raise_commit(shard, resolved(shard));
        shard->commit_again = true;
    }
}

/* The first shards of the list, as many as one entry holds. *any: an entry was written. Errors:
 * ROWAN_EFULL, and the list is as it was. */
static int spread_some(struct worker *worker, bool *any)
{
    struct commit_shard rows[COMMIT_ROWS];
    uint32_t count = 0, most = rows_of_entry(worker, COMMIT_SHARD_BYTES);
    uint64_t peers = 0;
    const struct shard_state *end = worker->commits.first;
    for (; end && count < most; end = end->commit_link.next) {
        if (!is_news(end))
            continue;
        rows[count++] = (struct commit_shard){end->id, resolved(end)};
        for (uint32_t i = 0; i < end->backup_count; i++)
            peers |= UINT64_C(1) << end->backups[i];
    }
    if (count) {
        uint64_t offset;
        uint32_t bytes;
        int error = store_entry(worker, commit_encode(rows, count, NULL, 0, worker->value), &offset,
                                &bytes);
        if (error)
            return error;
        send_entry(worker, peers, offset, bytes);
        for (uint32_t i = 0; i < count; i++)
            raise_commit(worker->shards[rows[i].shard], rows[i].version);
        *any = true;
    }
    while (worker->commits.first != end)
        worker_commit_forget(worker, worker->commits.first);
    return 0;
}

/* --- clients --- */

/* Writes the rows that have come together. One that finds no room is dropped: its client goes on to
 * higher numbers, or leaves, and what is kept longer for it does no harm. */
static void spread_acknowledged(struct worker *worker)
{
    struct acknowledged *acknowledged = &worker->acknowledged;
    uint64_t offset;
    uint32_t bytes, count = acknowledged->count;
    acknowledged->count = 0;
    if (count == 0 || is_kept(worker) ||
        store_entry(worker, commit_encode(NULL, 0, acknowledged->rows, count, worker->value),
                    &offset, &bytes))
        return;
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct worker_peer *peer = &worker->peers[i];
        if (peer->needed && peer->connected && fabric_rowan_room(peer->conn) > 0)
            worker_peer_add(worker, peer, pm_at(worker->common->pm, offset), bytes);
    }
}

static void visit_client(void *context, uint32_t client, uint32_t lowest)
{
    struct worker *worker = context;
    struct acknowledged *acknowledged = &worker->acknowledged;
    struct commit_client *told = &acknowledged->told[client % WORKER_ACKNOWLEDGED_TOLD];
    acknowledged->changed++;
    clients_raise(&worker->known, client, lowest);
    if (told->client == client && told->lowest >= lowest)
        return;
    *told = (struct commit_client){.client = client, .lowest = lowest};
    acknowledged->rows[acknowledged->count++] = *told;
    if (acknowledged->count == rows_of_entry(worker, COMMIT_CLIENT_BYTES))
        spread_acknowledged(worker);
}

void worker_commit_client_gone(struct worker *worker, uint32_t client, uint32_t lowest)
{
    visit_client(worker, client, lowest);
    worker->acknowledged.gone = true;
}

static uint64_t acknowledged_ns(const struct acknowledged *acknowledged)
{
    const uint64_t ns = WORKER_ACKNOWLEDGED_NS + acknowledged->changed * WORKER_ACKNOWLEDGED_ROW_NS;
    return ns < WORKER_ACKNOWLEDGED_MAX_NS ? ns : WORKER_ACKNOWLEDGED_MAX_NS;
}

/* Only requests change them, and the going of clients: else there is nothing to look for. */
static bool poll_acknowledged(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    struct acknowledged *acknowledged = &worker->acknowledged;
    if (acknowledged->spread_ns == 0 && worker->requests == acknowledged->requests &&
        !acknowledged->gone)
        return false;
    if (acknowledged->spread_ns == 0)
        acknowledged->spread_ns = now_ns + acknowledged_ns(acknowledged);
    if (now_ns < acknowledged->spread_ns) {
        wake_at(wake_ns, acknowledged->spread_ns);
        return false;
    }
    acknowledged->spread_ns = 0;
    acknowledged->requests = worker->requests;
    acknowledged->gone = false;
    acknowledged->changed = 0;
    struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));)
        records_changed(&shard->records, visit_client, worker);
    spread_acknowledged(worker);
    return true;
}

/* --- the table of clients (M4) --- */

/* A part has rows of one kind. */
struct table {
    struct worker *worker;
    struct commit_part part; /* the next */
    uint32_t count;          /* of its rows */
    union {
        struct commit_shard shards[COMMIT_ROWS];
        struct commit_client clients[COMMIT_CLIENT_ROWS];
    };
};

/* Adds the parts that so many rows take to *parts; returns their bytes. */
static uint32_t bytes_for(const struct worker *worker, uint32_t rows, uint32_t row_bytes,
                          uint32_t *parts)
{
    const struct entry_format *format = &worker->common->format;
    const uint32_t most = rows_of_entry(worker, row_bytes), rest = rows % most;
    *parts += (rows + most - 1) / most;
    return rows / most * entry_bytes(format, 0, COMMIT_HEAD_BYTES + most * row_bytes) +
           (rest ? entry_bytes(format, 0, COMMIT_HEAD_BYTES + rest * row_bytes) : 0);
}

static void store_part(struct table *table, bool of_shards)
{
    struct worker *worker = table->worker;
    uint8_t value[COMMIT_VALUE_BYTES];
    _Alignas(64) uint8_t block[COMMIT_VALUE_BYTES + 2 * ENTRY_ALIGN];
    const struct entry_header header = {
        .type = ENTRY_COMMIT_VERSIONS,
        .value_bytes = commit_encode(table->shards, of_shards ? table->count : 0, table->clients,
                                     of_shards ? 0 : table->count, value),
        .blocks = 1,
        .client_id = worker->common->server,
        .operation = worker->number};
    commit_make_part(value, table->part);
    const uint32_t bytes = entry_encode_block(&worker->common->format, &header, NULL, value, block);
    pm_store(worker->common->pm, log_take(&worker->log, bytes), block, bytes);
    table->part.part++;
    table->count = 0;
}

static void table_client(void *context, uint32_t client, uint32_t lowest)
{
    struct table *table = context;
    table->clients[table->count++] = (struct commit_client){.client = client, .lowest = lowest};
    if (table->count == rows_of_entry(table->worker, COMMIT_CLIENT_BYTES))
        store_part(table, false);
}

/* Up to which version the table speaks for the shard; 0: it does not. While the shard is reconciled more records may be
 * found, but none of what was settled when the server started: of that, all that is left was scanned. */
static uint64_t spoken_upto(const struct shard_state *shard)
{
    if (!atomic_load_explicit(&shard->recovering, memory_order_relaxed))
        return version_make(shard->epoch, shard->counter);
    const uint64_t settled = atomic_load_explicit(&shard->settled, memory_order_relaxed);
    return settled > version_make(shard->first_epoch, 0) ? settled : 0;
}

static void table_shards(struct table *table)
{
    const struct worker *worker = table->worker;
    const struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        const uint64_t upto = spoken_upto(shard);
        if (!upto)
            continue;
        table->shards[table->count++] = (struct commit_shard){shard->id, upto};
        if (table->count == rows_of_entry(worker, COMMIT_SHARD_BYTES))
            store_part(table, true);
    }
    if (table->count)
        store_part(table, true);
}

void worker_commit_table(void *context, uint32_t bytes)
{
    struct worker *worker = context;
    const uint32_t clients = worker->known.entries.count;
    uint32_t shards = 0, parts = 0;
    const struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));)
        shards += spoken_upto(shard) != 0;
    const uint32_t needed = bytes_for(worker, shards, COMMIT_SHARD_BYTES, &parts) +
                            bytes_for(worker, clients, COMMIT_CLIENT_BYTES, &parts);
    if (shards == 0 || worker->known.incomplete || needed > STORE_SEGMENT_BYTES / 3 ||
        needed > STORE_SEGMENT_BYTES - bytes)
        return;
    struct table table = {.worker = worker, .part = {.parts = (uint16_t)parts}};
    table_shards(&table);
    clients_each(&worker->known, table_client, &table);
    if (table.count)
        store_part(&table, false);
    ASSERT(table.part.part == parts && worker->log.tail == needed);
    worker->stored = true;
}

/* --- peers that were not told --- */

/* A peer that can be told again, after it could not: the figures of all shards that it backs, other
 * than new ones in their first epoch, of which there is nothing to tell. */
static void list_again(struct worker *worker, uint32_t position)
{
    struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        if (!backs(shard, position) ||
            atomic_load_explicit(&shard->commit, memory_order_relaxed) == version_make(1, 0))
            continue;
        shard->commit_again = true;
        worker_commit_changed(worker, shard);
    }
}

static void look_at_peers(struct worker *worker)
{
    uint32_t room = fabric_caps(worker->common->fabric)->max_batch_blocks / 4;
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        struct worker_peer *peer = &worker->peers[i];
        if (!peer->commit_behind || !peer->connected || fabric_rowan_room(peer->conn) <= room)
            continue;
        peer->commit_behind = false;
        list_again(worker, i);
    }
}

bool worker_commit_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    if (!worker->config)
        return false;
    bool any = poll_acknowledged(worker, now_ns, wake_ns);
    look_at_peers(worker);
    if (!worker->commits.first)
        return any;
    if (!worker->commit_ns)
        worker->commit_ns = now_ns + WORKER_COMMIT_NS;
    if (now_ns >= worker->commit_ns && !FAULT(LATE_ROLE)) {
        int error = 0;
        while (worker->commits.first && !error)
            error = spread_some(worker, &any);
        if (error)
            count_without_entry(worker);
        worker->commit_ns = error ? now_ns + WORKER_COMMIT_RETRY_NS : 0;
    }
    if (worker->commit_ns)
        wake_at(wake_ns, worker->commit_ns);
    return any;
}
