/* The scan of a start, by all its parts. Each segment is scanned by one part, whoever comes first: checksums and hashes
 * take most of the time. The blocks that it finds go into a list, and each part applies those of its own shards, list by
 * list in the order of places, so each shard meets its entries in that order (R2, R3).
 *
 *  R8  A list is filled by the part that took its place by compare-and-set, and read when `filled` says so. It is filled
 *      anew only when every part has applied what it held. So there are at most as many segments between the slowest part
 *      and the scan as there are lists.
 *  R9  What a part stored or flushed it fences itself, before it is over (on dax a fence is that of its thread).
 *
 * Application goes in stages, for some blocks at a time, so that cache misses overlap: the index bucket, the entry that
 * the index has, application.
 */
#include "server/shard/recover_state.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/pm/pm_tap.h"
#include "server/store/torn.h"

enum {
    STEP_BYTES = 1 << 20, /* scanned in one poll */
    STEP_BLOCKS = 4096,   /* applied in one poll */
    LISTS_PER_PART = 2,
};

/* --- scanning --- */

/* The next place, if there is a list for it (R8). */
static bool take_place(struct recover_part *part)
{
    struct recover *recover = part->recover;
    uint64_t place = atomic_load_explicit(&recover->next, memory_order_relaxed);
    do {
        if (place == recover->place_count)
            return false;
        for (uint32_t i = 0; i < recover->part_count; i++)
            if (place >= atomic_load_explicit(&recover->parts[i].applied, memory_order_acquire) +
                             recover->list_count)
                return false;
    } while (!atomic_compare_exchange_weak_explicit(&recover->next, &place, place + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    const struct store *store = recover->common->store;
    const uint64_t offset = store_segment_offset(store, recover->places[place].segment);
    entry_scan_init(&part->scan, &recover->common->format, pm_at(recover->common->pm, offset),
                    STORE_SEGMENT_BYTES, 0);
    part->scanned = place;
    part->in_segment = true;
    part->blocks_seen = part->torn_seen = false;
    recover->lists[place % recover->list_count].count = 0;
    return true;
}

/* Bytes in a segment that was not committed may have come from the caches of the processor: the last run may have ended before it
 * flushed what it received. What was found counts from now on, so it is made durable, by the fence at the end (R9). */
bool recover_leave(struct recover *recover, uint64_t segment, bool may_be_empty)
{
    struct store *store = recover->common->store;
    if (store_meta(store, segment).state != SEGMENT_COMMITTED)
        pm_flush(pm_tap_beneath(recover->common->pm), store_segment_offset(store, segment),
                 STORE_SEGMENT_BYTES); /* most of it is clean: no write for a tap */
    if (may_be_empty && store_segment_is_zero(store, segment, 0, STORE_SEGMENT_BYTES)) {
        store_transition(store, segment, SEGMENT_DIRTY);
        store_transition(store, segment, SEGMENT_FREE);
        return true;
    }
    if (store_meta(store, segment).state == SEGMENT_USING)
        store_transition(store, segment, SEGMENT_USED);
    return false;
}

/* The segment is scanned. */
static void leave_segment(struct recover_part *part)
{
    struct recover *recover = part->recover;
    const uint64_t place = part->scanned;
    part->in_segment = false;
    part->counts.segments++;
    part->counts.released +=
        recover_leave(recover, recover->places[place].segment, !part->blocks_seen);
    atomic_store_explicit(&recover->lists[place % recover->list_count].filled, place + 1,
                          memory_order_release);
}

static void list_block(struct recover_part *part, const struct entry_header *header,
                       uint32_t position)
{
    struct recover *recover = part->recover;
    struct recover_list *list = &recover->lists[part->scanned % recover->list_count];
    const uint64_t segment = recover->places[part->scanned].segment;
    const bool is_object = header->type == ENTRY_PUT || header->type == ENTRY_DELETE;
    part->blocks_seen = true;
    const bool of_checkpoint = recover->places[part->scanned].of_checkpoint;
    if (of_checkpoint != (header->type == ENTRY_CHECKPOINT) ||
        (!of_checkpoint && !is_object && header->type != ENTRY_RECORD &&
         header->type != ENTRY_COMMIT_VERSIONS))
        return;
    part->checkpoint_blocks += of_checkpoint;
    struct recover_found *found = &list->blocks[list->count++];
    found->header = *header;
    found->offset = store_segment_offset(recover->common->store, segment) + position;
    if (is_object && header->blocks == 1)
        found->hash = index_hash(recover_key(recover, found->offset), header->key_bytes);
}

static void scan_some(struct recover_part *part)
{
    const uint32_t begin = part->scan.position;
    struct entry_header header;
    uint32_t position, bytes;
    do {
        const uint32_t from = part->scan.position;
        const enum entry_scan_result result =
            entry_scan_next(&part->scan, false, &header, &position, &bytes);
        /* Was what was passed over but zeros? Pads count here, too. */
        const uint32_t to = result == ENTRY_SCAN_BLOCK ? position : part->scan.position;
        part->torn_seen |= !bytes_are_zero(part->scan.base + from, to - from);
        if (result == ENTRY_SCAN_BLOCK)
            list_block(part, &header, position);
        if (result != ENTRY_SCAN_END)
            continue;
        part->scan.position = 0;
        if (part->torn_seen)
            torn_void_step(part->recover->common->pm, &part->scan, STORE_SEGMENT_BYTES,
                           &part->counts.voided);
        leave_segment(part);
        return;
    } while (part->scan.position - begin < STEP_BYTES && !FAULT(SHORT_BATCH));
}

/* --- application --- */

/* The list of the place that is to be applied; NULL: it is not filled yet. */
static const struct recover_list *next_list(const struct recover_part *part)
{
    const struct recover *recover = part->recover;
    const uint64_t place = atomic_load_explicit(&part->applied, memory_order_relaxed);
    const struct recover_list *list = &recover->lists[place % recover->list_count];
    return atomic_load_explicit(&list->filled, memory_order_acquire) == place + 1 ? list : NULL;
}

/* In front of the first block of a list. Its segment may be free by now. */
static int enter_list(struct recover_part *part)
{
    const struct recover *recover = part->recover;
    const uint64_t place = atomic_load_explicit(&part->applied, memory_order_relaxed);
    part->copy = (struct join_piece){0};
    return part->in_copies && !recover->places[place].has_copies ? recover_pieces(part) : 0;
}

/* Stages 1 and 2. */
static void choose_blocks(struct recover_part *part, const struct recover_list *list)
{
    const uint32_t most = FAULT(SHORT_BATCH) ? 1 : RECOVER_STAGE_BLOCKS;
    struct recover_block *blocks = part->chosen;
    uint32_t count = 0;
    for (; part->position < list->count && count < most; part->position++) {
        const struct recover_found *found = &list->blocks[part->position];
        struct recover_block *block = &blocks[count];
        if (!recover_choose(part, found, block))
            continue;
        count++;
        if (block->shard && found->header.blocks == 1 &&
            (found->header.type == ENTRY_PUT || found->header.type == ENTRY_DELETE)) {
            __builtin_prefetch(pm_at(part->recover->common->pm, found->offset));
            block->bucket = index_prefetch(block->shard->state->index, found->hash);
        }
    }
    for (uint32_t i = 0; i < count; i++)
        if (blocks[i].bucket)
            blocks[i].hint = index_prefetch_entry(blocks[i].shard->state->index, blocks[i].bucket,
                                                  blocks[i].found->hash);
    part->chosen_count = count;
    part->chosen_next = 0;
}

static int apply_chosen(struct recover_part *part)
{
    int error = 0;
    for (; part->chosen_next < part->chosen_count && !error; part->chosen_next += !error)
        error = recover_block(part, &part->chosen[part->chosen_next]);
    return error;
}

/* Errors: EAGAIN: come back for the rest (R10). */
static int apply_some(struct recover_part *part, const struct recover_list *list)
{
    const uint32_t begin = part->position;
    int error = begin == 0 ? enter_list(part) : apply_chosen(part);
    while (!error && part->position < list->count && part->position - begin < STEP_BLOCKS) {
        choose_blocks(part, list);
        error = apply_chosen(part);
    }
    if (!error && part->position == list->count) {
        part->position = 0;
        atomic_fetch_add_explicit(&part->applied, 1, memory_order_release);
    }
    return error;
}

/* --- the part --- */

/* K9 of the clean role, which has not begun. A block that could not be read when its segment was committed may be of the suffix. */
static bool is_exposed(const struct store *store, const struct shard_state *shard)
{
    bool exposed = atomic_load_explicit(&shard->possibly_incomplete, memory_order_relaxed);
    for (uint32_t i = 0; i < shard->suffix.count && !exposed; i++) {
        const uint64_t segment = store_segment_at(store, shard->suffix.items[i].offset);
        exposed = store_meta(store, segment).state == SEGMENT_COMMITTED;
    }
    return exposed;
}

static void settle_shard(const struct recover *recover, struct recover_shard *of)
{
    struct shard_state *shard = of->state;
    if (!of->copies.sorted)
        suffix_sort(&of->copies);
    recover_count_copies(of, UINT64_MAX);
    suffix_clear(&of->copies);
    suffix_clear(&of->made);
    suffix_sort(&shard->suffix);
    shard->completed.lost = 0; /* those of long ago are no loss */
    if (is_exposed(recover->common->store, shard))
        atomic_init(&shard->exposed, shard->suffix.above);
    recover_clients_raise(&recover->clients, shard->id, &shard->records);
}

static int settle(struct recover_part *part)
{
    struct recover *recover = part->recover;
    const int error = part->in_copies ? recover_pieces(part) : 0;
    if (error == ROWAN_EAGAIN)
        return error;
    for (uint32_t i = part->number; i < recover->shard_count && !error; i += recover->part_count)
        settle_shard(recover, &recover->shards[i]);
    (void)pm_fence_start(recover->common->pm); /* R9; the one of recover.c is waited for */
    return error;
}

bool recover_help(struct recover_part **of, uint64_t now_ns, uint64_t *wake_ns)
{
    struct recover_part *part = *of;
    struct recover *recover = part->recover;
    const struct recover_list *list;
    int error = 0;
    if (!atomic_load_explicit(&recover->scanning, memory_order_acquire)) {
        wake_at(wake_ns, now_ns + RECOVER_WAIT_NS);
        return false;
    }
    const bool is_last =
        atomic_load_explicit(&part->applied, memory_order_relaxed) == recover->place_count;
    if (is_last) {
        error = settle(part);
    } else if ((list = next_list(part))) {
        error = apply_some(part, list);
    } else if (part->in_segment || take_place(part)) {
        scan_some(part);
    } else {
        wake_at(wake_ns, now_ns + RECOVER_WAIT_NS);
        return false;
    }
    if (error != ROWAN_EAGAIN && (is_last || error)) {
        *of = NULL;
        part->error = error;
        atomic_store_explicit(&part->over, true, memory_order_release);
    }
    return true;
}

/* Those that all parts are through with. */
void recover_progress(const struct recover *recover, uint64_t *scanned, uint64_t *segments)
{
    *scanned = UINT64_MAX;
    *segments = recover->place_count;
    for (uint32_t i = 0; i < recover->part_count; i++) {
        const uint64_t applied =
            atomic_load_explicit(&recover->parts[i].applied, memory_order_relaxed);
        *scanned = applied < *scanned ? applied : *scanned;
    }
}

int recover_scan_open(struct recover *recover, uint32_t parts)
{
    ASSERT(parts > 0);
    recover->parts = calloc(parts, sizeof *recover->parts);
    recover->list_count = parts == 1 ? 1 : parts * LISTS_PER_PART;
    recover->lists = calloc(recover->list_count, sizeof *recover->lists);
    if (!recover->parts || !recover->lists)
        return ROWAN_ENOMEM;
    for (uint32_t i = 0; i < recover->list_count; i++) {
        recover->lists[i].blocks =
            malloc(STORE_SEGMENT_BYTES / ENTRY_ALIGN * sizeof(struct recover_found));
        if (!recover->lists[i].blocks)
            return ROWAN_ENOMEM;
    }
    log_init(&recover->log, recover->common->store, OWNER_DIGEST, 0);
    for (uint32_t i = 0; i < parts; i++) {
        struct recover_part *part = &recover->parts[i];
        *part = (struct recover_part){.recover = recover, .number = i, .in_copies = true};
        recover->part_count++;
        if (join_init(&part->join, &recover->common->format))
            return ROWAN_ENOMEM;
    }
    return 0;
}

void recover_scan_close(struct recover *recover)
{
    for (uint32_t i = 0; i < recover->part_count; i++) {
        join_fini(&recover->parts[i].join);
        free(recover->parts[i].restored);
    }
    for (uint32_t i = 0; recover->lists && i < recover->list_count; i++)
        free(recover->lists[i].blocks);
    free(recover->lists);
    free(recover->parts);
}
