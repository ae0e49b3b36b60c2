/* Checkpoints (store/checkpoint.h): now and then this role writes one, beside what others do, and then drops the one
 * before.
 *
 *   REST --> COVERED --> SHARDS --> ITEMS --> COMMIT --> RECORDS_TOLD
 *    ^                     ^ |                                  |
 *    |                     \-+--(one more shard)----------------/
 *    |                       v
 *    \--(fenced)-- ENDED <--(fenced)-- FENCE
 *
 * A start takes of it the items that lead into segments that it covers, if these are what they were, and scans all others.
 *
 * Invariants:
 *  Y1  Covered are segments that were COMMITTED before the first index was read: all that lies in them was applied, its
 *      versions are settled, and what was copied out of them is durable (control_commit.c). So an entry there is what an
 *      item leads to, or it is superseded, or the item leads to a copy of it.
 *  Y2  An item that leads elsewhere is left out: its entry is found by a scan, or what took its place is. That has to be so
 *      after any crash. So before the checkpoint is whole, all those entries are committed, which makes them durable here
 *      (C2), and a fence has made durable what this role copied. What they supersede may then lie in a covered segment: the
 *      start does not need it.
 *  Y3  Completion records and clients are told by the shards' owners after the covered segments were COMMITTED, so what is
 *      missing there nobody will ask for. Of a shard that is backed here it is what its suffix loses by then, too.
 *  Y4  END is stored when all other blocks are durable, and the checkpoint before is dropped when END is.
 *  Y5  Checkpoints leave the reserve alone (V4): where that begins, none is written, and the last one is dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/clean/clean_state.h"

enum {
    CHECKPOINT_STEP_BYTES = 64 << 10, /* written in a poll */
    CHECKPOINT_SHARE =
        2, /* of all committed segments, the part that is new: 1 / CHECKPOINT_SHARE */
    CHECKPOINT_QUIET_SHARE = 8,    /* the same when nothing was written for a while */
    CHECKPOINT_ITEMS_BYTES = 9,    /* of an item, with its part of a bucket */
    CHECKPOINT_STEP_BUCKETS = 512, /* read for a block */
};

/* How long what is left out may take to be committed: its primary may be away. */
#define CHECKPOINT_COMMIT_NS (5 * NS_PER_S)

/* Nobody wakes this role when a commit version rises, an index has grown, or a fence is done. */
#define CHECKPOINT_WAIT_NS (10 * NS_PER_MS)

/* --- blocks --- */

/* Bytes that a value may have. */
static uint32_t value_bytes(const struct clean *clean)
{
    const uint32_t most = entry_block_capacity(&clean->common->format);
    return most < CHECKPOINT_VALUE_BYTES ? most : CHECKPOINT_VALUE_BYTES;
}

/* Errors: ROWAN_EFULL. */
static int write_block(struct clean *clean, enum checkpoint_kind kind, uint32_t shard,
                       const void *value, uint32_t bytes)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    const struct entry_header header = {.type = ENTRY_CHECKPOINT,
                                        .shard = (uint16_t)shard,
                                        .version = all->id,
                                        .value_bytes = bytes,
                                        .blocks = 1,
                                        .client_id = kind,
                                        .operation = all->blocks + 1};
    const uint32_t block_bytes =
        entry_encode_block(&clean->common->format, &header, NULL, value, all->block);
    uint64_t offset;
    const int error = log_reserve(&all->log, block_bytes, &offset);
    if (error)
        return error;
    pm_store(clean->common->pm, offset, all->block, block_bytes);
    all->blocks++;
    all->step_bytes += block_bytes;
    return 0;
}

/* --- beginning --- */

static bool is_committed(const struct segment_meta *meta)
{
    return meta->state == SEGMENT_COMMITTED && meta->owner != OWNER_CHECKPOINT;
}

/* Y1 */
static void choose_segments(struct clean *clean)
{
    const struct store *store = clean->common->store;
    for (uint64_t i = 0; i < store_segments(store); i++) {
        const struct segment_meta meta = store_meta(store, i);
        clean->checkpoint.covers[i] = is_committed(&meta);
    }
}

/* One block of them. From now on items that lead there become fewer, but for one that a role still had to apply. */
static bool write_segments(struct clean *clean, int *error)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    const struct store *store = clean->common->store;
    const struct live *live = store_live(store);
    struct checkpoint_segment rows[ENTRY_MIN_BLOCK_LIMIT / CHECKPOINT_SEGMENT_BYTES];
    const uint32_t most = (ENTRY_MIN_BLOCK_LIMIT - ENTRY_HEADER_BYTES) / CHECKPOINT_SEGMENT_BYTES;
    uint32_t count = 0;
    for (; all->segment < store_segments(store) && count < most; all->segment++) {
        const uint64_t i = all->segment;
        if (all->covers[i])
            rows[count++] =
                (struct checkpoint_segment){.allocation = store_meta(store, i).allocation,
                                            .items = (uint32_t)live_items(live, i),
                                            .strides = (uint32_t)live_bytes(live, i) / ENTRY_ALIGN,
                                            .tombstones = (uint32_t)live_tombstones(live, i)};
    }
    if (all->segment == store_segments(store))
        all->step = CHECKPOINT_SHARDS;
    *error = write_block(clean, CHECKPOINT_SEGMENTS, 0, rows, count * CHECKPOINT_SEGMENT_BYTES);
    return true;
}

/* Is it worth its bytes? A start then reads less by a part of the log. *wanted: later, it may be. */
static bool is_worth_it(struct clean *clean, bool *wanted)
{
    const struct server_common *common = clean->common;
    const struct store *store = common->store;
    struct clean_checkpoint *all = &clean->checkpoint;
    uint64_t committed = 0, fresh = 0, items = 0;
    for (uint64_t i = 0; i < store_segments(store); i++) {
        const struct segment_meta meta = store_meta(store, i);
        if (!is_committed(&meta))
            continue;
        committed++;
        fresh += all->covers_of && all->covers_of == common->checkpoint
                     ? !all->covers[i]
                     : meta.allocation > common->checkpoint;
        items += live_items(store_live(store), i);
    }
    const uint64_t written = clean_written(clean);
    const bool busy = written != all->written_versions;
    all->written_versions = written;
    *wanted = fresh >= CHECKPOINT_LEAST && busy;
    const uint64_t value = value_bytes(clean) - CHECKPOINT_BUCKETS_HEAD - CHECKPOINT_ITEM_BYTES;
    const uint64_t bytes =
        items * CHECKPOINT_ITEMS_BYTES * entry_padded(value_bytes(clean)) / value;
    const uint64_t segments = 2 + bytes / STORE_SEGMENT_BYTES;
    return fresh >= CHECKPOINT_LEAST &&
           fresh * (busy ? CHECKPOINT_SHARE : CHECKPOINT_QUIET_SHARE) >= committed &&
           (!busy || all->begun_ns == 0 || clean->now_ns >= all->begun_ns + CHECKPOINT_BUSY_NS) &&
           clean_may_take(clean, segments) &&
           !atomic_load_explicit(&common->possibly_incomplete, memory_order_acquire);
}

static bool begin(struct clean *clean, uint64_t *wake_ns)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    const uint64_t periods = atomic_load_explicit(&clean->common->periods, memory_order_acquire);
    all->wanted |= periods != all->periods;
    all->periods = periods;
    if (!atomic_load_explicit(&clean->checkpoints, memory_order_relaxed) || !all->wanted ||
        all->asking)
        return false;
    if (clean->now_ns < all->look_ns) {
        wake_at(wake_ns, all->look_ns);
        return false;
    }
    all->look_ns = clean->now_ns + CHECKPOINT_LOOK_NS;
    if (!is_worth_it(clean, &all->wanted)) {
        if (all->wanted)
            wake_at(wake_ns, all->look_ns);
        return false;
    }
    all->look_ns = clean->now_ns + CHECKPOINT_MIN_NS;
    all->begun_ns = clean->now_ns;
    all->wanted = true;
    all->covers_of = 0;
    all->id = store_allocations(clean->common->store);
    all->blocks = 0;
    all->shard = 0;
    log_init(&all->log, clean->common->store, OWNER_CHECKPOINT, 0);
    all->segment = 0;
    all->step = CHECKPOINT_COVERED;
    choose_segments(clean);
    return true;
}

/* --- a shard --- */

static bool begin_shard(struct clean *clean, int *error)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    while (all->shard < STORE_SHARD_IDS && !clean->shards[all->shard])
        all->shard++;
    if (all->shard == STORE_SHARD_IDS) {
        all->fence = pm_fence_start(clean->common->pm); /* Y2 */
        all->step = CHECKPOINT_FENCE;
        return true;
    }
    const struct shard_state *shard = clean->shards[all->shard];
    struct checkpoint_shard row = {.first_epoch = shard->first_epoch,
                                   .commit =
                                       atomic_load_explicit(&shard->commit, memory_order_acquire),
                                   .leads = shard->primary};
    if (!index_dump_begin(shard->index, &row.buckets))
        return false;
    all->buckets = row.buckets;
    all->bucket = 0;
    all->newest = 0;
    all->leads = row.leads;
    all->step = CHECKPOINT_ITEMS;
    *error = write_block(clean, CHECKPOINT_SHARD, all->shard, &row, sizeof row);
    return true;
}

/* Y2. How many of a bucket's items are to be kept; they are moved to the front. */
static uint32_t covered(struct clean *clean, uint64_t *items, uint32_t count)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    const struct server_common *common = clean->common;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t offset = index_item_offset(items[i]);
        if (all->covers[store_segment_at(common->store, offset)]) {
            items[kept++] = items[i];
            continue;
        }
        const uint64_t version = entry_version(pm_at(common->pm, offset));
        all->newest = version > all->newest ? version : all->newest;
    }
    return kept;
}

/* A bucket that no block can take whole: each has some of it. */
static int write_parts(struct clean *clean, const uint64_t *items, uint32_t count)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    const uint32_t most =
        (value_bytes(clean) - CHECKPOINT_BUCKETS_HEAD - 1) / CHECKPOINT_ITEM_BYTES;
    int error = 0;
    for (uint32_t from = 0; from < count && !error; from += most) {
        const uint8_t part = (uint8_t)(count - from < most ? count - from : most);
        memcpy(all->value + CHECKPOINT_BUCKETS_HEAD, items + from, part * CHECKPOINT_ITEM_BYTES);
        error = write_block(clean, CHECKPOINT_BUCKETS, all->shard, all->value,
                            checkpoint_buckets_encode(all->bucket, 1, part, &part, all->value));
    }
    all->bucket++;
    return error;
}

/* One block of buckets, mostly. Errors: ROWAN_EFULL, ROWAN_EBUSY (a bucket has too many items). */
static int write_buckets(struct clean *clean)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    const struct index *index = clean->shards[all->shard]->index;
    const uint32_t most = value_bytes(clean) - CHECKPOINT_BUCKETS_HEAD;
    uint64_t items[CHECKPOINT_BUCKET_ITEMS];
    uint8_t counts[CHECKPOINT_VALUE_BYTES];
    uint32_t count = 0, all_items = 0;
    const uint64_t first = all->bucket;
    for (; all->bucket < all->buckets && count < CHECKPOINT_STEP_BUCKETS; all->bucket++) {
        uint32_t found = index_dump(index, all->bucket, items, CHECKPOINT_BUCKET_ITEMS);
        if (found > CHECKPOINT_BUCKET_ITEMS)
            return ROWAN_EBUSY;
        found = covered(clean, items, found);
        if ((all_items + found) * CHECKPOINT_ITEM_BYTES + count + 1 > most) {
            if (count == 0)
                return write_parts(clean, items, found);
            break;
        }
        memcpy(all->value + CHECKPOINT_BUCKETS_HEAD + all_items * CHECKPOINT_ITEM_BYTES, items,
               found * CHECKPOINT_ITEM_BYTES);
        counts[count++] = (uint8_t)found;
        all_items += found;
    }
    return write_block(clean, CHECKPOINT_BUCKETS, all->shard, all->value,
                       checkpoint_buckets_encode(first, count, all_items, counts, all->value));
}

static bool dump_some(struct clean *clean, int *error)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    *error = write_buckets(clean);
    if (!*error && all->bucket == all->buckets) {
        index_dump_end(clean->shards[all->shard]->index);
        all->step = CHECKPOINT_COMMIT;
        all->until_ns = clean->now_ns + CHECKPOINT_COMMIT_NS;
    }
    return true;
}

/* Y2 */
static bool wait_for_commit(struct clean *clean, int *error)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    const struct shard_state *shard = clean->shards[all->shard];
    if (atomic_load_explicit(&shard->commit, memory_order_acquire) < all->newest) {
        *error = clean->now_ns < all->until_ns ? 0 : ROWAN_ETIMEDOUT;
        return false;
    }
    all->question.cursor = (struct records_cursor){0};
    if (shard->primary != all->leads) { /* promoted or deposed since */
        *error = ROWAN_EAGAIN;
        return false;
    }
    all->step = CHECKPOINT_RECORDS_TOLD;
    return true;
}

/* Y3. */
static bool list_records(struct clean *clean, int *error)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    struct records_question *question = &all->question;
    if (!all->asking) {
        question->lists = true;
        question->shard = (uint16_t)all->shard;
        question->wake = &clean->role.inbox;
        all->asking = records_ask(clean->questions[all->shard], question);
        return all->asking;
    }
    if (!atomic_load_explicit(&question->answered, memory_order_acquire))
        return false;
    all->asking = false;
    *error = question->listed_count < 0 ? question->listed_count : 0;
    const uint32_t most = (ENTRY_MIN_BLOCK_LIMIT - ENTRY_HEADER_BYTES) / CHECKPOINT_RECORD_BYTES;
    for (int i = 0; i < question->listed_count && !*error; i += (int)most) {
        const uint32_t left = (uint32_t)(question->listed_count - i);
        *error = write_block(clean, CHECKPOINT_RECORDS, all->shard, &question->listed[i],
                             (left < most ? left : most) * CHECKPOINT_RECORD_BYTES);
    }
    if (!*error && question->listed_all) {
        all->shard++;
        all->step = CHECKPOINT_SHARDS;
    }
    return true;
}

/* --- the end --- */

static bool is_needed(const struct clean *clean, uint64_t allocation)
{
    const struct clean_checkpoint *all = &clean->checkpoint;
    const struct server_common *common = clean->common;
    return (all->step != CHECKPOINT_REST && allocation > all->id) ||
           (allocation > common->checkpoint && allocation <= common->checkpoint_last);
}

/* Y4 */
static bool write_end(struct clean *clean, int *error)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    if (!server_fenced(clean->common, all->fence))
        return false;
    *error = write_block(clean, CHECKPOINT_END, 0, NULL, 0);
    all->fence = pm_fence_start(clean->common->pm);
    all->step = CHECKPOINT_ENDED;
    return true;
}

/* The segments of the checkpoint that counts. */
static void commit(struct clean *clean)
{
    struct store *store = clean->common->store;
    for (uint64_t i = 0; i < store_segments(store); i++) {
        const struct segment_meta meta = store_meta(store, i);
        if (meta.owner == OWNER_CHECKPOINT && meta.state == SEGMENT_USED &&
            is_needed(clean, meta.allocation))
            store_transition(store, i, SEGMENT_COMMITTED);
    }
}

static bool finish(struct clean *clean)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    if (!server_fenced(clean->common, all->fence))
        return false;
    log_close(&all->log);
    all->covers_of = clean->common->checkpoint = all->id;
    clean->common->checkpoint_last = all->log.allocation;
    all->step = CHECKPOINT_REST;
    commit(clean);
    counter_add(&all->written, 1);
    all->drops = true;
    return true;
}

/* What was written of it is dropped; the one before stays. */
static void give_up(struct clean *clean)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    if (all->step == CHECKPOINT_ITEMS)
        index_dump_end(clean->shards[all->shard]->index);
    if (all->log.open)
        log_close(&all->log);
    all->drops = true;
    all->step = CHECKPOINT_REST;
}

void clean_checkpoint_abort(struct clean *clean)
{
    if (clean->checkpoint.step != CHECKPOINT_REST)
        give_up(clean);
}

/* --- dropping --- */

/* Segments of checkpoints that are none any more become victims that hold nothing. True: one did. */
static bool drop(struct clean *clean)
{
    const struct store *store = clean->common->store;
    bool any = false;
    for (uint64_t i = 0; i < store_segments(store) && clean->checkpoint.drops; i++) {
        const struct segment_meta meta = store_meta(store, i);
        if (meta.owner != OWNER_CHECKPOINT || meta.state < SEGMENT_USING ||
            is_needed(clean, meta.allocation) || clean_victim(clean, i))
            continue;
        if (clean->victim_count == CLEAN_VICTIMS)
            return any;
        clean->victims[clean->victim_count++] =
            (struct victim){.step = VICTIM_GRACE,
                            .segment = i,
                            .ticket = reclaim_retire(&clean->common->reclaim),
                            .of_checkpoint = true};
        any = true;
    }
    clean->checkpoint.drops = false;
    return any;
}

/* --- the steps --- */

static bool step(struct clean *clean, int *error, uint64_t *wake_ns)
{
    switch (clean->checkpoint.step) {
    case CHECKPOINT_REST:
        return begin(clean, wake_ns);
    case CHECKPOINT_COVERED:
        return write_segments(clean, error);
    case CHECKPOINT_SHARDS:
        return begin_shard(clean, error);
    case CHECKPOINT_ITEMS:
        return dump_some(clean, error);
    case CHECKPOINT_COMMIT:
        return wait_for_commit(clean, error);
    case CHECKPOINT_RECORDS_TOLD:
        return list_records(clean, error);
    case CHECKPOINT_FENCE:
        return write_end(clean, error);
    case CHECKPOINT_ENDED:
        return finish(clean);
    }
    return false;
}

static bool any_is_dropped(const struct clean *clean)
{
    bool any = clean->checkpoint.drops;
    for (uint32_t i = 0; i < clean->victim_count; i++)
        any |= clean->victims[i].of_checkpoint;
    return any;
}

/* Y5. First the one that is written; if that has not been enough, the one before. */
static void make_space(struct clean *clean)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    if (all->step != CHECKPOINT_REST) {
        all->look_ns = clean->now_ns + CHECKPOINT_BUSY_NS;
        give_up(clean);
    } else if (clean->common->checkpoint > 0 && !any_is_dropped(clean)) {
        clean->common->checkpoint = clean->common->checkpoint_last = 0;
        all->drops = true;
    }
}

bool clean_checkpoint_poll(struct clean *clean, uint64_t *wake_ns)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    bool any = false, more = true;
    int error = 0;
    all->asking =
        all->asking && (all->step == CHECKPOINT_RECORDS_TOLD ||
                        !atomic_load_explicit(&all->question.answered, memory_order_acquire));
    if (clean_need(clean) == CLEAN_URGENT)
        make_space(clean);
    any |= drop(clean);
    all->step_bytes = 0;
    while (more && !error && all->step_bytes < CHECKPOINT_STEP_BYTES &&
           (!any || !FAULT(SHORT_BATCH))) {
        more = step(clean, &error, wake_ns);
        any |= more;
    }
    if (error) {
        log_event(LOG_INFO, "checkpoint_given_up", "shard=%u blocks=%u error=%s", all->shard,
                  all->blocks, error_name(error));
        all->look_ns = clean->now_ns + CHECKPOINT_BUSY_NS;
        give_up(clean);
        any = true;
    }
    if (!any && (all->step != CHECKPOINT_REST || all->asking))
        wake_at(wake_ns, clean->now_ns + CHECKPOINT_WAIT_NS);
    return any;
}

int clean_checkpoint_init(struct clean *clean)
{
    struct clean_checkpoint *all = &clean->checkpoint;
    all->covers = calloc(store_segments(clean->common->store), sizeof *all->covers);
    all->look_ns = clean->now_ns + CHECKPOINT_LOOK_NS;
    all->wanted = all->drops = true;
    if (!all->covers)
        return ROWAN_ENOMEM;
    commit(clean);
    return 0;
}

void clean_checkpoint_fini(struct clean *clean)
{
    free(clean->checkpoint.covers);
    clean->checkpoint.covers = NULL;
}
