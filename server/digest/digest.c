/* A digest role. All digest roles scan every segment of the backup log (digest_scan.c); each applies only the
 * entries of its own shards, conditionally on version, so that landing order, duplicates and
 * several senders do not matter.
 *
 * Invariants:
 *  D1  Only a checksum admits an entry (design, H6).
 *  D2  A block of an entry is never dropped for want of memory or space: the scan stays in front of
 *      it and tries again (H16).
 *  D3  A segment is left only when all of it was scanned after it was sealed, from the first place that was not
 *      whole before.
 *  D4  What a commit version covers landed in front of it. So when it is scanned, a version up to it
 *      that is not there is lost, unless it lies in what was stepped over: that is scanned again first.
 *  D5  A long entry whose blocks lie apart is copied only if it is needed: not if the index has that version of the key,
 *      or a higher one that is committed. So what is met again fills no segments; and once it is settled, the blocks are
 *      dead (clean_copy.c, K3).
 *  D6  Offsets are followed between reclaim_enter and reclaim_leave of a poll. What is kept beyond it either lies in no
 *      COMMITTED segment, so that nobody cleans it: blocks to be joined are dropped as soon as their version is settled,
 *      the segment of an entry that comes by message in parts is not committed (E7), and the uncommitted suffix lies above
 *      what is settled. Or it is held: what is stored and not applied. Of a suffix a part may lie in a COMMITTED segment
 *      all the same: because a block of it could not be read when that segment was committed, because the data may be
 *      incomplete, or because it is asked for what is below (suffix_below.h). That stays where it is until the shard is
 *      reconciled (shard_expose).
 *  D10 What arrived first in the segment that is scanned is not settled: a place that is not whole may be a torn tail
 *      there, so a start would take damage of what is settled for that. (The role's own log has exceptions: G4.) A segment of
 *      the log that is full before the one that is scanned is left, is not committed before: what it has of the same
 *      shards, or copies, cannot be settled so soon, and whatever else is to be committed does not wait for it.
 *  D11 Whoever sees a commit version of an epoch sees that something is missing, until it is known that nothing is: a replica that
 *      may be incomplete is whole when it has all up to the first one (control_open.c, invariant 4).
 *  D9  An epoch begins when all that landed here of earlier ones is applied (Z3). If none of that lies in a segment that is
 *      open, (epoch, 0) is settled: perhaps nothing lands here any more, and others wait for it to let tombstones go.
 */
#include "server/digest/digest.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/digest/digest_state.h"
#include "server/shard/apply.h"
#include "server/shard/split.h"

/* --- applying --- */

/* Inlined, as it is most of the digest of an entry. D10: *open is the lowest version. */
static inline __attribute__((always_inline)) int apply_and_keep(struct digest *digest,
                                                                struct shard_state *shard,
                                                                const struct apply_entry *entry,
                                                                uint64_t *open)
{
    const int error = FAULT(NO_MEMORY) ? ROWAN_ENOMEM : suffix_reserve(&shard->suffix);
    const int is_new = error ? error : apply_entry(shard, entry);
    if (is_new < 0)
        return is_new;
    /* What the prefix has forgotten may be there twice. */
    if (is_new || !prefix_has(&shard->prefix, entry->version))
        suffix_append(&shard->suffix, apply_item(entry));
    if (is_new && entry->version < *open)
        *open = entry->version;
    counter_add(&digest->entries, (unsigned)is_new);
    work_add(&shard->work, WORK_APPLY);
    return 0;
}

int digest_apply(struct digest *digest, struct shard_state *shard, const struct apply_entry *entry)
{
    return apply_and_keep(digest, shard, entry, &(uint64_t){0});
}

/* D5 */
static bool is_superseded(const struct digest *digest, const struct shard_state *shard,
                          const struct apply_entry *entry)
{
    const uint64_t at = index_find(shard->index, entry->hash, entry->key, entry->key_bytes);
    const void *found = pm_at(digest->common->pm, at);
    const uint64_t version = at ? entry_version(found) : 0;
    /* What is damaged is found, too, if its tag fits (index_find): its version means nothing then. */
    return at != 0 &&
           (version == entry->version ||
            (version > entry->version &&
             version <= atomic_load_explicit(&shard->commit, memory_order_relaxed))) &&
           entry_key_equals(&digest->common->format, found, entry->key, entry->key_bytes);
}

/* All blocks of a long entry are there. Errors: ROWAN_EFULL, ROWAN_ENOMEM. */
static int apply_joined(struct digest *digest, struct shard_state *shard,
                        const struct entry_header *header, struct join_entry *joined)
{
    const struct entry_format *format = &digest->common->format;
    const uint8_t *key = join_key(joined, format, header, digest->common->pm, digest->key);
    struct apply_entry entry =
        apply_make(header, joined->offsets[0], key, index_hash(key, header->key_bytes),
                   (struct index_hint){0});
    int error = 0;
    entry.apart = !join_is_contiguous(joined, format, header);
    if (FAULT(NO_SEGMENT))
        error = ROWAN_EFULL;
    else if (entry.apart && !is_superseded(digest, shard, &entry)) {
        error = join_copy(joined, format, header, &digest->log, &entry.offset);
        entry.apart = false;
        digest->copied = true;
    }
    if (!error)
        error = apply_and_keep(digest, shard, &entry, &shard->open_landed);
    if (!error)
        join_remove(joined);
    return error;
}

/* --- commit versions --- */

/* What was joined is fenced before it is settled: its blocks may go then, and a fence drains only the stores of its own
 * thread (pm_dax.c). One that fails is the control role's to tell, who waits for another before it commits a segment. */
void digest_settle(struct digest *digest, struct shard_state *shard)
{
    if (digest->copied)
        (void)pm_fence_start(digest->common->pm);
    digest->copied = false;
    uint64_t upto = shard->prefix.upto;
    upto = shard->open_landed <= upto ? shard->open_landed - 1 : upto;
    shard_settle(shard, upto); /* D10 */
    digest_tail_settled(shard);
    const uint64_t settled = atomic_load_explicit(&shard->settled, memory_order_relaxed);
    const struct incoming *incoming = &shard->incoming;
    join_drop(&digest->join, shard->id, settled); /* D6 */
    const bool arrived = incoming->header.version <= settled &&
                         version_epoch(incoming->header.version) >= shard->first_epoch;
    if (incoming->coming && !incoming->skipped && arrived) /* E7 */
        digest_store_drop(digest, shard);
}

static void raise_commit(struct digest *digest, struct shard_state *shard, uint64_t version)
{
    uint64_t first, last;
    /* The same at each replica, whatever it has found of earlier epochs. */
    const uint64_t start = version_make(version_epoch(version), 0);
    const bool listed = atomic_load_explicit(&shard->missing, memory_order_relaxed);
    if (atomic_load_explicit(&shard->commit, memory_order_relaxed) < start)
        atomic_store_explicit(&shard->missing, true, memory_order_relaxed); /* D11 */
    if (!apply_commit(shard, version))
        return;
    const uint64_t here = atomic_load_explicit(&shard->version, memory_order_relaxed);
    const uint64_t closed = atomic_load_explicit(&shard->closed, memory_order_relaxed);
    const bool begins = start > closed && here <= closed && shard->met <= closed && /* D9 */
                        shard->open_landed == SHARD_NONE_LANDED;
    if (begins)
        shard_close(shard, start);
    if (start > here)
        atomic_store_explicit(&shard->version, start, memory_order_relaxed);
    if (version_epoch(version) == shard->epoch) { /* its log reconciliation is over */
        shard_cover(shard);
        suffix_clear(&shard->below.found);
        shard->followed = true;
    }
    digest_settle(digest, shard);
    if (begins) {
        atomic_store_explicit(&digest->common->rows_owed, true, memory_order_release);
        inbox_wake(&digest->role.outbox);
    }
    if (listed)
        return;
    const bool missing = prefix_hole(&shard->prefix, version, &first, &last);
    atomic_store_explicit(&shard->missing, missing, memory_order_relaxed);
    if (!missing)
        return;
    shard->asked_last = shard->sought = 0;
    LIST_APPEND(&digest->missing, shard, missing_link);
}

static void begin_epoch(struct digest *digest, const struct command_begun *begun)
{
    struct shard_state *shard = digest->shards[begun->shard];
    if (shard && shard->epoch == begun->epoch)
        raise_commit(digest, shard, version_make(begun->epoch, 0));
}

/* Those of epochs before this replica's first speak of another set of replicas. One of the epoch before the present comes
 * while that goes on (worker_epoch.c). */
static void apply_commits(struct digest *digest, const struct entry_header *header, uint64_t offset)
{
    struct commit_value value;
    if (apply_decode_commits(header, pm_at(digest->common->pm, offset), &value, NULL)) {
        log_event(LOG_WARN, "commit_garbage", "digest=%u server=%u worker=%u", digest->number,
                  header->client_id, header->operation);
        return;
    }
    for (uint32_t i = 0; i < value.shards; i++) {
        const struct commit_shard row = commit_shard_at(&value, i);
        struct shard_state *shard = digest->shards[row.shard];
        if (shard && version_epoch(row.version) >= shard->first_epoch &&
            version_epoch(row.version) <= shard->epoch)
            raise_commit(digest, shard, row.version);
    }
    for (uint32_t i = 0; i < value.clients; i++) {
        const struct commit_client row = commit_client_at(&value, i);
        acknowledged_told(&digest->acknowledged, row.client, row.lowest);
    }
}

/* --- blocks --- */

/* An entry of a shard or an epoch that this role has not adopted does not come: no version of an epoch is handed out
 * before every role has adopted it. That is the senders' promise, and these are a sender's bytes: not asserted. */
struct shard_state *digest_shard_of(const struct digest *digest, const struct entry_header *header)
{
    struct shard_state *shard = digest->shards[header->shard];
    const uint32_t epoch = version_epoch(header->version);
    if (!shard || epoch < shard->first_epoch || epoch > shard->epoch ||
        (header->type != ENTRY_PUT && header->type != ENTRY_DELETE))
        return NULL;
    return shard;
}

int digest_apply_block(struct digest *digest, const struct digest_block *block)
{
    const struct entry_header *header = &block->header;
    const uint64_t offset = digest->current->offset + block->offset;
    if (!block->shard) {
        if (header->type == ENTRY_COMMIT_VERSIONS)
            apply_commits(digest, header, offset);
        return 0;
    }
    if (header->blocks > 1) {
        if (header->version > block->shard->met)
            block->shard->met = header->version;
        /* Met again: it would wait in the table for blocks that are not met. */
        if (prefix_has(&block->shard->prefix, header->version))
            return 0;
        struct join_entry *joined = join_add(&digest->join, header, offset);
        return joined ? apply_joined(digest, block->shard, header, joined) : 0;
    }
    const struct apply_entry entry =
        apply_make(header, offset, block->key, block->hash, block->hint);
    return apply_and_keep(digest, block->shard, &entry, &block->shard->open_landed);
}

void digest_close_segment(struct digest *digest, uint64_t left)
{
    for (struct shard_state *shard = digest->owned.first; shard; shard = shard->owned_link.next) {
        if (left && shard->landed_in <= left)
            shard->landed_in = 0;
        shard->open_landed = SHARD_NONE_LANDED;
        const uint64_t version = atomic_load_explicit(&shard->version, memory_order_relaxed);
        shard_close(shard, version > shard->met ? version : shard->met);
        digest_settle(digest, shard);
    }
    if (digest->kept_from) {
        digest->kept_from = 0;
        digest_store_release(digest);
    }
}

/* D10. So it is, too, when the last shard of which something lies in the open segment has left. */
void digest_log_closes(void *context)
{
    struct digest *digest = context;
    bool scanned = false;
    for (struct shard_state *shard = digest->owned.first; shard; shard = shard->owned_link.next)
        scanned |= shard->open_landed != SHARD_NONE_LANDED;
    if (!scanned) {
        digest_close_segment(digest, 0);
        return;
    }
    if (!digest->kept_from)
        digest->kept_from = digest->log.allocation;
    digest_store_release(digest);
}

/* E8 */
static void end_log(struct digest *digest, uint64_t *wake_ns)
{
    if (digest->ends_ns > 0 && digest->now_ns >= digest->ends_ns) {
        digest->ends_ns = 0;
        if (digest->log.open)
            log_close(&digest->log);
        inbox_wake(&digest->role.outbox); /* the control role commits it */
    }
    if (digest->ends_ns > 0)
        wake_at(wake_ns, digest->ends_ns);
}

/* --- the role --- */

static void take_shard(struct digest *digest, struct shard_state *shard)
{
    ASSERT(!shard->primary);
    if (!digest->log.store) {
        log_init(&digest->log, digest->common->store, OWNER_DIGEST, digest->number);
        log_watch(&digest->log, digest_log_closes, NULL, digest);
        digest->halves = calloc(store_segments(digest->common->store), sizeof *digest->halves);
        if (!digest->halves)
            server_fail(digest->common, ROWAN_ENOMEM, "no memory for the digest of the backup log");
    }
    if (shard->filling && digest->log.open)
        log_close(&digest->log); /* so that what is copied lies in segments of later allocations */
    if (digest->current && shard->landed_in < digest->current->number)
        shard->landed_in = 0;
    digest->shards[shard->id] = shard;
    digest->frozen += shard->frozen;
    digest_tail_take(digest, shard);
    LIST_APPEND(&digest->owned, shard, owned_link);
}

static void take_segment(struct digest *digest, struct blog_segment *segment)
{
    ASSERT(!digest->current);
    int error = join_init(&digest->join, &digest->common->format);
    if (error) {
        server_fail(digest->common, error, "no memory for the digest of the backup log");
        return;
    }
    digest->join_ready = true;
    digest_enter(digest, segment);
}

static void take_query(struct digest *digest, struct query *query)
{
    struct shard_state *shard = digest->shards[query->shard];
    if (query->kind == QUERY_STORE) {
        digest_store(digest, query);
        return;
    }
    if (query->kind != QUERY_SUFFIX || !shard ||
        version_epoch(atomic_load_explicit(&shard->commit, memory_order_relaxed)) == shard->epoch) {
        query_begin(&digest->queries, query, shard);
        return;
    }
    if (query->suffix.after < shard->suffix.above)
        shard_expose(shard, query->suffix.after, &digest->common->exposures);
    query->suffix.ticket = query->suffix.cursor ? 0 : digest_catch_up_begin(digest);
    query_begin(&digest->waiting, query, shard);
}

/* What had landed before it was asked is in the suffix that is told. */
static void begin_suffixes(struct digest *digest)
{
    struct query *query;
    while ((query = digest->waiting.first) && digest_caught_up(digest, query->suffix.ticket)) {
        LIST_REMOVE(&digest->waiting, query, place);
        query_begin(&digest->queries, query, query->state);
    }
}

/* --- shards that are split --- */

static void freeze(struct digest *digest, struct shard_state *shard, bool frozen)
{
    digest->frozen = digest->frozen + frozen - shard->frozen;
    shard->frozen = frozen;
}

static bool copy_some(struct digest *digest, struct shard_state *parent, uint64_t *wake_ns)
{
    struct split_owner owner = {
        .common = digest->common, .log = &digest->log, .key = digest->key, .parent = parent};
    for (struct shard_state *shard = digest->owned.first; shard; shard = shard->owned_link.next) {
        if (atomic_load_explicit(&shard->parent, memory_order_relaxed) == parent->id)
            owner.children[owner.children[0] != NULL] = shard;
    }
    struct shard_state **child = owner.children;
    if (child[1] && child[1]->work.first_slot < child[0]->work.first_slot) {
        struct shard_state *high = child[0];
        child[0] = child[1];
        child[1] = high;
    }
    const bool any = split_step(&owner, digest->now_ns, wake_ns);
    digest->copied |= any;
    if (split_tells(parent, digest->now_ns, wake_ns))
        role_copied(&digest->role, parent->id, parent->epoch);
    return any;
}

static bool split_some(struct digest *digest, uint64_t *wake_ns)
{
    bool any = false;
    struct shard_state *shard = digest->frozen ? digest->owned.first : NULL;
    for (; shard; shard = shard->owned_link.next) {
        if (shard->frozen)
            any |= copy_some(digest, shard, wake_ns);
    }
    return any;
}

/* Who brought a part of an entry begins anew (worker_fill.c). */
static void enter_epoch(struct digest *digest, const struct command_begun *begun)
{
    struct shard_state *shard = digest->shards[begun->shard];
    shard->epoch = begun->epoch;
    shard->filling = begun->filling;
    freeze(digest, shard, begun->frozen);
    digest_store_drop(digest, shard);
}

static void execute_commands(struct digest *digest)
{
    struct command command;
    const bool all = atomic_load_explicit(&digest->common->handed_out, memory_order_acquire);
    while (command_pop(&digest->role.inbox, &command)) {
        if (role_take(&digest->role, &command))
            continue;
        if (command.kind == COMMAND_SHARD) {
            take_shard(digest, command.shard);
        } else if (command.kind == COMMAND_SEGMENT) {
            take_segment(digest, command.segment);
        } else if (command.kind == COMMAND_CONNECTED) {
            for (struct shard_state *it = digest->missing.first; it; it = it->missing_link.next)
                digest_ask_soon(digest, it);
        } else if (command.kind == COMMAND_BEGUN) {
            begin_epoch(digest, &command.begun);
        } else if (command.kind == COMMAND_EPOCH) {
            enter_epoch(digest, &command.begun);
        } else if (command.kind == COMMAND_RELEASE) {
            digest_release(digest, &command.release);
        } else {
            ASSERT(command.kind == COMMAND_QUERY);
            take_query(digest, command.query);
        }
    }
    digest->has_all = all;
}

/* After work the open segment is looked at soon, then ever more seldom. As long as there is more each time, it stays at
 * the longest interval: a backup is not to wake for what lands, and a sealed segment is told by a note. When that look
 * finds nothing, there is none until a note, or whoever shares this thread, wakes the role; unless it is stuck,
 * which nobody else ends, or waits for versions that are missing, for whose landing nobody wakes it. */
static void plan_look(struct digest *digest, bool busy, uint64_t now_ns, uint64_t *wake_ns)
{
    const bool waits = digest->stuck || digest->missing.first;
    if (digest->look_after_ns == 0 && (busy || waits)) {
        digest->look_after_ns = DIGEST_LOOK_MIN_NS;
        digest->look_ns = now_ns + DIGEST_LOOK_MIN_NS;
    } else if (busy) {
        if (now_ns >= digest->look_ns && digest->look_after_ns < DIGEST_LOOK_MAX_NS)
            digest->look_after_ns *= 2;
        digest->look_ns = now_ns + digest->look_after_ns;
    }
    if (busy || digest->look_after_ns == 0)
        return;
    if (now_ns >= digest->look_ns) {
        digest->look_after_ns *= 2;
        if (digest->look_after_ns > DIGEST_LOOK_MAX_NS)
            digest->look_after_ns = waits ? DIGEST_LOOK_MAX_NS : 0;
        if (digest->look_after_ns == 0)
            return;
        digest->look_ns = now_ns + digest->look_after_ns;
    }
    wake_at(wake_ns, digest->look_ns);
}

/* D6 */
static uint64_t held(const struct digest *digest)
{
    if (!digest->has_all)
        return reclaim_since(&digest->reclaim);
    return digest_store_held(digest);
}

enum poll_result digest_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct digest *digest = role;
    const uint64_t segments = digest->log.segments;
    digest->now_ns = now_ns;
    digest->epoch = reclaim_enter(&digest->common->reclaim, &digest->reclaim);
    execute_commands(digest);
    digest_tail_age(digest);
    digest_catch_up_start(digest);
    bool busy = digest_scan_some(digest);
    busy |= digest_catch_up_step(digest);
    begin_suffixes(digest);
    if (digest->role.part)
        busy |= recover_help(&digest->role.part, now_ns, wake_ns);
    end_log(digest, wake_ns);
    busy |= digest_store_poll(digest, wake_ns);
    busy |= split_some(digest, wake_ns);
    busy |= digest_release_poll(digest);
    busy |= digest_tail_answer(digest);
    if (digest->missing.first || digest->gap != DIGEST_NOWHERE)
        busy |= digest_seek_missing(digest, wake_ns);
    busy |= command_answer(&digest->queries, &digest->role.outbox, digest->common);
    if (digest->log.segments != segments) /* control looks at space, and commits the old segment */
        inbox_wake(&digest->role.outbox);
    plan_look(digest, busy, now_ns, wake_ns);
    reclaim_leave(&digest->reclaim, held(digest));
    return busy ? POLL_BUSY : POLL_IDLE;
}

int digest_create(struct server_common *common, uint32_t number, struct digest **out)
{
    struct digest *digest = calloc(1, sizeof *digest);
    if (!digest)
        return ROWAN_ENOMEM;
    digest->common = common;
    digest->number = number;
    digest->gap = DIGEST_NOWHERE;
    atomic_init(&digest->stores_from, DIGEST_STORES_NOTHING);
    const int error = role_init(&digest->role, common, DIGEST_ASKED);
    if (error) {
        free(digest);
        return error;
    }
    reclaim_join(&common->reclaim, &digest->reclaim);
    *out = digest;
    return 0;
}

void digest_destroy(struct digest *digest)
{
    if (!digest)
        return;
    role_fini(&digest->role);
    for (uint32_t id = 0; id < STORE_SHARD_IDS; id++)
        shard_state_destroy(digest->shards[id]);
    queries_drop(&digest->queries);
    queries_drop(&digest->waiting);
    queries_drop(&digest->stores);
    if (digest->join_ready)
        join_fini(&digest->join);
    free(digest->halves);
    free(digest);
}

struct role *digest_role(struct digest *digest)
{
    return &digest->role;
}

uint64_t digest_entries(const struct digest *digest)
{
    return counter_get(&digest->entries);
}

uint64_t digest_stores_from(const struct digest *digest)
{
    return atomic_load_explicit(&digest->stores_from, memory_order_acquire);
}

bool digest_keeps(const struct digest *digest, uint64_t segment)
{
    return digest->halves &&
           atomic_load_explicit(&digest->halves[segment], memory_order_acquire) > 0;
}

uint64_t digest_fetches(const struct digest *digest)
{
    return counter_get(&digest->fetches);
}
