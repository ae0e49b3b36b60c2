/* shm_steps.h - a sender that is stopped between two of its steps (S1 to S5 in shm_rowan.c) while the owner and another
 * sender go on. The backend's step hook stands for the stop: what it runs happens while sender 1 is in the middle. Time is
 * moved on by the test, nothing is waited for. Include after cmocka.h.
 */
#ifndef TEST_SHM_STEPS_H
#define TEST_SHM_STEPS_H

#include <errno.h>

#include "common/fabric/shm/shm.h"
#include "common/pm/pm_map.h"
#include "test/lib/wait.h"
#include "test/unit/fabric/host_fixture.h"

enum { OWNER, STOPPED, OTHER, SIDES };
enum { SEGMENT = FABRIC_SEGMENT_BYTES, BYTES = 32 << 10, FIT = SEGMENT / BYTES, DEPTH = 2 };
enum { PM_BYTES = 32 << 20 };

static struct fabric_conn *conns[SIDES], *passive[SIDES];
static uint32_t numbers[SIDES];
static enum pm_durability durability = PM_NONE; /* of the next case */

static struct {
    enum shm_step at;
    void (*run)(void);
    unsigned times;
} stop;

static inline void hook(enum shm_step at, struct shm_conn *conn)
{
    if (&conn->base.base != conns[STOPPED] || at != stop.at || !stop.run || stop.times > 0)
        return;
    stop.times++;
    stop.run();
}

static inline int open_all(void **state)
{
    (void)state;
    memset(&stop, 0, sizeof stop);
    memset(numbers, 0, sizeof numbers);
    host_init(&host, OVER_SHM);
    host.durability = durability;
    durability = PM_NONE;
    world_open(&world, &host.backend, SIDES, PM_BYTES);
    side_open_zone(&world, OWNER, DEPTH, DEPTH);
    for (unsigned s = STOPPED; s < SIDES; s++)
        world_connect(&world, s, OWNER, s, &conns[s], &passive[s]);
    shm_step_hook_installed = hook;
    return 0;
}

static inline int close_all(void **state)
{
    shm_step_hook_installed = NULL;
    return close_host(state);
}

/* One block as one batch, handed over at once. */
static inline void send_block(unsigned sender, uint32_t bytes)
{
    const uint32_t number = numbers[sender]++;
    const uint64_t at = (uint64_t)(number % 256) * BYTES;

    assert_int_equal(world_add_block(&world, sender, conns[sender], at, number, bytes), 0);
    assert_int_equal(fabric_rowan_post(conns[sender], number), 0);
    fabric_flush(world.sides[sender].endpoint);
}

/* The other sender sends `blocks` blocks, and the owner polls on. */
static inline void others_send(uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks; i++) {
        send_block(OTHER, BYTES);
        side_poll(&world, OTHER);
        side_poll(&world, OWNER);
    }
}

static inline void owner_looks(void)
{
    side_poll(&world, OWNER);
    side_poll(&world, OWNER); /* voids in the first, sees it in the second */
    side_poll(&world, OWNER);
}

/* It looks now and then while the time passes. */
static inline void owner_waits(uint64_t ns)
{
    const uint64_t end_ns = host.skipped_ns + ns;

    while (host.skipped_ns < end_ns) {
        host.skipped_ns += SHM_VOID_STEP_NS / 2;
        owner_looks();
    }
}

static inline uint32_t owner_count(enum fabric_event_kind kind)
{
    return side_count(&world.sides[OWNER], kind);
}

/* --- fences that wait --- */

static _Atomic int syncs;           /* that have begun */
static _Atomic int sync_result = 1; /* 1: not yet */

static inline int slow_sync(int fd)
{
    (void)fd;
    atomic_fetch_add(&syncs, 1);
    while (atomic_load(&sync_result) == 1)
        wait_pause();
    errno = EIO;
    return atomic_load(&sync_result);
}

static inline int open_fencing(void **state)
{
    durability = PM_FENCE;
    atomic_store(&syncs, 0);
    atomic_store(&sync_result, 1);
    return open_all(state);
}

static inline int close_fencing(void **state)
{
    atomic_store(&sync_result, 0);
    return close_all(state);
}

#endif
