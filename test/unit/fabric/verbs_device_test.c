/* verbs_device_test.c - which device, GID and way to receive are chosen, what is registered, and what is said
 * where something stands in the way; on devices made of software. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "common/base/error.h"
#include "common/fabric/verbs.h"
#include "test/lib/heap_pm.h"
#include "test/lib/soft_verbs.h"
#include "test/lib/temp_dir.h"

static struct verbs_obstacle why;

static int reset(void **state)
{
    (void)state;
    soft_verbs_configure(NULL);
    soft_verbs_fail_call(0, 0);
    memset(&why, 0, sizeof why);
    return 0;
}

static void configure(struct soft_device_config first, struct soft_device_config second)
{
    const struct soft_config config = {.seed = 1, .devices = {first, second}};

    soft_verbs_configure(&config);
}

static struct verbs_device *open_for(const char *host, const struct fabric_verbs_options *options)
{
    struct verbs_device *device = NULL;

    assert_int_equal(verbs_device_try(host, options, &device, &why), 0);
    assert_non_null(device);
    return device;
}

static void assert_nothing_left(void)
{
    struct soft_stats stats;

    soft_verbs_stats(&stats);
    assert_int_equal(stats.contexts + stats.pds + stats.mrs + stats.cqs + stats.channels, 0);
    assert_int_equal(stats.qps + stats.srqs + stats.ahs + stats.dms, 0);
}

static void assert_refused(const struct fabric_verbs_options *options, int error, const char *what,
                           const char *mend)
{
    struct verbs_device *device = NULL;

    assert_int_equal(verbs_device_try(NULL, options, &device, &why), error);
    assert_null(device);
    assert_int_equal(why.error, error);
    assert_non_null(strstr(why.what, what));
    assert_non_null(strstr(why.mend, mend));
    assert_nothing_left();
}

static void assert_gid(const struct verbs_device *device, int index, const char *address)
{
    char text[INET6_ADDRSTRLEN];

    inet_ntop(AF_INET6, device->gid.raw, text, sizeof text);
    assert_string_equal(text, address);
    assert_int_equal(device->gid_index, index);
}

/* --- device and GID --- */

static void the_first_device_with_an_active_port_is_taken(void **state)
{
    (void)state;
    struct verbs_device *device = open_for(NULL, NULL);

    assert_string_equal(ibv_get_device_name(device->context->device), "soft1");
    assert_int_equal(device->chosen_by, VERBS_BY_ORDER);
    assert_int_equal(device->port, 1);
    assert_true(device->is_ethernet);
    assert_int_equal(device->mtu_bytes, 1024);
    verbs_device_close(device);
    assert_nothing_left();
}

static void rocev2_with_ipv4_comes_before_all_other_gids(void **state)
{
    (void)state;
    struct verbs_device *device = open_for(NULL, NULL);

    assert_gid(device, 3, "::ffff:10.1.1.1");
    verbs_device_close(device);
    configure((struct soft_device_config){.name = "soft0",
                                          .gids = {{"fd00::1", IBV_GID_TYPE_ROCE_V2},
                                                   {"10.1.1.1", IBV_GID_TYPE_ROCE_V2}}},
              (struct soft_device_config){0});
    device = open_for(NULL, NULL);
    assert_gid(device, 1, "::ffff:10.1.1.1");
    verbs_device_close(device);
}

static void the_process_own_address_decides_for_device_and_gid(void **state)
{
    (void)state;
    struct verbs_device *device = open_for("10.1.2.1", NULL);

    assert_string_equal(ibv_get_device_name(device->context->device), "soft2");
    assert_int_equal(device->chosen_by, VERBS_BY_ADDRESS);
    assert_gid(device, 3, "::ffff:10.1.2.1");
    assert_int_equal(device->mtu_bytes, 4096);
    verbs_device_close(device);
}

static void an_address_that_no_gid_has_leaves_the_choice_to_the_order(void **state)
{
    (void)state;
    struct verbs_device *device = open_for("127.0.0.1", NULL);

    assert_string_equal(ibv_get_device_name(device->context->device), "soft1");
    assert_int_equal(device->chosen_by, VERBS_BY_ORDER);
    verbs_device_close(device);
}

static void a_name_wins_over_the_address(void **state)
{
    (void)state;
    const struct fabric_verbs_options options = {.device = "soft1"};
    struct verbs_device *device = open_for("10.1.2.1", &options);

    assert_string_equal(ibv_get_device_name(device->context->device), "soft1");
    assert_int_equal(device->chosen_by, VERBS_BY_NAME);
    verbs_device_close(device);
}

static void ipv6_of_rocev2_comes_before_link_local_and_rocev1(void **state)
{
    (void)state;
    configure((struct soft_device_config){.name = "soft0",
                                          .gids = {{"10.1.1.1", IBV_GID_TYPE_ROCE_V1},
                                                   {"fe80::1", IBV_GID_TYPE_ROCE_V2},
                                                   {"fd00::1", IBV_GID_TYPE_ROCE_V2}}},
              (struct soft_device_config){0});
    struct verbs_device *device = open_for(NULL, NULL);

    assert_gid(device, 2, "fd00::1");
    verbs_device_close(device);
}

static void rocev1_is_better_than_nothing(void **state)
{
    (void)state;
    configure((struct soft_device_config){.name = "soft0",
                                          .gids = {{NULL, 0}, {"fe80::1", IBV_GID_TYPE_ROCE_V1}}},
              (struct soft_device_config){0});
    struct verbs_device *device = open_for(NULL, NULL);

    assert_gid(device, 1, "fe80::1");
    verbs_device_close(device);
}

static void on_infiniband_it_is_gid_0(void **state)
{
    (void)state;
    configure((struct soft_device_config){.name = "soft0",
                                          .is_infiniband = true,
                                          .gids = {{"fe80::1", IBV_GID_TYPE_IB},
                                                   {"10.1.1.1", IBV_GID_TYPE_IB}}},
              (struct soft_device_config){0});
    struct verbs_device *device = open_for(NULL, NULL);

    assert_gid(device, 0, "fe80::1");
    assert_false(device->is_ethernet);
    verbs_device_close(device);
}

static void a_gid_index_that_was_asked_for_is_taken(void **state)
{
    (void)state;
    const struct fabric_verbs_options options = {.gid_index_plus_1 = 2};
    struct verbs_device *device = open_for(NULL, &options);

    assert_int_equal(device->gid_index, 1);
    verbs_device_close(device);
}

/* --- what stands in the way --- */

static void a_name_that_no_device_has_is_told(void **state)
{
    (void)state;
    assert_refused(&(struct fabric_verbs_options){.device = "mlx5_7"}, ROWAN_ENOTFOUND, "mlx5_7",
                   "rdma link");
}

static void a_host_without_devices_is_told_how_to_get_one(void **state)
{
    (void)state;
    verbs_obstacle_no_device(NULL, NULL, false, &why);
    assert_int_equal(why.error, ROWAN_ENOTFOUND);
    assert_non_null(strstr(why.mend, "modprobe rdma_rxe"));
    verbs_obstacle_no_device(NULL, "mlx5_0", false, &why);
    assert_string_equal(why.mend, "modprobe ib_uverbs");
    verbs_obstacle_no_device(NULL, "mlx5_0", true, &why);
    assert_non_null(strstr(why.mend, "ibverbs-providers"));
}

static void a_port_that_is_down_is_told(void **state)
{
    (void)state;
    assert_refused(&(struct fabric_verbs_options){.device = "soft0"}, ROWAN_EUNSUPPORTED,
                   "port 1 of soft0 is down", "ip link set");
}

static void a_port_without_gid_is_told(void **state)
{
    (void)state;
    configure((struct soft_device_config){.name = "soft0"}, (struct soft_device_config){0});
    assert_refused(NULL, ROWAN_EUNSUPPORTED, "has no GID", "ip addr add");
}

static void a_gid_index_that_is_empty_is_told(void **state)
{
    (void)state;
    assert_refused(&(struct fabric_verbs_options){.gid_index_plus_1 = 8}, ROWAN_EUNSUPPORTED,
                   "no GID with index 7", "ibv_devinfo");
}

static void a_gid_index_that_no_address_handle_can_name_is_told(void **state)
{
    (void)state;
    const union ibv_gid gid = {.raw = {[0] = 0x20, [15] = 1}};
    struct ibv_gid_entry found, entries[2] = {{.gid = gid, .gid_index = 259, .port_num = 1},
                                              {.gid = gid, .gid_index = 255, .port_num = 1}};

    /* 259 in 8 bits is 3, which is there. */
    assert_refused(&(struct fabric_verbs_options){.gid_index_plus_1 = 260}, ROWAN_EINVALID,
                   "index 259 was asked for: verbs can name those from 0 to 255 only",
                   "leave the index out");
    assert_true(verbs_best_gid(entries, 2, 1, true, NULL, 0, &found));
    assert_int_equal(found.gid_index, 255);
    assert_false(verbs_best_gid(entries, 1, 1, true, NULL, 0, &found));
    assert_false(verbs_best_gid(entries, 1, 1, true, NULL, 260, &found));
}

static void a_device_that_may_not_be_opened_is_told(void **state)
{
    (void)state;
    soft_verbs_fail_call(2, EACCES); /* the list, then the device */
    assert_refused(&(struct fabric_verbs_options){.device = "soft1"}, ROWAN_EPERMISSION,
                   "/dev/infiniband/uverbs1", "chmod 666 /dev/infiniband/uverbs1");
}

static void slots_beyond_a_packet_are_refused(void **state)
{
    (void)state;
    static const uint32_t bad[] = {2048, 128, 300};

    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(&(struct fabric_verbs_options){.slot_bytes = bad[i]}, ROWAN_EINVALID,
                       "slots of", "leave the slot size out");
}

static void fail_every_call(const char *name)
{
    const struct fabric_verbs_options options = {.device = name};
    struct verbs_device *device;
    uint32_t calls;

    soft_verbs_fail_call(0, 0);
    verbs_device_close(open_for(NULL, &options));
    calls = soft_verbs_calls();
    assert_true(calls > 5);
    for (uint32_t nth = 1; nth <= calls; nth++) {
        soft_verbs_fail_call(nth, ENOMEM);
        device = NULL;
        memset(&why, 0, sizeof why);
        if (verbs_device_try(NULL, &options, &device, &why) == 0)
            verbs_device_close(device); /* what failed could be done without */
        else
            assert_true(why.error != 0 && *why.what && *why.mend);
        assert_nothing_left();
    }
}

static void every_call_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    fail_every_call("soft1"); /* shared receive queues */
    fail_every_call("soft2"); /* device memory */
}

/* --- what it can --- */

static void the_first_way_to_receive_that_works_is_chosen_with_the_reason(void **state)
{
    (void)state;
    struct verbs_device *shared = open_for("10.1.1.1", NULL);
    struct verbs_device *each = open_for("10.1.2.1", NULL);

    assert_int_equal(shared->receive, FABRIC_RECEIVE_SHARED);
    assert_non_null(strstr(shared->receive_reason, "no mlx5 device"));
    assert_int_equal(each->receive, FABRIC_RECEIVE_CONNECTION);
    assert_string_equal(each->receive_reason, "the device has no shared receive queues");
    verbs_device_close(shared);
    verbs_device_close(each);
}

static void a_way_to_receive_that_was_asked_for_is_taken_or_refused(void **state)
{
    (void)state;
    const struct fabric_verbs_options each = {.receive = FABRIC_RECEIVE_CONNECTION};
    struct verbs_device *device = open_for("10.1.1.1", &each);

    assert_int_equal(device->receive, FABRIC_RECEIVE_CONNECTION);
    assert_string_equal(device->receive_reason, "asked for");
    verbs_device_close(device);
    assert_refused(
        &(struct fabric_verbs_options){.device = "soft2", .receive = FABRIC_RECEIVE_SHARED},
        ROWAN_EUNSUPPORTED, "\"shared\" was asked for, which soft2 cannot do", "auto");
}

static void the_inline_limit_is_found_by_trying(void **state)
{
    (void)state;
    configure((struct soft_device_config){.name = "soft0",
                                          .max_inline = 130,
                                          .max_sge = 5,
                                          .gids = {{"10.1.1.1", IBV_GID_TYPE_ROCE_V2}}},
              (struct soft_device_config){0});
    struct verbs_device *device = open_for(NULL, NULL);

    assert_int_equal(device->max_inline_bytes, 128);
    assert_int_equal(device->max_sge, 5);
    verbs_device_close(device);
}

static void the_sink_is_in_device_memory_where_there_is_some(void **state)
{
    (void)state;
    struct verbs_device *host = open_for("10.1.1.1", NULL);
    struct verbs_device *nic = open_for("10.1.2.1", NULL);

    assert_null(host->dm);
    assert_ptr_equal(host->sink_mr, host->sink.mr);
    assert_int_equal(host->sink_address, (uintptr_t)host->sink.data);
    assert_non_null(nic->dm);
    assert_int_equal(nic->sink_address, 0);
    assert_null(nic->sink.data);
    verbs_device_close(host);
    verbs_device_close(nic);
    assert_nothing_left();
}

static void the_line_of_the_log_has_everything_that_was_chosen(void **state)
{
    (void)state;
    static const char *const pieces[] = {"device=soft2",
                                         "chosen_by=address",
                                         "port=1",
                                         "gid_index=3",
                                         "gid=::ffff:10.1.2.1",
                                         "rocev2-ipv4",
                                         "mtu=4096",
                                         "odp=yes",
                                         "device_memory=yes",
                                         "receive=connection",
                                         "reason=\"the device has no shared receive queues\""};
    struct verbs_device *device = open_for("10.1.2.1", NULL);
    char line[1024];

    verbs_device_describe(device, line, sizeof line);
    for (unsigned i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        assert_non_null(strstr(line, pieces[i]));
    verbs_device_close(device);
}

static void on_demand_paging_that_lacks_what_is_needed_is_none(void **state)
{
    static const uint32_t needed[] = {IBV_ODP_SUPPORT_SEND, IBV_ODP_SUPPORT_SRQ_RECV,
                                      IBV_ODP_SUPPORT_WRITE, IBV_ODP_SUPPORT_READ};
    struct soft_device_config config = {
        .name = "soft0", .has_odp = true, .gids = {{"10.1.1.1", IBV_GID_TYPE_ROCE_V2}}};
    const struct fabric_verbs_options each = {.receive = FABRIC_RECEIVE_CONNECTION};
    struct verbs_device *device;

    (void)state;
    config.lacks_rc_odp = IBV_ODP_SUPPORT_RECV; /* which shared queues can do without */
    configure(config, (struct soft_device_config){0});
    device = open_for(NULL, NULL);
    assert_true(device->has_odp);
    verbs_device_close(device);
    device = open_for(NULL, &each);
    assert_false(device->has_odp);
    verbs_device_close(device);
    for (unsigned i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        config.lacks_rc_odp = needed[i];
        configure(config, (struct soft_device_config){0});
        device = open_for(NULL, NULL);
        assert_false(device->has_odp);
        verbs_device_close(device);
    }
}

/* --- memory --- */

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
    assert_nothing_left();
}

static void a_pm_is_one_region_and_its_bytes_are_found_in_it(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    struct verbs_fabric *fabric = fabric_on(NULL);
    struct heap_pm *one = heap_pm_create(BYTES), *two = heap_pm_create(BYTES);

    assert_int_equal(verbs_register(&fabric->base, &one->pm), 0);
    assert_int_equal(verbs_register(&fabric->base, &two->pm), 0);
    const struct verbs_region *region = verbs_region_of_pm(fabric, &two->pm);

    assert_ptr_equal(region->base, two->pm.base);
    assert_ptr_equal(verbs_region_of(fabric, two->pm.base, BYTES), region);
    assert_ptr_equal(verbs_region_of(fabric, two->pm.base + BYTES - 64, 64), region);
    assert_true(verbs_region_of(fabric, two->pm.base + BYTES - 64, 128) != region);
    assert_null(verbs_region_of(fabric, &fabric, 1));
    assert_null(verbs_region_of(fabric, two->pm.base, UINT64_MAX));
    fabric_end(fabric);
    heap_pm_destroy(one);
    heap_pm_destroy(two);
}

static void more_regions_than_there_is_room_for_are_refused(void **state)
{
    (void)state;
    struct verbs_fabric *fabric = fabric_on(NULL);
    struct heap_pm *heap = heap_pm_create(4096);

    for (int i = 0; i < VERBS_MAX_REGIONS; i++)
        assert_int_equal(verbs_register(&fabric->base, &heap->pm), 0);
    assert_int_equal(verbs_register(&fabric->base, &heap->pm), ROWAN_ETOOMANY);
    fabric_end(fabric);
    heap_pm_destroy(heap);
}

static void a_file_with_durability_is_refused_since_a_nic_syncs_no_file(void **state)
{
    (void)state;
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

        assert_int_equal(verbs_register(&fabric->base, pm), expected);
        if (expected) {
            assert_non_null(strstr(fabric_why(&fabric->base), pm_durability_name(kinds[i])));
            assert_non_null(strstr(fabric_why(&fabric->base), "use devdax"));
        } else {
            assert_string_equal(fabric_why(&fabric->base), "");
        }
        verbs_unregister_all(fabric);
        pm_close(pm);
    }
    fabric_end(fabric);
    temp_dir_fini(&dir);
}

/* A file of a disk that says of itself that it is on DAX: what a DAX mount looks like to us. */
static void fsdax_is_registered_on_demand_where_the_device_can(void **state)
{
    (void)state;
    struct verbs_fabric *can = fabric_on("10.1.2.1"), *cannot = fabric_on("10.1.1.1");
    struct heap_pm *heap = heap_pm_create(4096);
    struct temp_dir dir;

    temp_dir_init(&dir);
    heap->pm.fd = open(temp_dir_at(&dir, "file"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    heap->pm.backend = "dax";
    assert_true(heap->pm.fd >= 0);
    soft_verbs_fail_call(1, EOPNOTSUPP);
    assert_int_equal(verbs_register(&can->base, &heap->pm), 0);
    soft_verbs_fail_call(1, EOPNOTSUPP);
    assert_int_equal(verbs_register(&cannot->base, &heap->pm), ROWAN_EUNSUPPORTED);
    assert_non_null(strstr(fabric_why(&cannot->base), "on-demand paging"));
    verbs_unregister_all(can);
    can->device->has_odp = false; /* it pages on demand, but not for all that is needed */
    soft_verbs_fail_call(1, EOPNOTSUPP);
    assert_int_equal(verbs_register(&can->base, &heap->pm), ROWAN_EUNSUPPORTED);
    close(heap->pm.fd);
    heap->pm.fd = -1;
    verbs_unregister_all(can);
    verbs_device_close(can->device);
    free(can);
    fabric_end(cannot);
    heap_pm_destroy(heap);
    temp_dir_fini(&dir);
}

static void the_multi_packet_queue_never_pages_on_demand(void **state)
{
    (void)state;
    verbs_obstacle_register("mlx5_0", VERBS_MEMORY_FSDAX, FABRIC_RECEIVE_MULTI_PACKET, true,
                            EOPNOTSUPP, &why);
    assert_int_equal(why.error, ROWAN_EUNSUPPORTED);
    assert_non_null(strstr(why.what, "multi-packet"));
    assert_non_null(strstr(why.mend, "-m devdax"));
}

static void too_little_lockable_memory_is_told_with_both_figures(void **state)
{
    (void)state;
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

static void a_buffer_is_zeros_whole_pages_and_shared_with_children(void **state)
{
    (void)state;
    struct verbs_device *device = open_for(NULL, NULL);
    struct verbs_buffer small = {0}, large = {0};

    assert_int_equal(verbs_buffer_open(device, 100, &small), 0);
    assert_int_equal(verbs_buffer_open(device, 3 << 20, &large), 0);
    assert_int_equal(small.mapped_bytes % 4096, 0);
    assert_int_equal(large.bytes, 3 << 20);
    assert_true(large.mr->length >= large.bytes);
    for (uint64_t i = 0; i < large.bytes; i += 4096)
        assert_int_equal(large.data[i], 0);
    verbs_buffer_close(&small);
    verbs_buffer_close(&small); /* twice is fine */
    verbs_buffer_close(&large);
    soft_verbs_fail_call(1, ENOMEM);
    assert_int_equal(verbs_buffer_open(device, 4096, &small), ROWAN_ENOMEM);
    assert_null(small.data);
    verbs_device_close(device);
    assert_nothing_left();
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_device_with_an_active_port_is_taken),
        TEST(rocev2_with_ipv4_comes_before_all_other_gids),
        TEST(the_process_own_address_decides_for_device_and_gid),
        TEST(an_address_that_no_gid_has_leaves_the_choice_to_the_order),
        TEST(a_name_wins_over_the_address),
        TEST(ipv6_of_rocev2_comes_before_link_local_and_rocev1),
        TEST(rocev1_is_better_than_nothing),
        TEST(on_infiniband_it_is_gid_0),
        TEST(a_gid_index_that_was_asked_for_is_taken),
        TEST(a_name_that_no_device_has_is_told),
        TEST(a_host_without_devices_is_told_how_to_get_one),
        TEST(a_port_that_is_down_is_told),
        TEST(a_port_without_gid_is_told),
        TEST(a_gid_index_that_is_empty_is_told),
        TEST(a_gid_index_that_no_address_handle_can_name_is_told),
        TEST(a_device_that_may_not_be_opened_is_told),
        TEST(slots_beyond_a_packet_are_refused),
        TEST(every_call_that_fails_leaves_nothing_behind),
        TEST(the_first_way_to_receive_that_works_is_chosen_with_the_reason),
        TEST(a_way_to_receive_that_was_asked_for_is_taken_or_refused),
        TEST(the_inline_limit_is_found_by_trying),
        TEST(the_sink_is_in_device_memory_where_there_is_some),
        TEST(the_line_of_the_log_has_everything_that_was_chosen),
        TEST(on_demand_paging_that_lacks_what_is_needed_is_none),
        TEST(a_pm_is_one_region_and_its_bytes_are_found_in_it),
        TEST(more_regions_than_there_is_room_for_are_refused),
        TEST(a_file_with_durability_is_refused_since_a_nic_syncs_no_file),
        TEST(fsdax_is_registered_on_demand_where_the_device_can),
        TEST(the_multi_packet_queue_never_pages_on_demand),
        TEST(too_little_lockable_memory_is_told_with_both_figures),
        TEST(a_buffer_is_zeros_whole_pages_and_shared_with_children),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
