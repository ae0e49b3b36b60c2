/* The backup log: segments are allocated, fenced, posted to the landing zone, sealed by it, and
 * scanned by all digest roles.
 *
 * A segment's way, crash-safe:
 *  1. store_allocate stores its meta word: USING, owner backup log.
 *  2. A fence makes that durable; only then is the segment posted, so nothing lands in a segment
 *     that a restart would take for free.
 *  3. Sealed: the meta word becomes USED. If a crash loses that, the start's scan does it (recover.c).
 *
 * Full (design, H13). Peers stop sending when they are told that this server is short of space. Until the
 * message has reached them, each sender may have WORKER_MAX_IN_FLIGHT_BYTES on the way, twice: once in
 * flight and once admitted since. So it is said while there is still free space for that. Where
 * blocks land in slots it is more than their bytes. Puts are put off as long as cleaning goes on to free segments
 * (FULL_AFTER_NS), so that a server that only writes faster than it cleans is not called full; then they are refused.
 * Deletes, which make space, go on until little more is left than the logs of this server need, without which nothing is
 * committed and nothing cleaned: that the zone does not take either.
 *
 * A segment that all digest roles have left and in which something landed is only forgotten; one in which nothing
 * did, because the sender that claimed its space was gone, is free again.
 *  L1 A segment is neither forgotten nor used again before it is quiet: until then the fabric may
 *     still name it, and somebody may store into it (F7; design, section 3).
 *  L2 Only a segment of zeros is used again: then there is nothing to zero (store.c, "Reuse"). Bytes that
 *     no digest role could read may be damaged entries that were acknowledged.
 *  L3 When it is forgotten, what is torn in it is void (torn.h), and what the fabric said is void is zero
 *     (control_shut_out.c): it may become COMMITTED from then on, which is after the next fence of this role.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/control/control_state.h"
#include "server/store/live.h"
#include "server/store/torn.h"

enum {
    DATA_SEGMENTS = 2, /* at least, beside all that is open and kept free */
    DELETE_SEGMENTS =
        2, /* for deletes that are on the way when they are refused, too: they are small */
    LEAST_POSTED = 2, /* of the zone, as long as there are any */
    VOID_STEP_BYTES = 256 << 10,
};

/* How long puts wait for cleaning that frees no segment, until the server says "full". */
#define FULL_AFTER_NS (2 * NS_PER_S)

/* How soon to try again to allocate what the zone lacks. */
#define PREPARE_RETRY_NS (100 * NS_PER_MS)

/* --- geometry --- */

/* Bytes of landing zone that one sender's WORKER_MAX_IN_FLIGHT_BYTES use at most: each block may leave
 * all but 64 B of its last stride unused, and max_batch_blocks of one connection can be in flight. */
static uint64_t most_landing(const struct fabric_caps *caps)
{
    uint64_t blocks = WORKER_MAX_IN_FLIGHT_BYTES / FABRIC_STRIDE;
    if (blocks > caps->max_batch_blocks)
        blocks = caps->max_batch_blocks;
    return WORKER_MAX_IN_FLIGHT_BYTES + blocks * (caps->landing_stride - FABRIC_STRIDE);
}

/* Of those free at the end: for a segment of each log, so that a start on a full PM serves. */
static uint64_t kept_for_logs(const struct control *control)
{
    return control->options->workers + control->options->digests + 1 + STORE_CLEAN_SEGMENTS;
}

/* Segments that must be free for what is on the way. */
static uint64_t reserve(const struct control *control)
{
    uint64_t senders = 0;
    for (uint32_t i = 0; i < control->config->member_count; i++) {
        if (control->config->members[i].server != control->common->server)
            senders += control->config->members[i].workers;
    }
    const uint64_t bytes = senders * 2 * most_landing(fabric_caps(control->common->fabric));
    return (bytes + STORE_SEGMENT_BYTES - 1) / STORE_SEGMENT_BYTES + kept_for_logs(control);
}

/* How many segments are posted at a time, where the PM has `segments`: on a small PM fewer than asked for. */
static uint32_t depth_for(const struct control *control, uint64_t segments)
{
    uint64_t quarter = segments / 4 < 2 ? 2 : segments / 4;
    uint32_t asked = control->options->landing_segments;
    return asked > quarter ? (uint32_t)quarter : asked;
}

/* The fewest segments with which a server of this cluster takes puts, and takes them again once it was full and all was
 * deleted: what is posted, one of each log, what must be free, and what has data. */
static uint64_t fewest_segments(const struct control *control)
{
    const uint64_t open = control->options->workers + control->options->digests + 1;
    uint64_t segments = 1;
    while (segments < depth_for(control, segments) + open + reserve(control) + DATA_SEGMENTS)
        segments++;
    return segments;
}

/* Again with each configuration: what is kept free for senders follows how many there are. */
static uint64_t set_reserve(struct control *control)
{
    struct server_common *common = control->common;
    const uint64_t is = reserve(control);
    if (atomic_load_explicit(&common->reserve, memory_order_relaxed) != is) {
        atomic_store_explicit(&common->reserve, is, memory_order_release);
        inbox_wake(&clean_role(control->clean)->inbox);
    }
    return is;
}

/* What has some is served, however small it is. */
static bool has_data(const struct store *store)
{
    uint64_t items = 0;
    for (uint64_t i = 0; i < store_segments(store); i++)
        items += live_items(store_live(store), i);
    return items > 0;
}

/* --- posting --- */

int control_zone_open(struct control *control)
{
    struct server_common *common = control->common;
    uint64_t segments = store_segments(common->store), fewest = fewest_segments(control);
    if (segments < fewest && !has_data(common->store)) {
        char why[160];
        uint64_t bytes =
            store_segment_offset(common->store, 0) + fewest * (uint64_t)STORE_SEGMENT_BYTES;
        snprintf(why, sizeof why,
                 "the PM is too small for this cluster: it must have at least %lu MiB (--pm-bytes "
                 "%luM)",
                 bytes >> 20, bytes >> 20);
        server_fail(common, ROWAN_EINVALID, why);
        return ROWAN_EINVALID;
    }
    control->depth = depth_for(control, segments);
    /* The clean role begins. */
    atomic_store_explicit(&common->kept, kept_for_logs(control), memory_order_relaxed);
    set_reserve(control);
    return fabric_zone_open(control->endpoint, common->pm, control->depth, &control->zone);
}

/* Does the zone lack segments, and may it take one? */
static bool is_short(const struct control *control)
{
    const uint32_t has = control->posted + control->prepared_count;
    return has < control->depth &&
           (has < LEAST_POSTED ||
            store_segments_free(control->common->store) > kept_for_logs(control) + LEAST_POSTED);
}

/* Allocates what the zone lacks and starts the fence that lets it be posted. */
static bool prepare(struct control *control)
{
    struct server_common *common = control->common;
    while (is_short(control)) {
        struct blog_segment *segment = calloc(1, sizeof *segment);
        if (!segment)
            break; /* control_zone_poll comes back for it */
        if (store_allocate(common->store, OWNER_BACKUP_LOG, 0, &segment->segment)) {
            free(segment);
            break;
        }
        segment->offset = store_segment_offset(common->store, segment->segment);
        control->prepared[control->prepared_count++] = segment;
    }
    if (control->prepared_count)
        control->prepared_ticket = pm_fence_start(common->pm);
    return control->prepared_count > 0;
}

static void append(struct control *control, struct blog_segment *segment)
{
    segment->number = ++control->posted_ever;
    if (control->newest) {
        atomic_store_explicit(&control->newest->next, segment, memory_order_release);
        control_wake_digests(control);
    } else {
        control->oldest = segment;
        for (uint32_t i = 0; i < control->options->digests; i++) {
            const struct command command = {.kind = COMMAND_SEGMENT, .segment = segment};
            if (command_push(&digest_role(control->digests[i])->inbox, &command))
                server_fail(control->common, ROWAN_ENOMEM, "no memory for the backup log");
        }
    }
    control->newest = segment;
}

static bool post(struct control *control)
{
    if (!server_fenced(control->common, control->prepared_ticket))
        return false;
    for (uint32_t i = 0; i < control->prepared_count; i++) {
        struct blog_segment *segment = control->prepared[i];
        int error = fabric_zone_post(control->zone, segment->offset, (uint64_t)(uintptr_t)segment);
        ASSERT(!error); /* never more than `depth` */
        append(control, segment);
        control->posted++;
    }
    control->prepared_count = 0;
    return true;
}

void control_zone_sealed(struct control *control, struct blog_segment *segment, bool quiet)
{
    segment->quiet = quiet;
    /* Somebody may go on storing there once the digest roles have passed. */
    if (!quiet)
        atomic_store_explicit(&segment->torn, true, memory_order_relaxed);
    store_transition(control->common->store, segment->segment, SEGMENT_USED);
    atomic_store_explicit(&segment->sealed, true, memory_order_release);
    control->posted--;
    control->kept++;
    control_wake_digests(control);
}

void control_zone_note_begun(struct control *control)
{
    const uint64_t begun = control->zone ? fabric_zone_begun(control->zone) : 0;
    atomic_store_explicit(&control->common->begun, begun, memory_order_release);
}

void control_zone_close_segment(struct control *control, uint64_t number)
{
    if (number == control->posted_ever - control->posted + 1)
        fabric_close_segment(control->zone);
}

void control_zone_uncover(struct control *control)
{
    for (const struct blog_segment *it = control->oldest; it;
         it = atomic_load_explicit(&it->next, memory_order_relaxed))
        control->commit_covers[it->segment] = COVER_NOT;
    for (const struct blog_segment *it = control->leaving; it; it = it->next_leaving)
        control->commit_covers[it->segment] = COVER_NOT;
}

/* --- leaving --- */

static void leave_oldest(struct control *control)
{
    struct blog_segment *old = control->oldest;
    control->oldest = atomic_load_explicit(&old->next, memory_order_relaxed);
    old->next_leaving = control->leaving;
    control->leaving = old;
}

/* The newest is never left: the digest roles wait in it for its successor. */
static bool leave_digested(struct control *control)
{
    bool any = false;
    while (control->oldest != control->newest &&
           atomic_load_explicit(&control->oldest->digested, memory_order_acquire) ==
               control->options->digests) {
        atomic_store_explicit(&control->common->left, control->oldest->number,
                              memory_order_release);
        leave_oldest(control);
        any = true;
    }
    for (uint32_t i = 0; any && i < control->options->workers; i++) /* Z4 */
        inbox_wake(&worker_role(control->workers[i])->inbox);
    return any;
}

/* L2 */
static void give_back(struct store *store, uint64_t segment)
{
    if (!store_segment_is_zero(store, segment, 0, STORE_SEGMENT_BYTES))
        return;
    store_transition(store, segment, SEGMENT_DIRTY);
    store_transition(store, segment, SEGMENT_FREE);
}

/* L3. A bounded step; true at the end. */
static bool void_torn(const struct control *control, struct blog_segment *segment)
{
    const struct server_common *common = control->common;
    struct entry_scan scan;
    if (!atomic_load_explicit(&segment->torn, memory_order_relaxed))
        return true;
    entry_scan_init(&scan, &common->format, pm_at(common->pm, segment->offset), STORE_SEGMENT_BYTES,
                    segment->voided);
    const bool over = torn_void_step(common->pm, &scan, VOID_STEP_BYTES, &(uint64_t){0});
    segment->voided = scan.position;
    return over;
}

/* Forgets what is quiet, and frees the segments of it that are empty. */
static bool forget_quiet(struct control *control)
{
    bool any = false;
    struct blog_segment **link = &control->leaving;
    while (*link) {
        struct blog_segment *segment = *link;
        if (!segment->quiet || !control_zone_end_voids(control, segment)) { /* L1, L3 */
            link = &segment->next_leaving;
            continue;
        }
        if (!void_torn(control, segment))
            return true;
        give_back(control->common->store, segment->segment);
        *link = segment->next_leaving;
        control->kept--;
        free(segment);
        any = true;
    }
    return any;
}

/* --- space --- */

static void send_space(struct control *control, enum server_space space, bool full)
{
    for (struct control_link *link = control->links.first; link; link = link->place.next) {
        if (!link->peer ||
            (link->space_sent && link->sent_space == space && link->sent_full == full))
            continue;
        Rowan__SpaceIs is = ROWAN__SPACE_IS__INIT;
        is.full = space != SPACE_ENOUGH;
        is.none = space == SPACE_NONE;
        is.cleaning = is.full && !full;
        /* If it cannot be sent: at the next poll. */
        link->space_sent = control_send(link, 0, &CONTROL_MESSAGE(SPACE_IS, space_is, &is)) == 0;
        link->sent_space = space;
        link->sent_full = full;
    }
}

static enum server_space space_of(struct control *control, uint64_t free)
{
    const uint64_t needed = set_reserve(control);
    if (free < kept_for_logs(control) + DELETE_SEGMENTS)
        return SPACE_NONE;
    return free < needed ? SPACE_SHORT : SPACE_ENOUGH;
}

/* A server is full that was short of space for FULL_AFTER_NS without cleaning a segment, and without tombstones that go,
 * until there is enough. Before that puts wait: so they come no faster than cleaning makes space. */
static bool is_full(struct control *control, enum server_space was, bool full, uint64_t *wake_ns)
{
    const uint64_t cleaned = clean_segments(control->clean);
    if (was == SPACE_ENOUGH || cleaned != control->cleaned || clean_hopes(control->clean))
        control->full_ns = control->now_ns + FULL_AFTER_NS;
    control->cleaned = cleaned;
    if (full || control->now_ns >= control->full_ns)
        return true;
    wake_at(wake_ns, control->full_ns);
    return false;
}

void control_zone_close_open(struct control *control)
{
    if (control->posted < 2 || control->now_ns < control->close_ns)
        return;
    control->close_ns = control->now_ns + NS_PER_S;
    fabric_close_segment(control->zone);
}

/* What a digest role keeps from being committed it may keep until it leaves the open segment, which is full late where
 * little lands, and never where peers are told that there is no space. */
static void close_for_space(struct control *control)
{
    bool kept = false;
    for (uint32_t i = 0; i < control->options->digests; i++)
        kept |= digest_stores_from(control->digests[i]) != DIGEST_STORES_NOTHING;
    if (kept)
        control_zone_close_open(control);
}

static uint64_t tombstones(const struct store *store)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < store_segments(store); i++)
        count += live_tombstones(store_live(store), i);
    return count;
}

/* What the segments are, and what those wait for that are closed and not committed: to be left by the digest roles and the
 * fabric (landed), for a landing segment to be left or a message to end (kept), for a settled version or a send (pinned), for
 * the end of a period (covered): as it was last looked at. */
static void tell_full(const struct control *control, bool full, uint64_t free)
{
    const struct store *store = control->common->store;
    uint64_t used[] = {[COVER_NOT] = 0, [COVER_COMMITS] = 0, [COVER_STAYS] = 0};
    for (uint64_t i = 0; i < store_segments(store); i++)
        used[control->commit_covers[i]] += store_meta(store, i).state == SEGMENT_USED;
    log_event(full ? LOG_WARN : LOG_INFO, full ? "pm_full" : "pm_has_space",
              "segments=%lu free=%lu open=%lu landed=%u kept=%lu pinned=%lu covered=%lu "
              "committed=%lu dirty=%lu tombstones=%lu",
              store_segments(store), free, store_segments_with(store, SEGMENT_USING), control->kept,
              used[COVER_NOT] > control->kept ? used[COVER_NOT] - control->kept : 0,
              used[COVER_STAYS], used[COVER_COMMITS], store_segments_with(store, SEGMENT_COMMITTED),
              store_segments_with(store, SEGMENT_DIRTY), tombstones(store));
}

static void check_space(struct control *control, uint64_t *wake_ns)
{
    struct server_common *common = control->common;
    const uint64_t free = store_segments_free(common->store);
    const enum server_space was = atomic_load_explicit(&common->space, memory_order_relaxed);
    const enum server_space space = space_of(control, free);
    const bool was_full = atomic_load_explicit(&common->full, memory_order_relaxed);
    const bool full = space != SPACE_ENOUGH && is_full(control, was, was_full, wake_ns);
    if (free != control->free)
        inbox_wake(&clean_role(control->clean)->inbox);
    control->free = free;
    if (full != was_full)
        tell_full(control, full, free);
    atomic_store_explicit(&common->space, space, memory_order_relaxed);
    atomic_store_explicit(&common->full, full, memory_order_relaxed);
    send_space(control, space, full);
    if (space != SPACE_ENOUGH)
        close_for_space(control);
}

/* --- the medium --- */

/* The kernel reports a failed sync once to each process that syncs the file. A peer that got the report
 * closes its connection without saying why; our own next sync fails as well. */
void control_zone_check_medium(struct control *control)
{
    control->medium_ticket = pm_fence_start(control->common->pm);
    control->medium_checking = true;
}

bool control_zone_poll(struct control *control, uint64_t *wake_ns)
{
    bool any = leave_digested(control);
    any |= forget_quiet(control);
    if (control->prepared_count == 0 && !FAULT(NO_SEGMENT))
        any |= prepare(control);
    if (control->prepared_count > 0)
        any |= post(control);
    /* Nobody wakes this role when there is memory or a segment again. */
    if (control->posted + control->prepared_count < control->depth)
        wake_at(wake_ns, control->now_ns + PREPARE_RETRY_NS);
    if (control->medium_checking)
        control->medium_checking = !server_fenced(control->common, control->medium_ticket);
    check_space(control, wake_ns);
    return any;
}

void control_zone_close(struct control *control)
{
    while (control->oldest)
        leave_oldest(control);
    while (control->leaving) {
        struct blog_segment *old = control->leaving;
        control->leaving = old->next_leaving;
        control_zone_free_voids(old);
        free(old);
    }
    for (uint32_t i = 0; i < control->prepared_count; i++)
        free(control->prepared[i]);
}
