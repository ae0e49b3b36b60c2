/* quota.h - how many client ids one user gets: QUOTA_BURST at once, and QUOTA_A_SECOND from then on. Of 2^31 nobody is to use up all
 * (proposal.h), and each CM_CLIENT_ID_BLOCK make a term. Pure.
 */
#ifndef CM_QUOTA_H
#define CM_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/auth/users.h"

enum {
    QUOTA_A_SECOND = 32,
    QUOTA_BURST = 4096,         /* all clients that may be connected, each once */
    QUOTA_ROWS = 2 * USERS_MAX, /* of those that have taken some of late */
};

struct quota_row {
    uint64_t who;     /* a hash of the name */
    uint64_t full_ns; /* when it has its burst again; the row is free then */
};

/* All 0 at start. */
struct quota {
    struct quota_row rows[QUOTA_ROWS];
    struct quota_row others; /* together, while no row is free */
};

/* One more id for the user. False: not now. NULL: where nobody has to log in, everybody is trusted. */
bool quota_take(struct quota *quota, const char *user, uint64_t now_ns);

#endif
