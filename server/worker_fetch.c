/* Answers a backup that lacks committed versions: looks through this server's segments for them, a
 * bit in each poll, and sends the very bytes again. Their place does not matter to the backup, only
 * shard and version do; what it gets twice does no harm.
 *
 * Looked at are segments that nothing is written into any more, and this worker's own log up to its
 * tail: a committed version lies nowhere else.
 */
#include "common/base/assert.h"
#include "common/base/log.h"
#include "server/worker_state.h"

enum { FETCH_BYTES_PER_POLL = 64 << 10 };

static bool backs(const struct worker *worker, const struct peer *peer,
                  const struct shard_state *shard)
{
    for (uint32_t i = 0; i < shard->backup_count; i++) {
        if (&worker->peers[shard->backups[i]] == peer)
            return true;
    }
    return false;
}

/* From a message: everything is checked. */
void worker_fetch_take(struct worker *worker, struct peer *peer, const Rowan__Fetch *question)
{
    struct fetch *fetch = &worker->fetch;
    struct shard_state *shard =
        question->shard < STORE_SHARD_IDS ? worker->shards[question->shard] : NULL;
    if (fetch->active || !shard || !backs(worker, peer, shard) ||
        question->first > question->last ||
        question->last > atomic_load_explicit(&shard->version, memory_order_relaxed)) {
        log_event(LOG_DEBUG, "fetch_ignored", "worker=%u server=%u shard=%u first=%lx last=%lx",
                  worker->number, peer->server, question->shard, question->first, question->last);
        return;
    }
    fetch->active = true;
    fetch->peer = (uint32_t)(peer - worker->peers);
    fetch->shard = shard->id;
    fetch->first = question->first;
    fetch->last = question->last;
    fetch->segment = 0;
    fetch->inside = false;
    fetch->blocks = 0;
}

/* How many bytes of the segment may be looked at; 0: none. */
static uint32_t readable(const struct worker *worker, uint64_t segment)
{
    const struct segment_meta meta = store_meta(worker->common->store, segment);
    if (meta.state == SEGMENT_USED || meta.state == SEGMENT_COMMITTED)
        return STORE_SEGMENT_BYTES;
    return worker->log.open && worker->log.segment == segment ? worker->log.tail : 0;
}

/* Into the next segment that may be looked at, from fetch->segment on; false if there is none. */
static bool enter(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    struct store *store = worker->common->store;
    for (; fetch->segment < store_segments(store); fetch->segment++) {
        uint32_t bytes = readable(worker, fetch->segment);
        if (bytes == 0)
            continue;
        entry_scan_init(&fetch->scan, &worker->common->format,
                        pm_at(worker->common->pm, store_segment_offset(store, fetch->segment)),
                        bytes, 0);
        fetch->inside = true;
        return true;
    }
    return false;
}

static bool is_wanted(const struct fetch *fetch, const struct entry_header *header)
{
    return (header->type == ENTRY_PUT || header->type == ENTRY_DELETE) &&
           header->shard == fetch->shard && header->version >= fetch->first &&
           header->version <= fetch->last;
}

static void finish(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    const struct peer *peer = &worker->peers[fetch->peer];
    fetch->active = false;
    if (fetch->blocks) {
        log_event(LOG_INFO, "fetch_answered",
                  "worker=%u server=%u shard=%u first=%lx last=%lx blocks=%u", worker->number,
                  peer->server, fetch->shard, fetch->first, fetch->last, fetch->blocks);
    } else if (fetch->lost_shard != fetch->shard || fetch->lost_first != fetch->first) {
        log_event(LOG_ERROR, "version_lost", "worker=%u server=%u shard=%u first=%lx last=%lx",
                  worker->number, peer->server, fetch->shard, fetch->first, fetch->last);
        fetch->lost_shard = fetch->shard;
        fetch->lost_first = fetch->first;
    }
}

/* One step of the scan. */
static void look(struct worker *worker, struct peer *peer)
{
    struct fetch *fetch = &worker->fetch;
    struct entry_header header;
    uint32_t offset, bytes;
    enum entry_scan_result result = entry_scan_next(&fetch->scan, false, &header, &offset, &bytes);
    if (result == ENTRY_SCAN_BLOCK && is_wanted(fetch, &header)) {
        worker_peer_add(worker, peer, fetch->scan.base + offset, bytes);
        fetch->blocks++;
    } else if (result == ENTRY_SCAN_END) {
        fetch->inside = false;
        fetch->segment++;
    }
}

bool worker_fetch_poll(struct worker *worker)
{
    struct fetch *fetch = &worker->fetch;
    if (!fetch->active)
        return false;
    struct peer *peer = &worker->peers[fetch->peer];
    if (!peer->connected) { /* it asks again */
        fetch->active = false;
        return false;
    }
    uint32_t leave = fabric_caps(worker->common->fabric)->max_batch_blocks / 4;
    uint32_t looked = 0;
    while (looked < FETCH_BYTES_PER_POLL) {
        if (fabric_rowan_room(peer->conn) <= leave)
            return looked > 0; /* writes go first; what lands wakes this worker */
        if (!fetch->inside && !enter(worker)) {
            finish(worker);
            return true;
        }
        uint32_t before = fetch->scan.position;
        look(worker, peer);
        looked += fetch->scan.position - before;
    }
    return true;
}
