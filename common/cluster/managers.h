/* managers.h - the addresses of a cluster's configuration managers, and whose turn it is. One manager leads; whoever
 * needs that one tries them in turn, and waits when a whole round was in vain. Pure; one thread. */
#ifndef CLUSTER_MANAGERS_H
#define CLUSTER_MANAGERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cluster/cluster.h"

enum {
    MANAGERS_MAX = 8,
    MANAGERS_LIST_BYTES =
        MANAGERS_MAX * (CLUSTER_MAX_ADDRESS_BYTES + 1), /* of a list, with its 0 */
};

struct managers {
    uint32_t count, current;
    uint32_t tried;  /* in this round */
    uint32_t rounds; /* in vain, since a manager that leads was found */
    char addresses[MANAGERS_MAX][CLUSTER_MAX_ADDRESS_BYTES + 1];
};

/* managers_parse: `list` is addresses of one fabric with commas between them; the first one's turn comes first. *why, if
 * not NULL, is a sentence on the first mistake. Errors (`out` is unchanged): ROWAN_EADDRESS (none, or malformed)
 * ETOOMANY EINVALID (too long, or of another fabric). */
int managers_parse(const char *list, struct managers *out, const char **why);

/* Of the one whose turn it is. Valid as long as `managers`. */
const char *managers_address(const struct managers *managers);

/* That one was of no use: it is the next one's turn. True: at once; false: wait first, for all were tried. */
bool managers_next(struct managers *managers);

/* That one leads. */
void managers_found(struct managers *managers);

#endif
