/* tcp_fork_test.c - copies of sockets, as a fork leaves them: a connection that ends is gone all the
 * same, and an endpoint that the other process closes goes on in this one. */
#define TEST_FIXTURE open_all, close_host

#include <sys/wait.h>

#include "common/fabric/tcp/tcp.h"
#include "test/lib/tcp_raw.h"
#include "test/lib/unit.h"
#include "test/unit/fabric/host_fixture.h"

enum { OWNER, OTHER, SIDES, PM_BYTES = 16 << 20, MOST_FD = 1024 };

static struct fabric_conn *active, *passive;

static int open_all(void **state)
{
    (void)state;
    open_host(OVER_TCP, SIDES, PM_BYTES);
    side_open_zone(&world, OWNER, 2, 2);
    world_connect(&world, OTHER, OWNER, 0, &active, &passive);
    return 0;
}

/* Copies of all sockets that this process has; how many. */
static unsigned copy_sockets(int copies[MOST_FD])
{
    unsigned count = 0;

    for (int fd = 3; fd < MOST_FD; fd++) {
        struct sockaddr_storage address;
        socklen_t bytes = sizeof address;

        if (getpeername(fd, (struct sockaddr *)&address, &bytes) == 0)
            copies[count++] = fcntl(fd, F_DUPFD_CLOEXEC, MOST_FD);
    }
    return count;
}

TEST(a_closed_connection_is_gone_though_copies_of_its_sockets_live)
{
    int copies[MOST_FD];
    const unsigned count = copy_sockets(copies);

    assert_true(count >= 4); /* messages and blocks, both ends */
    fabric_conn_close(passive);
    world_wait(&world, OTHER, FABRIC_CLOSED, 1);
    world_poll_times(&world, 100); /* no event comes of what was freed */
    assert_int_equal(side_count(&world.sides[OWNER], FABRIC_CLOSED), 0);
    for (unsigned i = 0; i < count; i++)
        close(copies[i]);
    world_connect(&world, OTHER, OWNER, 0, &active, &passive);
}

TEST(a_connection_goes_on_when_a_forked_process_closes_its_copy_of_the_endpoint)
{
    const struct fabric_iov iov = {.data = "hello", .bytes = 5};
    const pid_t child = fork();
    int status;

    if (child == 0) {
        fabric_endpoint_close(world.sides[OTHER].endpoint);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fabric_send(active, &iov, 1), 0);
    world_wait(&world, OWNER, FABRIC_MESSAGE, 1);
    assert_int_equal(fabric_send(passive, &iov, 1), 0);
    world_wait(&world, OTHER, FABRIC_MESSAGE, 1);
    assert_int_equal(side_count(&world.sides[OTHER], FABRIC_CLOSED), 0);
}

UNIT_MAIN(NULL, NULL)
