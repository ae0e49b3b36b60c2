/* Tombstones that go (design, C5). The clean role makes a pass over the segments now and then:
 *
 *   REST --> CLEAR --> GATHER --> SEARCH --> REMOVE --> TIDY --> REST
 *
 * GATHER reads the COMMITTED segments with tombstones, and sets a bit for each that is settled everywhere, by its key's hash.
 * SEARCH reads all segments for older versions of their keys: of what has such a bit, and for whose key the index has a newer
 * tombstone, it sets the same bit in another map. REMOVE reads what GATHER has read once more, and takes those out of the index
 * of which no bit was set there: their bytes are dead then. So a pass has room for all tombstones; where two keys have one bit
 * a tombstone may have to wait for another pass, in which the bits are others. TIDY has the segments cleaned in which an older
 * version was met, or nothing is live: the next pass finds fewer. Then the log is closed if it holds tombstones.
 *
 * There is a pass when COMMITTED segments, or the log, hold tombstones, and these are a sixteenth of what is live there, or no
 * write was completed or digested for a second; one second after the last pass, if that took any, else ever later, up to
 * 16 s; but never before eight times as long as that has read. With less space than cleaning keeps free it comes soon after
 * one that got on, and near the reserve at once (clean_need): tombstones may be what takes the space.
 *
 * Invariants:
 *  B1  A candidate is the entry that the index names for its key, in a COMMITTED segment of before the pass, and every replica
 *      has settled its version, durably, in the present epoch (worker_settled.h), before the pass began. That is the same at
 *      GATHER and REMOVE: what is settled was applied here, and the index leads to nothing older any more (C3).
 *      Not while the shard's parent may have an older version (server/shard/split.h).
 *      Not while this run counts as possibly incomplete: the next start might then unite what this server has with what
 *      others have that really lost something, an older version maybe, and the tombstone has to be there.
 *  B2  Whatever bytes of a version at or below that one will ever be stored here, but by this role, lie here already when
 *      it is gathered, and are seen by who reads its segment from then on. Each replica has all of them, contiguous and
 *      committed, so none is asked for any more, and an answer that comes late finds it here (digest_store.c, E2). Each
 *      sender stored or gave up each of its copies before it knew the version to be landed, which is before it was
 *      committed (design, section 3). Joins copy before the version is in the contiguous prefix; a log reconciliation
 *      before its epoch begins. And what a role still applies later, again maybe, it does from these bytes.
 *  B3  SEARCH begins when GATHER has ended, and reads each segment that a start of now on might read: all but those that
 *      are FREE, and those whose being DIRTY is durable. What this role copies meanwhile, superseded, counts as met. What this
 *      server had before its replica row no start takes, and it may lie for ever where a worker has its newest table of clients
 *      (clean_choose.c): it does not count.
 *  B4  A candidate of which B3 met an older version stays; so does one that is not where it was gathered.
 *  B5  Once the item is gone the tombstone's bytes, wherever they are, may be dropped (clean_copy.c, K7): nobody would find
 *      an older version. A crash that leaves them brings the item back, which does no harm.
 *
 * Open segments are read, too, while others store into them. What B2 promises was stored before its settled version was
 * published; of what comes later a checksum decides, and it is newer than any candidate.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/tsan.h"
#include "server/clean/clean_state.h"

enum {
    TOMBSTONES_SHARE = 16,                    /* of what is live */
    TOMBSTONES_SEGMENT_BITS = 1 << 16,        /* of each map, for a segment */
    TOMBSTONES_MOST_BITS = 1 << 27,           /* 16 MiB */
    TOMBSTONES_CLEAR_WORDS = (64 << 10) / 16, /* of each map, in a poll */
    TOMBSTONES_RESTS = 8,                     /* for a second of reading, so many of rest */
    TOMBSTONES_RESTS_SHORT = 1,               /* with little space */
    TOMBSTONES_MANY = 16 << 10,               /* 1 MiB */
};

#define TOMBSTONES_MAX_NS  (16 * TOMBSTONES_MIN_NS)
#define TOMBSTONES_WAIT_NS (10 * NS_PER_MS) /* for an index that grows */

int clean_tombstones_init(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    const uint64_t segments = store_segments(clean->common->store);
    uint32_t bits = TOMBSTONES_SEGMENT_BITS;
    for (all->shift = 64 - 16;
         bits < segments * TOMBSTONES_SEGMENT_BITS && bits < TOMBSTONES_MOST_BITS; all->shift--)
        bits *= 2;
    all->words = bits / 64;
    all->sought = calloc(all->words, sizeof *all->sought);
    all->met = calloc(all->words, sizeof *all->met);
    all->gathered = calloc(segments, sizeof *all->gathered);
    all->tidy = calloc(segments, sizeof *all->tidy);
    all->bounds = calloc(STORE_SHARD_IDS, sizeof *all->bounds);
    all->wanted = true;
    all->wait_ns = TOMBSTONES_MIN_NS;
    all->look_ns = clean->now_ns + TOMBSTONES_MIN_NS;
    return all->sought && all->met && all->gathered && all->tidy && all->bounds ? 0 : ROWAN_ENOMEM;
}

void clean_tombstones_fini(struct clean *clean)
{
    free(clean->tombstones.sought);
    free(clean->tombstones.met);
    free(clean->tombstones.gathered);
    free(clean->tombstones.tidy);
    free(clean->tombstones.bounds);
    clean->tombstones = (struct clean_tombstones){0};
}

/* --- the maps --- */

/* Another one in each pass. */
static uint64_t bit_of(const struct clean_tombstones *all, uint16_t shard, uint64_t hash)
{
    const uint64_t mixed =
        (hash ^ (uint64_t)shard << 48) + all->pass * UINT64_C(0x9e3779b97f4a7c15);
    return ((mixed ^ mixed >> 32) * UINT64_C(0xd6e8feb86659fd93)) >> all->shift;
}

static bool has(const uint64_t *map, uint64_t bit)
{
    return map[bit / 64] >> bit % 64 & 1;
}

static void set(uint64_t *map, uint64_t bit)
{
    map[bit / 64] |= UINT64_C(1) << bit % 64;
}

/* Where the key cannot be read: it may be that of any candidate. True: of one. */
static bool meet_any(struct clean_tombstones *all, uint16_t shard, uint64_t version)
{
    struct clean_tombstone_bounds *bounds = &all->bounds[shard];
    if (version >= bounds->newest)
        return false;
    if (bounds->unknown == 0 || version < bounds->unknown)
        bounds->unknown = version;
    return true;
}

/* B4 */
static bool is_met(const struct clean_tombstones *all, const struct entry_header *header,
                   uint64_t bit)
{
    const uint64_t unknown = all->bounds[header->shard].unknown;
    return has(all->met, bit) || (unknown > 0 && unknown < header->version);
}

/* --- reading --- */

/* NULL: blocks part the key, and do not lie in one piece. */
static const uint8_t *key_at(struct clean *clean, const struct entry_header *header,
                             uint64_t offset)
{
    const struct server_common *common = clean->common;
    const uint8_t *at = pm_at(common->pm, offset);
    if (header->key_bytes > entry_block_capacity(&common->format) &&
        entry_verify(&common->format, at, STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES, NULL))
        return NULL;
    return entry_key_in_place(&common->format, header, at, clean->key);
}

/* B1, but for the index. */
static bool may_go(const struct clean *clean, const struct entry_header *header)
{
    return header->type == ENTRY_DELETE &&
           atomic_load_explicit(&clean->shards[header->shard]->parent, memory_order_relaxed) ==
               SHARD_NO_ID &&
           header->version <= clean->tombstones.bounds[header->shard].settled;
}

/* B1 */
static void gather(struct clean *clean, const struct entry_header *header, uint64_t offset)
{
    struct clean_tombstones *all = &clean->tombstones;
    const uint8_t *key = may_go(clean, header) ? key_at(clean, header, offset) : NULL;
    const uint64_t hash = key ? index_hash(key, header->key_bytes) : 0;
    uint64_t *newest = &all->bounds[header->shard].newest;
    if (!key ||
        index_find(clean->shards[header->shard]->index, hash, key, header->key_bytes) != offset)
        return;
    set(all->sought, bit_of(all, header->shard, hash));
    all->count++;
    *newest = header->version > *newest ? header->version : *newest;
}

/* Has the index a newer tombstone for the key of what lies there? */
static bool is_deleted(const struct clean *clean, const struct entry_header *header,
                       uint64_t offset, uint64_t hash, const uint8_t *key)
{
    const struct server_common *common = clean->common;
    struct entry_header newer;
    const uint64_t at =
        index_find(clean->shards[header->shard]->index, hash, key, header->key_bytes);
    if (at == 0 || at == offset || !live_is_tombstone(store_live(common->store), at))
        return false;
    return entry_verify(&common->format, pm_at(common->pm, at),
                        STORE_SEGMENT_BYTES - at % STORE_SEGMENT_BYTES, &newer) ||
           newer.version > header->version;
}

static void search(struct clean *clean, const struct entry_header *header, uint64_t offset)
{
    struct clean_tombstones *all = &clean->tombstones;
    if (!shard_counts(clean->shards[header->shard], header->version, clean->common->store,
                      all->segment))
        return; /* B3 */
    const uint8_t *key = key_at(clean, header, offset);
    const uint64_t hash = key ? index_hash(key, header->key_bytes) : 0;
    const uint64_t bit = bit_of(all, header->shard, hash);
    const bool met = key ? has(all->sought, bit) && is_deleted(clean, header, offset, hash, key)
                         : meet_any(all, header->shard, header->version);
    if (met && key)
        set(all->met, bit);
    all->tidy[all->segment] |= met;
}

/* B4. False: the index is just growing. */
static bool take_out(struct clean *clean, const struct entry_header *header, uint64_t offset)
{
    struct clean_tombstones *all = &clean->tombstones;
    const uint8_t *key = may_go(clean, header) ? key_at(clean, header, offset) : NULL;
    const uint64_t hash = key ? index_hash(key, header->key_bytes) : 0;
    const uint64_t bit = bit_of(all, header->shard, hash);
    if (!key || !has(all->sought, bit) || is_met(all, header, bit))
        return true;
    const int removed = index_remove(clean->shards[header->shard]->index, hash, offset);
    if (removed == ROWAN_EAGAIN)
        return false;
    if (removed)
        live_removed(store_live(clean->common->store), offset);
    all->removed += (uint64_t)removed;
    return true;
}

/* B3. Only this role makes segments DIRTY that held entries. */
static bool is_read(const struct clean *clean, uint64_t segment)
{
    const struct store *store = clean->common->store;
    const struct segment_meta meta = store_meta(store, segment);
    const enum segment_state state = meta.state;
    if (meta.owner == OWNER_CHECKPOINT)
        return false;
    const bool stays = state == SEGMENT_COMMITTED && meta.allocation <= clean->tombstones.since;
    if (clean->tombstones.step == TOMBSTONES_GATHER)
        return stays && live_tombstones(store_live(store), segment) > 0;
    if (clean->tombstones.step == TOMBSTONES_REMOVE)
        return stays && clean->tombstones.gathered[segment];
    const struct victim *victim = clean_victim(clean, segment);
    return state != SEGMENT_FREE && !(victim && victim->step >= VICTIM_ZERO);
}

static void begin_reading(struct clean *clean, enum clean_tombstones_step step)
{
    struct clean_tombstones *all = &clean->tombstones;
    all->step = step;
    all->segment = 0;
    all->inside = false;
}

/* To the next segment that is read; false: there is none. */
static bool enter(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    const struct server_common *common = clean->common;
    const uint64_t segments = store_segments(common->store);
    while (all->segment < segments && !is_read(clean, all->segment))
        all->segment++;
    if (all->segment == segments)
        return false;
    all->inside = true;
    all->gathered[all->segment] |= all->step == TOMBSTONES_GATHER;
    entry_scan_init(&all->scan, &common->format,
                    pm_at(common->pm, store_segment_offset(common->store, all->segment)),
                    STORE_SEGMENT_BYTES, 0);
    return true;
}

/* False: this block is met again. */
static bool read_block(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    struct entry_header header;
    uint32_t offset, bytes;
    const uint32_t from = all->scan.position;
    const enum entry_scan_result result =
        entry_scan_next(&all->scan, false, &header, &offset, &bytes);
    if (result == ENTRY_SCAN_END) {
        all->inside = false;
        all->segment++;
    }
    if (result != ENTRY_SCAN_BLOCK || header.block != 0 || !clean->shards[header.shard] ||
        (header.type != ENTRY_PUT && header.type != ENTRY_DELETE))
        return true;
    const uint64_t at = store_segment_offset(clean->common->store, all->segment) + offset;
    if (all->step == TOMBSTONES_GATHER)
        gather(clean, &header, at);
    else if (all->step == TOMBSTONES_SEARCH)
        search(clean, &header, at);
    else if (!take_out(clean, &header, at)) {
        all->scan.position = from;
        return false;
    }
    return true;
}

enum reading { READING_OVER, READING_MORE, READING_WAITS };

/* A bounded part. */
static enum reading read_some(struct clean *clean, uint32_t bytes, uint64_t *wake_ns)
{
    struct clean_tombstones *all = &clean->tombstones;
    uint32_t done = 0;
    bool goes_on = true;
    tsan_reads_race();
    while (goes_on && done < bytes && (all->inside || enter(clean)) &&
           (done == 0 || !FAULT(SHORT_BATCH))) {
        const uint32_t from = all->scan.position;
        goes_on = read_block(clean);
        done += all->scan.position - from;
    }
    tsan_reads_race_no_more();
    if (goes_on)
        return all->inside || enter(clean) ? READING_MORE : READING_OVER;
    wake_at(wake_ns, clean->now_ns + TOMBSTONES_WAIT_NS);
    return READING_WAITS;
}

void clean_tombstones_copied(struct clean *clean, const struct entry_header *header, uint64_t hash,
                             bool superseded)
{
    struct clean_tombstones *all = &clean->tombstones;
    all->wanted |= header->type == ENTRY_DELETE;
    if (superseded && (all->step == TOMBSTONES_SEARCH || all->step == TOMBSTONES_REMOVE))
        set(all->met, bit_of(all, header->shard, hash));
}

/* --- passes --- */

/* Of what is cleaned now nothing is copied that this pass has freed. */
static void begin_tidy(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    const struct store *store = clean->common->store;
    for (uint64_t i = 0; i < store_segments(store); i++) {
        const struct segment_meta meta = store_meta(store, i);
        all->tidy[i] = (all->tidy[i] || live_items(store_live(store), i) == 0) &&
                       meta.state == SEGMENT_COMMITTED && meta.owner != OWNER_CHECKPOINT &&
                       meta.allocation <= all->since;
    }
    all->step = TOMBSTONES_TIDY;
}

/* Is it worth a pass? */
static bool is_worth_it(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    const struct store *store = clean->common->store;
    const uint64_t before = all->written;
    uint64_t tombstones = 0, items = 0;
    if (clean->log.open) /* a pass closes it */
        tombstones = live_tombstones(store_live(store), clean->log.segment);
    for (uint64_t i = 0; i < store_segments(store); i++) {
        if (store_meta(store, i).state != SEGMENT_COMMITTED)
            continue;
        tombstones += live_tombstones(store_live(store), i);
        items += live_items(store_live(store), i);
    }
    all->written = clean_written(clean);
    all->quiet = all->written == before;
    all->wanted = tombstones > 0 || all->removed > 0;
    return all->wanted &&
           !atomic_load_explicit(&clean->common->possibly_incomplete,
                                 memory_order_acquire) && /* B1 */
           (all->quiet || tombstones * TOMBSTONES_SHARE > items);
}

bool clean_hopes(const struct clean *clean)
{
    return atomic_load_explicit(&clean->tombstones.hopes, memory_order_relaxed);
}

/* How long a pass rests behind the last one. With little space that is short if there is hope. */
static uint64_t due_ns(const struct clean *clean)
{
    const struct clean_tombstones *all = &clean->tombstones;
    const enum clean_need need = clean_need(clean);
    if (need == CLEAN_REST || !clean_hopes(clean))
        return all->look_ns;
    const uint64_t soon_ns =
        all->ended_ns +
        (need == CLEAN_URGENT ? 0 : TOMBSTONES_MIN_NS / 4 + TOMBSTONES_RESTS_SHORT * all->read_ns);
    return soon_ns < all->look_ns ? soon_ns : all->look_ns;
}

static bool begin_pass(struct clean *clean, uint64_t *wake_ns)
{
    struct clean_tombstones *all = &clean->tombstones;
    const uint64_t periods = atomic_load_explicit(&clean->common->periods, memory_order_acquire);
    all->wanted |= periods != all->periods;
    all->periods = periods;
    if (!all->wanted)
        return false;
    const uint64_t due = due_ns(clean);
    if (clean->now_ns < due) {
        wake_at(wake_ns, due);
        return false;
    }
    all->look_ns = clean->now_ns + TOMBSTONES_MIN_NS;
    if (!is_worth_it(clean)) {
        atomic_store_explicit(&all->hopes, false, memory_order_relaxed);
        if (all->wanted)
            wake_at(wake_ns, all->look_ns);
        return false;
    }
    all->read_ns = all->count = all->removed = all->tidied = 0;
    if (all->wait_ns == TOMBSTONES_MIN_NS)
        atomic_store_explicit(&all->hopes, true, memory_order_relaxed);
    all->pass++;
    all->cleared = 0;
    all->step = TOMBSTONES_CLEAR;
    return true;
}

/* A bounded part. */
static void clear_some(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    const uint32_t left = all->words - all->cleared;
    const uint32_t words = left < TOMBSTONES_CLEAR_WORDS ? left : TOMBSTONES_CLEAR_WORDS;
    memset(all->sought + all->cleared, 0, words * sizeof *all->sought);
    memset(all->met + all->cleared, 0, words * sizeof *all->met);
    all->cleared += words;
    if (all->cleared < all->words)
        return;
    const uint64_t segments = store_segments(clean->common->store);
    memset(all->gathered, 0, segments * sizeof *all->gathered);
    memset(all->tidy, 0, segments * sizeof *all->tidy);
    for (uint32_t id = 0; id < STORE_SHARD_IDS; id++) {
        const struct shard_state *shard = clean->shards[id];
        all->bounds[id] = (struct clean_tombstone_bounds){
            .settled = shard ? atomic_load_explicit(&shard->everywhere, memory_order_acquire) : 0};
    }
    all->since = store_allocations(clean->common->store);
    begin_reading(clean, TOMBSTONES_GATHER);
}

static void end_reading(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    if (all->step == TOMBSTONES_REMOVE || all->count == 0)
        begin_tidy(clean);
    else
        begin_reading(clean, all->step + 1);
}

/* False: victims are under way. */
static bool end_pass(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    const bool rests = clean_need(clean) == CLEAN_REST; /* else there are always victims */
    bool waits = false;
    uint64_t segment;
    for (uint32_t i = 0; i < clean->victim_count; i++) {
        if (clean->victims[i].step <= VICTIM_COMMIT && rests)
            return false;
        waits |= clean->victims[i].step == VICTIM_COPIED &&
                 clean->victims[i].copies == clean->log.segments;
    }
    if (clean_choose(clean, CLEAN_TIDY, &segment) || clean->closing_count > 0)
        return false;
    if (clean->log.open &&
        (waits || live_tombstones(store_live(clean->common->store), clean->log.segment) > 0))
        log_close(&clean->log);
    all->wait_ns = all->removed ? TOMBSTONES_MIN_NS : 2 * all->wait_ns;
    if (all->wait_ns > TOMBSTONES_MAX_NS)
        all->wait_ns = TOMBSTONES_MAX_NS;
    const uint64_t rest_ns = TOMBSTONES_RESTS * all->read_ns;
    all->ended_ns = clean->now_ns;
    all->look_ns = clean->now_ns + (rest_ns > all->wait_ns ? rest_ns : all->wait_ns);
    all->step = TOMBSTONES_REST;
    atomic_store_explicit(&all->hopes, all->tidied > 0 || all->removed >= TOMBSTONES_MANY,
                          memory_order_relaxed);
    return true;
}

bool clean_tombstones_poll(struct clean *clean, uint32_t bytes, uint64_t *wake_ns)
{
    struct clean_tombstones *all = &clean->tombstones;
    if (all->reading)
        all->read_ns += clean->now_ns - all->polled_ns;
    all->polled_ns = clean->now_ns;
    all->reading = bytes > 0 && all->step != TOMBSTONES_REST && all->step != TOMBSTONES_TIDY;
    if (bytes == 0)
        return false;
    enum reading reading;
    switch (all->step) {
    case TOMBSTONES_REST:
        return begin_pass(clean, wake_ns);
    case TOMBSTONES_CLEAR:
        clear_some(clean);
        return true;
    case TOMBSTONES_GATHER:
    case TOMBSTONES_SEARCH:
    case TOMBSTONES_REMOVE:
        reading = read_some(clean, bytes, wake_ns);
        if (reading == READING_OVER)
            end_reading(clean);
        return reading != READING_WAITS;
    case TOMBSTONES_TIDY:
        return end_pass(clean);
    }
    return false;
}
