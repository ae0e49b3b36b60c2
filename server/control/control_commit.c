/* Segments become COMMITTED (design, section 4): closed, and every version that lies in them settled. Mostly nothing else is
 * known of what is in a segment, so this is a grace period, as in epoch-based reclamation:
 *
 *  1. IDLE -> WAIT: note which segments are closed, and then, of each shard, the highest version that may lie in a
 *     closed one (`closed`).
 *  2. WAIT -> FENCE: once each shard's settled version has reached what was noted, all that is stored is brought to PM.
 *     WAIT -> PINS -> FENCE: those of some shards do not rise, as nobody serves them (G7).
 *  3. FENCE -> ROWS: then what was noted goes into the replica table, which is brought to PM, too.
 *  4. ROWS -> IDLE: the noted segments become COMMITTED.
 *
 * A segment is closed when it is USED and, if it is of the backup log, all digest roles have left it and it is quiet.
 * Segments of earlier runs are closed, too: `closed` covers all earlier epochs from the start on.
 *
 *  G1 Segments are noted before versions: who closes a segment publishes `closed` first, so no version in a noted
 *     segment is above what is noted of its shard.
 *  G2 Of a COMMITTED segment every version is settled in the durable replica table: once the segment is gone, a start
 *     knows that what was in it is dead, not missing.
 *  G3 A segment is COMMITTED when all of it is durable, what became void and what a cleaner copied, too: what is not whole
 *     there is damage (torn.h).
 *  G4 What the replica table calls settled lies in noted segments: damage is looked for in COMMITTED ones only (verify.h).
 *     But what a digest role or the cleaner copied lies in later ones for a period, and where data were possibly
 *     incomplete, so does all at the end of reconciliation.
 *
 *  G5 What a digest role has copied is durable before the replica table calls it settled: a start takes the blocks that it
 *     was joined from for dead (R6). A row that is stored and not fenced may be there after a power loss. The rows
 *     written at the end of a reconciliation of possibly incomplete data (control_open.c) need not wait: until the run record
 *     follows them, a start believes no row of that run.
 *  G6 A segment of which a worker may have something on its way by pointer is not noted, nor COMMITTED: it stays as it is until
 *     that has landed. Nobody cleans what is not COMMITTED.
 *
 *  G7 A shard whose settled version stands still holds up no other: then what was noted is read, and a segment in which it
 *     has anything above that version is not noted any more (it is pinned), until that is settled. So long as the version
 *     stands, later periods do not wait for it: their segments are read at once, each of them once. What is above what was
 *     noted of its shard pins nothing: no digest role could read it (clean_copy.c, K6), so nobody would close for it what it
 *     waits for.
 *
 *  G8 Where the replica table calls settled what lies in a segment that is closed and stays as it is (G6, G7), the segment's word
 *     says so before (store.h): damage there is looked for as in a COMMITTED one. But not where a digest role may go on storing.
 *
 * A period waits for COMMIT_ASK_NS, and longer as long as settled versions rise. Of shards whose commit version is too low the
 * primaries are asked for it: what told it may have been lost. Where only the open landing segment is waited for (D10), it
 * is closed.
 */
#include <stdlib.h>

#include "common/base/error.h"
#include "server/control/control_state.h"

/* Nobody wakes this role when a settled version rises, or a batch has landed. */
#define COMMIT_CHECK_NS (100 * NS_PER_MS)
#define COMMIT_ASK_NS   NS_PER_S

enum { COMMIT_READ_BYTES = 64 << 10 }; /* PINS: in a poll */

int control_commit_open(struct control *control)
{
    const uint64_t segments = store_segments(control->common->store);
    control->commit_covers = calloc(segments, sizeof *control->commit_covers);
    control->commit_pins = calloc(segments, sizeof *control->commit_pins);
    return control->commit_covers && control->commit_pins ? 0 : ROWAN_ENOMEM;
}

void control_commit_close(struct control *control)
{
    free(control->commit_covers);
    free(control->commit_pins);
}

static uint64_t settled(const struct shard_state *shard)
{
    return shard ? atomic_load_explicit(&shard->settled, memory_order_acquire) : 0;
}

static uint64_t durable(const struct shard_state *shard)
{
    return atomic_load_explicit(&shard->dur_settled, memory_order_relaxed);
}

/* G6 */
static bool is_in_use(const struct control *control, uint64_t segment,
                      const struct segment_meta *meta)
{
    if (meta->owner == OWNER_DIGEST && meta->owner_number < control->options->digests) {
        const struct digest *digest = control->digests[meta->owner_number];
        return meta->allocation >= digest_stores_from(digest) || digest_keeps(digest, segment);
    }
    return meta->owner == OWNER_WORKER && meta->owner_number < control->options->workers &&
           meta->allocation >= worker_sends_from(control->workers[meta->owner_number]);
}

/* What landed before the shard was promoted its worker closes, once it may. */
static uint64_t highest_closed(const struct shard_state *shard)
{
    if (!shard)
        return 0;
    const uint64_t closed = atomic_load_explicit(&shard->closed, memory_order_acquire);
    const uint64_t landed = atomic_load_explicit(&shard->landed, memory_order_relaxed);
    return closed > landed ? closed : landed;
}

/* --- G7 --- */

/* Or was not known to be here. */
static bool is_settled(const struct control *control, uint16_t id, uint64_t version)
{
    const struct shard *row = cluster_shard(control->config, id);
    const uint64_t at = row ? (uint64_t)(row - control->config->shards) : 0;
    return !row || !control->shards[at] || version <= settled(control->shards[at]) ||
           version > control->adoption.shards[at].commit_needs;
}

/* By what was found there. */
static bool is_pinned(const struct control *control, uint64_t segment)
{
    const struct commit_pin *pin = &control->commit_pins[segment];
    return !is_settled(control, pin->shard, pin->version);
}

/* A bounded part of what was noted. True: all of it was read. */
static bool read_some(struct control *control)
{
    struct store *store = control->common->store;
    struct entry_scan *scan = &control->commit_scan;
    uint64_t *segment = &control->commit_segment;
    for (uint32_t bytes = 0; bytes < COMMIT_READ_BYTES;) {
        while (*segment < store_segments(store) &&
               control->commit_covers[*segment] != COVER_COMMITS)
            ++*segment, scan->position = 0;
        if (*segment == store_segments(store))
            return true;
        const uint32_t from = scan->position;
        struct entry_header header;
        uint32_t at, block;
        if (from == 0)
            entry_scan_init(scan, &control->common->format,
                            pm_at(control->common->pm, store_segment_offset(store, *segment)),
                            STORE_SEGMENT_BYTES, 0);
        const enum entry_scan_result result = entry_scan_next(scan, false, &header, &at, &block);
        if (result == ENTRY_SCAN_BLOCK && header.type != ENTRY_COMMIT_VERSIONS &&
            header.type != ENTRY_PAD && !is_settled(control, header.shard, header.version)) {
            control->commit_pins[*segment] = (struct commit_pin){header.shard, header.version};
            control->commit_covers[*segment] = COVER_STAYS;
        }
        bytes += scan->position - from;
        if (result == ENTRY_SCAN_END)
            ++*segment, scan->position = 0;
    }
    return false;
}

/* The shard at that position is waited for no more. */
static bool stands_still(const struct control *control, uint32_t position)
{
    return control->adoption.shards[position].commit_stands == settled(control->shards[position]);
}

static void stop_waiting(struct control *control)
{
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        struct adopt_shard *at = &control->adoption.shards[i];
        const uint64_t version = settled(control->shards[i]);
        if (version >= at->commit_needs)
            continue;
        if (version == at->commit_was)
            at->commit_stands = version;
        at->commit_was = version;
    }
}

/* Of some shard all is here and told, and some of it in the landing segment that is open: a write that was sent once more,
 * behind what came after it. Until an epoch begins nothing is settled, wherever it lies. */
static void close_landing(struct control *control)
{
    bool waits = false;
    for (uint32_t i = 0; i < control->config->shard_count && !waits; i++) {
        const struct shard_state *shard = control->shards[i];
        const uint64_t needs = control->adoption.shards[i].commit_needs;
        if (shard && version_epoch(atomic_load_explicit(&shard->commit, memory_order_relaxed)) <
                         control->config->shards[i].epoch)
            continue;
        waits = shard && settled(shard) < needs &&
                !atomic_load_explicit(&shard->missing, memory_order_relaxed) &&
                atomic_load_explicit(&shard->commit, memory_order_relaxed) >= needs;
    }
    if (waits)
        control_zone_close_open(control);
}

static enum commit_cover cover_of(const struct control *control, uint64_t segment,
                                  const struct segment_meta *meta)
{
    if (meta->state != SEGMENT_USED || meta->owner == OWNER_CHECKPOINT)
        return COVER_NOT;
    if (is_in_use(control, segment, meta))
        return meta->owner == OWNER_WORKER ? COVER_STAYS : COVER_NOT;
    return is_pinned(control, segment) ? COVER_STAYS : COVER_COMMITS;
}

/* G8 */
static void mark_closed(struct control *control)
{
    for (uint64_t i = 0; i < store_segments(control->common->store); i++) {
        if (control->commit_covers[i] == COVER_STAYS)
            store_mark_closed(control->common->store, i);
    }
}

/* G1. False: no segment is closed, or there are only such that are sent; and no rows are to be written without any. */
static bool begin(struct control *control, uint64_t *wake_ns)
{
    const struct store *store = control->common->store;
    uint64_t noted = 0;
    const bool owed = atomic_load_explicit(&control->common->rows_owed, memory_order_acquire);
    if (!owed && store_segments_with(store, SEGMENT_USED) <= control->kept)
        return false;
    if (control->now_ns < control->commit_look_ns) {
        wake_at(wake_ns, control->commit_look_ns);
        return false;
    }
    for (uint64_t i = 0; i < store_segments(store); i++) {
        const struct segment_meta meta = store_meta(store, i);
        control->commit_covers[i] = cover_of(control, i, &meta);
        noted += control->commit_covers[i] == COVER_COMMITS;
    }
    if (!owed && noted <= control->kept) {
        close_landing(control);
        control->commit_look_ns = control->now_ns + COMMIT_CHECK_NS;
        wake_at(wake_ns, control->commit_look_ns);
        return false;
    }
    control_zone_uncover(control);
    atomic_store_explicit(&control->common->rows_owed, false, memory_order_relaxed);
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        control->adoption.shards[i].commit_needs = highest_closed(control->shards[i]);
        control->adoption.shards[i].commit_was = settled(control->shards[i]);
    }
    control->commit_position = 0;
    control->commit_segment = 0;
    control->commit_scan.position = 0;
    control->commit_reads = false;
    return true;
}

static bool is_over(struct control *control)
{
    uint32_t position = control->commit_position;
    for (; position < control->config->shard_count; position++) {
        const bool waits =
            settled(control->shards[position]) < control->adoption.shards[position].commit_needs;
        if (waits && !stands_still(control, position))
            break;
        control->commit_reads |= waits;
    }
    control->commit_position = position;
    return position == control->config->shard_count;
}

void control_commit_rows(struct control *control, bool covered)
{
    struct store *store = control->common->store;
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        const struct shard_state *shard = control->shards[i];
        if (!shard)
            continue;
        const uint64_t is = settled(shard), needs = control->adoption.shards[i].commit_needs,
                       upto = covered && needs < is ? needs : is;
        struct replica_row row = store_replica(store, shard->id);
        if (row.settled >= upto)
            continue;
        row.settled = upto;
        store_replica_set(store, shard->id, &row);
    }
}

bool control_commit_sync(struct control *control)
{
    struct store *store = control->common->store;
    if (!server_done(control->common, store_replica_sync(store)))
        return false;
    bool risen = false;
    for (uint32_t i = 0; i < control->config->shard_count; i++) {
        struct shard_state *shard = control->shards[i];
        const uint64_t row = shard ? store_replica(store, shard->id).settled : 0;
        if (!shard || row == durable(shard))
            continue;
        atomic_store_explicit(&shard->dur_settled, row, memory_order_release);
        risen = true;
    }
    if (risen)
        control_settled_changed(control);
    return true;
}

/* G6: a write may have been sent once more, and then have completed without that peer, since the period began. */
static void commit_covered(struct control *control)
{
    struct store *store = control->common->store;
    for (uint64_t i = 0; i < store_segments(store); i++) {
        const struct segment_meta meta = store_meta(store, i);
        if (control->commit_covers[i] == COVER_COMMITS && !is_in_use(control, i, &meta))
            store_transition(store, i, SEGMENT_COMMITTED);
    }
}

bool control_commit_poll(struct control *control, uint64_t *wake_ns)
{
    if (control->commit_step == COMMIT_IDLE) {
        if (!begin(control, wake_ns))
            return false;
        control->commit_step = COMMIT_WAIT;
        control->commit_ask_ns = control->now_ns + COMMIT_ASK_NS;
    }
    if (control->commit_step == COMMIT_WAIT) {
        if (!is_over(control)) {
            if (control->now_ns >= control->commit_ask_ns) {
                control->commit_ask_ns = control->now_ns + COMMIT_ASK_NS;
                control_settled_changed(control);
                close_landing(control);
                stop_waiting(control);
            }
            wake_at(wake_ns, control->now_ns + COMMIT_CHECK_NS);
            return false;
        }
        control->commit_step = COMMIT_PINS;
    }
    if (control->commit_step == COMMIT_PINS) {
        if (control->commit_reads && !read_some(control))
            return true;
        control->commit_ticket = pm_fence_start(control->common->pm);
        control->commit_step = COMMIT_FENCE;
    }
    if (control->commit_step == COMMIT_FENCE) {
        if (!server_fenced(control->common, control->commit_ticket)) /* G3 */
            return false;
        mark_closed(control);
        control_commit_rows(control, true); /* G2, G4, G5 */
        control->commit_step = COMMIT_ROWS;
    }
    if (!control_commit_sync(control))
        return false;
    commit_covered(control);
    atomic_fetch_add_explicit(&control->common->periods, 1, memory_order_release);
    inbox_wake(&clean_role(control->clean)->inbox);
    control->commit_step = COMMIT_IDLE;
    return true;
}
