/* Invariants:
 *  P1  A role's epoch is never later than that of the oldest offset that it may follow. It is announced before the first
 *      offset is read, and then the epoch is read once more: what was retired by then, the role cannot find any more.
 *      What is retired later has a ticket above what was announced, which may be out of date: that waits longer.
 *  P2  A ticket is an epoch that no role had announced before it was given out.
 *  P3  From one RECLAIM_NOTHING to the next what a role announces only rises. So who reads an older announcement than the
 *      last waits longer, never too short.
 *
 * Announcement, second look, ticket and look at the roles are sequentially consistent, so one of the two sees the other:
 * the role the new epoch, or the one who retires the role's announcement. To leave, release is enough: who sees it has
 * seen all reads in front of it, and who does not see it waits (P3).
 */
#include "server/store/reclaim.h"

#include <stddef.h>

void reclaim_init(struct reclaim *reclaim)
{
    atomic_init(&reclaim->epoch, 1);
    reclaim->roles = NULL;
}

void reclaim_join(struct reclaim *reclaim, struct reclaim_role *role)
{
    atomic_init(&role->epoch, atomic_load_explicit(&reclaim->epoch, memory_order_relaxed));
    role->next = reclaim->roles;
    reclaim->roles = role;
}

uint64_t reclaim_enter(struct reclaim *reclaim, struct reclaim_role *role)
{
    if (reclaim_since(role) == RECLAIM_NOTHING)
        atomic_store(&role->epoch, atomic_load_explicit(&reclaim->epoch, memory_order_relaxed));
    return atomic_load(&reclaim->epoch);
}

uint64_t reclaim_retire(struct reclaim *reclaim)
{
    return atomic_fetch_add(&reclaim->epoch, 1) + 1;
}

bool reclaim_is_over(const struct reclaim *reclaim, uint64_t ticket)
{
    ASSERT(ticket <= atomic_load(&reclaim->epoch));
    for (const struct reclaim_role *role = reclaim->roles; role; role = role->next) {
        if (atomic_load(&role->epoch) < ticket)
            return false;
    }
    return true;
}
