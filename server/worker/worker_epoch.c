/* The epochs of the shards that this worker leads (design, section 6, Failover).
 *
 * Invariants:
 *  Z1  Versions of an epoch are handed out once its configuration is committed, not before.
 *  Z2  A write in flight waits for those it was sent to that every configuration adopted since still names. It was sent to
 *      all replicas of its epoch, so each replica that stays has it when the epoch ends.
 *  Z3  An epoch ends when none of its writes is in flight: then its last version is the resolved prefix, and all of it is on
 *      every replica that stays. What a replica lacks all the same, by damage, log reconciliation finds (worker_reconcile.c):
 *      it comes before each epoch but the first, whoever led the one before.
 *  Z4  Nothing of the shard is settled as long as something that landed in the backup log before this server was promoted
 *      lies in a segment that a digest role has not left. The control role closes that segment at the promotion: it may be
 *      that nobody sends this server anything any more. On verbs it cannot: there nothing of the shard is settled, and
 *      nothing of its worker cleaned, until others have filled that segment.
 *
 *  serving e --(adopted)--> serving e, e' pending --(committed)--> ending --(nothing in flight)--> reconciling --> serving e'
 */
#include "server/worker/worker_epoch.h"

#include <string.h>

#include "common/base/error.h"
#include "server/worker/worker_commit.h"
#include "server/worker/worker_peer.h"
#include "server/worker/worker_reconcile.h"

static struct shard_state *shard_at(const struct worker *worker, uint32_t position)
{
    return worker->shards[worker->config->shards[position].id];
}

/* Z2 */
static void leave_out(const struct worker *worker, struct shard_state *shard,
                      const struct shard *row)
{
    uint32_t kept = 0, full = 0;
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        const struct worker_peer *peer = &worker->peers[shard->backups[i]];
        const struct member *member = cluster_member(worker->config, peer->server);
        if (!member || member->incarnation != peer->incarnation ||
            !(shard_has_backup(row, peer->server) || shard_has_filling(row, peer->server)))
            continue;
        full += i < shard->full_count;
        shard->told[kept] = shard->told[i];
        shard->backups[kept++] = shard->backups[i];
    }
    shard->full_count = full;
    shard->backup_count = kept;
}

void worker_epoch_adopt(struct worker *worker, const struct cluster_config *before)
{
    for (uint32_t i = 0; before && i < worker->config->shard_count; i++) {
        const struct shard *row = &worker->config->shards[i];
        struct shard_state *shard = shard_at(worker, i);
        if (!shard || shard->epoch == row->epoch)
            continue;
        worker->changing += shard->next_epoch == 0;
        shard->next_epoch = row->epoch;
        shard->ending = false;
        leave_out(worker, shard, row);
        worker_reconcile_abort(worker, shard);
    }
    worker_peer_configure(worker);
    for (uint32_t i = 0; i < worker->config->shard_count; i++) {
        const struct shard_state *shard = shard_at(worker, i);
        if (shard && shard->next_epoch)
            worker_peer_need(worker, &worker->config->shards[i]);
    }
}

void worker_epoch_own(struct worker *worker, struct shard_state *shard)
{
    const struct shard *row = cluster_shard(worker->config, shard->id);
    atomic_store_explicit(&shard->recovering, true, memory_order_relaxed);
    shard->next_epoch = row->epoch;
    shard->ending = false;
    worker_peer_need(worker, row);
    worker->changing++;
    worker->landed += shard->landed_in != 0;
}

void worker_epoch_committed(struct worker *worker, uint64_t term)
{
    if (term != worker->config->term)
        return;
    for (uint32_t i = 0; i < worker->config->shard_count; i++) {
        struct shard_state *shard = shard_at(worker, i);
        if (!shard || !shard->next_epoch)
            continue;
        shard->ending = true;
        /* No write is admitted any more, and none that waits is begun. */
        atomic_store_explicit(&shard->recovering, true, memory_order_relaxed);
    }
}

/* Z3. What was served is on all replicas; what was not keeps its uncommitted suffix. */
static void end_epoch(struct shard_state *shard)
{
    if (shard->begun) {
        const uint64_t last = atomic_load_explicit(&shard->version, memory_order_relaxed);
        if (last > atomic_load_explicit(&shard->commit, memory_order_relaxed))
            atomic_store_explicit(&shard->commit, last, memory_order_relaxed);
        suffix_clear(&shard->suffix);
        suffix_drop(&shard->suffix, last);
        prefix_init(&shard->prefix, last);
        shard->followed = true;
    }
    suffix_sort(&shard->suffix);
    memset(shard->told, 0, sizeof shard->told);
}

static void begin_epoch(struct worker *worker, struct shard_state *shard)
{
    if (shard->epoch != shard->next_epoch) {
        end_epoch(shard);
        shard->epoch = shard->next_epoch;
        shard->counter = 0;
    }
    shard->next_epoch = 0;
    shard->ending = shard->begun = false;
    worker->changing--;
    worker_peer_resolve(worker, shard);
    if (shard->epoch == 1) {
        shard->begun = true;
        atomic_store_explicit(&shard->recovering, false, memory_order_relaxed);
        return;
    }
    const int error = worker_reconcile_begin(worker, shard);
    if (error)
        server_fail(worker->common, error, "no memory to reconcile the logs of a shard");
}

/* Every version that was handed out lies in the t-log's segments up to the one that is closed now. */
void worker_epoch_close(const struct worker *worker)
{
    for (uint32_t i = 0; i < worker->config->shard_count; i++) {
        struct shard_state *shard = shard_at(worker, i);
        if (!shard)
            continue;
        shard_close(shard, version_make(shard->epoch, shard->counter));
        if (!atomic_load_explicit(&shard->recovering, memory_order_relaxed))
            shard_settle(shard, atomic_load_explicit(&shard->commit, memory_order_relaxed));
    }
}

/* Z4 */
static bool close_landed(struct worker *worker)
{
    const uint64_t left = atomic_load_explicit(&worker->common->left, memory_order_acquire);
    bool any = false;
    for (uint32_t i = 0; i < worker->config->shard_count; i++) {
        struct shard_state *shard = shard_at(worker, i);
        if (!shard || shard->landed_in == 0 || shard->landed_in > left ||
            atomic_load_explicit(&shard->recovering, memory_order_relaxed))
            continue; /* what reconciliation takes in is closed, too */
        shard->landed_in = 0;
        worker->landed--;
        any = true;
    }
    if (!any)
        return false;
    /* Where there is no segment, the next one that is full does it. */
    if (worker->log.open)
        (void)log_reserve_segment(&worker->log, ENTRY_ALIGN);
    else
        worker_epoch_close(worker);
    return true;
}

bool worker_epoch_poll(struct worker *worker)
{
    bool any = worker->landed && close_landed(worker);
    for (uint32_t i = 0; worker->changing && i < worker->config->shard_count; i++) {
        struct shard_state *shard = shard_at(worker, i);
        if (!shard || !shard->ending || shard->first_in_flight)
            continue;
        begin_epoch(worker, shard);
        any = true;
    }
    return any;
}
