/* Segments that are used again (C4). At the moment when a segment becomes DIRTY, nothing there is needed any more:
 *
 *  - no index item of that server leads into it, no block on its way is read from it, and nothing that a role keeps from
 *    poll to poll names it;
 *  - of each entry in it the server has another durable copy, or, with all other replicas, a durable newer one of its key;
 *    or it is a tombstone that goes (C5): of no older version of its key is anything left there, and every replica has
 *    settled it;
 *  - of one that is gone then, the settled version in the durable replica row tells a start so (G2, control_commit.c).
 *
 * Behind that: it is zeroed when DIRTY is durable, it is FREE when the zeros are, and a log opens only what is zeros.
 */
#include <string.h>

#include "server/control/control_state.h"
#include "server/store/store_layout.h"
#include "server/worker/worker_state.h"
#include "test/sim/checks_state.h"

/* --- what the server knows --- */

static bool is_fenced(const struct checks_server *server)
{
    return server->pm->pm.durability == PM_FENCE;
}

/* What a power loss just now would leave of the shard's row, with the highest settled version: rows are brought to one
 * copy of the table, then to the other one, so that one of them is always durable. */
static struct row row_in_pm(const struct checks_server *server, uint16_t shard)
{
    const struct store_geometry at = store_geometry(server->segments);
    struct row found = {0};
    for (unsigned copy = 0; copy < 2; copy++) {
        struct row row;
        if ((!is_fenced(server) ||
             sim_pm_is_durable(server->pm, at.replicas[copy] + (uint64_t)shard * ROW_BYTES,
                               ROW_BYTES)) &&
            row_read(&server->pm->pm, at.replicas[copy], shard, &row) == ROW_WHOLE &&
            row.settled > found.settled)
            found = row;
    }
    return found;
}

static uint64_t settled_in_pm(const struct checks_server *server, uint16_t shard)
{
    return row_in_pm(server, shard).settled;
}

/* By what cannot vanish any more: a log reconciliation keeps what any replica has. */
bool checks_is_superseded(struct checks *checks, const struct checks_entry *entry, uint32_t server)
{
    uint32_t at = entry->key == JOURNAL_NO_KEY ? 0 : checks->keys[entry->key].last_entry;
    for (; at; at = checks->entries[at].next_of_key) {
        struct checks_entry *newer = &checks->entries[at];
        if (newer->header.version > entry->header.version &&
            checks_is_whole(checks, newer, server) && checks_is_everywhere(checks, newer))
            return true;
    }
    return false;
}

/* --- tombstones (C5) --- */

static bool word_is_durable(const struct checks_server *server, uint64_t segment)
{
    const struct store_geometry at = store_geometry(server->segments);
    const uint64_t word = segment * META_BYTES;
    return !is_fenced(server) || sim_pm_is_durable(server->pm, at.metas[0] + word, META_BYTES) ||
           sim_pm_is_durable(server->pm, at.metas[1] + word, META_BYTES);
}

/* Does a first block of the entry lie where a start after a crash would take it? Not what an earlier replica left, nor what
 * landed in a void. */
static bool is_left(const struct checks_server *server, const struct checks_entry *entry)
{
    const struct checks *checks = server->checks;
    const struct row row = row_in_pm(server, entry->header.shard);
    if (checks->gone[entry->header.shard])
        return false;
    const bool of_before = version_epoch(entry->header.version) < row.first_epoch;
    for (uint32_t at = entry->copies; at; at = checks->copies[at].next) {
        const struct checks_copy *copy = &checks->copies[at];
        if (copy->server != server->number || copy->kind != CHECKS_BLOCK || copy->block != 0 ||
            copy->late)
            continue;
        const uint64_t segment = (copy->offset - server->segment_offset) / STORE_SEGMENT_BYTES;
        const struct segment_meta meta = checks_segment_meta(server, segment);
        const enum segment_state state = meta.state;
        if (of_before &&
            (meta.owner == OWNER_BACKUP_LOG || meta.allocation <= row.first_allocation))
            continue;
        if (state != SEGMENT_FREE && (state != SEGMENT_DIRTY || !word_is_durable(server, segment)))
            return true;
    }
    return false;
}

bool checks_may_go(struct checks_server *server, const struct checks_entry *tombstone)
{
    struct checks *checks = server->checks;
    const uint16_t shard = tombstone->header.shard;
    uint32_t at = tombstone->key == JOURNAL_NO_KEY ? 0 : checks->keys[tombstone->key].last_entry;
    if (tombstone->header.type != ENTRY_DELETE)
        return false;
    for (; at; at = checks->entries[at].next_of_key) {
        const struct checks_entry *older = &checks->entries[at];
        if (older->header.version < tombstone->header.version && is_left(server, older))
            return false;
    }
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        if (checks_is_replica(checks, shard, i) &&
            settled_in_pm(&checks->servers[i], shard) < tombstone->header.version)
            return false;
    }
    return true;
}

bool checks_may_be_lost(const struct checks_server *server, const struct entry_header *header)
{
    return checks_lost_block(server) && header->version > settled_in_pm(server, header->shard);
}

bool checks_may_be_hidden(const struct checks_server *server, uint16_t shard, uint64_t version)
{
    return checks_has_hidden(server) && version > settled_in_pm(server, shard);
}

/* --- a segment that was given up --- */

static void fail(struct checks_server *server, const struct checks_entry *entry, uint64_t segment,
                 const char *why)
{
    const struct entry_header *header = &entry->header;
    checks_fail(server->checks, "C4", entry->key, header->shard,
                "segment %lu of server %u is given up, and version %lx of shard %u in it %s (up to "
                "%lx is settled in its PM)",
                segment, server->number + 1, header->version, header->shard, why,
                settled_in_pm(server, header->shard));
}

/* The segment is in use no longer, so its copies do not count. */
static void look_at_entry(struct checks_server *server, struct checks_entry *entry,
                          uint64_t segment)
{
    struct checks *checks = server->checks;
    if (checks_is_whole(checks, entry, server->number) ||
        !checks_was_whole(checks, entry, server->number, segment))
        return;
    if (!checks_is_replica(checks, entry->header.shard, server->number)) {
        entry->cleaned |= UINT32_C(1) << server->number; /* it may be one later, that fills now */
        return;
    }
    const bool goes = checks_may_go(server, entry);
    /* It takes the entry for one that it lacks, and asks. */
    const bool lost = checks_may_be_lost(server, &entry->header);
    /* The newer one may have been everywhere when this one was dropped; since then a host has lost it. */
    /* What an earlier replica left here is dead. */
    const bool of_before = version_epoch(entry->header.version) <
                           checks->first_epochs[server->number][entry->header.shard];
    if (!goes && !lost && !of_before && !checks_is_superseded(checks, entry, server->number) &&
        !checks_in_doubt(checks, entry->header.shard, version_epoch(entry->header.version)))
        fail(server, entry, segment,
             "has no other copy there, and no newer entry that all replicas have, and C5 does not "
             "hold");
    else if (!lost && !of_before &&
             entry->header.version > settled_in_pm(server, entry->header.shard))
        fail(server, entry, segment, "is above what is known to be settled after a crash");
    checks_tell(server, JOURNAL_CLEANED, entry,
                goes ? "no older one is left" : "a newer one is everywhere");
    checks->counts.tombstones += goes;
    entry->cleaned |= UINT32_C(1) << server->number;
    entry->done |= !of_before; /* of a deposed primary: it counted nowhere */
}

static void look_at_entries(struct checks_server *server, uint64_t segment)
{
    struct checks *checks = server->checks;
    const uint64_t strides = STORE_SEGMENT_BYTES / ENTRY_ALIGN;
    uint32_t before = CHECKS_NONE;
    for (uint64_t i = segment * strides; i < (segment + 1) * strides; i++) {
        const struct checks_copy *copy = &checks->copies[server->copy_at[i]];
        server->reused[segment] |= copy->kind != CHECKS_FREE;
        if (copy->kind != CHECKS_BLOCK || copy->entry == before)
            continue;
        before = copy->entry;
        look_at_entry(server, &checks->entries[before], segment);
    }
    checks->counts.cleaned += server->reused[segment];
}

struct visit {
    struct checks_server *server;
    uint64_t first; /* of the segment */
    uint16_t shard;
};

static void look_at_item(void *context, uint64_t offset)
{
    const struct visit *visit = context;
    if (offset < visit->first || offset >= visit->first + STORE_SEGMENT_BYTES)
        return;
    checks_fail(visit->server->checks, "C4", JOURNAL_NO_KEY, visit->shard,
                "the segment at %lu of server %u is given up, and the index of shard %u has an "
                "item that leads to %lu",
                visit->first, visit->server->number + 1, visit->shard, offset);
}

/* What roles keep from poll to poll, and follow later: log reconciliations their uncommitted suffixes, a worker what it
 * found for a backup, and the segment that it looks through for more. */
static bool suffix_leads_to(const struct suffix *suffix, uint64_t first)
{
    for (uint32_t i = 0; i < suffix->count; i++) {
        const struct suffix_item *item = &suffix->items[i];
        if (item->version > suffix->above && item->offset >= first &&
            item->offset < first + STORE_SEGMENT_BYTES)
            return true;
    }
    return false;
}

static bool fetch_leads_to(const struct fetch *fetch, uint64_t segment, uint64_t first)
{
    for (uint32_t i = 0; i < fetch->count; i++) {
        const struct question *question = &fetch->questions[i];
        const struct suffix found = {.items = (struct suffix_item *)(uintptr_t)question->found,
                                     .count = question->count};
        if (suffix_leads_to(&found, first))
            return true;
    }
    return fetch->count > 0 && fetch->inside && fetch->segment == segment;
}

static void look_at_fetches(struct checks_server *server, uint64_t segment, uint64_t first)
{
    const struct sim_cluster *cluster = server->checks->cluster;
    struct server *process = cluster->servers[server->number].server;
    for (uint32_t i = 0; process && i < cluster->options.workers; i++) {
        const struct worker *worker = server_poller(process, 1 + i).role;
        if (fetch_leads_to(&worker->fetch, segment, first))
            checks_fail_at(server, first,
                           "a segment is given up in which a worker looks for a backup,");
    }
}

static void look_at_holders(struct checks_server *server, uint64_t segment)
{
    struct checks *checks = server->checks;
    const struct control *control = checks_control(checks, server->number);
    struct visit visit = {.server = server,
                          .first = server->segment_offset + segment * STORE_SEGMENT_BYTES};
    for (uint32_t i = 0; control && control->config && i < control->config->shard_count; i++) {
        const struct shard_state *shard = checks_shard(control, control->config->shards[i].id);
        uint64_t cursor = 0;
        if (!shard)
            continue;
        if (suffix_leads_to(&shard->suffix, visit.first))
            checks_fail_at(server, visit.first,
                           "a segment is given up to which an uncommitted suffix leads,");
        visit.shard = shard->id;
        while (index_walk(shard->index, &cursor, UINT32_MAX, look_at_item, &visit))
            continue;
    }
    if (sim_network_reads(checks->cluster->network, server->pm->pm.base + visit.first,
                          STORE_SEGMENT_BYTES))
        checks_fail_at(server, visit.first, "a segment is given up from which blocks are sent,");
}

bool checks_full(const struct checks *checks)
{
    bool full = false;
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        const struct control *control = checks_control(checks, i);
        full |= control && atomic_load_explicit(&control->common->full, memory_order_relaxed);
    }
    return full;
}

uint64_t checks_tombstones(const struct checks *checks)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < checks->cluster->options.servers; i++) {
        const struct control *control = checks_control(checks, i);
        const struct store *store = control ? control->common->store : NULL;
        for (uint64_t segment = 0; store && segment < store_segments(store); segment++)
            count += live_tombstones(store_live(store), segment);
    }
    return count;
}

/* --- its way --- */

bool checks_is_void(const struct checks_server *server, uint64_t segment, uint64_t from,
                    size_t bytes)
{
    const struct store_geometry at = store_geometry(server->segments);
    const struct segment_meta meta = checks_segment_meta(server, segment);
    for (uint32_t i = 0; i < 2 * STORE_VOIDS; i++) {
        struct void_row row;
        if (void_read(&server->pm->pm, at.voids[i % 2], i / 2, &row) == VOID_WHOLE &&
            void_is_of(&row, segment, &meta) && from >= row.from &&
            from - row.from + bytes <= row.bytes)
            return true;
    }
    return false;
}

void checks_clean_zeros(struct checks_server *server, uint64_t offset, size_t bytes)
{
    const uint64_t from = offset - server->segment_offset;
    const uint64_t segment = from / STORE_SEGMENT_BYTES;
    const uint64_t begin = offset - from % STORE_SEGMENT_BYTES;
    if (checks_segment_meta(server, segment).state != SEGMENT_DIRTY) {
        if (!checks_is_void(server, segment, from % STORE_SEGMENT_BYTES, bytes))
            checks_fail_at(server, begin, "zeros over a segment in use");
        return;
    }
    if (server->reused[segment] && !word_is_durable(server, segment))
        checks_fail_at(server, begin, "zeros over a segment that a crash would give back");
    look_at_fetches(
        server, segment,
        begin); /* who entered while it was COMMITTED may still read it when it is DIRTY */
}

void checks_clean_meta(struct checks_server *server, uint64_t segment)
{
    const uint64_t offset = server->segment_offset + segment * STORE_SEGMENT_BYTES;
    const uint8_t *bytes = server->pm->pm.base + offset;
    struct segment_meta before, now = checks_segment_meta(server, segment);
    uint64_t second;
    memcpy(&second,
           server->pm->pm.base + store_geometry(server->segments).metas[1] + segment * META_BYTES,
           sizeof second);
    /* If they are equal, an open of the store mends. */
    if (!meta_decode(segment, second, &before) ||
        (before.state == now.state && before.allocation == now.allocation))
        return;
    if (now.state == SEGMENT_USING && !checks_is_zero(bytes, STORE_SEGMENT_BYTES))
        checks_fail_at(server, offset, "a log opens a segment that is not zeros,");
    if (now.state == SEGMENT_DIRTY && before.state >= SEGMENT_USING) {
        look_at_entries(server, segment);
        look_at_holders(server, segment);
    }
    /* A power loss took all of its life but bytes, which a start zeroes. */
    if (now.state == SEGMENT_DIRTY && before.state == SEGMENT_FREE)
        server->reused[segment] = false;
    if (now.state != SEGMENT_FREE)
        return;
    if (server->reused[segment] &&
        (!checks_is_zero(bytes, STORE_SEGMENT_BYTES) ||
         (is_fenced(server) && !sim_pm_is_durable(server->pm, offset, STORE_SEGMENT_BYTES))))
        checks_fail_at(server, offset, "a segment is free, and a crash would find bytes in it,");
    server->reused[segment] = false;
}
