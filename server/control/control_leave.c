/* Segments of the backup log that all digest roles have left. One in which something landed is only
 * forgotten; one in which nothing did, because the sender that claimed its space was gone, is free again.
 *
 *  L1 A segment is neither forgotten nor used again before it is quiet: until then the fabric may
 *     still name it, and somebody may store into it (F7; design, section 3).
 *  L2 Only a segment of zeros is used again: then there is nothing to zero (store.c, "Reuse"). Bytes that
 *     no digest role could read may be damaged entries that were acknowledged.
 */
#include <stdlib.h>

#include "server/control/control_state.h"

void control_leave(struct control *control, struct blog_segment *segment)
{
    segment->next_leaving = control->leaving;
    control->leaving = segment;
}

/* L2 */
static void give_back(struct store *store, uint64_t segment)
{
    if (!store_segment_is_zero(store, segment, 0, STORE_SEGMENT_BYTES))
        return;
    store_transition(store, segment, SEGMENT_DIRTY);
    store_transition(store, segment, SEGMENT_FREE);
}

bool control_leave_poll(struct control *control)
{
    bool any = false;
    struct blog_segment **link = &control->leaving;
    while (*link) {
        struct blog_segment *segment = *link;
        if (!segment->quiet) { /* L1 */
            link = &segment->next_leaving;
            continue;
        }
        give_back(control->common->store, segment->segment);
        *link = segment->next_leaving;
        free(segment);
        any = true;
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
