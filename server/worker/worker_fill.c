/* Filling (design, section 6): a replica that fills gets every write from its first epoch on. What was before is copied here: items of
 * the index, tombstones included, then a stub of each completion record. Every epoch begins anew; what is there is not stored again.
 *
 * Invariants:
 *  Z5  Copying begins when the epoch has been reconciled: writes of earlier epochs have ended, the index shows each or a later one.
 *  Z6  What is not confirmed was not copied: it is sent again. A shard has one message on its way to a replica.
 *  Z7  Entries that were gathered and are not confirmed are held (reclaim.h).
 *  Z9  A fill that waits for memory or space gives its place to one that wants it, to a peer for which none waits.
 *  Z10 A replica is not full if anything was left out that cannot be read here: it is copied to anew after a while (README.md).
 *  Z11 Where a server is short of space, and cleans, a copy waits: puts go first. Where it is full, what finds space is copied.
 *  Z13 Where this server is short of space, and cleans, what Z7 holds goes at once, whatever the rate, so that segments are freed.
 *
 * Clients go first (pace.h). The rate holds for all COPY messages of the worker. A step of COPY reads what the one before prefetched.
 *
 *  COPY --(the walk over the index is over)--> RECORDS --(all are confirmed)--> LAST --(confirmed)--> DONE
 */
#include "server/worker/worker_fill.h"

#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "server/worker/pace.h"
#include "server/worker/worker_peer.h"

enum {
    FILLS = 8,
    FILL_BUCKETS = 16, /* gathered at once, some seven items in each, */
    FILL_ENTRIES = 64, /* and copied */
    FILL_RECORDS = 64
};

#define FILL_ROOM_RETRY_NS NS_PER_MS
#define FILL_RETRY_NS      (20 * NS_PER_MS)
#define FILL_SPACE_NS      NS_PER_S
#define FILL_DAMAGED_NS    (30 * NS_PER_S)
#define FILL_TELL_NS       (NS_PER_S / 2) /* until a configuration says that the replica is full */
#define FILL_RATE_NS       (NS_PER_S / 2) /* between two looks at how fast it goes */

enum fill_step { FILL_COPY, FILL_RECORDS_STEP, FILL_LAST, FILL_DONE };

struct fill {
    struct shard_state *shard; /* NULL: free */
    uint32_t epoch, peer;
    enum fill_step step;
    uint64_t cursor, from; /* of the walk; where what is gathered begins */
    bool walked;
    struct records_cursor records;
    uint64_t since;                /* Z7; RECLAIM_NOTHING */
    struct suffix found;           /* gathered */
    uint32_t next;                 /* the first that is not confirmed */
    uint32_t copied, copied_block; /* the first that is not in `blocks`, and its first block */
    struct block_list blocks;      /* the message */
    bool complete;                 /* nothing more is added to it */
    bool checks; /* its checksums are computed here too: the replica has found damage */
    bool rows_over;
    struct records_cursor rows_cursor; /* once they are confirmed */
    uint32_t tag;
    uint64_t retry_ns;
    uint64_t confirmed; /* items */
    uint64_t skipped;   /* that are damaged here (Z10) */
    int waits; /* for memory or space, here or there, or for what is damaged: the error; 0: not since the last confirmation */
};

struct fills {
    struct fill slots[FILLS];
    uint32_t turn; /* the slot whose turn it is */
    struct pace pace;
    uint64_t sent_bytes, sent_ns; /* the last message of COPY */
    uint64_t confirmed;           /* items of all slots, since the last look at the rate */
    uint64_t rate_ns;
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
    free(fill->blocks.data);
    *fill = (struct fill){.since = RECLAIM_NOTHING};
}

/* Logs that the fill waits, and that it goes on; each try again is none of both. */
static void note_wait(const struct worker *worker, struct fill *fill, int error)
{
    if (fill->waits == error)
        return;
    fill->waits = error;
    log_event(error ? LOG_WARN : LOG_INFO, error ? "filling_waits" : "filling_goes_on",
              "worker=%u shard=%u epoch=%u server=%u error=%s", worker->number, fill->shard->id,
              fill->epoch, worker->peers[fill->peer].server, error_name(error));
}

/* Likewise, of those that have not begun. */
static void note_memory(struct worker *worker, bool none)
{
    if (worker->fill_without_memory == none)
        return;
    worker->fill_without_memory = none;
    log_event(none ? LOG_WARN : LOG_INFO, none ? "filling_waits" : "filling_goes_on",
              "worker=%u error=%s", worker->number, error_name(none ? ROWAN_ENOMEM : 0));
}

/* Without memory, which it says by false, it is begun later. */
static bool begin_fill(struct worker *worker, struct fill *fill, struct shard_state *shard,
                       uint32_t peer)
{
    uint8_t *blocks = malloc(BLOCK_LIST_BYTES);
    if (!blocks)
        return false;
    *fill = (struct fill){.shard = shard,
                          .epoch = shard->epoch,
                          .peer = peer,
                          .since = RECLAIM_NOTHING,
                          .blocks.data = blocks};
    log_event(LOG_INFO, "filling", "worker=%u shard=%u epoch=%u server=%u", worker->number,
              shard->id, shard->epoch, worker->peers[peer].server);
    return true;
}

/* Z9. A free place, or the one of a fill that waits; NULL: there is none for a fill to this peer. */
static struct fill *find_place(struct worker *worker, uint32_t peer)
{
    struct fill *place = find(worker->fills, NULL, 0);
    if (place)
        return place;
    for (uint32_t i = 0; i < FILLS; i++) {
        struct fill *fill = &worker->fills->slots[i];
        if (!fill->waits)
            continue;
        if (fill->peer == peer)
            return NULL;
        if (!fill->tag)
            place = fill;
    }
    if (place)
        release(place);
    return place;
}

/* The next shards that want it, as long as there is a place. False: none does, nor will before the next configuration. */
static bool begin_some(struct worker *worker)
{
    bool any = false, memory = true;
    struct shard_state *shard;
    for (uint32_t i = 0; memory && (shard = worker_next_shard(worker, &i));) {
        any |= shard->full_count < shard->backup_count;
        if (!shard->begun || shard->ending || shard->deposed)
            continue;
        for (uint32_t j = shard->full_count; j < shard->backup_count && memory; j++) {
            if (is_filled(shard, j) || find(worker->fills, shard, shard->backups[j]))
                continue;
            struct fill *place = find_place(worker, shard->backups[j]);
            memory = !place || begin_fill(worker, place, shard, shard->backups[j]);
        }
    }
    note_memory(worker, !memory);
    return any;
}

/* --- COPY --- */

struct gathering {
    struct fill *fill;
    const struct pm *pm;
    int error;
};

/* Its version is read when it is copied. */
static void gather_item(void *context, uint64_t offset)
{
    struct gathering *gathering = context;
    __builtin_prefetch(pm_at(gathering->pm, offset));
    __builtin_prefetch((const uint8_t *)pm_at(gathering->pm, offset) + ENTRY_ALIGN);
    if (!gathering->error)
        gathering->error = suffix_add(&gathering->fill->found, UINT64_MAX, offset);
}

/* The next items; without memory none, and the walk stays where it is. */
static int gather(struct worker *worker, struct fill *fill)
{
    struct gathering gathering = {.fill = fill, .pm = worker->common->pm};
    uint64_t cursor = fill->cursor;
    const uint32_t before = fill->found.count;
    if (before == 0) {
        fill->since = worker->epoch;
        fill->from = cursor;
    }
    const bool more =
        index_walk(fill->shard->index, &cursor, FILL_BUCKETS, gather_item, &gathering);
    if (gathering.error) {
        fill->found.count = before;
        return gathering.error;
    }
    if (fill->found.count == 0)
        fill->since = RECLAIM_NOTHING;
    fill->walked = !more;
    fill->cursor = cursor;
    return 0;
}

/* Fills `header`; false: damaged. The checksum is left to the replica until that finds damage; lengths and shard are checked. */
static bool is_whole(const struct worker *worker, const struct fill *fill, const void *at,
                     size_t room, struct entry_header *header)
{
    const struct entry_format *format = &worker->common->format;
    const uint8_t *key;
    uint32_t bytes;
    const bool guessed = entry_guess(format, at, room, header, &key, &bytes) && header->blocks == 1;
    if ((fill->checks || !guessed) && entry_verify(format, at, room, header))
        return false;
    return header->shard == fill->shard->id;
}

/* The blocks of the next item, as many as find space. */
static void copy_item(struct worker *worker, struct fill *fill)
{
    const uint64_t offset = fill->found.items[fill->copied].offset;
    const uint8_t *at = pm_at(worker->common->pm, offset);
    const uint64_t room = STORE_SEGMENT_BYTES - offset % STORE_SEGMENT_BYTES;
    struct entry_header header;
    if (!is_whole(worker, fill, at, room, &header)) {
        log_event(LOG_ERROR, "entry_damaged", "worker=%u shard=%u offset=%lu", worker->number,
                  fill->shard->id, offset); /* a get of it is answered with the same */
        shard_found_damage(fill->shard, &worker->common->damages);
        fill->skipped++;
    } else if (!block_list_append(&fill->blocks, &worker->common->format, &header, at,
                                  &fill->copied_block)) {
        fill->complete = true;
        return;
    }
    fill->copied++;
    fill->copied_block = 0;
}

/* All that was gathered is in the message: should it take more? So few entries are split between two messages. */
static bool gathers_more(const struct fill *fill)
{
    return !fill->walked && fill->blocks.count < BLOCK_LIST_BLOCKS / 2 &&
           fill->blocks.bytes < BLOCK_LIST_BYTES / 2;
}

static void empty_message(struct fill *fill)
{
    fill->blocks.count = fill->blocks.bytes = 0;
    fill->complete = false;
}

/* Z6. What was copied is copied anew, from the first block of an entry on: what the replica has of it may be gone. */
static void take_back(struct fill *fill)
{
    fill->copied = fill->next;
    fill->copied_block = 0;
    empty_message(fill);
}

/* It goes on later with what the index names then. Servers without space would wait for each other for ever: none cleans a
 * segment into which offsets are held. */
static void let_go(struct fill *fill)
{
    take_back(fill);
    fill->since = RECLAIM_NOTHING;
    if (fill->found.count > 0) {
        fill->confirmed -= fill->next;
        fill->cursor = fill->from;
        fill->walked = false;
    }
    fill->found.count = fill->next = fill->copied = 0;
}

/* Errors: ROWAN_ENOMEM; those of control_message_send. */
static int copy(struct worker *worker, struct fill *fill, const struct worker_peer *peer)
{
    for (uint32_t i = 0; i < FILL_ENTRIES && fill->copied < fill->found.count && !fill->complete;
         i++)
        copy_item(worker, fill);
    if (!fill->complete && fill->copied < fill->found.count)
        return 0;
    if (!fill->complete && gathers_more(fill))
        return gather(worker, fill);
    fill->complete = true;
    if (fill->blocks.count == 0) {
        fill->since = RECLAIM_NOTHING;
        fill->step += fill->walked;
        return 0;
    }
    return worker_peer_bring(worker, peer, fill->shard, &fill->blocks, &fill->tag);
}

/* --- RECORDS, LAST --- */

/* A stub of each row, one block each, in the worker's buffer. Errors: those of control_message_send and records_list. */
static int bring_records(struct worker *worker, struct fill *fill, const struct worker_peer *peer)
{
    struct records_row rows[FILL_RECORDS];
    ProtobufCBinaryData data[FILL_RECORDS];
    Rowan__StoreEntries body = ROWAN__STORE_ENTRIES__INIT;
    uint8_t *at = worker->value;
    fill->rows_cursor = fill->records;
    const int count = records_list(&fill->shard->records, &fill->rows_cursor, rows, FILL_RECORDS,
                                   &fill->rows_over);
    for (int i = 0; i < count; i++) {
        if (rows[i].version == 0)
            continue; /* a client's lowest number comes with commit versions */
        const uint32_t bytes =
            entry_encode_record(&worker->common->format, fill->shard->id, rows[i].version,
                                rows[i].client, rows[i].operation, at);
        data[body.n_blocks++] = (ProtobufCBinaryData){.data = at, .len = bytes};
        at += bytes;
    }
    if (count >= 0 && body.n_blocks == 0) {
        fill->records = fill->rows_cursor;
        fill->step += fill->rows_over;
    }
    if (count < 0 || body.n_blocks == 0)
        return count < 0 ? count : 0;
    body.blocks = data;
    return worker_peer_store(worker, peer, fill->shard, &body, &fill->tag);
}

static int bring_last(struct worker *worker, struct fill *fill, const struct worker_peer *peer)
{
    Rowan__StoreEntries body = ROWAN__STORE_ENTRIES__INIT;
    body.last = true;
    return worker_peer_store(worker, peer, fill->shard, &body, &fill->tag);
}

/* Z10 */
static void copy_anew(struct worker *worker, struct fill *fill, uint64_t now_ns)
{
    let_go(fill);
    fill->step = FILL_COPY;
    fill->cursor = fill->confirmed = fill->skipped = 0;
    fill->walked = false;
    fill->records = (struct records_cursor){0};
    fill->retry_ns = now_ns + FILL_DAMAGED_NS;
    note_wait(worker, fill, ROWAN_EDAMAGED);
}

/* --- DONE --- */

static void finish(struct worker *worker, struct fill *fill)
{
    log_event(LOG_INFO, "filled", "worker=%u shard=%u epoch=%u server=%u items=%lu", worker->number,
              fill->shard->id, fill->epoch, worker->peers[fill->peer].server, fill->confirmed);
    fill->shard->filled |= UINT32_C(1) << backup_place(fill->shard, fill->peer);
    fill->step = FILL_DONE;
}

/* --- from step to step --- */

static bool is_stale(const struct fill *fill)
{
    const struct shard_state *shard = fill->shard;
    return !shard->begun || shard->ending || shard->deposed || shard->epoch != fill->epoch ||
           !backs(shard, fill->peer);
}

/* By the rate, which may have changed since the last message, and the space. */
static bool may_copy(struct worker *worker, struct fill *fill, uint64_t now_ns, uint64_t *wake_ns)
{
    const struct fills *fills = worker->fills;
    const struct worker_peer *peer = &worker->peers[fill->peer];
    const uint64_t rate = atomic_load_explicit(&worker->common->fill_rate, memory_order_relaxed);
    uint64_t paid_ns = rate ? fills->sent_ns + fills->sent_bytes * NS_PER_S / rate : 0;
    if (peer->space != SPACE_ENOUGH && !peer->full) { /* Z11 */
        let_go(fill);
        note_wait(worker, fill, ROWAN_EFULL);
        paid_ns = now_ns + FILL_RETRY_NS;
    } else if (fill->found.count > 0 && worker_cleans(worker)) {
        paid_ns = 0; /* Z13 */
    }
    if (now_ns < paid_ns)
        wake_at(wake_ns, paid_ns);
    return now_ns >= paid_ns;
}

static bool advance(struct worker *worker, struct fill *fill, uint64_t now_ns, uint64_t *wake_ns)
{
    const struct worker_peer *peer = &worker->peers[fill->peer];
    if (fill->tag || !peer->connected)
        return false;
    if (fill->step == FILL_LAST && fill->skipped > 0)
        copy_anew(worker, fill, now_ns);
    if (now_ns < fill->retry_ns) {
        wake_at(wake_ns, fill->retry_ns);
        return false;
    }
    if (fill->step == FILL_COPY && !may_copy(worker, fill, now_ns, wake_ns))
        return false;
    if (fill->step == FILL_DONE) {
        const struct command command = {
            .kind = COMMAND_FILLED,
            .filled = {.shard = fill->shard->id, .epoch = fill->epoch, .server = peer->server}};
        (void)command_push(&worker->role.outbox, &command); /* repeated */
        fill->retry_ns = now_ns + FILL_TELL_NS;
        return true;
    }
    const int error = fill->step == FILL_COPY           ? copy(worker, fill, peer)
                      : fill->step == FILL_RECORDS_STEP ? bring_records(worker, fill, peer)
                                                        : bring_last(worker, fill, peer);
    if (!error && fill->step == FILL_COPY && fill->tag) {
        worker->fills->sent_bytes = fill->blocks.bytes;
        worker->fills->sent_ns = now_ns;
    }
    if (!error)
        return true;
    if (error == ROWAN_ENOMEM) {
        let_go(fill);
        note_wait(worker, fill, error);
    }
    fill->retry_ns = now_ns + (error == ROWAN_EAGAIN ? FILL_ROOM_RETRY_NS : FILL_SPACE_NS);
    wake_at(wake_ns, fill->retry_ns);
    return false;
}

/* --- how fast --- */

/* Objects that are still to be confirmed. */
static uint64_t count_left(const struct worker *worker)
{
    uint64_t left = 0;
    const struct shard_state *shard;
    for (uint32_t i = 0; (shard = worker_next_shard(worker, &i));) {
        for (uint32_t j = shard->full_count; j < shard->backup_count; j++) {
            const struct fill *fill = find(worker->fills, shard, shard->backups[j]);
            const uint64_t items = index_items(shard->index), done = fill ? fill->confirmed : 0;
            if (!is_filled(shard, j) && items > done)
                left += items - done;
        }
    }
    return left;
}

/* Fills that wait for memory or space; those that have not begun for want of memory as one. */
static uint64_t count_waits(const struct worker *worker)
{
    uint64_t waits = worker->fill_without_memory;
    for (uint32_t i = 0; i < FILLS; i++)
        waits += worker->fills->slots[i].shard && worker->fills->slots[i].waits;
    return waits;
}

static void count_rate(struct worker *worker, uint64_t now_ns)
{
    struct fills *fills = worker->fills;
    const uint64_t passed_ns = now_ns - fills->rate_ns;
    const bool known = fills->rate_ns && worker->fill_wanted;
    if (passed_ns < FILL_RATE_NS && worker->fill_wanted)
        return;
    const uint64_t rate = known ? fills->confirmed * NS_PER_S / passed_ns : 0;
    counter_set(&worker->counts.fill_left, count_left(worker));
    counter_set(&worker->counts.fill_waits, count_waits(worker));
    counter_set(&worker->counts.fill_rate, rate);
    fills->rate_ns = worker->fill_wanted ? now_ns : 0;
    fills->confirmed = 0;
}

static bool make_fills(struct worker *worker)
{
    if (worker->fills)
        return true;
    worker->fills = calloc(1, sizeof *worker->fills);
    for (uint32_t i = 0; worker->fills && i < FILLS; i++)
        release(&worker->fills->slots[i]);
    return worker->fills;
}

bool worker_fill_poll(struct worker *worker, bool clients, uint64_t now_ns, uint64_t *wake_ns)
{
    if (!worker->fill_wanted)
        return false;
    if (!make_fills(worker)) {
        note_memory(worker, true);
        wake_at(wake_ns, now_ns + FILL_SPACE_NS);
        return false;
    }
    struct fills *fills = worker->fills;
    bool used = false;
    for (uint32_t i = 0; i < FILLS; i++) {
        if (fills->slots[i].shard && is_stale(&fills->slots[i]))
            release(&fills->slots[i]);
        used |= fills->slots[i].shard != NULL;
    }
    worker->fill_wanted = begin_some(worker) || used;
    wake_at(wake_ns, now_ns + FILL_SPACE_NS); /* also for those that found no memory */
    count_rate(worker, now_ns);
    if (!pace_may_step(&fills->pace, clients, now_ns, wake_ns))
        return false;
    for (uint32_t i = 0; i < FILLS; i++) {
        struct fill *fill = &fills->slots[fills->turn];
        fills->turn = (fills->turn + 1) % FILLS;
        if (fill->shard && advance(worker, fill, now_ns, wake_ns))
            return true;
    }
    fills->pace.stepped = false; /* all wait: the thread may sleep */
    return false;
}

/* --- answers --- */

/* Z6 */
static void confirmed(struct worker *worker, struct fill *fill)
{
    note_wait(worker, fill, 0);
    fill->checks = false;
    if (fill->step == FILL_COPY) {
        fill->confirmed += fill->copied - fill->next;
        worker->fills->confirmed += fill->copied - fill->next;
        fill->next = fill->copied;
        empty_message(fill);
        if (fill->next == fill->found.count) {
            fill->next = fill->copied = fill->found.count = 0;
            fill->since = RECLAIM_NOTHING;
        }
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
            take_back(fill);
            const bool check = error == ROWAN_EDAMAGED && !fill->checks;
            const bool soon = error == ROWAN_EAGAIN || error == ROWAN_EBUSY || check;
            fill->checks |= check;
            fill->retry_ns = now_ns + (soon ? FILL_RETRY_NS : FILL_SPACE_NS);
            if (!soon) {
                let_go(fill);
                note_wait(worker, fill, error);
            }
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
        let_go(fill);
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
        since = fill->shard && fill->since < since ? fill->since : since;
    }
    return since;
}

void worker_fill_close(struct worker *worker)
{
    for (uint32_t i = 0; worker->fills && i < FILLS; i++)
        release(&worker->fills->slots[i]);
    free(worker->fills);
}
