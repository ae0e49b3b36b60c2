/* Rowan sends of the simulated network: what is on its way from a connection to its peer's landing zone.
 *
 * Blocks stay in the sender's memory until they land (F4), in the order in which they were added (F1). Who
 * stores them is the receiver in his poll, a block at a time, as tcp does; or (one_sided) the sender in his, who
 * takes space for several at once, as shm does. The end of a batch starts a fence of the peer's PM; LANDED follows
 * when that is done (F2).
 *
 * When a connection is cut, the first so many of its blocks go into a wreck on the side that hears of it: they may
 * still land there until then, whatever the sender thinks. The last of them may be torn.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "test/sim/sim_fabric_state.h"

enum { MAX_BLOCKS_PER_STEP = 16, FIRST_RING_ROOM = 32 };

/* --- the ring --- */

static struct sim_block *ring_at(const struct sim_conn *conn, uint64_t position)
{
    return &conn->blocks[position & (conn->ring_room - 1)];
}

static void ring_grow(struct sim_conn *conn)
{
    struct sim_conn old = *conn;
    conn->ring_room = old.ring_room ? 2 * old.ring_room : FIRST_RING_ROOM;
    conn->blocks = calloc(conn->ring_room, sizeof *conn->blocks);
    ASSERT(conn->blocks);
    for (uint64_t at = old.block_fenced; at < old.block_added; at++)
        *ring_at(conn, at) = *ring_at(&old, at);
    free(old.blocks);
}

static void ring_push(struct sim_conn *conn, const struct sim_block *block)
{
    if (conn->block_added - conn->block_fenced == conn->ring_room)
        ring_grow(conn);
    *ring_at(conn, conn->block_added++) = *block;
}

/* --- sending --- */

static bool is_usable(const struct sim_conn *conn)
{
    return conn->state == CONN_OPEN || conn->state == CONN_CUT;
}

uint32_t sim_rowan_room(const struct fabric_conn *head)
{
    const struct sim_conn *conn = (const struct sim_conn *)head;
    return sim_network_of(conn)->options.max_batch_blocks - conn->blocks_in_flight;
}

int sim_rowan_add(struct fabric_conn *head, const void *block, uint32_t bytes)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    const struct sim_network *network = sim_network_of(conn);
    if (!is_usable(conn))
        return ROWAN_ECLOSED;
    if (!head->has_zone || bytes == 0 || bytes % FABRIC_STRIDE ||
        bytes > network->options.block_limit ||
        !sim_fabric_registered(conn->endpoint->fabric, block, bytes))
        return ROWAN_EINVALID;
    if (sim_rowan_room(head) == 0)
        return ROWAN_EAGAIN;
    ring_push(conn, &(struct sim_block){.data = block, .bytes = bytes});
    conn->blocks_in_flight++;
    conn->batch_blocks++;
    return 0;
}

int sim_rowan_post(struct fabric_conn *head, uint64_t context)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    if (!is_usable(conn))
        return ROWAN_ECLOSED;
    if (conn->batch_blocks == 0)
        return 0;
    ring_push(conn, &(struct sim_block){.context = context, .batch_blocks = conn->batch_blocks});
    conn->batch_blocks = 0;
    conn->block_posted = conn->block_added;
    sim_conn_dirty(conn);
    return 0;
}

void sim_rowan_flush(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    if (conn->state != CONN_OPEN || conn->block_flushed == conn->block_posted)
        return;
    uint64_t at_ns = sim_network_now(network) + sim_network_delay(network);
    if (at_ns < conn->last_block_at_ns)
        at_ns = conn->last_block_at_ns;
    conn->last_block_at_ns = at_ns;
    for (; conn->block_flushed < conn->block_posted; conn->block_flushed++)
        ring_at(conn, conn->block_flushed)->at_ns = at_ns;
    network->progress++;
    sim_alarm(network, at_ns);
    sim_conn_wake(network->options.one_sided ? conn : conn->peer);
}

/* --- landing --- */

/* When what would arrive at the peer at `at_ns` does. */
static uint64_t path_at(const struct sim_conn *sender, uint64_t at_ns)
{
    return sim_path_at(sim_network_of(sender), sender->endpoint->fabric->host, sender->remote,
                       at_ns);
}

/* How many bytes the sender takes at once: some of the blocks of one batch that have arrived and fit. */
static uint32_t claim_bytes(const struct sim_conn *sender, const struct sim_zone *zone)
{
    struct sim_network *network = sim_network_of(sender);
    uint32_t bytes = sim_zone_slot(zone, ring_at(sender, sender->block_landed)->bytes);
    uint32_t room = sim_zone_room(zone);
    if (!network->options.one_sided)
        return bytes;
    uint64_t most = random_below(&network->random, MAX_BLOCKS_PER_STEP);
    uint64_t at = sender->block_landed + 1;
    for (; most > 0 && at < sender->block_flushed; most--, at++) {
        const struct sim_block *block = ring_at(sender, at);
        const uint32_t slot = sim_zone_slot(zone, block->bytes);
        if (block->bytes == 0 || bytes + slot > room)
            break;
        bytes += slot;
    }
    return bytes;
}

/* False: the zone is dry. */
static bool claim(struct sim_conn *sender, struct sim_zone *zone)
{
    struct sim_lander *lander = &sender->lander;
    struct sim_block *block = ring_at(sender, sender->block_landed);
    uint32_t first = sim_zone_slot(zone, block->bytes);
    lander->fabric = sender->endpoint->fabric->number;
    lander->conn_number = sender->number;
    lander->who = sender->identity;
    lander->ends_with_conn = !sim_network_of(sender)->options.one_sided;
    if (first > sim_zone_room(zone))
        sim_zone_seal_early(zone);
    if (!sim_zone_claim(zone, lander, claim_bytes(sender, zone), first)) {
        sim_network_of(sender)->counts.dry++;
        return false;
    }
    sim_lander_begin(lander, block, block->bytes);
    return true;
}

/* The end of a batch: its fence starts. */
static void end_batch(struct sim_conn *sender, struct sim_block *end, struct sim_zone *zone)
{
    end->ticket = pm_fence_start(zone->pm);
    if (zone->last_conn == sender->number)
        zone->last_in_batch = false;
}

/* The next block of the sender, or the end of a batch, one step. LANDING_WAITS: not now. */
static enum sim_landing step_block(struct sim_conn *sender)
{
    struct sim_block *block = ring_at(sender, sender->block_landed);
    struct sim_zone *zone =
        sender->lander.zone ? sender->lander.zone : sender->peer->endpoint->zone;
    if (!zone || path_at(sender, block->at_ns) > sim_network_now(sim_network_of(sender)))
        return LANDING_WAITS;
    if (!block->bytes) {
        end_batch(sender, block, zone);
        sender->block_landed++;
        return LANDING_DONE;
    }
    if (!sender->lander.zone) {
        if (!claim(sender, zone))
            return LANDING_WAITS;
    }
    enum sim_landing landing = sim_lander_step(&sender->lander);
    if (landing == LANDING_WAITS)
        return landing;
    sender->block_landed++;
    if (sender->lander.zone) {
        block = ring_at(sender, sender->block_landed);
        sim_lander_begin(&sender->lander, block, block->bytes);
    }
    return landing;
}

static void report_landed(struct sim_conn *sender)
{
    struct sim_zone *zone = sender->peer->endpoint->zone;
    while (zone && sender->block_fenced < sender->block_landed) {
        const struct sim_block *block = ring_at(sender, sender->block_fenced);
        if (!block->bytes) {
            int done = pm_fence_done(zone->pm, block->ticket);
            ASSERT(done >= 0);
            if (!done)
                return;
            sender->blocks_in_flight -= block->batch_blocks;
            sim_conn_push(sender, FABRIC_LANDED, block->context);
        }
        sender->block_fenced++;
    }
}

static bool is_cut_block_old(const struct sim_conn *sender)
{
    return sender->lander.zone && sender->lander.ends_with_conn &&
           sim_network_now(sim_network_of(sender)) >= sender->lander.since_ns + SIM_CUT_NS;
}

/* What is on its way from the sender. A sender whose connection was cut is at most in the middle of a store. */
static void step_sender(struct sim_conn *sender)
{
    struct sim_network *network = sim_network_of(sender);
    uint64_t budget = 1 + random_below(&network->random, MAX_BLOCKS_PER_STEP);
    enum sim_landing landing = LANDING_DONE;
    while (budget-- > 0 && landing == LANDING_DONE &&
           sender->block_landed < sender->block_flushed && (sender->peer || sender->lander.zone))
        landing = step_block(sender);
    if (landing == LANDING_VOID) { /* what comes behind must not land where that did not */
        sender->block_landed = sender->block_flushed;
        sim_conn_fail(sender);
        return;
    }
    if (sender->peer)
        report_landed(sender);
    if (is_cut_block_old(sender))
        sim_conn_break(sender);
}

/* --- wrecks --- */

static void step_wreck(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    struct sim_wreck *wreck = conn->wreck;
    struct sim_lander *lander = &wreck->lander;
    struct sim_zone *zone = conn->endpoint->zone;
    for (; zone && wreck->next < wreck->count; wreck->next++) {
        const struct sim_block *block = &wreck->blocks[wreck->next];
        if (sim_path_at(network, conn->remote, conn->endpoint->fabric->host, block->at_ns) >
            sim_network_now(network))
            return;
        if (!lander->zone) {
            const uint32_t slot = sim_zone_slot(zone, block->bytes);
            if (!sim_zone_claim(zone, lander, slot, slot)) {
                network->counts.dry++;
                return;
            }
            sim_lander_begin(lander, block, block->batch_blocks);
        }
        if (sim_lander_step(lander) == LANDING_WAITS)
            return;
        network->counts.late += sim_network_now(network) >= wreck->given_up_ns;
    }
}

static uint64_t wreck_due_ns(const struct sim_conn *conn)
{
    const struct sim_wreck *wreck = conn->wreck;
    if (!wreck || wreck->next == wreck->count ||
        (wreck->lander.zone && wreck->lander.stored == wreck->lander.limit))
        return WAKE_NEVER;
    uint64_t at_ns = sim_path_at(sim_network_of(conn), conn->remote, conn->endpoint->fabric->host,
                                 wreck->blocks[wreck->next].at_ns);
    return wreck->lander.zone && at_ns < wreck->lander.resume_ns ? wreck->lander.resume_ns : at_ns;
}

static void end_wreck(struct sim_conn *conn)
{
    struct sim_wreck *wreck = conn->wreck;
    if (!wreck)
        return;
    sim_lander_end(&wreck->lander);
    sim_network_of(conn)->counts.lost += wreck->count - wreck->next;
    for (uint32_t i = 0; i < wreck->count; i++)
        free((void *)(uintptr_t)wreck->blocks[i].data);
    free(wreck);
    conn->wreck = NULL;
}

/* Copies the blocks from `block_landed` on that still land. */
static uint32_t copy_blocks(const struct sim_conn *sender, struct sim_wreck *wreck, uint64_t keep,
                            uint64_t shift_ns)
{
    uint32_t count = 0;
    for (uint64_t at = sender->block_landed; at < sender->block_flushed && count < keep; at++) {
        struct sim_block block = *ring_at(sender, at);
        if (!block.bytes)
            continue;
        uint8_t *data = malloc(block.bytes);
        ASSERT(data);
        memcpy(data, block.data, block.bytes);
        block.data = data;
        if (block.at_ns < shift_ns)
            block.at_ns = shift_ns;
        sim_alarm(sim_network_of(sender), block.at_ns);
        block.batch_blocks = block.bytes; /* how much of it lands */
        wreck->blocks[count++] = block;
    }
    return count;
}

/* The store that was going on goes on in the wreck. */
static void move_lander(struct sim_conn *sender, struct sim_wreck *wreck)
{
    if (!sender->lander.zone)
        return;
    wreck->lander = sender->lander;
    wreck->lander.data = wreck->blocks[0].data;
    wreck->lander.limit = wreck->blocks[0].batch_blocks;
    sender->lander.zone = NULL;
    sim_lander_moved(&wreck->lander);
}

static uint64_t count_blocks(const struct sim_conn *sender)
{
    uint64_t count = 0;
    for (uint64_t at = sender->block_landed; at < sender->block_flushed; at++)
        count += ring_at(sender, at)->bytes > 0;
    return count;
}

static void make_wreck(struct sim_conn *sender, bool gave_up)
{
    struct sim_network *network = sim_network_of(sender);
    struct sim_conn *peer = sender->peer;
    uint64_t count = count_blocks(sender), now_ns = sim_network_now(network);
    uint64_t keep = random_below(&network->random, count + 1), shift_ns = 0;
    bool torn = keep < count && (sender->lander.zone || random_below(&network->random, 2));
    if (peer->closes_ns > now_ns && random_below(&network->random, 2))
        shift_ns = now_ns + random_below(&network->random, peer->closes_ns - now_ns);
    network->counts.lost += count - keep - torn;
    if (keep + torn == 0)
        return;
    struct sim_wreck *wreck = calloc(1, sizeof *wreck + (keep + torn) * sizeof wreck->blocks[0]);
    ASSERT(wreck);
    wreck->given_up_ns = gave_up ? now_ns : sender->closes_ns;
    wreck->count = copy_blocks(sender, wreck, keep + torn, shift_ns);
    wreck->lander.ends_with_conn = true;
    wreck->lander.fabric = sender->endpoint->fabric->number;
    wreck->lander.conn_number = sender->number;
    if (torn) {
        struct sim_block *last = &wreck->blocks[wreck->count - 1];
        uint32_t least = keep == 0 && sender->lander.zone ? sender->lander.stored : 0;
        last->batch_blocks = least + (uint32_t)random_below(&network->random, last->bytes - least);
    }
    move_lander(sender, wreck);
    peer->wreck = wreck;
    sim_conn_wake(peer);
}

/* A part of what the sender was storing gets there, then nothing. */
static void tear(struct sim_conn *sender)
{
    struct sim_lander *lander = &sender->lander;
    uint32_t left = lander->limit - lander->stored;
    sim_lander_store(lander, (uint32_t)random_below(&sim_network_of(sender)->random, left + 1));
    sim_lander_end(lander);
}

void sim_rowan_cut(struct sim_conn *sender, bool lands, bool gave_up)
{
    struct sim_network *network = sim_network_of(sender);
    bool stopped = network->hosts[sender->endpoint->fabric->host].stopped;
    if (sender->lander.zone && network->options.one_sided) {
        /* His process stores itself: it knows nothing of it yet, but a network in between may. */
        if (!stopped && !gave_up && random_below(&network->random, 2))
            tear(sender);
    } else if (lands && sender->peer->endpoint->zone) {
        make_wreck(sender, gave_up);
    } else {
        sim_lander_end(&sender->lander);
        network->counts.lost += count_blocks(sender);
    }
    if (!sender->lander.zone)
        sender->block_landed = sender->block_flushed;
    sim_conn_wake(sender);
}

/* A sender who hears of the end in the middle of a store gets to its end; one that is killed does not. */
void sim_rowan_end(struct sim_conn *conn, bool by_owner)
{
    struct sim_lander *lander = &conn->lander;
    bool open = path_at(conn, 0) <= sim_network_now(sim_network_of(conn));
    while (lander->zone && !by_owner && open) {
        sim_lander_store(lander, lander->limit - lander->stored);
        conn->block_landed++;
        if (lander->at == lander->end)
            sim_lander_end(lander);
        else
            sim_lander_begin(lander, ring_at(conn, conn->block_landed),
                             ring_at(conn, conn->block_landed)->bytes);
    }
    if (lander->zone)
        tear(conn);
    conn->block_landed = conn->block_flushed;
    end_wreck(conn);
}

void sim_rowan_stop(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    struct sim_lander *lander = &conn->lander;
    if (!network->options.one_sided || conn->state != CONN_OPEN || lander->zone ||
        conn->block_landed == conn->block_flushed || !ring_at(conn, conn->block_landed)->bytes)
        return;
    struct sim_zone *zone = conn->peer->endpoint->zone;
    if (!zone || path_at(conn, 0) > sim_network_now(network) ||
        random_below(&network->random, 4) == 0)
        return;
    if (random_below(&network->random, 2))
        sim_zone_seal_early(zone);
    if (!claim(conn, zone))
        return;
    /* It may not have stored a byte yet. */
    if (random_below(&network->random, 2))
        sim_lander_store(lander, (uint32_t)random_below(&network->random, lander->limit));
    if (random_below(&network->random, 2))
        sim_zone_seal_early(zone);
}

/* --- polling --- */

static const struct sim_conn *sender_of(const struct sim_conn *conn)
{
    return sim_network_of(conn)->options.one_sided ? conn : conn->peer;
}

static bool sender_rests(const struct sim_conn *sender)
{
    return !sender || (!sender->lander.zone &&
                       (!sender->peer || sender->block_fenced == sender->block_flushed));
}

bool sim_rowan_rests(const struct sim_conn *conn)
{
    return !conn->wreck && sender_rests(sender_of(conn));
}

void sim_rowan_step(struct sim_conn *conn)
{
    struct sim_conn *sender = sim_network_of(conn)->options.one_sided ? conn : conn->peer;
    if (!sender_rests(sender))
        step_sender(sender);
    if (conn->wreck)
        step_wreck(conn);
}

void sim_rowan_arrive(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    struct sim_conn *sender = conn->peer;
    /* A stopped process stores nothing itself. */
    if (!sender_rests(sender) &&
        !(network->options.one_sided && network->hosts[sender->endpoint->fabric->host].stopped))
        step_sender(sender);
    if (conn->wreck)
        step_wreck(conn);
}

static uint64_t sender_due_ns(const struct sim_conn *sender)
{
    if (sender_rests(sender))
        return WAKE_NEVER;
    if (sender->peer && sender->block_fenced < sender->block_landed)
        return 0;
    uint64_t at_ns = path_at(sender, ring_at(sender, sender->block_landed)->at_ns);
    if (sender->lander.zone && at_ns < sender->lander.resume_ns)
        at_ns = sender->lander.resume_ns;
    if (sender->lander.zone && sender->lander.ends_with_conn) {
        uint64_t old_ns = sender->lander.since_ns + SIM_CUT_NS;
        if (old_ns < at_ns) {
            sim_alarm(sim_network_of(sender), old_ns);
            return old_ns;
        }
    }
    return at_ns;
}

/* Is there something that can be stored into the zone now? `lander`: of whom it is. */
static bool can_store(const struct sim_lander *lander, const struct sim_zone *zone, uint64_t now_ns)
{
    if (!lander->zone)
        return zone && !sim_zone_is_dry(zone);
    return lander->resume_ns <= now_ns &&
           (lander->stored < lander->limit || lander->limit == lander->bytes);
}

static bool sender_has_work(const struct sim_conn *sender)
{
    if (sender_rests(sender))
        return false;
    const uint64_t now_ns = sim_network_now(sim_network_of(sender));
    const struct sim_zone *zone = sender->peer ? sender->peer->endpoint->zone : NULL;
    if (zone && sender->block_fenced < sender->block_landed &&
        (ring_at(sender, sender->block_fenced)->bytes ||
         pm_fence_done(zone->pm, ring_at(sender, sender->block_fenced)->ticket)))
        return true;
    if (is_cut_block_old(sender))
        return true;
    if (sender->block_landed == sender->block_flushed)
        return false;
    const struct sim_block *block = ring_at(sender, sender->block_landed);
    return path_at(sender, block->at_ns) <= now_ns &&
           (block->bytes ? can_store(&sender->lander, zone, now_ns) : zone != NULL);
}

bool sim_rowan_has_work(const struct sim_conn *conn)
{
    return sender_has_work(sender_of(conn)) ||
           (wreck_due_ns(conn) <= sim_network_now(sim_network_of(conn)) &&
            can_store(&conn->wreck->lander, conn->endpoint->zone, WAKE_NEVER));
}

uint64_t sim_rowan_due_ns(const struct sim_conn *conn)
{
    uint64_t sender_ns = sender_due_ns(sender_of(conn)), wreck_ns = wreck_due_ns(conn);
    return sender_ns < wreck_ns ? sender_ns : wreck_ns;
}
