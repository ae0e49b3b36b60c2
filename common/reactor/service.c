/* Tells the service manager what service.h says. A reactor that sleeps is woken in time for its next beat. */
#include "common/reactor/service.h"

#include <stdlib.h>
#include <systemd/sd-daemon.h>

#include "common/base/error.h"

#define READY_LOOK_NS (100 * NS_PER_MS)

struct beat {
    struct service *service;
    uint64_t next_ns;
    _Atomic uint64_t seen_ns; /* its reactor polled then */
};

struct service {
    bool (*serves)(const void *context);
    const void *context;
    bool ready;
    uint64_t watchdog_ns; /* 0: nobody wants to hear */
    uint64_t watched_ns;  /* it was told then */
    uint32_t count;
    struct beat beats[]; /* by reactor */
};

static bool all_go_on(const struct service *service, uint64_t now_ns)
{
    bool all = true;
    for (uint32_t i = 0; i < service->count; i++) {
        const uint64_t seen_ns =
            atomic_load_explicit(&service->beats[i].seen_ns, memory_order_relaxed);
        all &= seen_ns + service->watchdog_ns / 2 >= now_ns;
    }
    return all;
}

/* What cannot be sent is sent again, or the service manager finds that nothing came. */
static void tell(struct service *service, uint64_t now_ns)
{
    if (!service->ready && (!service->serves || service->serves(service->context)))
        service->ready = sd_notify(0, "READY=1") > 0;
    if (service->watchdog_ns && now_ns >= service->watched_ns + service->watchdog_ns / 4 &&
        all_go_on(service, now_ns) && sd_notify(0, "WATCHDOG=1") > 0)
        service->watched_ns = now_ns;
}

static enum poll_result poll_beat(void *role, uint64_t now_ns, uint64_t *wake_ns)
{
    struct beat *beat = role;
    struct service *service = beat->service;
    if (now_ns >= beat->next_ns) {
        atomic_store_explicit(&beat->seen_ns, now_ns, memory_order_relaxed);
        const bool first = beat == &service->beats[0];
        if (first)
            tell(service, now_ns);
        const uint64_t watch_ns = service->watchdog_ns ? service->watchdog_ns / 8 : WAKE_NEVER;
        const uint64_t look_ns = first && !service->ready ? READY_LOOK_NS : WAKE_NEVER;
        const uint64_t rest_ns = watch_ns < look_ns ? watch_ns : look_ns;
        beat->next_ns = rest_ns == WAKE_NEVER ? WAKE_NEVER : now_ns + rest_ns;
    }
    wake_at(wake_ns, beat->next_ns);
    return POLL_IDLE;
}

int service_attach(struct reactor **reactors, uint32_t count, bool (*serves)(const void *context),
                   const void *context, struct service **out)
{
    uint64_t watchdog_us = 0;
    *out = NULL;
    if (!getenv("NOTIFY_SOCKET"))
        return 0;
    struct service *service = calloc(1, sizeof *service + count * sizeof service->beats[0]);
    if (!service)
        return ROWAN_ENOMEM;
    service->serves = serves;
    service->context = context;
    service->count = count;
    if (sd_watchdog_enabled(0, &watchdog_us) > 0)
        service->watchdog_ns = watchdog_us * NS_PER_US;
    for (uint32_t i = 0; i < count; i++) {
        service->beats[i].service = service;
        const int error = reactor_add_poller(
            reactors[i], &(struct poller){"service", poll_beat, &service->beats[i], NULL});
        if (error) {
            free(service);
            return error;
        }
    }
    *out = service;
    return 0;
}

void service_detach(struct service *service)
{
    free(service);
}
