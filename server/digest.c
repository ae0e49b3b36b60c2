/* A digest role. All digest roles scan every segment of the backup log; each applies only the
 * entries of its own shards, conditionally on version, so that landing order, duplicates and
 * several senders do not matter.
 *
 * Invariants:
 *  D1  Only a checksum admits an entry (design, H6).
 *  D2  A block of an entry is never dropped for want of memory or space: the scan stays in front of
 *      it and tries again (H16).
 *  D3  A segment is left only when all of it was scanned after it was sealed.
 *  D4  What a commit version covers landed in front of it. So when it is scanned, a version up to it
 *      that is not there is lost, unless it lies in what was passed over: all of that is looked at first.
 *
 * Passing over. In the open segment a block that is not whole is mostly one that a sender is about to
 * complete, so the scan waits in front of it. When it stays so for DIGEST_PATIENCE_NS and there are
 * whole blocks behind, it is damaged or its sender has stopped: the scan goes on behind it, so that one
 * block holds up nobody else's, and comes back when it is whole or the segment is sealed (D3). Any block of
 * such a gap may be completed, and its bytes may have many checksums computed in vain: a look at all gaps takes
 * many polls, a bounded part every DIGEST_LOOK_MIN_NS. There is one when a question is due, and ever more seldom
 * without: what a gap hides may be the commit version itself.
 */
#include "server/digest.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/entry/commit.h"
#include "server/digest_state.h"

enum {
    DIGEST_BLOCKS_PER_POLL = 64,
    DIGEST_PREFETCH = 16,           /* blocks that are looked at before they are scanned */
    DIGEST_AHEAD_BYTES = 256 << 10, /* how far to look for whole blocks behind one that is not */
};
#define NOWHERE UINT32_MAX /* no position in a segment */

/* How soon to look at the open segment again: nobody wakes a digest role for what lands in it. And at gaps. */
#define DIGEST_LOOK_MIN_NS (2 * NS_PER_MS)
#define DIGEST_LOOK_MAX_NS (64 * NS_PER_MS)

/* How long to wait in front of a block that is not whole. */
#define DIGEST_PATIENCE_NS (50 * NS_PER_MS)

/* How soon to ask again for versions that are missing; twice as long each time, up to the second. */
#define DIGEST_ASK_MIN_NS NS_PER_S
#define DIGEST_ASK_MAX_NS (32 * NS_PER_S)

/* --- applying --- */

/* Makes the contiguous, checked entry at `offset` the newest of its key, if it is. Errors:
 * ROWAN_ENOMEM. */
static int apply(struct digest *digest, struct shard_state *shard,
                 const struct entry_header *header, uint64_t offset)
{
    const void *at = pm_at(digest->common->pm, offset);
    const uint8_t *key = entry_key_in_place(&digest->common->format, header, at, digest->key);
    uint64_t previous;
    if (FAULT(NO_MEMORY))
        return ROWAN_ENOMEM;
    int result = index_update(shard->index, index_hash(key, header->key_bytes), key,
                              header->key_bytes, header->version, offset, &previous);
    if (result < 0)
        return result;
    dense_add(&shard->dense, header->version);
    if (header->version > atomic_load_explicit(&shard->version, memory_order_relaxed))
        atomic_store_explicit(&shard->version, header->version, memory_order_relaxed);
    uint64_t entries = atomic_load_explicit(&digest->entries, memory_order_relaxed);
    atomic_store_explicit(&digest->entries, entries + 1, memory_order_relaxed);
    return 0;
}

/* One that is met again, behind what was passed over or because it was sent twice, is not copied again. It is here
 * when its version arrived in this epoch, for apply alone notes that; what was settled with one before may not be. */
static int apply_joined(struct digest *digest, struct shard_state *shard,
                        const struct entry_header *header, struct join_entry *entry)
{
    uint64_t offset = entry->offsets[0];
    int error = 0;
    if (version_epoch(header->version) == shard->epoch &&
        dense_has(&shard->dense, header->version)) {
        join_remove(entry);
        return 0;
    }
    if (FAULT(NO_SEGMENT))
        error = ROWAN_EFULL;
    else if (!join_is_contiguous(entry, &digest->common->format, header))
        error = join_copy(entry, &digest->common->format, header, &digest->log, &offset);
    if (!error)
        error = apply(digest, shard, header, offset);
    if (!error)
        join_remove(entry);
    return error;
}

/* --- commit versions --- */

static void raise_commit(struct digest *digest, struct shard_state *shard, uint64_t version)
{
    uint64_t first, last;
    if (version <= atomic_load_explicit(&shard->commit, memory_order_relaxed))
        return;
    atomic_store_explicit(&shard->commit, version, memory_order_relaxed);
    dense_settle(&shard->dense, version_epoch(version));
    tail_clear(&shard->tail); /* the union of this epoch is over */
    if (atomic_load_explicit(&shard->missing, memory_order_relaxed) ||
        !dense_hole(&shard->dense, version, &first, &last))
        return;
    atomic_store_explicit(&shard->missing, true, memory_order_relaxed);
    shard->asked_last = shard->sought = 0;
    shard->next_missing = digest->missing;
    digest->missing = shard;
}

/* Those of other epochs speak of another set of replicas. */
static void take_commit(struct digest *digest, const struct entry_header *header, uint64_t offset)
{
    struct commit_value value;
    if (header->blocks != 1 || header->key_bytes != 0 ||
        commit_decode(pm_at(digest->common->pm, offset + ENTRY_HEADER_BYTES), header->value_bytes,
                      &value)) {
        log_event(LOG_WARN, "commit_garbage", "digest=%u server=%u worker=%u", digest->number,
                  header->client_id, header->operation);
        return;
    }
    for (uint32_t i = 0; i < value.shards; i++) {
        const struct commit_shard row = commit_shard_at(&value, i);
        struct shard_state *shard = digest->shards[row.shard];
        if (shard && version_epoch(row.version) == shard->epoch)
            raise_commit(digest, shard, row.version);
    }
}

/* After a question for [first, last]; those in front of it came meanwhile, if any. */
static void plan_question(struct shard_state *shard, uint64_t first, uint64_t last, uint64_t now_ns)
{
    bool moved = shard->asked_last == 0 || first > shard->asked_first;
    shard->ask_after_ns = moved ? DIGEST_ASK_MIN_NS : 2 * shard->ask_after_ns;
    if (shard->ask_after_ns > DIGEST_ASK_MAX_NS)
        shard->ask_after_ns = DIGEST_ASK_MAX_NS;
    shard->ask_ns = now_ns + shard->ask_after_ns;
    shard->asked_first = first;
    shard->asked_last = last;
}

/* When the next question is due; shards that lack nothing any more leave the list. */
static uint64_t next_question_ns(struct digest *digest)
{
    uint64_t next_ns = WAKE_NEVER;
    struct shard_state **link = &digest->missing;
    while (*link) {
        struct shard_state *shard = *link;
        uint64_t first, last;
        uint64_t commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
        if (!dense_hole(&shard->dense, commit, &first, &last)) {
            atomic_store_explicit(&shard->missing, false, memory_order_relaxed);
            *link = shard->next_missing;
            continue;
        }
        uint64_t due_ns = first > shard->asked_last ? 0 : shard->ask_ns;
        if (due_ns < next_ns)
            next_ns = due_ns;
        link = &shard->next_missing;
    }
    return next_ns;
}

/* Asks for what was sought, once its time has come. True if it asked: nobody wakes this role for the answer. */
static bool ask_for_missing(struct digest *digest)
{
    bool any = false;
    for (struct shard_state *shard = digest->missing; shard; shard = shard->next_missing) {
        uint64_t first, last;
        if (!dense_hole(&shard->dense, shard->sought, &first, &last) ||
            (first <= shard->asked_last && digest->now_ns < shard->ask_ns))
            continue;
        const struct note note = {.kind = NOTE_FETCH,
                                  .fetch = {.shard = shard->id, .first = first, .last = last}};
        /* One that finds no room or memory is as good as one that was lost. */
        if (!MUTANT(FETCH_SKIPPED) && !note_push(&digest->outbox, &note))
            log_event(LOG_WARN, "versions_missing", "shard=%u first=%lx last=%lx", shard->id, first,
                      last);
        plan_question(shard, first, last, digest->now_ns);
        uint64_t fetches = atomic_load_explicit(&digest->fetches, memory_order_relaxed);
        atomic_store_explicit(&digest->fetches, fetches + 1, memory_order_relaxed);
        any = true;
    }
    return any;
}

/* --- taking blocks --- */

/* Errors: the block cannot be taken now; look at it again. */
static int take_block(struct digest *digest, const struct entry_header *header, uint64_t offset)
{
    if (header->type == ENTRY_COMMIT_VERSIONS) {
        take_commit(digest, header, offset);
        return 0;
    }
    struct shard_state *shard = digest->shards[header->shard];
    if (!shard || version_epoch(header->version) < shard->first_epoch ||
        version_epoch(header->version) > shard->epoch ||
        (header->type != ENTRY_PUT && header->type != ENTRY_DELETE))
        return 0;
    if (header->blocks == 1)
        return apply(digest, shard, header, offset);
    struct join_entry *entry = join_add(&digest->join, header, offset);
    return entry ? apply_joined(digest, shard, header, entry) : 0;
}

/* --- scanning --- */

static void enter(struct digest *digest, struct blog_segment *segment)
{
    digest->current = segment;
    digest->stop = NOWHERE;
    digest->gap_count = digest->reached = 0;
    digest->looking = false;
    entry_scan_init(&digest->scan, &digest->common->format,
                    pm_at(digest->common->pm, segment->offset), STORE_SEGMENT_BYTES, 0);
    entry_scan_stride(&digest->scan, fabric_caps(digest->common->fabric)->landing_stride);
}

/* To the next segment. The old one may be freed as soon as it was left, so its successor is taken
 * first; the control role posts ahead, so there is one unless the PM is full. */
static bool leave(struct digest *digest)
{
    struct blog_segment *old = digest->current;
    struct blog_segment *next = atomic_load_explicit(&old->next, memory_order_acquire);
    if (!next)
        return false;
    enter(digest, next);
    atomic_fetch_add_explicit(&old->digested, 1, memory_order_release);
    inbox_wake(&digest->outbox); /* the control role takes it back when all have left */
    return true;
}

/* Back to that position in what was passed over: what lies behind it is met again. */
static void go_back(struct digest *digest, uint32_t number, uint32_t position)
{
    struct gap *gap = &digest->gaps[number];
    if (digest->scan.position > digest->reached)
        digest->reached = digest->scan.position;
    digest->scan.position = position;
    digest->stop = NOWHERE;
    digest->gap_count = number;
    digest->looking = false;
    if (position > gap->start) {
        gap->end = position;
        digest->gap_count++;
    }
}

/* What a look that begins now can find missing is committed by now: all of that landed before. */
static void begin_look(struct digest *digest)
{
    digest->looking = true;
    digest->look_gap = digest->look_position = 0;
    for (struct shard_state *shard = digest->missing; shard; shard = shard->next_missing)
        shard->sought = atomic_load_explicit(&shard->commit, memory_order_relaxed);
}

enum look { LOOK_GOES_ON, LOOK_FOUND, LOOK_DONE };

/* The next part of a look at the gaps. FOUND: a block in one of them is whole by now, and the scan is back there. */
static enum look look_on(struct digest *digest)
{
    if (digest->look_gap == digest->gap_count)
        return LOOK_DONE;
    if (digest->now_ns < digest->look_gaps_ns)
        return LOOK_GOES_ON;
    digest->look_gaps_ns = digest->now_ns + DIGEST_LOOK_MIN_NS;
    const struct gap *gap = &digest->gaps[digest->look_gap];
    struct entry_scan scan = digest->scan;
    struct entry_header header;
    uint32_t offset, bytes;
    scan.bytes = gap->end;
    scan.position = digest->look_position > gap->start ? digest->look_position : gap->start;
    switch (entry_scan_next(&scan, false, &header, &offset, &bytes)) {
    case ENTRY_SCAN_BLOCK:
        go_back(digest, digest->look_gap, offset);
        return LOOK_FOUND;
    case ENTRY_SCAN_STOPPED:
        digest->look_position = scan.position;
        return LOOK_GOES_ON;
    case ENTRY_SCAN_END:
        break;
    }
    return ++digest->look_gap == digest->gap_count ? LOOK_DONE : LOOK_GOES_ON;
}

static void end_look(struct digest *digest)
{
    digest->looking = false;
    digest->seek_ns = digest->now_ns + digest->seek_after_ns;
    if (digest->seek_after_ns < DIGEST_ASK_MAX_NS)
        digest->seek_after_ns *= 2;
}

/* Looks for what is missing where it may be (D4), then asks for it. True if there is more to do at once. */
static bool seek_missing(struct digest *digest, uint64_t *wake_ns)
{
    uint64_t next_ns = next_question_ns(digest);
    if (digest->gap_count && digest->seek_ns < next_ns)
        next_ns = digest->seek_ns;
    if (next_ns <= digest->now_ns) {
        if (!digest->looking)
            begin_look(digest);
        enum look look = look_on(digest);
        if (look == LOOK_DONE)
            end_look(digest);
        if (look == LOOK_FOUND || (look == LOOK_DONE && ask_for_missing(digest)))
            return true;
        bool over = look == LOOK_DONE && !digest->missing;
        next_ns = over ? digest->seek_ns : digest->look_gaps_ns;
    }
    if (next_ns < *wake_ns)
        *wake_ns = next_ns;
    return false;
}

/* The scan of the open segment has stopped in front of what is no whole block. True if it can go on:
 * behind that, or because it is whole now. */
static bool pass_over(struct digest *digest)
{
    uint32_t position = digest->scan.position;
    if (digest->stop != position) {
        digest->stop = position;
        digest->stop_ns = digest->now_ns;
        return false;
    }
    if (digest->now_ns - digest->stop_ns < DIGEST_PATIENCE_NS)
        return false;
    digest->stop_ns = digest->now_ns;
    struct entry_scan ahead = digest->scan;
    enum entry_scan_result result;
    struct entry_header header;
    uint32_t offset, bytes;
    do
        result = entry_scan_next(&ahead, false, &header, &offset, &bytes);
    while (result == ENTRY_SCAN_STOPPED && ahead.position - position < DIGEST_AHEAD_BYTES);
    if (result != ENTRY_SCAN_BLOCK)
        return false;
    digest->seek_after_ns = DIGEST_LOOK_MAX_NS;
    digest->seek_ns = digest->now_ns + DIGEST_LOOK_MAX_NS;
    if (offset > position && digest->gap_count < DIGEST_GAPS)
        digest->gaps[digest->gap_count++] = (struct gap){position, offset};
    digest->scan.position = offset;
    return true;
}

/* For the mutant: is there nothing behind the block at which a sealed segment's scan has arrived? */
static bool is_last(const struct digest *digest, bool sealed)
{
    struct entry_scan ahead = digest->scan;
    struct entry_header header;
    uint32_t offset, bytes;
    return sealed && entry_scan_next(&ahead, false, &header, &offset, &bytes) == ENTRY_SCAN_END;
}

/* For the fault site: does anybody notice the loss of the block? Of earlier epochs only unions bring entries, and no
 * commit version says which. */
static bool is_missed(const struct digest *digest, const struct entry_header *header)
{
    const struct shard_state *shard = digest->shards[header->shard];
    return header->type == ENTRY_COMMIT_VERSIONS ||
           (shard && version_epoch(header->version) == shard->epoch);
}

/* One step of the scan; false if there is nothing to do now. */
static bool scan_step(struct digest *digest)
{
    /* Read before the scan: what landed before the sealing is seen by a scan that starts after. */
    bool sealed = atomic_load_explicit(&digest->current->sealed, memory_order_acquire);
    if (sealed && digest->gap_count > 0)
        go_back(digest, 0, digest->gaps[0].start);
    struct entry_header header;
    uint32_t offset, bytes;
    switch (entry_scan_next(&digest->scan, !sealed, &header, &offset, &bytes)) {
    case ENTRY_SCAN_BLOCK:
        if ((is_missed(digest, &header) && FAULT(BLOCK_LOST)) ||
            (MUTANT(LAST_SKIPPED) && is_last(digest, sealed)))
            return true;
        digest->stuck = take_block(digest, &header, digest->current->offset + offset) != 0;
        if (digest->stuck)
            digest->scan.position = offset;
        return !digest->stuck;
    case ENTRY_SCAN_STOPPED:
        return sealed || pass_over(digest);
    case ENTRY_SCAN_END:
        return sealed && leave(digest);
    }
    return false;
}

/* Lets the cache misses of the next blocks' index items overlap: those of the buckets, then those of the
 * entries that the items point to. What is found here is believed by nobody. */
static void prefetch_ahead(const struct digest *digest)
{
    const struct entry_scan *scan = &digest->scan;
    const struct index *indexes[DIGEST_PREFETCH];
    uint64_t hashes[DIGEST_PREFETCH];
    uint32_t position = scan->position, bytes;
    unsigned count = 0;
    struct entry_header header;
    const uint8_t *key;
    for (unsigned i = 0; i < DIGEST_PREFETCH;
         i++, position = entry_scan_behind(scan, position, bytes)) {
        if (!entry_guess(scan->format, scan->base + position, scan->bytes - position, &header, &key,
                         &bytes))
            break;
        const struct shard_state *shard = digest->shards[header.shard];
        if (!shard || (header.type != ENTRY_PUT && header.type != ENTRY_DELETE))
            continue;
        indexes[count] = shard->index;
        hashes[count] = index_hash(key, header.key_bytes);
        index_prefetch(indexes[count], hashes[count]);
        count++;
    }
    for (unsigned i = 0; i < count; i++)
        index_prefetch_entry(indexes[i], hashes[i]);
}

static bool scan_some(struct digest *digest)
{
    if (!digest->current || FAULT(LATE_ROLE))
        return false;
    unsigned steps = 0;
    do {
        if (steps % DIGEST_PREFETCH == 0)
            prefetch_ahead(digest);
    } while (scan_step(digest) && ++steps < DIGEST_BLOCKS_PER_POLL && !FAULT(SHORT_BATCH));
    return steps > 0;
}

/* --- the role --- */

static void take_shard(struct digest *digest, struct shard_state *shard)
{
    ASSERT(!shard->primary);
    digest->shards[shard->id] = shard;
}

static void take_segment(struct digest *digest, struct blog_segment *segment)
{
    ASSERT(!digest->current);
    log_init(&digest->log, digest->common->store, OWNER_DIGEST, digest->number);
    int error = join_init(&digest->join, &digest->common->format);
    if (error) {
        server_fail(digest->common, error, "no memory for the digest of the backup log");
        return;
    }
    digest->join_ready = true;
    enter(digest, segment);
}

static void take_notes(struct digest *digest)
{
    struct note note;
    while (note_pop(&digest->inbox, &note)) {
        if (note.kind == NOTE_SHARD) {
            take_shard(digest, note.shard);
        } else if (note.kind == NOTE_SEGMENT) {
            take_segment(digest, note.segment);
        } else if (note.kind == NOTE_TAIL) {
            tail_jobs_add(&digest->tails, note.tail, digest->shards[note.tail->shard],
                          digest->common->pm, &digest->common->format);
        } else {
            ASSERT(note.kind == NOTE_DIGEST);
            digest_jobs_add(&digest->jobs, note.job, digest->shards[note.job->shard]);
        }
    }
}

/* After work the open segment is looked at soon, then ever more seldom, then not at all until a
 * note, or whoever shares this thread, wakes the role; unless it is stuck, which nobody else ends, or
 * waits for versions that are missing, for whose landing nobody wakes it. */
static void plan_look(struct digest *digest, bool busy, uint64_t now_ns, uint64_t *wake_ns)
{
    const bool waits = digest->stuck || digest->missing;
    if (busy || (waits && digest->look_after_ns == 0)) {
        digest->look_after_ns = DIGEST_LOOK_MIN_NS;
        digest->look_ns = now_ns + DIGEST_LOOK_MIN_NS;
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
    if (digest->look_ns < *wake_ns && !MUTANT(LOOK_FORGOTTEN))
        *wake_ns = digest->look_ns;
}

enum poll_result digest_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct digest *digest = role;
    digest->now_ns = now_ns;
    take_notes(digest);
    bool busy = scan_some(digest);
    if ((digest->missing || digest->gap_count) && digest->scan.position >= digest->reached)
        busy |= seek_missing(digest, wake_ns);
    busy |= tail_jobs_poll(&digest->tails, &digest->outbox);
    busy |= digest_jobs_poll(&digest->jobs, &digest->outbox, digest->common->pm,
                             &digest->common->format);
    plan_look(digest, busy, now_ns, wake_ns);
    return busy ? POLL_BUSY : POLL_IDLE;
}

int digest_create(struct server_common *common, uint32_t number, struct digest **out)
{
    struct digest *digest = calloc(1, sizeof *digest);
    if (!digest)
        return ROWAN_ENOMEM;
    digest->common = common;
    digest->number = number;
    int error = inbox_init(&digest->inbox, NOTE_CAPACITY);
    if (error)
        goto fail;
    error = inbox_init(&digest->outbox, NOTE_CAPACITY);
    if (error)
        goto fail_inbox;
    *out = digest;
    return 0;

fail_inbox:
    inbox_fini(&digest->inbox);
fail:
    free(digest);
    return error;
}

void digest_destroy(struct digest *digest)
{
    if (!digest)
        return;
    note_drain(&digest->inbox);
    note_drain(&digest->outbox);
    inbox_fini(&digest->outbox);
    inbox_fini(&digest->inbox);
    for (uint32_t id = 0; id < STORE_SHARD_IDS; id++)
        shard_state_destroy(digest->shards[id]);
    digest_jobs_drop(&digest->jobs);
    tail_jobs_drop(&digest->tails);
    if (digest->join_ready)
        join_fini(&digest->join);
    free(digest);
}

struct inbox *digest_inbox(struct digest *digest)
{
    return &digest->inbox;
}

struct inbox *digest_outbox(struct digest *digest)
{
    return &digest->outbox;
}

uint64_t digest_entries(const struct digest *digest)
{
    return atomic_load_explicit(&digest->entries, memory_order_relaxed);
}

uint64_t digest_fetches(const struct digest *digest)
{
    return atomic_load_explicit(&digest->fetches, memory_order_relaxed);
}
