/* split.h - a replica copies what it holds of a shard that is split to the shard's two children, which it holds as well (design,
 * section 6, "Resharding"). Whoever owns the three does that, in steps, into its own log.
 *
 * The parent is written no more, but is there until every replica has all; so nothing is lost if the copying ends in
 * between, and begins anew. Meanwhile whoever looks for a key of a child, and finds nothing, looks in the parent.
 *
 *  ITEMS --(all that is alive is copied)--> SUFFIX, RECORDS --(a stub for each operation)--> CLOSE --> FENCE --> OVER
 */
#ifndef SERVER_SPLIT_H
#define SERVER_SPLIT_H

#include "server/common.h"
#include "server/shard/shard.h"
#include "server/store/log.h"

#define SPLIT_TELL_NS (NS_PER_S / 2) /* until a configuration says that all have */

struct split;

/* Who copies. */
struct split_owner {
    struct server_common *common;
    struct log *log;
    uint8_t *key; /* ENTRY_MAX_KEY_BYTES */
    struct shard_state *parent, *children[2];
};

/* split_step: a short one. True: something was done; what is stored is not fenced. *wake_ns is lowered while it waits. */
bool split_step(const struct split_owner *owner, uint64_t now_ns, uint64_t *wake_ns);

/* split_tells: this replica has all, and that is to be told, now. */
bool split_tells(struct shard_state *parent, uint64_t now_ns, uint64_t *wake_ns);

/* split_inherit: a child that is about to be served gets the completion records of its parent, which is served. Returns how many
 * found no place (records_add). */
uint64_t split_inherit(struct shard_state *child, const struct shard_state *parent);

/* split_forget: the parent leaves its owner. */
void split_forget(struct shard_state *parent);

#endif
