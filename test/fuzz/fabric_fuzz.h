/* fabric_fuzz.h - an endpoint that a fuzzer feeds, and a good peer that must still be served, over a real
 * backend in one thread. The fuzzer may make a third peer. Its `handle` gets all events after the common
 * part.
 */
#ifndef TEST_FABRIC_FUZZ_H
#define TEST_FABRIC_FUZZ_H

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/fabric/fabric.h"

enum fuzz_side { OWNER, GOOD, BAD, FUZZ_SIDES };
enum { FUZZ_POLLS = 100000 /* until what must come has come */ };

static struct {
    struct fabric *fabrics[FUZZ_SIDES];
    struct fabric_endpoint *endpoints[FUZZ_SIDES]; /* NULL: not opened */
    struct fabric_conn *conn;                      /* of the good one */
    char address[64];                              /* of the owner */
    uint64_t now_ns;
    bool bad_is_silent; /* it is not polled */
    uint32_t answered;  /* questions of the good one */
    uint32_t connected[FUZZ_SIDES];
    bool (*is_waiting)(
        void); /* for another thread: the clock stands still meanwhile. NULL: never */
    void (*handle)(enum fuzz_side side, const struct fabric_event *event); /* the fuzzer's part */
} fuzz;

static inline void fuzz_handle_event(enum fuzz_side side, const struct fabric_event *event)
{
    static const struct fabric_iov answer = {.data = "answer", .bytes = 6};

    fuzz.connected[side] += event->kind == FABRIC_CONNECTED;
    ASSERT(event->kind != FABRIC_CLOSED || event->conn != fuzz.conn);
    if (event->kind == FABRIC_MESSAGE) {
        ASSERT((uintptr_t)event->data % 8 == 0 && event->bytes <= FABRIC_MAX_MESSAGE_BYTES);
        if (side == GOOD)
            fuzz.answered++;
        else if (event->bytes == 8 && memcmp(event->data, "question", 8) == 0)
            ASSERT(fabric_send(event->conn, &answer, 1) <= 0);
        fabric_message_release(event->conn, event->message);
    }
    fuzz.handle(side, event);
}

static inline void fuzz_poll_sides(void)
{
    for (enum fuzz_side side = OWNER; side < FUZZ_SIDES && fuzz.endpoints[side]; side++) {
        if (side == BAD && fuzz.bad_is_silent)
            break;
        struct fabric_event events[8];
        const unsigned count = fabric_poll(fuzz.endpoints[side], fuzz.now_ns, events, 8);

        for (unsigned i = 0; i < count; i++)
            fuzz_handle_event(side, &events[i]);
        fabric_flush(fuzz.endpoints[side]);
    }
}

static inline void fuzz_poll(void)
{
    fuzz.now_ns += NS_PER_MS;
    fuzz_poll_sides();
    while (fuzz.is_waiting && fuzz.is_waiting()) {
        sched_yield();
        fuzz_poll_sides();
    }
}

/* The owner, at an address and a port of the loopback that nobody has. */
static inline void fuzz_open_owner(const char *scheme)
{
    uint32_t draw;

    do {
        fabric_close(fuzz.fabrics[OWNER]);
        random_entropy(&draw, sizeof draw);
        snprintf(fuzz.address, sizeof fuzz.address, "%s:127.%u.%u.1:%u", scheme, 1 + draw % 250,
                 draw / 250 % 250, 12000 + draw / 62500 % 16000);
        ASSERT(fabric_open(NULL, fuzz.address, &fuzz.fabrics[OWNER]) == 0);
    } while (fabric_endpoint_open(fuzz.fabrics[OWNER], 0, &fuzz.endpoints[OWNER]) != 0);
}

static inline void fuzz_open_peer(const char *scheme, enum fuzz_side side)
{
    ASSERT(fabric_open(scheme, NULL, &fuzz.fabrics[side]) == 0);
    ASSERT(fabric_endpoint_open(fuzz.fabrics[side], 0, &fuzz.endpoints[side]) == 0);
    fabric_endpoint_identity(fuzz.endpoints[side],
                             &(struct fabric_identity){.kind = FABRIC_CLIENT, .id = side});
}

/* A connection of that peer to the owner, usable. */
static inline void fuzz_connect(enum fuzz_side side, struct fabric_conn **out)
{
    const uint32_t before = fuzz.connected[side];

    ASSERT(fabric_connect(fuzz.endpoints[side], fuzz.address, 0, 0, out) == 0);
    for (unsigned i = 0; fuzz.connected[side] == before && i < FUZZ_POLLS; i++)
        fuzz_poll();
    ASSERT(fuzz.connected[side] == before + 1);
}

/* The good one is served as ever. */
static inline void fuzz_ask_good(void)
{
    static const struct fabric_iov question = {.data = "question", .bytes = 8};
    const uint32_t before = fuzz.answered;

    ASSERT(fabric_send(fuzz.conn, &question, 1) == 0);
    for (unsigned i = 0; fuzz.answered == before && i < FUZZ_POLLS; i++)
        fuzz_poll();
    ASSERT(fuzz.answered == before + 1);
}

#endif
