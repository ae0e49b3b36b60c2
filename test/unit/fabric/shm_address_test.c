/* shm_address_test.c - who owns an address, and what is no address. */
#define TEST_FIXTURE open_all, close_host

#include "common/base/error.h"
#include "common/fabric/shm/shm.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { PM_BYTES = 1 << 20, OWNER = 0, PEER = 1 };

HOST_FIXTURE(open_all, OVER_SHM, 2, PM_BYTES)

TEST(an_address_belongs_to_one_living_process)
{
    struct fabric *second;
    struct fabric_endpoint *endpoint;
    int fd;

    assert_int_equal(fabric_open(NULL, host.backend.address(&host, OWNER), &second), 0);
    assert_int_equal(fabric_endpoint_open(second, 0, &endpoint), ROWAN_EINUSE);
    fd = host_listen("dead"); /* somebody who dies without unlinking */
    close(fd);
    assert_int_equal(access(temp_dir_at(&host.dir, "dead.0"), F_OK), 0);
    fd = host_listen("dead");
    close(fd);
    assert_int_equal(fabric_endpoint_open(second, 1, &endpoint), 0);
    fabric_endpoint_close(endpoint);
    assert_int_equal(access(temp_dir_at(&host.dir, "server-0.1"), F_OK), -1);
    fabric_close(second);
}

TEST(an_address_may_be_longer_than_a_socket_path)
{
    char path[512], address[1024];
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct fabric_conn *conn;

    snprintf(path, sizeof path, "%s/%0150d", host.dir.path, 7);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(address, sizeof address, "shm:%s/far", path);
    assert_int_equal(fabric_open("shm", address, &fabric), 0);
    assert_int_equal(fabric_endpoint_open(fabric, 0, &endpoint), 0);
    assert_int_equal(fabric_connect(world.sides[PEER].endpoint, address, 0, 0, &conn), 0);
    while (side_count(&world.sides[PEER], FABRIC_CONNECTED) == 0) {
        struct fabric_event events[4];

        host.skipped_ns += SHM_CHECK_NS;
        fabric_poll(endpoint, host.skipped_ns, events, 4);
        side_poll(&world, PEER);
        assert_int_equal(side_count(&world.sides[PEER], FABRIC_CLOSED), 0);
    }
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
}

TEST(addresses_that_make_no_sense_are_refused)
{
    static const char *const bad[] = {"shm:", "shm:relative/name", "shm:/dir/"};
    struct fabric *fabric;

    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(fabric_open("shm", bad[i], &fabric), ROWAN_EINVALID);
    assert_int_equal(fabric_open("shm", "shm:/no/such/directory/name", &fabric), ROWAN_EINVALID);
    assert_int_equal(fabric_open("shm", "carrier-pigeon:/a/b", &fabric), ROWAN_EUNSUPPORTED);
    assert_int_equal(fabric_open("carrier-pigeon:/a/b", NULL, &fabric), ROWAN_EUNSUPPORTED);
    assert_int_equal(fabric_open("shm", ":/a/b", &fabric), ROWAN_EADDRESS);
    assert_int_equal(fabric_open(NULL, "nothing", &fabric), ROWAN_EADDRESS);
    assert_int_equal(fabric_open("nothing", NULL, &fabric), ROWAN_EADDRESS);
    assert_int_equal(fabric_open(NULL, NULL, &fabric), ROWAN_EINVALID);
}

UNIT_MAIN(NULL, NULL)
