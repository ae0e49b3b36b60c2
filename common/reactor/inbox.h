/* inbox.h - a bounded queue of pointers into a role; a push wakes the thread that polls the role.
 * One producer role, one consumer role, on the same thread or on two.
 *
 * Our own forty lines rather than ck_ring: ThreadSanitizer understands C11 acquire/release on
 * objects, not ck's stand-alone fences.
 */
#ifndef REACTOR_INBOX_H
#define REACTOR_INBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reactor;

struct inbox {
    /* A cache line between the two ends, as padding rather than alignment: a struct that holds an inbox
     * may come from malloc. */
    struct ring {
        _Atomic uint32_t head; /* next to pop; written by the consumer */
        char head_pad[64];
        _Atomic uint32_t tail; /* next to push; written by the producer */
        char tail_pad[64];
        uint32_t mask;
        void **items;
    } ring;
    struct reactor *reactor; /* of the consumer; NULL where nothing sleeps (one thread) */
};

/* `capacity` is a power of two. Errors: ROWAN_ENOMEM. */
int inbox_init(struct inbox *inbox, uint32_t capacity);
void inbox_fini(struct inbox *inbox);

/* Before the reactors start. */
void inbox_set_reactor(struct inbox *inbox, struct reactor *reactor);

/* Producer only. False when full: nothing was pushed. What was written before the push is visible
 * to the consumer that pops the item. */
bool inbox_push(struct inbox *inbox, void *item);

/* Consumer only. NULL when empty. */
void *inbox_pop(struct inbox *inbox);

/* Any thread: wakes the consumer's thread although nothing was pushed. */
void inbox_wake(struct inbox *inbox);

#endif
