/* inbox.c - a bounded queue of pointers between two threads, whose producer wakes the consumer's reactor.
 *
 * R1 tail - head, modulo 2^32, is the number of items: from 0 to the capacity.
 * R2 A slot outside [head, tail) belongs to the producer, one inside to the consumer. A release store
 *    of tail hands it to the consumer, one of head hands it back.
 */
#include "common/reactor/inbox.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/reactor/reactor.h"

int inbox_init(struct inbox *inbox, uint32_t capacity)
{
    void **items;

    ASSERT(capacity > 0 && (capacity & (capacity - 1)) == 0);
    items = calloc(capacity, sizeof(*items));
    if (items == NULL)
        return ROWAN_ENOMEM;
    *inbox = (struct inbox){.ring = {.mask = capacity - 1, .items = items}};
    return 0;
}

void inbox_fini(struct inbox *inbox)
{
    free(inbox->ring.items);
    inbox->ring.items = NULL;
}

void inbox_set_reactor(struct inbox *inbox, struct reactor *reactor)
{
    inbox->reactor = reactor;
}

bool inbox_push(struct inbox *inbox, void *item)
{
    uint32_t tail = atomic_load_explicit(&inbox->ring.tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&inbox->ring.head, memory_order_acquire);

    ASSERT(item != NULL);
    ASSERT_COSTLY(tail - head <= inbox->ring.mask + 1); /* R1 */
    if (tail - head > inbox->ring.mask)
        return false;
    inbox->ring.items[tail & inbox->ring.mask] = item;
    atomic_store_explicit(&inbox->ring.tail, tail + 1, memory_order_release);
    inbox_wake(inbox);
    return true;
}

void *inbox_pop(struct inbox *inbox)
{
    uint32_t head = atomic_load_explicit(&inbox->ring.head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&inbox->ring.tail, memory_order_acquire);
    void *item;

    if (head == tail)
        return NULL;
    item = inbox->ring.items[head & inbox->ring.mask];
    atomic_store_explicit(&inbox->ring.head, head + 1, memory_order_release);
    return item;
}

void inbox_wake(struct inbox *inbox)
{
    if (inbox->reactor != NULL)
        reactor_wake(inbox->reactor);
}
