/* A digest role's way through the segments of the backup log, in the order of posting. What a block means is
 * digest.c's.
 *
 * It is one loop. The scan goes on from whole block to whole block. In front of a place of the open segment that is not
 * whole it waits DIGEST_PATIENCE_NS: mostly a sender is about to fill it. Then it steps over it to the next whole block,
 * if there is one, so that one block holds up nobody else's; and remembers the first such gap. From there it scans
 * again when the segment is sealed, when a version is found missing (D4), and now and then, ever more seldom: what a
 * gap hides may be a commit version.
 *
 *  S1  Any place may still be filled until the segment is sealed, so no gap is given up before.
 *  S2  Blocks behind the first gap are met again, and applied again: that changes nothing (A1). So nothing is noted
 *      about what was applied. What has to be counted once can only be counted in a pass over the whole segment after
 *      it was sealed.
 *  S3  The order of gaps is the order of waiting: all in front of `reached` was waited for once, and is not again.
 *  S4  Nothing is read that the control role has found void, and all that this role has read it finds whole, which
 *      counts (control_shut_out.c). So the role asks what is void behind the checksums of its blocks.
 *
 * A few blocks at a time go through stages, each of which keeps what it found out: whole (checksum), key's hash and
 * index bucket, the entry that the index has, application. So cache misses overlap.
 */
#include "common/base/bytes.h"
#include "common/base/fault.h"
#include "server/digest/digest_state.h"

enum {
    DIGEST_BATCH = 16, /* blocks that go through the stages together */
    DIGEST_BATCHES_PER_POLL = 4,
    DIGEST_LOOKS_AHEAD =
        64, /* entry_scan_next at most, in one step of the search for what is behind a gap */
};

/* From the first gap, without a question. */
#define DIGEST_AGAIN_MIN_NS (64 * NS_PER_MS)
#define DIGEST_AGAIN_NEW_NS NS_PER_S /* at most, once there is one gap more */
#define DIGEST_AGAIN_MAX_NS (32 * NS_PER_S)

/* The scan goes on, from wherever it stands. */
static void stop_waiting(struct digest *digest)
{
    digest->wait_ns = 0;
    digest->ahead = 0;
}

/* --- segments --- */

void digest_enter(struct digest *digest, struct blog_segment *segment)
{
    digest->current = segment;
    digest->gap = DIGEST_NOWHERE;
    digest->reached = 0;
    stop_waiting(digest);
    digest->catch_up.reached = false;
    digest->catch_up.ahead = NULL;
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
    digest_close_segment(digest, old->number);
    digest_enter(digest, next);
    atomic_fetch_add_explicit(&old->digested, 1, memory_order_release);
    inbox_wake(&digest->role.outbox); /* the control role takes it back when all have left */
    return true;
}

/* --- gaps --- */

void digest_scan_again(struct digest *digest)
{
    if (digest->reached < digest->scan.position)
        digest->reached = digest->scan.position;
    digest->scan.position = digest->gap;
    digest->gap = DIGEST_NOWHERE;
    stop_waiting(digest);
    digest->again_ns = digest->now_ns;
    if (digest->again_after_ns < DIGEST_AGAIN_MAX_NS)
        digest->again_after_ns *= 2;
    digest_seek(digest);
}

/* A gap that was not known. Scans for those that are known are not put off. */
static void plan_again(struct digest *digest)
{
    if (digest->gap == DIGEST_NOWHERE) {
        digest->again_ns = digest->now_ns;
        digest->again_after_ns = DIGEST_AGAIN_MIN_NS;
    } else if (digest->again_after_ns > DIGEST_AGAIN_NEW_NS) {
        digest->again_after_ns = DIGEST_AGAIN_NEW_NS;
    }
}

static bool is_waited_for(struct digest *digest)
{
    if (digest_is_behind(digest) || digest_hurries(digest))
        return true; /* S3 */
    if (digest->wait_ns == 0)
        digest->wait_ns = digest->now_ns;
    return digest->now_ns - digest->wait_ns >= DIGEST_PATIENCE_NS;
}

/* The scan of the open segment stands in front of what is not whole. False if there is nothing to do but wait; the
 * search for the next whole block goes on where it ended the last time. */
static bool step_over(struct digest *digest)
{
    const uint32_t position = digest->scan.position;
    struct entry_scan ahead = digest->scan;
    enum entry_scan_result result = ENTRY_SCAN_STOPPED;
    struct entry_header header;
    uint32_t offset, bytes;
    if (!is_waited_for(digest))
        return false;
    if (digest->ahead > position)
        ahead.position = digest->ahead;
    for (unsigned i = 0; i < DIGEST_LOOKS_AHEAD && result == ENTRY_SCAN_STOPPED; i++)
        result = entry_scan_next(&ahead, false, &header, &offset, &bytes);
    digest->ahead = ahead.position;
    if (result == ENTRY_SCAN_STOPPED && ahead.position < ahead.bytes)
        return true;
    if (result != ENTRY_SCAN_BLOCK) { /* nothing has landed behind it */
        digest->reached = position;
        stop_waiting(digest);
        digest->wait_ns = digest->now_ns;
        digest->catch_up.reached = true;
        return false;
    }
    if (!digest_is_behind(digest))
        plan_again(digest);
    if (digest->gap == DIGEST_NOWHERE)
        digest->gap = position;
    digest->scan.position = offset;
    stop_waiting(digest);
    return true;
}

/* --- blocks --- */

/* What was passed over in a sealed segment is torn, or somebody stores there who was given up: not quiet, then. */
static void note_torn(const struct digest *digest, uint32_t from, uint32_t to)
{
    if (!bytes_are_zero(digest->scan.base + from, to - from))
        atomic_store_explicit(&digest->current->torn, true, memory_order_relaxed);
}

/* Stage 1: the next whole blocks. Returns their number; *end says what came behind the last. */
static unsigned find_blocks(struct digest *digest, bool sealed, struct digest_block *blocks,
                            enum entry_scan_result *end)
{
    const unsigned most = FAULT(SHORT_BATCH) ? 1 : DIGEST_BATCH;
    unsigned count = 0;
    do {
        struct digest_block *block = &blocks[count];
        const uint32_t from = digest->scan.position;
        uint32_t bytes;
        *end = entry_scan_next(&digest->scan, !sealed, &block->header, &block->offset, &bytes);
        if (sealed)
            note_torn(digest, from,
                      *end == ENTRY_SCAN_BLOCK ? block->offset : digest->scan.position);
        count += *end == ENTRY_SCAN_BLOCK;
    } while (*end == ENTRY_SCAN_BLOCK && count < most);
    return count;
}

static bool is_void(const struct blog_voids *voids, uint32_t offset)
{
    for (uint32_t i = 0; i < voids->count; i++) {
        if (offset >= voids->ranges[i].begin && offset < voids->ranges[i].end)
            return true;
    }
    return false;
}

/* S4. In front of what is not decided yet the scan stands still. Returns how many blocks are left. */
static unsigned leave_out_void(struct digest *digest, bool sealed, struct digest_block *blocks,
                               unsigned count)
{
    struct blog_voids *_Atomic *place = &digest->current->voids;
    /* What is void is published before the segment is sealed. Else the order to the other role's publishing must be that
     * of all that either of them read before or reads then: a load has no part in that order. */
    const struct blog_voids *voids =
        sealed ? atomic_load_explicit(place, memory_order_acquire)
               : atomic_fetch_add_explicit(place, 0, memory_order_acq_rel);
    unsigned left = 0;
    for (unsigned i = 0; i < count && voids; i++) {
        if (!is_void(voids, blocks[i].offset)) {
            blocks[left++] = blocks[i];
        } else if (voids->undecided) {
            digest->scan.position = blocks[i].offset;
            digest->stuck = true;
            break;
        }
    }
    return voids ? left : count;
}

/* Stages 2 and 3. */
static void look_up(const struct digest *digest, struct digest_block *blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct digest_block *block = &blocks[i];
        block->key = NULL;
        block->shard = digest_shard_of(digest, &block->header);
        if (!block->shard || block->header.blocks > 1)
            continue;
        block->key = digest->scan.base + block->offset + ENTRY_HEADER_BYTES;
        block->hash = index_hash(block->key, block->header.key_bytes);
        block->bucket = index_prefetch(block->shard->index, block->hash);
    }
    for (unsigned i = 0; i < count; i++) {
        struct digest_block *block = &blocks[i];
        if (block->key)
            block->hint = index_prefetch_entry(block->shard->index, block->bucket, block->hash);
    }
}

/* For the fault site: does anybody notice the loss of the block? Of what is left of earlier epochs no commit version
 * tells, and of a lost commit version nothing but the next one. */
static bool is_missed(const struct digest_block *block)
{
    return block->shard && version_epoch(block->header.version) == block->shard->epoch;
}

/* Stage 4. False: one cannot be applied now, and the scan stands in front of it (D2); or it already does. */
static bool apply_blocks(struct digest *digest, const struct digest_block *blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const bool lost = is_missed(&blocks[i]) && FAULT(BLOCK_LOST);
        if (!lost && digest_apply_block(digest, &blocks[i])) {
            digest->scan.position = blocks[i].offset;
            digest->stuck = true;
            return false;
        }
    }
    return !digest->stuck; /* S4 */
}

/* One step of the scan; false if there is nothing to do now. */
static bool scan_step(struct digest *digest)
{
    struct digest_block blocks[DIGEST_BATCH];
    enum entry_scan_result end;
    /* Read before the scan: what landed before the sealing is seen by a scan that starts after. */
    const bool sealed = atomic_load_explicit(&digest->current->sealed, memory_order_acquire);
    if (sealed && digest->gap != DIGEST_NOWHERE)
        digest_scan_again(digest);
    digest->stuck = false;
    const unsigned found = find_blocks(digest, sealed, blocks, &end);
    if (found > 0) {
        stop_waiting(digest);
        const unsigned count = leave_out_void(digest, sealed, blocks, found);
        look_up(digest, blocks, count);
        return apply_blocks(digest, blocks, count);
    }
    if (end == ENTRY_SCAN_STOPPED)
        return sealed || step_over(digest);
    if (sealed && leave(digest))
        return true;
    digest->catch_up.reached = true;
    return false;
}

bool digest_scan_some(struct digest *digest)
{
    unsigned steps = 0;
    if (!digest->current || FAULT(LATE_ROLE))
        return false;
    while (scan_step(digest) && ++steps < DIGEST_BATCHES_PER_POLL && !FAULT(SHORT_BATCH))
        ;
    return steps > 0;
}
