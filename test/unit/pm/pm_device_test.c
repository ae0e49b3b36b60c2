/* pm_device_test.c - maps of a devdax device, which no host of the tests has: run in the machine of test/vm.
 *
 *   pm_device DEVICE
 *
 * What lies in the device's last 32 MiB is lost; they are zeros afterwards. */

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/error.h"
#include "common/pm/pm.h"
#include "common/pm/pm_device.h"
#include "test/lib/pm_wait.h"
#include "test/lib/unit.h"

enum { PART_BYTES = 8 << 20, PARTS_BYTES = 32 << 20 };

static const char *path;
static struct pm_device device;

static struct pm_open_options part(unsigned number)
{
    return (struct pm_open_options){.path = path,
                                    .offset = device.bytes - PARTS_BYTES + number * PART_BYTES,
                                    .bytes = PART_BYTES,
                                    .durability = PM_FENCE};
}

static struct pm *open_part(unsigned number)
{
    const struct pm_open_options options = part(number);
    struct pm *pm = NULL;

    assert_int_equal(pm_open(&options, &pm), 0);
    return pm;
}

static void refuse(struct pm_open_options options, int error)
{
    struct pm *pm = NULL;

    assert_int_equal(pm_open(&options, &pm), error);
    assert_null(pm);
}

TEST(a_device_is_dax_and_its_fences_are_done_at_once)
{
    struct pm_open_options options = part(0);
    struct pm *pm;

    options.durability = PM_NONE;
    assert_int_equal(pm_open(&options, &pm), 0);
    assert_string_equal(pm->backend, "dax");
    assert_int_equal(pm->durability, PM_FENCE);
    assert_int_equal(pm_fence_done(pm, pm_fence_start(pm)), 1);
    pm_close(pm);
}

TEST(all_that_is_behind_an_offset_is_mapped_where_no_size_is_asked)
{
    struct pm_open_options options = part(1);
    struct pm *pm;

    options.bytes = 0;
    assert_int_equal(pm_open(&options, &pm), 0);
    assert_int_equal(pm->bytes, PARTS_BYTES - PART_BYTES);
    assert_int_equal(pm->base[pm->bytes - 1], 0);
    pm_close(pm);
}

TEST(what_is_not_aligned_is_refused)
{
    struct pm_open_options options = part(0);

    assert_true(device.align_bytes > 4096);
    options.offset += 4096;
    refuse(options, ROWAN_EINVALID);
    options = part(0);
    options.bytes -= 4096;
    refuse(options, ROWAN_EINVALID);
}

TEST(more_than_there_is_is_refused)
{
    struct pm_open_options options = part(3);

    options.bytes = 2 * PART_BYTES;
    refuse(options, ROWAN_EFORMAT);
    options.offset = device.bytes;
    options.bytes = 0;
    refuse(options, ROWAN_EFORMAT);
}

TEST(a_device_cannot_be_made)
{
    struct pm_open_options options = part(0);
    struct stat st;

    options.create = 1;
    refuse(options, ROWAN_EEXISTS);
    assert_int_equal(stat(path, &st), 0);
}

TEST(virtual_and_physical_addresses_agree_for_the_largest_pages)
{
    const uint64_t largest = UINT64_C(1) << 30;

    assert_true(device.physical != 0);
    for (unsigned number = 0; number < 4; number++) {
        struct pm *pm = open_part(number);
        const uint64_t physical = device.physical + pm->offset;

        assert_int_equal((uintptr_t)pm->base % largest, physical % largest);
        pm_close(pm);
    }
}

TEST(stores_are_there_after_close_and_open)
{
    uint8_t text[1000];
    struct pm *pm = open_part(1);

    memset(text, 'x', sizeof text);
    pm_store(pm, PART_BYTES - sizeof text, text, sizeof text);
    assert_int_equal(pm_fence_wait(pm), 0);
    pm_close(pm);
    pm = open_part(1);
    assert_memory_equal(pm_at(pm, PART_BYTES - sizeof text), text, sizeof text);
    pm_zero(pm, 0, PART_BYTES);
    assert_int_equal(pm_fence_wait(pm), 0);
    pm_close(pm);
    pm = open_part(1);
    assert_int_equal(pm->base[PART_BYTES - 1], 0);
    pm_close(pm);
}

TEST(parts_have_one_owner_each)
{
    struct pm_open_options over = part(0);
    struct pm *first = open_part(0), *second = open_part(1);

    refuse(part(0), ROWAN_EINUSE);
    over.offset += device.align_bytes;
    over.bytes = device.align_bytes;
    refuse(over, ROWAN_EINUSE);
    pm_store(first, 0, "first", 6);
    pm_store(second, 0, "second", 7);
    assert_string_equal(pm_at(first, 0), "first");
    assert_string_equal(pm_at(second, 0), "second");
    pm_zero(first, 0, 64);
    pm_zero(second, 0, 64);
    pm_close(first);
    first = open_part(0);
    pm_close(first);
    pm_close(second);
}

TEST(a_peer_maps_what_the_owner_gives_it_and_keeps_others_out)
{
    struct pm *owner = open_part(2), *peer;
    const int fd = fcntl(owner->fd, F_DUPFD_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(pm_open_peer(fd, owner->offset, PART_BYTES, PM_FENCE, NULL, &peer), 0);
    assert_string_equal(peer->backend, "dax");
    pm_store(peer, 4096, "from the peer", 14);
    assert_int_equal(pm_fence_wait(peer), 0);
    assert_string_equal(pm_at(owner, 4096), "from the peer");
    pm_zero(owner, 4096, 64);
    pm_close(owner);
    refuse(part(2), ROWAN_EINUSE);
    pm_close(peer);
    owner = open_part(2);
    pm_close(owner);
}

static int find_device(void)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISCHR(st.st_mode) &&
           pm_device_read(st.st_rdev, &device) == 0 && device.bytes >= PARTS_BYTES;
}

int main(int argc, char **argv)
{
    path = argc > 1 ? argv[1] : "";
    if (!find_device()) {
        fprintf(stderr, "pm_device: \"%s\" is no devdax device of 32 MiB\n", path);
        return 2;
    }
    return unit_run(NULL, NULL);
}
