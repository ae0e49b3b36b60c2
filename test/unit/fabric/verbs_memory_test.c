/* verbs_memory_test.c - what of memory is registered, and what is said where it cannot be; on devices made of
 * software. */
#define TEST_FIXTURE reset, NULL
#include <fcntl.h>

#include "common/base/error.h"
#include "test/lib/heap_pm.h"
#include "test/lib/temp_dir.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/verbs_devices.h"

static struct verbs_fabric *fabric_on(const char *host)
{
    struct verbs_fabric *fabric = calloc(1, sizeof *fabric);

    assert_non_null(fabric);
    fabric->device = open_for(host, NULL);
    return fabric;
}

static void fabric_end(struct verbs_fabric *fabric)
{
    verbs_unregister_all(fabric);
    verbs_device_close(fabric->device);
    free(fabric);
    assert_true(soft_verbs_is_empty());
}

TEST(a_pm_is_one_region_with_the_devices_key_and_there_are_so_many)
{
    struct verbs_fabric *fabric = fabric_on(NULL);
    struct heap_pm *heap = heap_pm_create(1 << 20);

    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        assert_int_equal(verbs_register(&fabric->base.base, &heap->pm), 0);
        assert_int_equal(fabric->base.regions.all[i].key, fabric->mrs[i]->lkey);
    }
    assert_int_equal(verbs_register(&fabric->base.base, &heap->pm), ROWAN_ETOOMANY);
    fabric_end(fabric);
    heap_pm_destroy(heap);
}

TEST(a_file_with_durability_is_refused_since_a_nic_syncs_no_file)
{
    static const enum pm_durability kinds[] = {PM_FENCE, PM_ASYNC, PM_NONE};
    struct verbs_fabric *fabric = fabric_on(NULL);
    struct temp_dir dir;

    temp_dir_init(&dir);
    for (unsigned i = 0; i < 3; i++) {
        char name[] = "pm-0";
        struct pm *pm;

        name[3] = (char)('0' + i);
        const struct pm_open_options options = {
            .path = temp_dir_at(&dir, name), .bytes = 1 << 20, .create = 1, .durability = kinds[i]};

        assert_int_equal(pm_open(&options, &pm), 0);
        const int expected = pm->durability == PM_NONE ? 0 : ROWAN_EUNSUPPORTED; /* tmpfs: none */

        assert_int_equal(verbs_register(&fabric->base.base, pm), expected);
        if (expected) {
            assert_non_null(strstr(fabric_why(&fabric->base.base), pm_durability_name(kinds[i])));
            assert_non_null(strstr(fabric_why(&fabric->base.base), "use devdax"));
        } else {
            assert_string_equal(fabric_why(&fabric->base.base), "");
        }
        verbs_unregister_all(fabric);
        pm_close(pm);
    }
    fabric_end(fabric);
    temp_dir_fini(&dir);
}

/* A file of a disk that says of itself that it is on DAX: what a DAX mount looks like to us. */
TEST(fsdax_is_registered_on_demand_where_the_device_can)
{
    struct verbs_fabric *can = fabric_on("10.1.2.1"), *cannot = fabric_on("10.1.1.1");
    struct heap_pm *heap = heap_pm_create(4096);
    struct temp_dir dir;

    temp_dir_init(&dir);
    heap->pm.fd = open(temp_dir_at(&dir, "file"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    heap->pm.backend = "dax";
    assert_true(heap->pm.fd >= 0);
    soft_verbs_fail_call(1, EOPNOTSUPP);
    assert_int_equal(verbs_register(&can->base.base, &heap->pm), 0);
    soft_verbs_fail_call(1, EOPNOTSUPP);
    assert_int_equal(verbs_register(&cannot->base.base, &heap->pm), ROWAN_EUNSUPPORTED);
    assert_non_null(strstr(fabric_why(&cannot->base.base), "on-demand paging"));
    verbs_unregister_all(can);
    can->device->has_odp = false; /* it pages on demand, but not for all that is needed */
    soft_verbs_fail_call(1, EOPNOTSUPP);
    assert_int_equal(verbs_register(&can->base.base, &heap->pm), ROWAN_EUNSUPPORTED);
    close(heap->pm.fd);
    heap->pm.fd = -1;
    verbs_unregister_all(can);
    verbs_device_close(can->device);
    free(can);
    fabric_end(cannot);
    heap_pm_destroy(heap);
    temp_dir_fini(&dir);
}

TEST(the_multi_packet_queue_never_pages_on_demand)
{
    verbs_obstacle_register("mlx5_0", VERBS_MEMORY_FSDAX, FABRIC_RECEIVE_MULTI_PACKET, true,
                            EOPNOTSUPP, &why);
    assert_int_equal(why.error, ROWAN_EUNSUPPORTED);
    assert_non_null(strstr(why.what, "multi-packet"));
    assert_non_null(strstr(why.mend, "-m devdax"));
}

TEST(too_little_lockable_memory_is_told_with_both_figures)
{
    struct verbs_locked_memory memory = {.limit_bytes = 8 << 20, .pinned_bytes = 1 << 20};

    assert_true(verbs_may_pin(&memory, 7 << 20, &why));
    assert_false(verbs_may_pin(&memory, (7 << 20) + 1, &why));
    assert_int_equal(why.error, ROWAN_EPERMISSION);
    assert_non_null(strstr(why.what, "7340033"));
    assert_non_null(strstr(why.what, "8388608"));
    assert_non_null(strstr(why.mend, "LimitMEMLOCK=infinity"));
    assert_false(verbs_may_pin(&memory, UINT64_MAX, &why));
    memory.is_exempt = true;
    assert_true(verbs_may_pin(&memory, 1 << 30, &why));
}

TEST(a_buffer_is_zeros_whole_pages_and_shared_with_children)
{
    struct verbs_device *device = open_for(NULL, NULL);
    struct verbs_buffer small = {0}, large = {0};

    assert_int_equal(verbs_buffer_open(device, 100, &small), 0);
    assert_int_equal(verbs_buffer_open(device, 3 << 20, &large), 0);
    assert_int_equal(small.mapped_bytes % 4096, 0);
    assert_true(large.mapped_bytes >= 3 << 20);
    assert_true(large.mr->length >= large.mapped_bytes);
    for (uint64_t i = 0; i < large.mapped_bytes; i += 4096)
        assert_int_equal(large.data[i], 0);
    verbs_buffer_close(&small);
    verbs_buffer_close(&small); /* twice is fine */
    verbs_buffer_close(&large);
    soft_verbs_fail_call(1, ENOMEM);
    assert_int_equal(verbs_buffer_open(device, 4096, &small), ROWAN_ENOMEM);
    assert_null(small.data);
    verbs_device_close(device);
    assert_true(soft_verbs_is_empty());
}

UNIT_MAIN(NULL, NULL)
