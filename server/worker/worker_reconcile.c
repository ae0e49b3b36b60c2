/* Log reconciliation of a shard after a cold start (design, section 6): what any of its replicas has above the highest
 * commit version is brought to all of them, before the shard is served in its new epoch. So is what one of them lacks
 * below it (a hole), by damage.
 *
 * Invariants:
 *  U1  Nothing of the shard is served, and no version of its new epoch given out, before every full
 *      replica has every entry that any of them has above `from`; durable. Each has told that it has what is at or below
 *      `from`: it is no higher than a replica's contiguous prefix, which no commit version lifts over a hole. A backup is
 *      brought what it did not show to have itself, by message, and has it when it has said so.
 *  U2  Every backup takes part: with one that does not answer, it waits.
 *  U3  Bytes of a backup are checked like those of any other stranger. Only a checksum admits a
 *      block, only all its blocks an entry, and never one of the epoch that begins here (C9).
 *  U4  When a connection breaks, that backup's part of the step starts again; in SPREAD with the first entry that it
 *      has not confirmed. What was taken in stays: the same entry twice does no harm.
 *  U5  A crash leaves the epoch without a commit version: the next cold start does all of it again.
 *  U6  If the data are possibly incomplete, then those of all replicas are (cm/cold.c), and nothing is settled: what a
 *      commit version says of lower epochs was true once, and may not be true any more.
 *  U7  What a replica does not have of versions up to its settled one is dead, not lost, and need not be taken in there.
 *
 *  FIGURES --(all commit versions and contiguous prefixes)--> BELOW --(the own suffix reaches down to `from`)-->
 *  SUFFIXES --(one backup after the other)--> SPREAD --(confirmed by all)--> served
 */
#include "server/worker/worker_reconcile.h"

#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/shard/query.h"
#include "server/worker/worker_client.h"
#include "server/worker/worker_commit.h"
#include "server/worker/worker_peer.h"
#include "server/worker/worker_reconcile_take.h"

#define RECONCILE_RETRY_NS      (20 * NS_PER_MS)
#define RECONCILE_ROOM_RETRY_NS NS_PER_MS
#define RECONCILE_SPACE_NS      NS_PER_S /* no memory or no segment: it may become free */

struct reconciliations {
    struct shard_list waiting; /* for a slot */
    uint32_t active;
    struct reconciliation slots[WORKER_RECONCILING];
};

void worker_reconcile_begin(struct worker *worker, struct shard_state *shard)
{
    if (!worker->reconciliations)
        worker->reconciliations = calloc(1, sizeof *worker->reconciliations);
    struct reconciliations *all = worker->reconciliations;
    if (!all) {
        server_fail(worker->common, ROWAN_ENOMEM, "no memory to reconcile the logs of a shard");
        return;
    }
    LIST_APPEND(&all->waiting, shard, reconcile_link);
    shard->reconcile_listed = true;
}

/* Perhaps by a reconciliation that was given up. */
uint64_t worker_reconcile_stored(const struct worker *worker)
{
    const uint32_t last = worker->fence_first + worker->fence_count - 1;
    if (worker->stored)
        return worker->batch;
    return worker->fence_count ? worker->fences[last % WORKER_FENCES].batch : 0;
}

static void unlist(struct reconciliations *all, struct shard_state *shard)
{
    LIST_REMOVE(&all->waiting, shard, reconcile_link);
    shard->reconcile_listed = false;
}

/* With the figures of this replica itself. */
static void start_waiting(const struct worker *worker, struct reconciliations *all)
{
    for (uint32_t i = 0; i < WORKER_RECONCILING && all->waiting.first; i++) {
        struct reconciliation *it = &all->slots[i];
        if (it->shard)
            continue;
        struct shard_state *shard = all->waiting.first;
        const uint64_t commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
        *it = (struct reconciliation){
            .shard = shard,
            .local_batch = worker_reconcile_stored(worker),
            .commit = commit,
            .asked = commit,
            .settled = atomic_load_explicit(&shard->settled, memory_order_relaxed),
            .from = UINT64_MAX};
        unlist(all, shard);
        all->active++;
    }
}

/* --- questions --- */

static void ask(struct worker *worker, const struct reconciliation *it, struct part *part,
                const struct worker_peer *peer, uint64_t now_ns)
{
    Rowan__GetSuffix body = ROWAN__GET_SUFFIX__INIT;
    body.shard = it->shard->id;
    body.epoch = it->shard->epoch;
    body.commit = it->step == RECONCILE_FIGURES ? it->asked : it->commit;
    body.after = it->step == RECONCILE_SUFFIXES ? it->from : QUERY_SUFFIX_NONE;
    body.cursor = part->cursor;
    body.block = part->block;
    /* Without room, or memory of the fabric's, it is asked again; a break comes as an event. */
    part->tag = worker_peer_tag(worker);
    if (control_message_send(peer->conn, part->tag,
                             &CONTROL_MESSAGE(GET_SUFFIX, get_suffix, &body)))
        part->tag = 0;
    part->retry_ns = now_ns + RECONCILE_ROOM_RETRY_NS;
}

/* What came of the current backup is a part of the suffix. Errors: ROWAN_ENOMEM. */
static int merge(struct reconciliation *it)
{
    return it->extra.count ? suffix_merge(&it->shard->suffix, &it->extra) : 0;
}

static void restart_part(struct reconciliation *it, struct part *part)
{
    /* Without memory for the merge what was taken in is taken again, beside itself. */
    if (it->step == RECONCILE_SUFFIXES && merge(it))
        suffix_clear(&it->extra);
    if (it->step == RECONCILE_SUFFIXES && !part->done)
        suffix_clear(&part->has);
    part->tag = 0;
    part->cursor = 0;
    part->block = 0;
    part->next_block = 0;
}

static void take_blocks(struct worker *worker, struct reconciliation *it, struct part *part,
                        const Rowan__SuffixIs *answer, const struct worker_peer *peer,
                        uint64_t now_ns)
{
    int error = 0;
    for (size_t i = 0; i < answer->n_blocks && !error; i++)
        error = worker_reconcile_take(worker, it, part, &answer->blocks[i]);
    if (!error && answer->cursor == 0)
        error = merge(it);
    if (error) {
        log_event(LOG_ERROR, "reconciliation_stuck", "worker=%u server=%u shard=%u error=%s",
                  worker->number, peer->server, it->shard->id, error_name(error));
        restart_part(it, part);
        part->retry_ns = now_ns + RECONCILE_SPACE_NS;
        return;
    }
    part->cursor = answer->cursor;
    part->block = answer->block;
    part->done = answer->cursor == 0;
    if (part->done)
        suffix_sort(&part->has);
}

/* --- answers --- */

static struct part *find_part(const struct worker *worker, struct reconciliation *it,
                              const struct worker_peer *peer)
{
    const uint32_t place = backup_place(it->shard, (uint32_t)(peer - worker->peers));
    return place < it->shard->backup_count ? &it->parts[place] : NULL;
}

/* The part of that peer for which something with this tag is on its way. */
static struct part *find_tag(const struct worker *worker, const struct worker_peer *peer,
                             uint32_t tag, struct reconciliation **it)
{
    for (uint32_t i = 0; tag && worker->reconciliations && i < WORKER_RECONCILING; i++) {
        *it = &worker->reconciliations->slots[i];
        struct part *part = (*it)->shard ? find_part(worker, *it, peer) : NULL;
        if (part && part->tag == tag)
            return part;
    }
    return NULL;
}

/* A replica that fills: what it has is asked for, as it may have what nobody else got; filling brings it what it lacks. */
static bool fills(const struct reconciliation *it, const struct part *part)
{
    return (uint32_t)(part - it->parts) >= it->shard->full_count;
}

static void take_answer(struct worker *worker, struct reconciliation *it, struct part *part,
                        const Rowan__SuffixIs *answer, const struct worker_peer *peer,
                        uint64_t now_ns)
{
    if (it->step == RECONCILE_FIGURES) {
        if (answer->commit > it->commit)
            it->commit = answer->commit;
        part->done = true;
        if (fills(it, part))
            return; /* of what was before its first epoch it knows nothing */
        part->complete = answer->settled > answer->prefix ? answer->settled : answer->prefix;
        if (answer->settled > it->settled)
            it->settled = answer->settled;
        if (answer->prefix < it->from)
            it->from = answer->prefix;
    } else {
        take_blocks(worker, it, part, answer, peer, now_ns);
    }
}

/* Need the backup not be brought that version? */
static bool is_there(const struct part *part, uint64_t version)
{
    return version <= part->complete || suffix_has(&part->has, version);
}

/* Entries were confirmed, or with an error will be sent again. */
static void take_confirmation(const struct worker *worker, struct reconciliation *it,
                              struct part *part, const struct worker_peer *peer, int error,
                              uint64_t now_ns)
{
    const bool later = error == ROWAN_EAGAIN || error == ROWAN_EBUSY;
    if (!error) {
        for (uint32_t i = part->next; i < part->sent; i++) {
            const struct suffix_item *item = &it->shard->suffix.items[i];
            it->holes +=
                item->offset && item->version <= it->commit && !is_there(part, item->version);
        }
        part->next = part->sent;
        part->next_block = part->sent_block;
        return;
    }
    if (!later)
        log_event(LOG_ERROR, "reconciliation_stuck", "worker=%u server=%u shard=%u error=%s",
                  worker->number, peer->server, it->shard->id, error_name(error));
    part->next_block = 0; /* what it has of the entry may be gone */
    part->retry_ns = now_ns + (later ? RECONCILE_RETRY_NS : RECONCILE_SPACE_NS);
}

void worker_reconcile_message(struct worker *worker, const struct worker_peer *peer, uint32_t tag,
                              const Rowan__ControlMessage *message, uint64_t now_ns)
{
    struct reconciliation *it;
    struct part *part = find_tag(worker, peer, tag, &it);
    if (!part)
        return;
    part->tag = 0;
    part->retry_ns = now_ns;
    const Rowan__SuffixIs *answer =
        message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SUFFIX_IS ? message->suffix_is : NULL;
    if (it->step == RECONCILE_SPREAD)
        take_confirmation(worker, it, part, peer, worker_peer_failure(message), now_ns);
    else if (answer && answer->shard == it->shard->id && answer->epoch == it->shard->epoch &&
             version_epoch(answer->commit) < it->shard->epoch)
        take_answer(worker, it, part, answer, peer, now_ns);
    else
        part->retry_ns = now_ns + RECONCILE_RETRY_NS; /* not ready for this epoch */
}

void worker_reconcile_peer_down(struct worker *worker, const struct worker_peer *peer)
{
    for (uint32_t i = 0; worker->reconciliations && i < WORKER_RECONCILING; i++) {
        struct reconciliation *it = &worker->reconciliations->slots[i];
        struct part *part = it->shard ? find_part(worker, it, peer) : NULL;
        if (part)
            restart_part(it, part); /* U4 */
    }
}

/* --- from step to step --- */

static bool all_done(const struct reconciliation *it)
{
    for (uint32_t i = 0; i < it->shard->backup_count; i++) {
        if (!it->parts[i].done)
            return false;
    }
    return true;
}

/* Committed versions that were shown by nobody, and are not dead (U7): all replicas were damaged, or did not promise to
 * keep them. They are lost at most. Where the data are possibly incomplete, the settled versions are not believed (R6), so
 * what the cleaner dropped looks the same. */
static void report_losses(struct worker *worker, const struct reconciliation *it)
{
    struct shard_state *shard = it->shard;
    uint64_t next = version_make(version_epoch(it->commit), 1), lost = 0;
    if (next <= it->from)
        next = it->from + 1;
    if (next <= it->settled)
        next = it->settled + 1;
    for (uint32_t i = suffix_find(&shard->suffix, next - 1); next <= it->commit; i++) {
        uint64_t found = i < shard->suffix.count && shard->suffix.items[i].version <= it->commit
                             ? shard->suffix.items[i].version
                             : it->commit + 1;
        if (found > next) {
            log_event(LOG_ERROR, "versions_lost",
                      "worker=%u shard=%u first=%lx last=%lx at_most=%lu", worker->number,
                      shard->id, next, found - 1, found - next);
            lost += found - next;
        }
        next = found + 1;
    }
    atomic_store_explicit(&shard->lost, lost, memory_order_relaxed);
}

/* Some replica knows of an epoch that began since, and that those who were asked, and this one, may not have heard of. For it
 * all of earlier epochs was brought to every replica, so they lack less than they said. */
static bool asks_again(struct reconciliation *it)
{
    if (it->step != RECONCILE_FIGURES || version_epoch(it->commit) <= version_epoch(it->asked))
        return false;
    it->asked = it->commit;
    it->from = UINT64_MAX;
    return true;
}

/* The contiguous prefix of this replica itself. */
static uint64_t own_prefix(const struct reconciliation *it)
{
    const uint64_t begun = version_make(version_epoch(it->commit), 0);
    const uint64_t own = shard_contiguous(it->shard);
    return version_epoch(it->commit) >= it->shard->begin_epoch && begun > own ? begun : own;
}

static void enter_step(struct worker *worker, struct reconciliation *it, enum reconcile_step step)
{
    struct shard_state *shard = it->shard;
    it->step = step;
    if (step == RECONCILE_BELOW) {
        const uint64_t own = own_prefix(it);
        it->from = own < it->from ? own : it->from;
        it->from = it->commit < it->from ? it->commit : it->from;
    } else if (step == RECONCILE_SPREAD)
        report_losses(worker, it);
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        it->parts[i].done = step == RECONCILE_SPREAD && fills(it, &it->parts[i]);
        it->parts[i].next = suffix_find(&shard->suffix, it->from);
        restart_part(it, &it->parts[i]);
    }
}

/* One question at a time to each backup; in SUFFIXES to one backup after the other, so that what two of
 * them have is taken once. */
static bool ask_all(struct worker *worker, struct reconciliation *it, uint64_t now_ns,
                    uint64_t *wake_ns)
{
    bool any = false;
    for (uint32_t i = 0; i < it->shard->backup_count; i++) {
        struct part *part = &it->parts[i];
        const struct worker_peer *peer = &worker->peers[it->shard->backups[i]];
        if (part->done)
            continue;
        if (!part->tag && peer->connected && now_ns >= part->retry_ns) {
            ask(worker, it, part, peer, now_ns);
            any |= part->tag != 0;
        }
        if (!part->tag && peer->connected)
            wake_at(wake_ns, part->retry_ns);
        if (it->step == RECONCILE_SUFFIXES)
            break;
    }
    return any;
}

/* What all others had settled, one of them may lack (suffix_below.h). */
static bool look_below(struct worker *worker, struct reconciliation *it, uint64_t now_ns,
                       uint64_t *wake_ns)
{
    struct shard_state *shard = it->shard;
    if (now_ns < it->retry_ns) {
        wake_at(wake_ns, it->retry_ns);
        return false;
    }
    if (it->from < shard->suffix.above)
        shard_expose(shard, it->from, &worker->common->exposures);
    const int done = suffix_below_step(&shard->below, &shard->suffix, shard->index,
                                       worker->common->pm, it->from);
    if (done < 0)
        it->retry_ns = now_ns + RECONCILE_SPACE_NS;
    else if (done == 1)
        enter_step(worker, it, RECONCILE_SUFFIXES);
    return true;
}

/* The entries that the backup has not shown, as many as a message holds. */
static void gather(const struct worker *worker, const struct reconciliation *it, struct part *part,
                   struct block_list *blocks)
{
    const struct suffix *suffix = &it->shard->suffix;
    part->sent = part->next;
    part->sent_block = part->next_block;
    while (part->sent < suffix->count) {
        const struct suffix_item *item = &suffix->items[part->sent];
        const int added =
            is_there(part, item->version)
                ? 1
                : block_list_add(blocks, worker->common->pm, &worker->common->format, it->shard->id,
                                 item->version, item->offset, &part->sent_block);
        if (added == 0)
            return;
        if (added < 0) {
            log_event(LOG_ERROR, "entry_damaged", "worker=%u shard=%u version=%lx offset=%lu",
                      worker->number, it->shard->id, item->version, item->offset);
            shard_found_damage(it->shard, &worker->common->damages);
        }
        part->sent++;
        part->sent_block = 0;
    }
}

/* True if a message went, or the part is done. */
static bool spread_to(struct worker *worker, const struct reconciliation *it, struct part *part,
                      const struct worker_peer *peer, uint64_t now_ns)
{
    struct block_list blocks = {.data = worker->value};
    gather(worker, it, part, &blocks);
    if (blocks.count == 0) {
        part->next = part->sent;
        part->done = true;
        return true;
    }
    if (!worker_peer_bring(worker, peer, it->shard, &blocks, &part->tag))
        return true;
    part->retry_ns = now_ns + RECONCILE_ROOM_RETRY_NS;
    return false;
}

/* U1. */
static bool spread(struct worker *worker, struct reconciliation *it, uint64_t now_ns,
                   uint64_t *wake_ns)
{
    bool any = false;
    for (uint32_t i = 0; i < it->shard->backup_count; i++) {
        struct part *part = &it->parts[i];
        const struct worker_peer *peer = &worker->peers[it->shard->backups[i]];
        if (part->done || part->tag || !peer->connected)
            continue;
        if (now_ns >= part->retry_ns && spread_to(worker, it, part, peer, now_ns))
            any = true;
        else
            wake_at(wake_ns, part->retry_ns);
    }
    return any;
}

static void clear(struct reconciliation *it)
{
    suffix_clear(&it->extra);
    for (uint32_t i = 0; i < CLUSTER_MAX_REPLICAS - 1; i++)
        suffix_clear(&it->parts[i].has);
}

/* The same at each replica, whatever it has found of earlier epochs. */
static void raise_version(struct shard_state *shard)
{
    const uint64_t start = version_make(shard->epoch, 0);
    if (start > atomic_load_explicit(&shard->version, memory_order_relaxed))
        atomic_store_explicit(&shard->version, start, memory_order_relaxed);
}

static void finish(struct worker *worker, struct reconciliation *it, uint64_t now_ns)
{
    struct shard_state *shard = it->shard;
    log_event(LOG_INFO, "reconciled",
              "worker=%u shard=%u epoch=%u commit=%lx from=%lx entries=%u taken=%u lost=%lu",
              worker->number, shard->id, shard->epoch, it->commit, it->from,
              shard->suffix.count - suffix_find(&shard->suffix, it->from), it->taken,
              atomic_load_explicit(&shard->lost, memory_order_relaxed));
    if (it->holes && !atomic_load_explicit(&shard->possibly_incomplete, memory_order_relaxed))
        log_event(LOG_WARN, "holes_filled", "worker=%u shard=%u entries=%u after=%lx",
                  worker->number, shard->id, it->holes, it->from);
    suffix_clear(&shard->suffix);
    clear(it);
    shard_cover(shard);
    shard->begun = true;
    atomic_store_explicit(&shard->recovering, false, memory_order_relaxed);
    raise_version(shard);
    worker_client_recall(worker, shard, now_ns); /* those of the records taken in */
    worker_commit_changed(worker, shard);
    it->shard = NULL;
    worker->reconciliations->active--;
}

void worker_reconcile_abort(struct worker *worker, struct shard_state *shard)
{
    struct reconciliations *all = worker->reconciliations;
    if (!all)
        return;
    if (shard->reconcile_listed)
        unlist(all, shard);
    for (uint32_t i = 0; i < WORKER_RECONCILING; i++) {
        struct reconciliation *it = &all->slots[i];
        if (it->shard != shard)
            continue;
        (void)merge(it); /* without memory it is taken again, beside itself */
        clear(it);
        it->shard = NULL;
        all->active--;
    }
}

static bool advance(struct worker *worker, struct reconciliation *it, uint64_t now_ns,
                    uint64_t *wake_ns)
{
    if (it->step == RECONCILE_BELOW)
        return look_below(worker, it, now_ns, wake_ns);
    bool any = it->step == RECONCILE_SPREAD ? spread(worker, it, now_ns, wake_ns)
                                            : ask_all(worker, it, now_ns, wake_ns);
    if (!all_done(it))
        return any;
    if (it->step != RECONCILE_SPREAD)
        enter_step(worker, it, asks_again(it) ? RECONCILE_FIGURES : it->step + 1);
    else if (worker->local_landed >= it->local_batch)
        finish(worker, it, now_ns);
    else
        return any;
    return true;
}

bool worker_reconcile_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    struct reconciliations *all = worker->reconciliations;
    bool any = false;
    if (!all)
        return false;
    start_waiting(worker, all);
    for (uint32_t i = 0; i < WORKER_RECONCILING; i++) {
        if (all->slots[i].shard)
            any |= advance(worker, &all->slots[i], now_ns, wake_ns);
    }
    if (all->active == 0 && !all->waiting.first) {
        free(all);
        worker->reconciliations = NULL;
    }
    return any;
}

void worker_reconcile_close(struct worker *worker)
{
    for (uint32_t i = 0; worker->reconciliations && i < WORKER_RECONCILING; i++)
        clear(&worker->reconciliations->slots[i]);
    free(worker->reconciliations);
}
