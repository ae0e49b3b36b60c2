/* The clean role: a few segments under way at a time, each in one of these steps.
 *
 *   SCAN --(live entries copied)--> COMMIT --(superseders committed)--> COPIED --(copies checked)--> GRACE
 *     |  <--(not committed in time)----/                                                              |
 *     \--(something cannot be read)--> parked                                   (nobody holds an offset)
 *                                                                                                     |
 *                                       (FREE) <--(fenced)-- ZEROED <--(zeroed)-- ZERO <--(fenced)-- DIRTY
 *
 * Invariants:
 *  V1  Only the role that made a segment a victim takes it on, and only COMMITTED segments become victims, and those of
 *      checkpoints, which are this role's in every state: nothing is written to them any more, and no send names them but
 *      what reclaim.h knows of.
 *  V2  A victim is retired only when no index item leads to it, and when each segment with copies out of it was closed,
 *      fenced, and found whole (design, C4). So a crash at any moment finds the victim or all copies.
 *  V3  A victim becomes DIRTY when nobody holds an offset into it, or looks for something that was in it (reclaim.h: two
 *      tickets, because segments are also found by their state). It is zeroed when that is durable and nobody reads it
 *      any more, and is FREE when the zeros are durable.
 *  V4  Space is made when it is needed: nothing is done as long as there is enough of it; then in small steps, victims by
 *      benefit and cost; at the reserve in large steps, and whatever gives space (H13). The last free segments are for
 *      this role alone (store.h); those that the other logs need it leaves alone while victims wait for others to let go.
 *      At the reserve a pass for tombstones goes on only where there is nothing to copy at the moment: it may be what makes
 *      space.
 *  V5  A victim in which something live cannot be copied, because it cannot be read, stays as it is, until less of it is live. It
 *      is told of which shards that is.
 */
#include "server/clean/clean.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/clean/clean_state.h"

enum {
    CLEAN_STEADY_BYTES = 64 << 10, /* scanned in a poll */
    CLEAN_URGENT_BYTES = 512 << 10,
    CLEAN_FREE_PERCENT = 18, /* of all segments, kept free above the reserve */
};

/* How long superseders may take to be committed. */
#define CLEAN_COMMIT_NS NS_PER_S

/* When a segment is tried again in which something live could not be read. */
#define CLEAN_AGAIN_NS NS_PER_S

/* How long to rest when cleaning has given no space; twice as long each time. */
#define CLEAN_REST_MIN_NS  NS_PER_S
#define CLEAN_REST_MAX_NS  (64 * NS_PER_S)
#define CLEAN_REST_LOOK_NS (NS_PER_S / 4)

/* Nobody wakes this role when a segment becomes worth cleaning, or when an offset is let go. */
#define CLEAN_LOOK_NS (10 * NS_PER_MS)

/* --- need --- */

enum clean_need clean_need(const struct clean *clean)
{
    const struct store *store = clean->common->store;
    const uint64_t reserve = atomic_load_explicit(&clean->common->reserve, memory_order_relaxed);
    const uint64_t free = store_segments_free(store);
    if (free <= reserve + 1)
        return CLEAN_URGENT;
    return free <= reserve + 1 + store_segments(store) * CLEAN_FREE_PERCENT / 100 ? CLEAN_STEADY
                                                                                  : CLEAN_REST;
}

bool clean_may_take(const struct clean *clean, uint64_t segments)
{
    return store_segments_free(clean->common->store) >
           atomic_load_explicit(&clean->common->reserve, memory_order_relaxed) + 1 + segments;
}

uint64_t clean_written(const struct clean *clean)
{
    uint64_t sum = 0;
    for (uint32_t id = 0; id < STORE_SHARD_IDS; id++) {
        const struct shard_state *shard = clean->shards[id];
        sum += shard ? atomic_load_explicit(&shard->version, memory_order_relaxed) : 0;
    }
    return sum;
}

/* Bytes to be scanned, or zeroed, in a poll. */
static uint32_t step_bytes(const struct clean *clean)
{
    return clean_need(clean) == CLEAN_URGENT ? CLEAN_URGENT_BYTES : CLEAN_STEADY_BYTES;
}

/* --- the log --- */

/* The open segment is about to be closed. */
static void log_closes(void *context)
{
    struct clean *clean = context;
    const struct server_common *common = clean->common;
    ASSERT(clean->closing_count < CLEAN_CLOSING);
    struct clean_closing *closing = &clean->closing[clean->closing_count++];
    *closing = (struct clean_closing){.number = clean->log.segments,
                                      .tail = clean->log.tail,
                                      .fence = pm_fence_start(common->pm)};
    entry_scan_init(&closing->scan, &common->format, pm_at(common->pm, clean->log.start),
                    STORE_SEGMENT_BYTES, 0);
}

/* V2: reads a bounded part of the oldest segment that was closed. */
static bool check_closed(struct clean *clean)
{
    struct clean_closing *closing = &clean->closing[0];
    if (clean->closing_count == 0)
        return false;
    if (!server_fenced(clean->common, closing->fence))
        return false;
    const uint32_t from = closing->scan.position;
    while (closing->scan.position < closing->tail &&
           closing->scan.position - from < CLEAN_URGENT_BYTES) {
        struct entry_header header;
        uint32_t offset, bytes;
        if (entry_scan_next(&closing->scan, true, &header, &offset, &bytes) != ENTRY_SCAN_BLOCK) {
            server_fail(
                clean->common, ROWAN_EDAMAGED,
                "what was just written to the PM reads back damaged: the medium is failing");
            return false;
        }
    }
    if (closing->scan.position < closing->tail)
        return true;
    clean->checked = closing->number;
    clean->closing_count--;
    memmove(&clean->closing[0], &clean->closing[1],
            clean->closing_count * sizeof clean->closing[0]);
    return true;
}

/* V4: may the log open one more segment? */
static bool may_open(const struct clean *clean)
{
    const struct server_common *common = clean->common;
    bool waits = false;
    for (uint32_t i = 0; i < clean->victim_count; i++)
        waits |= clean->victims[i].step > VICTIM_SCAN;
    return !waits || store_segments_free(common->store) >
                         atomic_load_explicit(&common->kept, memory_order_relaxed);
}

int clean_reserve(struct clean *clean, uint32_t bytes, uint64_t *offset)
{
    const bool waits = log_room(&clean->log) < bytes && !may_open(clean);
    const int error = waits ? ROWAN_EFULL : log_reserve(&clean->log, bytes, offset);
    clean->is_short = error != 0;
    return error;
}

/* Closes the open segment although it has space, when that frees more segments than it uses; many more, if there is
 * time. Near the reserve one is enough if there is nothing else to clean: what lies in the log is no victim as long as that is
 * open, and puts may wait for a single segment. */
static void close_early(struct clean *clean, enum clean_need need, bool is_scanning)
{
    const bool is_last = clean->is_short || (need == CLEAN_URGENT && !is_scanning);
    const uint32_t enough = is_last ? 1 : need == CLEAN_URGENT ? 2 : CLEAN_VICTIMS / 2;
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < clean->victim_count; i++)
        waiting += clean->victims[i].step == VICTIM_COPIED &&
                   clean->victims[i].copies == clean->log.segments;
    if (clean->log.open && waiting >= enough && clean->closing_count == 0)
        log_close(&clean->log);
}

/* --- victims --- */

/* The one in VICTIM_SCAN. */
static struct victim *scanned(struct clean *clean)
{
    for (uint32_t i = 0; i < clean->victim_count; i++) {
        if (clean->victims[i].step == VICTIM_SCAN)
            return &clean->victims[i];
    }
    return NULL;
}

/* Superseders that are not committed in time may never be: then what they supersede is copied, which takes another scan. So
 * does what is to stay by now (K9). */
static bool is_to_be_scanned_again(const struct clean *clean, const struct victim *victim)
{
    if (victim->step == VICTIM_COPIED)
        return victim->exposures !=
               atomic_fetch_add_explicit(&clean->common->exposures, 0, memory_order_acq_rel);
    const int done = victim->step == VICTIM_COMMIT ? clean_copy_is_committed(clean, victim) : 1;
    return done < 0 || (done == 0 && clean->now_ns >= victim->until_ns);
}

/* False: another one is scanned. */
static bool scan_again(struct clean *clean, struct victim *victim)
{
    if (scanned(clean))
        return false;
    victim->keep = true;
    victim->step = VICTIM_SCAN;
    clean_copy_begin(clean, victim);
    return true;
}

static bool wait_for_commit(struct clean *clean, struct victim *victim)
{
    if (clean_copy_is_committed(clean, victim) == 1) {
        victim->step = VICTIM_COPIED;
        return true;
    }
    return is_to_be_scanned_again(clean, victim) && scan_again(clean, victim);
}

/* No index item leads there any more. */
static bool retire(struct clean *clean, struct victim *victim)
{
    if (victim->copies > clean->checked)
        return false;
    if (is_to_be_scanned_again(clean, victim))
        return scan_again(clean, victim);
    victim->ticket = reclaim_retire(&clean->common->reclaim);
    victim->step = VICTIM_GRACE;
    return true;
}

/* V3 */
static bool make_dirty(struct clean *clean, struct victim *victim)
{
    struct store *store = clean->common->store;
    if (!reclaim_is_over(&clean->common->reclaim, victim->ticket))
        return false;
    ASSERT(live_items(store_live(store), victim->segment) == 0);
    store_transition(store, victim->segment, SEGMENT_DIRTY);
    live_clear(store_live(store), victim->segment);
    victim->ticket = reclaim_retire(&clean->common->reclaim);
    victim->fence = pm_fence_start(clean->common->pm);
    victim->step = VICTIM_DIRTY;
    return true;
}

static bool zero_some(struct clean *clean, struct victim *victim)
{
    const uint32_t left = STORE_SEGMENT_BYTES - victim->position;
    const uint32_t bytes = left < clean->zero_bytes ? left : clean->zero_bytes;
    if (bytes == 0)
        return false;
    clean->zero_bytes -= bytes;
    pm_zero(clean->common->pm,
            store_segment_offset(clean->common->store, victim->segment) + victim->position, bytes);
    victim->position += bytes;
    if (victim->position == STORE_SEGMENT_BYTES) {
        victim->fence = pm_fence_start(clean->common->pm);
        victim->step = VICTIM_ZEROED;
    }
    return true;
}

/* A step on; true if it did anything. *over: the victim is FREE. */
static bool advance(struct clean *clean, struct victim *victim, bool *over)
{
    switch (victim->step) {
    case VICTIM_SCAN:
        return false;
    case VICTIM_COMMIT:
        return wait_for_commit(clean, victim);
    case VICTIM_COPIED:
        return retire(clean, victim);
    case VICTIM_GRACE:
        return make_dirty(clean, victim);
    case VICTIM_DIRTY:
        if (!server_fenced(clean->common, victim->fence) ||
            !reclaim_is_over(&clean->common->reclaim, victim->ticket))
            return false;
        victim->step = VICTIM_ZERO;
        return true;
    case VICTIM_ZERO:
        return zero_some(clean, victim);
    case VICTIM_ZEROED:
        if (!server_fenced(clean->common, victim->fence))
            return false;
        store_transition(clean->common->store, victim->segment, SEGMENT_FREE);
        clean->parked[victim->segment] = (struct clean_parked){0};
        clean->checkpoint.covers[victim->segment] = false; /* of its new life */
        counter_add(&clean->freed, 1);
        clean->emptied += !victim->of_checkpoint;
        *over = true;
        return true;
    }
    return false;
}

static void remove_victim(struct clean *clean, struct victim *victim)
{
    *victim = clean->victims[--clean->victim_count];
}

static bool advance_all(struct clean *clean)
{
    bool any = false;
    for (uint32_t i = 0; i < clean->victim_count;) {
        bool over = false;
        any |= advance(clean, &clean->victims[i], &over);
        if (over)
            remove_victim(clean, &clean->victims[i]);
        else
            i++;
    }
    return any;
}

/* --- cleaning --- */

/* The victim is none for a while. */
static void put_back(struct clean *clean, struct victim *victim, uint64_t until_ns)
{
    struct clean_tombstones *tombstones = &clean->tombstones;
    clean->parked[victim->segment].until_ns = until_ns;
    clean->parked[victim->segment].items = 0;
    tombstones->tidied -= victim->tidies == tombstones->pass && tombstones->tidied > 0;
    remove_victim(clean, victim);
}

/* A victim that cannot be emptied is tried once more, later: its owner may have been about to tell of an item; or until
 * what it has pieces of is settled (K6), or what has left the server is forgotten; or when its shard is reconciled (K9). */
static void give_up(struct clean *clean, struct victim *victim)
{
    struct clean_parked *parked = &clean->parked[victim->segment];
    const bool waits = clean->exposed || clean->named;
    const uint64_t segment = victim->segment;
    const bool damaged = parked->stuck && !waits && !clean->leaving.first;
    if (damaged)
        clean_copy_tell(clean, victim);
    parked->stuck |= !waits;
    parked->named = clean->named;
    put_back(clean, victim, damaged ? UINT64_MAX : clean->now_ns + CLEAN_AGAIN_NS);
    if (!damaged)
        return;
    parked->items = live_items(store_live(clean->common->store), segment);
    log_event(LOG_WARN, "segment_parked", "segment=%lu items=%lu reason=damaged", segment,
              parked->items);
}

/* It waits for space that no other victim will give: after a crash there may be no free segment at all, as the log had taken
 * the last one, and something in another segment may be dead without a copy. Or one waits to be scanned again, in turn. */
static bool pass_over(struct clean *clean, struct victim *victim)
{
    bool others = false, again = false;
    for (uint32_t i = 0; i < clean->victim_count; i++) {
        const struct victim *other = &clean->victims[i];
        others |= other != victim;
        again |= is_to_be_scanned_again(clean, other);
    }
    if (!clean->is_short || clean->asking || clean->closing_count > 0 || (others && !again))
        return false;
    clean->is_short = false;
    put_back(clean, victim, clean->now_ns + CLEAN_AGAIN_NS);
    return true;
}

/* V4: after each CLEAN_VICTIMS that were freed: were they more than the log has taken? While it rests those that are
 * cleaned for tombstones do not count: they are not chosen for what they give. It rests no longer when much is dead. */
static bool is_in_vain(struct clean *clean)
{
    const uint64_t emptied = clean->emptied - clean->emptied_before;
    if (clean->now_ns < clean->rest_until_ns) {
        if (clean->now_ns >= clean->rest_look_ns) {
            clean->rest_look_ns = clean->now_ns + CLEAN_REST_LOOK_NS;
            if (clean_gives_much(clean))
                clean->rest_until_ns = clean->now_ns;
        }
        clean->emptied_before = clean->emptied;
        clean->filled_before = clean->log.segments;
    } else if (emptied >= CLEAN_VICTIMS) {
        const bool gained = emptied > clean->log.segments - clean->filled_before;
        clean->emptied_before = clean->emptied;
        clean->filled_before = clean->log.segments;
        clean->rest_ns = gained ? 0 : clean->rest_ns ? 2 * clean->rest_ns : CLEAN_REST_MIN_NS;
        if (clean->rest_ns > CLEAN_REST_MAX_NS)
            clean->rest_ns = CLEAN_REST_MAX_NS;
        clean->rest_until_ns = clean->now_ns + clean->rest_ns;
    }
    return clean->now_ns < clean->rest_until_ns;
}

/* *tidies: the pass for tombstones that it is for. */
static bool choose(struct clean *clean, enum clean_need need, uint64_t *segment, uint64_t *tidies)
{
    struct clean_tombstones *tombstones = &clean->tombstones;
    if (need != CLEAN_REST && !is_in_vain(clean) && clean_choose(clean, need, segment))
        return true;
    if (tombstones->step != TOMBSTONES_TIDY || !clean_choose(clean, CLEAN_TIDY, segment))
        return false;
    tombstones->tidy[*segment] = false;
    tombstones->tidied++;
    *tidies = tombstones->pass;
    return true;
}

static struct victim *begin(struct clean *clean, enum clean_need need)
{
    uint64_t segment, tidies = 0;
    if (clean->victim_count == CLEAN_VICTIMS || !choose(clean, need, &segment, &tidies))
        return NULL;
    struct victim *victim = &clean->victims[clean->victim_count++];
    *victim = (struct victim){.step = VICTIM_SCAN, .segment = segment, .tidies = tidies};
    clean->victims_begun++;
    clean_copy_begin(clean, victim);
    return victim;
}

/* V4 */
static bool clean_some(struct clean *clean)
{
    const enum clean_need need = clean_need(clean);
    struct victim *victim = scanned(clean);
    if (!victim)
        victim = begin(clean, need);
    close_early(clean, need, victim != NULL);
    if (!victim)
        return false;
    switch (clean_copy(clean, victim, step_bytes(clean))) {
    case CLEAN_MORE:
        return true;
    case CLEAN_WAIT:
        return pass_over(clean, victim);
    case CLEAN_DONE:
        victim->step = VICTIM_COMMIT;
        victim->until_ns = clean->now_ns + CLEAN_COMMIT_NS;
        return true;
    case CLEAN_STUCK:
        give_up(clean, victim);
        return true;
    }
    return false;
}

/* --- the role --- */

static int start(struct clean *clean)
{
    const struct store *store = clean->common->store;
    clean->parked = calloc(store_segments(store), sizeof *clean->parked);
    if (!clean->parked || clean_tombstones_init(clean) || clean_checkpoint_init(clean)) {
        clean_tombstones_fini(clean); /* the next poll begins anew */
        clean_checkpoint_fini(clean);
        free(clean->parked);
        clean->parked = NULL;
        return ROWAN_ENOMEM;
    }
    records_table_init(&clean->stubs, sizeof(struct clean_stub));
    clean->run = store_allocations(store);
    log_init(&clean->log, clean->common->store, OWNER_CLEAN, 0);
    log_watch(&clean->log, log_closes, NULL, clean);
    clean->started = true;
    return 0;
}

static void execute_commands(struct clean *clean)
{
    struct command command;
    while (command_pop(&clean->role.inbox, &command)) {
        if (role_take(&clean->role, &command))
            continue;
        if (command.kind == COMMAND_SHARD) {
            clean_forget(clean, command.shard);
        } else {
            ASSERT(command.kind == COMMAND_READ);
            clean_read(clean, &command.read);
        }
    }
}

enum poll_result clean_poll(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct clean *clean = role;
    clean->now_ns = now_ns;
    /* All shards were given before there is a reserve (control_zone.c). */
    const bool given = atomic_load_explicit(&clean->common->reserve, memory_order_acquire) > 0;
    execute_commands(clean);
    if (clean->role.part && recover_help(&clean->role.part, now_ns, wake_ns))
        return POLL_BUSY;
    if (!given)
        return POLL_IDLE;
    if (FAULT(LATE_ROLE)) {
        wake_at(wake_ns, now_ns + CLEAN_LOOK_NS);
        return POLL_IDLE;
    }
    if (!clean->started) {
        const int error = start(clean);
        if (error) {
            server_fail(clean->common, error, "no memory for cleaning");
            return POLL_IDLE;
        }
    }
    clean->zero_bytes = step_bytes(clean);
    bool busy = check_closed(clean);
    busy |= clean_forget_some(clean);
    const uint32_t closing = clean->closing_count;
    busy |= advance_all(clean);
    const bool cleaned = clean_some(clean);
    const bool has_time = !cleaned || clean_need(clean) != CLEAN_URGENT; /* V4 */
    busy |= cleaned;
    busy |= clean_tombstones_poll(clean, has_time ? CLEAN_STEADY_BYTES : 0, wake_ns);
    busy |= clean_checkpoint_poll(clean, wake_ns);
    if (clean->closing_count > closing)
        inbox_wake(&clean->role.outbox); /* the control role commits what was closed */
    if (!busy && (clean->victim_count > 0 || clean_need(clean) != CLEAN_REST ||
                  clean->tombstones.step == TOMBSTONES_TIDY))
        wake_at(wake_ns, now_ns + CLEAN_LOOK_NS);
    return busy ? POLL_BUSY : POLL_IDLE;
}

int clean_create(struct server_common *common, uint32_t live_percent, bool checkpoints,
                 struct clean **out)
{
    struct clean *clean = calloc(1, sizeof *clean);
    if (!clean)
        return ROWAN_ENOMEM;
    clean->common = common;
    clean_tune(clean, live_percent, checkpoints);
    const int error = role_init(&clean->role, common, 0);
    if (error) {
        free(clean);
        return error;
    }
    *out = clean;
    return 0;
}

void clean_tune(struct clean *clean, uint32_t live_percent, bool checkpoints)
{
    atomic_store_explicit(&clean->live_percent, live_percent, memory_order_relaxed);
    atomic_store_explicit(&clean->checkpoints, checkpoints, memory_order_relaxed);
    inbox_wake(&clean->role.inbox);
}

void clean_destroy(struct clean *clean)
{
    if (!clean)
        return;
    role_fini(&clean->role);
    clean_forget_close(clean);
    clean_tombstones_fini(clean);
    clean_checkpoint_fini(clean);
    records_table_fini(&clean->stubs);
    free(clean->parked);
    free(clean);
}

struct role *clean_role(struct clean *clean)
{
    return &clean->role;
}

uint64_t clean_checkpoints(const struct clean *clean)
{
    return counter_get(&clean->checkpoint.written);
}

uint64_t clean_segments(const struct clean *clean)
{
    return counter_get(&clean->freed);
}
