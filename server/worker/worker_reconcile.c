/* Log reconciliation of a shard after a cold start (design, section 6): what any of them has above
 * the highest commit version is brought to all of them, before the shard is served in its new epoch.
 *
 * Invariants:
 *  U1  Nothing of the shard is served, and no version of its new epoch given out, before every full
 *      replica has every entry that any of them has above `from`; durable. What is at or below
 *      `from`, they all have. A backup is sent what it did not show to have itself.
 *  U2  Every backup takes part: with one that does not answer, it waits.
 *  U3  Bytes of a backup are checked like those of any other stranger. Only a checksum admits a
 *      block, only all its blocks an entry, and never one of the epoch that begins here (C9).
 *  U4  When a connection breaks, that backup's part of the step starts again. What was taken in
 *      stays: the same entry twice does no harm.
 *  U5  A crash leaves the epoch without a commit version: the next cold start does all of it again.
 *  U6  If the data are possibly incomplete, then those of all replicas are (cm/cold.c), and `from` is 0: what a
 *      commit version says of lower epochs was true once, and may not be true any more.
 *
 *  FIGURES --(all commit versions)--> PREFIXES --(all contiguous prefixes)--> SUFFIXES --(one backup after the
 *  other)--> SPREAD --(landed everywhere)--> served
 */
#include "server/worker/worker_reconcile.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/shard/apply.h"
#include "server/shard/query.h"
#include "server/worker/worker_client.h"
#include "server/worker/worker_commit.h"
#include "server/worker/worker_peer.h"

enum {
    RECONCILE_ACTIVE = 16,                /* shards reconciled at a time by a worker */
    RECONCILE_BYTES_PER_POLL = 256 << 10, /* sent for one shard to one backup */
};
#define RECONCILE_RETRY_NS      (20 * NS_PER_MS)
#define RECONCILE_ROOM_RETRY_NS NS_PER_MS
#define RECONCILE_SPACE_NS      NS_PER_S /* no memory or no segment: it may become free */

enum reconcile_step { RECONCILE_FIGURES, RECONCILE_PREFIXES, RECONCILE_SUFFIXES, RECONCILE_SPREAD };

/* One backup's part. */
struct part {
    bool asked, done; /* in this step */
    uint64_t retry_ns;
    uint64_t cursor; /* SUFFIXES */

    /* SUFFIXES: the entry whose blocks are coming. */
    bool coming, skipped; /* skipped: it is here already */
    struct entry_header header;
    uint32_t next_block;
    uint64_t start, offset; /* of the entry, of its next block */

    struct suffix has; /* versions of its entries above `from`; their places are not told */

    /* SPREAD */
    uint32_t next;  /* position in the suffix */
    uint64_t batch; /* the last in which something was added; 0: none */
};

struct reconciliation {
    struct shard_state *shard; /* NULL: free */
    enum reconcile_step step;
    uint64_t commit, from;
    uint64_t local_batch; /* the last in which something was stored here */
    uint32_t taken;       /* entries that were not here */
    struct suffix extra;  /* those of the current backup */
    struct part parts[CLUSTER_MAX_REPLICAS - 1];
};

struct reconciliations {
    struct shard_state *first, *last; /* that wait for a slot */
    uint32_t active;
    struct reconciliation slots[RECONCILE_ACTIVE];
};

int worker_reconcile_begin(struct worker *worker, struct shard_state *shard)
{
    if (!worker->reconciliations)
        worker->reconciliations = calloc(1, sizeof *worker->reconciliations);
    struct reconciliations *all = worker->reconciliations;
    if (!all)
        return ROWAN_ENOMEM;
    shard->next_reconcile = NULL;
    if (all->last)
        all->last->next_reconcile = shard;
    else
        all->first = shard;
    all->last = shard;
    return 0;
}

static void start_waiting(struct reconciliations *all)
{
    for (uint32_t i = 0; i < RECONCILE_ACTIVE && all->first; i++) {
        struct reconciliation *it = &all->slots[i];
        if (it->shard)
            continue;
        *it = (struct reconciliation){.shard = all->first};
        it->commit = atomic_load_explicit(&it->shard->commit, memory_order_relaxed);
        all->first = it->shard->next_reconcile;
        if (!all->first)
            all->last = NULL;
        all->active++;
    }
}

/* --- questions --- */

static void ask(const struct reconciliation *it, struct part *part, const struct worker_peer *peer,
                uint64_t now_ns)
{
    Rowan__GetSuffix body = ROWAN__GET_SUFFIX__INIT;
    body.shard = it->shard->id;
    body.epoch = it->shard->epoch;
    body.commit = it->commit;
    body.after = it->step == RECONCILE_SUFFIXES ? it->from : QUERY_SUFFIX_NONE;
    body.cursor = part->cursor;
    /* Without room, or memory of the fabric's, it is asked again; a break comes as an event. */
    part->asked = control_message_send(peer->conn, it->shard->id,
                                       &CONTROL_MESSAGE(GET_SUFFIX, get_suffix, &body)) == 0;
    part->retry_ns = now_ns + RECONCILE_ROOM_RETRY_NS;
}

/* --- taking entries in --- */

static bool is_in(const struct suffix *suffix, uint64_t version)
{
    uint32_t at = suffix_find(suffix, version - 1);
    return at < suffix->count && suffix->items[at].version == version;
}

/* All blocks of an entry that was not here lie in the t-log. Errors: ROWAN_ENOMEM. */
static int take_entry(struct worker *worker, struct reconciliation *it, const struct part *part)
{
    struct shard_state *shard = it->shard;
    const struct entry_header *header = &part->header;
    const struct apply_entry entry = apply_describe(worker->common->pm, &worker->common->format,
                                                    header, part->start, worker->key);
    struct applied did;
    int error = apply_entry(shard, &entry, &did);
    if (!error)
        error = suffix_add(&it->extra, header->version, part->start);
    if (error)
        return error;
    if (did.record)
        log_event(LOG_WARN, "record_lost",
                  "shard=%u client=%u operation=%u a retry of it would be carried out again",
                  shard->id, header->client_id, header->operation);
    it->taken++;
    return 0;
}

/* The first block of an entry: is it here, or where does it go? Errors: ROWAN_EFULL. */
static int begin_entry(struct worker *worker, const struct reconciliation *it, struct part *part,
                       const struct entry_header *header)
{
    const struct entry_format *format = &worker->common->format;
    part->header = *header;
    part->next_block = 0;
    part->skipped = is_in(&it->shard->suffix, header->version);
    part->coming = true;
    if (part->skipped)
        return 0;
    int error = worker_reserve(worker, entry_bytes(format, header->key_bytes, header->value_bytes),
                               &part->start);
    part->offset = part->start;
    part->coming = !error;
    return error;
}

/* U3. */
static bool is_expected(const struct reconciliation *it, const struct part *part,
                        const struct entry_header *header)
{
    if (header->shard != it->shard->id || header->version <= it->from ||
        version_epoch(header->version) >= it->shard->epoch ||
        (header->type != ENTRY_PUT && header->type != ENTRY_DELETE))
        return false;
    return header->block == 0 ||
           (part->coming && header->version == part->header.version &&
            header->type == part->header.type && header->block == part->next_block &&
            header->key_bytes == part->header.key_bytes &&
            header->value_bytes == part->header.value_bytes &&
            header->client_id == part->header.client_id &&
            header->operation == part->header.operation);
}

/* Errors: ROWAN_EFORMAT (not what was asked for), EDAMAGED, EFULL, ENOMEM. */
static int take_block(struct worker *worker, struct reconciliation *it, struct part *part,
                      const ProtobufCBinaryData *block)
{
    struct entry_header header;
    uint32_t bytes;
    int error = entry_decode(&worker->common->format, block->data, block->len, &header, &bytes);
    if (!error && (bytes != block->len || !is_expected(it, part, &header)))
        error = ROWAN_EFORMAT;
    if (!error && header.block == 0)
        error = begin_entry(worker, it, part, &header);
    if (error)
        return error;
    part->next_block++;
    if (!part->skipped) {
        pm_store(worker->common->pm, part->offset, block->data, bytes);
        part->offset += bytes;
        worker->stored = true;
        it->local_batch = worker->batch;
    }
    if (part->next_block < header.blocks)
        return 0;
    part->coming = false;
    error = part->skipped ? 0 : take_entry(worker, it, part);
    return error ? error : suffix_add(&part->has, header.version, 0);
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
    part->asked = part->coming = false;
    part->cursor = 0;
    part->batch = 0;
    part->next = suffix_find(&it->shard->suffix, it->from);
}

static void take_blocks(struct worker *worker, struct reconciliation *it, struct part *part,
                        const Rowan__SuffixIs *answer, const struct worker_peer *peer,
                        uint64_t now_ns)
{
    int error = 0;
    for (size_t i = 0; i < answer->n_blocks && !error; i++)
        error = take_block(worker, it, part, &answer->blocks[i]);
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
    part->done = answer->cursor == 0;
    if (part->done)
        suffix_sort(&part->has);
}

/* --- answers --- */

static struct reconciliation *find_reconciliation(const struct worker *worker, uint32_t shard)
{
    for (uint32_t i = 0; worker->reconciliations && i < RECONCILE_ACTIVE; i++) {
        struct reconciliation *it = &worker->reconciliations->slots[i];
        if (it->shard && it->shard->id == shard)
            return it;
    }
    return NULL;
}

static struct part *find_part(const struct worker *worker, struct reconciliation *it,
                              const struct worker_peer *peer)
{
    for (uint32_t i = 0; i < it->shard->backup_count; i++) {
        if (&worker->peers[it->shard->backups[i]] == peer)
            return &it->parts[i];
    }
    return NULL;
}

static void take_answer(struct worker *worker, struct reconciliation *it, struct part *part,
                        const Rowan__SuffixIs *answer, const struct worker_peer *peer,
                        uint64_t now_ns)
{
    if (it->step == RECONCILE_FIGURES) {
        if (answer->commit > it->commit)
            it->commit = answer->commit;
        part->done = true;
    } else if (it->step == RECONCILE_PREFIXES) {
        if (answer->prefix < it->from)
            it->from = answer->prefix;
        part->done = true;
    } else {
        take_blocks(worker, it, part, answer, peer, now_ns);
    }
}

void worker_reconcile_message(struct worker *worker, const struct worker_peer *peer, uint32_t tag,
                              const Rowan__ControlMessage *message, uint64_t now_ns)
{
    struct reconciliation *it = find_reconciliation(worker, tag);
    struct part *part = it ? find_part(worker, it, peer) : NULL;
    if (!part || !part->asked || it->step == RECONCILE_SPREAD)
        return;
    part->asked = false;
    part->retry_ns = now_ns;
    const Rowan__SuffixIs *answer =
        message->body_case == ROWAN__CONTROL_MESSAGE__BODY_SUFFIX_IS ? message->suffix_is : NULL;
    if (answer && answer->shard == it->shard->id && answer->epoch == it->shard->epoch &&
        version_epoch(answer->commit) < it->shard->epoch)
        take_answer(worker, it, part, answer, peer, now_ns);
    else
        part->retry_ns = now_ns + RECONCILE_RETRY_NS; /* not ready for this epoch */
}

void worker_reconcile_peer_down(struct worker *worker, const struct worker_peer *peer)
{
    for (uint32_t i = 0; worker->reconciliations && i < RECONCILE_ACTIVE; i++) {
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

/* Committed versions that are nowhere: a replica was damaged, or did not promise to keep them. */
static void report_losses(struct worker *worker, const struct reconciliation *it)
{
    struct shard_state *shard = it->shard;
    uint64_t next = version_make(version_epoch(it->commit), 1), lost = 0;
    if (next <= it->from)
        next = it->from + 1;
    for (uint32_t i = suffix_find(&shard->suffix, next - 1); next <= it->commit; i++) {
        uint64_t found = i < shard->suffix.count && shard->suffix.items[i].version <= it->commit
                             ? shard->suffix.items[i].version
                             : it->commit + 1;
        if (found > next) {
            log_event(LOG_ERROR, "versions_lost", "worker=%u shard=%u first=%lx last=%lx",
                      worker->number, shard->id, next, found - 1);
            lost += found - next;
        }
        next = found + 1;
    }
    atomic_store_explicit(&shard->lost, lost, memory_order_relaxed);
}

static void enter_step(struct worker *worker, struct reconciliation *it, enum reconcile_step step)
{
    struct shard_state *shard = it->shard;
    it->step = step;
    if (step == RECONCILE_PREFIXES) {
        prefix_settle(&shard->prefix, version_epoch(it->commit));
        it->from = it->commit < shard->prefix.upto ? it->commit : shard->prefix.upto;
        if (shard->possibly_incomplete) /* U6 */
            it->from = 0;
    } else if (step == RECONCILE_SUFFIXES && it->from < shard->suffix.above) {
        /* A backup lacks what all replicas had; what others still name of it can be given to it. */
        log_event(LOG_ERROR, "replica_damaged", "worker=%u shard=%u after=%lx before=%lx",
                  worker->number, shard->id, it->from, shard->suffix.above + 1);
        shard->suffix.above = it->from;
    } else if (step == RECONCILE_SPREAD) {
        report_losses(worker, it);
    }
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        it->parts[i].done = false;
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
        if (!part->asked && peer->connected && now_ns >= part->retry_ns) {
            ask(it, part, peer, now_ns);
            any |= part->asked;
        }
        if (!part->asked && peer->connected)
            wake_at(wake_ns, part->retry_ns);
        if (it->step == RECONCILE_SUFFIXES)
            break;
    }
    return any;
}

/* Adds entries that the peer has not to its batch of this poll, as many as it has room for. */
static bool spread_to(struct worker *worker, const struct reconciliation *it, struct part *part,
                      struct worker_peer *peer)
{
    const struct entry_format *format = &worker->common->format;
    const struct suffix *suffix = &it->shard->suffix;
    uint32_t leave = fabric_caps(worker->common->fabric)->max_batch_blocks / 4, sent = 0;
    while (part->next < suffix->count && sent < RECONCILE_BYTES_PER_POLL &&
           (sent == 0 || !FAULT(SHORT_BATCH))) {
        const struct suffix_item *item = &suffix->items[part->next];
        if (is_in(&part->has, item->version)) {
            part->next++;
            continue;
        }
        const uint8_t *at = pm_at(worker->common->pm, item->offset);
        struct entry_header header;
        uint64_t room = STORE_SEGMENT_BYTES - item->offset % STORE_SEGMENT_BYTES;
        if (entry_verify(format, at, room, &header)) {
            log_event(LOG_ERROR, "entry_damaged", "worker=%u shard=%u version=%lx offset=%lu",
                      worker->number, it->shard->id, item->version, item->offset);
            part->next++;
            continue;
        }
        uint32_t space = fabric_rowan_room(peer->conn);
        if (space < header.blocks || (space <= leave && sent > 0))
            break;
        for (uint32_t block = 0; block < header.blocks; block++) {
            uint32_t bytes = entry_block_bytes(format, header.key_bytes, header.value_bytes, block);
            worker_peer_add(worker, peer, at, bytes);
            at += bytes;
            sent += bytes;
        }
        part->batch = worker->batch;
        part->next++;
    }
    return sent > 0;
}

static bool has_landed(const struct part *part, const struct worker_peer *peer, uint32_t count)
{
    return peer->connected && part->next == count && peer->landed >= part->batch;
}

/* U1. */
static bool spread(struct worker *worker, struct reconciliation *it)
{
    bool any = false;
    for (uint32_t i = 0; i < it->shard->backup_count; i++) {
        struct part *part = &it->parts[i];
        struct worker_peer *peer = &worker->peers[it->shard->backups[i]];
        if (part->done || !peer->connected)
            continue;
        any |= spread_to(worker, it, part, peer);
        part->done = has_landed(part, peer, it->shard->suffix.count);
    }
    return any;
}

static void clear(struct reconciliation *it)
{
    suffix_clear(&it->extra);
    for (uint32_t i = 0; i < CLUSTER_MAX_REPLICAS - 1; i++)
        suffix_clear(&it->parts[i].has);
}

static void finish(struct worker *worker, struct reconciliation *it, uint64_t now_ns)
{
    struct shard_state *shard = it->shard;
    log_event(LOG_INFO, "reconciled",
              "worker=%u shard=%u epoch=%u commit=%lx from=%lx entries=%u taken=%u lost=%lu",
              worker->number, shard->id, shard->epoch, it->commit, it->from,
              shard->suffix.count - suffix_find(&shard->suffix, it->from), it->taken,
              atomic_load_explicit(&shard->lost, memory_order_relaxed));
    suffix_clear(&shard->suffix);
    clear(it);
    atomic_store_explicit(&shard->recovering, false, memory_order_relaxed);
    worker_client_recall(worker, shard, now_ns); /* those of the records taken in */
    worker_commit_changed(worker, shard);
    it->shard = NULL;
    worker->reconciliations->active--;
}

static bool advance(struct worker *worker, struct reconciliation *it, uint64_t now_ns,
                    uint64_t *wake_ns)
{
    bool any =
        it->step == RECONCILE_SPREAD ? spread(worker, it) : ask_all(worker, it, now_ns, wake_ns);
    if (!all_done(it))
        return any;
    if (it->step != RECONCILE_SPREAD)
        enter_step(worker, it, it->step + 1);
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
    start_waiting(all);
    for (uint32_t i = 0; i < RECONCILE_ACTIVE; i++) {
        if (all->slots[i].shard)
            any |= advance(worker, &all->slots[i], now_ns, wake_ns);
    }
    if (all->active == 0 && !all->first) {
        free(all);
        worker->reconciliations = NULL;
    }
    return any;
}

void worker_reconcile_close(struct worker *worker)
{
    for (uint32_t i = 0; worker->reconciliations && i < RECONCILE_ACTIVE; i++)
        clear(&worker->reconciliations->slots[i]);
    free(worker->reconciliations);
}
