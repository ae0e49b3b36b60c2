/* Which segment is cleaned next: by benefit and cost, (1 - u) * age / (1 + u) where u is the live share (Rosenblum and
 * Ousterhout 1992, section 3.6). Where no space is left it is the one with most dead bytes, whatever its share, but only
 * if that gives space: what is live in the best k segments must fit into k - 1. Else segments would be copied round and
 * round for the unused bytes at their ends. */
#include "server/clean/clean_state.h"

const struct victim *clean_victim(const struct clean *clean, uint64_t segment)
{
    for (uint32_t i = 0; i < clean->victim_count; i++) {
        if (clean->victims[i].segment == segment)
            return &clean->victims[i];
    }
    return NULL;
}

/* The newest segment of a worker's log has the newest table of its clients (worker_commit.c, M4), and stays, even if the
 * worker has not written in this run: then the one before, too, as the newest may have been torn by a crash. But the table
 * of one that leads nothing any more would keep old versions, and with them tombstones, for ever: a start of which it led
 * shards once finds no table then, which costs memory only (recover_clients.h). */
struct newest {
    uint64_t allocation[UINT8_MAX + 1], before[UINT8_MAX + 1]; /* by number of the worker */
};

static void find_newest(const struct store *store, struct newest *newest)
{
    *newest = (struct newest){0};
    for (uint64_t i = 0; i < store_segments(store); i++) {
        const struct segment_meta meta = store_meta(store, i);
        uint64_t *first = &newest->allocation[meta.owner_number];
        uint64_t *second = &newest->before[meta.owner_number];
        if (meta.owner != OWNER_WORKER)
            continue;
        if (meta.allocation > *first) {
            *second = *first;
            *first = meta.allocation;
        } else if (meta.allocation > *second) {
            *second = meta.allocation;
        }
    }
}

static bool is_newest(const struct clean *clean, const struct newest *newest,
                      const struct segment_meta *meta)
{
    const uint64_t first = newest->allocation[meta->owner_number];
    return meta->owner == OWNER_WORKER && clean->leads[meta->owner_number] > 0 &&
           (meta->allocation == first ||
            (first <= clean->run && meta->allocation == newest->before[meta->owner_number]));
}

static uint32_t live_percent(const struct clean *clean)
{
    return atomic_load_explicit(&clean->live_percent, memory_order_relaxed);
}

/* A pass has found it. What costs much to clean is left alone while others write, or space is short. */
static bool is_tidied(const struct clean *clean, uint64_t segment, double share)
{
    return clean->tombstones.tidy[segment] &&
           (share * 100 < live_percent(clean) ||
            (clean->tombstones.quiet && clean_need(clean) != CLEAN_URGENT));
}

/* What it is worth; 0: nothing. */
static double worth(const struct clean *clean, enum clean_need need, uint64_t segment,
                    const struct segment_meta *meta)
{
    const struct live *counts = store_live(clean->common->store);
    uint64_t live = live_bytes(counts, segment);
    if (live_items(counts, segment) == 0)
        live /= 2; /* stubs and the like, which nobody may need any more */
    const double share = (double)live / STORE_SEGMENT_BYTES;
    if (need == CLEAN_TIDY)
        return is_tidied(clean, segment, share) ? 1 : 0;
    if (live >= STORE_SEGMENT_BYTES)
        return 0;
    if (need == CLEAN_URGENT)
        return 1 - share;
    if (share * 100 >= live_percent(clean))
        return 0;
    const uint64_t newest = store_allocations(clean->common->store);
    return (1 - share) * (double)(newest - meta->allocation + 1) / (1 + share);
}

/* Of a segment that cleaning fills: an entry that does not fit any more. */
enum { CLEAN_WASTE_SHARE = 16 };

/* Bytes live in the victims that would be taken first, fewest first. */
struct emptiest {
    uint64_t live[CLEAN_VICTIMS];
    uint32_t count;
};

static void add_live(struct emptiest *best, uint64_t live)
{
    uint32_t at = best->count < CLEAN_VICTIMS ? best->count++ : CLEAN_VICTIMS;
    for (; at > 0 && best->live[at - 1] > live; at--) {
        if (at < CLEAN_VICTIMS)
            best->live[at] = best->live[at - 1];
    }
    if (at < CLEAN_VICTIMS)
        best->live[at] = live;
}

/* Do any k of them fit into fewer? What the open segment of the log still takes costs nothing. */
static bool gives_space(const struct clean *clean, const struct emptiest *best)
{
    const uint64_t usable = STORE_SEGMENT_BYTES - STORE_SEGMENT_BYTES / CLEAN_WASTE_SHARE;
    uint64_t live = 0, fits = log_room(&clean->log);
    for (uint32_t i = 0; i < best->count; i++) {
        live += best->live[i];
        if (live <= fits)
            return true;
        fits += usable;
    }
    return false;
}

static bool is_candidate(const struct clean *clean, const struct newest *newest, uint64_t segment,
                         const struct segment_meta *meta)
{
    const struct clean_parked *parked = &clean->parked[segment];
    const bool is_named = parked->named && clean_is_exposed(clean, parked->named - 1);
    const bool is_parked =
        clean->now_ns < parked->until_ns &&
        (!parked->items || live_items(store_live(clean->common->store), segment) >= parked->items);
    return meta->state == SEGMENT_COMMITTED && meta->owner != OWNER_CHECKPOINT && !is_parked &&
           !is_named && !clean_victim(clean, segment) && !is_newest(clean, newest, meta);
}

/* What the best one is worth; 0: none is. */
static double find_best(const struct clean *clean, enum clean_need need, struct emptiest *emptiest,
                        uint64_t *segment)
{
    const struct store *store = clean->common->store;
    struct newest newest;
    double best = 0;
    find_newest(store, &newest);
    for (uint64_t i = 0; i < store_segments(store); i++) {
        const struct segment_meta meta = store_meta(store, i);
        if (!is_candidate(clean, &newest, i, &meta))
            continue;
        add_live(emptiest, live_bytes(store_live(store), i));
        const double value = worth(clean, need, i, &meta);
        if (value > best) {
            best = value;
            *segment = i;
        }
    }
    return best;
}

bool clean_gives_much(const struct clean *clean)
{
    struct emptiest emptiest = {.count = 0};
    uint64_t live = 0, segment;
    (void)find_best(clean, CLEAN_URGENT, &emptiest, &segment);
    for (uint32_t i = 0; i < emptiest.count; i++)
        live += emptiest.live[i];
    return emptiest.count == CLEAN_VICTIMS && live <= CLEAN_VICTIMS / 4 * STORE_SEGMENT_BYTES;
}

bool clean_choose(const struct clean *clean, enum clean_need need, uint64_t *segment)
{
    struct emptiest emptiest = {.count = 0};
    return find_best(clean, need, &emptiest, segment) > 0 &&
           (need != CLEAN_URGENT || gives_space(clean, &emptiest));
}
