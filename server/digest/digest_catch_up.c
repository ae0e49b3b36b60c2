/* Passes: the scan takes what has landed, at once. Asked for before a suffix is told, or a shard is handed to a worker.
 *
 * A pass begins in front of the first gap of the current segment, and goes on to the end of what has landed there without
 * waiting. If nothing has landed in the segments behind it, that is all there is. Else the current one is full, and about
 * to be sealed: then the scan leaves it, and the pass goes on in the next.
 *
 *  S5  What had landed when a pass began lies in front of the scan, or behind the first gap, or was applied. So a pass that
 *      was asked for while another one is under way begins anew.
 *  S7  A pass is over, at the latest, in front of a segment in which nothing had landed when it began: what lands meanwhile
 *      is nobody's who waits for it.
 *  S6  Segments behind the current one are zero until something lands there: they were FREE. What has begun to land counts.
 *      Those behind the one in which the control role saw the last begin, before it asked, had nothing.
 */
#include "common/base/bytes.h"
#include "server/digest/digest_state.h"

enum { CATCH_UP_STEP_BYTES = 256 << 10 }; /* looked at in a poll */

uint64_t digest_catch_up_begin(struct digest *digest)
{
    return digest->catch_up.asked = digest->catch_up.begun + 1;
}

void digest_catch_up_start(struct digest *digest)
{
    struct digest_catch_up *all = &digest->catch_up;
    if (all->begun > all->done || all->asked == all->begun)
        return;
    all->begun++;
    all->reached = false;
    all->ahead = NULL;
    all->upto = atomic_load_explicit(&digest->common->begun, memory_order_acquire);
    digest->ahead = 0; /* where nothing was, something may have landed */
    if (digest->gap != DIGEST_NOWHERE)
        digest_scan_again(digest);
}

/* S6. True: something has landed behind the current segment. *any: it was looked at. */
static bool is_behind(struct digest *digest, bool *any)
{
    struct digest_catch_up *all = &digest->catch_up;
    if (!all->ahead) {
        all->ahead = digest->current;
        all->position = STORE_SEGMENT_BYTES;
    }
    if (all->position == STORE_SEGMENT_BYTES) {
        struct blog_segment *next = atomic_load_explicit(&all->ahead->next, memory_order_acquire);
        if (!next || next->number > all->upto)
            return false;
        all->ahead = next;
        all->position = 0;
    }
    const uint32_t left = STORE_SEGMENT_BYTES - all->position;
    const uint32_t bytes = left < CATCH_UP_STEP_BYTES ? left : CATCH_UP_STEP_BYTES;
    *any = true;
    if (!bytes_are_zero(pm_at(digest->common->pm, all->ahead->offset + all->position), bytes))
        return true;
    all->position += bytes;
    return false;
}

bool digest_catch_up_step(struct digest *digest)
{
    struct digest_catch_up *all = &digest->catch_up;
    bool any = false;
    if (all->begun == all->done)
        return false;
    const bool passed = digest->current && digest->current->number > all->upto; /* S7 */
    if (passed) {
        all->done = all->begun;
        return true;
    }
    if (digest->current && !all->reached)
        return false;
    if (digest->current && is_behind(digest, &any)) {
        all->ahead = NULL; /* the segment's sealing is told by a note */
        return false;
    }
    if (!any)
        all->done = all->begun;
    return true;
}
