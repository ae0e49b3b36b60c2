/* Invariants:
 *  P1  A role's epoch is never later than that of the oldest offset that it may follow. It is announced before the first
 *      offset is read: the announcement counts when the epoch is still the same behind it. If it is not, somebody retired
 *      something meanwhile, and the role announces again; what that one took away it then cannot find any more.
 *  P2  A ticket is an epoch that no role had announced before it was given out.
 *
 * All is sequentially consistent, so one of the two sees the other: the role the new epoch, or the one who retires the
 * role's announcement.
 */
#include "server/store/reclaim.h"

#include <stddef.h>

#include "common/base/assert.h"

void reclaim_init(struct reclaim *reclaim)
{
    atomic_init(&reclaim->epoch, 1);
    reclaim->roles = NULL;
}

void reclaim_join(struct reclaim *reclaim, struct reclaim_role *role)
{
    atomic_init(&role->epoch, RECLAIM_NOTHING);
    role->next = reclaim->roles;
    reclaim->roles = role;
}

uint64_t reclaim_enter(struct reclaim *reclaim, struct reclaim_role *role)
{
    const uint64_t held = atomic_load_explicit(&role->epoch, memory_order_relaxed);
    uint64_t now = atomic_load(&reclaim->epoch), announced = 0;
    while (held == RECLAIM_NOTHING && announced != now) {
        announced = now;
        atomic_store(&role->epoch, announced);
        now = atomic_load(&reclaim->epoch);
    }
    return now;
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
