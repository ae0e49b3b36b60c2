/* index_state.h - the inside of an index: index.c's and index_dump.c's. */
#ifndef SERVER_INDEX_STATE_H
#define SERVER_INDEX_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/index/index.h"
#include "server/index/index_table.h"

/* The gate word: a split is under way, or this many swaps, removals and dumps are (I6). */
#define INDEX_GATE_SPLIT (UINT32_C(1) << 31)

enum { INDEX_GATE_TRIES = 8 };

struct index {
    /* Read by everybody, written by the owner. */
    _Atomic uint64_t step;
    _Atomic uint64_t items;
    _Atomic uint32_t chain_limit;
    const struct pm *pm;
    const struct entry_format *format;
    _Alignas(64) _Atomic uint32_t gate;
    _Atomic uint32_t removals; /* two for each: I7 */
    _Alignas(64) struct index_table table;
};

/* False: a split is under way. */
static inline bool index_gate_enter(struct index *index)
{
    uint32_t gate = atomic_load_explicit(&index->gate, memory_order_relaxed);
    for (unsigned i = 0; i < INDEX_GATE_TRIES && !(gate & INDEX_GATE_SPLIT); i++)
        if (atomic_compare_exchange_weak_explicit(&index->gate, &gate, gate + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

static inline void index_gate_leave(struct index *index)
{
    atomic_fetch_sub_explicit(&index->gate, 1, memory_order_release);
}

#endif
