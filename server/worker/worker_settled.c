/* Gathers from the backups what they have settled, and spreads the lowest (worker_settled.h).
 *
 * Invariants:
 *  X1  `told` of a backup is a settled version of this epoch that is in that backup's durable replica row.
 *  X2  `everywhere` is at most `told` of each backup, filling ones too, and what is durable in this server's own row. It
 *      only rises.
 *  X3  It does not rise while a replica fills: what is on its way there may be an older version of a key, whose tombstone
 *      would be gone when it comes (C5: nothing asked for is outstanding). What was settled everywhere before is newest in
 *      the index, or gone, when copying begins.
 *
 * A backup that waits for commit versions says which it knows: it is told those of the day, as after a broken connection.
 * What it missed, nothing else would tell it when nobody writes any more. And it is told here that its epoch has begun: all
 * of earlier epochs was brought to it by message, so it may hear that before it has space for anything to land in.
 */
#include "server/worker/worker_settled.h"

#include "server/worker/worker_commit.h"

enum { SETTLED_ROWS = 128 }; /* of a message */

static void take_row(struct worker *worker, uint32_t position, const Rowan__ShardSettled *row)
{
    struct shard_state *shard = row->shard < STORE_SHARD_IDS ? worker->shards[row->shard] : NULL;
    for (uint32_t i = 0; shard && i < shard->backup_count; i++) {
        if (shard->backups[i] != position || row->epoch != shard->epoch)
            continue;
        if (version_epoch(row->settled) == shard->epoch && row->settled > shard->told[i])
            shard->told[i] = row->settled; /* X1 */
        if (row->commit &&
            row->commit < atomic_load_explicit(&shard->commit, memory_order_relaxed)) {
            shard->commit_again = true;
            worker_commit_changed(worker, shard);
            worker->peers[position].settled_next = 0;
            worker->peers[position].settled_asked = worker->settled_owed = true;
        }
    }
}

void worker_settled_told(struct worker *worker, const struct worker_peer *peer,
                         const Rowan__SettledIs *told)
{
    for (size_t i = 0; i < told->n_shards; i++)
        take_row(worker, (uint32_t)(peer - worker->peers), told->shards[i]);
    worker->settled_news = true;
}

/* X2. 0: some replica has not told. */
static uint64_t lowest(const struct shard_state *shard)
{
    uint64_t lowest = atomic_load_explicit(&shard->dur_settled, memory_order_acquire);
    if (atomic_load_explicit(&shard->recovering, memory_order_relaxed))
        return 0; /* X2: one that was just promoted does not know its backups yet */
    for (uint32_t i = shard->full_count; i < shard->backup_count; i++) {
        if (!(shard->filled >> i & 1)) /* X3 */
            return 0;
    }
    for (uint32_t i = 0; i < shard->backup_count; i++)
        lowest = shard->told[i] < lowest ? shard->told[i] : lowest;
    return version_epoch(lowest) == shard->epoch ? lowest : 0;
}

static void find_lowest(struct worker *worker)
{
    bool risen = false;
    struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        const uint64_t found = lowest(shard);
        if (found <= atomic_load_explicit(&shard->everywhere, memory_order_relaxed))
            continue;
        atomic_store_explicit(&shard->everywhere, found, memory_order_release);
        risen = true;
    }
    for (uint32_t i = 0; i < worker->peer_count && risen; i++)
        worker->peers[i].settled_next = 0;
    worker->settled_owed |= risen;
}

/* (epoch, 0), once that is committed; else 0. */
static uint64_t begun(const struct shard_state *shard)
{
    const uint64_t version = version_make(shard->epoch, 0);
    return atomic_load_explicit(&shard->commit, memory_order_relaxed) >= version ? version : 0;
}

/* The next shards. Errors: those of control_message_send. */
static int tell(struct worker *worker, struct worker_peer *peer)
{
    Rowan__SettledIs body = ROWAN__SETTLED_IS__INIT;
    Rowan__ShardSettled rows[SETTLED_ROWS], *pointers[SETTLED_ROWS];
    uint32_t next = peer->settled_next;
    for (; next < worker->config->shard_count && body.n_shards < SETTLED_ROWS; next++) {
        const struct shard_state *shard = worker->shards[worker->config->shards[next].id];
        const uint64_t everywhere =
            shard ? atomic_load_explicit(&shard->everywhere, memory_order_relaxed) : 0;
        if (!shard || !(everywhere || (peer->settled_asked && begun(shard))) ||
            !backs(shard, (uint32_t)(peer - worker->peers)))
            continue;
        Rowan__ShardSettled *row = pointers[body.n_shards] = &rows[body.n_shards];
        rowan__shard_settled__init(row);
        row->shard = shard->id;
        row->epoch = shard->epoch;
        row->settled = everywhere;
        row->commit = begun(shard);
        body.n_shards++;
    }
    body.shards = pointers;
    const int error =
        body.n_shards
            ? control_message_send(peer->conn, 0, &CONTROL_MESSAGE(SETTLED_IS, settled_is, &body))
            : 0;
    if (!error) {
        peer->settled_next = next;
        peer->settled_asked &= next < worker->config->shard_count;
    }
    return error;
}

bool worker_settled_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    bool any = false, owed = false;
    if (!worker->config)
        return false;
    if (worker->settled_news && now_ns >= worker->settled_ns) {
        worker->settled_news = false;
        worker->settled_ns = now_ns + WORKER_SETTLED_NS;
        find_lowest(worker);
    }
    if (worker->settled_news)
        wake_at(wake_ns, worker->settled_ns);
    for (uint32_t i = 0; i < worker->peer_count && worker->settled_owed; i++) {
        struct worker_peer *peer = &worker->peers[i];
        if (!peer->connected || peer->settled_next >= worker->config->shard_count)
            continue;
        any |= tell(worker, peer) == 0;
        owed |= peer->settled_next < worker->config->shard_count;
    }
    worker->settled_owed = owed;
    if (owed)
        wake_at(wake_ns, now_ns + WORKER_SETTLED_RETRY_NS);
    return any;
}
