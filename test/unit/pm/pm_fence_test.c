/* pm_fence_test.c - what a ticket of the file backend means. A medium that is slow or fails is had
 * by putting another sync in the place of fdatasync. */
#include <inttypes.h>
#include <stdatomic.h>

#include "common/pm/pm_map.h"
#include "common/reactor/reactor.h"
#include "test/lib/pm_wait.h"
#include "test/lib/unit.h"
#include "test/lib/wait.h"
#include "test/unit/pm/pm_fixture.h"

/* A medium that is as slow as the test wants: a sync begins, and ends when the test allows it. */
static struct {
    _Atomic uint64_t begun;
    _Atomic uint64_t allowed;
    _Atomic uint64_t failing; /* this one and those after it fail */
} medium;

static int sync_medium(int fd)
{
    uint64_t number = atomic_fetch_add(&medium.begun, 1) + 1;

    while (atomic_load(&medium.allowed) < number)
        wait_pause();
    if (number >= atomic_load(&medium.failing)) {
        errno = EIO;
        return -1;
    }
    return fdatasync(fd);
}

static struct pm *create_map_on_medium(enum pm_durability durability)
{
    struct pm *pm = create_map(durability);

    medium.begun = 0;
    medium.allowed = 0;
    medium.failing = UINT64_MAX;
    pm_file_set_sync(pm, sync_medium);
    return pm;
}

TEST(fences_that_wait_share_one_sync)
{
    struct pm *pm = create_map_on_medium(PM_FENCE);
    struct pm_ticket first = pm_fence_start(pm), others[50];

    assert_true(WAIT_FOR(atomic_load(&medium.begun) == 1));
    for (size_t i = 0; i < 50; i++)
        others[i] = pm_fence_start(pm);
    assert_int_equal(pm_fence_done(pm, first), 0);

    /* The first sync may have begun before the later stores: it ends no ticket but the first. */
    atomic_store(&medium.allowed, 1);
    assert_true(WAIT_FOR(pm_fence_done(pm, first) == 1));
    assert_true(WAIT_FOR(atomic_load(&medium.begun) == 2));
    for (size_t i = 0; i < 50; i++)
        assert_int_equal(pm_fence_done(pm, others[i]), 0);

    atomic_store(&medium.allowed, UINT64_MAX);
    for (size_t i = 0; i < 50; i++)
        assert_true(WAIT_FOR(pm_fence_done(pm, others[i]) == 1));
    assert_int_equal(pm_sync_count(pm), 2);
    pm_close(pm);
    assert_int_equal(medium.begun, 2);
}

TEST(a_failed_sync_is_fatal_and_never_tried_again)
{
    struct pm *pm = create_map_on_medium(PM_FENCE);
    struct pm_ticket good, bad;

    atomic_store(&medium.allowed, UINT64_MAX);
    atomic_store(&medium.failing, 2);
    good = pm_fence_start(pm);
    assert_true(WAIT_FOR(pm_fence_done(pm, good) == 1));
    bad = pm_fence_start(pm);
    assert_true(WAIT_FOR(pm_fence_done(pm, bad) != 0));
    assert_int_equal(pm_fence_done(pm, bad), ROWAN_EIO);
    assert_int_equal(pm_fence_done(pm, good), ROWAN_EIO);
    assert_int_equal(pm_fence_wait(pm), ROWAN_EIO);
    assert_int_equal(pm_sync_count(pm), 1);
    pm_close(pm);
    assert_int_equal(medium.begun, 2);
}

TEST(an_async_fence_is_done_at_once_and_a_sync_follows)
{
    struct pm *pm = create_map_on_medium(PM_ASYNC);

    assert_int_equal(pm_fence_done(pm, pm_fence_start(pm)), 1);
    assert_true(WAIT_FOR(atomic_load(&medium.begun) == 1));
    assert_int_equal(pm_fence_done(pm, pm_fence_start(pm)), 1);
    assert_int_equal(pm_sync_count(pm), 0);

    atomic_store(&medium.failing, 2);
    atomic_store(&medium.allowed, UINT64_MAX);
    assert_true(WAIT_FOR(pm_fence_done(pm, pm_fence_start(pm)) == ROWAN_EIO));
    assert_int_equal(pm_sync_count(pm), 1);
    pm_close(pm);
}

TEST(without_durability_nothing_is_synced)
{
    struct pm *pm = create_map_on_medium(PM_NONE);

    assert_int_equal(pm_fence_done(pm, pm_fence_start(pm)), 1);
    assert_int_equal(pm_fence_wait(pm), 0);
    pm_close(pm);
    assert_int_equal(medium.begun, 0);
}

TEST(a_sync_that_is_asked_for_is_waited_for_whatever_the_durability)
{
    static const enum pm_durability all[] = {PM_NONE, PM_ASYNC, PM_FENCE};

    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct pm *pm = create_map_on_medium(all[i]);
        struct pm_ticket ticket = pm_sync_start(pm);

        assert_true(WAIT_FOR(atomic_load(&medium.begun) == 1));
        assert_int_equal(pm_sync_done(pm, ticket), 0);
        assert_int_equal(pm_fence_done(pm, ticket), all[i] != PM_FENCE);
        atomic_store(&medium.failing, 2);
        atomic_store(&medium.allowed, UINT64_MAX);
        assert_true(WAIT_FOR(pm_sync_done(pm, ticket) == 1));
        ticket = pm_sync_start(pm);
        assert_true(WAIT_FOR(pm_sync_done(pm, ticket) == ROWAN_EIO));
        assert_int_equal(pm_fence_done(pm, ticket), ROWAN_EIO);
        pm_close(pm);
        assert_int_equal(unlink(temp_dir_at(&dir, "pm")), 0);
    }
}

TEST(close_waits_for_the_syncs_that_were_asked_for)
{
    struct pm *pm = create_map_on_medium(PM_FENCE);

    pm_fence_start(pm);
    assert_true(WAIT_FOR(atomic_load(&medium.begun) == 1));
    pm_fence_start(pm);
    atomic_store(&medium.allowed, UINT64_MAX);
    pm_close(pm);
    assert_int_equal(medium.begun, 2);
}

/* The bytes of the mapping at `base` that are dirty, by /proc/self/smaps. */
static uint64_t count_dirty_bytes(const void *base)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    uint64_t sum = 0;
    bool ours = false;
    char line[512];

    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        uint64_t start, end, kib;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2)
            ours = start == (uint64_t)(uintptr_t)base;
        else if (ours && (sscanf(line, "Shared_Dirty: %" SCNu64, &kib) == 1 ||
                          sscanf(line, "Private_Dirty: %" SCNu64, &kib) == 1))
            sum += kib * 1024;
    }
    fclose(file);
    return sum;
}

/* That fdatasync meets stores made through the mapping is what the whole backend rests on. */
TEST(a_fence_leaves_no_dirty_page)
{
    struct pm *pm = create_map(PM_FENCE);

    for (uint64_t offset = 0; offset < MAP_BYTES; offset += PAGE)
        pm_store(pm, offset, "dirty", 5);
    if (count_dirty_bytes(pm->base) != MAP_BYTES) {
        pm_close(pm);
        skip(); /* this file system or kernel does not count */
    }
    assert_int_equal(pm_fence_wait(pm), 0);
    assert_int_equal(count_dirty_bytes(pm->base), 0);
    pm_close(pm);
}

struct fence_role {
    struct pm *pm;
    struct reactor *reactor;
    struct pm_ticket ticket;
    uint64_t deadline_ns; /* 0: not started */
    bool done;
};

static enum poll_result poll_fence(void *argument, uint64_t now_ns, uint64_t *wake_ns)
{
    struct fence_role *role = argument;

    if (role->deadline_ns == 0) {
        role->deadline_ns = now_ns + WAIT_DEADLINE_NS;
        role->ticket = pm_fence_start(role->pm);
    }
    role->done = pm_fence_done(role->pm, role->ticket) == 1;
    if (role->done || now_ns >= role->deadline_ns)
        reactor_stop(role->reactor);
    if (*wake_ns > role->deadline_ns)
        *wake_ns = role->deadline_ns;
    return POLL_IDLE;
}

static int sync_slowly(int fd)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* so that the reactor sleeps */
    return fdatasync(fd);
}

TEST(the_end_of_a_sync_wakes_the_reactor)
{
    struct pm_open_options options = options_of("pm", 1);
    struct reactor_options reactor_options = {.name = "test", .clock = clock_system(), .cpu = -1};
    struct fence_role role = {0};
    struct poller poller = {.name = "fence", .poll = poll_fence, .role = &role};
    uint64_t start_ns = clock_now_ns(clock_system());

    assert_int_equal(reactor_create(&reactor_options, &role.reactor), 0);
    options.reactor = role.reactor;
    assert_int_equal(pm_open(&options, &role.pm), 0);
    pm_file_set_sync(role.pm, sync_slowly);
    assert_int_equal(reactor_add_poller(role.reactor, &poller), 0);
    reactor_run(role.reactor);
    assert_true(role.done);
    assert_true(clock_now_ns(clock_system()) - start_ns < WAIT_DEADLINE_NS);
    pm_close(role.pm);
    reactor_destroy(role.reactor);
}

UNIT_MAIN(NULL, NULL)
