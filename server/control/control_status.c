/* What the control role answers by itself: the server's status. */
#include <stdlib.h>

#include "common/base/error.h"
#include "server/control/control_state.h"

static void fill_shard_status(const struct shard_state *shard, Rowan__ShardStatus *row)
{
    rowan__shard_status__init(row);
    row->id = shard->id;
    row->primary = shard->primary;
    row->objects = index_items(shard->index);
    row->version = atomic_load_explicit(&shard->version, memory_order_relaxed);
    row->index_bytes = index_bytes(shard->index);
    row->commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
    row->recovering = atomic_load_explicit(&shard->recovering, memory_order_relaxed);
    row->lost = atomic_load_explicit(&shard->lost, memory_order_relaxed);
    row->missing = atomic_load_explicit(&shard->missing, memory_order_relaxed);
}

static void fill_counts(struct control *control, Rowan__ServerStatus *status)
{
    for (uint32_t i = 0; i < control->options.workers; i++) {
        const struct worker_counts *counts = worker_counts(control->workers[i]);
        status->gets += atomic_load_explicit(&counts->gets, memory_order_relaxed);
        status->puts += atomic_load_explicit(&counts->puts, memory_order_relaxed);
        status->deletes += atomic_load_explicit(&counts->deletes, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < control->options.digests; i++) {
        status->entries_digested += digest_entries(control->digests[i]);
        status->fetches += digest_fetches(control->digests[i]);
    }
}

static void fill_status(struct control *control, Rowan__ServerStatus *status)
{
    const struct server_common *common = control->common;
    rowan__server_status__init(status);
    status->server = common->server;
    status->incarnation = common->incarnation;
    status->fabric = (char *)(uintptr_t)fabric_caps(common->fabric)->backend;
    status->durability = (char *)(uintptr_t)pm_durability_name(common->pm->durability);
    status->pm_backend = (char *)(uintptr_t)common->pm->backend;
    status->syncs = pm_sync_count(common->pm);
    status->workers = control->options.workers;
    status->digests = control->options.digests;
    status->reactors = control->options.reactors;
    status->uptime_seconds = (control->now_ns - control->start_ns) / NS_PER_S;
    if (!control->shards)
        return;
    status->term = control->config->term;
    status->segments = store_segments(common->store);
    status->segments_free = store_segments_free(common->store);
    status->segments_backup_log = store_segments_owned(common->store, OWNER_BACKUP_LOG);
    status->segments_worker_log = store_segments_owned(common->store, OWNER_WORKER);
    status->full = atomic_load_explicit(&common->full, memory_order_relaxed);
    fill_counts(control, status);
}

void control_status_send(struct control *control, struct control_link *link, uint32_t tag)
{
    /* Nothing wakes digest roles when an entry lands. Woken now, they have scanned it when the next
     * question comes. */
    control_wake_digests(control);
    Rowan__ServerStatus status;
    fill_status(control, &status);
    uint32_t count = control->shards ? control->config->shard_count : 0;
    Rowan__ShardStatus *rows = calloc(count + 1, sizeof *rows);
    Rowan__ShardStatus **pointers = calloc(count + 1, sizeof(Rowan__ShardStatus *));
    if (rows && pointers) {
        for (uint32_t i = 0; i < count; i++) {
            if (!control->shards[i])
                continue;
            pointers[status.n_shards] = &rows[status.n_shards];
            fill_shard_status(control->shards[i], &rows[status.n_shards++]);
        }
        status.shards = pointers;
        control_send(link, tag, &CONTROL_MESSAGE(SERVER_STATUS, server_status, &status));
    } else {
        control_query_refuse(control, link, tag, ROWAN_ENOMEM);
    }
    free(pointers);
    free(rows);
}
