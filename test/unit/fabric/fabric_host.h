/* fabric_host.h - the shm, tcp and verbs backends as the conformance cases want them: addresses and PM files in a
 * directory of the test, or ports that nobody uses on an address of this host's loopback. Verbs runs on devices made of
 * software (test/lib/soft_verbs.h); where there is a real one, ROWAN_VERBS_HOST says its address. Include after cmocka.h.
 */
#ifndef TEST_FABRIC_HOST_H
#define TEST_FABRIC_HOST_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "test/lib/fabric_world.h"
#include "test/lib/temp_dir.h"

enum { HOST_PORTS = 16 /* of one process */ };
enum host_kind { OVER_SHM, OVER_TCP, OVER_VERBS };

struct fabric_host {
    enum host_kind kind;
    struct temp_dir dir;
    struct fabric_backend backend;
    struct fabric_verbs_options options; /* OVER_VERBS */
    char ip[16];                         /* but for OVER_SHM */
    unsigned first_port;
    unsigned files;
    uint64_t skipped_ns;           /* added to the clock */
    enum pm_durability durability; /* of PM files; PM_NONE at start */
};

static inline unsigned host_port(const struct fabric_host *host, unsigned process)
{
    return host->first_port + process * HOST_PORTS;
}

static inline const char *host_address(void *context, unsigned process)
{
    static char address[512];
    const struct fabric_host *host = context;

    if (host->kind == OVER_SHM)
        snprintf(address, sizeof address, "shm:%s/server-%u", host->dir.path, process);
    else
        snprintf(address, sizeof address, "%s:%s:%u", host->kind == OVER_TCP ? "tcp" : "verbs",
                 host->ip, host_port(host, process));
    return address;
}

static inline int host_fabric(void *context, unsigned process, struct fabric **out)
{
    const struct fabric_host *host = context;

    return fabric_open_with(NULL, host_address(context, process), &host->options, out);
}

/* In a file that has no name any more. */
static inline int host_pm(void *context, uint64_t bytes, struct pm **out)
{
    struct fabric_host *host = context;
    char path[512];
    const struct pm_open_options options = {
        .path = path, .bytes = bytes, .create = 1, .durability = host->durability};
    int error;

    snprintf(path, sizeof path, "%s/pm-%u", host->dir.path, host->files++);
    error = pm_open(&options, out);
    unlink(path);
    return error;
}

static inline uint64_t host_now_ns(void *context)
{
    const struct fabric_host *host = context;

    return clock_now_ns(clock_system()) + host->skipped_ns;
}

static inline struct sockaddr_in host_sockaddr(const struct fabric_host *host, unsigned process,
                                               unsigned index)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)(host_port(host, process) + index))};

    inet_pton(AF_INET, host->ip, &address.sin_addr);
    return address;
}

static inline bool host_is_free(const struct fabric_host *host)
{
    for (unsigned i = 0; i < SIDE_MAX * HOST_PORTS; i++) {
        const struct sockaddr_in address = host_sockaddr(host, 0, i);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const bool bound = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;

        close(fd);
        if (!bound)
            return false;
    }
    return true;
}

/* An address of 127/8, or the one that is given, and ports below those that the kernel gives out by itself, so that
 * tests that run at once, and connections of strangers, do not meet. */
static inline void host_choose_ports(struct fabric_host *host, const char *ip)
{
    uint32_t draw;

    do {
        random_entropy(&draw, sizeof draw);
        if (ip)
            snprintf(host->ip, sizeof host->ip, "%s", ip);
        else
            snprintf(host->ip, sizeof host->ip, "127.%u.%u.%u", 1 + draw % 250, draw / 250 % 250,
                     1 + draw / 62500 % 250);
        host->first_port = 12000 + draw / 16000000 * 64;
    } while (!host_is_free(host));
}

static inline void host_init(struct fabric_host *host, enum host_kind kind)
{
    const char *ip = kind == OVER_VERBS ? getenv("ROWAN_VERBS_HOST") : NULL;

    *host = (struct fabric_host){.kind = kind,
                                 .durability = PM_NONE,
                                 .backend = {.context = host,
                                             .fabric_make = host_fabric,
                                             .address = host_address,
                                             .pm_make = host_pm,
                                             .now_ns = host_now_ns}};
    temp_dir_init(&host->dir);
    if (kind != OVER_SHM)
        host_choose_ports(host, ip);
    if (ip)
        host->backend.wait_s = 120; /* in an emulated machine on a busy host */
}

static inline void host_init_verbs(struct fabric_host *host, enum fabric_receive receive,
                                   uint32_t slot_bytes)
{
    host_init(host, OVER_VERBS);
    host->options = (struct fabric_verbs_options){.receive = receive, .slot_bytes = slot_bytes};
}

static inline void host_fini(struct fabric_host *host)
{
    temp_dir_fini(&host->dir);
}

#endif
