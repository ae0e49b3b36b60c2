/* Rows of the replica table, at a start. */
#include "server/shard/recover_state.h"

#include "common/base/error.h"

bool recover_is_incomplete(const struct recover_options *options, uint16_t shard)
{
    return options->possibly_incomplete &&
           (!options->damage || damage_concerns(options->damage, options->config, shard));
}

/* A row may be missing only if nothing can have been acknowledged: the store never ran, or the cluster has given out no
 * client id; or if what there was is given up, and the manager knows that this server has nothing. */
static int first_epoch(const struct recover_options *options, const struct replica_row *found,
                       const struct shard *row, uint32_t *epoch)
{
    *epoch = 1;
    if (found->state == REPLICA_DAMAGED ||
        (found->torn && !recover_is_incomplete(options, row->id)))
        return ROWAN_EDAMAGED; /* of what is not here nobody can tell whether it is dead or lost */
    if (found->state == REPLICA_FULL && found->first_epoch <= row->epoch)
        *epoch = found->first_epoch;
    else if (row->epoch > 1 && !cluster_is_unwritten(options->config) &&
             (options->had_run || (!options->had_data && !row->possibly_incomplete)))
        return ROWAN_EDAMAGED;
    return 0;
}

/* R6 (recover.c). A row that speaks of an epoch which is not over yet tells nothing. Of data that may be incomplete what
 * came by a filling, in front of the first epoch, may be gone, too: nothing of any epoch is settled. */
int recover_row_read(const struct recover_options *options, const struct shard *shard,
                     struct replica_row *row)
{
    const struct replica_row found = store_replica(options->common->store, shard->id);
    uint32_t first = 0;
    if (found.state == REPLICA_NONE && cluster_parent(options->config, shard)) {
        /* Its parent was split by a configuration that nobody has served by yet. */
        *row = (struct replica_row){.first_epoch = shard->epoch,
                                    .first_allocation = store_allocations(options->common->store),
                                    .settled = version_make(shard->epoch, 0) - 1};
        return 0;
    }
    int error = first_epoch(options, &found, shard, &first);
    if (error)
        return error;
    const bool incomplete = recover_is_incomplete(options, shard->id);
    const uint64_t start = version_make(incomplete ? 1 : first, 0);
    const bool counts =
        found.state == REPLICA_FULL && !incomplete && version_epoch(found.settled) < shard->epoch;
    *row = (struct replica_row){.first_epoch = first,
                                .first_allocation =
                                    found.state == REPLICA_FULL ? found.first_allocation : 0,
                                .settled = counts && found.settled > start ? found.settled : start};
    return 0;
}

/* What was settled and cleaned stays dead: a start on data that may be incomplete does not count on it (R6), later ones
 * do again. */
static uint64_t settled_after(const struct replica_row *found, const struct shard_state *state)
{
    const uint64_t settled = atomic_load_explicit(&state->settled, memory_order_relaxed);
    const bool counts = found->state == REPLICA_FULL && !found->torn &&
                        found->first_epoch == state->first_epoch &&
                        version_epoch(found->settled) < state->epoch;
    return counts && found->settled > settled ? found->settled : settled;
}

void recover_row_write(struct store *store, uint16_t shard, const struct shard_state *state)
{
    struct replica_row row = {.state = REPLICA_NONE};
    const struct replica_row found = store_replica(store, shard);
    if (state)
        row = (struct replica_row){.state = REPLICA_FULL,
                                   .first_epoch = state->first_epoch,
                                   .first_allocation = state->first_allocation,
                                   .settled = settled_after(&found, state)};
    if (found.state != row.state || found.first_epoch != row.first_epoch ||
        found.settled != row.settled)
        store_replica_set(store, shard, &row);
}
