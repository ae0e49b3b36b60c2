/* What of a victim is copied, and what is not.
 *
 * Invariants:
 *  K1  An entry that the index names at this place is copied, and the index item swapped, if it still names it: the owner
 *      of the shard may have put a newer one there meanwhile.
 *  K2  An entry that the index does not name is dead if its superseder is at or below the commit version: that one is
 *      durable here and on all replicas, so it cannot vanish any more (README.md). So is an entry of a shard that is not
 *      held here, or of an epoch below the replica's first. A whole copy elsewhere of the same version takes its place if
 *      its segment is COMMITTED, or of before this run (the start has made it durable), or of this log. All others are
 *      copied, too; but a superseder that is not committed yet will be soon, and is waited for: of a key that is written
 *      all the time there is always one.
 *  K3  A long entry whose blocks do not lie in one piece here is dead once its version is settled: it was joined, and the
 *      joined copy is durable (digest.c); or it was superseded by then.
 *  K4  Commit versions and pads are dead: of a COMMITTED segment all that a commit version covers is settled, and that is
 *      durable (control_commit.c, G2).
 *  K6  What is above the settled version of the replica row was not known to be here when its segment was committed: no
 *      digest role could read it then, or the data may be incomplete. It is copied: a start would miss it. If it does not
 *      lie in one piece it cannot be: then its victim stays for a while. It does, too, if the entry is not committed: a
 *      stopped sender may have stored it when the segment was closed. A copy would soon lie in a COMMITTED segment (C6).
 *  K9  What the uncommitted suffix of a shard may name stays where it is until the shard is reconciled, and its segment is no
 *      victim until then: it is looked for before anything is copied, or that would take space and give none. The owner says
 *      so before it looks (shard_expose), and counts that; of a victim for which somebody did since its scan began, the scan
 *      is done again before it is retired. Both are read-modify-writes of one word: so either the owner finds nothing in the
 *      victim, or the scan behind it sees what the owner has said. That travels with the shard, whoever owns it; and nothing
 *      else waits for a shard that nobody serves.
 *  K7  A tombstone for whose key the index has nothing has gone (clean_tombstones.c, B5): what is settled was applied, and
 *      nothing else takes an item away.
 */
#include "common/base/error.h"
#include "common/base/fault.h"
#include "server/clean/clean_state.h"
#include "server/store/torn.h"

enum clean_fate {
    FATE_MOVE, /* copied; the index leads to the copy */
    FATE_KEEP, /* copied */
    FATE_DROP,
};

/* A block of the victim, and what the stages of the scan have found out about it. */
struct clean_block {
    struct entry_header header;
    uint32_t from, offset, bytes; /* where the scan stood, where it lies */
    const struct index *index;    /* NULL: not one whole entry, and nothing was looked up */
    const struct index_bucket *bucket;
    uint64_t hash;
    struct index_hint hint;
};

static void begin_scan(struct clean *clean, struct victim *victim)
{
    struct server_common *common = clean->common;
    entry_scan_init(&clean->scan, &common->format,
                    pm_at(common->pm, store_segment_offset(common->store, victim->segment)),
                    STORE_SEGMENT_BYTES, 0);
    clean->entry = (struct join_piece){0};
    clean->exposed = clean->named = 0;
    clean->looks = false;
    victim->need_count = 0;
    victim->exposures = atomic_fetch_add_explicit(&common->exposures, 0, memory_order_acq_rel);
}

void clean_copy_begin(struct clean *clean, struct victim *victim)
{
    begin_scan(clean, victim);
    for (uint32_t id = 0; id < STORE_SHARD_IDS && !clean->looks; id++)
        clean->looks = clean_is_exposed(clean, id);
}

/* --- superseders that are not committed yet --- */

static uint64_t committed(const struct clean *clean, uint16_t shard)
{
    return atomic_load_explicit(&clean->shards[shard]->commit, memory_order_acquire);
}

/* False: there is no place for one more. */
static bool wait_for(struct victim *victim, uint16_t shard, uint64_t version)
{
    uint32_t at = 0;
    while (at < victim->need_count && victim->needs[at].shard != shard)
        at++;
    if (at == CLEAN_NEEDS)
        return false;
    if (at == victim->need_count)
        victim->needs[victim->need_count++] = (struct clean_needed){.shard = shard};
    if (victim->needs[at].version < version)
        victim->needs[at].version = version;
    return true;
}

int clean_copy_is_committed(const struct clean *clean, const struct victim *victim)
{
    for (uint32_t i = 0; i < victim->need_count; i++) {
        const struct clean_needed *need = &victim->needs[i];
        if (!clean->shards[need->shard])
            continue; /* it has left the server */
        const uint64_t commit = committed(clean, need->shard);
        if (version_epoch(commit) > version_epoch(need->version))
            return ROWAN_EAGAIN;
        if (commit < need->version)
            return 0;
    }
    return 1;
}

/* --- fate --- */

/* K2: may the whole copy at `offset` take the entry's place? */
static bool stands_in(const struct clean *clean, struct victim *victim, uint64_t offset)
{
    const struct store *store = clean->common->store;
    const struct segment_meta meta = store_meta(store, store_segment_at(store, offset));
    if (meta.owner == OWNER_CLEAN && meta.allocation > clean->run) {
        victim->copies = clean->log.segments; /* so it is waited for, too */
        return true;
    }
    return meta.state == SEGMENT_COMMITTED || meta.allocation <= clean->run;
}

/* K2, of an entry for whose key the index names another. */
static enum clean_fate judge_superseded(const struct clean *clean, struct victim *victim,
                                        const struct entry_header *header, const uint8_t *key,
                                        uint64_t at)
{
    struct server_common *common = clean->common;
    const uint8_t *found = pm_at(common->pm, at);
    struct entry_header superseder;
    const uint64_t room = STORE_SEGMENT_BYTES - at % STORE_SEGMENT_BYTES;
    if (entry_verify(&common->format, found, room, &superseder)) {
        shard_found_damage(clean->shards[header->shard], &common->damages);
        return FATE_KEEP;
    }
    if (!entry_key_equals(&common->format, found, key, header->key_bytes))
        return FATE_KEEP;
    if (superseder.version == header->version)
        return stands_in(clean, victim, at) ? FATE_DROP : FATE_KEEP;
    if (superseder.version < header->version)
        return FATE_KEEP;
    const bool dead = superseder.version <= committed(clean, header->shard) ||
                      (!victim->keep && wait_for(victim, header->shard, superseder.version));
    return dead ? FATE_DROP : FATE_KEEP;
}

/* K6 */
static bool is_exposed(const struct clean *clean, const struct entry_header *header)
{
    const struct shard_state *shard = clean->shards[header->shard];
    return shard && version_epoch(header->version) >= shard->first_epoch &&
           header->version > atomic_load_explicit(&shard->dur_settled, memory_order_acquire);
}

/* K9 */
static bool is_named(const struct clean *clean, const struct entry_header *header)
{
    const struct shard_state *shard = clean->shards[header->shard];
    return shard && header->version > atomic_load_explicit(&shard->exposed, memory_order_acquire);
}

/* `block` ends the entry. */
static enum clean_fate judge(struct clean *clean, struct victim *victim,
                             const struct entry_header *header, uint64_t offset,
                             const struct clean_block *block, uint64_t *hash)
{
    const struct server_common *common = clean->common;
    const struct shard_state *shard = clean->shards[header->shard];
    if (!shard || !shard_counts(shard, header->version, common->store, victim->segment))
        return FATE_DROP;
    const uint8_t *key =
        entry_key_in_place(&common->format, header, pm_at(common->pm, offset), clean->key);
    *hash = block->index ? block->hash : index_hash(key, header->key_bytes);
    const struct index_hint hint = block->index ? block->hint : (struct index_hint){0};
    const uint64_t at = index_find_hinted(shard->index, hint, *hash, key, header->key_bytes);
    if (at == offset)
        return FATE_MOVE;
    if (is_exposed(clean, header))
        return FATE_KEEP;
    if (at == 0)
        return header->type == ENTRY_DELETE ? FATE_DROP : FATE_KEEP; /* K7 */
    return judge_superseded(clean, victim, header, key, at);
}

/* --- copying --- */

/* K1. False: not yet. */
static bool swap_index(struct clean *clean)
{
    struct clean_swap *swap = &clean->swap;
    if (!swap->index)
        return true;
    const int swapped = index_swap(swap->index, swap->hash, swap->from, swap->to);
    if (swapped == ROWAN_EAGAIN)
        return false;
    if (swapped)
        live_indexed(store_live(clean->common->store), swap->to, swap->from);
    swap->index = NULL;
    return true;
}

/* Copies an entry. Errors: ROWAN_EFULL. */
static int copy(struct clean *clean, struct victim *victim, const struct entry_header *header,
                uint64_t offset, uint64_t *to)
{
    struct pm *pm = clean->common->pm;
    const uint32_t bytes =
        entry_bytes(&clean->common->format, header->key_bytes, header->value_bytes);
    const int error = clean_reserve(clean, bytes, to);
    if (error)
        return error;
    pm_store(pm, *to, pm_at(pm, offset), bytes);
    victim->copies = clean->log.segments;
    return 0;
}

static int write_stub(struct clean *clean, struct victim *victim, const struct entry_header *of)
{
    const struct server_common *common = clean->common;
    uint8_t stub[ENTRY_ALIGN];
    uint64_t to;
    const uint32_t bytes = entry_encode_record(&common->format, of->shard, of->version,
                                               of->client_id, of->operation, stub);
    const int error = clean_reserve(clean, bytes, &to);
    if (error)
        return error;
    pm_store(common->pm, to, stub, bytes);
    live_kept(store_live(common->store), to, bytes);
    victim->copies = clean->log.segments;
    return 0;
}

/* K5. An entry goes, or a stub is met. Errors: ROWAN_EFULL, ROWAN_EAGAIN (the owner of the shard is asked). */
static int drop(struct clean *clean, struct victim *victim, const struct entry_header *header)
{
    if (victim->keep) /* the scan before has seen to it */
        return 0;
    const enum clean_record record = clean_record(clean, victim, header);
    int error = 0;
    if (record == CLEAN_RECORD_ASKED)
        return ROWAN_EAGAIN;
    if (record == CLEAN_RECORD_NONE)
        return 0;
    if (clean_record_is_copied(clean, victim, header))
        victim->copies = clean->log.segments; /* it is waited for */
    else if (!(error = write_stub(clean, victim, header)))
        clean_record_copied(clean, victim, header);
    return error;
}

/* A whole entry in one piece. Errors: as drop. */
static int clean_object(struct clean *clean, struct victim *victim,
                        const struct entry_header *header, uint64_t offset,
                        const struct clean_block *block)
{
    uint64_t hash = 0, to;
    const enum clean_fate fate = judge(clean, victim, header, offset, block, &hash);
    if (fate == FATE_DROP)
        return drop(clean, victim, header);
    const int error = copy(clean, victim, header, offset, &to);
    if (error)
        return error;
    clean_tombstones_copied(clean, header, hash, fate == FATE_KEEP);
    if (fate == FATE_MOVE)
        clean->swap = (struct clean_swap){
            .index = clean->shards[header->shard]->index, .hash = hash, .from = offset, .to = to};
    else
        live_kept(store_live(clean->common->store), to,
                  entry_bytes(&clean->common->format, header->key_bytes, header->value_bytes));
    return 0;
}

/* Errors: as drop. */
static int clean_block(struct clean *clean, struct victim *victim, const struct clean_block *block,
                       uint64_t offset)
{
    const struct entry_header *header = &block->header;
    if (header->type == ENTRY_RECORD)
        return clean->looks ? 0 : drop(clean, victim, header);
    if (header->type != ENTRY_PUT && header->type != ENTRY_DELETE)
        return 0; /* K4 */
    if (is_named(clean, header)) {
        clean->named = 1u + header->shard;
        return 0;
    }
    if (clean->looks)
        return 0;
    const bool exposed = is_exposed(clean, header);
    if (!join_piece_add(&clean->entry, header, offset, block->bytes) || /* K3 */
        (exposed && header->version > committed(clean, header->shard))) {
        clean->exposed += exposed;
        return 0;
    }
    const int error = clean_object(clean, victim, &clean->entry.header, clean->entry.start, block);
    if (!error && exposed)
        clean->exposed -= header->blocks - 1u;
    return error;
}

/* At the end of a scan. An owner tells of an item after it has changed it, so what is live may be told too high for a
 * moment: clean.c, give_up. */
static enum clean_copied finish(struct clean *clean, struct victim *victim)
{
    if (clean->looks && !clean->named) {
        begin_scan(clean, victim);
        return CLEAN_MORE;
    }
    const bool left = live_items(store_live(clean->common->store), victim->segment) > 0;
    return left || clean->exposed || clean->named ? CLEAN_STUCK : CLEAN_DONE;
}

/* --- what cannot be read --- */

/* A place that is not whole. It matters if its shard's index leads there. */
static void found_damage(void *context, uint32_t position)
{
    struct clean *clean = context;
    struct server_common *common = clean->common;
    const uint8_t *at = clean->scan.base + position, *key;
    struct entry_header header;
    uint32_t bytes;
    if (!entry_guess(&common->format, at, STORE_SEGMENT_BYTES - position, &header, &key, &bytes))
        return;
    struct shard_state *shard = clean->shards[header.shard];
    if (shard && index_find(shard->index, index_hash(key, header.key_bytes), key,
                            header.key_bytes) == (uint64_t)(at - common->pm->base))
        shard_found_damage(shard, &common->damages);
}

void clean_copy_tell(struct clean *clean, struct victim *victim)
{
    begin_scan(clean, victim);
    while (!torn_step(&clean->scan, STORE_SEGMENT_BYTES, found_damage, clean))
        ;
}

/* --- the scan --- */

enum { CLEAN_BATCH = 16 };

/* The next blocks, up to `limit`. Returns their number; *end says what came behind the last. */
static unsigned find_blocks(struct clean *clean, uint32_t limit, struct clean_block *blocks,
                            enum entry_scan_result *end)
{
    const unsigned most = FAULT(SHORT_BATCH) ? 1 : CLEAN_BATCH;
    unsigned count = 0;
    do {
        struct clean_block *block = &blocks[count];
        block->from = clean->scan.position;
        *end = entry_scan_next(&clean->scan, false, &block->header, &block->offset, &block->bytes);
        count += *end == ENTRY_SCAN_BLOCK;
    } while (*end == ENTRY_SCAN_BLOCK && count < most && clean->scan.position < limit);
    return count;
}

/* So that the cache misses of a batch overlap: of each key the bucket, then what its item leads to. */
static void prefetch(const struct clean *clean, struct clean_block *blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct clean_block *block = &blocks[i];
        const struct shard_state *shard = clean->shards[block->header.shard];
        block->index =
            shard && block->header.blocks == 1 && block->header.key_bytes > 0 ? shard->index : NULL;
        if (!block->index)
            continue;
        block->hash = index_hash(clean->scan.base + block->offset + ENTRY_HEADER_BYTES,
                                 block->header.key_bytes);
        block->bucket = index_prefetch(block->index, block->hash);
    }
    for (unsigned i = 0; i < count; i++) {
        if (blocks[i].index)
            blocks[i].hint =
                index_prefetch_entry(blocks[i].index, blocks[i].bucket, blocks[i].hash);
    }
}

/* What the last block has begun is over, and there is space to check what is full. */
static bool is_ready(struct clean *clean)
{
    return clean_records_poll(clean) && swap_index(clean) && clean->closing_count <= 1;
}

/* False: this block, and those behind it, are met again. */
static bool clean_blocks(struct clean *clean, struct victim *victim,
                         const struct clean_block *blocks, unsigned count)
{
    const uint64_t start = store_segment_offset(clean->common->store, victim->segment);
    for (unsigned i = 0; i < count; i++) {
        const struct clean_block *block = &blocks[i];
        const uint64_t offset = start + block->offset;
        const bool ready = is_ready(clean);
        if (ready && !clean_block(clean, victim, block, offset))
            continue;
        clean->scan.position = block->from;
        if (ready && clean->entry.block > 0)
            clean->entry.block--, clean->entry.next = offset;
        return false;
    }
    return true;
}

enum clean_copied clean_copy(struct clean *clean, struct victim *victim, uint32_t bytes)
{
    const uint32_t from = clean->scan.position;
    struct clean_block blocks[CLEAN_BATCH];
    while (is_ready(clean)) {
        enum entry_scan_result end;
        const uint32_t position = clean->scan.position;
        if (position - from >= bytes || (position > from && FAULT(SHORT_BATCH)))
            return CLEAN_MORE;
        const unsigned count = find_blocks(clean, from + bytes, blocks, &end);
        if (count == 0 && end == ENTRY_SCAN_END)
            return finish(clean, victim);
        prefetch(clean, blocks, count);
        if (!clean_blocks(clean, victim, blocks, count))
            return CLEAN_WAIT;
    }
    return CLEAN_WAIT;
}
