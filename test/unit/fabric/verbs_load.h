/* verbs_load.h - two servers that send blocks and messages to a third one, reconnect whenever a connection
 * ends, and keep account of what was promised. Include after cmocka.h.
 *
 * What is checked: batches land in the order they were posted; each ends, LANDED or with its connection; so
 * do signalled messages; messages of a connection arrive whole, in order and once; every block of a landed
 * batch was found in the landing zone, and none twice. Sealed segments are used again.
 */
#ifndef TEST_VERBS_LOAD_H
#define TEST_VERBS_LOAD_H

#include <stdlib.h>
#include <string.h>

#include "common/base/error.h"
#include "common/base/random.h"
#include "test/lib/pm_wait.h"
#include "test/lib/soft_verbs.h"
#include "test/unit/fabric/fabric_host.h"

enum {
    LOAD_SENDERS = 2,
    LOAD_TARGET = LOAD_SENDERS,
    LOAD_SIDES = LOAD_SENDERS + 1,
    LOAD_SEGMENTS = 4,
    LOAD_MAX_BLOCKS = 30000, /* of one sender */
    LOAD_MAX_BATCHES = 8192,
    LOAD_BLOCK_ROOM = 1024, /* bytes in the sender's PM */
    LOAD_PM_BYTES = 24 << 20,
    LOAD_PM_BLOCKS = LOAD_PM_BYTES / LOAD_BLOCK_ROOM, /* more than can be on the way */
    LOAD_MAX_TEXT = 6000,
};

struct load_batch {
    uint32_t first, end; /* blocks */
};

struct load_message {
    uint32_t sender, incarnation;
    uint64_t number; /* on its connection */
    uint64_t bytes;
};

struct load_sender {
    struct fabric_conn *conn; /* NULL: none */
    bool connected;
    uint32_t incarnation; /* of the connection */
    uint32_t blocks;      /* made so far */
    uint32_t added;       /* from here on they are in no batch */
    uint32_t batch_head, batch_tail;
    struct load_batch batches[LOAD_MAX_BATCHES];
    bool landed[LOAD_MAX_BLOCKS];
    uint64_t sent;                /* messages of this connection */
    uint64_t received;            /* by the target, of this connection */
    uint64_t got_back;            /* echoes, of this connection */
    uint64_t landed_count, ended; /* batches that landed; that ended unknown */
    uint64_t messages;            /* that came, of all connections */
    uint32_t closed;
};

struct load {
    struct fabric_host host;
    struct world world;
    struct random random;
    struct load_sender senders[LOAD_SENDERS];
    bool winding_down;
    uint32_t sealed; /* segments */
    bool found[LOAD_SENDERS][LOAD_MAX_BLOCKS];
    uint8_t text[LOAD_MAX_TEXT];
};

static inline void load_connect(struct load *load, unsigned s)
{
    struct load_sender *sender = &load->senders[s];

    sender->incarnation++;
    sender->connected = false;
    assert_int_equal(fabric_connect(load->world.sides[s].endpoint,
                                    load->host.backend.address(&load->host, LOAD_TARGET), 0,
                                    sender->incarnation, &sender->conn),
                     0);
}

static inline struct load *load_open(uint64_t seed)
{
    struct load *load = calloc(1, sizeof *load);

    assert_non_null(load);
    random_init(&load->random, seed);
    host_init_verbs(&load->host, FABRIC_RECEIVE_SHARED, 0);
    world_open(&load->world, &load->host.backend, LOAD_SIDES, LOAD_PM_BYTES);
    side_open_zone(&load->world, LOAD_TARGET, LOAD_SEGMENTS, LOAD_SEGMENTS);
    for (unsigned s = 0; s < LOAD_SENDERS; s++)
        load_connect(load, s);
    return load;
}

static inline void load_close(struct load *load)
{
    world_close(&load->world);
    host_fini(&load->host);
    free(load);
}

/* --- what comes --- */

static inline void load_ended(struct load_sender *sender)
{
    sender->ended += sender->batch_head - sender->batch_tail;
    sender->batch_tail = sender->batch_head;
    sender->added = sender->blocks;
    sender->sent = sender->received = sender->got_back = 0;
    sender->conn = NULL;
    sender->connected = false;
    sender->closed++;
}

static inline void load_landed(struct load_sender *sender, uint64_t context)
{
    const struct load_batch *batch = &sender->batches[sender->batch_tail % LOAD_MAX_BATCHES];

    assert_true(sender->batch_tail != sender->batch_head);
    assert_int_equal(context, sender->batch_tail);
    for (uint32_t i = batch->first; i < batch->end; i++)
        sender->landed[i] = true;
    sender->batch_tail++;
    sender->landed_count++;
}

static inline void load_sender_event(struct load *load, unsigned s,
                                     const struct fabric_event *event)
{
    struct load_sender *sender = &load->senders[s];
    struct load_message head;

    assert_true(event->conn == sender->conn);
    switch (event->kind) {
    case FABRIC_CONNECTED:
        assert_int_equal(event->context, sender->incarnation);
        sender->connected = true;
        break;
    case FABRIC_CLOSED:
        load_ended(sender);
        if (!load->winding_down)
            load_connect(load, s);
        break;
    case FABRIC_LANDED:
        load_landed(sender, event->context);
        break;
    case FABRIC_MESSAGE: /* an echo; the target leaves out what it has no room for */
        assert_int_equal(event->bytes, sizeof head);
        memcpy(&head, event->data, sizeof head);
        assert_int_equal(head.incarnation, sender->incarnation);
        assert_true(head.number > sender->got_back && head.number <= sender->sent);
        sender->got_back = head.number;
        fabric_message_release(event->conn, event->message);
        break;
    default:
        fail_msg("sender %u: event %d", s, (int)event->kind);
    }
}

static inline void load_target_message(struct load *load, const struct fabric_event *event)
{
    struct load_message head;
    struct fabric_iov echo = {&head, sizeof head};
    struct load_sender *sender;
    int error;

    assert_true(event->bytes >= sizeof head);
    memcpy(&head, event->data, sizeof head);
    assert_true(head.sender < LOAD_SENDERS);
    sender = &load->senders[head.sender];
    assert_int_equal(head.bytes, event->bytes);
    assert_true(pattern_is((const uint8_t *)event->data + sizeof head,
                           event->bytes - (uint32_t)sizeof head, head.number));
    if (head.incarnation == sender->incarnation) /* else its sender has given the connection up */
        assert_int_equal(head.number, ++sender->received);
    sender->messages++;
    fabric_message_release(event->conn, event->message);
    error = fabric_send(event->conn, &echo, 1);
    assert_true(error == 0 || error == ROWAN_EAGAIN || error == ROWAN_ECLOSED);
}

/* The blocks of a segment. */
static inline void load_scan(struct load *load, uint64_t offset)
{
    const struct side *target = &load->world.sides[LOAD_TARGET];
    struct block_head head;

    for (uint64_t at = 0; at < FABRIC_SEGMENT_BYTES; at += target->caps.landing_stride) {
        if (!block_is_whole(pm_at(target->pm, offset + at), FABRIC_SEGMENT_BYTES - at, &head))
            continue;
        assert_true(head.sender < LOAD_SENDERS && head.number < LOAD_MAX_BLOCKS);
        assert_false(load->found[head.sender][head.number]);
        load->found[head.sender][head.number] = true;
    }
}

/* A segment that nobody can write to any more goes to the end of the zone's queue. */
static inline void load_reuse(struct load *load, uint64_t segment)
{
    struct side *target = &load->world.sides[LOAD_TARGET];
    const uint64_t offset = segment * FABRIC_SEGMENT_BYTES;

    load_scan(load, offset);
    pm_zero(target->pm, offset, FABRIC_SEGMENT_BYTES);
    assert_int_equal(pm_fence_wait(target->pm), 0);
    assert_int_equal(fabric_zone_post(target->zone, offset, segment), 0);
}

static inline void load_target_event(struct load *load, const struct fabric_event *event)
{
    if (event->kind == FABRIC_MESSAGE)
        load_target_message(load, event);
    load->sealed += event->kind == FABRIC_SEALED;
    if ((event->kind == FABRIC_SEALED && event->quiet) || event->kind == FABRIC_QUIET)
        load_reuse(load, event->context);
}

static inline void load_events(struct load *load)
{
    struct side *target = &load->world.sides[LOAD_TARGET];

    for (unsigned s = 0; s < LOAD_SENDERS; s++) {
        struct side *side = &load->world.sides[s];

        for (uint32_t i = 0; i < side->event_count; i++)
            load_sender_event(load, s, &side->events[i]);
        side_forget(side);
    }
    for (uint32_t i = 0; i < target->event_count; i++)
        load_target_event(load, &target->events[i]);
    side_forget(target);
}

/* --- what goes --- */

static inline void load_post(struct load *load, unsigned s)
{
    struct load_sender *sender = &load->senders[s];
    const struct fabric_caps *caps = &load->world.sides[s].caps;
    const uint32_t limit =
        caps->block_limit < LOAD_BLOCK_ROOM ? caps->block_limit : (uint32_t)LOAD_BLOCK_ROOM;
    const uint32_t count = (uint32_t)random_below(&load->random, 8);

    if (sender->batch_head - sender->batch_tail == LOAD_MAX_BATCHES)
        return;
    for (uint32_t i = 0; i < count && sender->blocks < LOAD_MAX_BLOCKS; i++) {
        const uint32_t bytes = 64 * (1 + (uint32_t)random_below(&load->random, limit / 64));
        const uint64_t at = sender->blocks % LOAD_PM_BLOCKS * (uint64_t)LOAD_BLOCK_ROOM;
        const int error = world_add_block(&load->world, s, sender->conn, at, sender->blocks, bytes);

        if (error) {
            assert_true(error == ROWAN_EAGAIN || error == ROWAN_ECLOSED);
            break;
        }
        sender->blocks++;
    }
    if (sender->added == sender->blocks)
        return;
    if (fabric_rowan_post(sender->conn, sender->batch_head) != 0)
        return; /* it is CLOSED */
    sender->batches[sender->batch_head++ % LOAD_MAX_BATCHES] =
        (struct load_batch){sender->added, sender->blocks};
    sender->added = sender->blocks;
}

static inline void load_send(struct load *load, unsigned s)
{
    struct load_sender *sender = &load->senders[s];
    const uint32_t bytes = (uint32_t)random_below(&load->random, LOAD_MAX_TEXT);
    const struct load_message head = {.sender = s,
                                      .incarnation = sender->incarnation,
                                      .number = sender->sent + 1,
                                      .bytes = sizeof head + bytes};
    const struct fabric_iov iov[] = {{&head, sizeof head}, {load->text, bytes}};
    int error;

    pattern_fill(load->text, bytes, head.number);
    error = fabric_send(sender->conn, iov, 2);
    if (error == 0)
        sender->sent++;
    else
        assert_true(error == ROWAN_EAGAIN || error == ROWAN_ECLOSED);
}

/* One round of everything. */
static inline void load_round(struct load *load)
{
    for (unsigned s = 0; s < LOAD_SENDERS && !load->winding_down; s++) {
        struct load_sender *sender = &load->senders[s];

        if (!sender->connected)
            continue;
        if (sender->conn->has_zone)
            load_post(load, s);
        if (random_below(&load->random, 2) == 0)
            load_send(load, s);
    }
    world_poll(&load->world);
    load_events(load);
}

static inline bool load_is_quiet(const struct load *load)
{
    for (unsigned s = 0; s < LOAD_SENDERS; s++) {
        const struct load_sender *sender = &load->senders[s];

        if (sender->conn &&
            (sender->batch_head != sender->batch_tail || sender->received != sender->sent))
            return false;
    }
    return true;
}

/* Nothing new; until everything that was begun has ended. */
static inline void load_wind_down(struct load *load)
{
    const uint64_t end_ns = host_now_ns(&load->host) + UINT64_C(60) * NS_PER_S;

    load->winding_down = true;
    while (!load_is_quiet(load)) {
        assert_true(host_now_ns(&load->host) < end_ns);
        load_round(load);
    }
}

/* Every block of a landed batch was there. Blocks that nobody was promised may have been, too. */
static inline void load_check_zone(struct load *load)
{
    for (uint64_t i = 0; i < LOAD_SEGMENTS; i++)
        load_scan(load, i * FABRIC_SEGMENT_BYTES);
    for (unsigned s = 0; s < LOAD_SENDERS; s++)
        for (uint32_t i = 0; i < load->senders[s].blocks; i++)
            assert_true(!load->senders[s].landed[i] || load->found[s][i]);
}

#endif
