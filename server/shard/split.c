/* split.c - see split.h.
 *
 * Invariants:
 *  split-1 Copying begins when the epoch has begun in which nobody writes the parent: what was written before has been reconciled, and
 *      its index shows all of it.
 *  split-2 A copy is an entry of the child with the version of the original, so it is older than all that was written to the child. What
 *      the child has already, or something newer that is committed, is not stored again. One that is not may still vanish.
 *  split-3 The copy of an item lies in a segment that was allocated after the child came, in one of the owner's log: a start takes
 *      it, although its epoch is before the child's first (shard_counts). Nobody asks for its operation again by it; those that
 *      may be asked for get record stubs, in both children, as their keys are not known.
 *  split-4 A child's index leads to a copy at once, before it is durable: the original is.
 *  split-5 What is damaged is never left behind: the parent stays, and its keys are answered as damaged.
 *  split-6 Over: all copies and stubs lie in closed segments, and are durable.
 */
#include "server/shard/split.h"

#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/shard/apply.h"

enum {
    SPLIT_BUCKETS = 4,       /* of a step at most, some seven items in each */
    SPLIT_BYTES = 256 << 10, /* read in a step: no further bucket is begun */
    SPLIT_ROWS = 64,
};

#define SPLIT_RETRY_NS (100 * NS_PER_MS)

enum split_phase { SPLIT_ITEMS, SPLIT_SUFFIX, SPLIT_RECORDS, SPLIT_CLOSE, SPLIT_FENCE, SPLIT_OVER };

struct split {
    enum split_phase phase;
    uint64_t cursor; /* ITEMS; SUFFIX: a version */
    uint32_t child;  /* RECORDS: whose are listed, at a primary */
    struct records_cursor records;
    uint64_t copied;
    int waits; /* for space, memory, or because of damage: the error; 0: it goes on */
    uint64_t retry_ns, tell_ns;
    struct pm_ticket ticket;
    uint8_t staging[ENTRY_MAX_BLOCK_LIMIT];
};

/* --- ITEMS --- */

struct visit {
    const struct split_owner *owner;
    uint64_t bytes; /* of the values that were read */
    int error;
};

static struct shard_state *child_of(const struct split_owner *owner, const uint8_t *key,
                                    uint32_t key_bytes)
{
    const uint16_t slot = slot_of_key(key, key_bytes);
    const struct work *low = &owner->children[0]->work;
    return owner->children[slot < low->first_slot || slot >= low->first_slot + low->slot_count];
}

/* split-4. Of a backup whose data may be incomplete no version is settled, however old: the child's suffix names the copy (D7). */
static int apply(struct shard_state *child, const struct apply_entry *entry)
{
    const bool named = !child->primary && entry->version > child->suffix.above;
    int error = named ? suffix_reserve(&child->suffix) : 0;
    if (!error)
        error = apply_entry(child, entry);
    if (error < 0)
        return error;
    if (named)
        suffix_append(&child->suffix, apply_item(entry));
    return 0;
}

/* split-2, split-3 */
static int copy(const struct split_owner *owner, struct shard_state *child, uint64_t from,
                const struct entry_header *header, struct apply_entry *entry)
{
    const struct server_common *common = owner->common;
    const uint32_t bytes = entry_bytes(&common->format, header->key_bytes, header->value_bytes);
    uint8_t *staging = owner->parent->splitting->staging;
    const int error =
        FAULT(NO_SEGMENT) ? ROWAN_EFULL : log_reserve(owner->log, bytes, &entry->offset);
    if (error)
        return error;
    for (uint32_t done = 0; done < bytes;) {
        const uint32_t block =
            entry_give(&common->format, pm_at(common->pm, from + done), child->id, staging);
        pm_store(common->pm, entry->offset + done, staging, block);
        done += block;
    }
    owner->parent->splitting->copied++;
    entry->client_id = entry->operation = 0;
    return apply(child, entry);
}

/* split-2, of what the child's index has. What is damaged is found, too, if its tag fits (index_find): its version means nothing then. */
static bool stands_in(const struct split_owner *owner, const struct shard_state *child,
                      const void *found, const struct apply_entry *entry)
{
    const uint64_t version = entry_version(found);
    return version >= entry->version &&
           (version_epoch(version) < child->first_epoch ||
            version <= atomic_load_explicit(&child->commit, memory_order_relaxed)) &&
           entry_key_equals(&owner->common->format, found, entry->key, entry->key_bytes);
}

static void visit_item(void *context, uint64_t offset)
{
    struct visit *visit = context;
    const struct split_owner *owner = visit->owner;
    const struct server_common *common = owner->common;
    struct entry_header header;
    if (visit->error)
        return;
    if (entry_verify(&common->format, pm_at(common->pm, offset),
                     STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES, &header) ||
        header.shard != owner->parent->id) {
        shard_found_damage(owner->parent, &owner->common->damages);
        visit->error = ROWAN_EDAMAGED; /* split-5 */
        return;
    }
    if (header.type != ENTRY_PUT)
        return;
    struct apply_entry entry =
        apply_describe(common->pm, &common->format, &header, offset, owner->key);
    visit->bytes += header.value_bytes;
    struct shard_state *child = child_of(owner, entry.key, entry.key_bytes);
    const uint64_t at = index_find(child->index, entry.hash, entry.key, entry.key_bytes);
    if (at == 0 || !stands_in(owner, child, pm_at(common->pm, at), &entry))
        visit->error = copy(owner, child, offset, &header, &entry);
}

/* split-3 */
static int begin_segment(const struct split_owner *owner)
{
    const struct log *log = owner->log;
    for (uint32_t i = 0; i < 2; i++) {
        if (log->open && log->allocation <= owner->children[i]->first_allocation)
            return log_reserve_segment(owner->log, ENTRY_ALIGN);
    }
    return 0;
}

static int copy_items(const struct split_owner *owner, struct split *split)
{
    struct visit visit = {.owner = owner};
    const int error = begin_segment(owner);
    bool more = true;
    if (error)
        return error;
    for (uint32_t i = 0; more && i < SPLIT_BUCKETS && visit.bytes < SPLIT_BYTES; i++) {
        uint64_t cursor = split->cursor;
        more = index_walk(owner->parent->index, &cursor, 1, visit_item, &visit);
        if (visit.error)
            return visit.error; /* this bucket once more */
        split->cursor = more ? cursor : 0;
    }
    split->phase += !more;
    return 0;
}

/* --- RECORDS --- */

/* split-3 */
static int store_stub(const struct split_owner *owner, const struct shard_state *child,
                      const struct records_row *row)
{
    uint8_t *staging = owner->parent->splitting->staging;
    uint64_t offset;
    const uint32_t bytes = entry_encode_record(&owner->common->format, child->id, row->version,
                                               row->client, row->operation, staging);
    const int error = log_reserve(owner->log, bytes, &offset);
    if (!error)
        pm_store(owner->common->pm, offset, staging, bytes);
    return error;
}

static int store_stubs(const struct split_owner *owner, struct shard_state *child,
                       const struct records_row *rows, uint32_t count)
{
    int error = 0;
    for (uint32_t i = 0; i < count && !error; i++) {
        /* A client's lowest number comes with commit versions; what was written to the child has its entry. */
        if (rows[i].version == 0 || version_epoch(rows[i].version) >= child->first_epoch)
            continue;
        error = store_stub(owner, child, &rows[i]);
        if (!error && !child->primary)
            completed_add(&child->completed, rows[i].client, rows[i].operation, rows[i].version);
    }
    return error;
}

/* Of a backup. What leaves the suffix meanwhile, which it does from its lower end, is listed in the next phase. */
static int copy_suffix(const struct split_owner *owner, struct split *split)
{
    struct suffix *suffix = &owner->parent->suffix;
    struct records_row rows[SPLIT_ROWS];
    uint32_t count = 0;
    suffix_sort(suffix);
    uint64_t upto = split->cursor;
    uint32_t at = suffix_find(suffix, upto);
    for (; at < suffix->count && count < SPLIT_ROWS; at++) {
        const struct suffix_item *item = &suffix->items[at];
        rows[count] = (struct records_row){item->client, item->operation, item->version};
        count += item->client != 0;
        upto = item->version;
    }
    int error = 0;
    for (uint32_t i = 0; i < 2 && !error; i++)
        error = store_stubs(owner, owner->children[i], rows, count);
    if (error)
        return error;
    split->cursor = upto;
    split->phase += at == suffix->count;
    return 0;
}

/* At a primary the children have inherited all. */
static int copy_records(const struct split_owner *owner, struct split *split)
{
    struct shard_state *parent = owner->parent, *child = owner->children[split->child];
    struct records_row rows[SPLIT_ROWS];
    struct records_cursor cursor = split->records;
    bool over = false;
    const int count =
        parent->primary ? records_list(&child->records, &cursor, rows, SPLIT_ROWS, &over)
                        : (int)completed_list(&parent->completed, &cursor, rows, SPLIT_ROWS, &over);
    const int error = count < 0 ? count : store_stubs(owner, child, rows, (uint32_t)count);
    if (error)
        return error;
    split->records = over ? (struct records_cursor){0} : cursor;
    split->child += over;
    split->phase += split->child == 2;
    return 0;
}

/* --- the steps --- */

/* split-1. The children's epochs have begun as well: a primary's have inherited. */
static bool may_begin(const struct split_owner *owner)
{
    const struct shard_state *parent = owner->parent;
    for (uint32_t i = 0; i < 2; i++) {
        const struct shard_state *child = owner->children[i];
        if (!child || (parent->primary && (!child->begun || child->next_epoch || child->deposed)))
            return false;
    }
    return parent->primary ? parent->begun && !parent->next_epoch && !parent->deposed
                           : atomic_load_explicit(&parent->commit, memory_order_relaxed) >=
                                     version_make(parent->epoch, 0) &&
                                 !atomic_load_explicit(&parent->missing, memory_order_relaxed);
}

static int step(const struct split_owner *owner, struct split *split)
{
    if (split->phase == SPLIT_ITEMS)
        return copy_items(owner, split);
    if (split->phase == SPLIT_SUFFIX)
        return copy_suffix(owner, split);
    if (split->phase == SPLIT_RECORDS)
        return copy_records(owner, split);
    int error = 0;
    if (owner->log->open) /* a worker's next one begins with its table of clients */
        error = log_reserve_segment(owner->log, ENTRY_ALIGN);
    if (error)
        return error;
    split->ticket = pm_fence_start(owner->common->pm);
    split->phase = SPLIT_FENCE;
    return 0;
}

static void note(const struct split_owner *owner, struct split *split, int error)
{
    if (split->waits != error)
        log_event(error ? LOG_WARN : LOG_INFO, error ? "split_waits" : "split_goes_on",
                  "shard=%u copied=%lu error=%s", owner->parent->id, split->copied,
                  error_name(error));
    split->waits = error;
}

static struct split *make(struct shard_state *parent)
{
    struct split *split = parent->splitting;
    if (split)
        return split;
    split = parent->splitting = malloc(sizeof *split);
    if (split) {
        *split = (struct split){.phase = SPLIT_ITEMS};
        log_event(LOG_INFO, "splitting", "shard=%u epoch=%u", parent->id, parent->epoch);
    }
    return split;
}

bool split_step(const struct split_owner *owner, uint64_t now_ns, uint64_t *wake_ns)
{
    struct split *split = owner->parent->splitting;
    if (split && split->phase == SPLIT_OVER)
        return false;
    split = may_begin(owner) ? make(owner->parent) : NULL;
    if (!split || now_ns < split->retry_ns) {
        wake_at(wake_ns, split ? split->retry_ns : now_ns + SPLIT_RETRY_NS);
        return false;
    }
    if (split->phase == SPLIT_FENCE) {
        if (!server_fenced(owner->common, split->ticket)) {
            wake_at(wake_ns, now_ns + NS_PER_MS);
            return false;
        }
        split->phase = SPLIT_OVER; /* split-6 */
        log_event(LOG_INFO, "split_copied", "shard=%u items=%lu", owner->parent->id, split->copied);
        return true;
    }
    const int error = step(owner, split);
    note(owner, split, error);
    if (error)
        split->retry_ns = now_ns + SPLIT_RETRY_NS;
    return true;
}

bool split_tells(struct shard_state *parent, uint64_t now_ns, uint64_t *wake_ns)
{
    struct split *split = parent->splitting;
    if (!split || split->phase != SPLIT_OVER)
        return false;
    const bool due = now_ns >= split->tell_ns;
    if (due)
        split->tell_ns = now_ns + SPLIT_TELL_NS;
    wake_at(wake_ns, split->tell_ns);
    return due;
}

uint64_t split_inherit(struct shard_state *child, const struct shard_state *parent)
{
    struct records_row rows[SPLIT_ROWS];
    struct records_cursor cursor = {0};
    uint64_t lost = 0;
    bool over = false;
    while (!over) {
        const int count = records_list(&parent->records, &cursor, rows, SPLIT_ROWS, &over);
        if (count < 0) /* a bucket has more: it does not happen */
            return records_count(&parent->records);
        for (int i = 0; i < count; i++) {
            if (rows[i].version)
                lost += records_add(&child->records, rows[i].client, rows[i].operation,
                                    rows[i].version) != 0;
            else
                records_lowest(&child->records, rows[i].client, rows[i].operation);
        }
    }
    return lost;
}

void split_forget(struct shard_state *parent)
{
    free(parent->splitting);
    parent->splitting = NULL;
}
