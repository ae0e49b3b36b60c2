/* wipe.h - makes the DIRTY segments of a store FREE again, in bounded steps.
 *
 * After the host was restarted a segment may be marked FREE and yet hold bytes: its allocation is
 * not fenced (store.c). With `check_free` those are found, and zeroed too.
 */
#ifndef SERVER_WIPE_H
#define SERVER_WIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/pm/pm.h"
#include "server/store/store.h"

struct wipe {
    struct store *store;
    bool check_free;
    bool fencing;
    uint64_t segment;  /* of the next step */
    uint32_t position; /* inside it */
    uint64_t zeroed;   /* segments that held bytes */
    bool held_bytes;   /* the current one does */
    struct pm_ticket ticket;
};

/* Until it is done nobody else makes a segment DIRTY or, with `check_free`, allocates one. */
void wipe_init(struct wipe *wipe, struct store *store, bool check_free);

/* One step: reads, and zeroes if needed, at most 1 MiB. 1: done, all are FREE; 0: more; ROWAN_EIO. */
int wipe_poll(struct wipe *wipe);

#endif
