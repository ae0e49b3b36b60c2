/* inbox.h - a bounded queue of pointers into a role; a push wakes the thread that polls the role.
 * One producer role, one consumer role, on the same thread or on two. */
#ifndef REACTOR_INBOX_H
#define REACTOR_INBOX_H

#include "common/base/ring.h"

struct reactor;

struct inbox {
    struct ring ring;
    struct reactor *reactor; /* of the consumer; NULL where nothing sleeps (one thread) */
};

/* Errors: ROWAN_ENOMEM. */
int inbox_init(struct inbox *inbox, uint32_t capacity);
void inbox_fini(struct inbox *inbox);

/* Before the reactors start. */
void inbox_set_reactor(struct inbox *inbox, struct reactor *reactor);

/* Producer only. False when full: nothing was pushed. */
bool inbox_push(struct inbox *inbox, void *item);

/* Consumer only. NULL when empty. */
void *inbox_pop(struct inbox *inbox);

/* Any thread: wakes the consumer's thread although nothing was pushed. */
void inbox_wake(struct inbox *inbox);

#endif
