/* The answers of a shard's owner. */
#include "server/shard/query.h"

#include <stdlib.h>
#include <string.h>
/* for the size of a streaming state, so that it can lie on the stack */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/shard/apply.h"

enum { CHECKSUM_BUCKETS_PER_STEP = 32 };

/* --- the checksum of what is live --- */

struct checksum_walk {
    struct query_checksum *query;
    const struct pm *pm;
    const struct entry_format *format;
};

/* The lengths themselves may be damaged: nothing beyond the map is read. */
static void keep_key(const struct checksum_walk *walk, uint64_t offset)
{
    uint8_t key[ENTRY_MAX_KEY_BYTES];
    uint32_t bytes = 0;
    if (walk->pm->bytes - offset >= 2 * ENTRY_MAX_KEY_BYTES)
        bytes = entry_key(walk->format, pm_at(walk->pm, offset), key);
    walk->query->is.damaged_offset = offset;
    walk->query->key_bytes = bytes < QUERY_KEY_BYTES ? bytes : QUERY_KEY_BYTES;
    memcpy(walk->query->key, key, walk->query->key_bytes);
}

/* The sum over live objects does not depend on the order in which an index holds them. */
static void visit_item(void *context, uint64_t offset)
{
    struct checksum_walk *walk = context;
    struct query_checksum *query = walk->query;
    const uint8_t *at = pm_at(walk->pm, offset);
    uint64_t segment_end = (offset / STORE_SEGMENT_BYTES + 1) * STORE_SEGMENT_BYTES;
    struct entry_header header;
    if (entry_verify(walk->format, at, segment_end - offset, &header)) {
        if (query->is.damaged++ == 0)
            keep_key(walk, offset);
        return;
    }
    if (header.type != ENTRY_PUT)
        return;
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    XXH3_64bits_update(&hash, &header.version, sizeof header.version);
    uint8_t key[ENTRY_MAX_KEY_BYTES];
    uint32_t key_bytes = entry_key(walk->format, at, key);
    XXH3_64bits_update(&hash, &header.key_bytes, sizeof header.key_bytes);
    XXH3_64bits_update(&hash, key, key_bytes);
    struct entry_piece pieces[16];
    unsigned count, first = 0;
    while ((count = entry_value_pieces(walk->format, &header, at, first, pieces, 16)) > 0) {
        for (unsigned i = 0; i < count; i++)
            XXH3_64bits_update(&hash, pieces[i].data, pieces[i].bytes);
        first += count;
    }
    query->is.checksum += XXH3_64bits_digest(&hash);
    query->is.objects++;
}

/* True when the walk has ended, or is pointless because the shard is being written. */
static bool checksum_step(struct query_checksum *query, const struct shard_state *shard,
                          const struct pm *pm, const struct entry_format *format)
{
    struct checksum_walk walk = {.query = query, .pm = pm, .format = format};
    bool more =
        index_walk(shard->index, &query->cursor, CHECKSUM_BUCKETS_PER_STEP, visit_item, &walk);
    uint64_t version = atomic_load_explicit(&shard->version, memory_order_relaxed);
    query->is.missing = atomic_load_explicit(&shard->missing, memory_order_relaxed);
    /* A version behind a hole was digested: those in the hole are still to come. */
    bool hole = !shard->primary && shard->prefix.count > 0;
    /* Until this epoch has a commit version log reconciliation may bring more. */
    const uint64_t commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
    const bool reconciling = version_epoch(commit) < shard->epoch ||
                             atomic_load_explicit(&shard->recovering, memory_order_relaxed);
    query->is.busy = version != query->is.version || shard->in_flight.first || query->is.missing ||
                     hole || reconciling ||
                     shard->parent != SHARD_NO_ID; /* it does not have all of it yet */
    return !more || query->is.busy;
}

/* --- the uncommitted suffix --- */

/* A cursor is a version: positions change when entries are added meanwhile. */
static void add_entries(struct query *query, const struct suffix *suffix, const struct pm *pm,
                        const struct entry_format *format)
{
    const uint64_t cursor = query->suffix.cursor;
    uint32_t item = suffix_find(suffix, cursor ? cursor - 1 : query->suffix.after);
    uint32_t block = query->suffix.block;
    query->suffix.blocks.data = query->data;
    for (; item < suffix->count; item++, block = 0) {
        const struct suffix_item *at = &suffix->items[item];
        if (at->version != cursor)
            block = 0;
        int added = block_list_add(&query->suffix.blocks, pm, format, query->shard, at->version,
                                   at->offset, &block);
        if (added == 0) {
            query->suffix.next_cursor = at->version;
            query->suffix.next_block = block;
            return;
        }
        if (added < 0)
            log_event(LOG_ERROR, "entry_damaged", "shard=%u version=%lx offset=%lu", query->shard,
                      at->version, at->offset);
    }
}

/* True when the answer is there. */
static bool answer_suffix(struct query *query, struct shard_state *shard, const struct pm *pm,
                          const struct entry_format *format)
{
    struct query_suffix *suffix = &query->suffix;
    if (!shard || shard->primary || shard->epoch != suffix->epoch ||
        version_epoch(suffix->asked_commit) > shard->epoch) {
        query->error = ROWAN_EAGAIN;
        return true;
    }
    /* It may be on its way here still that an epoch has begun, for which all of earlier ones was brought to this replica. */
    if (version_epoch(suffix->asked_commit) >= shard->begin_epoch) {
        (void)apply_commit(shard, suffix->asked_commit);
        shard->followed = true;
    }
    suffix_sort(&shard->suffix);
    suffix->commit = atomic_load_explicit(&shard->commit, memory_order_relaxed);
    if (version_epoch(suffix->commit) < shard->first_epoch)
        suffix->commit = 0; /* of a replica that fills, and was not told of any */
    suffix->prefix = shard_contiguous(shard);
    suffix->settled = atomic_load_explicit(&shard->settled, memory_order_relaxed);
    /* Once its epoch has a commit version the shard is reconciled: who asks hears that, and goes by it. */
    if (suffix->after == QUERY_SUFFIX_NONE || version_epoch(suffix->commit) == shard->epoch)
        return true;
    const int lowered =
        suffix_below_step(&shard->below, &shard->suffix, shard->index, pm, suffix->after);
    if (lowered < 0)
        query->error = ROWAN_EAGAIN;
    else if (lowered == 1)
        add_entries(query, &shard->suffix, pm, format);
    return lowered != 0;
}

/* --- where a key lies --- */

static void answer_trace(struct query_trace *query, const struct shard_state *shard,
                         const struct pm *pm, const struct entry_format *format)
{
    Rowan__TraceIs *is = &query->is;
    struct entry_header header;
    const uint64_t offset = index_find(shard->index, index_hash(query->key, query->key_bytes),
                                       query->key, query->key_bytes);
    is->primary = shard->primary;
    is->epoch = shard->epoch;
    is->upto = atomic_load_explicit(&shard->version, memory_order_relaxed);
    is->incomplete = atomic_load_explicit(&shard->missing, memory_order_relaxed) ||
                     atomic_load_explicit(&shard->recovering, memory_order_relaxed) ||
                     (!shard->primary && shard->prefix.count > 0) || shard->filling ||
                     shard->parent != SHARD_NO_ID;
    if (!offset)
        return;
    is->found = true;
    is->offset = offset;
    if (entry_verify(format, pm_at(pm, offset), STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES,
                     &header)) {
        is->damaged = true;
        return;
    }
    is->version = header.version;
    is->tombstone = header.type == ENTRY_DELETE;
    is->value_bytes = header.value_bytes;
}

/* --- all --- */

void query_begin(struct queries *queries, struct query *query, struct shard_state *state)
{
    query->state = state;
    if (query->kind == QUERY_CHECKSUM && state) {
        query->checksum.is.version = atomic_load_explicit(&state->version, memory_order_relaxed);
        query->checksum.is.primary = state->primary;
    }
    LIST_APPEND(queries, query, place);
}

static void tell_damage(const struct query *query, struct server_common *common)
{
    const bool damaged = query->kind == QUERY_TRACE
                             ? query->trace.is.damaged
                             : query->kind == QUERY_CHECKSUM && query->checksum.is.damaged > 0;
    if (damaged && query->state)
        shard_found_damage(query->state, &common->damages);
}

bool query_step(struct query *query, struct server_common *common)
{
    const struct pm *pm = common->pm;
    const struct entry_format *format = &common->format;
    if (query->answered)
        return true;
    if (query->kind == QUERY_SUFFIX) {
        if (!answer_suffix(query, query->state, pm, format))
            return false;
    } else if (!query->state)
        query->error = ROWAN_ENOTMINE;
    else if (query->kind == QUERY_TRACE)
        answer_trace(&query->trace, query->state, pm, format);
    else if (!checksum_step(&query->checksum, query->state, pm, format))
        return false;
    tell_damage(query, common);
    query->answered = true;
    return true;
}

void queries_refuse(struct queries *queries, const struct shard_state *state)
{
    for (struct query *query = queries->first; query; query = query->place.next) {
        if (query->state != state || query->answered)
            continue;
        query->state = NULL;
        query->error = ROWAN_EAGAIN;
        query->answered = true;
    }
}

void queries_drop(struct queries *queries)
{
    while (queries->first) {
        struct query *query = queries->first;
        LIST_REMOVE(queries, query, place);
        free(query);
    }
}
