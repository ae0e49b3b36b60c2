/* damage.h - which shards are concerned by what a server found damaged in its PM before it reported for duty. Of damaged
 * bytes nobody can be sure whose they were. The server tells what an entry says of itself, if that may be so: shard, and
 * the slot of its key. Who has the configuration looks whether the two fit; if they do not, the damage may have been
 * anybody's.
 */
#ifndef CLUSTER_DAMAGE_H
#define CLUSTER_DAMAGE_H

#include "common/cluster/cluster.h"

enum {
    DAMAGE_MAX_SHARDS = 1024,    /* all that a cluster has unless --max-shards says more */
    DAMAGE_NO_SLOT = UINT16_MAX, /* the shard is known by other means */
};

/* What was found of one shard: the lowest and the highest slot; none: first_slot is DAMAGE_NO_SLOT, last_slot 0. */
struct damaged_shard {
    uint16_t shard, first_slot, last_slot;
    bool
        found; /* while the server ran: an entry could not be read. Else a start found it, or all may be incomplete */
};

struct damage {
    bool all; /* nobody can tell of which shards more was */
    uint32_t count;
    struct damaged_shard shards[DAMAGE_MAX_SHARDS];
};

/* damage_add: something of that shard, with a key of that slot. */
void damage_add(struct damage *damage, uint16_t shard, uint16_t slot);

/* damage_found: while the server ran something of that shard could not be read, of which nothing else was added. Beyond
 * DAMAGE_MAX_SHARDS it is not noted. damage_was_found: was that told? */
void damage_found(struct damage *damage, uint16_t shard);
bool damage_was_found(const struct damage *damage, uint16_t shard);

/* damage_concerns: may something of that shard of the configuration be damaged, as far as a start found it? */
bool damage_concerns(const struct damage *damage, const struct cluster_config *config,
                     uint16_t shard);

#endif
