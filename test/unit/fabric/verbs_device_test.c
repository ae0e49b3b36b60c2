/* verbs_device_test.c - which device, GID and way to receive are chosen, and what is said where something stands
 * in the way; on devices made of software. */
#define TEST_FIXTURE reset, NULL
#include <arpa/inet.h>

#include "common/base/error.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/verbs_devices.h"

static void assert_refused(const struct fabric_verbs_options *options, int error, const char *what,
                           const char *mend)
{
    struct verbs_device *device = NULL;

    assert_int_equal(verbs_device_try(NULL, options, &device, &why), error);
    assert_null(device);
    assert_int_equal(why.error, error);
    assert_non_null(strstr(why.what, what));
    assert_non_null(strstr(why.mend, mend));
    assert_true(soft_verbs_is_empty());
}

static void assert_gid(const struct verbs_device *device, int index, const char *address)
{
    char text[INET6_ADDRSTRLEN];

    inet_ntop(AF_INET6, device->gid.raw, text, sizeof text);
    assert_string_equal(text, address);
    assert_int_equal(device->gid_index, index);
}

/* --- device and GID --- */

TEST(the_first_device_with_an_active_port_is_taken)
{
    struct verbs_device *device = open_for(NULL, NULL);

    assert_string_equal(ibv_get_device_name(device->context->device), "soft1");
    assert_int_equal(device->chosen_by, VERBS_BY_ORDER);
    assert_int_equal(device->port, 1);
    assert_true(device->is_ethernet);
    assert_int_equal(device->mtu_bytes, 1024);
    verbs_device_close(device);
    assert_true(soft_verbs_is_empty());
}

#define V1 IBV_GID_TYPE_ROCE_V1
#define V2 IBV_GID_TYPE_ROCE_V2
#define IB IBV_GID_TYPE_IB

TEST(of_a_ports_gids_the_best_is_taken)
{
    static const struct {
        struct soft_device_config device;
        uint32_t asked_plus_1;
        int index;
        const char *address;
    } rows[] = {
        {{.gids = {{"fd00::1", V2}, {"10.1.1.1", V2}}}, 0, 1, "::ffff:10.1.1.1"},
        {{.gids = {{"10.1.1.1", V1}, {"10.1.1.1", V2}}}, 0, 1, "::ffff:10.1.1.1"},
        {{.gids = {{"10.1.1.1", V1}, {"fe80::1", V2}, {"fd00::1", V2}}}, 0, 2, "fd00::1"},
        {{.gids = {{NULL, 0}, {"fe80::1", V1}}}, 0, 1, "fe80::1"},
        {{.gids = {{"fe80::1", IB}, {"10.1.1.1", IB}}, .is_infiniband = true}, 0, 0, "fe80::1"},
        {{.gids = {{"10.1.1.1", V2}, {"fe80::1", V1}}}, 2, 1, "fe80::1"},
    };

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct fabric_verbs_options options = {.gid_index_plus_1 = rows[i].asked_plus_1};
        struct soft_device_config config = rows[i].device;
        struct verbs_device *device;

        config.name = "soft0";
        configure(config, (struct soft_device_config){0});
        device = open_for(NULL, &options);
        assert_gid(device, rows[i].index, rows[i].address);
        assert_int_equal(device->is_ethernet, !config.is_infiniband);
        verbs_device_close(device);
    }
}

TEST(the_process_own_address_decides_for_device_and_gid)
{
    struct verbs_device *device = open_for("10.1.2.1", NULL);

    assert_string_equal(ibv_get_device_name(device->context->device), "soft2");
    assert_int_equal(device->chosen_by, VERBS_BY_ADDRESS);
    assert_gid(device, 3, "::ffff:10.1.2.1");
    assert_int_equal(device->mtu_bytes, 4096);
    verbs_device_close(device);
}

TEST(an_address_that_no_gid_has_leaves_the_choice_to_the_order)
{
    struct verbs_device *device = open_for("127.0.0.1", NULL);

    assert_string_equal(ibv_get_device_name(device->context->device), "soft1");
    assert_int_equal(device->chosen_by, VERBS_BY_ORDER);
    verbs_device_close(device);
}

TEST(a_name_wins_over_the_address)
{
    const struct fabric_verbs_options options = {.device = "soft1"};
    struct verbs_device *device = open_for("10.1.2.1", &options);

    assert_string_equal(ibv_get_device_name(device->context->device), "soft1");
    assert_int_equal(device->chosen_by, VERBS_BY_NAME);
    verbs_device_close(device);
}

/* --- what stands in the way --- */

TEST(what_cannot_be_chosen_is_told)
{
    static const struct {
        struct fabric_verbs_options options;
        int error;
        const char *what, *mend;
    } rows[] = {
        {{.device = "mlx5_7"}, ROWAN_ENOTFOUND, "mlx5_7", "rdma link"},
        {{.device = "soft0"}, ROWAN_EUNSUPPORTED, "port 1 of soft0 is down", "ip link set"},
        {{.gid_index_plus_1 = 8}, ROWAN_EUNSUPPORTED, "no GID with index 7", "ibv_devinfo"},
        {{.slot_bytes = 2048}, ROWAN_EINVALID, "slots of 2048", "leave the slot size out"},
        {{.slot_bytes = 128}, ROWAN_EINVALID, "slots of 128", "leave the slot size out"},
        {{.slot_bytes = 300}, ROWAN_EINVALID, "slots of 300", "leave the slot size out"},
    };

    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_refused(&rows[i].options, rows[i].error, rows[i].what, rows[i].mend);
    configure((struct soft_device_config){.name = "soft0"}, (struct soft_device_config){0});
    assert_refused(NULL, ROWAN_EUNSUPPORTED, "has no GID", "ip addr add");
}

TEST(a_host_without_devices_is_told_how_to_get_one)
{
    verbs_obstacle_no_device(NULL, NULL, false, &why);
    assert_int_equal(why.error, ROWAN_ENOTFOUND);
    assert_non_null(strstr(why.mend, "modprobe rdma_rxe"));
    verbs_obstacle_no_device(NULL, "mlx5_0", false, &why);
    assert_string_equal(why.mend, "modprobe ib_uverbs");
    verbs_obstacle_no_device(NULL, "mlx5_0", true, &why);
    assert_non_null(strstr(why.mend, "ibverbs-providers"));
}

TEST(a_gid_index_that_no_address_handle_can_name_is_told)
{
    const union ibv_gid gid = {.raw = {[0] = 0x20, [15] = 1}};
    struct ibv_gid_entry found, entries[2] = {{.gid = gid, .gid_index = 259, .port_num = 1},
                                              {.gid = gid, .gid_index = 255, .port_num = 1}};

    /* 259 in 8 bits is 3, which is there. */
    assert_refused(&(struct fabric_verbs_options){.gid_index_plus_1 = 260}, ROWAN_EINVALID,
                   "index 259 was asked for: verbs can name those from 0 to 255 only",
                   "leave the index out");
    assert_true(verbs_best_gid(entries, 2, 1, true, &found));
    assert_int_equal(found.gid_index, 255);
    assert_false(verbs_best_gid(entries, 1, 1, true, &found));
}

TEST(a_device_that_may_not_be_opened_is_told)
{
    soft_verbs_fail_call(2, EACCES); /* the list, then the device */
    assert_refused(&(struct fabric_verbs_options){.device = "soft1"}, ROWAN_EPERMISSION,
                   "/dev/infiniband/uverbs1", "chmod 666 /dev/infiniband/uverbs1");
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
        assert_true(soft_verbs_is_empty());
    }
}

TEST(every_call_that_fails_leaves_nothing_behind)
{
    fail_every_call("soft1");
    fail_every_call("soft2"); /* device memory */
}

/* --- what it can --- */

TEST(the_first_way_to_receive_that_works_is_chosen_with_the_reason)
{
    struct verbs_device *device = open_for("10.1.1.1", NULL);

    assert_int_equal(device->receive, FABRIC_RECEIVE_SHARED);
    assert_non_null(strstr(device->receive_reason, "no mlx5 device"));
    verbs_device_close(device);
}

TEST(a_way_to_receive_that_was_asked_for_is_taken_or_refused)
{
    const struct fabric_verbs_options shared = {.receive = FABRIC_RECEIVE_SHARED};
    struct verbs_device *device = open_for("10.1.1.1", &shared);

    assert_int_equal(device->receive, FABRIC_RECEIVE_SHARED);
    assert_string_equal(device->receive_reason, "asked for");
    verbs_device_close(device);
    assert_refused(
        &(struct fabric_verbs_options){.device = "soft2", .receive = FABRIC_RECEIVE_MULTI_PACKET},
        ROWAN_EUNSUPPORTED, "\"multi-packet\" was asked for, which soft2 cannot do", "auto");
}

TEST(a_device_without_shared_receive_queues_is_told)
{
    configure((struct soft_device_config){.name = "soft0",
                                          .lacks_srq = true,
                                          .gids = {{"10.1.1.1", IBV_GID_TYPE_ROCE_V2}}},
              (struct soft_device_config){0});
    for (enum fabric_receive way = FABRIC_RECEIVE_AUTO; way <= FABRIC_RECEIVE_SHARED; way += 2)
        assert_refused(
            &(struct fabric_verbs_options){.receive = way}, ROWAN_EUNSUPPORTED,
            "the device soft0 cannot be used without a shared receive queue: it has none",
            "take another device");
}

TEST(the_inline_limit_is_found_by_trying)
{
    configure((struct soft_device_config){.name = "soft0",
                                          .max_inline = 130,
                                          .gids = {{"10.1.1.1", IBV_GID_TYPE_ROCE_V2}}},
              (struct soft_device_config){0});
    struct verbs_device *device = open_for(NULL, NULL);

    assert_int_equal(device->max_inline_bytes, 128);
    verbs_device_close(device);
}

TEST(the_sink_is_in_device_memory_where_there_is_some)
{
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
    assert_true(soft_verbs_is_empty());
}

TEST(the_line_of_the_log_has_everything_that_was_chosen)
{
    static const char *const pieces[] = {"device=soft2",
                                         "chosen_by=address",
                                         "port=1",
                                         "gid_index=3",
                                         "gid=::ffff:10.1.2.1",
                                         "rocev2-ipv4",
                                         "mtu=4096",
                                         "odp=yes",
                                         "device_memory=yes",
                                         "receive=shared",
                                         "reason=\"it is no mlx5 device"};
    struct verbs_device *device = open_for("10.1.2.1", NULL);
    char line[1024];

    verbs_device_describe(device, line, sizeof line);
    for (unsigned i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        assert_non_null(strstr(line, pieces[i]));
    verbs_device_close(device);
}

TEST(on_demand_paging_that_lacks_what_is_needed_is_none)
{
    static const uint32_t needed[] = {IBV_ODP_SUPPORT_SEND, IBV_ODP_SUPPORT_SRQ_RECV,
                                      IBV_ODP_SUPPORT_READ};
    struct soft_device_config config = {
        .name = "soft0", .has_odp = true, .gids = {{"10.1.1.1", IBV_GID_TYPE_ROCE_V2}}};
    struct verbs_device *device;

    config.lacks_rc_odp = IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE; /* which nobody needs */
    configure(config, (struct soft_device_config){0});
    device = open_for(NULL, NULL);
    assert_true(device->has_odp);
    verbs_device_close(device);
    for (unsigned i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        config.lacks_rc_odp = needed[i];
        configure(config, (struct soft_device_config){0});
        device = open_for(NULL, NULL);
        assert_false(device->has_odp);
        verbs_device_close(device);
    }
}

UNIT_MAIN(NULL, NULL)
