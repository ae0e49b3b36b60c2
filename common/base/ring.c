/* ring.c - a bounded queue of pointers between two threads.
 *
 * R1 tail - head, modulo 2^32, is the number of items: from 0 to the capacity.
 * R2 A slot outside [head, tail) belongs to the producer, one inside to the consumer. A release store
 *    of tail hands it to the consumer, one of head hands it back.
 */
#include "common/base/ring.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"

int ring_init(struct ring *ring, uint32_t capacity)
{
    void **items;

    ASSERT(capacity > 0 && (capacity & (capacity - 1)) == 0);
    items = calloc(capacity, sizeof(*items));
    if (items == NULL)
        return ROWAN_ENOMEM;
    ring->items = items;
    ring->mask = capacity - 1;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->tail, 0);
    return 0;
}

void ring_fini(struct ring *ring)
{
    free(ring->items);
    ring->items = NULL;
}

bool ring_push(struct ring *ring, void *item)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);

    ASSERT(item != NULL);
    ASSERT_COSTLY(tail - head <= ring->mask + 1); /* R1 */
    if (tail - head > ring->mask)
        return false;
    ring->items[tail & ring->mask] = item;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

void *ring_pop(struct ring *ring)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    void *item;

    if (head == tail)
        return NULL;
    item = ring->items[head & ring->mask];
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return item;
}
