/* verbs_async.c - what a device says outside of its completion queues. The process has one device and many
 * endpoints on their own threads: whoever drains the device's events writes down which queue pair failed
 * for the endpoint that made it, and wakes that one.
 *
 * 1. An event is acknowledged before the lock is left, and only the queue pair's number is kept: ibv_destroy_qp waits
 *    for acknowledgements, and the queue pair may be gone when its endpoint reads the note. Until then the endpoint,
 *    its qp_context or srq_context, is there.
 * 2. An endpoint with more than VERBS_FAILURES notes takes it that all of its own have failed.
 * 3. A device, completion queue or shared receive queue in error comes back in no process: that is not among the
 *    notes, but stays as `fatal`, and every endpoint fails with it.
 * 4. The word that a shared receive queue is half used comes as often as blocks land: no line in the log.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/fabric/verbs/verbs_stream.h"

void verbs_async_join(struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = endpoint->fabric;

    pthread_mutex_lock(&fabric->async_mutex);
    LIST_APPEND(&fabric->endpoints, endpoint, link);
    pthread_mutex_unlock(&fabric->async_mutex);
}

void verbs_async_leave(struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = endpoint->fabric;

    pthread_mutex_lock(&fabric->async_mutex);
    LIST_REMOVE(&fabric->endpoints, endpoint, link);
    pthread_mutex_unlock(&fabric->async_mutex);
}

/* --- drain --- */

static void wake(const struct verbs_endpoint *endpoint)
{
    eventfd_write(endpoint->wake_fd, 1); /* full: it is awake anyway */
}

static void handle_failure(const struct ibv_qp *qp)
{
    struct verbs_endpoint *owner = qp->qp_context; /* NULL: of a self-test, or one that fills */

    if (!owner)
        return;
    if (owner->failed_count < VERBS_FAILURES)
        owner->failed[owner->failed_count] = qp->qp_num;
    owner->failed_count++;
    atomic_store_explicit(&owner->has_failures, true, memory_order_release);
    wake(owner);
}

static void handle_fatal(struct verbs_fabric *fabric, const char *what)
{
    atomic_store(&fabric->fatal, what);
    for (const struct verbs_endpoint *endpoint = fabric->endpoints.first; endpoint;
         endpoint = endpoint->link.next)
        wake(endpoint);
}

static void handle_limit(struct verbs_endpoint *owner, const struct verbs_endpoint *awake)
{
    if (!owner)
        return;
    atomic_store(&owner->limit_reached, true);
    if (owner != awake)
        wake(owner);
}

void verbs_async_drain(const struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = endpoint->fabric;
    struct ibv_async_event event;

    if (pthread_mutex_trylock(&fabric->async_mutex) != 0)
        return; /* another endpoint is at it */
    while (ibv_get_async_event(fabric->device->context, &event) == 0) {
        const char *what = ibv_event_type_str(event.event_type); /* static */
        enum log_level level = LOG_WARN;

        switch (event.event_type) {
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            handle_limit(event.element.srq->srq_context, endpoint);
            break;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            handle_failure(event.element.qp);
            break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            handle_fatal(fabric, what); /* 3 */
            break;
        default:
            level = LOG_INFO;
        }
        if (event.event_type != IBV_EVENT_SRQ_LIMIT_REACHED) /* 4 */
            log_event(level, "verbs_device_event", "what=\"%s\"", what);
        ibv_ack_async_event(&event); /* 1 */
    }
    pthread_mutex_unlock(&fabric->async_mutex);
}

/* --- each endpoint --- */

void verbs_async_poll(struct verbs_endpoint *endpoint)
{
    struct verbs_fabric *fabric = endpoint->fabric;
    const char *fatal = atomic_load_explicit(&fabric->fatal, memory_order_acquire);
    uint32_t failed[VERBS_FAILURES], count;

    if (fatal)
        verbs_endpoint_fail(endpoint, fatal);
    if (!atomic_load_explicit(&endpoint->has_failures, memory_order_acquire))
        return;
    pthread_mutex_lock(&fabric->async_mutex);
    count = endpoint->failed_count;
    memcpy(failed, endpoint->failed, sizeof failed);
    endpoint->failed_count = 0;
    atomic_store_explicit(&endpoint->has_failures, false, memory_order_relaxed);
    pthread_mutex_unlock(&fabric->async_mutex);
    for (uint32_t i = 0; i < count && i < VERBS_FAILURES; i++) {
        const struct ibv_qp *datagrams = endpoint->packets->qp; /* NULL: given up */

        if (count > VERBS_FAILURES /* 2 */ || (datagrams && failed[i] == datagrams->qp_num))
            verbs_packets_fail(endpoint, "the device says so");
        else
            verbs_rc_failed(endpoint, failed[i]);
    }
}
