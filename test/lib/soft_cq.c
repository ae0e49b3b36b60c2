/* soft_cq.c - completion queues, channels, asynchronous events. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "test/lib/soft_verbs_impl.h"

enum { ACKNOWLEDGE_S = 30 };

struct soft_cq *soft_cq_of(struct ibv_cq *cq)
{
    return SOFT_CONTAINER(cq, struct soft_cq, base);
}

static struct soft_channel *channel_of(struct ibv_comp_channel *channel)
{
    return SOFT_CONTAINER(channel, struct soft_channel, base);
}

static void tell(int fd)
{
    const uint64_t one = 1;

    if (write(fd, &one, sizeof one) != sizeof one)
        soft_mistake("an event could not be told: errno %d", errno);
}

/* Takes one event from the descriptor, as a read of the library's would; blocks if the caller lets it. */
static bool take(int fd)
{
    uint64_t one;
    ssize_t bytes;

    do
        bytes = read(fd, &one, sizeof one);
    while (bytes < 0 && errno == EINTR);
    return bytes == sizeof one;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct soft_channel *channel = NULL;

    soft_lock();
    if (!soft_call_fails())
        channel = calloc(1, sizeof *channel);
    if (channel) {
        channel->base = (struct ibv_comp_channel){.context = context,
                                                  .fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)};
        if (channel->base.fd < 0) {
            free(channel);
            channel = NULL;
        }
    }
    if (channel) {
        soft_context_of(context)->children++;
        soft.stats.channels++;
    }
    soft_unlock();
    return channel ? &channel->base : NULL;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    struct soft_channel *it = channel_of(channel);

    soft_lock();
    if (it->children > 0)
        soft_mistake("a channel is destroyed that %u completion queues use", it->children);
    soft_context_of(channel->context)->children--;
    soft.stats.channels--;
    soft_unlock();
    close(channel->fd);
    free(it->events);
    free(it);
    return 0;
}

static void channel_add(struct soft_channel *channel, struct soft_cq *cq)
{
    if (channel->count == channel->room) {
        const uint32_t room = channel->room ? 2 * channel->room : 16;
        struct soft_cq **events = calloc(room, sizeof(struct soft_cq *));

        if (!events)
            soft_mistake("no memory for events");
        for (uint32_t i = 0; i < channel->count; i++)
            events[i] = channel->events[(channel->head + i) % channel->room];
        free(channel->events);
        channel->events = events;
        channel->head = 0;
        channel->room = room;
    }
    channel->events[(channel->head + channel->count++) % channel->room] = cq;
    tell(channel->base.fd);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    struct soft_channel *it = channel_of(channel);
    struct soft_cq *found;

    if (!take(channel->fd))
        return -1;
    soft_lock();
    if (it->count == 0) { /* of a queue that was destroyed meanwhile */
        soft_unlock();
        errno = EAGAIN;
        return -1;
    }
    found = it->events[it->head];
    it->head = (it->head + 1) % it->room;
    it->count--;
    found->events_given++;
    *cq = &found->base;
    *context = found->base.cq_context;
    soft_unlock();
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    soft_lock();
    if (count > soft_cq_of(cq)->events_given)
        soft_mistake("%u events of a completion queue are acknowledged, %u were given", count,
                     soft_cq_of(cq)->events_given);
    soft_cq_of(cq)->events_given -= count;
    pthread_cond_broadcast(&soft.acknowledged);
    soft_unlock();
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    struct soft_context *owner = soft_context_of(context);
    struct soft_cq *cq = NULL;

    soft_lock();
    if (cqe < 1 || cqe > SOFT_MAX_CQE || vector < 0 || vector >= context->num_comp_vectors ||
        (channel && channel->context != context))
        errno = EINVAL;
    else if (!soft_call_fails())
        cq = calloc(1, sizeof *cq);
    if (cq) {
        cq->ring = calloc((size_t)cqe, sizeof *cq->ring);
        if (!cq->ring) {
            free(cq);
            cq = NULL;
        }
    }
    if (cq) {
        cq->base = (struct ibv_cq){
            .context = context, .channel = channel, .cq_context = cq_context, .cqe = cqe};
        cq->channel = channel ? channel_of(channel) : NULL;
        cq->next = owner->cqs;
        owner->cqs = cq;
        owner->children++;
        if (channel)
            cq->channel->children++;
        soft.stats.cqs++;
    }
    soft_unlock();
    return cq ? &cq->base : NULL;
}

void soft_wait_acknowledged(const uint32_t *unacknowledged, const char *what)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ACKNOWLEDGE_S;
    while (*unacknowledged > 0)
        if (pthread_cond_timedwait(&soft.acknowledged, &soft.lock, &until) == ETIMEDOUT)
            soft_mistake("a %s is destroyed whose events nobody acknowledges", what);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct soft_cq *it = soft_cq_of(cq);
    struct soft_context *owner = soft_context_of(cq->context);
    struct soft_cq **link = &owner->cqs;

    soft_lock();
    if (it->children > 0)
        soft_mistake("a completion queue is destroyed that %u queue pairs use", it->children);
    if (it->channel) {
        uint32_t kept = 0;

        for (uint32_t i = 0; i < it->channel->count; i++) {
            struct soft_cq *of = it->channel->events[(it->channel->head + i) % it->channel->room];

            if (of != it)
                it->channel->events[(it->channel->head + kept++) % it->channel->room] = of;
        }
        it->channel->count = kept;
        it->channel->children--;
    }
    soft_events_forget(owner, cq);
    soft_wait_acknowledged(&it->events_given, "completion queue");
    while (*link != it)
        link = &(*link)->next;
    *link = it->next;
    owner->children--;
    soft.stats.cqs--;
    soft_unlock();
    free(it->ring);
    free(it);
    return 0;
}

void soft_cq_add(struct ibv_cq *cq, const struct soft_completion *completion)
{
    struct soft_cq *it = soft_cq_of(cq);
    struct soft_completion *entry;

    if (it->count == (uint32_t)cq->cqe)
        soft_mistake("a completion queue of %d overflows", cq->cqe);
    entry = &it->ring[(it->head + it->count++) % (uint32_t)cq->cqe];
    *entry = *completion;
    if (entry->wc.status != IBV_WC_SUCCESS) {
        /* only wr_id, status, vendor_err and qp_num may be looked at */
        entry->wc.opcode = (enum ibv_wc_opcode)0x5a;
        entry->wc.byte_len = 0xdeadbeef;
        entry->wc.src_qp = 0xdeadbeef;
        entry->wc.wc_flags = 0x5a5a5a5a;
        entry->wc.vendor_err = 0x50;
    }
    if (it->armed) {
        it->armed = false;
        if (it->channel)
            channel_add(it->channel, it);
    }
}

void soft_cq_forget(struct soft_context *context, const struct soft_qp *qp,
                    const struct soft_receives *receives)
{
    for (struct soft_cq *cq = context->cqs; cq; cq = cq->next) {
        const uint32_t room = (uint32_t)cq->base.cqe;
        uint32_t kept = 0;

        for (uint32_t i = 0; i < cq->count; i++) {
            struct soft_completion entry = cq->ring[(cq->head + i) % room];

            if (qp && entry.qp == qp) {
                if (soft.config.purges_completions) {
                    if (entry.receives)
                        entry.receives->used--;
                    continue;
                }
                entry.qp = NULL;
            }
            if (receives && entry.receives == receives)
                entry.receives = NULL;
            cq->ring[(cq->head + kept++) % room] = entry;
        }
        cq->count = kept;
    }
}

int soft_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
    struct soft_cq *it = soft_cq_of(cq);
    int given = 0;

    soft_lock();
    if (it->broken) {
        soft_unlock();
        return -1;
    }
    soft_move(false);
    for (; given < count && it->count > 0; given++) {
        const struct soft_completion *entry = &it->ring[it->head];

        wc[given] = entry->wc;
        if (entry->qp && entry->of_send)
            entry->qp->tail += entry->sends;
        if (entry->receives)
            entry->receives->used--;
        it->head = (it->head + 1) % (uint32_t)cq->cqe;
        it->count--;
    }
    soft_unlock();
    return given;
}

int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    struct soft_cq *it = soft_cq_of(cq);

    soft_lock();
    if (!it->channel)
        soft_mistake("a completion queue without a channel is armed");
    if (solicited_only)
        soft_mistake("solicited completions alone are not there");
    it->armed = true;
    soft_move(true);
    soft_unlock();
    return 0;
}

/* --- asynchronous events --- */

static const void *element_of(const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        return event->element.cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return event->element.qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return event->element.srq;
    default:
        return NULL;
    }
}

static bool is_of_qp(enum ibv_event_type type)
{
    return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
           type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST ||
           type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

/* Where events are counted that were given and not acknowledged; NULL: nobody waits for it. */
static uint32_t *unacknowledged_of(const struct ibv_async_event *event)
{
    if (is_of_qp(event->event_type))
        return &soft_qp_of(event->element.qp)->events_unacked;
    if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
        return &soft_srq_of(event->element.srq)->events_unacked;
    return NULL;
}

/* The kernel's list has no end; here the oldest are kept. */
void soft_event(struct soft_context *context, enum ibv_event_type type, void *element)
{
    struct ibv_async_event event = {.event_type = type};

    if (context->event_count == SOFT_MAX_EVENTS)
        return;
    if (element)
        event.element.qp = element;
    else
        event.element.port_num = 1;
    context->events[context->event_count++] = event;
    tell(context->verbs.context.async_fd);
}

void soft_events_forget(struct soft_context *context, const void *element)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < context->event_count; i++)
        if (element_of(&context->events[i]) != element)
            context->events[kept++] = context->events[i];
    context->event_count = kept;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct soft_context *it = soft_context_of(context);
    uint32_t *unacknowledged;

    if (!take(context->async_fd))
        return -1;
    soft_lock();
    if (it->event_count == 0) { /* of an object that was destroyed meanwhile */
        soft_unlock();
        errno = EAGAIN;
        return -1;
    }
    *event = it->events[0];
    it->event_count--;
    memmove(it->events, it->events + 1, it->event_count * sizeof it->events[0]);
    unacknowledged = unacknowledged_of(event);
    if (unacknowledged)
        ++*unacknowledged;
    soft_unlock();
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    uint32_t *unacknowledged;

    soft_lock();
    unacknowledged = unacknowledged_of(event);
    if (unacknowledged && (*unacknowledged)-- == 0)
        soft_mistake("an event is acknowledged that was not given");
    pthread_cond_broadcast(&soft.acknowledged);
    soft_unlock();
}
