/* pm_dax_test.c - the dax backend. There is no persistent memory here: PMEM_IS_PMEM_FORCE=1
 * (libpmem(7)) vouches for a file instead. libpmem reads it when it is loaded, so the program sets
 * it and starts itself again. */

#include "test/lib/pm_wait.h"
#include "test/unit/pm/pm_fixture.h"

static struct pm *open_map(int create, uint64_t offset, enum pm_durability durability)
{
    struct pm_open_options options = {.path = temp_dir_at(&dir, "pm"),
                                      .offset = offset,
                                      .bytes = create ? MAP_BYTES : 0,
                                      .create = create,
                                      .durability = durability};
    struct pm *pm = NULL;

    assert_int_equal(pm_open(&options, &pm), 0);
    assert_string_equal(pm->backend, "dax");
    return pm;
}

TEST(a_fence_on_dax_is_done_at_once_whatever_was_asked)
{
    struct pm *pm = open_map(1, 0, PM_NONE);

    assert_int_equal(pm->durability, PM_FENCE);
    assert_int_equal(pm_fence_done(pm, pm_fence_start(pm)), 1);
    assert_int_equal(pm_fence_wait(pm), 0);
    assert_int_equal(pm_sync_count(pm), 0);
    pm_close(pm);
}

TEST(stores_of_every_size_and_alignment_land_exactly)
{
    struct pm *pm = open_map(1, 0, PM_FENCE);
    uint8_t expected[MAP_BYTES] = {0}, source[1024];
    uint64_t offset = 1;

    for (size_t i = 0; i < sizeof(source); i++)
        source[i] = (uint8_t)(i % 251 + 1);
    for (size_t bytes = 0; offset + bytes < MAP_BYTES && bytes < sizeof(source); bytes += 7) {
        pm_store(pm, offset, source, bytes);
        memcpy(expected + offset, source, bytes);
        offset += bytes + bytes % 5;
    }
    pm_store(pm, MAP_BYTES - 8, source, 8);
    memcpy(expected + MAP_BYTES - 8, source, 8);
    pm_fence_start(pm);
    assert_memory_equal(pm->base, expected, MAP_BYTES);
    pm_zero(pm, 100, 3 * PAGE + 1);
    memset(expected + 100, 0, 3 * PAGE + 1);
    pm_fence_start(pm);
    assert_memory_equal(pm->base, expected, MAP_BYTES);
    pm_close(pm);
}

TEST(stores_are_there_after_close_and_open_at_an_offset)
{
    struct pm *pm = open_map(1, 0, PM_FENCE);

    pm_store(pm, 3 * PAGE + 5, "lasting", 7);
    assert_int_equal(pm_fence_wait(pm), 0);
    pm_close(pm);
    pm = open_map(0, 3 * PAGE, PM_FENCE);
    assert_int_equal(pm->bytes, MAP_BYTES - 3 * PAGE);
    assert_int_equal(pm->offset, 3 * PAGE);
    assert_memory_equal(pm_at(pm, 5), "lasting", 7);
    pm_close(pm);
}

TEST(a_peer_of_a_dax_map_is_dax_too)
{
    struct pm *owner = open_map(1, 0, PM_FENCE), *peer;

    assert_int_equal(pm_open_peer(dup(owner->fd), 0, MAP_BYTES, PM_FENCE, NULL, &peer), 0);
    assert_string_equal(peer->backend, "dax");
    assert_int_equal(peer->offset, 0);
    pm_store(peer, PAGE, "peer", 4);
    pm_fence_start(peer);
    assert_memory_equal(pm_at(owner, PAGE), "peer", 4);
    pm_close(peer);
    pm_close(owner);
}

TEST(a_dax_map_is_locked_against_a_second_opener)
{
    struct pm_open_options options = {.path = temp_dir_at(&dir, "pm")};
    struct pm *pm = open_map(1, 0, PM_FENCE), *second = NULL;

    assert_int_equal(pm_open(&options, &second), ROWAN_EINUSE);
    assert_null(second);
    pm_close(pm);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (!getenv("PMEM_IS_PMEM_FORCE")) {
        setenv("PMEM_IS_PMEM_FORCE", "1", 1);
        execv("/proc/self/exe", argv);
        perror("execv");
        return 1;
    }
    return unit_run(NULL, NULL);
}
