/* A shard leaves its digest role. One that this server is to lead (design, section 6, Failover): when all is applied that
 * had landed when it was asked for. One that leaves the server: when nothing of it is stored any more. Until then nothing
 * changes. From then on the role passes over its entries.
 */
#include "common/base/assert.h"
#include "common/base/error.h"
#include "server/digest/digest_state.h"
#include "server/shard/split.h"

void digest_release(struct digest *digest, const struct command_release *release)
{
    struct shard_state *shard = digest->shards[release->shard];
    ASSERT(shard);
    shard->release_ticket = release->leaves ? 0 : digest_catch_up_begin(digest);
    LIST_APPEND(&digest->releasing, shard, releasing_link);
}

static void leave_lists(struct digest *digest, struct shard_state *shard)
{
    LIST_REMOVE(&digest->owned, shard, owned_link);
    if (atomic_load_explicit(&shard->missing, memory_order_relaxed))
        LIST_REMOVE(&digest->missing, shard, missing_link);
    digest->shards[shard->id] = NULL;
    digest->frozen -= shard->frozen;
    split_forget(shard);
}

/* They are the old primary's, or will be asked again. */
static void refuse_queries(struct digest *digest, const struct shard_state *shard)
{
    for (struct query *query = digest->waiting.first, *next; query; query = next) {
        next = query->place.next;
        if (query->state != shard)
            continue;
        LIST_REMOVE(&digest->waiting, query, place);
        LIST_APPEND(&digest->queries, query, place);
    }
    queries_refuse(&digest->queries, shard);
}

static void detach(struct digest *digest, struct shard_state *shard)
{
    const uint64_t version = atomic_load_explicit(&shard->version, memory_order_relaxed);
    /* What came by message lies in closed segments: nobody else closes them for the shard. */
    if (digest->log.open)
        log_close(&digest->log);
    leave_lists(digest, shard);
    refuse_queries(digest, shard);
    join_drop(&digest->join, shard->id, UINT64_MAX);
    digest_store_drop(digest, shard);
    digest_tail_leave(shard);
    atomic_store_explicit(&shard->missing, false, memory_order_relaxed);
    atomic_store_explicit(&shard->landed, version > shard->met ? version : shard->met,
                          memory_order_relaxed);
    shard->landed_in = digest->current ? digest->current->number : 0;
    shard->open_landed = SHARD_NONE_LANDED;
    if (digest->kept_from)
        digest_log_closes(digest); /* D10 */
    if (command_push(&digest->role.outbox,
                     &(struct command){.kind = COMMAND_SHARD, .shard = shard}))
        server_fail(digest->common, ROWAN_ENOMEM, "no memory for a change of the configuration");
}

/* What came by message is stored, and its fence waited for, before the shard goes. */
static bool is_stored(const struct digest *digest, const struct shard_state *shard)
{
    for (const struct query *query = digest->stores.first; query; query = query->place.next) {
        if (query->state == shard)
            return false;
    }
    return true;
}

bool digest_release_poll(struct digest *digest)
{
    bool any = false;
    for (struct shard_state *shard = digest->releasing.first, *next; shard; shard = next) {
        next = shard->releasing_link.next; /* once it is handed over, it is control's */
        if (!digest_caught_up(digest, shard->release_ticket) || !is_stored(digest, shard))
            continue;
        LIST_REMOVE(&digest->releasing, shard, releasing_link);
        detach(digest, shard);
        any = true;
    }
    return any;
}
