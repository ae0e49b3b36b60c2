/* sim_pm.h - a PM map in memory, with a working and a durable image. One thread.
 *
 * The working image is what the program sees: `pm.base`. What the medium holds is kept as the difference: of
 * each store that no finished fence covers, the bytes that it replaced. A power loss decides for every aligned
 * 8-byte word of those whether the old or the new one stays, or, of several stores into it, any of them. A process
 * that ends without its host leaves the working image as it is. Everybody writes through pm_store and pm_zero: pm_flush
 * aborts, as nobody knows what such bytes replaced.
 *
 * A fence takes simulated time, drawn for each between half and all of `fence_ns`; it covers the stores made
 * before it was started. With `durability` below fence tickets are done at once and cover nothing; a sync
 * (pm_sync_start) always is as a fence. Of stores that nothing covers at most 64 MiB are held: the oldest become
 * durable unasked. A ticket from before a power loss is never done.
 */
#ifndef SIM_PM_H
#define SIM_PM_H

#include <stdbool.h>

#include "common/base/random.h"
#include "common/pm/pm.h"
#include "test/sim/sim_clock.h"

struct sim_pm_pending;

/* Is told of every store and zeroing, after it was made; `data` is what lies there now. */
typedef void sim_pm_stored(void *context, uint64_t offset, const uint8_t *data, size_t bytes);

struct sim_pm {
    struct pm pm;
    struct sim_clock *clock;
    uint64_t fence_ns;    /* from the start of a fence until it is done, at most */
    uint64_t last_due_ns; /* when the last of the fences started so far is done */
    uint64_t stores;      /* pm_store and pm_zero calls so far */
    uint64_t fences;      /* pm_fence_start calls so far */
    uint64_t trace;       /* a hash of all these: where, in which order, of which bytes */
    uint64_t seed;        /* 0: a fence takes fence_ns exactly */
    struct random random;
    sim_pm_stored *stored; /* NULL: nobody is told */
    void *stored_context;
    struct sim_pm_pending *pending;
};

/* `bytes` of zeros, which the host hands out page by page; closed by pm_close. Aborts without
 * memory. `fence_ns`, `pm.durability` (PM_FENCE), `seed` and `stored` may be set before the first use. */
struct sim_pm *sim_pm_create(struct sim_clock *clock, uint64_t bytes, uint64_t fence_ns);

/* When the next fence that is still outstanding is done; WAKE_NEVER if none is. */
uint64_t sim_pm_next_ns(const struct sim_pm *sim);

/* Another number each time that fences and syncs have been done. */
uint64_t sim_pm_done(const struct sim_pm *sim);

/* True if a power loss now would leave these bytes as they are. */
bool sim_pm_is_durable(const struct sim_pm *sim, uint64_t offset, size_t bytes);

struct sim_pm_loss {
    uint64_t fences; /* started and not done, of whose stores something is lost */
    uint64_t stores; /* that no finished fence covered */
    uint64_t words;  /* of those, with bytes that differed */
    uint64_t old;    /* of these words, how many are not as the program saw them last */
};

/* The host loses its power. What is left is the working image from now on, and durable. How much is lost is drawn
 * first: all, none, a part of every store, the last stores, ... `lost` (may be NULL) is told of every stretch that is not
 * as it was, as `stored` is. */
struct sim_pm_loss sim_pm_power_loss(struct sim_pm *sim, struct random *random, sim_pm_stored *lost,
                                     void *context);

/* All is zeros, durably. `lost` (may be NULL) is told of all of it at once. */
void sim_pm_replace(struct sim_pm *sim, sim_pm_stored *lost, void *context);

#endif
