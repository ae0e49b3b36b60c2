/* reclaim.h - when may a segment be used again? Epoch-based reclamation (Fraser, Practical lock-freedom, 2004, section
 * 5.2.3): whoever follows offsets into segments says from which epoch on it may still hold one.
 *
 * A role enters at the start of a poll, and from then on may follow each offset that it finds (an index item, a place in
 * a segment) until it leaves, at the end of the poll. What it goes on holding from poll to poll (a batch on its way by
 * pointer, what was found for somebody, a scan inside a segment) it says when it leaves: the epoch in which it found the
 * oldest of it. Who retires a segment first takes away all that leads to it, then asks for a ticket, and may use the
 * segment again when all that entered before have left.
 *
 * Who finds segments by their state (Fetch, worker_fetch.c) is led to one as long as it is COMMITTED. So that of a
 * retired one changes only when its first ticket is over: then all that is still read of it was read since before. And
 * its bytes change when the ticket of a second retirement, made after that, is over, too: then nobody reads it who saw
 * the old state.
 *
 * Costs an exchange and a load for each poll. A role that sleeps has left, and holds up nobody.
 */
#ifndef SERVER_RECLAIM_H
#define SERVER_RECLAIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/assert.h"

#define RECLAIM_NOTHING UINT64_MAX /* nothing is held */

struct reclaim_role {
    _Atomic uint64_t epoch; /* of what may be held; RECLAIM_NOTHING */
    struct reclaim_role *next;
};

struct reclaim {
    _Atomic uint64_t epoch;
    struct reclaim_role *roles;
};

void reclaim_init(struct reclaim *reclaim);

/* reclaim_join: one more role, which has entered: so what it is handed before its first poll stays good. Before any of them
 * is polled. `role` must live as long as `reclaim` is used. */
void reclaim_join(struct reclaim *reclaim, struct reclaim_role *role);

/* reclaim_enter: offsets that are found from now on stay good until reclaim_leave. The role's thread. Returns the
 * epoch: what is found in this poll and kept beyond it is kept since then. */
uint64_t reclaim_enter(struct reclaim *reclaim, struct reclaim_role *role);

/* reclaim_since: what the role announces now. It may go on holding whatever it held up to now by leaving with this. The
 * role's thread. */
static inline uint64_t reclaim_since(const struct reclaim_role *role)
{
    return atomic_load_explicit(&role->epoch, memory_order_relaxed);
}

/* reclaim_leave: `held` is the epoch of the oldest offset that is still held, or RECLAIM_NOTHING. It is no earlier than what
 * is announced: what was let go cannot be held again. */
static inline void reclaim_leave(struct reclaim_role *role, uint64_t held)
{
    ASSERT(held >= reclaim_since(role));
    atomic_store_explicit(&role->epoch, held, memory_order_release);
}

/* reclaim_retire: nothing leads to a segment any more (no index item, no list of segments to be read). Returns a ticket.
 * Any thread. */
uint64_t reclaim_retire(struct reclaim *reclaim);

/* reclaim_is_over: does nobody hold any more what was retired before that ticket? Once true it stays true. */
bool reclaim_is_over(const struct reclaim *reclaim, uint64_t ticket);

#endif
