/* Numbers are handed out by one counter. A mark in a ring says that a number was acknowledged; whoever
 * clears the mark of `acked` moves it on.
 *
 * I1 A mark is set for a number in [acked, acked + INSERTS_WINDOW) only, so that no two numbers share one.
 * I2 No mark is left behind: who moves `acked` looks at the next mark afterwards, who sets a mark looks
 *    at `acked` afterwards, and in the one order that all see (seq_cst) one of the two comes second.
 * I3 `acked` never goes back: a mark has its number, so that a thread that was stopped while the others
 *    went once around the ring does not take a later mark for that of the number it knows. */
#include "tools/rowan-ycsb/inserts.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "tools/rowan-ycsb/runner.h"

struct inserts *inserts_create(uint64_t first, uint64_t step, uint64_t end)
{
    struct inserts *inserts = aligned_alloc(_Alignof(struct inserts), sizeof *inserts);

    if (!inserts)
        return NULL;
    *inserts = (struct inserts){
        .first = first, .step = step, .most = first < end ? (end - first - 1) / step + 1 : 0};
    return inserts;
}

bool inserts_take(struct inserts *inserts, uint64_t *record)
{
    uint64_t next = atomic_load_explicit(&inserts->next, memory_order_relaxed);

    /* Each thread may pass here before another has counted. */
    if (next + RUN_MAX_THREADS >= inserts_acked(inserts) + INSERTS_WINDOW ||
        next + RUN_MAX_THREADS >= inserts->most)
        return false;
    *record = inserts->first +
              inserts->step * atomic_fetch_add_explicit(&inserts->next, 1, memory_order_relaxed);
    return true;
}

void inserts_acknowledge(struct inserts *inserts, uint64_t record)
{
    uint64_t number = (record - inserts->first) / inserts->step;
    uint64_t acked = atomic_load(&inserts->acked);

    ASSERT(number >= acked && number - acked < INSERTS_WINDOW); /* I1 */
    atomic_store(&inserts->done[number % INSERTS_WINDOW], number + 1);
    acked = atomic_load(&inserts->acked); /* I2 */
    for (uint64_t mark = acked + 1;
         atomic_compare_exchange_strong(&inserts->done[acked % INSERTS_WINDOW], &mark, 0); /* I3 */
         mark = acked + 1)
        atomic_store(&inserts->acked, ++acked);
}
