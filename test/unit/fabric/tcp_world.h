/* tcp_world.h - the tcp backend as the conformance cases want it: ports that nobody uses on an
 * address of this host's loopback, PM in memory. Include after cmocka.h. */
#ifndef TEST_TCP_WORLD_H
#define TEST_TCP_WORLD_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "test/lib/fabric_world.h"
#include "test/unit/fabric/temp_pm.h"

enum { TCP_HOST_PORTS = 16 /* of one process */ };

struct tcp_host {
    struct temp_dir dir;
    struct fabric_backend backend;
    char ip[16];
    unsigned first_port;
    unsigned files;
    uint64_t skipped_ns;           /* added to the clock */
    enum pm_durability durability; /* of PM files; PM_NONE at start */
};

static inline unsigned tcp_host_port(const struct tcp_host *host, unsigned process)
{
    return host->first_port + process * TCP_HOST_PORTS;
}

static inline const char *tcp_host_address(void *context, unsigned process)
{
    static char address[64];
    const struct tcp_host *host = context;

    snprintf(address, sizeof address, "tcp:%s:%u", host->ip, tcp_host_port(host, process));
    return address;
}

static inline int tcp_host_fabric(void *context, unsigned process, struct fabric **out)
{
    return fabric_open(NULL, tcp_host_address(context, process), out);
}

static inline int tcp_host_pm(void *context, uint64_t bytes, struct pm **out)
{
    struct tcp_host *host = context;

    return temp_pm_open(&host->dir, host->files++, bytes, host->durability, out);
}

static inline uint64_t tcp_host_now_ns(void *context)
{
    const struct tcp_host *host = context;

    return clock_now_ns(clock_system()) + host->skipped_ns;
}

static inline struct sockaddr_in tcp_host_sockaddr(const struct tcp_host *host, unsigned process,
                                                   unsigned index)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)(tcp_host_port(host, process) + index))};

    inet_pton(AF_INET, host->ip, &address.sin_addr);
    return address;
}

static inline bool tcp_host_is_free(const struct tcp_host *host)
{
    for (unsigned i = 0; i < SIDE_MAX * TCP_HOST_PORTS; i++) {
        const struct sockaddr_in address = tcp_host_sockaddr(host, 0, i);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const bool bound = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;

        close(fd);
        if (!bound)
            return false;
    }
    return true;
}

/* An address of 127/8 and ports below those that the kernel gives out by itself, so that tests that
 * run at once, and connections of strangers, do not meet. */
static inline void tcp_host_init(struct tcp_host *host)
{
    uint32_t draw;

    *host = (struct tcp_host){.durability = PM_NONE,
                              .backend = {.context = host,
                                          .fabric_make = tcp_host_fabric,
                                          .address = tcp_host_address,
                                          .pm_make = tcp_host_pm,
                                          .now_ns = tcp_host_now_ns}};
    temp_dir_init(&host->dir);
    do {
        random_entropy(&draw, sizeof draw);
        snprintf(host->ip, sizeof host->ip, "127.%u.%u.%u", 1 + draw % 250, draw / 250 % 250,
                 1 + draw / 62500 % 250);
        host->first_port = 12000 + draw / 16000000 * 64;
    } while (!tcp_host_is_free(host));
}

static inline void tcp_host_fini(struct tcp_host *host)
{
    temp_dir_fini(&host->dir);
}

#endif
