/* A PM map in memory. The durable image is kept as an undo log: for each store that no finished fence
 * covers, oldest first, the bytes that it replaced. The log lies in rings that grow while more than
 * ever waits for a fence, and are otherwise used again.
 *
 *  P1 Fences are done in the order of their starts. One that is done takes all stores that were made
 *     before its start out of the log.
 *  P2 A word may have, after a power loss, the value that it has now and any that the log holds of
 *     it, and no other.
 */
#include "test/sim/sim_pm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "common/base/assert.h"
#include "common/reactor/reactor.h"

enum { WORD_BYTES = 8, FIRST_RING_BYTES = 4096 };

/* Beyond that the oldest stores become durable unasked, as the kernel writes back old pages. Only maps
 * whose fences cover nothing get there. */
#define MAX_UNDO_BYTES (UINT64_C(64) << 20)

/* A ticket's high bits count the power losses before it: one of an earlier life is never done. */
#define LIFE_SHIFT 48

/* --- rings of bytes; positions are never reset, the size is a power of two --- */

struct ring {
    uint8_t *bytes;
    uint64_t size, head, tail;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void ring_read(const struct ring *ring, uint64_t position, void *out, uint64_t bytes)
{
    uint64_t at = position & (ring->size - 1), first = least(bytes, ring->size - at);
    memcpy(out, ring->bytes + at, first);
    memcpy((uint8_t *)out + first, ring->bytes, bytes - first);
}

static void ring_write(struct ring *ring, uint64_t position, const void *source, uint64_t bytes)
{
    uint64_t at = position & (ring->size - 1), first = least(bytes, ring->size - at);
    memcpy(ring->bytes + at, source, first);
    memcpy(ring->bytes, (const uint8_t *)source + first, bytes - first);
}

static void ring_grow(struct ring *ring, uint64_t needed)
{
    struct ring grown = *ring;
    grown.size = ring->size ? ring->size : FIRST_RING_BYTES;
    while (grown.size < needed)
        grown.size *= 2;
    grown.bytes = malloc(grown.size);
    ASSERT(grown.bytes);
    for (uint64_t at = ring->head; at < ring->tail;) {
        uint64_t bytes = least(ring->tail - at, ring->size - (at & (ring->size - 1)));
        ring_write(&grown, at, ring->bytes + (at & (ring->size - 1)), bytes);
        at += bytes;
    }
    free(ring->bytes);
    *ring = grown;
}

static void ring_push(struct ring *ring, const void *source, uint64_t bytes)
{
    if (ring->tail - ring->head + bytes > ring->size)
        ring_grow(ring, ring->tail - ring->head + bytes);
    ring_write(ring, ring->tail, source, bytes);
    ring->tail += bytes;
}

/* --- the log --- */

struct undo {
    uint64_t offset, bytes;
};

struct fence {
    uint64_t due_ns;
    uint64_t stores; /* made before its start: a position in `stores` */
};

struct sim_pm_pending {
    struct ring stores; /* of struct undo */
    struct ring bytes;  /* that they replaced, one after another */
    struct ring fences; /* of struct fence */
    uint64_t started;   /* fences and syncs of this life */
    uint64_t done;      /* of these */
    uint64_t life;      /* power losses so far */
    bool seeded;        /* sim->random is */
};

static void pop_store(struct sim_pm_pending *pending)
{
    struct undo undo;
    ring_read(&pending->stores, pending->stores.head, &undo, sizeof undo);
    pending->stores.head += sizeof undo;
    pending->bytes.head += undo.bytes;
}

/* Takes out what has been covered by now (P1). */
static void settle(const struct sim_pm *sim)
{
    struct sim_pm_pending *pending = sim->pending;
    struct fence fence;
    while (pending->fences.head < pending->fences.tail) {
        ring_read(&pending->fences, pending->fences.head, &fence, sizeof fence);
        if (fence.due_ns > sim->clock->now_ns)
            return;
        pending->fences.head += sizeof fence;
        pending->done++;
        while (pending->stores.head < fence.stores)
            pop_store(pending);
    }
}

/* Before a store. */
static void remember(struct sim_pm *sim, uint64_t offset, uint64_t bytes)
{
    struct sim_pm_pending *pending = sim->pending;
    ASSERT(offset <= sim->pm.bytes && bytes <= sim->pm.bytes - offset);
    sim->stores++;
    settle(sim);
    while (pending->stores.head < pending->stores.tail &&
           pending->bytes.tail - pending->bytes.head + bytes > MAX_UNDO_BYTES)
        pop_store(pending);
    ring_push(&pending->stores, &(struct undo){offset, bytes}, sizeof(struct undo));
    ring_push(&pending->bytes, sim->pm.base + offset, bytes);
}

static void tell(const struct sim_pm *sim, uint64_t offset, size_t bytes)
{
    if (sim->stored)
        sim->stored(sim->stored_context, offset, sim->pm.base + offset, bytes);
}

/* `source` NULL: zeros; no bytes: a fence. */
static void trace(struct sim_pm *sim, uint64_t offset, const void *source, size_t bytes)
{
    const uint64_t words[] = {offset, bytes, source ? XXH3_64bits(source, bytes) : 0};
    sim->trace = XXH3_64bits_withSeed(words, sizeof words, sim->trace);
}

static void sim_store(struct pm *pm, uint64_t offset, const void *source, size_t bytes)
{
    struct sim_pm *sim = (struct sim_pm *)pm;
    trace(sim, offset, source, bytes);
    remember(sim, offset, bytes);
    memcpy(pm->base + offset, source, bytes);
    tell(sim, offset, bytes);
}

static void sim_zero(struct pm *pm, uint64_t offset, size_t bytes)
{
    struct sim_pm *sim = (struct sim_pm *)pm;
    trace(sim, offset, NULL, bytes);
    remember(sim, offset, bytes);
    memset(pm->base + offset, 0, bytes);
    tell(sim, offset, bytes);
}

/* For bytes that somebody stored past pm_store: here nobody does. A start flushes what an earlier life stored; a fence of
 * the new one covers that anyway. */
static void sim_flush(struct pm *pm, uint64_t offset, size_t bytes)
{
    ASSERT(offset <= pm->bytes && bytes <= pm->bytes - offset);
}

/* --- fences --- */

static uint64_t draw_fence_ns(struct sim_pm *sim)
{
    if (!sim->seed || sim->fence_ns == 0)
        return sim->fence_ns;
    if (!sim->pending->seeded)
        random_init(&sim->random, sim->seed);
    sim->pending->seeded = true;
    return sim->fence_ns - random_below(&sim->random, sim->fence_ns / 2 + 1);
}

static struct pm_ticket start(struct sim_pm *sim)
{
    struct sim_pm_pending *pending = sim->pending;
    uint64_t due_ns = sim->clock->now_ns + draw_fence_ns(sim);
    if (due_ns > sim->last_due_ns)
        sim->last_due_ns = due_ns;
    ring_push(&pending->fences, &(struct fence){sim->last_due_ns, pending->stores.tail},
              sizeof(struct fence));
    return (struct pm_ticket){(pending->life << LIFE_SHIFT) + ++pending->started};
}

static int is_done(const struct sim_pm *sim, struct pm_ticket ticket)
{
    settle(sim);
    const struct sim_pm_pending *pending = sim->pending;
    if (ticket.number == 0)
        return 1;
    return ticket.number >> LIFE_SHIFT == pending->life &&
           ticket.number - (pending->life << LIFE_SHIFT) <= pending->done;
}

static struct pm_ticket sim_fence_start(struct pm *pm)
{
    struct sim_pm *sim = (struct sim_pm *)pm;
    sim->fences++;
    trace(sim, 0, NULL, 0);
    return pm->durability == PM_FENCE ? start(sim) : (struct pm_ticket){0};
}

static int sim_fence_done(struct pm *pm, struct pm_ticket ticket)
{
    return pm->durability == PM_FENCE ? is_done((struct sim_pm *)pm, ticket) : 1;
}

static struct pm_ticket sim_sync_start(struct pm *pm)
{
    return start((struct sim_pm *)pm);
}

static int sim_sync_done(struct pm *pm, struct pm_ticket ticket)
{
    return is_done((struct sim_pm *)pm, ticket);
}

uint64_t sim_pm_next_ns(const struct sim_pm *sim)
{
    const struct ring *fences = &sim->pending->fences;
    struct fence fence;
    settle(sim);
    if (fences->head == fences->tail)
        return WAKE_NEVER;
    ring_read(fences, fences->head, &fence, sizeof fence);
    return fence.due_ns;
}

uint64_t sim_pm_done(const struct sim_pm *sim)
{
    settle(sim);
    return (sim->pending->life << LIFE_SHIFT) + sim->pending->done;
}

/* --- the map --- */

static void sim_close(struct pm *pm)
{
    struct sim_pm *sim = (struct sim_pm *)pm;
    free(sim->pending->stores.bytes);
    free(sim->pending->bytes.bytes);
    free(sim->pending->fences.bytes);
    free(sim->pending);
    munmap(pm->base, pm->bytes);
    free(sim);
}

static const struct pm_ops SIM_PM_OPS = {
    .close = sim_close,
    .store = sim_store,
    .zero = sim_zero,
    .fence_start = sim_fence_start,
    .fence_done = sim_fence_done,
    .sync_start = sim_sync_start,
    .sync_done = sim_sync_done,
    .flush = sim_flush,
};

struct sim_pm *sim_pm_create(struct sim_clock *clock, uint64_t bytes, uint64_t fence_ns)
{
    struct sim_pm *sim = calloc(1, sizeof *sim);
    ASSERT(sim);
    sim->pending = calloc(1, sizeof *sim->pending);
    ASSERT(sim->pending);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT(base != MAP_FAILED);
    /* Most of it is read, never written: zeros in large pages cost a fault for each 2 MiB. A kernel
     * without them says no, which only takes longer. */
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    sim->pm = (struct pm){.ops = &SIM_PM_OPS,
                          .base = base,
                          .bytes = bytes,
                          .fd = -1,
                          .durability = PM_FENCE,
                          .backend = "sim"};
    sim->clock = clock;
    sim->fence_ns = fence_ns;
    return sim;
}

/* --- power loss --- */

/* What a power loss takes. Each is drawn as often as the others. */
enum loss_kind {
    LOSE_ALL,
    LOSE_NOTHING,
    LOSE_UNITS,  /* each unit of each store by chance */
    LOSE_PAGES,  /* each unit is as it was at some moment, as pages are that were written back */
    LOSE_LAST,   /* the last stores */
    LOSE_TAILS,  /* the end of each store, from some word on */
    LOSE_STORES, /* whole stores by chance */
    LOSE_ONE,    /* one whole store */
    KEEP_ONE,    /* all stores but one */
    LOSE_SMALL,  /* those of a word at most: what says how others are to be taken */
    LOSS_KINDS,
};

struct loss {
    enum loss_kind kind;
    uint32_t unit_shift; /* units of 8 B (a word), 64 B (a cache line), 512 B (a sector), 4 KiB */
    uint64_t chance;     /* of 16 */
    uint64_t stores;     /* in the log */
    uint64_t picked;     /* one of them */
    uint64_t salt;
};

static void draw_loss(struct loss *loss, uint64_t stores, struct random *random)
{
    loss->stores = stores;
    loss->kind = (enum loss_kind)random_below(random, LOSS_KINDS);
    loss->unit_shift = 3 + 3 * (uint32_t)random_below(random, 4);
    loss->chance = 1 + random_below(random, 15);
    /* Of a long log the last few stores are worth as much as all others. */
    uint64_t within = random_below(random, 2) ? stores : least(stores, 8);
    loss->picked = stores ? stores - 1 - random_below(random, within) : 0;
    loss->salt = random_u64(random);
}

/* A draw that belongs to two numbers (splitmix64's finish). */
static uint64_t mix(const struct loss *loss, uint64_t a, uint64_t b)
{
    uint64_t z = loss->salt + a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xd1b54a32d192ed03);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) >> 16;
}

/* Is the number-th store's word at `offset` on the medium? */
static bool is_kept(const struct loss *loss, uint64_t number, const struct undo *undo,
                    uint64_t offset)
{
    uint64_t unit = offset >> loss->unit_shift;
    switch (loss->kind) {
    case LOSE_ALL:
        return false;
    case LOSE_UNITS:
        return mix(loss, unit, number) % 16 < loss->chance;
    case LOSE_PAGES:
        return number < mix(loss, unit, 0) % (loss->stores + 1);
    case LOSE_LAST:
        return number < loss->picked;
    case LOSE_TAILS:
        return offset - least(offset, undo->offset) <
               mix(loss, number, 0) % (undo->bytes + WORD_BYTES);
    case LOSE_STORES:
        return mix(loss, number, 0) % 16 < loss->chance;
    case LOSE_ONE:
        return number != loss->picked;
    case KEEP_ONE:
        return number == loss->picked;
    case LOSE_SMALL:
        return undo->bytes > WORD_BYTES;
    case LOSE_NOTHING:
    case LOSS_KINDS:
        break;
    }
    return true;
}

enum { WORD_DIFFERED = 1, WORD_SETTLED = 2, WORD_RESTORED = 4 };

/* A word that was restored, and its bytes before. */
struct seen {
    uint64_t offset;
    uint8_t bytes[WORD_BYTES];
};

struct walk {
    struct sim_pm *sim;
    struct loss loss;
    struct sim_pm_loss counts;
    uint8_t *marks;   /* of each word of the map, WORD_* */
    struct ring seen; /* of struct seen */
    uint64_t undone;  /* the first store of which a word was restored */
};

/* One store less of the word at `offset`; `old` is what it replaced of it, from `from` to `to`. */
static void undo_word(struct walk *walk, uint64_t number, const struct undo *undo, uint64_t offset,
                      const uint8_t *old, uint64_t from, uint64_t to)
{
    uint8_t *base = walk->sim->pm.base, *mark = &walk->marks[offset / WORD_BYTES];
    if (*mark & WORD_SETTLED || memcmp(base + from, old, to - from) == 0)
        return;
    walk->counts.words += !(*mark & WORD_DIFFERED);
    *mark |= WORD_DIFFERED;
    if (is_kept(&walk->loss, number, undo, offset)) {
        *mark |= WORD_SETTLED;
        return;
    }
    if (!(*mark & WORD_RESTORED)) {
        struct seen seen = {.offset = offset};
        memcpy(seen.bytes, base + offset, least(WORD_BYTES, walk->sim->pm.bytes - offset));
        ring_push(&walk->seen, &seen, sizeof seen);
        *mark |= WORD_RESTORED;
    }
    memcpy(base + from, old, to - from);
    walk->undone = number; /* they come from the last to the first */
}

/* From the last store to the first: a word is restored until a store into it is kept (P2). */
static void undo_stores(struct walk *walk)
{
    struct sim_pm_pending *pending = walk->sim->pending;
    uint64_t number = walk->loss.stores, at = pending->bytes.tail, room = 0;
    uint8_t *old = NULL;
    for (uint64_t position = pending->stores.tail; position > pending->stores.head;) {
        struct undo undo;
        position -= sizeof undo;
        ring_read(&pending->stores, position, &undo, sizeof undo);
        at -= undo.bytes;
        number--;
        if (undo.bytes > room) {
            free(old);
            room = undo.bytes;
            old = malloc(room);
            ASSERT(old);
        }
        ring_read(&pending->bytes, at, old, undo.bytes);
        uint64_t end = undo.offset + undo.bytes;
        for (uint64_t from = undo.offset; from < end;) {
            uint64_t offset = from & ~(uint64_t)(WORD_BYTES - 1);
            uint64_t to = least(end, offset + WORD_BYTES);
            undo_word(walk, number, &undo, offset, old + (from - undo.offset), from, to);
            from = to;
        }
    }
    free(old);
}

static int compare_seen(const void *a, const void *b)
{
    uint64_t first = ((const struct seen *)a)->offset, second = ((const struct seen *)b)->offset;
    return (first > second) - (first < second);
}

/* Counts the words that are not as they were, and tells of each stretch of them. */
static void tell_lost(struct walk *walk, sim_pm_stored *lost, void *context)
{
    const uint8_t *base = walk->sim->pm.base;
    struct seen *seen = (struct seen *)(void *)walk->seen.bytes;
    uint64_t count = walk->seen.tail / sizeof *seen, from = 0, to = 0;
    if (count)
        qsort(seen, count, sizeof *seen, compare_seen);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bytes = least(WORD_BYTES, walk->sim->pm.bytes - seen[i].offset);
        if (memcmp(base + seen[i].offset, seen[i].bytes, bytes) == 0)
            continue;
        walk->counts.old++;
        if (seen[i].offset != to) {
            if (lost && to > from)
                lost(context, from, base + from, to - from);
            from = seen[i].offset;
        }
        to = seen[i].offset + bytes;
    }
    if (lost && to > from)
        lost(context, from, base + from, to - from);
}

/* Those that were to cover a store of which something is lost. */
static uint64_t count_fences(const struct walk *walk)
{
    const struct sim_pm_pending *pending = walk->sim->pending;
    uint64_t first = pending->stores.head + walk->undone * sizeof(struct undo), count = 0;
    for (uint64_t at = pending->fences.head; at < pending->fences.tail && walk->counts.old;) {
        struct fence fence;
        ring_read(&pending->fences, at, &fence, sizeof fence);
        count += fence.stores > first;
        at += sizeof fence;
    }
    return count;
}

/* Nothing is outstanding any more. */
static void begin_life(struct sim_pm *sim)
{
    struct sim_pm_pending *pending = sim->pending;
    pending->stores.head = pending->stores.tail;
    pending->bytes.head = pending->bytes.tail;
    pending->fences.head = pending->fences.tail;
    pending->started = pending->done = 0;
    pending->life++;
    sim->last_due_ns = 0;
}

struct sim_pm_loss sim_pm_power_loss(struct sim_pm *sim, struct random *random, sim_pm_stored *lost,
                                     void *context)
{
    struct sim_pm_pending *pending = sim->pending;
    settle(sim);
    struct walk walk = {.sim = sim};
    draw_loss(&walk.loss, (pending->stores.tail - pending->stores.head) / sizeof(struct undo),
              random);
    walk.counts.stores = walk.loss.stores;
    walk.marks = calloc(sim->pm.bytes / WORD_BYTES + 1, 1);
    ASSERT(walk.marks);
    undo_stores(&walk);
    tell_lost(&walk, lost, context);
    walk.counts.fences = count_fences(&walk);
    free(walk.marks);
    free(walk.seen.bytes);
    begin_life(sim);
    return walk.counts;
}

void sim_pm_replace(struct sim_pm *sim, sim_pm_stored *lost, void *context)
{
    const int error = madvise(sim->pm.base, sim->pm.bytes, MADV_DONTNEED); /* zeros from now on */
    ASSERT(!error);
    trace(sim, 0, NULL, sim->pm.bytes);
    begin_life(sim);
    if (lost)
        lost(context, 0, sim->pm.base, sim->pm.bytes);
}

bool sim_pm_is_durable(const struct sim_pm *sim, uint64_t offset, size_t bytes)
{
    const struct sim_pm_pending *pending = sim->pending;
    settle(sim);
    uint64_t at = pending->bytes.tail, end = offset + bytes;
    for (uint64_t position = pending->stores.tail; position > pending->stores.head;) {
        struct undo undo;
        position -= sizeof undo;
        ring_read(&pending->stores, position, &undo, sizeof undo);
        at -= undo.bytes;
        uint64_t from = undo.offset > offset ? undo.offset : offset;
        for (uint64_t to = least(end, undo.offset + undo.bytes); from < to;) {
            uint8_t old[256];
            uint64_t part = least(to - from, sizeof old);
            ring_read(&pending->bytes, at + (from - undo.offset), old, part);
            if (memcmp(old, sim->pm.base + from, part) != 0)
                return false;
            from += part;
        }
    }
    return true;
}
