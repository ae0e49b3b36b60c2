/* Zeroing segments: the caller's part of "Reuse" in store.c.
 *
 *  1. Each DIRTY segment is zeroed where it is not zeros. One that is FREE and holds bytes becomes
 *     DIRTY first.
 *  2. One fence for all of them.
 *  3. Each DIRTY segment becomes FREE.
 */
#include "server/store/wipe.h"

#define WIPE_STEP_BYTES (STORE_SEGMENT_BYTES / 4)

void wipe_init(struct wipe *wipe, struct store *store, bool check_free)
{
    *wipe = (struct wipe){.store = store, .check_free = check_free};
}

/* One step into the current segment. */
static void zero_some(struct wipe *wipe)
{
    struct store *store = wipe->store;
    enum segment_state state = store_meta(store, wipe->segment).state;
    bool checked = state == SEGMENT_DIRTY || (state == SEGMENT_FREE && wipe->check_free);
    if (checked && !store_segment_is_zero(store, wipe->segment, wipe->position, WIPE_STEP_BYTES)) {
        if (state == SEGMENT_FREE)
            store_transition(store, wipe->segment, SEGMENT_DIRTY);
        pm_zero(store_pm(store), store_segment_offset(store, wipe->segment) + wipe->position,
                WIPE_STEP_BYTES);
        wipe->held_bytes = true;
    }
    wipe->position = checked ? wipe->position + WIPE_STEP_BYTES : STORE_SEGMENT_BYTES;
    if (wipe->position == STORE_SEGMENT_BYTES) {
        wipe->zeroed += wipe->held_bytes;
        wipe->held_bytes = false;
        wipe->position = 0;
        wipe->segment++;
    }
}

int wipe_poll(struct wipe *wipe)
{
    struct store *store = wipe->store;
    if (wipe->segment < store_segments(store)) {
        zero_some(wipe);
        return 0;
    }
    if (!wipe->fencing) {
        wipe->ticket = pm_fence_start(store_pm(store));
        wipe->fencing = true;
    }
    int done = pm_fence_done(store_pm(store), wipe->ticket);
    if (done != 1)
        return done;
    for (uint64_t i = 0; i < store_segments(store); i++) {
        if (store_meta(store, i).state == SEGMENT_DIRTY)
            store_transition(store, i, SEGMENT_FREE);
    }
    return 1;
}
