/* inserts.h - the records that workload d adds behind those that were loaded: each number is handed out
 * once, and reads choose only among those below which every insert was acknowledged (as YCSB's
 * AcknowledgedCounterGenerator). All threads share one, without locks. */
#ifndef YCSB_INSERTS_H
#define YCSB_INSERTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    INSERTS_WINDOW = 1 << 20
}; /* how far numbers run ahead of the oldest that is not acknowledged */

struct inserts {
    uint64_t first, step; /* insert n is of record first + n * step */
    uint64_t most;        /* numbers there are */
    _Alignas(64) _Atomic uint64_t next;
    _Alignas(64) _Atomic uint64_t acked;   /* all numbers below it are acknowledged */
    _Atomic uint64_t done[INSERTS_WINDOW]; /* number + 1, or 0 */
};

/* inserts_create: records first, first + step, ..., below `end`. NULL: no memory. Freed with free(). */
struct inserts *inserts_create(uint64_t first, uint64_t step, uint64_t end);

/* The next record. False: none is left, or the window is full, until inserts_acknowledge has got the
 * oldest; a record whose insert failed must be inserted again. */
bool inserts_take(struct inserts *inserts, uint64_t *record);

void inserts_acknowledge(struct inserts *inserts, uint64_t record);

/* How many there are to read, from number 0 on without a gap. */
static inline uint64_t inserts_acked(const struct inserts *inserts)
{
    return atomic_load_explicit(&inserts->acked, memory_order_relaxed);
}

#endif
