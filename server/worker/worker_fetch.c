/* Answers backups that lack committed versions: looks through this server's segments for them, a bit
 * in each poll, and sends the very bytes again. Their place does not matter to the backup, only shard
 * and version do; what it gets twice does no harm.
 *
 * Looked at are segments that nothing is written into any more, and this worker's own log up to its
 * tail: a committed version lies nowhere else.
 *
 * Invariants:
 *  Q1  One scan goes round and round the segments and serves all questions; it rests when there is
 *      none. A question is over when every segment was looked through from its start while it was
 *      there.
 *  Q2  A peer without room holds up nobody else: its questions go another round for what they
 *      missed, and when no peer has room the scan stands still.
 */
#include "server/worker/worker_fetch.h"

#include "common/base/assert.h"
#include "common/base/log.h"
#include "server/worker/worker_peer.h"

enum { FETCH_BYTES_PER_POLL = 64 << 10 };

/* --- questions --- */

static bool backs(const struct worker *worker, const struct worker_peer *peer,
                  const struct shard_state *shard)
{
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        if (&worker->peers[shard->backups[i]] == peer)
            return true;
    }
    return false;
}

/* The present segment may be half looked through, so it counts again at the end. */
static uint64_t round_end(const struct worker *worker)
{
    return worker->fetch.visited + store_segments(worker->common->store) + 1;
}

/* The place for a question of this peer about this shard: that of an earlier one, which it replaces, or
 * a new one. NULL: there are too many. */
static struct question *place_for(struct fetch *fetch, uint32_t peer, uint16_t shard)
{
    for (uint32_t i = 0; i < fetch->count; i++) {
        if (fetch->questions[i].peer == peer && fetch->questions[i].shard == shard)
            return &fetch->questions[i];
    }
    return fetch->count < WORKER_QUESTIONS ? &fetch->questions[fetch->count++] : NULL;
}

/* From a message: everything is checked. */
void worker_fetch_ask(struct worker *worker, struct worker_peer *peer, const Rowan__Fetch *asked)
{
    struct shard_state *shard =
        asked->shard < STORE_SHARD_IDS ? worker->shards[asked->shard] : NULL;
    uint32_t position = (uint32_t)(peer - worker->peers);
    struct question *question = NULL;
    if (shard && backs(worker, peer, shard) && asked->first <= asked->last &&
        asked->last <= atomic_load_explicit(&shard->version, memory_order_relaxed))
        question = place_for(&worker->fetch, position, shard->id);
    if (!question) {
        log_event(LOG_DEBUG, "fetch_ignored", "worker=%u server=%u shard=%u first=%lx last=%lx",
                  worker->number, peer->server, asked->shard, asked->first, asked->last);
        return;
    }
    *question = (struct question){.peer = position,
                                  .shard = shard->id,
                                  .first = asked->first,
                                  .last = asked->last,
                                  .end = round_end(worker)};
}

static void remove_question(struct fetch *fetch, uint32_t at)
{
    fetch->questions[at] = fetch->questions[--fetch->count];
}

static void answered(struct worker *worker, const struct question *question)
{
    struct fetch *fetch = &worker->fetch;
    const struct worker_peer *peer = &worker->peers[question->peer];
    if (question->blocks) {
        log_event(LOG_INFO, "fetch_answered",
                  "worker=%u server=%u shard=%u first=%lx last=%lx blocks=%u", worker->number,
                  peer->server, question->shard, question->first, question->last, question->blocks);
    } else if (fetch->lost_shard != question->shard || fetch->lost_first != question->first) {
        log_event(LOG_ERROR, "version_lost", "worker=%u server=%u shard=%u first=%lx last=%lx",
                  worker->number, peer->server, question->shard, question->first, question->last);
        fetch->lost_shard = question->shard;
        fetch->lost_first = question->first;
    }
}

/* Drops what is over, and what lost its connection: that is asked again. */
static void tidy(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    for (uint32_t i = 0; i < fetch->count;) {
        const struct question *question = &fetch->questions[i];
        bool over = fetch->visited >= question->end;
        if (over)
            answered(worker, question);
        if (over || !worker->peers[question->peer].connected)
            remove_question(fetch, i);
        else
            i++;
    }
}

/* --- the scan --- */

/* Writes go first: a part of each queue is left to them. */
static bool has_room(const struct worker *worker, const struct question *question)
{
    uint32_t leave = fabric_caps(worker->common->fabric)->max_batch_blocks / 4;
    return fabric_rowan_room(worker->peers[question->peer].conn) > leave;
}

static bool any_has_room(const struct worker *worker)
{
    for (uint32_t i = 0; i < worker->fetch.count; i++) {
        if (has_room(worker, &worker->fetch.questions[i]))
            return true;
    }
    return false;
}

/* How many bytes of the segment may be looked at. */
static uint32_t readable(const struct worker *worker, uint64_t segment)
{
    const struct segment_meta meta = store_meta(worker->common->store, segment);
    if (meta.state == SEGMENT_USED || meta.state == SEGMENT_COMMITTED)
        return STORE_SEGMENT_BYTES;
    return worker->log.open && worker->log.segment == segment ? worker->log.tail : 0;
}

static void enter(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    uint64_t offset = store_segment_offset(worker->common->store, fetch->segment);
    entry_scan_init(&fetch->scan, &worker->common->format, pm_at(worker->common->pm, offset),
                    readable(worker, fetch->segment), 0);
    fetch->inside = true;
}

static void leave(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    fetch->inside = false;
    fetch->visited++;
    fetch->segment = (fetch->segment + 1) % store_segments(worker->common->store);
    tidy(worker);
}

static void send_to_askers(struct worker *worker, const struct entry_header *header,
                           const void *block, uint32_t bytes)
{
    if (header->type != ENTRY_PUT && header->type != ENTRY_DELETE)
        return;
    for (uint32_t i = 0; i < worker->fetch.count; i++) {
        struct question *question = &worker->fetch.questions[i];
        if (header->shard != question->shard || header->version < question->first ||
            header->version > question->last)
            continue;
        if (has_room(worker, question)) {
            worker_peer_add(worker, &worker->peers[question->peer], block, bytes);
            question->blocks++;
        } else {
            question->end = round_end(worker); /* Q2 */
        }
    }
}

bool worker_fetch_poll(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    if (!fetch->count)
        return false;
    tidy(worker);
    uint32_t looked = 0;
    while (looked < FETCH_BYTES_PER_POLL && any_has_room(worker)) {
        if (!fetch->inside)
            enter(worker);
        struct entry_header header;
        uint32_t offset, bytes, before = fetch->scan.position;
        enum entry_scan_result result =
            entry_scan_next(&fetch->scan, false, &header, &offset, &bytes);
        if (result == ENTRY_SCAN_BLOCK)
            send_to_askers(worker, &header, fetch->scan.base + offset, bytes);
        looked += fetch->scan.position - before + 1; /* an empty segment costs a look, too */
        if (result == ENTRY_SCAN_END)
            leave(worker);
    }
    return looked > 0;
}
