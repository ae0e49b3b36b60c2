/* verbs_async.c - what a device says outside of its completion queues. The process has one device and many
 * endpoints on their own threads: whoever drains the device's events writes down which queue pair failed
 * and wakes the others, and each endpoint looks for its own.
 *
 * 1. An event is acknowledged before the lock is left, and only its number is kept: ibv_destroy_qp waits
 *    for acknowledgements, and the queue pair may be gone when another thread reads the note.
 * 2. An endpoint that fell behind by more than VERBS_FAILURES takes it that all of its own have failed.
 * 3. A device, completion queue or shared receive queue in error comes back in no process: that is not among the
 *    notes, which may be overtaken, but stays as `fatal`, and every endpoint fails with it.
 * 4. A shared receive queue that is half used is its endpoint's (srq_context), and both are there until the event is
 *    acknowledged: ibv_destroy_srq waits for that, too. It comes as often as blocks land: no line in the log.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/fabric/verbs/verbs_stream.h"

#define ALL_FAILED UINT32_MAX

int verbs_async_init(struct verbs_fabric *fabric)
{
    const int fd = fabric->device->context->async_fd;
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return ROWAN_EIO;
    return pthread_mutex_init(&fabric->async_mutex, NULL) == 0 ? 0 : ROWAN_EIO;
}

void verbs_async_fini(struct verbs_fabric *fabric)
{
    pthread_mutex_destroy(&fabric->async_mutex);
}

void verbs_async_join(struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = endpoint->fabric;

    pthread_mutex_lock(&fabric->async_mutex);
    endpoint->failures_seen = atomic_load(&fabric->failure_count);
    endpoint->next_endpoint = fabric->endpoints;
    fabric->endpoints = endpoint;
    pthread_mutex_unlock(&fabric->async_mutex);
}

void verbs_async_leave(struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = endpoint->fabric;
    struct verbs_endpoint **link = &fabric->endpoints;

    pthread_mutex_lock(&fabric->async_mutex);
    while (*link && *link != endpoint)
        link = &(*link)->next_endpoint;
    if (*link)
        *link = endpoint->next_endpoint;
    pthread_mutex_unlock(&fabric->async_mutex);
}

/* --- drain --- */

/* The number of the queue pair that failed; 0: none did. */
static uint32_t failed_by(const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        return event->element.qp->qp_num;
    default:
        return 0;
    }
}

/* 3 */
static bool is_fatal(const struct ibv_async_event *event)
{
    return event->event_type == IBV_EVENT_CQ_ERR || event->event_type == IBV_EVENT_SRQ_ERR ||
           event->event_type == IBV_EVENT_DEVICE_FATAL;
}

static void write_down(struct verbs_fabric *fabric, uint32_t failed)
{
    const uint64_t count = atomic_load(&fabric->failure_count);

    fabric->failures[count % VERBS_FAILURES] = failed;
    atomic_store(&fabric->failure_count, count + 1);
}

static void wake_all(const struct verbs_fabric *fabric)
{
    for (const struct verbs_endpoint *endpoint = fabric->endpoints; endpoint;
         endpoint = endpoint->next_endpoint)
        eventfd_write(endpoint->wake_fd, 1); /* full: it is awake anyway */
}

/* 4 */
static void announce_limit(struct verbs_endpoint *owner, const struct verbs_endpoint *awake)
{
    if (!owner)
        return;
    atomic_store(&owner->limit_reached, true);
    if (owner != awake)
        eventfd_write(owner->wake_fd, 1);
}

void verbs_async_drain(const struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = endpoint->fabric;
    struct ibv_async_event event;
    bool any = false;

    if (pthread_mutex_trylock(&fabric->async_mutex) != 0)
        return; /* another endpoint is at it */
    while (ibv_get_async_event(fabric->device->context, &event) == 0) {
        const uint32_t failed = failed_by(&event);
        const char *what = ibv_event_type_str(event.event_type); /* static */

        if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
            announce_limit(event.element.srq->srq_context, endpoint);
            ibv_ack_async_event(&event);
            continue;
        }
        log_event(failed || is_fatal(&event) ? LOG_WARN : LOG_INFO, "verbs_device_event",
                  "what=\"%s\"", what);
        if (is_fatal(&event)) {
            atomic_store(&fabric->fatal, what);
            any = true;
        }
        ibv_ack_async_event(&event); /* 1 */
        if (failed) {
            write_down(fabric, failed);
            any = true;
        }
    }
    if (any)
        wake_all(fabric);
    pthread_mutex_unlock(&fabric->async_mutex);
}

/* --- each endpoint --- */

static void fail(struct verbs_endpoint *endpoint, uint32_t number)
{
    const struct ibv_qp *datagrams = endpoint->packets->qp; /* NULL: given up */

    if (number == ALL_FAILED || (datagrams && number == datagrams->qp_num))
        verbs_packets_fail(endpoint, "the device says so");
    else
        verbs_rc_failed(endpoint, number);
}

void verbs_async_poll(struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = endpoint->fabric;
    uint32_t failed[VERBS_FAILURES];
    uint64_t count;
    uint32_t found = 0;
    const char *fatal = atomic_load_explicit(&fabric->fatal, memory_order_acquire);

    if (fatal)
        verbs_endpoint_fail(endpoint, fatal);
    if (atomic_load_explicit(&fabric->failure_count, memory_order_acquire) ==
        endpoint->failures_seen)
        return;
    pthread_mutex_lock(&fabric->async_mutex);
    count = atomic_load(&fabric->failure_count);
    if (count - endpoint->failures_seen > VERBS_FAILURES) { /* 2 */
        failed[found++] = ALL_FAILED;
    } else {
        for (uint64_t i = endpoint->failures_seen; i < count; i++)
            failed[found++] = fabric->failures[i % VERBS_FAILURES];
    }
    endpoint->failures_seen = count;
    pthread_mutex_unlock(&fabric->async_mutex);
    for (uint32_t i = 0; i < found; i++)
        fail(endpoint, failed[i]);
}
