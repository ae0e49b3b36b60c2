/* list.h - doubly linked lists through links that lie in the items: nothing is allocated, and an item can be on as
 * many lists as it has links.
 *
 * A list is any struct with the members `first` and `last`, both NULL at start; a link is any struct with `next` and
 * `prev`. All four point to items. `link` names the link's member in the item, as in LIST_APPEND(&lists[i], item,
 * links[i]). These are macros so that pointers keep their type. Arguments are evaluated more than once. Only its
 * owner knows whether an item is on a list.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stddef.h>

/* Adds an item that is not on the list at its end. */
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

/* Removes an item that is on the list. Its own link is unchanged, so that a loop can go on from it. */
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
