/* descriptors.h - how many files and sockets this process may hold. */
#ifndef REACTOR_DESCRIPTORS_H
#define REACTOR_DESCRIPTORS_H

#include <stdint.h>

/* descriptors_raise: lifts the soft limit on open descriptors to the hard one, as a connection needs
 * two or more and the usual soft limit is 1024. Returns the limit that holds now. For main functions
 * of programs that take connections. */
uint64_t descriptors_raise(void);

#endif
