/* A digest role's way through the segments of the backup log, in the order of posting: which blocks are taken, and
 * when. What a block means is digest.c's.
 *
 * Passing over. In the open segment a place without a whole block is mostly one that a sender is about to fill, so
 * the scan waits in front of it. When it stays so for DIGEST_PATIENCE_NS and there are whole blocks behind, it
 * is damaged, or its sender has stopped: the scan goes on behind it, so that one block holds up nobody else's. Where
 * there is one such gap there may be many. So it is noted then how far whole blocks reach: all gaps in front of the furthest have been waited for when the
 * patience is over once more, and are passed over together.
 *
 *  S1  A gap is never given up: any place of it may be filled until the segment is sealed, by blocks of a sender whose
 *      later ones were not sent yet as well. From the first gap on what is taken is noted (`taken`), and all in front of
 *      the scan that was not is looked at again: in looks (below), and when the segment is sealed (D3).
 *  S2  Nothing is taken twice from one segment: looks and the scan of what was passed over step over what is taken.
 *
 * Looks. Bytes of a gap may have many checksums computed in vain: a look at all gaps takes many polls, a bounded part
 * every DIGEST_LOOK_MIN_NS. There is one when a question is due (D4), and ever more seldom without: what a gap hides
 * may be the commit version itself.
 */
#include "common/base/assert.h"
#include "common/base/fault.h"
#include "server/digest/digest_state.h"

enum {
    DIGEST_BLOCKS_PER_POLL = 64,
    DIGEST_PREFETCH = 16,           /* blocks that are looked at before they are scanned */
    DIGEST_AHEAD_BYTES = 256 << 10, /* how far to look for whole blocks behind one that is not */
    DIGEST_AHEAD_BLOCKS = 1024,     /* how many of them to look for the furthest */
    DIGEST_LOOK_STRIDES = 1024,     /* in one part of a look */
};

/* How long to wait in front of a block that is not whole. */
#define DIGEST_PATIENCE_NS (50 * NS_PER_MS)

/* --- segments --- */

void digest_enter(struct digest *digest, struct blog_segment *segment)
{
    digest->current = segment;
    digest->stop = digest->gap = DIGEST_NOWHERE;
    digest->seen = digest->waited = digest->reached = 0;
    digest->looking = false;
    taken_clear(&digest->taken);
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
    digest_enter(digest, next);
    atomic_fetch_add_explicit(&old->digested, 1, memory_order_release);
    inbox_wake(&digest->outbox); /* the control role takes it back when all have left */
    return true;
}

/* --- taking --- */

/* For the fault site: does anybody notice the loss of the block? Of earlier epochs only unions bring entries, and no
 * commit version says which. */
static bool is_missed(const struct digest *digest, const struct entry_header *header)
{
    const struct shard_state *shard = digest->shards[header->shard];
    return header->type == ENTRY_COMMIT_VERSIONS ||
           (shard && version_epoch(header->version) == shard->epoch);
}

/* All in front of the first gap is taken: without one nothing has to be noted. */
static void note_taken(struct digest *digest, uint32_t from, uint32_t end)
{
    if (digest->gap != DIGEST_NOWHERE)
        taken_add(&digest->taken, from, end);
}

/* Takes the block at `offset`, behind which the scan stands. False: it cannot be taken now, and the scan stands in
 * front of it (D2). */
static bool take(struct digest *digest, struct entry_scan *scan, const struct entry_header *header,
                 uint32_t offset)
{
    const bool lost = is_missed(digest, header) && FAULT(BLOCK_LOST);
    if (!lost && digest_take_block(digest, header, digest->current->offset + offset)) {
        scan->position = offset;
        return false;
    }
    note_taken(digest, offset, scan->position);
    return true;
}

/* --- gaps --- */

/* As entry_scan_next, of what was not taken in front of `end` (S2). */
static enum entry_scan_result scan_gaps(const struct digest *digest, struct entry_scan *scan,
                                        uint32_t end, struct entry_header *header, uint32_t *offset)
{
    const uint32_t all = scan->bytes, from = scan->position;
    enum entry_scan_result result = ENTRY_SCAN_END;
    while (result == ENTRY_SCAN_END) {
        uint32_t bytes;
        scan->position = taken_find(&digest->taken, scan->position, end, false);
        if (scan->position == end)
            break;
        scan->bytes = taken_find(&digest->taken, scan->position, end, true);
        if (scan->position - from >= DIGEST_LOOK_STRIDES * scan->stride)
            result = ENTRY_SCAN_STOPPED;
        else
            result = entry_scan_next(scan, false, header, offset, &bytes);
    }
    scan->bytes = all;
    return result;
}

enum digest_look digest_look_on(struct digest *digest)
{
    if (digest->gap == DIGEST_NOWHERE)
        return DIGEST_LOOK_DONE;
    if (digest->now_ns < digest->look_gaps_ns)
        return DIGEST_LOOK_GOES_ON;
    const uint32_t end = digest->scan.position;
    struct entry_scan scan = digest->scan;
    struct entry_header header;
    uint32_t offset;
    scan.position = digest->look_position > digest->gap ? digest->look_position : digest->gap;
    const enum entry_scan_result result = scan_gaps(digest, &scan, end, &header, &offset);
    const bool found = result == ENTRY_SCAN_BLOCK && take(digest, &scan, &header, offset);
    digest->look_position = scan.position;
    if (!found) {
        digest->look_gaps_ns = digest->now_ns + DIGEST_LOOK_MIN_NS;
        return result == ENTRY_SCAN_END ? DIGEST_LOOK_DONE : DIGEST_LOOK_GOES_ON;
    }
    digest->seek_after_ns = DIGEST_LOOK_MAX_NS;
    digest->gap = taken_find(&digest->taken, digest->gap, end, false);
    if (digest->gap == end) {
        digest->gap = DIGEST_NOWHERE;
        digest->looking = false;
    }
    return DIGEST_LOOK_FOUND;
}

/* The segment is sealed: back to what was passed over (D3). */
static void go_back(struct digest *digest)
{
    digest->reached = digest->scan.position;
    digest->scan.position = digest->gap;
    digest->gap = digest->stop = DIGEST_NOWHERE;
    digest->looking = false;
}

/* The next whole block behind where the scan stands. */
static bool next_whole(struct entry_scan *ahead, uint32_t *offset)
{
    const uint32_t from = ahead->position;
    enum entry_scan_result result;
    struct entry_header header;
    uint32_t bytes;
    do
        result = entry_scan_next(ahead, false, &header, offset, &bytes);
    while (result == ENTRY_SCAN_STOPPED && ahead->position - from < DIGEST_AHEAD_BYTES);
    return result == ENTRY_SCAN_BLOCK;
}

/* What lies in front of the furthest block that was seen the last time has been waited for since then. */
static void look_ahead(struct digest *digest)
{
    struct entry_scan ahead = digest->scan;
    uint32_t offset;
    if (digest->now_ns - digest->seen_ns < DIGEST_PATIENCE_NS)
        return;
    digest->waited = digest->seen;
    digest->seen_ns = digest->now_ns;
    for (unsigned i = 0; i < DIGEST_AHEAD_BLOCKS && next_whole(&ahead, &offset); i++)
        digest->seen = offset;
}

/* The scan of the open segment has stopped in front of what is no whole block. True if it can go on:
 * behind that, or because it is whole now. */
static bool pass_over(struct digest *digest)
{
    const uint32_t position = digest->scan.position;
    if (digest->stop != position) {
        digest->stop = position;
        digest->stop_ns = digest->now_ns;
    }
    const bool patient = digest->now_ns - digest->stop_ns >= DIGEST_PATIENCE_NS;
    if (patient || digest->gap != DIGEST_NOWHERE)
        look_ahead(digest);
    if (!patient && position >= digest->waited)
        return false;
    digest->stop_ns = digest->now_ns;
    struct entry_scan ahead = digest->scan;
    uint32_t offset;
    if (!next_whole(&ahead, &offset)) {
        digest->waited = position;
        return false;
    }
    digest->seek_after_ns = DIGEST_LOOK_MAX_NS;
    if (digest->gap == DIGEST_NOWHERE || digest->seek_ns > digest->now_ns + DIGEST_LOOK_MAX_NS)
        digest->seek_ns = digest->now_ns + DIGEST_LOOK_MAX_NS; /* never put off */
    if (offset > position && digest->gap == DIGEST_NOWHERE) {
        digest->gap = position;
        taken_add(&digest->taken, 0, position);
    }
    digest->scan.position = offset;
    return true;
}

/* --- scanning --- */

/* What the scan meets next. In the open segment it steps over nothing but whole blocks. */
static enum entry_scan_result next_block(struct digest *digest, bool sealed,
                                         struct entry_header *header, uint32_t *offset)
{
    const uint32_t from = digest->scan.position;
    uint32_t bytes;
    if (from < digest->reached)
        return scan_gaps(digest, &digest->scan, digest->reached, header, offset);
    const enum entry_scan_result result =
        entry_scan_next(&digest->scan, !sealed, header, offset, &bytes);
    if (!sealed)
        note_taken(digest, from, result == ENTRY_SCAN_BLOCK ? *offset : digest->scan.position);
    return result;
}

/* One step of the scan; false if there is nothing to do now. */
static bool scan_step(struct digest *digest)
{
    /* Read before the scan: what landed before the sealing is seen by a scan that starts after. */
    bool sealed = atomic_load_explicit(&digest->current->sealed, memory_order_acquire);
    if (sealed && digest->gap != DIGEST_NOWHERE)
        go_back(digest);
    struct entry_header header;
    uint32_t offset;
    switch (next_block(digest, sealed, &header, &offset)) {
    case ENTRY_SCAN_BLOCK:
        digest->stuck = !take(digest, &digest->scan, &header, offset);
        return !digest->stuck;
    case ENTRY_SCAN_STOPPED:
        return sealed || pass_over(digest);
    case ENTRY_SCAN_END:
        if (digest->scan.position < STORE_SEGMENT_BYTES) /* the end of what was passed over */
            return true;
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

bool digest_scan_some(struct digest *digest)
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
