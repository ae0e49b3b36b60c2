/* What a digest role takes in by message: entries that it asked for (Fetch) and what log reconciliation brings. They are
 * stored in its own log.
 *
 * Invariants:
 *  E1  A message whose epoch is not the shard's any more is dropped, and so is an entry that nobody can have asked for: of
 *      the present epoch what no commit version covers, of another shard, not whole (D1), of before the first epoch. But data
 *      that may be incomplete may lack what a filling brought: of those any epoch is asked for.
 *  E2  What is here already is not stored again: messages that come late, or again after a break, fill no segments, even
 *      if the contiguous prefix has forgotten what they bring (prefix.h). So messages for one shard are taken one after
 *      the other.
 *  E3  An entry is a part of the replica when it is durable, and what is confirmed is a part of it. So neither the
 *      contiguous prefix nor the sender counts on what a power loss may take.
 *  E4  Without space the message is answered with the error, after what found space was applied, and what is missing is
 *      asked for again after the shortest interval: it was no answer that failed to come. Without memory for the index it
 *      waits: stored again it would take space again.
 *  E5  Versions are gone only if the primary of the present epoch says so, and a commit version of this epoch covers them:
 *      then what took their place is on all replicas, and lands or is fetched like any other. They count as arrived.
 *  E6  To a replica that fills comes what its primary's index shows, of whatever epoch, and record stubs. Nothing is stored
 *      of which the index shows a later version. An entry of an epoch before the replica's first gives no completion record:
 *      those that are needed come as record stubs, after all entries. The last message is answered when all of that lies in
 *      closed segments (E8).
 *  E7  What is stored and not applied lies in no COMMITTED segment: the control role asks for `stores_from`. So does a
 *      long entry of which a message brought a part, until the next ones bring the rest, its epoch ends, or its version
 *      is settled without it: that segment alone (`halves`), as the server that brings it may be gone for long. It does for the
 *      message that brings the rest as well, until that is over: the log may have gone on to a later segment meanwhile. Versions
 *      in front of the first epoch are settled from the start, and that says nothing of them: an entry of those is not dropped
 *      for it.
 *  E8  For a last message the log is closed, as nobody else may close it, DIGEST_END_NS later: for all that end meanwhile. Else
 *      each of many small shards would take a segment, and use the space of a small memory up faster than it can be cleaned.
 *
 *  message --(blocks are stored)--> fence --(done)--> applied --> answered
 *
 * Each poll does a bounded step: who shares the thread answers clients meanwhile.
 */
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/digest/digest_state.h"

/* The PM wakes one thread when a fence is done, which need not be this one. */
#define STORE_FENCE_LOOK_NS (100 * NS_PER_US)
#define STORE_MEMORY_NS     (10 * NS_PER_MS)

enum { STORE_STEP = 128 }; /* blocks stored, or entries applied, in a poll */

static uint64_t commit_of(const struct shard_state *shard)
{
    return atomic_load_explicit(&shard->commit, memory_order_relaxed);
}

/* E1 */
static bool is_expected(const struct shard_state *shard, const struct entry_header *header)
{
    const uint32_t epoch = version_epoch(header->version);
    const bool is_object = header->type == ENTRY_PUT || header->type == ENTRY_DELETE;
    if (header->shard != shard->id || version_counter(header->version) == 0)
        return false;
    /* Of what its primary shows, any may be of the present epoch, and not told to be committed yet. */
    if (shard->filling)
        return (is_object || header->type == ENTRY_RECORD) && epoch <= shard->epoch;
    const bool is_known = epoch >= shard->first_epoch ||
                          atomic_load_explicit(&shard->possibly_incomplete, memory_order_relaxed);
    return is_object && is_known && (epoch < shard->epoch || header->version <= commit_of(shard));
}

/* The version that the index shows of the key of the entry whose first block is this; 0: none. Where blocks part the key,
 * nobody looks. */
static uint64_t indexed(const struct digest *digest, const struct shard_state *shard,
                        const struct entry_header *header, const uint8_t *block)
{
    const uint8_t *key = block + ENTRY_HEADER_BYTES;
    if (header->key_bytes > entry_block_capacity(&digest->common->format))
        return 0;
    const uint64_t at =
        index_find(shard->index, index_hash(key, header->key_bytes), key, header->key_bytes);
    return at ? entry_version(pm_at(digest->common->pm, at)) : 0;
}

/* E2. The prefix may have forgotten a version, and of epochs that are settled it knows nothing. Of a superseded entry
 * nobody knows then whether a message that was not confirmed brought it, and its completion record may be needed: it is
 * stored once more. */
static bool is_here(const struct digest *digest, struct shard_state *shard,
                    const struct entry_header *header, const uint8_t *block)
{
    if (header->type == ENTRY_RECORD)
        return false;
    /* Of versions in front of its first epoch the prefix of a replica that fills knows nothing. */
    if (version_epoch(header->version) >= shard->first_epoch &&
        prefix_has(&shard->prefix, header->version))
        return true;
    const uint64_t version = indexed(digest, shard, header, block);
    if (version == header->version) {
        (void)prefix_add(&shard->prefix, version);
        return true;
    }
    if (shard->filling)
        return version > header->version; /* E6; it has not arrived all the same */
    if (version_epoch(header->version) == shard->epoch)
        return false;
    if (version_epoch(commit_of(shard)) == shard->epoch)
        return true; /* the shard is reconciled */
    suffix_sort(&shard->suffix);
    return suffix_has(&shard->suffix, header->version);
}

/* The next one. Errors: ROWAN_EFORMAT, EDAMAGED (E1); those of incoming_take. */
static int store_block(struct digest *digest, struct query *query)
{
    const struct entry_format *format = &digest->common->format;
    struct query_store *store = &query->store;
    struct shard_state *shard = query->state;
    const uint8_t *block = query->data + store->position;
    struct entry_header header;
    uint32_t bytes;
    int error = entry_decode(format, block, store->bytes - store->position, &header, &bytes);
    if (!error && !is_expected(shard, &header))
        error = ROWAN_EFORMAT;
    if (error)
        return error;
    if (header.version > shard->met)
        shard->met = header.version;
    const bool here = header.block == 0 && is_here(digest, shard, &header, block);
    const int whole = FAULT(NO_SEGMENT) ? ROWAN_EFULL
                                        : incoming_take(&shard->incoming, &digest->log, format,
                                                        &header, block, here);
    if (whole < 0)
        return whole;
    if (whole == 1 && !shard->incoming.skipped)
        store->whole[store->count++] = shard->incoming.start;
    store->position += bytes;
    return 0;
}

static const struct prefix_range *gone_of(const struct query *query)
{
    return (const void *)(query->data + query->store.bytes);
}

/* E5. Errors: ROWAN_EFORMAT. */
static int check_gone(const struct query *query)
{
    const struct shard_state *shard = query->state;
    for (uint32_t i = 0; i < query->store.gone; i++) {
        const struct prefix_range *range = &gone_of(query)[i];
        if (version_epoch(range->first) != shard->epoch || version_counter(range->first) == 0 ||
            range->last > commit_of(shard))
            return ROWAN_EFORMAT;
    }
    return 0;
}

/* A step; in all, as many blocks as find space. */
static void store_blocks(struct digest *digest, struct query *query)
{
    struct query_store *store = &query->store;
    if (!query->state || query->state->epoch != store->epoch) /* E1 */
        query->error = ROWAN_EAGAIN;
    else if (store->blocks == 0)
        query->error = check_gone(query);
    const uint32_t step = FAULT(SHORT_BATCH) ? 1 : STORE_STEP;
    for (uint32_t i = 0; i < step && !query->error && store->position < store->bytes; i++)
        query->error =
            store->blocks++ < BLOCK_LIST_BLOCKS ? store_block(digest, query) : ROWAN_EFORMAT;
    if (!query->error && store->position < store->bytes)
        return;
    if (query->error == ROWAN_EFORMAT || query->error == ROWAN_EDAMAGED)
        log_event(LOG_WARN, "entries_refused", "shard=%u error=%s", query->shard,
                  error_name(query->error));
    if (query->error == ROWAN_EFULL) /* E4 */
        digest_ask_soon(digest, query->state);
    store->ticket = pm_fence_start(digest->common->pm);
    store->stored = true;
}

/* E3. A step; it ends early without memory. */
static void apply_whole(struct digest *digest, struct query *query)
{
    const struct server_common *common = digest->common;
    struct query_store *store = &query->store;
    const uint32_t left = store->count - store->applied;
    const uint32_t end = store->applied + (left < STORE_STEP ? left : STORE_STEP);
    for (; store->applied < end; store->applied++) {
        const uint64_t offset = store->whole[store->applied];
        struct entry_header header;
        entry_peek(pm_at(common->pm, offset), &header);
        if (header.type == ENTRY_RECORD) {
            completed_add(&query->state->completed, header.client_id, header.operation,
                          header.version);
            continue;
        }
        struct apply_entry entry =
            apply_describe(common->pm, &common->format, &header, offset, digest->key);
        if (version_epoch(header.version) < query->state->first_epoch)
            entry.client_id = 0; /* E6 */
        if (digest_apply(digest, query->state, &entry))
            return;
    }
}

/* E5 */
static void apply_gone(struct query *query)
{
    struct shard_state *shard = query->state;
    for (uint32_t i = 0; !query->error && i < query->store.gone; i++) {
        const struct prefix_range *range = &gone_of(query)[i];
        log_event(LOG_INFO, "versions_gone", "shard=%u first=%lx last=%lx", shard->id, range->first,
                  range->last);
        for (uint64_t version = range->first; version <= range->last; version++)
            (void)prefix_add(&shard->prefix, version);
        digest_tail_gone(shard, range);
    }
}

/* E2 */
static bool is_first_of_shard(const struct query *query)
{
    for (const struct query *at = query->place.prev; at; at = at->place.prev) {
        if (at->shard == query->shard)
            return false;
    }
    return true;
}

/* E7. `half` is a segment's number plus 1; 0: none. */
static void pin(struct digest *digest, uint64_t half)
{
    if (half && digest->halves)
        atomic_fetch_add_explicit(&digest->halves[half - 1], 1, memory_order_relaxed);
}

static void unpin(struct digest *digest, uint64_t half)
{
    if (half && digest->halves)
        atomic_fetch_sub_explicit(&digest->halves[half - 1], 1, memory_order_release);
}

/* E7. Before a segment with any of it can be closed. */
static void begin(struct digest *digest, struct query *query)
{
    query->store.from =
        digest->log.open ? digest->log.allocation : store_allocations(digest->common->store) + 1;
    query->store.since = digest->epoch;
    query->store.begun = true;
    query->store.half = query->state ? query->state->half : 0;
    pin(digest, query->store.half);
    if (digest_stores_from(digest) == DIGEST_STORES_NOTHING)
        atomic_store_explicit(&digest->stores_from, query->store.from, memory_order_release);
}

/* E7: the segment with what has come in part, before anybody can see that the message is over. */
static void keep_half(struct digest *digest, struct shard_state *shard)
{
    const struct incoming *incoming = &shard->incoming;
    const uint64_t half = incoming->coming && !incoming->skipped
                              ? 1 + store_segment_at(digest->common->store, incoming->start)
                              : 0;
    if (half == shard->half)
        return;
    pin(digest, half);
    unpin(digest, shard->half);
    shard->half = half;
}

void digest_store_release(struct digest *digest)
{
    uint64_t from = digest->kept_from ? digest->kept_from : DIGEST_STORES_NOTHING;
    for (struct shard_state *it = digest->owned.first; it; it = it->owned_link.next)
        keep_half(digest, it);
    for (const struct query *query = digest->stores.first; query; query = query->place.next) {
        if (query->store.begun && query->store.from < from)
            from = query->store.from;
    }
    atomic_store_explicit(&digest->stores_from, from, memory_order_release);
}

void digest_store_drop(struct digest *digest, struct shard_state *shard)
{
    shard->incoming.coming = false;
    keep_half(digest, shard);
    digest_store_release(digest);
}

/* E6, E8. What it brought lies in closed segments, if that is asked for. */
static bool is_closed(struct digest *digest, struct query *query, uint64_t *wake_ns)
{
    const struct log *log = &digest->log;
    if (query->error || !query->store.last || !log->open ||
        (query->store.open && query->store.open != log->allocation))
        return true;
    query->store.open = log->allocation;
    if (digest->ends_ns == 0)
        digest->ends_ns = digest->now_ns + DIGEST_END_NS;
    wake_at(wake_ns, digest->ends_ns);
    return false;
}

/* True if anything moved. */
static bool advance(struct digest *digest, struct query *query, uint64_t *wake_ns)
{
    if (!query->store.stored) {
        if (!is_first_of_shard(query))
            return false;
        if (!query->store.begun)
            begin(digest, query);
        store_blocks(digest, query);
        return true;
    }
    if (!server_fenced(digest->common, query->store.ticket)) {
        wake_at(wake_ns, digest->now_ns + STORE_FENCE_LOOK_NS);
        return false;
    }
    const uint32_t before = query->store.applied;
    apply_whole(digest, query);
    if (query->store.applied == query->store.count) {
        if (!is_closed(digest, query, wake_ns))
            return query->store.applied > before;
        apply_gone(query);
        if (!query->error && query->store.last)
            query->state->incoming.coming = false;  /* nobody goes on with it */
        LIST_REMOVE(&digest->stores, query, place); /* once it is handed over, it is control's */
        const uint64_t half = query->store.half;
        if (!command_push(&digest->role.outbox,
                          &(struct command){.kind = COMMAND_QUERY, .query = query})) {
            unpin(digest, half);
            return true;
        }
        LIST_APPEND(&digest->stores, query, place);
    }
    wake_at(wake_ns, digest->now_ns + STORE_MEMORY_NS); /* no memory, or no room for the answer */
    return query->store.applied > before;
}

void digest_store(struct digest *digest, struct query *query)
{
    query->state = digest->shards[query->shard];
    LIST_APPEND(&digest->stores, query, place);
}

/* Its version may be settled meanwhile, as it landed after all. */
uint64_t digest_store_held(const struct digest *digest)
{
    uint64_t since = RECLAIM_NOTHING;
    for (const struct query *query = digest->stores.first; query; query = query->place.next) {
        if (query->store.begun && query->store.since < since)
            since = query->store.since;
    }
    return since;
}

bool digest_store_poll(struct digest *digest, uint64_t *wake_ns)
{
    for (struct query *query = digest->stores.first, *next; query; query = next) {
        next = query->place.next;
        if (advance(digest, query, wake_ns)) { /* a message in each poll is enough */
            digest_store_release(digest);
            return true;
        }
    }
    return false;
}
