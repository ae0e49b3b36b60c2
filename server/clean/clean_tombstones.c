/* Tombstones that go (design, C5). The clean role makes a pass over the segments now and then:
 *
 *   REST --> GATHER --> SEARCH --> REMOVE --> TIDY --> REST
 *
 * GATHER notes tombstones that are settled everywhere, until the table is full; the next pass goes on there. SEARCH reads
 * all segments for older versions of their keys. REMOVE takes those of which none was met out of the index: their bytes are
 * dead then. TIDY has the segments cleaned in which an older version was met, or nothing is live: the next pass finds
 * fewer. Then the log is closed if it holds tombstones.
 *
 * There is a pass when COMMITTED segments, or the log, hold tombstones, and these are a sixteenth of what is live there, or no
 * write was completed or digested for a second; one second after the last pass, if that took any, else ever later, up to
 * 16 s; but never before eight times as long as that has read.
 *
 * Invariants:
 *  B1  A candidate is the entry that the index names for its key, in a COMMITTED segment, and every replica has settled its
 *      version, durably, in the present epoch (worker_settled.h).
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
 *      are FREE, and those whose being DIRTY is durable. What this role copies meanwhile counts as met. What this server had
 *      before its replica row no start takes, and it may lie for ever where a worker has its newest table of clients
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
    TOMBSTONES_SHARE = 16,           /* of what is live */
    TOMBSTONES_OF_SEGMENT = 512,     /* slots of the table */
    TOMBSTONES_MOST_SLOTS = 1 << 20, /* 32 MiB */
    TOMBSTONES_TRIES = 256,          /* slots in a poll */
    TOMBSTONES_RESTS = 8,            /* for a second of reading, so many of rest */
};

#define TOMBSTONES_MAX_NS  (16 * TOMBSTONES_MIN_NS)
#define TOMBSTONES_WAIT_NS (10 * NS_PER_MS) /* for an index that grows */

int clean_tombstones_init(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    const uint64_t segments = store_segments(clean->common->store);
    all->slots = TOMBSTONES_OF_SEGMENT;
    while (all->slots < segments * TOMBSTONES_OF_SEGMENT && all->slots < TOMBSTONES_MOST_SLOTS)
        all->slots *= 2;
    all->table = calloc(all->slots, sizeof *all->table);
    all->tidy = calloc(segments, sizeof *all->tidy);
    all->bounds = calloc(STORE_SHARD_IDS, sizeof *all->bounds);
    all->wanted = true;
    all->wait_ns = TOMBSTONES_MIN_NS;
    all->look_ns = clean->now_ns + TOMBSTONES_MIN_NS;
    return all->table && all->tidy && all->bounds ? 0 : ROWAN_ENOMEM;
}

void clean_tombstones_fini(struct clean *clean)
{
    free(clean->tombstones.table);
    free(clean->tombstones.tidy);
    free(clean->tombstones.bounds);
    clean->tombstones = (struct clean_tombstones){0};
}

/* --- the table --- */

static uint32_t slot_of(const struct clean_tombstones *all, uint16_t shard, uint64_t hash)
{
    return (uint32_t)(hash + shard * UINT64_C(0x9e3779b9)) & (all->slots - 1);
}

/* What earlier passes left in a slot is nothing. */
static bool is_taken(const struct clean_tombstones *all, uint32_t at)
{
    return all->table[at].pass == all->pass;
}

static void add(struct clean_tombstones *all, const struct clean_tombstone *tombstone)
{
    uint64_t *newest = &all->bounds[tombstone->shard].newest;
    uint32_t at = slot_of(all, tombstone->shard, tombstone->hash);
    ASSERT(all->count < all->slots / 2);
    while (is_taken(all, at))
        at = (at + 1) & (all->slots - 1);
    all->table[at] = *tombstone;
    all->table[at].pass = all->pass;
    all->count++;
    *newest = tombstone->version > *newest ? tombstone->version : *newest;
}

/* B4. An equal hash counts as an equal key. True: an older version of a candidate. */
static bool meet(struct clean_tombstones *all, uint16_t shard, uint64_t hash, uint64_t version)
{
    bool met = false;
    for (uint32_t at = slot_of(all, shard, hash); is_taken(all, at);
         at = (at + 1) & (all->slots - 1)) {
        struct clean_tombstone *tombstone = &all->table[at];
        if (tombstone->shard == shard && tombstone->hash == hash && version < tombstone->version)
            met = tombstone->met = true;
    }
    return met;
}

/* The same where the key cannot be read: it may be that of any candidate. */
static bool meet_any(struct clean_tombstones *all, uint16_t shard, uint64_t version)
{
    struct clean_tombstone_bounds *bounds = &all->bounds[shard];
    if (version >= bounds->newest)
        return false;
    if (bounds->unknown == 0 || version < bounds->unknown)
        bounds->unknown = version;
    return true;
}

static bool is_met(const struct clean_tombstones *all, const struct clean_tombstone *tombstone)
{
    const uint64_t unknown = all->bounds[tombstone->shard].unknown;
    return tombstone->met || (unknown > 0 && unknown < tombstone->version);
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

/* B1 */
static void gather(struct clean *clean, const struct entry_header *header, uint64_t offset)
{
    const struct shard_state *shard = clean->shards[header->shard];
    if (header->type != ENTRY_DELETE ||
        atomic_load_explicit(&shard->parent, memory_order_relaxed) != SHARD_NO_ID || /* B1 */
        header->version > atomic_load_explicit(&shard->everywhere, memory_order_acquire))
        return;
    const uint8_t *key = key_at(clean, header, offset);
    const uint64_t hash = key ? index_hash(key, header->key_bytes) : 0;
    if (key && index_find(shard->index, hash, key, header->key_bytes) == offset)
        add(&clean->tombstones, &(struct clean_tombstone){.hash = hash,
                                                          .version = header->version,
                                                          .offset = offset,
                                                          .shard = header->shard});
}

static void search(struct clean *clean, const struct entry_header *header, uint64_t offset)
{
    struct clean_tombstones *all = &clean->tombstones;
    if (!shard_counts(clean->shards[header->shard], header->version, clean->common->store,
                      all->segment))
        return; /* B3 */
    const uint8_t *key = key_at(clean, header, offset);
    if (key ? meet(all, header->shard, index_hash(key, header->key_bytes), header->version)
            : meet_any(all, header->shard, header->version))
        all->tidy[all->segment] = true;
}

/* B3. Only this role makes segments DIRTY that held entries. */
static bool is_read(const struct clean *clean, uint64_t segment)
{
    const struct store *store = clean->common->store;
    const struct segment_meta meta = store_meta(store, segment);
    const enum segment_state state = meta.state;
    if (meta.owner == OWNER_CHECKPOINT)
        return false;
    if (clean->tombstones.step == TOMBSTONES_GATHER)
        return state == SEGMENT_COMMITTED && live_tombstones(store_live(store), segment) > 0;
    const struct victim *victim = clean_victim(clean, segment);
    return state != SEGMENT_FREE && !(victim && victim->step >= VICTIM_ZERO);
}

static void begin_reading(struct clean *clean, enum clean_tombstones_step step, uint64_t segment,
                          uint32_t position)
{
    struct clean_tombstones *all = &clean->tombstones;
    all->step = step;
    all->segment = segment;
    all->position = position;
    all->left = store_segments(clean->common->store);
    all->inside = false;
}

/* All of them come, wherever it began. */
static void leave(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    all->inside = false;
    all->position = 0;
    all->segment = (all->segment + 1) % store_segments(clean->common->store);
    all->left--;
}

/* To the next segment that is read; false: there is none. */
static bool enter(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    const struct server_common *common = clean->common;
    while (all->left > 0 && !is_read(clean, all->segment))
        leave(clean);
    if (all->left == 0)
        return false;
    all->inside = true;
    entry_scan_init(&all->scan, &common->format,
                    pm_at(common->pm, store_segment_offset(common->store, all->segment)),
                    STORE_SEGMENT_BYTES, all->position);
    return true;
}

static void read_block(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    struct entry_header header;
    uint32_t offset, bytes;
    const enum entry_scan_result result =
        entry_scan_next(&all->scan, false, &header, &offset, &bytes);
    if (result == ENTRY_SCAN_END)
        leave(clean);
    if (result != ENTRY_SCAN_BLOCK || header.block != 0 || !clean->shards[header.shard] ||
        (header.type != ENTRY_PUT && header.type != ENTRY_DELETE))
        return;
    const uint64_t at = store_segment_offset(clean->common->store, all->segment) + offset;
    if (all->step == TOMBSTONES_GATHER)
        gather(clean, &header, at);
    else
        search(clean, &header, at);
}

/* No more candidates are noted. */
static bool is_full(const struct clean_tombstones *all)
{
    return all->step == TOMBSTONES_GATHER && all->count == all->slots / 2;
}

/* A bounded part. False: all that is to be read is. */
static bool read_some(struct clean *clean, uint32_t bytes)
{
    struct clean_tombstones *all = &clean->tombstones;
    uint32_t done = 0;
    tsan_reads_race();
    while (done < bytes && (all->inside || enter(clean)) && !is_full(all) &&
           (done == 0 || !FAULT(SHORT_BATCH))) {
        const uint32_t from = all->scan.position;
        read_block(clean);
        done += all->scan.position - from;
    }
    tsan_reads_race_no_more();
    return !is_full(all) && (all->inside || enter(clean));
}

void clean_tombstones_copied(struct clean *clean, const struct entry_header *header, uint64_t hash)
{
    const enum clean_tombstones_step step = clean->tombstones.step;
    clean->tombstones.wanted |= header->type == ENTRY_DELETE;
    if (step == TOMBSTONES_SEARCH || step == TOMBSTONES_REMOVE)
        (void)meet(&clean->tombstones, header->shard, hash, header->version);
}

/* --- removing --- */

/* B4. False: the index is just growing. */
static bool take_out(struct clean *clean, const struct clean_tombstone *tombstone)
{
    struct clean_tombstones *all = &clean->tombstones;
    const struct store *store = clean->common->store;
    const struct segment_meta meta = store_meta(store, store_segment_at(store, tombstone->offset));
    const struct shard_state *shard = clean->shards[tombstone->shard];
    if (!shard || meta.state != SEGMENT_COMMITTED || meta.allocation > all->since)
        return true;
    const int removed = index_remove(shard->index, tombstone->hash, tombstone->offset);
    if (removed == ROWAN_EAGAIN)
        return false;
    if (removed)
        live_removed(store_live(store), tombstone->offset);
    all->removed += (uint32_t)removed;
    return true;
}

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

/* A bounded part. False: it has to wait. */
static bool remove_some(struct clean *clean, uint64_t *wake_ns)
{
    struct clean_tombstones *all = &clean->tombstones;
    for (uint32_t i = 0; i < TOMBSTONES_TRIES && all->slot < all->slots; i++, all->slot++) {
        const struct clean_tombstone *tombstone = &all->table[all->slot];
        if (!is_taken(all, all->slot) || is_met(all, tombstone) || take_out(clean, tombstone))
            continue;
        wake_at(wake_ns, clean->now_ns + TOMBSTONES_WAIT_NS);
        return false;
    }
    if (all->slot == all->slots)
        begin_tidy(clean);
    return true;
}

/* --- passes --- */

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

static bool begin_pass(struct clean *clean, uint64_t *wake_ns)
{
    struct clean_tombstones *all = &clean->tombstones;
    const uint64_t periods = atomic_load_explicit(&clean->common->periods, memory_order_acquire);
    all->wanted |= periods != all->periods;
    all->periods = periods;
    if (!all->wanted)
        return false;
    if (clean->now_ns < all->look_ns) {
        wake_at(wake_ns, all->look_ns);
        return false;
    }
    all->look_ns = clean->now_ns + TOMBSTONES_MIN_NS;
    if (!is_worth_it(clean)) {
        if (all->wanted)
            wake_at(wake_ns, all->look_ns);
        return false;
    }
    memset(all->tidy, 0, store_segments(clean->common->store) * sizeof *all->tidy);
    memset(all->bounds, 0, STORE_SHARD_IDS * sizeof *all->bounds);
    all->count = all->slot = all->removed = 0;
    all->pass++;
    all->since = store_allocations(clean->common->store);
    all->read_ns = 0;
    begin_reading(clean, TOMBSTONES_GATHER, all->first, all->first_position);
    return true;
}

static void end_gather(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    all->first = all->segment;
    all->first_position = all->inside ? all->scan.position : 0;
    begin_reading(clean, TOMBSTONES_SEARCH, 0, 0);
    if (all->count == 0)
        all->step = TOMBSTONES_REMOVE;
}

/* False: victims are under way. */
static bool end_pass(struct clean *clean)
{
    struct clean_tombstones *all = &clean->tombstones;
    bool waits = false;
    uint64_t segment;
    for (uint32_t i = 0; i < clean->victim_count; i++) {
        if (clean->victims[i].step <= VICTIM_COMMIT)
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
    all->look_ns = clean->now_ns + (rest_ns > all->wait_ns ? rest_ns : all->wait_ns);
    all->step = TOMBSTONES_REST;
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
    switch (all->step) {
    case TOMBSTONES_REST:
        return begin_pass(clean, wake_ns);
    case TOMBSTONES_GATHER:
        if (!read_some(clean, bytes))
            end_gather(clean);
        return true;
    case TOMBSTONES_SEARCH:
        if (!read_some(clean, bytes))
            all->step = TOMBSTONES_REMOVE;
        return true;
    case TOMBSTONES_REMOVE:
        return remove_some(clean, wake_ns);
    case TOMBSTONES_TIDY:
        return end_pass(clean);
    }
    return false;
}
