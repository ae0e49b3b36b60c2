/* host_fixture.h - a host, and the processes that run on it, for the cases of a test program. Include once. */
#ifndef TEST_HOST_FIXTURE_H
#define TEST_HOST_FIXTURE_H

#include "common/fabric/shm/shm.h"
#include "test/lib/tcp_raw.h"
#include "test/unit/fabric/fabric_host.h"

static struct fabric_host host;
static struct world world;

static inline void open_host(enum host_kind kind, unsigned sides, uint64_t pm_bytes)
{
    host_init(&host, kind);
    world_open(&world, &host.backend, sides, pm_bytes);
}

#define HOST_FIXTURE(name, ...)                                                                    \
    static int name(void **state)                                                                  \
    {                                                                                              \
        (void)state;                                                                               \
        open_host(__VA_ARGS__);                                                                    \
        return 0;                                                                                  \
    }

static inline int close_host(void **state)
{
    (void)state;
    world_close(&world);
    host_fini(&host);
    return 0;
}

/* OVER_SHM: a socket of that name where the host's processes have theirs. */
static inline int host_listen(const char *name)
{
    int directory_fd = open(host.dir.path, O_RDONLY | O_DIRECTORY), fd;

    assert_true(directory_fd >= 0);
    assert_int_equal(socket_listen(directory_fd, name, 0, &fd), 0);
    close(directory_fd);
    return fd;
}

/* OVER_TCP: a plain connection to the process of side 0. */
static inline int host_connect(void)
{
    const struct sockaddr_in address = host_sockaddr(&host, 0, 0);
    const int fd = raw_connect(&address);

    assert_true(fd >= 0);
    return fd;
}

#endif
