/* An operation of a client has one version ("once"), in all PMs together. */
#include "test/sim/checks_state.h"

/* Where servers are replaced: one that was deposed stores what nobody else gets, and what it alone has counts nowhere. What a
 * primary stored before its shard went to another of its workers, it keeps. */
static bool is_of_an_epoch_that_is_over(const struct checks *checks,
                                        const struct entry_header *header)
{
    return checks->gone[header->shard] ||
           version_epoch(header->version) < checks->led_from[header->shard];
}

/* A client's operation takes effect once: while a whole copy of one entry of it is left, or it was cleaned, there is no
 * other. One that is not durable yet counts: this is asked only once, and what a power loss takes is no copy any more. */
void checks_once(struct checks *checks, struct checks_server *server,
                 const struct checks_entry *entry)
{
    const struct entry_header *header = &entry->header;
    if (header->client_id == 0 || is_of_an_epoch_that_is_over(checks, header))
        return;
    uint32_t at = checks->by_operation[checks_bucket(header->client_id, header->operation)];
    for (; at; at = checks->entries[at].next_operation) {
        const struct checks_entry *other = &checks->entries[at];
        if (other->header.client_id == header->client_id &&
            other->header.operation == header->operation &&
            (other->done || (!is_of_an_epoch_that_is_over(checks, &other->header) &&
                             checks_is_anywhere(checks, other))))
            checks_fail(checks, "once", other->key, header->shard,
                        "%s: operation %u of client %u has version %lx of shard %u, and %lx of %u",
                        server->checks->cluster->servers[server->number].process.name,
                        header->operation, header->client_id, header->version, header->shard,
                        other->header.version, other->header.shard);
    }
}
