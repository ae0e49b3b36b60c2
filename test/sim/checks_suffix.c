/* What a backup keeps while it runs (server/digest/digest_tail.c): what it has applied and not settled is in its uncommitted
 * suffix, so that the next primary is shown it (D7); and operations that may be asked again are there or in `completed` (D8).
 */
#include "server/control/control_state.h"
#include "server/shard/completed.h"
#include "test/sim/checks_state.h"

static void fail(struct checks *checks, const struct shard_state *shard, uint32_t server,
                 uint64_t version)
{
    checks_fail(
        checks, "suffix", JOURNAL_NO_KEY, shard->id,
        "server %u has applied version %lx of shard %u, and its uncommitted suffix lacks it",
        server + 1, version, shard->id);
}

/* Has the client acknowledged it? Or it did, and lost its place since. */
static bool is_acknowledged(const struct acknowledged_clients *clients, uint32_t client,
                            uint32_t operation)
{
    const uint32_t other = clients->places[acknowledged_place(client)].client;
    return acknowledged_has(clients, client, operation) || (other != 0 && other != client);
}

/* D8 of the digest role, of this run's epoch; what is at or below `above` may still lie in the suffix. */
static void look_at_operation(struct checks *checks, const struct shard_state *shard,
                              uint32_t server, const struct checks_entry *entry)
{
    const struct completed *completed = &shard->completed;
    const struct entry_header *header = &entry->header;
    const uint32_t client = header->client_id, operation = header->operation;
    bool known = client == 0 || version_epoch(header->version) != shard->epoch ||
                 checks->cluster->clock.now_ns - entry->stored_ns >= CLIENTS_KEEP_NS ||
                 !completed->acknowledged ||
                 is_acknowledged(completed->acknowledged, client, operation);
    for (uint32_t i = 0; i < shard->suffix.count && !known; i++)
        known = shard->suffix.items[i].version == header->version &&
                shard->suffix.items[i].client == client;
    for (uint32_t i = 0; i < completed->count && !known; i++)
        known = completed->items[i].client == client &&
                (completed->items[i].operation == operation ||
                 (completed->items[i].version == RECORDS_UNKNOWN &&
                  completed->items[i].operation > operation));
    if (!known)
        checks_fail(checks, "suffix", entry->key, shard->id,
                    "server %u has applied version %lx of shard %u, and does not know that it is "
                    "operation %u of client %u",
                    server + 1, header->version, shard->id, operation, client);
}

void checks_suffix_indexed(struct checks *checks, const struct shard_state *shard, uint32_t server,
                           const struct checks_entry *entry)
{
    const struct suffix *suffix = &shard->suffix;
    const uint64_t version = entry->header.version;
    bool shown = shard->primary || version <= suffix->above;
    for (uint32_t i = 0; i < suffix->count && !shown; i++) {
        const struct suffix_item *item = &suffix->items[i];
        shown = item->version == version && item->offset != 0 &&
                (checks->flips || checks_entry_at(checks, server, item->offset) == entry);
    }
    if (!shown)
        fail(checks, shard, server, version);
    if (!shard->primary)
        look_at_operation(checks, shard, server, entry);
}

/* A reconciliation that asks for more has `above` lowered, to what the index still names (suffix_below.h). */
static bool is_superseded(struct checks *checks, const struct shard_state *shard, uint32_t server,
                          uint64_t version)
{
    const struct checks_entry *entry = checks_entry(checks, shard->id, version);
    return entry && checks_is_superseded(checks, entry, server);
}

/* Of the epoch that its contiguous prefix has reached. */
static void look_at_shard(struct checks *checks, const struct shard_state *shard, uint32_t server)
{
    const struct suffix *suffix = &shard->suffix;
    const uint64_t start = version_make(version_epoch(shard->prefix.upto), 0);
    /* Of what it completed as the primary, `above` is ahead of what is settled. */
    const uint64_t settled = atomic_load_explicit(&shard->settled, memory_order_relaxed);
    const uint64_t above = suffix->above > settled ? suffix->above : settled;
    struct suffix copy = {.above = above > start ? above : start};
    for (uint32_t i = 0; i < suffix->count; i++)
        (void)suffix_add(&copy, suffix->items[i].version, suffix->items[i].offset);
    suffix_sort(&copy);
    while (copy.contiguous < shard->prefix.upto &&
           is_superseded(checks, shard, server, copy.contiguous + 1)) {
        (void)suffix_add(&copy, copy.contiguous + 1, 0);
        suffix_sort(&copy);
    }
    if (copy.contiguous < shard->prefix.upto)
        fail(checks, shard, server, copy.contiguous + 1);
    suffix_clear(&copy);
}

void checks_suffix_look(struct checks *checks, uint64_t turn)
{
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        const struct control *control = checks_control(checks, i);
        const struct cluster_config *config = control && control->shards ? control->config : NULL;
        const struct shard_state *shard =
            config ? checks_shard(control, config->shards[turn % config->shard_count].id) : NULL;
        if (shard && !shard->primary)
            look_at_shard(checks, shard, i);
    }
}
