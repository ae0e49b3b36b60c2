/* list.h - doubly linked lists through links that lie in the items: nothing is allocated, and an item can be on as
 * many lists as it has links.
 *
 * A list is any struct with the members `first` and `last`, all 0 at start, a link any with `next` and `prev`; these
 * point to items. `link` names the link's member in the item, as in LIST_APPEND(&lists[i], item, links[i]): macros,
 * so that pointers keep their type and the place of the link is known at compile time. Arguments are evaluated more
 * than once. Whether an item is on a list its owner knows.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stddef.h>

/* At the end. It is not on the list. */
#define LIST_APPEND(list, item, link)                                                              \
    do {                                                                                           \
        (item)->link.next = NULL;                                                                  \
        (item)->link.prev = (list)->last;                                                          \
        if ((list)->last)                                                                          \
            (list)->last->link.next = (item);                                                      \
        else                                                                                       \
            (list)->first = (item);                                                                \
        (list)->last = (item);                                                                     \
    } while (0)

/* It is on the list. Its link keeps what it said: a walk goes on from it. */
#define LIST_REMOVE(list, item, link)                                                              \
    do {                                                                                           \
        if ((item)->link.prev)                                                                     \
            (item)->link.prev->link.next = (item)->link.next;                                      \
        else                                                                                       \
            (list)->first = (item)->link.next;                                                     \
        if ((item)->link.next)                                                                     \
            (item)->link.next->link.prev = (item)->link.prev;                                      \
        else                                                                                       \
            (list)->last = (item)->link.prev;                                                      \
    } while (0)

#endif
