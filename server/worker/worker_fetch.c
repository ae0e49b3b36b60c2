/* Answers backups that lack committed versions: looks through this server's segments for them, a bit
 * in each poll, and brings them by message (worker_peer_bring). What a backup gets twice does no harm.
 *
 * Looked at are segments that nothing is written into any more, and this worker's own log up to its
 * tail: a committed version lies nowhere else.
 *
 * Invariants:
 *  Q1  One scan goes round and round the segments and serves all questions; it rests when there is
 *      none. A question is over when every segment was looked through from its start while it was
 *      there, and what was found is durable at its peer.
 *  Q2  A peer that confirms nothing holds up nobody else: its questions go another round for what they
 *      missed, and when none has room the scan stands still.
 *  Q3  What is not confirmed was not brought: after a break, or a failure, the backup asks again for what it still
 *      lacks.
 *  Q4  What had a version when the question came stays as it is until the question is over (reclaim.h), and so does the
 *      segment that the scan is in. So a version that the cleaner moves meanwhile is met in its old place, if not in its
 *      new one. A segment of which that may have ended is not COMMITTED any more, and the scan does not go inside.
 *  Q5  "Gone" is said of a version that is settled here, and that a whole round met nowhere: then the cleaner has dropped
 *      it, as a later version of its key is settled (design, C4). Not while anything is damaged in a segment where it may
 *      have been: of this epoch versions lie in what this worker's log, and the cleaner, have filled since the start.
 */
#include "server/worker/worker_fetch.h"

#include <string.h>

#include "common/base/bytes.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/worker/worker_peer.h"

enum { FETCH_BYTES_PER_POLL = 64 << 10 };
#define FETCH_ROOM_RETRY_NS NS_PER_MS
#define FETCH_HOLD_NS       (NS_PER_S / 2) /* at a fault site */

/* --- questions --- */

/* The present segment may be half looked through, so it counts again at the end. */
static uint64_t round_end(const struct worker *worker)
{
    return worker->fetch.visited + store_segments(worker->common->store) + 1;
}

static uint64_t oldest(const struct fetch *fetch)
{
    uint64_t since = RECLAIM_NOTHING;
    for (uint32_t i = 0; i < fetch->count; i++)
        since = fetch->questions[i].since < since ? fetch->questions[i].since : since;
    return since;
}

/* Without a question the scan is inside no segment. */
uint64_t worker_fetch_held(const struct worker *worker)
{
    const struct fetch *fetch = &worker->fetch;
    if (!fetch->count)
        return RECLAIM_NOTHING;
    const uint64_t since = oldest(fetch);
    return fetch->inside && fetch->since < since ? fetch->since : since;
}

/* The question of this peer about this shard: an earlier one, of which a message may be on its way, or a new one. NULL:
 * there are too many. */
static struct question *place_for(struct fetch *fetch, uint32_t peer, uint16_t shard)
{
    for (uint32_t i = 0; i < fetch->count; i++) {
        if (fetch->questions[i].peer == peer && fetch->questions[i].shard == shard)
            return &fetch->questions[i];
    }
    if (fetch->count == WORKER_QUESTIONS)
        return NULL;
    struct question *question = &fetch->questions[fetch->count++];
    *question = (struct question){.peer = peer, .shard = shard};
    return question;
}

/* Here, wherever that may be. */
static void meet(struct question *question, uint64_t version)
{
    const uint64_t bit = version - question->first;
    if (version >= question->first && bit < QUERY_GONE_VERSIONS)
        question->met[bit / 64] |= UINT64_C(1) << bit % 64;
}

/* What was found already stays to be brought. */
static void begin(const struct worker *worker, struct question *question, uint64_t first,
                  uint64_t last)
{
    if (question->count == 0)
        question->since = worker->epoch;
    question->first = first;
    question->last = last;
    question->end = round_end(worker);
    question->damaged = question->telling = question->told = false;
    memset(question->met, 0, sizeof question->met);
    for (uint32_t i = 0; i < question->count; i++)
        meet(question, question->found[i].version);
}

/* From a message: everything is checked. */
void worker_fetch_ask(struct worker *worker, struct worker_peer *peer, const Rowan__Fetch *asked)
{
    struct shard_state *shard =
        asked->shard < STORE_SHARD_IDS ? worker->shards[asked->shard] : NULL;
    uint32_t position = (uint32_t)(peer - worker->peers);
    struct question *question = NULL;
    if (shard && backs(shard, position) && asked->first <= asked->last &&
        version_epoch(asked->first) == shard->epoch &&
        asked->last <= atomic_load_explicit(&shard->version, memory_order_relaxed))
        question = place_for(&worker->fetch, position, shard->id);
    if (!question) {
        log_event(LOG_DEBUG, "fetch_ignored", "worker=%u server=%u shard=%u first=%lx last=%lx",
                  worker->number, peer->server, asked->shard, asked->first, asked->last);
        return;
    }
    begin(worker, question, asked->first, asked->last);
}

static void remove_question(struct fetch *fetch, uint32_t at)
{
    fetch->questions[at] = fetch->questions[--fetch->count];
    fetch->inside &= fetch->count > 0; /* Q4 */
}

void worker_fetch_forget(struct worker *worker, uint16_t shard)
{
    struct fetch *fetch = &worker->fetch;
    for (uint32_t i = fetch->count; i-- > 0;) {
        if (fetch->questions[i].shard == shard)
            remove_question(fetch, i);
    }
}

static bool is_sought(const struct fetch *fetch, const struct question *question)
{
    return fetch->visited < question->end;
}

static void answered(struct worker *worker, const struct question *question)
{
    struct fetch *fetch = &worker->fetch;
    const struct worker_peer *peer = &worker->peers[question->peer];
    if (question->entries || question->gone) {
        log_event(LOG_INFO, "fetch_answered",
                  "worker=%u server=%u shard=%u first=%lx last=%lx entries=%u gone_ranges=%u",
                  worker->number, peer->server, question->shard, question->first, question->last,
                  question->entries, question->gone);
    } else if (fetch->lost_shard != question->shard || fetch->lost_first != question->first) {
        log_event(LOG_ERROR, "version_lost", "worker=%u server=%u shard=%u first=%lx last=%lx",
                  worker->number, peer->server, question->shard, question->first, question->last);
        fetch->lost_shard = question->shard;
        fetch->lost_first = question->first;
    }
}

/* Drops what is over, and what lost its connection (Q3). */
static void tidy(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    for (uint32_t i = 0; i < fetch->count;) {
        const struct question *question = &fetch->questions[i];
        bool over = !is_sought(fetch, question) && question->count == 0 && question->told;
        if (over)
            answered(worker, question);
        if (over || !worker->peers[question->peer].connected)
            remove_question(fetch, i);
        else
            i++;
    }
}

/* --- the scan --- */

static bool any_has_room(const struct fetch *fetch)
{
    for (uint32_t i = 0; i < fetch->count; i++) {
        const struct question *question = &fetch->questions[i];
        if (is_sought(fetch, question) && question->count < WORKER_FOUND)
            return true;
    }
    return false;
}

/* How many bytes of the segment may be looked at. */
static uint32_t readable(const struct worker *worker, uint64_t segment)
{
    const struct segment_meta meta = store_meta(worker->common->store, segment);
    if (meta.owner == OWNER_CHECKPOINT)
        return 0;
    if (meta.state == SEGMENT_USED || meta.state == SEGMENT_COMMITTED)
        return STORE_SEGMENT_BYTES;
    return worker->log.open && worker->log.segment == segment ? worker->log.tail : 0;
}

/* Q5 */
static bool is_judged(const struct worker *worker, uint64_t segment)
{
    const struct segment_meta meta = store_meta(worker->common->store, segment);
    return (meta.owner == OWNER_CLEAN ||
            (meta.owner == OWNER_WORKER && meta.owner_number == worker->number)) &&
           worker->log.open && meta.allocation >= worker->log.first_allocation;
}

static void enter(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    uint64_t offset = store_segment_offset(worker->common->store, fetch->segment);
    entry_scan_init(&fetch->scan, &worker->common->format, pm_at(worker->common->pm, offset),
                    readable(worker, fetch->segment), 0);
    fetch->inside = true;
    fetch->judged = is_judged(worker, fetch->segment);
    fetch->since = oldest(fetch);
}

static void leave(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    fetch->inside = false;
    fetch->visited++;
    fetch->segment = (fetch->segment + 1) % store_segments(worker->common->store);
    tidy(worker);
}

/* The first block of an entry was met at `offset` in the map. */
static void note_for_askers(struct worker *worker, const struct entry_header *header,
                            uint64_t offset)
{
    for (uint32_t i = 0; i < worker->fetch.count; i++) {
        struct question *question = &worker->fetch.questions[i];
        if (header->shard != question->shard || header->version < question->first ||
            header->version > question->last || !is_sought(&worker->fetch, question))
            continue;
        meet(question, header->version);
        if (question->count < WORKER_FOUND)
            question->found[question->count++] =
                (struct suffix_item){.version = header->version, .offset = offset};
        else
            question->end = round_end(worker); /* Q2 */
    }
}

/* The scan stands in front of what is no whole block. */
static void step_over(struct fetch *fetch)
{
    const bool damaged =
        fetch->judged && !bytes_are_zero(fetch->scan.base + fetch->scan.position, ENTRY_ALIGN);
    for (uint32_t i = 0; damaged && i < fetch->count; i++)
        fetch->questions[i].damaged = true;
    fetch->scan.position += ENTRY_ALIGN;
}

static uint32_t look(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    uint32_t looked = 0;
    while (looked < FETCH_BYTES_PER_POLL && any_has_room(fetch)) {
        if (!fetch->inside)
            enter(worker);
        struct entry_header header;
        uint32_t offset, bytes, before = fetch->scan.position;
        enum entry_scan_result result =
            entry_scan_next(&fetch->scan, true, &header, &offset, &bytes);
        if (result == ENTRY_SCAN_BLOCK && header.block == 0 &&
            (header.type == ENTRY_PUT || header.type == ENTRY_DELETE))
            note_for_askers(worker, &header,
                            store_segment_offset(worker->common->store, fetch->segment) + offset);
        if (result == ENTRY_SCAN_STOPPED)
            step_over(fetch);
        looked += fetch->scan.position - before + 1; /* an empty segment costs a look, too */
        if (result == ENTRY_SCAN_END)
            leave(worker);
    }
    return looked;
}

/* --- bringing --- */

static void remove_found(struct question *question, uint32_t at, uint32_t count)
{
    question->count -= count;
    memmove(&question->found[at], &question->found[at + count],
            (question->count - at) * sizeof question->found[0]);
}

/* What comes next, as much as a message holds. */
static void gather(const struct worker *worker, struct question *question,
                   struct block_list *blocks)
{
    uint32_t at = 0, block = question->block;
    int added = 1;
    while (at < question->count && added) {
        const struct suffix_item *found = &question->found[at];
        added = block_list_add(blocks, worker->common->pm, &worker->common->format, question->shard,
                               found->version, found->offset, &block);
        if (added < 0) { /* all of it may be whole elsewhere */
            remove_found(question, at, 1);
            question->block = at ? question->block : 0;
        } else {
            at += (uint32_t)added;
        }
        block = added ? 0 : block;
    }
    question->sent = at;
    question->sent_block = block;
}

/* Q5. As many ranges as a message holds; returns how many. */
static uint32_t list_gone(const struct question *question, uint64_t settled,
                          struct prefix_range ranges[QUERY_GONE_RANGES])
{
    uint64_t end = question->last < settled ? question->last : settled;
    uint32_t count = 0;
    if (end >= question->first + QUERY_GONE_VERSIONS)
        end = question->first + QUERY_GONE_VERSIONS - 1;
    for (uint64_t version = question->first; version <= end && !question->damaged; version++) {
        const uint64_t bit = version - question->first;
        if (question->met[bit / 64] >> bit % 64 & 1)
            continue;
        if (count > 0 && ranges[count - 1].last == version - 1)
            ranges[count - 1].last = version;
        else if (count < QUERY_GONE_RANGES)
            ranges[count++] = (struct prefix_range){version, version};
        else
            break;
    }
    return count;
}

/* All that was found is there. Errors: those of control_message_send. */
static int tell_gone(struct worker *worker, struct question *question)
{
    struct prefix_range ranges[QUERY_GONE_RANGES];
    const struct shard_state *shard = worker->shards[question->shard];
    const uint64_t settled = atomic_load_explicit(&shard->settled, memory_order_relaxed);
    question->gone = list_gone(question, settled, ranges);
    question->telling = question->gone > 0;
    question->told = !question->telling;
    question->sent = question->sent_block = 0;
    return question->telling ? worker_peer_tell_gone(worker, &worker->peers[question->peer], shard,
                                                     ranges, question->gone, &question->tag)
                             : 0;
}

/* Errors: likewise. */
static int bring_found(struct worker *worker, struct question *question)
{
    struct block_list blocks = {.data = worker->value};
    gather(worker, question, &blocks);
    return blocks.count
               ? worker_peer_bring(worker, &worker->peers[question->peer],
                                   worker->shards[question->shard], &blocks, &question->tag)
               : 0;
}

/* True if something went, or there was nothing that could. */
static bool bring(struct worker *worker, struct question *question, uint64_t now_ns,
                  uint64_t *wake_ns)
{
    if (now_ns >= question->retry_ns &&
        FAULT(HOLD_OFFSET)) /* as when the peer has no room for long */
        question->retry_ns = now_ns + FETCH_HOLD_NS;
    if (now_ns >= question->retry_ns) {
        if (!(question->count ? bring_found(worker, question) : tell_gone(worker, question)))
            return true;
        question->retry_ns = now_ns + FETCH_ROOM_RETRY_NS;
    }
    wake_at(wake_ns, question->retry_ns);
    return false;
}

/* The message on its way is durable at the peer. */
static void confirm(struct question *question)
{
    question->entries += question->sent;
    remove_found(question, 0, question->sent);
    question->block = question->sent_block;
    question->tag = 0;
    question->told |= question->telling;
    question->telling = false;
}

bool worker_fetch_answered(struct worker *worker, const struct worker_peer *peer, uint32_t tag,
                           const Rowan__ControlMessage *answer)
{
    struct fetch *fetch = &worker->fetch;
    uint32_t at = 0;
    while (at < fetch->count && (tag == 0 || fetch->questions[at].tag != tag ||
                                 &worker->peers[fetch->questions[at].peer] != peer))
        at++;
    if (at == fetch->count)
        return false;
    if (worker_peer_failure(answer))
        remove_question(fetch, at); /* Q3 */
    else
        confirm(&fetch->questions[at]);
    return true;
}

bool worker_fetch_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    struct fetch *fetch = &worker->fetch;
    if (!fetch->count)
        return false;
    tidy(worker);
    bool any = look(worker) > 0;
    for (uint32_t i = 0; i < fetch->count; i++) {
        struct question *question = &fetch->questions[i];
        if (question->tag == 0 &&
            (question->count > 0 || !(is_sought(fetch, question) || question->told)))
            any |= bring(worker, question, now_ns, wake_ns);
    }
    return any;
}
