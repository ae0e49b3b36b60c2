/* What a server holds of one shard: its index and its counters. */
#include "server/shard/shard.h"

#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/shard/split.h"

int shard_state_create(const struct pm *pm, const struct entry_format *format,
                       const struct shard *description, uint32_t server, struct shard_state **out)
{
    struct shard_state *shard = calloc(1, sizeof *shard);
    if (!shard)
        return ROWAN_ENOMEM;
    shard->id = description->id;
    atomic_init(&shard->parent, SHARD_NO_ID);
    shard->frozen = description->split != SPLIT_NONE;
    shard->primary = description->primary == server;
    shard->worker = description->worker;
    shard->epoch = description->epoch;
    shard->first_epoch = 1;
    shard->begin_epoch = description->epoch;
    shard->followed = description->epoch == 1;
    prefix_init(&shard->prefix, version_make(1, 0));
    atomic_init(&shard->commit, version_make(1, 0));
    atomic_init(&shard->settled, version_make(1, 0));
    atomic_init(&shard->closed, version_make(description->epoch, 0));
    atomic_init(&shard->exposed, UINT64_MAX);
    shard->open_landed = SHARD_NONE_LANDED;
    int error = work_init(&shard->work, description->first_slot, description->last_slot);
    if (!error)
        error = index_create(pm, format, &shard->index);
    if (error) {
        work_fini(&shard->work);
        free(shard);
        return error;
    }
    *out = shard;
    return 0;
}

void shard_fill(struct shard_state *shard, uint64_t first_allocation)
{
    const uint64_t before = version_make(shard->epoch, 0) - 1;
    shard->filling = true;
    shard->followed = false;
    shard->first_epoch = shard->epoch;
    shard->first_allocation = first_allocation;
    prefix_init(&shard->prefix, before);
    suffix_drop(&shard->suffix, before);
    suffix_sort(&shard->suffix);
    atomic_init(&shard->commit, before);
    atomic_init(&shard->settled, before);
    atomic_init(&shard->dur_settled, before);
    atomic_init(&shard->closed, before);
}

void shard_expose(struct shard_state *shard, uint64_t version, _Atomic uint64_t *exposures)
{
    if (version >= atomic_load_explicit(&shard->exposed, memory_order_relaxed))
        return;
    atomic_store_explicit(&shard->exposed, version, memory_order_release);
    atomic_fetch_add_explicit(exposures, 1, memory_order_acq_rel);
}

void shard_found_damage(struct shard_state *shard, _Atomic uint64_t *damages)
{
    if (atomic_exchange_explicit(&shard->damaged, true, memory_order_relaxed))
        return;
    log_event(LOG_ERROR, "shard_damaged", "shard=%u", shard->id);
    atomic_fetch_add_explicit(damages, 1, memory_order_release);
}

void shard_close(struct shard_state *shard, uint64_t version)
{
    if (version > atomic_load_explicit(&shard->closed, memory_order_relaxed))
        atomic_store_explicit(&shard->closed, version, memory_order_release);
}

void shard_settle(struct shard_state *shard, uint64_t contiguous)
{
    const uint64_t commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
    const uint64_t closed = atomic_load_explicit(&shard->closed, memory_order_relaxed);
    uint64_t settled = commit < closed ? commit : closed;
    /* Until its epoch begins a log reconciliation reads the suffix, from one version on; and where data are possibly
     * incomplete, this replica may lack anything. */
    if (version_epoch(commit) < shard->epoch || shard->landed_in)
        return;
    if (contiguous < settled)
        settled = contiguous;
    if (settled > atomic_load_explicit(&shard->settled, memory_order_relaxed))
        atomic_store_explicit(&shard->settled, settled, memory_order_release);
}

void shard_state_destroy(struct shard_state *shard)
{
    if (!shard)
        return;
    split_forget(shard);
    records_fini(&shard->records);
    suffix_clear(&shard->suffix);
    completed_clear(&shard->completed);
    suffix_clear(&shard->below.found);
    index_destroy(shard->index);
    work_fini(&shard->work);
    free(shard);
}
