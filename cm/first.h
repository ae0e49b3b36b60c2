/* first.h - the first configuration of a cluster: which server leads and which back each shard. */
#ifndef CM_FIRST_H
#define CM_FIRST_H

#include <stdint.h>

#include "cm/registrations.h"
#include "cm/state.h"

enum { FIRST_SHARDS_PER_SERVER = 8 };

/* Are the options in the ranges that state.h names? */
bool first_options_are_right(const struct cm_state_options *options);

/* first_place: term 1, every epoch 1, no client id given out, the slots cut evenly. Primaries go round robin over the
 * members and, within a member, over its workers. A shard's backups are the members with fewest
 * backups so far; among those, the ones that follow the primary, starting one further in each
 * round, so that one member's shards are backed by all others.
 *
 * Without a number of shards in the options there are FIRST_SHARDS_PER_SERVER for each server, or one for each
 * worker of the server with most workers if those are more.
 *
 * All servers of the options are registered. It is finished and has its secret. Pure. NULL: no memory. */
struct cluster_config *first_place(const struct cm_state_options *options,
                                   const struct registrations *registrations);

#endif
