/* first.h - the first configuration of a cluster: which server leads and which back each shard. */
#ifndef CM_FIRST_H
#define CM_FIRST_H

#include <stdint.h>

#include "common/cluster/cluster.h"

enum { FIRST_SHARDS_PER_SERVER = 8 };

struct first_wish {
    uint64_t cluster; /* never 0 */
    uint8_t secret[CLUSTER_SECRET_BYTES];
    uint32_t block_limit; /* bytes */
    uint32_t replicas;    /* per shard, at most the count of members */
    uint32_t shards;      /* 0: FIRST_SHARDS_PER_SERVER for each server, or one for each worker
                             of the server with most workers if those are more */
};

/* first_place: term 1, every epoch 1, no client id given out, the slots cut evenly. Primaries go round robin over the
 * members and, within a member, over its workers. A shard's backups are the members with fewest
 * backups so far; among those, the ones that follow the primary, starting one further in each
 * round, so that one member's shards are backed by all others.
 *
 * `members` rise by server. *out is finished and has its secret. Pure.
 * Errors: ROWAN_EINVALID (the wish cannot be met), ROWAN_ENOMEM. */
int first_place(const struct first_wish *wish, const struct member *members, uint32_t member_count,
                struct cluster_config **out);

#endif
