/* soft_verbs.c - configuration, faults that are called for, statistics. */
#include "test/lib/soft_verbs_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct soft soft = {.lock = PTHREAD_MUTEX_INITIALIZER,
                    .acknowledged = PTHREAD_COND_INITIALIZER,
                    .released = PTHREAD_COND_INITIALIZER};

static const struct soft_config default_config = {
    .seed = 1,
    .devices = {
        {.name = "soft0",
         .is_down = true,
         .gids = {{"fe80::10:0", IBV_GID_TYPE_ROCE_V1}, {"10.1.0.1", IBV_GID_TYPE_ROCE_V2}}},
        {.name = "soft1",
         .gids = {{"fe80::10:1", IBV_GID_TYPE_ROCE_V1},
                  {"fe80::10:1", IBV_GID_TYPE_ROCE_V2},
                  {"10.1.1.1", IBV_GID_TYPE_ROCE_V1},
                  {"10.1.1.1", IBV_GID_TYPE_ROCE_V2}}},
        {.name = "soft2",
         .has_odp = true,
         .dm_bytes = 4096,
         .mtu_bytes = 4096,
         .gids = {{"fe80::10:2", IBV_GID_TYPE_ROCE_V1},
                  {"fe80::10:2", IBV_GID_TYPE_ROCE_V2},
                  {"10.1.2.1", IBV_GID_TYPE_ROCE_V1},
                  {"10.1.2.1", IBV_GID_TYPE_ROCE_V2}}}}};

void soft_mistake(const char *format, ...)
{
    va_list arguments;

    fputs("soft_verbs: mistake: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

static void configure(const struct soft_config *config)
{
    if (soft.stats.contexts > 0)
        soft_mistake("configured while %u contexts are open", soft.stats.contexts);
    soft_packets_clear();
    soft.config = config ? *config : default_config;
    if (!soft.config.devices[0].name)
        memcpy(soft.config.devices, default_config.devices, sizeof soft.config.devices);
    if (soft.config.packets_per_poll == 0)
        soft.config.packets_per_poll = 64;
    if (soft.config.retry_limit_ns == 0)
        soft.config.retry_limit_ns = 20000000;
    random_init(&soft.random, soft.config.seed);
    soft.faults = (struct soft_faults){0};
    soft.fail_in = 0;
    soft.calls = 0;
    soft.stats = (struct soft_stats){0};
    soft_devices_init();
    soft.is_configured = true;
}

void soft_lock(void)
{
    pthread_mutex_lock(&soft.lock);
    if (!soft.is_configured)
        configure(NULL);
}

void soft_unlock(void)
{
    pthread_mutex_unlock(&soft.lock);
}

void soft_verbs_configure(const struct soft_config *config)
{
    pthread_mutex_lock(&soft.lock);
    configure(config);
    pthread_mutex_unlock(&soft.lock);
}

void soft_verbs_faults(const struct soft_faults *faults)
{
    soft_lock();
    soft.faults = faults ? *faults : (struct soft_faults){0};
    soft_unlock();
}

void soft_verbs_fail_call(uint32_t nth, int error)
{
    soft_lock();
    soft.fail_in = nth;
    soft.fail_error = error;
    soft.calls = 0;
    soft_unlock();
}

uint32_t soft_verbs_calls(void)
{
    uint32_t calls;

    soft_lock();
    calls = soft.calls;
    soft_unlock();
    return calls;
}

bool soft_call_fails(void)
{
    if (++soft.calls != soft.fail_in)
        return false;
    errno = soft.fail_error;
    return true;
}

bool soft_chance(uint32_t of_1000)
{
    return of_1000 > 0 && random_below(&soft.random, 1000) < of_1000;
}

bool soft_verbs_break_qp(uint32_t qp_number)
{
    struct soft_qp *qp;

    soft_lock();
    qp = soft_qp_find(qp_number);
    if (qp)
        soft_qp_break(qp);
    soft_unlock();
    return qp;
}

uint32_t soft_verbs_break_any_qp(enum ibv_qp_type type)
{
    struct soft_qp *chosen = NULL;
    uint32_t seen = 0, number = 0;

    soft_lock();
    for (uint32_t i = 0; i < SOFT_MAX_QPS; i++) {
        struct soft_qp *qp = soft.qps[i];

        if (qp && qp->base.qp_type == type &&
            (qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS) &&
            random_below(&soft.random, ++seen) == 0)
            chosen = qp;
    }
    if (chosen) {
        number = chosen->base.qp_num;
        soft_qp_break(chosen);
    }
    soft_unlock();
    return number;
}

void soft_verbs_break_cq(struct ibv_cq *cq)
{
    soft_lock();
    soft_cq_of(cq)->broken = true;
    soft_unlock();
}

void soft_verbs_hold_ahs(bool on)
{
    soft_lock();
    soft.holds_ahs = on;
    pthread_cond_broadcast(&soft.released);
    soft_unlock();
}

uint32_t soft_verbs_held_ahs(void)
{
    uint32_t held;

    soft_lock();
    held = soft.held_ahs;
    soft_unlock();
    return held;
}

void soft_verbs_lock_limit(const char *device, uint64_t bytes)
{
    soft_lock();
    for (uint32_t i = 0; i < soft.device_count; i++)
        if (strcmp(soft.devices[i].config.name, device) == 0)
            soft.devices[i].config.locked_bytes = bytes;
    soft_unlock();
}

static void device_fails(const struct soft_device *device)
{
    for (uint32_t i = 0; i < SOFT_MAX_QPS; i++) {
        struct soft_qp *qp = soft.qps[i];

        if (qp && soft_qp_device(qp) == device && qp->state != IBV_QPS_RESET &&
            qp->state != IBV_QPS_ERR)
            soft_qp_fail(qp, IBV_WC_WR_FLUSH_ERR);
    }
}

void soft_verbs_device_event(const char *device, enum ibv_event_type event)
{
    soft_lock();
    for (uint32_t d = 0; d < soft.device_count; d++) {
        struct soft_device *it = &soft.devices[d];

        if (strcmp(it->config.name, device) != 0)
            continue;
        if (event == IBV_EVENT_PORT_ERR || event == IBV_EVENT_PORT_ACTIVE)
            it->config.is_down = event == IBV_EVENT_PORT_ERR;
        for (uint32_t i = 0; i < SOFT_MAX_CONTEXTS; i++)
            if (soft.contexts[i] && soft.contexts[i]->device == it)
                soft_event(soft.contexts[i], event, NULL);
        if (event == IBV_EVENT_DEVICE_FATAL)
            device_fails(it);
    }
    soft_unlock();
}

void soft_verbs_stats(struct soft_stats *out)
{
    soft_lock();
    *out = soft.stats;
    soft_unlock();
}

bool soft_verbs_is_empty(void)
{
    struct soft_stats stats;

    soft_verbs_stats(&stats);
    return stats.contexts + stats.pds + stats.mrs + stats.cqs + stats.channels + stats.qps +
               stats.srqs + stats.ahs + stats.dms ==
           0;
}
