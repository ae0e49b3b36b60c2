/* pm_tap.h - a tap in the pm seam: a map that is used as any other, and notes every store in a ring that the owner reads,
 * in one order for all who store: threads of the owner, and peers, which get the ring with the map (shm).
 *
 * It wraps a map, so one without a tap pays nothing. A record costs its storer one locked addition and two stores, behind
 * the store itself. Nobody waits: a reader that is behind by more than the ring holds loses records, a storer that stops
 * between its claim and its record loses that one (see pm_tap_read), and both are counted.
 *
 * What the tap cannot see: a device that writes by itself (verbs notes what has landed: pm_tap_note), and peers
 * of a version that knows no tap.
 */
#ifndef PM_PM_TAP_H
#define PM_PM_TAP_H

#include <stdbool.h>

#include "common/pm/pm.h"

enum {
    PM_TAP_REQUEST_BYTES = 64, /* the unit of records */
    PM_TAP_SENDERS = 1 << 20,  /* 0: the owner itself, or not known */
};

struct pm_record {
    uint64_t first;  /* request of the map: offset / PM_TAP_REQUEST_BYTES */
    uint32_t count;  /* requests that were touched, 1 or more */
    uint32_t sender; /* whose store this is, of those given to pm_tap_join and pm_tap_view */
    bool zero;       /* by pm_zero */
};

struct tap_ring;

/* A map as one sender's: what is stored through it carries the number. */
struct pm_view {
    struct pm pm;
    struct pm *inner;
    struct tap_ring *ring;
    uint32_t sender;
};

/* pm_tap_open: the owner's. Owns `inner` on success. Errors: ROWAN_ENOMEM. */
int pm_tap_open(struct pm *inner, struct pm **out);

/* Bytes of the ring's memory, and its descriptor, sealed against another size; -1: `pm` is no owner's tap. */
uint64_t pm_tap_bytes(void);
int pm_tap_fd(const struct pm *pm);

/* pm_tap_join: a peer's, over the memory of an owner's ring, which is unmapped when the map is closed. Owns both on success.
 * Errors: ROWAN_ENOMEM. */
int pm_tap_join(struct pm *inner, void *memory, uint32_t sender, struct pm **out);

/* pm_tap_view: `pm` itself if it is no tap, else the same map as `sender`'s, in `view`, which the caller keeps in
 * place. Not to be closed. */
struct pm *pm_tap_view(struct pm *pm, uint32_t sender, struct pm_view *view);

/* pm_tap_beneath: the map that a tap is around, for a flush of what was written before; any other map is itself. */
struct pm *pm_tap_beneath(struct pm *pm);

/* pm_tap_note: somebody has written these bytes past the seam. Nothing happens if `pm` is no tap. */
void pm_tap_note(struct pm *pm, uint64_t offset, size_t bytes);

/* pm_tap_read: the next record; one thread, the owner's tap. False: there is none yet. It steps over one that was claimed
 * and not written, once PM_TAP_PATIENCE others have been claimed behind it. */
enum { PM_TAP_PATIENCE = 4096 };
bool pm_tap_read(struct pm *pm, struct pm_record *out);

/* Records that were lost so far. The reader's thread. */
uint64_t pm_tap_lost(const struct pm *pm);

#endif
