/* verbs_landing.h - a landing zone of slots and two who send into it, on devices made of software. Time is the test's
 * own, and each side is polled when the test wants it. Include after cmocka.h. */
#ifndef TEST_VERBS_LANDING_H
#define TEST_VERBS_LANDING_H

#include "common/base/error.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "test/lib/soft_verbs.h"
#include "test/unit/fabric/host_fixture.h"

enum { OWNER, SENDER, OTHER, SIDES };
enum {
    PM_BYTES = 20 << 20,
    SLOT = 1024,
    SLOTS = FABRIC_SEGMENT_BYTES / SLOT,
    BLOCK = 128,
    SOURCES = 4096, /* blocks in a sender's PM */
    DEPTH = 4,
    PATIENCE = 10000000, /* polls */
};

static uint64_t now_ns;
static struct fabric_conn *conn, *passive; /* SENDER to OWNER */

static inline uint64_t tick(void *context)
{
    (void)context;
    return now_ns += NS_PER_US;
}

/* A zone of `depth` segments, of which the first `posted` are posted. */
static inline void open_landing(uint32_t depth, uint32_t posted, bool purges)
{
    soft_verbs_configure(&(struct soft_config){.seed = 1, .purges_completions = purges});
    host_init_verbs(&host, FABRIC_RECEIVE_SHARED, SLOT);
    host.backend.now_ns = tick;
    now_ns = NS_PER_S;
    world_open(&world, &host.backend, SIDES, PM_BYTES);
    side_open_zone(&world, OWNER, depth, posted);
    world_connect(&world, SENDER, OWNER, 0, &conn, &passive);
}

static inline int close_landing(void **state)
{
    close_host(state);
    soft_verbs_faults(NULL);
    soft_verbs_configure(NULL);
    return 0;
}

static inline struct verbs_endpoint *endpoint_of(unsigned side)
{
    return (struct verbs_endpoint *)world.sides[side].endpoint;
}

/* Lands blocks number `first` to `end` - 1 of a side, each a batch; the owner does nothing, or is polled, too. */
static inline void land_blocks(unsigned side, struct fabric_conn *to, uint32_t first, uint32_t end,
                               bool owner_polls)
{
    const uint32_t landed = side_count(&world.sides[side], FABRIC_LANDED) + end - first;
    uint32_t polls = 0;

    while (first < end || side_count(&world.sides[side], FABRIC_LANDED) < landed) {
        const int error = first < end
                              ? world_add_block(&world, side, to,
                                                (uint64_t)(first % SOURCES) * SLOT, first, BLOCK)
                              : ROWAN_EAGAIN;

        if (!error) {
            assert_int_equal(fabric_rowan_post(to, first++), 0);
            continue;
        }
        assert_true(error == ROWAN_EAGAIN && polls++ < PATIENCE);
        side_poll(&world, side);
        if (owner_polls)
            side_poll(&world, OWNER);
    }
}

#endif
