/* Rowan sends and landing zones of the simulated network. Blocks stay in the sender's memory until
 * they land (F4), and land one after another in the peer's open segment, a few in each poll of the
 * sender. The end of a batch starts a fence of the peer's PM; LANDED follows when that is done
 * (F2).
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/fault.h"
#include "test/sim/sim_fabric_state.h"

enum { MAX_BLOCKS_PER_STEP = 16, MIN_DEPTH = 2, MAX_DEPTH = 1024 };

/* --- zone --- */

int sim_zone_open(struct fabric_endpoint *head, struct pm *pm, uint32_t depth,
                  struct fabric_zone **out)
{
    struct sim_endpoint *endpoint = (struct sim_endpoint *)head;
    if (depth < MIN_DEPTH || depth > MAX_DEPTH || endpoint->zone ||
        !sim_fabric_registered(endpoint->fabric, pm->base, pm->bytes))
        return ROWAN_EINVALID;
    struct sim_zone *zone = calloc(1, sizeof *zone);
    ASSERT(zone);
    zone->posted = calloc(depth, sizeof *zone->posted);
    ASSERT(zone->posted);
    zone->head.ops = head->ops;
    zone->endpoint = endpoint;
    zone->pm = pm;
    zone->depth = depth;
    endpoint->zone = zone;
    *out = &zone->head;
    return 0;
}

void sim_zone_close(struct fabric_zone *head)
{
    struct sim_zone *zone = (struct sim_zone *)head;
    zone->endpoint->zone = NULL;
    free(zone->posted);
    free(zone);
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

int sim_zone_post(struct fabric_zone *head, uint64_t offset, uint64_t context)
{
    struct sim_zone *zone = (struct sim_zone *)head;
    if (offset % FABRIC_STRIDE || offset > zone->pm->bytes ||
        FABRIC_SEGMENT_BYTES > zone->pm->bytes - offset)
        return ROWAN_EINVALID;
    if (zone->count - zone->reported == zone->depth)
        return ROWAN_EAGAIN;
    ASSERT(is_zero(zone->pm->base + offset, FABRIC_SEGMENT_BYTES));
    zone->posted[zone->count++ % zone->depth] = (struct sim_posted){offset, context};
    return 0;
}

bool sim_zone_next(struct sim_zone *zone, struct fabric_event *event)
{
    if (zone->reported == zone->sealed)
        return false;
    *event = (struct fabric_event){
        .kind = FABRIC_SEALED,
        .quiet = true,
        .context = zone->posted[zone->reported++ % zone->depth].context,
    };
    return true;
}

/* False: the zone is dry. */
static bool zone_land(struct sim_zone *zone, const struct sim_block *block)
{
    if (zone->tail + block->bytes > FABRIC_SEGMENT_BYTES && zone->sealed < zone->count) {
        zone->sealed++;
        zone->tail = 0;
    }
    if (zone->sealed == zone->count)
        return false;
    uint64_t offset = zone->posted[zone->sealed % zone->depth].offset + zone->tail;
    pm_store(zone->pm, offset, block->data, block->bytes);
    zone->tail += block->bytes;
    return true;
}

/* --- sending --- */

static uint64_t ring_size(const struct sim_conn *conn)
{
    /* Each batch that ends has at least one block. */
    return 2 * (uint64_t)sim_network_of(conn)->options.max_batch_blocks;
}

static struct sim_block *ring_at(const struct sim_conn *conn, uint64_t position)
{
    return &conn->blocks[position % ring_size(conn)];
}

uint64_t sim_rowan_at_ns(const struct sim_conn *conn)
{
    return ring_at(conn, conn->block_landed)->at_ns;
}

uint32_t sim_rowan_room(const struct fabric_conn *head)
{
    const struct sim_conn *conn = (const struct sim_conn *)head;
    return sim_network_of(conn)->options.max_batch_blocks - conn->blocks_in_flight;
}

static void ring_push(struct sim_conn *conn, const struct sim_block *block)
{
    ASSERT(conn->block_added - conn->block_landed < ring_size(conn));
    *ring_at(conn, conn->block_added++) = *block;
}

int sim_rowan_add(struct fabric_conn *head, const void *block, uint32_t bytes)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    const struct sim_network *network = sim_network_of(conn);
    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (!head->has_zone || bytes == 0 || bytes % FABRIC_STRIDE ||
        bytes > network->options.block_limit ||
        !sim_fabric_registered(conn->endpoint->fabric, block, bytes))
        return ROWAN_EINVALID;
    if (sim_rowan_room(head) == 0)
        return ROWAN_EAGAIN;
    if (!conn->blocks) {
        conn->blocks = calloc(ring_size(conn), sizeof *conn->blocks);
        ASSERT(conn->blocks);
    }
    ring_push(conn, &(struct sim_block){.data = block, .bytes = bytes});
    conn->blocks_in_flight++;
    conn->batch_blocks++;
    return 0;
}

int sim_rowan_post(struct fabric_conn *head, uint64_t context)
{
    struct sim_conn *conn = (struct sim_conn *)head;
    if (conn->state != CONN_OPEN)
        return ROWAN_ECLOSED;
    if (conn->batch_blocks == 0)
        return 0;
    ring_push(conn, &(struct sim_block){.context = context, .batch_blocks = conn->batch_blocks});
    conn->batch_blocks = 0;
    conn->block_posted = conn->block_added;
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
    network->progress++;
    for (; conn->block_flushed < conn->block_posted; conn->block_flushed++)
        ring_at(conn, conn->block_flushed)->at_ns = at_ns;
}

/* --- landing --- */

/* False if it cannot land now. */
static bool land(struct sim_conn *conn, const struct sim_block *block)
{
    struct sim_network *network = sim_network_of(conn);
    struct sim_zone *zone = conn->peer->endpoint->zone;
    if (!zone || !zone_land(zone, block)) {
        network->counts.dry++;
        return false;
    }
    const uint64_t words[] = {sim_network_now(network), conn->peer->endpoint->fabric->number,
                              conn->endpoint->fabric->number, block->bytes};
    sim_network_mix(network, words, sizeof words);
    sim_network_mix(network, block->data, block->bytes);
    network->counts.blocks++;
    network->counts.mixed += zone->lander && zone->lander != conn && zone->lander_in_batch;
    zone->lander = conn;
    zone->lander_in_batch = true;
    return true;
}

/* False while the fence is not done. */
static bool end_batch(struct sim_conn *conn, const struct sim_block *end)
{
    struct sim_zone *zone = conn->peer->endpoint->zone;
    if (!zone)
        return false;
    if (!conn->fencing) {
        conn->ticket = pm_fence_start(zone->pm);
        conn->fencing = true;
        if (zone->lander == conn)
            zone->lander_in_batch = false;
    }
    int done = MUTANT(LANDING_UNFENCED) ? 1 : pm_fence_done(zone->pm, conn->ticket);
    ASSERT(done >= 0);
    if (!done)
        return false;
    conn->fencing = false;
    conn->blocks_in_flight -= end->batch_blocks;
    sim_conn_push(conn, FABRIC_LANDED, 0, end->context);
    return true;
}

void sim_rowan_step(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    if (conn->state != CONN_OPEN || conn->block_landed == conn->block_flushed)
        return;
    uint64_t budget = 1 + random_below(&network->random, MAX_BLOCKS_PER_STEP);
    uint64_t before = conn->block_landed;
    while (budget > 0 && conn->block_landed < conn->block_flushed &&
           sim_rowan_at_ns(conn) <= sim_network_now(network)) {
        const struct sim_block *block = ring_at(conn, conn->block_landed);
        if (!(block->bytes ? land(conn, block) : end_batch(conn, block)))
            break;
        conn->block_landed++;
        budget--;
    }
    network->progress += conn->block_landed - before;
}

void sim_rowan_cut(struct sim_conn *conn)
{
    struct sim_network *network = sim_network_of(conn);
    uint64_t on_the_way = conn->block_flushed - conn->block_landed;
    if (on_the_way == 0)
        return;
    uint64_t landing = random_below(&network->random, on_the_way + 1);
    for (; landing > 0; landing--) {
        const struct sim_block *block = ring_at(conn, conn->block_landed);
        if (block->bytes && !land(conn, block))
            break;
        conn->block_landed++;
    }
    network->counts.lost += conn->block_flushed - conn->block_landed;
    conn->block_landed = conn->block_flushed;
}
