/* Shards that the clean role reads, and those that have left the server (design, H15). What lies in segments of one that has
 * left is dead, as nobody holds the shard. Its index is walked once, so that nothing of it counts as live; then it is freed.
 * When it comes back under a new row it is another one.
 */
#include "common/base/list.h"
#include "server/clean/clean_state.h"

enum { FORGET_BUCKETS = 1024 }; /* of an index, in a poll */

static void note_leader(struct clean *clean, uint16_t shard, bool led, uint32_t worker)
{
    clean->leads[clean->owners[shard]] -= clean->led[shard];
    clean->leads[worker] += led;
    clean->owners[shard] = worker;
    clean->led[shard] = led;
}

void clean_read(struct clean *clean, const struct command_read *read)
{
    struct shard_state *shard = read->shard;
    const bool copies =
        shard->filling ||
        atomic_load_explicit(&shard->parent, memory_order_relaxed) != SHARD_NO_ID; /* split-3 */
    if (copies && clean->started && clean->log.open)
        log_close(&clean->log); /* as digest.c, take_shard */
    if (clean->shards[shard->id] && shard->primary != clean->led[shard->id])
        clean_checkpoint_abort(clean); /* the old owner has told of a part of its records */
    clean->shards[shard->id] = shard;
    clean->questions[shard->id] = read->questions;
    clean->numbers[shard->id] = read->number;
    clean->victims_begun++; /* it may bring its owner clients whom that did not know */
    note_leader(clean, shard->id, shard->primary, read->worker);
}

void clean_forget(struct clean *clean, struct shard_state *shard)
{
    clean_checkpoint_abort(clean);
    if (clean->swap.index == shard->index)
        clean->swap.index = NULL;
    clean->shards[shard->id] = NULL;
    note_leader(clean, shard->id, false, clean->owners[shard->id]);
    LIST_APPEND(&clean->leaving, shard, owned_link);
}

static void forget_item(void *context, uint64_t offset)
{
    const struct clean *clean = context;
    live_removed(store_live(clean->common->store), offset);
}

bool clean_forget_some(struct clean *clean)
{
    struct shard_state *shard = clean->leaving.first;
    if (!shard)
        return false;
    if (index_walk(shard->index, &clean->leaving_cursor, FORGET_BUCKETS, forget_item, clean))
        return true;
    LIST_REMOVE(&clean->leaving, shard, owned_link);
    clean->leaving_cursor = 0;
    shard_state_destroy(shard);
    return true;
}

void clean_forget_close(struct clean *clean)
{
    struct shard_state *shard;
    while ((shard = clean->leaving.first)) {
        LIST_REMOVE(&clean->leaving, shard, owned_link);
        shard_state_destroy(shard);
    }
}
