/* verify.h - reads the PM of the last run before the server reports for duty, and tells what of it is damaged: whole
 * replicas count before damaged ones (cm/cold.h). Nothing is written.
 *
 * Damage is what is neither zero nor whole in a segment that is COMMITTED or closed (torn.h), and a row of the replica table
 * that no copy tells any more. Damage in other segments looks like what a crash left torn; but what lies there is above what the
 * replica table calls settled, and log reconciliation misses it (exceptions: G4 in control_commit.c): that there is some is
 * told, as another replica may have all. Meta words and the superblock are left to the open of the store.
 */
#ifndef SERVER_VERIFY_H
#define SERVER_VERIFY_H

#include "common/cluster/damage.h"
#include "server/store/store_layout.h"

struct verify {
    const struct pm *pm;
    struct superblock block;
    struct store_geometry geometry;
    struct entry_format format;
    uint64_t segment;      /* the next, or the present one */
    bool inside, is_whole; /* that one is COMMITTED or closed */
    struct entry_scan scan;
    uint32_t
        claimed; /* up to there the present segment has what an entry that was found damaged says to be its own */

    /* The result. */
    struct damage damage;
    bool torn;                     /* something in another segment is neither zero nor whole */
    uint64_t places, first_offset; /* in the map */
};

/* verify_begin: of a map for which store_read_identity answers 0, and whose last run's data are not possibly incomplete:
 * then anything may be torn. */
void verify_begin(struct verify *verify, const struct pm *pm);

/* verify_step: a bounded step; true when all is read. */
bool verify_step(struct verify *verify);

#endif
