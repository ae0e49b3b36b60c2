/* names.h - host names, looked up on a thread of the process's own: a resolver may take seconds, and roles wait for nobody. Any
 * thread. Numbers need no look-up and no thread.
 */
#ifndef REACTOR_NAMES_H
#define REACTOR_NAMES_H

enum {
    NAMES_HOST_BYTES = 254,
    NAMES_NUMBER_BYTES = 46
}; /* with their 0: RFC 1035, INET6_ADDRSTRLEN */

/* names_look: the address of `host` as a number, IPv4 or IPv6, as far as it is known; an older one is looked up again meanwhile.
 * Errors: ROWAN_EAGAIN (being looked up), ROWAN_EUNREACHABLE (nobody knows it; asked again soon, and the log has said so),
 * ROWAN_ETOOMANY, ROWAN_ENOMEM. */
int names_look(const char *host, char number[NAMES_NUMBER_BYTES]);

/* Until nothing is being looked up: for a program that starts, and no role. */
void names_wait(void);

#endif
