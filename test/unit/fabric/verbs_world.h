/* verbs_world.h - the verbs backend as the conformance cases want it. With devices made of software
 * (test/lib/soft_verbs.h) the addresses are those of tcp_world.h; where there is a real one, ROWAN_VERBS_HOST
 * says its address. Include after cmocka.h. */
#ifndef TEST_VERBS_WORLD_H
#define TEST_VERBS_WORLD_H

#include <stdlib.h>

#include "test/unit/fabric/tcp_world.h"

struct verbs_host {
    struct tcp_host tcp;
    struct fabric_backend backend;
    struct fabric_verbs_options options;
};

static inline const char *verbs_host_address(void *context, unsigned process)
{
    static char address[64];
    const struct verbs_host *host = context;

    snprintf(address, sizeof address, "verbs:%s:%u", host->tcp.ip,
             tcp_host_port(&host->tcp, process));
    return address;
}

static inline int verbs_host_fabric(void *context, unsigned process, struct fabric **out)
{
    const struct verbs_host *host = context;

    return fabric_open_with(NULL, verbs_host_address(context, process), &host->options, out);
}

static inline int verbs_host_pm(void *context, uint64_t bytes, struct pm **out)
{
    struct verbs_host *host = context;

    return tcp_host_pm(&host->tcp, bytes, out);
}

static inline uint64_t verbs_host_now_ns(void *context)
{
    struct verbs_host *host = context;

    return tcp_host_now_ns(&host->tcp);
}

static inline void verbs_host_init(struct verbs_host *host, enum fabric_receive receive,
                                   uint32_t slot_bytes)
{
    const char *ip = getenv("ROWAN_VERBS_HOST");

    *host = (struct verbs_host){.backend = {.context = host,
                                            .fabric_make = verbs_host_fabric,
                                            .address = verbs_host_address,
                                            .pm_make = verbs_host_pm,
                                            .now_ns = verbs_host_now_ns},
                                .options = {.receive = receive, .slot_bytes = slot_bytes}};
    tcp_host_init(&host->tcp);
    if (!ip)
        return;
    host->backend.wait_s = 120; /* in an emulated machine on a busy host */
    snprintf(host->tcp.ip, sizeof host->tcp.ip, "%s", ip);
    while (!tcp_host_is_free(&host->tcp)) {
        uint32_t draw;

        random_entropy(&draw, sizeof draw);
        host->tcp.first_port = 12000 + draw % 268 * 64;
    }
}

static inline void verbs_host_fini(struct verbs_host *host)
{
    tcp_host_fini(&host->tcp);
}

#endif
