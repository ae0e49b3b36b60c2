/* managers.h - the addresses of a cluster's configuration managers, and whose turn it is. One manager leads; whoever
 * needs that one tries them in turn, and waits when a whole round was in vain. Pure; one thread. */
#ifndef CLUSTER_MANAGERS_H
#define CLUSTER_MANAGERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/cluster/cluster.h"

enum {
    MANAGERS_MAX = 8,
    MANAGERS_LIST_BYTES =
        MANAGERS_MAX * (CLUSTER_MAX_ADDRESS_BYTES + 1), /* of a list, with its 0 */
};

/* Leases without a grant after which a member goes on to the next manager, and says so there (design, section 6). */
enum { MANAGERS_LEASES = 6 };

/* A member that looks for a new manager finds it within so many leases and this: one that is stopped holds it up for three
 * leases, or a second (server/control). */
enum { MANAGERS_WAY_LEASES = 4 };
#define MANAGERS_WAY_NS NS_PER_S

/* A store may take so long: then a manager knows that it is named, and leads. */
#define MANAGERS_STORE_NS NS_PER_S

/* What a manager that was just named may need before it grants: two leases, the removal of members that died with the one
 * before, and a store. */
static inline uint64_t managers_takeover_ns(uint64_t lease_ns)
{
    return (2 + MANAGERS_WAY_LEASES) * lease_ns + MANAGERS_WAY_NS + MANAGERS_STORE_NS;
}

struct managers {
    uint32_t count, current;
    uint32_t tried;  /* in this round */
    uint32_t rounds; /* in vain, since a manager that leads was found */
    uint32_t passed; /* until passed_ns */
    uint64_t passed_ns;
    char addresses[MANAGERS_MAX][CLUSTER_MAX_ADDRESS_BYTES + 1];
};

/* managers_parse: `list` is addresses of one fabric with commas between them; the first one's turn comes first. *why, if
 * not NULL, is a sentence on the first mistake. Errors (`out` is unchanged): ROWAN_EADDRESS (none, or malformed)
 * ETOOMANY EINVALID (too long, or of another fabric). */
int managers_parse(const char *list, struct managers *out, const char **why);

/* The list is another one from now on. It stays the turn of the address whose turn it is, if that is listed. */
void managers_replace(struct managers *managers, const struct managers *by);

/* Of the one whose turn it is. Valid as long as `managers`. */
const char *managers_address(const struct managers *managers);

/* That one was of no use: it is the next one's turn. True: at once; false: wait first, for all were tried. */
bool managers_next(struct managers *managers, uint64_t now_ns);

/* The one whose turn it is may lead, and is of no use: until then it has no other turn, if there are others. Who leaves it for one
 * that is about to lead instead would else wait for it again. */
void managers_pass_over(struct managers *managers, uint64_t until_ns);
bool managers_passes_over(const struct managers *managers, uint64_t now_ns);

/* That one leads. */
void managers_found(struct managers *managers);

#endif
