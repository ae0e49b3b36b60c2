/* descriptors.h - how many files and sockets this process may hold, and which of them are not for clients. */
#ifndef REACTOR_DESCRIPTORS_H
#define REACTOR_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    /* For servers (256 places), who asks for metrics (128), and files and sockets of the process itself, like those of the
     * coordination service; a quarter of all where these are few. */
    DESCRIPTORS_KEPT = 512,
    /* These, 4,096 clients, 1,024 guests, and 1,024 who have said nothing yet. */
    DESCRIPTORS_WANTED = DESCRIPTORS_KEPT + 6144,
};

/* descriptors_raise: lifts the soft limit on open descriptors to the hard one, as a connection needs
 * two or more and the usual soft limit is 1024. Returns the limit that holds now; a line of the log says if that is less than
 * DESCRIPTORS_WANTED. For main functions of programs that take connections, before these have any. */
uint64_t descriptors_raise(void);

/* descriptors_is_kept: `fd`, which the process just got, is one of the last DESCRIPTORS_KEPT. Without descriptors_raise none
 * is. Any thread. */
bool descriptors_is_kept(int fd);

#endif
