/* Segments of the backup log that all digest roles have left. One in which something landed is only
 * forgotten; one in which nothing did, because whoever claimed its space has failed, is free again.
 *
 *  L1 A segment is neither forgotten nor used again before it is quiet: until then the fabric may
 *     still name it, and somebody may store into it (F7; design, section 3).
 *  L2 Reuse goes by the steps of store.c: DIRTY, fence, zeros, fence, FREE.
 */
#include <stdlib.h>

#include "common/base/fault.h"
#include "server/control_state.h"

enum leave_step { LEAVE_WAITING, LEAVE_DIRTY, LEAVE_ZEROED, LEAVE_FREE };

void control_leave(struct control *control, struct blog_segment *segment)
{
    segment->leave_step = LEAVE_WAITING;
    segment->next_leaving = control->leaving;
    control->leaving = segment;
}

static bool fence_is_done(struct control *control, const struct blog_segment *segment)
{
    int done = pm_fence_done(control->common->pm, segment->ticket);
    if (done < 0)
        server_fail(control->common, done, SYNC_FAILED);
    return done == 1;
}

/* One of the steps towards FREE; false if it has to wait. */
static bool give_back(struct control *control, struct blog_segment *segment)
{
    struct store *store = control->common->store;
    if (segment->leave_step == LEAVE_WAITING) {
        store_transition(store, segment->segment, SEGMENT_DIRTY);
    } else if (!fence_is_done(control, segment)) {
        return false;
    } else if (segment->leave_step == LEAVE_DIRTY) {
        pm_zero(control->common->pm, segment->offset, STORE_SEGMENT_BYTES);
    } else {
        store_transition(store, segment->segment, SEGMENT_FREE);
        segment->leave_step = LEAVE_FREE;
        return true;
    }
    segment->ticket = pm_fence_start(control->common->pm);
    segment->leave_step++;
    return true;
}

bool control_leave_poll(struct control *control)
{
    bool any = false;
    struct blog_segment **link = &control->leaving;
    while (*link) {
        struct blog_segment *segment = *link;
        bool holds = atomic_load_explicit(&segment->holds_blocks, memory_order_relaxed);
        if (!holds && segment->leave_step != LEAVE_FREE && (segment->quiet || MUTANT(VOID_REUSED)))
            any |= give_back(control, segment);
        if (segment->quiet && (holds || segment->leave_step == LEAVE_FREE)) { /* L1 */
            *link = segment->next_leaving;
            free(segment);
        } else {
            link = &segment->next_leaving;
        }
    }
    return any;
}

void control_leave_close(struct control *control)
{
    while (control->leaving) {
        struct blog_segment *old = control->leaving;
        control->leaving = old->next_leaving;
        free(old);
    }
}
