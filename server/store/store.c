/* A server's PM: what each segment is used for.
 * The segment table is read once, at open; from then on reads use its DRAM mirror and PM is only written.
 *
 * Invariants:
 *  store-1 A segment's word in PM is stored before the mirror shows it, so that who sees the mirror, and goes on from there,
 *     stores the next word behind it. Only what leaves FREE by an allocation is stored after: it belongs to whoever
 *     wins the compare-and-set of the mirror. Any other word only the segment's owner changes.
 *  store-2 Beside each count in `segments_with[SEGMENT_FREE]` there is a FREE word that nobody else was promised. So who has
 *     taken one from the count, in one step with the look at what it leaves to others, finds a segment.
 *  store-3 Allocation numbers are never given twice: a word keeps its number when it becomes DIRTY and
 *     FREE, and the next one is above all of them.
 *  store-4 Of two whole words of a segment the later is the one with the higher number, or with the later state under the
 *     same one: USING, USED, USED and closed, COMMITTED, DIRTY, FREE. So what leaves FREE takes a new number.
 *
 * Crash-safe steps. An aligned 8-byte word lands whole; between two fences words land in any order. "Store the word"
 * is two stores, one into each copy of the table, with no fence between: a crash may leave two different words, both
 * whole, and the open takes the later (store-4), as if both had landed. Each step says why that is safe. No crash damages a
 * word; beside a damaged one the other counts, unless it says FREE (store_layout.h, metas_choose).
 *
 *  Allocation (FREE -> USING)
 *   1. Compare-and-set the count of free segments: decides whether there is one for this owner (store-2). Then
 *      compare-and-set the mirror of one, with a new allocation number: decides between threads which.
 *   2. Store the word. COMMITS, by the fence that also makes the first entry durable. A crash of
 *      the host before that fence may leave both words FREE though bytes of entries landed. Nothing in
 *      them was acknowledged, but the segment is not zeros: so a start after a crash of the host
 *      also zeroes FREE segments that hold bytes (wipe.h, `check_free`). One word of two: it is scanned.
 *  Full, closed, committed (USING -> USED -> USED and closed -> COMMITTED, with or without the third)
 *   1. Store the word. COMMITS. Lost in a crash, the segment is digested once more; no harm. What makes it true
 *      is durable before, so one word of two is as good as both.
 *  Reuse (any -> DIRTY -> FREE)
 *   1. Store the word DIRTY, fence. COMMITS that the bytes are not needed; that they are not is durable before.
 *   2. The caller zeroes the segment, and fences.
 *   3. Store the word FREE. COMMITS that they are zeros. After a crash before: DIRTY, from 2 again. One word of
 *      two: the zeros were durable before either.
 *
 *      free --allocate--> using --> used --> committed      (store_allocate, store_transition)
 *       ^  \________________ |_______|__________ |
 *       |___________________ dirty <____________/
 */
#include "server/store/store_state.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/base/log.h"

/* --- meta words --- */

static enum segment_state word_state(uint64_t word)
{
    return (enum segment_state)(word & 0xf);
}

static void meta_store(struct store *store, unsigned copy, uint64_t segment, uint64_t word)
{
    pm_store(store->pm, store->at.metas[copy] + segment * META_BYTES, &word, sizeof(word));
}

static void meta_write(struct store *store, uint64_t segment, uint64_t word)
{
    for (unsigned i = 0; i < 2; i++)
        meta_store(store, i, segment, word);
}

/* One segment at the open. What it was is not known if both its words are damaged: it may hold entries. */
static struct segment_meta meta_read(struct store *store, uint64_t segment, uint64_t *damaged)
{
    uint64_t words[2];
    struct segment_meta meta;
    enum meta_copies copies = metas_choose(store->pm, &store->at, segment, words, &meta);
    *damaged += copies != METAS_WHOLE;
    if (copies == METAS_DAMAGED)
        return (struct segment_meta){.state = SEGMENT_USED, .owner = OWNER_UNKNOWN};
    uint64_t word = meta_encode(segment, &meta);
    for (unsigned i = 0; i < 2; i++) {
        if (words[i] != word)
            meta_store(store, i, segment, word);
    }
    return meta;
}

/* Fills the mirror and its counters. */
static void metas_read(struct store *store)
{
    uint64_t owned[OWNER_KINDS] = {0}, with[SEGMENT_STATES] = {0}, damaged = 0;
    uint64_t highest = 1; /* given to no segment: a replica row has it where the PM was empty */
    for (uint64_t i = 0; i < store->segments; i++) {
        struct segment_meta meta = meta_read(store, i, &damaged);
        atomic_init(&store->metas[i], meta_encode(i, &meta));
        with[meta.state]++;
        owned[meta.owner]++;
        if (meta.allocation > highest)
            highest = meta.allocation;
    }
    /* store-3: the numbers that are not known may have been the highest ones. */
    highest += owned[OWNER_UNKNOWN];
    for (uint64_t i = 0; i < store->segments && owned[OWNER_UNKNOWN] > 0; i++) {
        struct segment_meta meta = meta_unpack(atomic_load(&store->metas[i]));
        if (meta.owner != OWNER_UNKNOWN)
            continue;
        meta.allocation = ++highest;
        atomic_init(&store->metas[i], meta_encode(i, &meta));
    }
    if (damaged)
        log_event(LOG_WARN, "segment_words_damaged", "segments=%lu unknown=%lu", damaged,
                  owned[OWNER_UNKNOWN]);
    for (unsigned i = 0; i < OWNER_KINDS; i++)
        atomic_init(&store->segments_owned[i], owned[i]);
    for (unsigned i = 0; i < SEGMENT_STATES; i++)
        atomic_init(&store->segments_with[i], with[i]);
    atomic_init(&store->allocation, highest + 1); /* store-3 */
    atomic_init(&store->hint, store->segments - 1);
}

/* --- life --- */

int store_open(struct pm *pm, const struct store_identity *identity, struct store **out)
{
    struct superblock block;
    int error = superblock_read(pm, &block);
    if (error)
        return error;
    if (block.cluster != identity->cluster || block.server != identity->server)
        return ROWAN_ECLUSTER;
    struct store *store = calloc(1, sizeof(*store) + block.segments * sizeof(store->metas[0]));
    if (!store)
        return ROWAN_ENOMEM;
    store->pm = pm;
    store->segments = block.segments;
    store->at = store_geometry(block.segments);
    store->live =
        (struct live){.pm = pm,
                      .start = store->at.segments,
                      .format = identity->format,
                      .one_block = identity->format.block_limit - ENTRY_HEADER_BYTES,
                      .words = calloc(block.segments, sizeof *store->live.words),
                      .tombstones = calloc(block.segments, sizeof *store->live.tombstones)};
    if (!store->live.words || !store->live.tombstones) {
        store_close(store);
        return ROWAN_ENOMEM;
    }
    for (uint64_t i = 0; i < block.segments; i++)
        live_clear(&store->live, i);
    metas_read(store);
    superblock_mend(pm, &block);
    error = store_replicas_open(store);
    if (!error)
        error = store_voids_open(store);
    if (error)
        store_close(store);
    else
        *out = store;
    return error;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    free(store->voids);
    free(store->replicas);
    free(store->live.tombstones);
    free(store->live.words);
    free(store);
}

struct pm *store_pm(const struct store *store)
{
    return store->pm;
}

uint64_t store_segments(const struct store *store)
{
    return store->segments;
}

uint64_t store_segments_free(const struct store *store)
{
    return store_segments_with(store, SEGMENT_FREE);
}

uint64_t store_segments_with(const struct store *store, enum segment_state state)
{
    ASSERT((unsigned)state < SEGMENT_STATES);
    return atomic_load_explicit(&store->segments_with[state], memory_order_relaxed);
}

uint64_t store_segments_owned(const struct store *store, enum segment_owner owner)
{
    ASSERT((unsigned)owner < OWNER_KINDS);
    return atomic_load_explicit(&store->segments_owned[owner], memory_order_relaxed);
}

uint64_t store_segments_allocated(const struct store *store, enum segment_owner owner)
{
    ASSERT((unsigned)owner < OWNER_KINDS);
    return atomic_load_explicit(&store->allocated[owner], memory_order_relaxed);
}

uint64_t store_segment_offset(const struct store *store, uint64_t segment)
{
    ASSERT(segment < store->segments);
    return store->at.segments + segment * STORE_SEGMENT_BYTES;
}

uint64_t store_segment_at(const struct store *store, uint64_t offset)
{
    ASSERT(offset >= store->at.segments);
    const uint64_t segment = (offset - store->at.segments) / STORE_SEGMENT_BYTES;
    ASSERT(segment < store->segments);
    return segment;
}

uint64_t store_allocations(const struct store *store)
{
    return atomic_load_explicit(&store->allocation, memory_order_relaxed) - 1;
}

const struct live *store_live(const struct store *store)
{
    return &store->live;
}

/* --- segments --- */

/* A segment goes from one kind to another. */
static void count(_Atomic uint64_t *counts, unsigned from, unsigned to)
{
    atomic_fetch_sub_explicit(&counts[from], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[to], 1, memory_order_release);
}

/* Free segments that such an owner leaves to others. */
static uint64_t left_by(enum segment_owner owner)
{
    return owner == OWNER_CLEAN    ? 0
           : owner == OWNER_DIGEST ? STORE_CLEAN_SEGMENTS
           : owner == OWNER_WORKER
               ? STORE_CLEAN_SEGMENTS + STORE_DIGEST_SEGMENTS
               : STORE_CLEAN_SEGMENTS + STORE_DIGEST_SEGMENTS + STORE_WORKER_SEGMENTS;
}

/* store-2. False: there are no more than are left to others. */
static bool promise_one(struct store *store, uint64_t left)
{
    _Atomic uint64_t *place = &store->segments_with[SEGMENT_FREE];
    uint64_t free_segments = atomic_load_explicit(place, memory_order_relaxed);
    while (free_segments > left) {
        if (atomic_compare_exchange_weak_explicit(place, &free_segments, free_segments - 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    }
    return false;
}

int store_allocate(struct store *store, enum segment_owner owner, uint32_t owner_number,
                   uint64_t *segment)
{
    ASSERT(owner != OWNER_NONE && (unsigned)owner < OWNER_KINDS);
    if (!promise_one(store, left_by(owner)))
        return ROWAN_EFULL;
    struct segment_meta meta = {
        .state = SEGMENT_USING, .owner = owner, .owner_number = owner_number};
    uint64_t number = atomic_load_explicit(&store->hint, memory_order_relaxed), taken, word;
    bool is_free;
    do { /* what is free in front of this place others may take meanwhile: so it goes round */
        number = (number + 1) % store->segments;
        word = atomic_load_explicit(&store->metas[number], memory_order_acquire);
        is_free = word_state(word) == SEGMENT_FREE;
        if (is_free && meta.allocation <= meta_unpack(word).allocation) /* store-4 */
            meta.allocation =
                atomic_fetch_add_explicit(&store->allocation, 1, memory_order_relaxed);
        taken = meta_encode(number, &meta);
    } while (!is_free ||
             !atomic_compare_exchange_strong_explicit(&store->metas[number], &word, taken,
                                                      memory_order_acquire, memory_order_relaxed));
    atomic_fetch_add_explicit(&store->segments_with[SEGMENT_USING], 1, memory_order_relaxed);
    count(store->segments_owned, OWNER_NONE, owner);
    atomic_fetch_add_explicit(&store->allocated[owner], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->allocated[OWNER_NONE], 1, memory_order_relaxed);
    atomic_store_explicit(&store->hint, number, memory_order_relaxed);
    meta_write(store, number, taken); /* store-1 */
    *segment = number;
    return 0;
}

void store_set_owner(struct store *store, uint64_t segment, enum segment_owner owner)
{
    struct segment_meta meta = store_meta(store, segment);
    ASSERT(meta.state >= SEGMENT_USING && owner != OWNER_NONE);
    count(store->segments_owned, meta.owner, owner);
    meta.owner = owner;
    meta.owner_number = 0;
    const uint64_t word = meta_encode(segment, &meta);
    meta_write(store, segment, word); /* store-1 */
    atomic_store_explicit(&store->metas[segment], word, memory_order_release);
}

/* By a segment's next state: bits of those that it may have before. USING is given by store_allocate. */
static const uint8_t may_become[SEGMENT_STATES] = {
    [SEGMENT_FREE] = 1 << SEGMENT_DIRTY,
    [SEGMENT_DIRTY] = UINT8_MAX,
    [SEGMENT_USED] = 1 << SEGMENT_USING,
    [SEGMENT_COMMITTED] = 1 << SEGMENT_USING | 1 << SEGMENT_USED,
};

/* `old`: as the caller, who owns the segment, knows it. */
static void change(struct store *store, uint64_t segment, uint64_t old,
                   const struct segment_meta *meta)
{
    const uint64_t word = meta_encode(segment, meta);
    meta_write(store, segment, word); /* store-1 */
    const bool mine = atomic_compare_exchange_strong_explicit(
        &store->metas[segment], &old, word, memory_order_release, memory_order_relaxed);
    ASSERT(mine); /* store-1 */
}

void store_mark_closed(struct store *store, uint64_t segment)
{
    const uint64_t old = atomic_load_explicit(&store->metas[segment], memory_order_acquire);
    struct segment_meta meta = meta_unpack(old);
    meta.closed = true;
    if (!meta_unpack(old).closed)
        change(store, segment, old, &meta);
}

void store_transition(struct store *store, uint64_t segment, enum segment_state state)
{
    ASSERT(segment < store->segments);
    const uint64_t old = atomic_load_explicit(&store->metas[segment], memory_order_acquire);
    struct segment_meta meta = meta_unpack(old);
    ASSERT(state <= SEGMENT_COMMITTED && may_become[state] >> meta.state & 1);
    bool was_free = meta.state == SEGMENT_FREE;
    enum segment_owner owner = meta.owner;
    meta.state = state;
    meta.closed = false;
    if (state == SEGMENT_DIRTY || state == SEGMENT_FREE) {
        meta.owner = OWNER_NONE;
        meta.owner_number = 0;
    }
    if (was_free) /* store-4 */
        meta.allocation = atomic_fetch_add_explicit(&store->allocation, 1, memory_order_relaxed);
    change(store, segment, old, &meta);
    count(store->segments_with, word_state(old), state); /* store-2: behind the word */
    if (owner != meta.owner)
        count(store->segments_owned, owner, meta.owner);
}

struct segment_meta store_meta(const struct store *store, uint64_t segment)
{
    ASSERT(segment < store->segments);
    return meta_unpack(atomic_load_explicit(&store->metas[segment], memory_order_acquire));
}

bool store_segment_is_zero(const struct store *store, uint64_t segment, uint32_t from,
                           uint32_t bytes)
{
    ASSERT(from <= STORE_SEGMENT_BYTES && bytes <= STORE_SEGMENT_BYTES - from);
    return bytes_are_zero(pm_at(store->pm, store_segment_offset(store, segment) + from), bytes);
}
