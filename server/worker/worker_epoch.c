/* The epochs of the shards that this worker leads (design, section 6, Failover).
 *
 * Invariants:
 *  Z1  Versions of an epoch are handed out once its configuration is committed, not before.
 *  Z2  A write in flight waits for those it was sent to that every configuration adopted since still names. It was sent to
 *      all replicas of its epoch, but for those that one adopted before leaves out, so each replica that stays has it when
 *      the epoch ends.
 *  Z3  An epoch ends when none of its writes is in flight: then its last version is the resolved prefix, and all of it is on
 *      every replica that stays. What a replica lacks all the same, by damage, log reconciliation finds (worker_reconcile.c):
 *      it comes before each epoch but the first, whoever led the one before.
 *  Z4  Nothing of the shard is settled as long as something that landed in the backup log before this server was promoted
 *      lies in a segment that a digest role has not left. The control role closes that segment at the promotion: it may be
 *      that nobody sends this server anything any more. With a queue of multi-packet receives (verbs) it cannot: there nothing
 *      of the shard is settled, and nothing of its worker cleaned, until others have filled that segment.
 *  Z6  A shard that another server, or another worker, is to lead is not served any more from the configuration's coming on.
 *      It is given back, and the configuration answered, when nothing of it that this worker sent can land any more: each
 *      write in flight has landed at all replicas that stay, and is answered; or a newer connection to a replica has ended
 *      the one that it was sent over, which is closed if it takes longer than a lease; or the replica is kept only. Then its
 *      outcome is in doubt: its client's connection ends, and it is in the uncommitted suffix.
 *  Z7  What is given back is a full backup's: all of its log is durable and lies in closed segments (digest_release.c); the
 *      index, the contiguous prefix and the suffix have every version that was handed out, and so do the completion records.
 *  Z8  When all shards whose epochs began together are reconciled, the log is closed once: what is in an open segment is not
 *      settled, and if nobody writes any more nothing else closes it. Backups wait for it to let tombstones go.
 *  Z9  A child of a shard that is split begins its epoch when its parent has begun the one in which nobody writes it: all that the
 *      parent has is reconciled then, and its completion records are the child's as well.
 *
 *  serving e --(adopted)--> serving e, e' pending --(committed)--> ending --(nothing in flight)--> reconciling --> serving e'
 *  any --(another is to lead it)--> deposed --(nothing can land any more)--> given back
 */
#include "server/worker/worker_epoch.h"

#include <string.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/shard/apply.h"
#include "server/shard/split.h"
#include "server/worker/worker_client.h"
#include "server/worker/worker_commit.h"
#include "server/worker/worker_fetch.h"
#include "server/worker/worker_fill.h"
#include "server/worker/worker_peer.h"
#include "server/worker/worker_reconcile.h"
#include "server/worker/worker_write.h"

/* Z2 */
static void leave_out(const struct worker *worker, struct shard_state *shard,
                      const struct shard *row)
{
    uint32_t kept = 0, full = 0, filled = 0;
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        const struct worker_peer *peer = &worker->peers[shard->backups[i]];
        const struct member *member = cluster_member(worker->config, peer->server);
        if (!member || member->incarnation != peer->incarnation || !shard_names(row, peer->server))
            continue;
        full += i < shard->full_count;
        filled |= (shard->filled >> i & 1) << kept;
        shard->told[kept] = shard->told[i];
        shard->backups[kept++] = shard->backups[i];
    }
    shard->full_count = full;
    shard->filled = filled;
    shard->backup_count = kept;
}

/* Z6. Once deposed, it is given back, whatever newer configurations say. */
static void depose(struct worker *worker, struct shard_state *shard)
{
    atomic_store_explicit(&shard->recovering, true, memory_order_relaxed);
    shard->deposed = true;
    shard->cut = 0;
    shard->stored = worker_reconcile_stored(worker);
    worker->deposed++;
    worker->cut_ns = 0;
}

/* How far each peer was told goes by positions of shards, which are others now. */
static void tell_settled_again(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->peer_count; i++)
        worker->peers[i].settled_next = 0;
    worker->settled_owed = true;
}

static void cut(struct worker *worker, struct worker_peer *peer, uint64_t now_ns)
{
    worker_peer_cut(worker, peer, now_ns);
    worker_reconcile_peer_down(worker, peer);
    worker_fill_peer_down(worker, peer);
}

/* Whoever had to prove nothing when the connection was made, and did not, has to now. */
static void cut_unproved(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->peer_count; i++) {
        if (worker->peers[i].connected && worker->peers[i].conn->unproved)
            cut(worker, &worker->peers[i], 0);
    }
}

void worker_epoch_adopt(struct worker *worker, const struct cluster_config *before)
{
    for (uint32_t i = 0; before && i < worker->config->shard_count; i++) {
        const struct shard *row = &worker->config->shards[i];
        struct shard_state *shard = worker->shards[row->id];
        if (!shard || shard->epoch == row->epoch)
            continue;
        worker->changing += shard->next_epoch == 0;
        shard->ending = shard->ending && shard->next_epoch == row->epoch; /* it is committed */
        shard->next_epoch = row->epoch;
        leave_out(worker, shard, row);
        worker_reconcile_abort(worker, shard);
        if (!shard->deposed &&
            (row->split == SPLIT_ENDED || row->primary != worker->common->server ||
             row->worker != worker->number))
            depose(worker, shard);
    }
    const bool demanded = worker->endpoint->demands_secret;
    worker_peer_configure(worker);
    if (!demanded && worker->endpoint->demands_secret)
        cut_unproved(worker);
    if (before && before->shard_count != worker->config->shard_count)
        tell_settled_again(worker);
    for (uint32_t i = 0; i < worker->config->shard_count; i++) {
        const struct shard *row = &worker->config->shards[i];
        const struct shard_state *shard = worker->shards[row->id];
        if (shard && shard->next_epoch && !shard->deposed)
            worker_peer_need(worker, row);
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
    struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        if (!shard->next_epoch || shard->deposed)
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

/* Z9. Its parent, which may be on its way here. */
static const struct shard_state *parent_of(const struct worker *worker,
                                           const struct shard_state *shard, bool *waits)
{
    const struct shard *row = cluster_shard(worker->config, shard->id),
                       *above = cluster_parent(worker->config, row);
    const struct shard_state *parent = above ? worker->shards[above->id] : NULL;
    *waits = above && (!parent || !parent->begun || parent->next_epoch);
    return parent;
}

static void inherit(struct worker *worker, struct shard_state *shard)
{
    bool waits;
    const struct shard_state *parent = parent_of(worker, shard, &waits);
    const uint64_t lost = parent ? split_inherit(shard, parent) : 0;
    if (lost)
        log_event(LOG_WARN, "records_lost",
                  "shard=%u operations=%lu a retry of one of them would be carried out again",
                  shard->id, lost);
}

static void begin_epoch(struct worker *worker, struct shard_state *shard)
{
    inherit(worker, shard);
    shard->frozen = cluster_shard(worker->config, shard->id)->split != SPLIT_NONE;
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
    worker->unsettled = true;
    worker_reconcile_begin(worker, shard);
}

/* Every version that was handed out lies in the t-log's segments up to the one that is closed now. */
void worker_epoch_close(const struct worker *worker)
{
    struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        shard_close(shard, version_make(shard->epoch, shard->counter));
        if (!atomic_load_explicit(&shard->recovering, memory_order_relaxed))
            shard_settle(shard, atomic_load_explicit(&shard->commit, memory_order_relaxed));
    }
}

/* --- a deposed shard --- */

static bool is_over(const struct shard_state *shard, const struct worker *worker, uint32_t place)
{
    const uint32_t position = shard->backups[place];
    return shard->cut >> position & 1 ||
           peer_has_landed(&worker->peers[position], shard->in_flight.last->batch);
}

/* Z6. Of what is in flight the last was sent behind all others. As long as nothing is in doubt it completes. */
static bool has_ended(const struct worker *worker, const struct shard_state *shard)
{
    if (!shard->in_flight.last)
        return worker->local_landed >= shard->stored;
    bool over = shard->cut && worker->local_landed >= shard->in_flight.last->batch;
    for (uint32_t i = 0; i < shard->backup_count && over; i++)
        over = is_over(shard, worker, i);
    return over;
}

/* All connections that hold it up. Nobody waits for a server that is kept: it counts again once its process has ended, and
 * what was sent to it has landed by then, or never does. */
static void cut_peers(struct worker *worker, struct shard_state *shard, uint64_t now_ns)
{
    for (uint32_t i = 0; shard->in_flight.last && i < shard->backup_count; i++) {
        struct worker_peer *peer = &worker->peers[shard->backups[i]];
        if (is_over(shard, worker, i))
            continue;
        if (cluster_member(worker->config, peer->server)->kept)
            shard->cut |= UINT64_C(1) << shard->backups[i];
        if (!peer->connected)
            continue;
        cut(worker, peer, now_ns);
    }
}

/* Z7. What is in flight counts as it does at a backup where it landed. False: there is no memory now. */
static bool keep_in_flight(struct worker *worker, struct shard_state *shard)
{
    if (shard->begun) {
        end_epoch(shard);
        shard->begun = false;
    }
    while (shard->in_flight.first) {
        struct write_op *op = shard->in_flight.first;
        struct entry_header header;
        entry_peek(pm_at(worker->common->pm, op->offset), &header);
        const struct apply_entry entry = apply_describe(worker->common->pm, &worker->common->format,
                                                        &header, op->offset, worker->key);
        if (suffix_reserve(&shard->suffix) || apply_entry(shard, &entry) < 0)
            return false;
        suffix_append(&shard->suffix, apply_item(&entry));
        if (op->client)
            worker_client_mark(worker, op->client);
        worker_write_give_up(worker, shard);
    }
    return true;
}

static void give_back(struct worker *worker, struct shard_state *shard)
{
    worker_fill_forget(worker, shard);
    split_forget(shard);
    worker_fetch_forget(worker, shard->id);
    worker_commit_forget(worker, shard);
    queries_refuse(&worker->queries, shard);
    suffix_sort(&shard->suffix);
    worker->shards[shard->id] = NULL;
    worker->landed -= shard->landed_in != 0;
    worker->changing--;
    worker->deposed--;
    shard->deposed = shard->ending = false;
    shard->next_epoch = 0;
    shard->cut = shard->counter = 0;
    shard->backup_count = shard->full_count = shard->filled = 0;
    if (command_push(&worker->role.outbox,
                     &(struct command){.kind = COMMAND_SHARD, .shard = shard}))
        server_fail(worker->common, ROWAN_ENOMEM, "no memory for a change of the configuration");
}

/* All at once, as each closes the log. */
static void give_all_back(struct worker *worker)
{
    /* So that the next one has its table of clients before this one is USED; where there is no space, nobody needs it yet. */
    if (worker->log.open && log_reserve_segment(&worker->log, ENTRY_ALIGN))
        log_close(&worker->log);
    struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        if (shard->deposed)
            give_back(worker, shard);
    }
}

bool worker_epoch_depose(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    bool all = worker->deposed > 0;
    if (!all)
        return false;
    const bool cuts = worker->cut_ns && now_ns >= worker->cut_ns;
    if (worker->cut_ns == 0 || cuts)
        worker->cut_ns = now_ns + worker->config->lease_ms * NS_PER_MS;
    struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        if (!shard->deposed)
            continue;
        if (cuts)
            cut_peers(worker, shard, now_ns);
        all &= has_ended(worker, shard) && keep_in_flight(worker, shard);
    }
    if (all)
        give_all_back(worker);
    else
        wake_at(wake_ns, worker->cut_ns);
    return all;
}

/* Where there is no segment, the next one that is full does it. */
static void close_log(struct worker *worker)
{
    if (worker->log.open) {
        (void)log_reserve_segment(&worker->log, ENTRY_ALIGN);
    } else {
        worker_epoch_close(worker);
        atomic_store_explicit(&worker->common->rows_owed, true, memory_order_release);
    }
    inbox_wake(&worker->role.outbox); /* who commits the old segment, or writes the rows */
}

/* Z4 */
static bool close_landed(struct worker *worker)
{
    const uint64_t left = atomic_load_explicit(&worker->common->left, memory_order_acquire);
    bool any = false;
    struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        if (shard->landed_in == 0 || shard->landed_in > left ||
            atomic_load_explicit(&shard->recovering, memory_order_relaxed))
            continue; /* what reconciliation takes in is closed, too */
        shard->landed_in = 0;
        worker->landed--;
        any = true;
    }
    if (any)
        close_log(worker);
    return any;
}

/* Z8 */
static bool close_begun(struct worker *worker)
{
    const struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        if (atomic_load_explicit(&shard->recovering, memory_order_relaxed))
            return false;
    }
    worker->unsettled = false;
    close_log(worker);
    return true;
}

bool worker_epoch_poll(struct worker *worker)
{
    bool any = worker->landed && close_landed(worker);
    any |= worker->unsettled && !worker->changing && close_begun(worker);
    struct shard_state *shard;
    for (uint32_t i = 0; worker->changing && (shard = worker_next_shard(worker, &i));) {
        bool waits = false;
        if (!shard->ending || shard->in_flight.first)
            continue;
        (void)parent_of(worker, shard, &waits);
        if (waits)
            continue;
        begin_epoch(worker, shard);
        any = true;
    }
    return any;
}
