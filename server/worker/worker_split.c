/* A worker copies what shards that are split hold to their children. Clients go first, as in filling (pace.h). */
#include "server/worker/worker_split.h"

#include "server/shard/split.h"

/* By rising slots. */
static struct split_owner owner_of(struct worker *worker, struct shard_state *parent)
{
    struct split_owner owner = {
        .common = worker->common, .log = &worker->log, .key = worker->key, .parent = parent};
    uint32_t count = 0;
    for (uint32_t i = 0; i < worker->config->served_count && count < 2; i++) {
        struct shard_state *shard = worker->shards[worker->config->shards[i].id];
        if (shard && atomic_load_explicit(&shard->parent, memory_order_relaxed) == parent->id)
            owner.children[count++] = shard;
    }
    return owner;
}

static bool step(struct worker *worker, struct shard_state *parent, uint64_t now_ns,
                 uint64_t *wake_ns)
{
    const struct split_owner owner = owner_of(worker, parent);
    const bool any = split_step(&owner, now_ns, wake_ns);
    worker->stored |= any;
    if (split_tells(parent, now_ns, wake_ns))
        role_copied(&worker->role, parent->id, parent->epoch);
    return any;
}

bool worker_split_poll(struct worker *worker, bool clients, uint64_t now_ns, uint64_t *wake_ns)
{
    if (!worker->config || worker->config->served_count == worker->config->shard_count ||
        !pace_may_step(&worker->split_pace, clients, now_ns, wake_ns))
        return false;
    bool any = false;
    struct shard_state *parent;
    for (uint32_t i = worker->config->served_count; (parent = worker_next_shard(worker, &i));) {
        if (parent->frozen)
            any |= step(worker, parent, now_ns, wake_ns);
    }
    worker->split_pace.stepped = any;
    return any;
}
