/* pm_open_test.c - opening and peers with the file backend: what lasts, what is locked and what is
 * refused. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "test/lib/fail_call.h"
#include "test/lib/pm_wait.h"
#include "test/lib/unit.h"
#include "test/unit/pm/pm_fixture.h"

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

TEST(what_was_fenced_is_there_after_close_and_open)
{
    struct pm_open_options options = options_of("pm", 0);
    struct pm *pm = create_map(PM_FENCE);
    char bytes[] = "thirteen bytes";
    uint64_t word = UINT64_C(0x0123456789abcdef);

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

TEST(a_new_file_is_zero_and_has_all_its_blocks)
{
    struct pm *pm = create_map(PM_NONE);
    struct stat st;

    for (size_t i = 0; i < MAP_BYTES; i++)
        assert_int_equal(pm->base[i], 0);
    assert_int_equal(stat(temp_dir_at(&dir, "pm"), &st), 0);
    assert_int_equal(st.st_size, MAP_BYTES);
    assert_true(st.st_blocks * 512 >= MAP_BYTES);
    pm_close(pm);
}

TEST(a_sparse_file_gets_its_blocks_when_opened)
{
    struct pm_open_options options = options_of("sparse", 0);
    struct pm *pm;
    struct stat st;

    make_file("sparse", MAP_BYTES);
    assert_int_equal(pm_open(&options, &pm), 0);
    pm_close(pm);
    assert_int_equal(stat(temp_dir_at(&dir, "sparse"), &st), 0);
    assert_true(st.st_blocks * 512 >= MAP_BYTES);
}

TEST(a_second_opener_is_refused_until_the_first_closes)
{
    struct pm_open_options options = options_of("pm", 0);
    struct pm *pm = create_map(PM_FENCE);

    assert_int_equal(refusal(&options), ROWAN_EINUSE);
    pm_close(pm);
    assert_int_equal(pm_open(&options, &pm), 0);
    assert_int_equal(refusal(&options), ROWAN_EINUSE);
    pm_close(pm);
}

TEST(a_reader_maps_what_is_there_and_changes_nothing)
{
    struct pm_open_options options = options_of("sparse", 0);
    const char *path = temp_dir_at(&dir, "sparse");
    struct pm *pm = NULL, *other = NULL;
    struct stat st;

    make_file("sparse", MAP_BYTES + PAGE + 100);
    assert_int_equal(pm_open_read(path, PAGE, 0, &pm), 0);
    assert_true(pm->bytes == MAP_BYTES && pm->offset == PAGE && pm->base[MAP_BYTES - 1] == 0);
    assert_int_equal(pm_open_read(path, 0, MAP_BYTES, &other), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_blocks, 0);
    assert_int_equal(refusal(&options), ROWAN_EINUSE);
    pm_close(pm);
    pm_close(other);
    assert_int_equal(pm_open(&options, &pm), 0);
    assert_int_equal(pm_open_read(path, 0, 0, &other), ROWAN_EINUSE);
    pm_close(pm);
    assert_int_equal(pm_open_read(path, 0, 2 * MAP_BYTES, &other), ROWAN_EFORMAT);
    assert_int_equal(pm_open_read(path, 64, 0, &other), ROWAN_EINVALID);
    assert_int_equal(pm_open_read(temp_dir_at(&dir, "none"), 0, 0, &other), ROWAN_ENOTFOUND);
    assert_int_equal(mkfifo(temp_dir_at(&dir, "fifo"), 0600), 0);
    assert_int_equal(pm_open_read(temp_dir_at(&dir, "fifo"), 0, 0, &other), ROWAN_EINVALID);
}

TEST(two_maps_share_a_file_only_where_they_do_not_overlap)
{
    struct pm_open_options options = options_of("device", 0);
    struct pm *low, *high;

    make_file("device", 3 * MAP_BYTES);
    assert_int_equal(pm_open(&options, &low), 0);
    options.offset = MAP_BYTES - PAGE;
    assert_int_equal(refusal(&options), ROWAN_EINUSE);
    options.offset = MAP_BYTES;
    options.bytes = 0; /* all that is behind */
    assert_int_equal(pm_open(&options, &high), 0);
    assert_int_equal(high->bytes, 2 * MAP_BYTES);
    assert_int_equal(high->offset, MAP_BYTES);

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

TEST(create_leaves_an_existing_file_alone)
{
    struct pm_open_options options = options_of("there", 1);
    struct stat st;

    make_file("there", 123);
    assert_int_equal(refusal(&options), ROWAN_EEXISTS);
    assert_int_equal(stat(temp_dir_at(&dir, "there"), &st), 0);
    assert_int_equal(st.st_size, 123);
}

TEST(a_file_whose_maker_ended_before_it_reserved_the_space_is_made)
{
    struct pm_open_options options = options_of("begun", 1);
    struct pm *pm;

    make_file("begun", 0);
    assert_int_equal(pm_open(&options, &pm), 0);
    assert_int_equal(pm->bytes, MAP_BYTES);
    assert_int_equal(refusal(&options), ROWAN_EEXISTS);
    pm_close(pm);
    assert_int_equal(refusal(&options), ROWAN_EEXISTS);
}

TEST(a_missing_file_or_directory_is_not_found)
{
    struct pm_open_options options = options_of("nowhere", 0);

    assert_int_equal(refusal(&options), ROWAN_ENOTFOUND);
    options.path = temp_dir_at(&dir, "nowhere/pm");
    options.create = 1;
    assert_int_equal(refusal(&options), ROWAN_ENOTFOUND);
    make_file("plain", 0);
    options.path = temp_dir_at(&dir, "plain/pm");
    assert_int_equal(refusal(&options), ROWAN_ENOTFOUND);
}

TEST(without_permission_nothing_is_opened_or_made)
{
    struct pm_open_options options = options_of("locked", 0);
    const uid_t user = geteuid();

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

TEST(a_file_smaller_than_the_map_is_refused)
{
    struct pm_open_options options = options_of("small", 0);

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

TEST(sizes_and_offsets_must_be_whole_pages)
{
    struct pm_open_options options = options_of("pm", 1);

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

TEST(what_is_no_memory_is_refused)
{
    struct pm_open_options options = options_of("pm", 0);

    options.path = dir.path;
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
    options.path = "/dev/null";
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
    assert_int_equal(mkfifo(temp_dir_at(&dir, "fifo"), 0600), 0);
    options.path = temp_dir_at(&dir, "fifo");
    assert_int_equal(refusal(&options), ROWAN_EINVALID);
}

TEST(a_file_that_finds_no_space_is_gone_again)
{
    struct pm_open_options options = options_of("pm", 1);
    struct rlimit before, limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = MAP_BYTES / 2, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(refusal(&options), ROWAN_ENOSPACE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_false(exists("pm"));
}

TEST(on_tmpfs_no_fence_promises_anything)
{
    char path[] = "/dev/shm/rowan-test-XXXXXX";
    enum pm_durability asked[] = {PM_FENCE, PM_ASYNC, PM_NONE};
    int fd = mkstemp(path);

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

TEST(a_peer_sees_and_makes_the_same_stores)
{
    struct pm *owner = create_map(PM_FENCE), *peer;
    int fd = dup(owner->fd);

    assert_int_equal(pm_open_peer(fd, PAGE, MAP_BYTES - PAGE, PM_FENCE, NULL, &peer), 0);
    assert_int_equal(peer->durability, PM_FENCE);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* the map owns it */
    pm_store(peer, 0, "from the peer", 13);
    assert_int_equal(pm_fence_wait(peer), 0);
    assert_memory_equal(pm_at(owner, PAGE), "from the peer", 13);
    pm_close(peer);
    pm_close(owner);
}

TEST(a_peers_memory_must_be_as_large_as_it_said)
{
    struct pm *peer = NULL;
    int fd = memfd_create("peer", MFD_CLOEXEC);

    assert_int_equal(ftruncate(fd, MAP_BYTES), 0);
    assert_int_equal(pm_open_peer(fd, PAGE, MAP_BYTES, PM_FENCE, NULL, &peer), ROWAN_EFORMAT);
    assert_int_equal(pm_open_peer(fd, 1, MAP_BYTES, PM_FENCE, NULL, &peer), ROWAN_EINVALID);
    assert_int_equal(pm_open_peer(fd, 0, 0, PM_FENCE, NULL, &peer), ROWAN_EINVALID);
    assert_null(peer);
    assert_int_not_equal(fcntl(fd, F_GETFD), -1); /* still ours */

    assert_int_equal(pm_open_peer(fd, 0, MAP_BYTES, PM_FENCE, NULL, &peer), 0);
    assert_int_equal(peer->durability, PM_NONE);
    pm_store(peer, MAP_BYTES - 8, "the peer", 8);
    pm_store(peer, MAP_BYTES - 4, "ends", 4);
    assert_memory_equal(pm_at(peer, MAP_BYTES - 8), "the ends", 8);
    pm_close(peer);
}

TEST(durabilities_have_the_names_of_the_setting)
{
    assert_string_equal(pm_durability_name(PM_FENCE), "fence");
    assert_string_equal(pm_durability_name(PM_ASYNC), "async");
    assert_string_equal(pm_durability_name(PM_NONE), "none");
    pm_close(NULL);
}

/* Makes a map and a peer's of it, stores and fences; `opened` of them were had. */
static int use_maps(enum pm_durability durability, unsigned *opened)
{
    struct pm_open_options options = options_of("swept", 1);
    struct pm *pm, *peer;
    int error, fd;

    *opened = 0;
    options.durability = durability;
    error = pm_open(&options, &pm);
    if (error)
        return error;
    *opened = 1;
    pm_store(pm, 0, "swept", 5);
    error = pm_fence_wait(pm);
    fd = dup(pm->fd);
    if (!error)
        error = pm_open_peer(fd, PAGE, MAP_BYTES - PAGE, durability, NULL, &peer);
    if (error) {
        close(fd);
    } else {
        *opened = 2;
        pm_store(peer, 0, "swept", 5);
        error = pm_fence_wait(peer);
        pm_close(peer);
    }
    pm_close(pm);
    return error;
}

TEST(whatever_call_fails_is_an_error_and_leaves_neither_a_file_nor_a_lock)
{
    for (enum pm_durability durability = PM_FENCE; durability <= PM_NONE; durability++) {
        bool more = true;

        for (uint32_t nth = 1; more; nth++) {
            unsigned opened;

            fail_call(nth);
            int error = use_maps(durability, &opened);

            more = fail_stop();
            assert_true(more || !error);
            assert_int_equal(exists("swept"), opened > 0);
            if (opened) {
                struct pm_open_options options = options_of("swept", 0);
                struct pm *pm;

                assert_int_equal(pm_open(&options, &pm), 0);
                assert_memory_equal(pm->base, "swept", 5);
                pm_close(pm);
                unlink(options.path);
            }
        }
    }
}

UNIT_MAIN(NULL, NULL)
