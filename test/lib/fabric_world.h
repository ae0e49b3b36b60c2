/* fabric_world.h - a few processes with one endpoint each, on any fabric backend, polled by one
 * thread. Include after cmocka.h.
 */
#ifndef TEST_FABRIC_WORLD_H
#define TEST_FABRIC_WORLD_H

#include "common/fabric/fabric.h"

struct fabric_backend {
    void *context;

    /* The fabric of process number `process` (0, 1, ...), with an address. */
    int (*fabric_make)(void *context, unsigned process, struct fabric **out);
    const char *(*address)(void *context, unsigned process);

    /* Memory of zeros that can be registered. */
    int (*pm_make)(void *context, uint64_t bytes, struct pm **out);

    /* A time that goes on between two calls; the cases wait at most `wait_s` of it, or 20 s if that is 0. */
    uint64_t (*now_ns)(void *context);
    uint64_t wait_s;
};

enum { SIDE_MAX = 8, SIDE_EVENTS = 1 << 16, SIDE_EVENT_KINDS = FABRIC_SHUT_OUT + 1 };

/* One process with one endpoint. */
struct side {
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct fabric_zone *zone;
    struct pm *pm;
    struct fabric_caps caps; /* of its fabric, also when that is closed */

    /* All events so far, in order; of the first `counted` we know how many there are of each kind. */
    struct fabric_event *events;
    uint32_t event_count, counted;
    uint32_t counts[SIDE_EVENT_KINDS];
};

struct world {
    const struct fabric_backend *backend;
    unsigned side_count;
    uint32_t roles; /* given so far */
    struct side sides[SIDE_MAX];
};

void world_open(struct world *world, const struct fabric_backend *backend, unsigned sides,
                uint64_t pm_bytes);

/* Only sides `first` to `end` - 1: the others are other processes. */
void world_open_some(struct world *world, const struct fabric_backend *backend, unsigned first,
                     unsigned end, uint64_t pm_bytes);
void world_close(struct world *world);

/* Closes one side's endpoint and fabric; its PM stays to be looked at. */
void side_close(struct world *world, unsigned index);

/* Polls and flushes side `index`, or all of them. */
void side_poll(struct world *world, unsigned index);
void world_poll(struct world *world);
void world_poll_times(struct world *world, unsigned times);

/* Polls all until side `index` has had `count` events of `kind`; fails when that takes too long. */
void world_wait(struct world *world, unsigned index, enum fabric_event_kind kind, uint32_t count);

/* How many there were, and the nth of them (from 0). */
uint32_t side_count(struct side *side, enum fabric_event_kind kind);
const struct fabric_event *side_event(const struct side *side, enum fabric_event_kind kind,
                                      uint32_t nth);

/* Forgets all events, so that there is room for more. */
void side_forget(struct side *side);

/* A landing zone at `index` with `posted` segments from the start of its PM. */
void side_open_zone(struct world *world, unsigned index, uint32_t depth, uint32_t posted);

/* What the side connects from now on is in a role of its own, so it ends no older connection (F11). */
void side_take_role(struct world *world, unsigned index);

/* Connects two and waits for both ends, in a role of its own; `context` of the active one. */
void world_connect(struct world *world, unsigned from, unsigned to, uint64_t context,
                   struct fabric_conn **active, struct fabric_conn **passive);

/* Bytes that tell their place and seed. */
void pattern_fill(void *to, uint32_t bytes, uint64_t seed);
bool pattern_is(const void *data, uint32_t bytes, uint64_t seed);

/* Blocks that tell who they are: each begins with its sender, number and length, and all its bytes
 * follow from these. */

struct block_head {
    uint32_t mark;
    uint32_t sender;
    uint32_t number;
    uint32_t bytes;
};

/* Makes block `number` of `sender` at `to`. */
void block_fill(void *to, uint32_t sender, uint32_t number, uint32_t bytes);

/* Whether a whole block begins at `data`, where `room` bytes are left; if so, its head. */
bool block_is_whole(const void *data, uint64_t room, struct block_head *head);

/* Makes block `number` of `sender` at `at` in its PM and adds it. What fabric_rowan_add answers. */
int world_add_block(struct world *world, unsigned sender, struct fabric_conn *conn, uint64_t at,
                    uint32_t number, uint32_t bytes);

/* Bytes of landing zone of a side that a block of `bytes` takes (F6), and how many such blocks a segment of
 * it holds. */
uint32_t side_slot(const struct side *side, uint32_t bytes);
uint32_t side_fit(const struct side *side, uint32_t bytes);

/* How many whole blocks of a sender begin in the first `segments` segments of a side, but for what VOID events have
 * named (F12). */
uint32_t world_count_blocks(const struct world *world, unsigned side, uint32_t segments,
                            unsigned sender);

/* Walks one segment, or the first `segments`, at the start of a side's PM and fails unless there is
 * block after block at multiples of the landing stride (F6), each whole, next[sender] being the number
 * that must come next of each sender (F1), and zeros behind each of them and behind the last. How many
 * blocks there were. */
uint32_t world_walk_segment(const struct world *world, unsigned side, uint32_t segment,
                            uint32_t next[SIDE_MAX]);
uint32_t world_walk_zone(const struct world *world, unsigned side, uint32_t segments,
                         uint32_t next[SIDE_MAX]);

/* A case (unit.h) that is a call with other arguments. */
#define WORLD_CASE(name, call)                                                                     \
    TEST(name)                                                                                     \
    {                                                                                              \
        call;                                                                                      \
    }

#endif
