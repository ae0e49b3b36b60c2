/* Filling (design, section 6): a replica that fills gets every write from its first epoch on. What was before is copied here:
 * the items of the index, tombstones included, then a record stub for each completion record. Every epoch begins anew; what
 * the replica has already it does not store again.
 *
 * Invariants:
 *  Z5  Copying begins when the epoch has been reconciled: then every write of earlier epochs has ended, and the index shows
 *      it or a later one of its key.
 *  Z6  What is not confirmed was not copied: it is sent again. A shard has one message on its way to a replica.
 *  Z7  Entries that were gathered and are not confirmed are held (reclaim.h).
 *
 *  COPY --(the walk over the index is over)--> RECORDS --(all are confirmed)--> LAST --(confirmed)--> DONE
 */
#include "server/worker/worker_fill.h"

#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "server/worker/worker_peer.h"

enum { FILLS = 8, FILL_BUCKETS = 64, FILL_RECORDS = 64 };

#define FILL_ROOM_RETRY_NS NS_PER_MS
#define FILL_RETRY_NS      (20 * NS_PER_MS)
#define FILL_SPACE_NS      NS_PER_S
#define FILL_TELL_NS       (NS_PER_S / 2) /* until a configuration says that the replica is full */

enum fill_step { FILL_COPY, FILL_RECORDS_STEP, FILL_LAST, FILL_DONE };

struct fill {
    struct shard_state *shard; /* NULL: free */
    uint32_t epoch, peer;
    enum fill_step step;
    uint64_t cursor; /* of the walk */
    bool walked;
    struct records_cursor records;
    uint64_t since;       /* Z7; RECLAIM_NOTHING */
    struct suffix found;  /* gathered */
    uint32_t next, block; /* the first that is not confirmed, and its first block */
    uint32_t sent, sent_block;
    uint32_t rows; /* of records on their way */
    bool rows_over;
    struct records_cursor rows_cursor; /* once they are confirmed */
    uint32_t tag;
    uint64_t retry_ns;
    uint64_t copied;
};

struct fills {
    struct fill slots[FILLS];
};

/* --- which --- */

static bool is_filled(const struct shard_state *shard, uint32_t place)
{
    return shard->filled >> place & 1;
}

static struct fill *find(struct fills *fills, const struct shard_state *shard, uint32_t peer)
{
    for (uint32_t i = 0; i < FILLS; i++) {
        if (fills->slots[i].shard == shard && fills->slots[i].peer == peer)
            return &fills->slots[i];
    }
    return NULL;
}

static void release(struct fill *fill)
{
    suffix_clear(&fill->found);
    *fill = (struct fill){.since = RECLAIM_NOTHING};
}

/* The next shards that want it, as long as there is a slot. */
static void begin_some(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->config->shard_count; i++) {
        struct shard_state *shard = worker->shards[worker->config->shards[i].id];
        if (!shard || !shard->begun || shard->ending || shard->deposed)
            continue;
        for (uint32_t j = shard->full_count; j < shard->backup_count; j++) {
            struct fill *free_slot = find(worker->fills, NULL, 0);
            if (!free_slot)
                return;
            if (is_filled(shard, j) || find(worker->fills, shard, shard->backups[j]))
                continue;
            *free_slot = (struct fill){.shard = shard,
                                       .epoch = shard->epoch,
                                       .peer = shard->backups[j],
                                       .since = RECLAIM_NOTHING};
            log_event(LOG_INFO, "filling", "worker=%u shard=%u epoch=%u server=%u", worker->number,
                      shard->id, shard->epoch, worker->peers[shard->backups[j]].server);
        }
    }
}

/* --- COPY --- */

struct gathering {
    struct fill *fill;
    const struct pm *pm;
    int error;
};

static void gather_item(void *context, uint64_t offset)
{
    struct gathering *gathering = context;
    if (!gathering->error)
        gathering->error = suffix_add(&gathering->fill->found,
                                      entry_version(pm_at(gathering->pm, offset)), offset);
}

/* The next items; without memory none, and the walk stays where it is. */
static int gather(struct worker *worker, struct fill *fill)
{
    struct gathering gathering = {.fill = fill, .pm = worker->common->pm};
    uint64_t cursor = fill->cursor;
    suffix_clear(&fill->found);
    fill->next = fill->block = 0;
    fill->since = worker->epoch;
    const bool more =
        index_walk(fill->shard->index, &cursor, FILL_BUCKETS, gather_item, &gathering);
    if (gathering.error)
        return gathering.error;
    fill->walked = !more;
    fill->cursor = cursor;
    return 0;
}

static void list_blocks(const struct worker *worker, struct fill *fill, struct block_list *blocks)
{
    fill->sent = fill->next;
    fill->sent_block = fill->block;
    for (; fill->sent < fill->found.count; fill->sent++, fill->sent_block = 0) {
        const struct suffix_item *item = &fill->found.items[fill->sent];
        const int added =
            block_list_add(blocks, worker->common->pm, &worker->common->format, fill->shard->id,
                           item->version, item->offset, &fill->sent_block);
        if (added == 0)
            return;
        if (added < 0) /* a get of it is answered with the same */
            log_event(LOG_ERROR, "entry_damaged", "worker=%u shard=%u version=%lx offset=%lu",
                      worker->number, fill->shard->id, item->version, item->offset);
    }
}

/* Errors: ROWAN_ENOMEM; those of control_message_send. */
static int copy(struct worker *worker, struct fill *fill, const struct worker_peer *peer)
{
    struct block_list blocks;
    blocks.count = blocks.bytes = 0;
    if (fill->next == fill->found.count && !fill->walked) {
        const int error = gather(worker, fill);
        if (error)
            return error;
    }
    list_blocks(worker, fill, &blocks);
    if (blocks.count)
        return worker_peer_bring(worker, peer, fill->shard, &blocks, &fill->tag);
    fill->next = fill->sent;
    fill->step += fill->walked;
    return 0;
}

/* --- RECORDS, LAST --- */

/* The stubs of these rows, one block each, in the worker's buffer. */
static void encode_stubs(struct worker *worker, const struct fill *fill,
                         const struct records_row *rows, uint32_t count, Rowan__StoreEntries *body,
                         ProtobufCBinaryData *data)
{
    uint8_t *at = worker->value;
    for (uint32_t i = 0; i < count; i++) {
        const struct entry_header header = {.type = ENTRY_RECORD,
                                            .shard = fill->shard->id,
                                            .version = rows[i].version,
                                            .blocks = 1,
                                            .client_id = rows[i].client,
                                            .operation = rows[i].operation};
        if (rows[i].version == 0)
            continue; /* a client's lowest number comes with commit versions */
        const uint32_t bytes =
            entry_encode_block(&worker->common->format, &header, NULL, NULL, worker->staging);
        memcpy(at, worker->staging, bytes);
        data[body->n_blocks++] = (ProtobufCBinaryData){.data = at, .len = bytes};
        at += bytes;
    }
}

/* Errors: those of control_message_send. */
static int bring(struct worker *worker, struct fill *fill, const struct worker_peer *peer,
                 Rowan__StoreEntries *body)
{
    body->shard = fill->shard->id;
    body->epoch = fill->epoch;
    fill->tag = worker_peer_tag(worker);
    return control_message_send(peer->conn, fill->tag,
                                &CONTROL_MESSAGE(STORE_ENTRIES, store_entries, body));
}

/* Errors: those of control_message_send and records_list. */
static int bring_records(struct worker *worker, struct fill *fill, const struct worker_peer *peer)
{
    struct records_row rows[FILL_RECORDS];
    ProtobufCBinaryData data[FILL_RECORDS];
    Rowan__StoreEntries body = ROWAN__STORE_ENTRIES__INIT;
    fill->rows_cursor = fill->records;
    const int count = records_list(&fill->shard->records, &fill->rows_cursor, rows, FILL_RECORDS,
                                   &fill->rows_over);
    if (count < 0)
        return count;
    encode_stubs(worker, fill, rows, (uint32_t)count, &body, data);
    if (body.n_blocks == 0) {
        fill->records = fill->rows_cursor;
        fill->step += fill->rows_over;
        return 0;
    }
    body.blocks = data;
    return bring(worker, fill, peer, &body);
}

static int bring_last(struct worker *worker, struct fill *fill, const struct worker_peer *peer)
{
    Rowan__StoreEntries body = ROWAN__STORE_ENTRIES__INIT;
    body.last = true;
    return bring(worker, fill, peer, &body);
}

/* --- DONE --- */

/* Behind all: it is none of the shard's any more. */
static uint32_t place_of(const struct fill *fill)
{
    uint32_t place = fill->shard->full_count;
    while (place < fill->shard->backup_count && fill->shard->backups[place] != fill->peer)
        place++;
    return place;
}

static void tell(struct worker *worker, struct fill *fill, uint64_t now_ns)
{
    const struct command command = {.kind = COMMAND_FILLED,
                                    .filled = {.shard = fill->shard->id,
                                               .epoch = fill->epoch,
                                               .server = worker->peers[fill->peer].server}};
    (void)command_push(&worker->outbox, &command); /* repeated */
    fill->retry_ns = now_ns + FILL_TELL_NS;
}

static void finish(struct worker *worker, struct fill *fill)
{
    log_event(LOG_INFO, "filled", "worker=%u shard=%u epoch=%u server=%u items=%lu", worker->number,
              fill->shard->id, fill->epoch, worker->peers[fill->peer].server, fill->copied);
    fill->shard->filled |= UINT32_C(1) << place_of(fill);
    fill->since = RECLAIM_NOTHING;
    fill->step = FILL_DONE;
}

/* --- from step to step --- */

static bool is_stale(const struct fill *fill)
{
    const struct shard_state *shard = fill->shard;
    return !shard->begun || shard->ending || shard->deposed || shard->epoch != fill->epoch ||
           place_of(fill) == shard->backup_count;
}

static int send_next(struct worker *worker, struct fill *fill, const struct worker_peer *peer)
{
    switch (fill->step) {
    case FILL_COPY:
        return copy(worker, fill, peer);
    case FILL_RECORDS_STEP:
        return bring_records(worker, fill, peer);
    case FILL_LAST:
        return bring_last(worker, fill, peer);
    case FILL_DONE:
        break;
    }
    return 0;
}

static bool advance(struct worker *worker, struct fill *fill, uint64_t now_ns, uint64_t *wake_ns)
{
    const struct worker_peer *peer = &worker->peers[fill->peer];
    if (fill->tag || !peer->connected)
        return false;
    if (now_ns < fill->retry_ns) {
        wake_at(wake_ns, fill->retry_ns);
        return false;
    }
    if (fill->step == FILL_DONE) {
        tell(worker, fill, now_ns);
        wake_at(wake_ns, fill->retry_ns);
        return true;
    }
    const int error = send_next(worker, fill, peer);
    if (!error)
        return true;
    fill->tag = 0; /* a break comes as an event */
    fill->retry_ns = now_ns + (error == ROWAN_EAGAIN ? FILL_ROOM_RETRY_NS : FILL_SPACE_NS);
    wake_at(wake_ns, fill->retry_ns);
    return false;
}

bool worker_fill_poll(struct worker *worker, uint64_t now_ns, uint64_t *wake_ns)
{
    bool any = false;
    if (!worker->fill_wanted)
        return false;
    if (!worker->fills) {
        worker->fills = calloc(1, sizeof *worker->fills);
        if (!worker->fills) {
            wake_at(wake_ns, now_ns + FILL_SPACE_NS);
            return false;
        }
        for (uint32_t i = 0; i < FILLS; i++)
            release(&worker->fills->slots[i]);
    }
    for (uint32_t i = 0; i < FILLS; i++) {
        if (worker->fills->slots[i].shard && is_stale(&worker->fills->slots[i]))
            release(&worker->fills->slots[i]);
    }
    begin_some(worker);
    for (uint32_t i = 0; i < FILLS; i++) {
        if (worker->fills->slots[i].shard)
            any |= advance(worker, &worker->fills->slots[i], now_ns, wake_ns);
    }
    return any;
}

/* --- answers --- */

/* Z6 */
static void confirmed(struct worker *worker, struct fill *fill)
{
    if (fill->step == FILL_COPY) {
        fill->copied += fill->sent - fill->next;
        fill->next = fill->sent;
        fill->block = fill->sent_block;
        if (fill->next == fill->found.count)
            fill->since = RECLAIM_NOTHING;
    } else if (fill->step == FILL_RECORDS_STEP) {
        fill->records = fill->rows_cursor;
        fill->step += fill->rows_over;
    } else {
        finish(worker, fill);
    }
}

bool worker_fill_answered(struct worker *worker, const struct worker_peer *peer, uint32_t tag,
                          const Rowan__ControlMessage *answer, uint64_t now_ns)
{
    for (uint32_t i = 0; tag && worker->fills && i < FILLS; i++) {
        struct fill *fill = &worker->fills->slots[i];
        if (!fill->shard || fill->tag != tag || &worker->peers[fill->peer] != peer)
            continue;
        const int error = worker_peer_failure(answer);
        fill->tag = 0;
        fill->retry_ns = now_ns;
        if (error) {
            fill->block = 0; /* what it has of the entry may be gone */
            fill->retry_ns =
                now_ns +
                (error == ROWAN_EAGAIN || error == ROWAN_EBUSY ? FILL_RETRY_NS : FILL_SPACE_NS);
            log_event(LOG_DEBUG, "filling_refused", "shard=%u server=%u error=%s", fill->shard->id,
                      peer->server, error_name(error));
        } else if (!is_stale(fill)) {
            confirmed(worker, fill);
        }
        return true;
    }
    return false;
}

void worker_fill_peer_down(struct worker *worker, const struct worker_peer *peer)
{
    for (uint32_t i = 0; worker->fills && i < FILLS; i++) {
        struct fill *fill = &worker->fills->slots[i];
        if (!fill->shard || &worker->peers[fill->peer] != peer)
            continue;
        fill->tag = 0;
        fill->block = 0;
    }
}

void worker_fill_forget(struct worker *worker, const struct shard_state *shard)
{
    for (uint32_t i = 0; worker->fills && i < FILLS; i++) {
        if (worker->fills->slots[i].shard == shard)
            release(&worker->fills->slots[i]);
    }
}

uint64_t worker_fill_held(const struct worker *worker)
{
    uint64_t since = RECLAIM_NOTHING;
    for (uint32_t i = 0; worker->fills && i < FILLS; i++) {
        const struct fill *fill = &worker->fills->slots[i];
        if (fill->shard && fill->since < since)
            since = fill->since;
    }
    return since;
}

void worker_fill_close(struct worker *worker)
{
    for (uint32_t i = 0; worker->fills && i < FILLS; i++)
        release(&worker->fills->slots[i]);
    free(worker->fills);
}
