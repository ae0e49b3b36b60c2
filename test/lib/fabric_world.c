/* fabric_world.c - see fabric_world.h. */
#include "test/lib/fabric_world.h"
#include "common/base/clock.h"
#include "test/lib/asserts.h"

enum { POLL_EVENTS = 64, BLOCK_MARK = 0x426c6f00 };

#define WAIT_S 20

void world_open(struct world *world, const struct fabric_backend *backend, unsigned sides,
                uint64_t pm_bytes)
{
    world_open_some(world, backend, 0, sides, pm_bytes);
}

void side_take_role(struct world *world, unsigned index)
{
    struct fabric_endpoint *endpoint = world->sides[index].endpoint;
    struct fabric_identity identity = endpoint->identity;

    identity.role = world->roles++;
    fabric_endpoint_identity(endpoint, &identity);
}

void world_open_some(struct world *world, const struct fabric_backend *backend, unsigned first,
                     unsigned end, uint64_t pm_bytes)
{
    assert_true(end <= SIDE_MAX);
    *world = (struct world){.backend = backend, .side_count = end};
    for (unsigned i = first; i < end; i++) {
        struct side *side = &world->sides[i];
        const struct fabric_identity identity = {
            .cluster = 7, .term = 3, .incarnation = 100 + i, .id = i, .kind = FABRIC_SERVER};
        assert_int_equal(backend->fabric_make(backend->context, i, &side->fabric), 0);
        side->caps = *fabric_caps(side->fabric);
        assert_int_equal(backend->pm_make(backend->context, pm_bytes, &side->pm), 0);
        assert_int_equal(fabric_register(side->fabric, side->pm), 0);
        assert_int_equal(fabric_endpoint_open(side->fabric, 0, &side->endpoint), 0);
        fabric_endpoint_identity(side->endpoint, &identity);
        side->events = calloc(SIDE_EVENTS, sizeof *side->events);
        assert_non_null(side->events);
    }
}

void side_close(struct world *world, unsigned index)
{
    struct side *side = &world->sides[index];

    fabric_endpoint_close(side->endpoint);
    fabric_close(side->fabric);
    side->endpoint = NULL;
    side->fabric = NULL;
    side->zone = NULL;
}

void world_close(struct world *world)
{
    for (unsigned i = 0; i < world->side_count; i++)
        side_close(world, i);
    for (unsigned i = 0; i < world->side_count; i++) {
        pm_close(world->sides[i].pm);
        free(world->sides[i].events);
    }
}

void side_poll(struct world *world, unsigned index)
{
    struct side *side = &world->sides[index];
    unsigned room = SIDE_EVENTS - side->event_count;

    if (!side->endpoint)
        return;
    assert_true(room > 0);
    side->event_count +=
        fabric_poll(side->endpoint, world->backend->now_ns(world->backend->context),
                    side->events + side->event_count, room < POLL_EVENTS ? room : POLL_EVENTS);
    fabric_flush(side->endpoint);
}

void world_poll(struct world *world)
{
    for (unsigned i = 0; i < world->side_count; i++)
        side_poll(world, i);
}

void world_poll_times(struct world *world, unsigned times)
{
    while (times-- > 0)
        world_poll(world);
}

uint32_t side_count(struct side *side, enum fabric_event_kind kind)
{
    for (; side->counted < side->event_count; side->counted++)
        side->counts[side->events[side->counted].kind]++;
    return side->counts[kind];
}

void side_forget(struct side *side)
{
    side->event_count = side->counted = 0;
    memset(side->counts, 0, sizeof side->counts);
}

const struct fabric_event *side_event(const struct side *side, enum fabric_event_kind kind,
                                      uint32_t nth)
{
    for (uint32_t i = 0; i < side->event_count; i++) {
        if (side->events[i].kind == kind && nth-- == 0)
            return &side->events[i];
    }
    fail_msg("no event number %u of kind %d", nth, (int)kind);
    return NULL;
}

void world_wait(struct world *world, unsigned index, enum fabric_event_kind kind, uint32_t count)
{
    const uint64_t wait_s = world->backend->wait_s ? world->backend->wait_s : WAIT_S;
    const uint64_t end_ns = world->backend->now_ns(world->backend->context) + wait_s * NS_PER_S;

    while (side_count(&world->sides[index], kind) < count) {
        if (world->backend->now_ns(world->backend->context) > end_ns)
            fail_msg("side %u had %u of %u events of kind %d", index,
                     side_count(&world->sides[index], kind), count, (int)kind);
        world_poll(world);
    }
}

void side_open_zone(struct world *world, unsigned index, uint32_t depth, uint32_t posted)
{
    struct side *side = &world->sides[index];

    assert_int_equal(fabric_zone_open(side->endpoint, side->pm, depth, &side->zone), 0);
    for (uint32_t i = 0; i < posted; i++)
        assert_int_equal(fabric_zone_post(side->zone, (uint64_t)i * FABRIC_SEGMENT_BYTES, i), 0);
}

void world_connect(struct world *world, unsigned from, unsigned to, uint64_t context,
                   struct fabric_conn **active, struct fabric_conn **passive)
{
    struct side *a = &world->sides[from], *b = &world->sides[to];
    const uint32_t connected = side_count(a, FABRIC_CONNECTED);
    const uint32_t accepted = side_count(b, FABRIC_ACCEPTED);

    side_take_role(world, from);
    assert_int_equal(fabric_connect(a->endpoint,
                                    world->backend->address(world->backend->context, to), 0,
                                    context, active),
                     0);
    world_wait(world, from, FABRIC_CONNECTED, connected + 1);
    world_wait(world, to, FABRIC_ACCEPTED, accepted + 1);
    assert_ptr_equal(side_event(a, FABRIC_CONNECTED, connected)->conn, *active);
    *passive = side_event(b, FABRIC_ACCEPTED, accepted)->conn;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    return x;
}

void pattern_fill(void *to, uint32_t bytes, uint64_t seed)
{
    uint8_t *out = to;

    for (uint32_t at = 0; at < bytes; at += 8) {
        const uint64_t word = mix(seed * 1000003 + at + 1);

        memcpy(out + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
}

bool pattern_is(const void *data, uint32_t bytes, uint64_t seed)
{
    const uint8_t *in = data;

    for (uint32_t at = 0; at < bytes; at += 8) {
        const uint64_t word = mix(seed * 1000003 + at + 1);

        if (memcmp(in + at, &word, bytes - at < 8 ? bytes - at : 8) != 0)
            return false;
    }
    return true;
}

static uint64_t block_seed(uint32_t sender, uint32_t number)
{
    return (uint64_t)sender << 32 | number;
}

void block_fill(void *to, uint32_t sender, uint32_t number, uint32_t bytes)
{
    const struct block_head head = {
        .mark = BLOCK_MARK, .sender = sender, .number = number, .bytes = bytes};

    pattern_fill(to, bytes, block_seed(sender, number));
    memcpy(to, &head, sizeof head);
}

int world_add_block(struct world *world, unsigned sender, struct fabric_conn *conn, uint64_t at,
                    uint32_t number, uint32_t bytes)
{
    static _Thread_local uint8_t block[64 << 10];
    struct pm *pm = world->sides[sender].pm;

    block_fill(block, sender, number, bytes);
    pm_store(pm, at, block, bytes);
    return fabric_rowan_add(conn, pm_at(pm, at), bytes);
}

bool block_is_whole(const void *data, uint64_t room, struct block_head *head)
{
    static _Thread_local uint8_t expected[64 << 10];
    struct block_head found;

    memcpy(&found, data, sizeof found);
    if (found.mark != BLOCK_MARK || found.bytes < sizeof found || found.bytes > sizeof expected ||
        found.bytes > room)
        return false;
    pattern_fill(expected, found.bytes, block_seed(found.sender, found.number));
    memcpy(expected, &found, sizeof found);
    if (memcmp(data, expected, found.bytes) != 0)
        return false;
    *head = found;
    return true;
}

uint32_t side_slot(const struct side *side, uint32_t bytes)
{
    const uint32_t stride = side->caps.landing_stride;

    return (bytes + stride - 1) & ~(stride - 1);
}

uint32_t side_fit(const struct side *side, uint32_t bytes)
{
    return FABRIC_SEGMENT_BYTES / side_slot(side, bytes);
}

static bool is_zero(const uint8_t *bytes, uint64_t count)
{
    return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

static bool is_void(const struct side *side, const uint8_t *at)
{
    for (uint32_t i = 0; i < side->event_count; i++) {
        const struct fabric_event *event = &side->events[i];
        const uint8_t *from = event->data;

        if (event->kind == FABRIC_VOID && at >= from && at < from + event->bytes)
            return true;
    }
    return false;
}

uint32_t world_count_blocks(const struct world *world, unsigned side, uint32_t segments,
                            unsigned sender)
{
    const struct side *owner = &world->sides[side];
    const uint64_t end = (uint64_t)segments * FABRIC_SEGMENT_BYTES;
    uint32_t count = 0;

    for (uint64_t at = 0; at < end; at += FABRIC_STRIDE) {
        const uint8_t *place = pm_at(owner->pm, at);
        struct block_head head;

        count += block_is_whole(place, end - at, &head) && head.sender == sender &&
                 !is_void(owner, place);
    }
    return count;
}

uint32_t world_walk_segment(const struct world *world, unsigned side, uint32_t segment,
                            uint32_t next[SIDE_MAX])
{
    const struct pm *pm = world->sides[side].pm;
    const uint64_t end = (uint64_t)(segment + 1) * FABRIC_SEGMENT_BYTES;
    uint64_t at = (uint64_t)segment * FABRIC_SEGMENT_BYTES;
    uint32_t count = 0;

    while (at < end) {
        struct block_head head;
        uint32_t slot;

        if (!block_is_whole(pm_at(pm, at), end - at, &head))
            break;
        assert_true(head.sender < SIDE_MAX);
        assert_int_equal(head.number, next[head.sender]++);
        slot = side_slot(&world->sides[side], head.bytes);
        assert_true(slot <= end - at);
        assert_true(is_zero(pm_at(pm, at + head.bytes), slot - head.bytes));
        at += slot;
        count++;
    }
    assert_true(is_zero(pm_at(pm, at), end - at)); /* the rest is as it was */
    return count;
}

uint32_t world_walk_zone(const struct world *world, unsigned side, uint32_t segments,
                         uint32_t next[SIDE_MAX])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < segments; i++)
        count += world_walk_segment(world, side, i, next);
    return count;
}
