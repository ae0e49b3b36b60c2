/* ring.h - a bounded queue of pointers between two threads: one pushes, one pops.
 *
 * Our own forty lines rather than ck_ring: ThreadSanitizer understands C11 acquire/release on
 * objects, not ck's stand-alone fences.
 */
#ifndef BASE_RING_H
#define BASE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A cache line between the two ends, as padding rather than alignment: a struct that holds a ring
 * may come from malloc. */
struct ring {
    _Atomic uint32_t head; /* next to pop; written by the consumer */
    char head_pad[64];
    _Atomic uint32_t tail; /* next to push; written by the producer */
    char tail_pad[64];
    uint32_t mask;
    void **items;
};

/* `capacity` is a power of two. Errors: ROWAN_ENOMEM. */
int ring_init(struct ring *ring, uint32_t capacity);
void ring_fini(struct ring *ring);

/* Producer only. False when full: nothing was pushed. What was written before the push is visible
 * to the consumer that pops the item. */
bool ring_push(struct ring *ring, void *item);

/* Consumer only. NULL when empty. */
void *ring_pop(struct ring *ring);

#endif
