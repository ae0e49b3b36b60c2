/* shm_rowan.c - Rowan sends, the sender's side of a landing zone on this host. The owner's side,
 * and why segments close and seal as they do, is in shm_zone.c.
 *
 * fabric_rowan_add notes a pointer, fabric_rowan_post ends a batch, and shm_rowan_push (at flush,
 * and at each poll while something waits) takes all posted blocks that fit through these steps:
 *
 *   S1 intent = n (seq_cst), n being the segment that the position is in; then: revoked? stop.
 *   S2 compare-and-set the position from (n, i, at) to (n, i + 1, at + strides): claim i of segment
 *      n, and the strides from `at`, are ours. Where n has changed, from S1 again. Where no block
 *      fits, or the claims are used up, set it to (n, i, FULL) instead, and go on at S2'.
 *      S2' whoever sees FULL helps (zone_advance): closed[n] = i claims, then (n + 1, 0, 0), then
 *      rings the owner, who posts another segment. n + 1 may be not posted yet: the zone is dry,
 *      the blocks wait (F8), `want` asks the owner to ring us.
 *   S3 copy the blocks to the peer's memory.
 *   S4 start a fence, then compare-and-set claim i from EMPTY to DONE, with its place. If the owner has made it
 *      VOID the blocks do not count, whatever of them is there: the connection breaks (F3).
 *   S5 intent = none (release).
 *   S6 the fence is done, that of all claims before too, and we are not revoked: LANDED (F2).
 *
 * 1. landed <= stored <= posted (window.h), in blocks since the beginning.
 * 2. While we may store into segment n our intent is n, and every claim of ours that is not DONE
 *    lies in n. So an owner who sees no living sender with intent n knows that n is at rest.
 * 3. A segment's place in PM is read before S2. S2 succeeds only while the position is in n, so at
 *    that moment n was not closed, so its slot had not been given to n + depth: the place read is
 *    n's, however late S3 comes. Read after S2 by a sender that was stopped in between, it could be
 *    that of a segment which others fill.
 * 4. Copies are visible before the claim is DONE: S4 is a locked instruction after the fence's
 *    start, which orders even non-temporal stores (pm.h).
 * 5. revoked, then intent (owner) and intent, then revoked (sender) are all seq_cst: an owner that
 *    finds no intent after it has revoked us has seen our last claim. And since S6 looks after S4,
 *    a batch that is reported as landed was DONE before the owner closed the connection.
 */
#include <sys/mman.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/fabric/shm/shm.h"

enum {
    PUSH_CLAIMS = 4, /* of one shm_rowan_push */
    RETRIES = 1000,  /* lost races of one claim, before the next poll goes on */
};

/* What S1 and S2 took: `blocks` blocks from `stored` on. */
struct claim {
    uint64_t segment;
    uint64_t place; /* of the segment in PM */
    uint32_t index;
    uint32_t stride, strides;
    uint32_t blocks;
};

enum claim_result { CLAIM_TAKEN, CLAIM_NO_SEGMENT, CLAIM_LATER, CLAIM_BROKEN };

shm_step_hook *shm_step_hook_installed;

int shm_rowan_create(struct shm_conn *conn, struct zone_control *control, uint32_t depth,
                     uint32_t sender, struct pm *pm)
{
    struct shm_rowan *rowan;

    if (window_open(&conn->base, sizeof *rowan, SHM_BLOCKS))
        return ROWAN_ENOMEM;
    rowan = (struct shm_rowan *)conn->base.window;
    rowan->control = control;
    rowan->self = &control->senders[sender];
    rowan->pm = pm;
    rowan->depth = depth;
    conn->rowan = rowan;
    return 0;
}

void shm_rowan_destroy(struct shm_rowan *rowan)
{
    if (!rowan)
        return;
    munmap(rowan->control, zone_control_bytes(rowan->depth));
    pm_close(rowan->pm);
}

bool shm_rowan_is_syncing(const struct shm_rowan *rowan)
{
    const struct shm_fence *last = &rowan->fences[(rowan->fence_tail - 1) % SHM_FENCES];

    return shm_rowan_is_fencing(rowan) && pm_fence_done(rowan->pm, last->ticket) == 0;
}

/* --- S1, S2 --- */

bool zone_advance(struct zone_control *control, uint32_t depth, uint64_t position)
{
    const uint64_t segment = position_segment(position);
    _Atomic uint64_t *closed = &control->slots[segment % depth].closed;
    uint64_t before = atomic_load_explicit(closed, memory_order_acquire);

    if (closed_generation(before) < segment + 1)
        atomic_compare_exchange_strong_explicit(closed, &before,
                                                closed_pack(segment, position_claim(position)),
                                                memory_order_acq_rel, memory_order_relaxed);
    return atomic_compare_exchange_strong_explicit(&control->position, &position,
                                                   position_pack(segment + 1, 0, 0),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

/* How many posted blocks fit into `strides`, and how many strides they take. */
static uint32_t fit_blocks(const struct shm_rowan *rowan, uint32_t strides, uint32_t *taken)
{
    const struct window_ring ring = rowan->window.ring;
    uint64_t next = rowan->stored;

    if (strides > CLAIM_STRIDES)
        strides = CLAIM_STRIDES;
    *taken = 0;
    while (next != rowan->window.posted) {
        const uint32_t block = window_block(&ring, next)->bytes / FABRIC_STRIDE;

        if (block > strides - *taken)
            break;
        *taken += block;
        next++;
    }
    return (uint32_t)(next - rowan->stored);
}

/* S2, one try; the intent is set. */
static enum claim_result claim_at(struct shm_conn *conn, uint64_t position, struct claim *out)
{
    struct shm_rowan *rowan = conn->rowan;
    struct zone_control *control = rowan->control;
    const uint64_t segment = position_segment(position);
    const uint32_t index = position_claim(position), stride = position_stride(position);
    const uint64_t place = atomic_load_explicit(&control->slots[segment % rowan->depth].offset,
                                                memory_order_relaxed); /* 3 */
    uint32_t blocks, taken;
    uint64_t next;

    if (stride > ZONE_STRIDES || index > ZONE_CLAIMS || place % FABRIC_STRIDE != 0 ||
        rowan->pm->bytes < FABRIC_SEGMENT_BYTES || place > rowan->pm->bytes - FABRIC_SEGMENT_BYTES)
        return CLAIM_BROKEN;
    blocks = fit_blocks(rowan, ZONE_STRIDES - stride, &taken);
    if (blocks == 0 || index == ZONE_CLAIMS) {
        next = position_pack(segment, index, POSITION_FULL);
        blocks = 0;
    } else {
        next = position_pack(segment, index + 1, stride + taken);
    }
    if (!atomic_compare_exchange_strong_explicit(&control->position, &position, next,
                                                 memory_order_seq_cst, memory_order_relaxed))
        return CLAIM_LATER;
    if (blocks == 0) {
        shm_step(STEP_FULL, conn);
        return CLAIM_LATER;
    }
    *out = (struct claim){.segment = segment,
                          .place = place,
                          .index = index,
                          .stride = stride,
                          .strides = taken,
                          .blocks = blocks};
    return CLAIM_TAKEN;
}

static enum claim_result claim_take(struct shm_conn *conn, struct claim *out)
{
    struct shm_rowan *rowan = conn->rowan;
    struct zone_control *control = rowan->control;
    enum claim_result result = CLAIM_LATER;
    uint64_t intent = 0;

    for (unsigned i = 0; i < RETRIES && result == CLAIM_LATER; i++) {
        const uint64_t position = atomic_load_explicit(&control->position, memory_order_acquire);
        const uint64_t segment = position_segment(position);

        if (position_stride(position) == POSITION_FULL) {
            if (zone_advance(control, rowan->depth, position))
                conn_ring(conn); /* the owner posts in time */
            continue;
        }
        if (segment >= atomic_load_explicit(&control->posted, memory_order_seq_cst)) {
            result = CLAIM_NO_SEGMENT;
            break;
        }
        if (intent != segment + 1) {
            intent = segment + 1;
            atomic_exchange_explicit(&rowan->self->intent, intent, memory_order_seq_cst); /* S1 */
            shm_step(STEP_INTENT, conn);
        }
        if (atomic_load_explicit(&rowan->self->revoked, memory_order_seq_cst)) {
            result = CLAIM_BROKEN;
        } else {
            shm_step(STEP_CHECKED, conn);
            result = claim_at(conn, position, out);
        }
    }
    if (result != CLAIM_TAKEN && intent != 0)
        atomic_store_explicit(&rowan->self->intent, 0, memory_order_release);
    return result;
}

/* --- S3 to S5 --- */

static void copy_blocks(struct shm_rowan *rowan, const struct claim *claim)
{
    const struct window_ring ring = rowan->window.ring;
    uint64_t to = claim->place + (uint64_t)claim->stride * FABRIC_STRIDE;

    for (uint32_t i = 0; i < claim->blocks; i++) {
        const struct window_block *block = window_block(&ring, rowan->stored + i);

        pm_store(rowan->pm, to, block->data, block->bytes);
        to += block->bytes;
    }
}

/* S4. False: it is void. */
static bool claim_finish(struct shm_rowan *rowan, const struct claim *claim)
{
    _Atomic uint64_t *word =
        &rowan->control->slots[claim->segment % rowan->depth].claims[claim->index];
    uint64_t before = atomic_load_explicit(word, memory_order_relaxed);

    return claim_generation(before) < claim->segment + 1 &&
           atomic_compare_exchange_strong_explicit(
               word, &before, claim_pack_done(claim->segment, claim->stride, claim->strides),
               memory_order_seq_cst, memory_order_relaxed);
}

static bool push_claim(struct shm_conn *conn)
{
    struct shm_rowan *rowan = conn->rowan;
    struct claim claim = {0};
    struct shm_fence *fence;
    enum claim_result result = claim_take(conn, &claim);
    bool done;

    rowan->no_segment = result == CLAIM_NO_SEGMENT;
    if (result == CLAIM_BROKEN)
        conn_break(&conn->base, ROWAN_ECLOSED, true);
    if (result != CLAIM_TAKEN)
        return false;
    shm_step(STEP_CLAIMED, conn);
    copy_blocks(rowan, &claim);
    shm_step(STEP_STORED, conn);
    fence = &rowan->fences[rowan->fence_tail % SHM_FENCES];
    fence->ticket = pm_fence_start(rowan->pm);
    done = claim_finish(rowan, &claim);
    shm_step(STEP_DONE, conn);
    atomic_store_explicit(&rowan->self->intent, 0, memory_order_release); /* S5 */
    if (!done) {
        conn_break(&conn->base, ROWAN_ECLOSED, false);
        return false;
    }
    rowan->stored += claim.blocks;
    fence->end = rowan->stored;
    rowan->fence_tail++;
    return true;
}

/* Asks the owner to ring after the next post, then looks once more. */
static bool still_lacks_segment(struct shm_rowan *rowan)
{
    struct zone_control *control = rowan->control;

    atomic_exchange_explicit(&rowan->self->want, 1, memory_order_seq_cst);
    atomic_exchange_explicit(&control->wanted, 1, memory_order_seq_cst);
    return position_segment(atomic_load_explicit(&control->position, memory_order_seq_cst)) >=
           atomic_load_explicit(&control->posted, memory_order_seq_cst);
}

/* While there is none a poll costs two loads. */
static bool lacks_segment(struct shm_rowan *rowan)
{
    const struct zone_control *control = rowan->control;

    return position_segment(atomic_load_explicit(&control->position, memory_order_relaxed)) >=
           atomic_load_explicit(&control->posted, memory_order_relaxed);
}

void shm_rowan_push(struct shm_conn *conn)
{
    struct shm_rowan *rowan = conn->rowan;

    if (rowan->stored == rowan->window.posted || (rowan->no_segment && lacks_segment(rowan)))
        return;
    for (unsigned i = 0; i < PUSH_CLAIMS && rowan->stored != rowan->window.posted; i++) {
        if (rowan->fence_tail - rowan->fence_head == SHM_FENCES)
            return;
        if (push_claim(conn))
            continue;
        if (conn->base.state != CONN_OPEN || !rowan->no_segment || still_lacks_segment(rowan))
            return;
    }
}

/* --- S6 --- */

/* Not when the owner has revoked us; then the connection breaks. */
static bool may_report(struct shm_conn *conn)
{
    if (!atomic_load_explicit(&conn->rowan->self->revoked, memory_order_seq_cst))
        return true;
    conn_break(&conn->base, ROWAN_ECLOSED, true);
    conn->endpoint->woken = true;
    return false;
}

unsigned shm_rowan_poll(struct shm_conn *conn, struct fabric_event *events, unsigned max)
{
    struct shm_rowan *rowan = conn->rowan;

    while (rowan->fence_head != rowan->fence_tail) {
        const struct shm_fence *fence = &rowan->fences[rowan->fence_head % SHM_FENCES];
        const int done = pm_fence_done(rowan->pm, fence->ticket);

        if (done < 0) {
            conn_break(&conn->base, done, false);
            return 0;
        }
        if (done == 0)
            break;
        rowan->window.landed = fence->end;
        rowan->fence_head++;
    }
    return window_has_landed(&rowan->window) && may_report(conn)
               ? window_events(&conn->base, events, max)
               : 0;
}
