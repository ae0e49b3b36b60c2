/* recover_row.h - what a start takes from a shard's row in the replica table, and what it leaves there. */
#ifndef SERVER_RECOVER_ROW_H
#define SERVER_RECOVER_ROW_H

#include "server/shard/recover.h"

struct recover_row {
    uint32_t first_epoch;
    uint64_t first_allocation;
    uint64_t settled; /* where the contiguous prefix begins: (first_epoch, 0) at least */
};

/* recover_is_incomplete: may the data lack something of that shard? */
bool recover_is_incomplete(const struct recover_options *options, uint16_t shard);

/* recover_row_read: of the replica row that the shard has, or is to have. Errors: ROWAN_EDAMAGED (its data should be here,
 * and are not). */
int recover_row_read(const struct recover_options *options, const struct shard *shard,
                     struct recover_row *row);

/* recover_row_write: a shard that is held (`state`) gets a row; another one (NULL) loses it: what it left here is dead
 * (H15). */
void recover_row_write(struct store *store, uint16_t shard, const struct shard_state *state);

#endif
