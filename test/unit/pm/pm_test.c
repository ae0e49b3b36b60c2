/* pm_test.c - the file backend through pm_open: what lasts, what is refused, and what a ticket
 * means. A medium that is slow or fails is had by putting another sync in the place of fdatasync.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/base/error.h"
#include "common/pm/pm.h"
#include "common/pm/pm_file.h"
#include "common/reactor/reactor.h"
#include "test/lib/temp_dir.h"
#include "test/lib/wait.h"

enum { PAGE = 4096, MAP_BYTES = 16 * PAGE };

static struct temp_dir dir;

static int setup(void **state)
{
    (void)state;
    temp_dir_init(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_fini(&dir);
    return 0;
}

static struct pm_open_options options_of(const char *name, int create)
{
    return (struct pm_open_options){.path = temp_dir_at(&dir, name),
                                    .bytes = MAP_BYTES,
                                    .create = create,
                                    .durability = PM_FENCE};
}

static struct pm *create_map(enum pm_durability durability)
{
    struct pm_open_options options = options_of("pm", 1);
    struct pm *pm = NULL;

    options.durability = durability;
    assert_int_equal(pm_open(&options, &pm), 0);
    return pm;
}

/* The answer to an open that must not succeed; `out` must stay as it was. */
static int refusal(const struct pm_open_options *options)
{
    struct pm *const untouched = (struct pm *)&dir;
    struct pm *pm = untouched;
    int error = pm_open(options, &pm);

    assert_ptr_equal(pm, untouched);
    return error;
}

static bool exists(const char *name)
{
    return access(temp_dir_at(&dir, name), F_OK) == 0;
}

static void make_file(const char *name, off_t bytes)
{
    int fd = open(temp_dir_at(&dir, name), O_RDWR | O_CREAT | O_EXCL, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    close(fd);
}

static void what_was_fenced_is_there_after_close_and_open(void **state)
{
    struct pm_open_options options = options_of("pm", 0);
    struct pm *pm = create_map(PM_FENCE);
    char bytes[] = "thirteen bytes";
    uint64_t word = UINT64_C(0x0123456789abcdef);

    (void)state;
    assert_string_equal(pm->backend, "file");
    assert_int_equal(pm->durability, PM_FENCE);
    pm_store(pm, 5 * PAGE + 3, bytes, 13);
    pm_store(pm, 8, &word, sizeof(word));
    assert_int_equal(pm_fence_wait(pm), 0);
    pm_close(pm);

    options.bytes = 0;
    assert_int_equal(pm_open(&options, &pm), 0);
    assert_int_equal(pm->bytes, MAP_BYTES);
    assert_memory_equal(pm_at(pm, 5 * PAGE + 3), bytes, 13);
    assert_int_equal(*((const uint8_t *)pm_at(pm, 5 * PAGE + 16)), 0);
    assert_memory_equal(pm_at(pm, 8), &word, sizeof(word));
    pm_zero(pm, 5 * PAGE + 4, 12);
    assert_int_equal(*((const uint8_t *)pm_at(pm, 5 * PAGE + 3)), 't');
    assert_int_equal(*((const uint8_t *)pm_at(pm, 5 * PAGE + 4)), 0);
    pm_close(pm);
}

static void a_new_file_is_zero_and_has_all_its_blocks(void **state)
{
    struct pm *pm = create_map(PM_NONE);
    struct stat st;

    (void)state;
    for (size_t i = 0; i < MAP_BYTES; i++)
        assert_int_equal(pm->base[i], 0);
    assert_int_equal(stat(temp_dir_at(&dir, "pm"), &st), 0);
    assert_int_equal(st.st_size, MAP_BYTES);
    assert_true(st.st_blocks * 512 >= MAP_BYTES);
    pm_close(pm);
}

static void a_sparse_file_gets_its_blocks_when_opened(void **state)
{
    struct pm_open_options options = options_of("sparse", 0);
    struct pm *pm;
    struct stat st;

    (void)state;
    make_file("sparse", MAP_BYTES);
    assert_int_equal(pm_open(&options, &pm), 0);
    pm_close(pm);
    assert_int_equal(stat(temp_dir_at(&dir, "sparse"), &st), 0);
    assert_true(st.st_blocks * 512 >= MAP_BYTES);
}

static void a_second_opener_is_refused_until_the_first_closes(void **state)
{
    struct pm_open_options options = options_of("pm", 0);
    struct pm *pm = create_map(PM_FENCE);

    (void)state;
    assert_int_equal(refusal(&options), ROWAN_EINUSE);
    pm_close(pm);
    assert_int_equal(pm_open(&options, &pm), 0);
    assert_int_equal(refusal(&options), ROWAN_EINUSE);
    pm_close(pm);
}

static void the_lock_ends_with_close_although_a_peer_holds_the_descriptor(void **state)
{
    struct pm_open_options options = options_of("pm", 0);
    struct pm *pm = create_map(PM_FENCE);
    int peer_fd = dup(pm->fd);

    (void)state;
    pm_close(pm);
    assert_int_equal(pm_open(&options, &pm), 0);
    pm_close(pm);
    close(peer_fd);
}

static void two_maps_share_a_file_only_where_they_do_not_overlap(void **state)
{
    struct pm_open_options options = options_of("device", 0);
    struct pm *low, *high;

    (void)state;
    make_file("device", 3 * MAP_BYTES);
    assert_int_equal(pm_open(&options, &low), 0);
    options.offset = MAP_BYTES - PAGE;
    assert_int_equal(refusal(&options), ROWAN_EINUSE);
    options.offset = MAP_BYTES;
    options.bytes = 0; /* all that is behind */
    assert_int_equal(pm_open(&options, &high), 0);
    assert_int_equal(high->bytes, 2 * MAP_BYTES);

    pm_store(high, 0, "high", 4);
    assert_int_equal(pm_fence_wait(high), 0);
    assert_int_equal(low->base[0], 0);
    pm_close(low);
    pm_close(high);

    options.offset = 0;
    assert_int_equal(pm_open(&options, &low), 0);
    assert_memory_equal(pm_at(low, MAP_BYTES), "high", 4);
    pm_close(low);
}

static void create_leaves_an_existing_file_alone(void **state)
{
    struct pm_open_options options = options_of("there", 1);
    struct stat st;

    (void)state;
    make_file("there", 123);
    assert_int_equal(refusal(&options), ROWAN_EEXISTS);
    assert_int_equal(stat(temp_dir_at(&dir, "there"), &st), 0);
    assert_int_equal(st.st_size, 123);
}

static void a_missing_file_or_directory_is_not_found(void **state)
{
    struct pm_open_options options = options_of("nowhere", 0);

    (void)state;
    assert_int_equal(refusal(&options), ROWAN_ENOTFOUND);
    options.path = temp_dir_at(&dir, "nowhere/pm");
    options.create = 1;
    assert_int_equal(refusal(&options), ROWAN_ENOTFOUND);
    make_file("plain", 0);
    options.path = temp_dir_at(&dir, "plain/pm");
    assert_int_equal(refusal(&options), ROWAN_ENOTFOUND);
}

static void without_permission_nothing_is_opened_or_made(void **state)
{
    struct pm_open_options options = options_of("locked", 0);
    const uid_t user = geteuid();

    (void)state;
    make_file("locked", MAP_BYTES);
    assert_int_equal(chmod(temp_dir_at(&dir, "locked"), 0400), 0);
    assert_int_equal(chmod(dir.path, 0555), 0);
    if (user == 0)
        assert_int_equal(seteuid(65534), 0); /* root may everything */
    assert_int_equal(refusal(&options), ROWAN_EPERMISSION);
    options = options_of("new", 1);
    assert_int_equal(refusal(&options), ROWAN_EPERMISSION);
    if (user == 0)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(dir.path, 0700), 0);
}

static void a_file_smaller_than_the_map_is_refused(void **state)
{
    struct pm_open_options options = options_of("small", 0);

    (void)state;
    make_file("small", MAP_BYTES - 1);
    assert_int_equal(refusal(&options), ROWAN_EFORMAT);
    options.bytes = PAGE;
    options.offset = MAP_BYTES - PAGE;
    assert_int_equal(refusal(&options), ROWAN_EFORMAT);
    options.bytes = 0;
    options.offset = 2 * MAP_BYTES;
    assert_int_equal(refusal(&options), ROWAN_EFORMAT);
    make_file("empty", 0);
    options = options_of("empty", 0);
    options.bytes = 0;
    assert_int_equal(refusal(&options), ROWAN_EFORMAT);
}

static void sizes_and_offsets_must_be_whole_pages(void **state)
{
    struct pm_open_options options = options_of("pm", 1);

    (void)state;
    options.bytes = MAP_BYTES + 1;
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
    options.bytes = 0;
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
    options.bytes = MAP_BYTES;
    options.offset = 64;
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
    options.offset = UINT64_MAX - PAGE + 1;
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
    assert_false(exists("pm"));
}

static void what_is_no_memory_is_refused(void **state)
{
    struct pm_open_options options = options_of("pm", 0);

    (void)state;
    options.path = dir.path;
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
    options.path = "/dev/null";
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
    assert_int_equal(mkfifo(temp_dir_at(&dir, "fifo"), 0600), 0);
    options.path = temp_dir_at(&dir, "fifo");
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
}

static void a_file_that_finds_no_space_is_gone_again(void **state)
{
    struct pm_open_options options = options_of("pm", 1);
    struct rlimit before, limit;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = MAP_BYTES / 2, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(refusal(&options), ROWAN_ENOSPACE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_false(exists("pm"));
}

static void on_tmpfs_no_fence_promises_anything(void **state)
{
    char path[] = "/dev/shm/rowan-test-XXXXXX";
    enum pm_durability asked[] = {PM_FENCE, PM_ASYNC, PM_NONE};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, MAP_BYTES), 0);
    close(fd);
    for (size_t i = 0; i < 3; i++) {
        struct pm_open_options options = {.path = path, .durability = asked[i]};
        struct pm *pm;

        assert_int_equal(pm_open(&options, &pm), 0);
        assert_int_equal(pm->durability, PM_NONE);
        assert_int_equal(pm_fence_done(pm, pm_fence_start(pm)), 1);
        pm_close(pm);
    }
    unlink(path);
}

static void a_peer_sees_and_makes_the_same_stores(void **state)
{
    struct pm *owner = create_map(PM_FENCE), *peer;
    int fd = dup(owner->fd);

    (void)state;
    assert_int_equal(pm_open_peer(fd, PAGE, MAP_BYTES - PAGE, PM_FENCE, NULL, &peer), 0);
    assert_int_equal(peer->durability, PM_FENCE);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* the map owns it */
    pm_store(peer, 0, "from the peer", 13);
    assert_int_equal(pm_fence_wait(peer), 0);
    assert_memory_equal(pm_at(owner, PAGE), "from the peer", 13);
    pm_close(peer);
    pm_close(owner);
}

static void a_peers_memory_must_be_as_large_as_it_said(void **state)
{
    struct pm *peer = NULL;
    int fd = memfd_create("peer", MFD_CLOEXEC);

    (void)state;
    assert_int_equal(ftruncate(fd, MAP_BYTES), 0);
    assert_int_equal(pm_open_peer(fd, PAGE, MAP_BYTES, PM_FENCE, NULL, &peer), ROWAN_EFORMAT);
    assert_int_equal(pm_open_peer(fd, 1, MAP_BYTES, PM_FENCE, NULL, &peer), ROWAN_EINVALID);
    assert_int_equal(pm_open_peer(fd, 0, 0, PM_FENCE, NULL, &peer), ROWAN_EINVALID);
    assert_null(peer);
    assert_int_not_equal(fcntl(fd, F_GETFD), -1); /* still ours */

    assert_int_equal(pm_open_peer(fd, 0, MAP_BYTES, PM_FENCE, NULL, &peer), 0);
    assert_int_equal(peer->durability, PM_NONE);
    pm_close(peer);
}

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

static void fences_that_wait_share_one_sync(void **state)
{
    struct pm *pm = create_map_on_medium(PM_FENCE);
    struct pm_ticket first = pm_fence_start(pm), others[50];

    (void)state;
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

static void a_failed_sync_is_fatal_and_never_tried_again(void **state)
{
    struct pm *pm = create_map_on_medium(PM_FENCE);
    struct pm_ticket good, bad;

    (void)state;
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

static void an_async_fence_is_done_at_once_and_a_sync_follows(void **state)
{
    struct pm *pm = create_map_on_medium(PM_ASYNC);

    (void)state;
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

static void without_durability_nothing_is_synced(void **state)
{
    struct pm *pm = create_map_on_medium(PM_NONE);

    (void)state;
    assert_int_equal(pm_fence_done(pm, pm_fence_start(pm)), 1);
    assert_int_equal(pm_fence_wait(pm), 0);
    pm_close(pm);
    assert_int_equal(medium.begun, 0);
}

static void close_waits_for_the_syncs_that_were_asked_for(void **state)
{
    struct pm *pm = create_map_on_medium(PM_FENCE);

    (void)state;
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
static void a_fence_leaves_no_dirty_page(void **state)
{
    struct pm *pm = create_map(PM_FENCE);

    (void)state;
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

static void the_end_of_a_sync_wakes_the_reactor(void **state)
{
    struct pm_open_options options = options_of("pm", 1);
    struct reactor_options reactor_options = {.name = "test", .clock = clock_system(), .cpu = -1};
    struct fence_role role = {0};
    struct poller poller = {.name = "fence", .poll = poll_fence, .role = &role};
    uint64_t start_ns = clock_now_ns(clock_system());

    (void)state;
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

static void durabilities_have_the_names_of_the_setting(void **state)
{
    (void)state;
    assert_string_equal(pm_durability_name(PM_FENCE), "fence");
    assert_string_equal(pm_durability_name(PM_ASYNC), "async");
    assert_string_equal(pm_durability_name(PM_NONE), "none");
    pm_close(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_was_fenced_is_there_after_close_and_open),
        TEST(a_new_file_is_zero_and_has_all_its_blocks),
        TEST(a_sparse_file_gets_its_blocks_when_opened),
        TEST(a_second_opener_is_refused_until_the_first_closes),
        TEST(the_lock_ends_with_close_although_a_peer_holds_the_descriptor),
        TEST(two_maps_share_a_file_only_where_they_do_not_overlap),
        TEST(create_leaves_an_existing_file_alone),
        TEST(a_missing_file_or_directory_is_not_found),
        TEST(without_permission_nothing_is_opened_or_made),
        TEST(a_file_smaller_than_the_map_is_refused),
        TEST(sizes_and_offsets_must_be_whole_pages),
        TEST(what_is_no_memory_is_refused),
        TEST(a_file_that_finds_no_space_is_gone_again),
        TEST(on_tmpfs_no_fence_promises_anything),
        TEST(a_peer_sees_and_makes_the_same_stores),
        TEST(a_peers_memory_must_be_as_large_as_it_said),
        TEST(fences_that_wait_share_one_sync),
        TEST(a_failed_sync_is_fatal_and_never_tried_again),
        TEST(an_async_fence_is_done_at_once_and_a_sync_follows),
        TEST(without_durability_nothing_is_synced),
        TEST(close_waits_for_the_syncs_that_were_asked_for),
        TEST(a_fence_leaves_no_dirty_page),
        TEST(the_end_of_a_sync_wakes_the_reactor),
        TEST(durabilities_have_the_names_of_the_setting),
    };

    return cmocka_run_group_tests_name("pm", tests, NULL, NULL);
}
