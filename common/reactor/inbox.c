/* inbox.c - a ring whose producer wakes the consumer's reactor. */
#include "common/reactor/inbox.h"

#include "common/reactor/reactor.h"

int inbox_init(struct inbox *inbox, uint32_t capacity)
{
    int error = ring_init(&inbox->ring, capacity);

    if (error != 0)
        return error;
    inbox->reactor = NULL;
    return 0;
}

void inbox_fini(struct inbox *inbox)
{
    ring_fini(&inbox->ring);
}

void inbox_set_reactor(struct inbox *inbox, struct reactor *reactor)
{
    inbox->reactor = reactor;
}

bool inbox_push(struct inbox *inbox, void *item)
{
    if (!ring_push(&inbox->ring, item))
        return false;
    if (inbox->reactor != NULL)
        reactor_wake(inbox->reactor);
    return true;
}

void *inbox_pop(struct inbox *inbox)
{
    return ring_pop(&inbox->ring);
}

void inbox_wake(struct inbox *inbox)
{
    if (inbox->reactor != NULL)
        reactor_wake(inbox->reactor);
}
