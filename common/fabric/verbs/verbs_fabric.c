/* verbs_fabric.c - the verbs backend: peers over RDMA. A fabric is one device with its registered memory, and
 * a fabric of the tcp backend at the same address that sets connections up; an endpoint is a completion
 * queue, a queue pair for datagrams, and an endpoint of tcp. A poll takes completions, tells each to its connection, and
 * works off the connections on the lists; one that has nothing costs nothing.
 *
 * 1. A fabric does not change after its endpoints are open, but for the notes of verbs_async.c; so endpoints
 *    on different threads share it without a lock.
 * 2. The completion queue has a place for all that can complete: datagrams have theirs from the start,
 *    whoever makes another queue that completes here takes his from `cq_free`.
 * 3. tcp, which sets connections up and says when they end, is polled rarely while awake: it is a system call.
 * 4. Armed, the completion queue notifies once; the poll behind the arming sees what came before, and nobody takes the
 *    notice away before the endpoint is awake again. A zone with a queue of its own decides in that poll whether it is
 *    armed (verbs_slots.c, 7 to 10).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "common/base/address.h"
#include "common/base/log.h"
#include "common/fabric/verbs/verbs_rc.h"
#include "common/fabric/verbs/verbs_stream.h"
#include "common/fabric/verbs/verbs_zone.h"
#include "common/reactor/names.h"

enum { CQ_PLACES = 65536, HOST_BYTES = 128, COMPLETIONS = 64, MOST_COMPLETIONS = 512 };

#define PAUSE_NS (50 * NS_PER_MS)

/* --- completions --- */

static void dispatch(struct verbs_endpoint *endpoint, const struct ibv_wc *wc)
{
    struct verbs_conn *conn;

    if (verbs_work_kind(wc->wr_id) != VERBS_WORK_RC) {
        verbs_packet_completion(endpoint, wc);
        return;
    }
    conn = verbs_conn_of(endpoint, verbs_work_connection(wc->wr_id));
    if (conn)
        verbs_rc_completion(conn, wc);
}

static void poll_completions(struct verbs_endpoint *endpoint)
{
    struct ibv_wc completions[COMPLETIONS];
    int found = COMPLETIONS, total = 0;

    while (found == COMPLETIONS && total < MOST_COMPLETIONS) {
        found = ibv_poll_cq(endpoint->cq, COMPLETIONS, completions);
        if (found < 0) {
            verbs_endpoint_fail(endpoint, "its completion queue cannot be read");
            found = 0;
        }
        for (int i = 0; i < found; i++)
            dispatch(endpoint, &completions[i]);
        total += found;
    }
    endpoint->more_completions = found == COMPLETIONS;
    if (!endpoint->packets->failed || endpoint->more_completions)
        return;
    verbs_async_drain(endpoint); /* perhaps it is the device that has failed */
    verbs_async_poll(endpoint);
    verbs_packets_renew(endpoint);
}

/* --- steps --- */

static void check(struct verbs_endpoint *endpoint)
{
    endpoint->checked_ns = endpoint->base.now_ns;
    verbs_async_drain(endpoint);
    conn_check_handshakes(&endpoint->base, VERBS_HANDSHAKE_NS);
    verbs_stream_check(endpoint);
    verbs_inbox_check(endpoint);
    verbs_message_check(endpoint);
}

static unsigned step(struct endpoint *base, struct fabric_event *events, unsigned max)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    const uint64_t now_ns = base->now_ns;
    unsigned count = 0;

    verbs_async_poll(endpoint);
    if (base->armed || endpoint->more_control || now_ns == endpoint->control_ns ||
        now_ns - endpoint->control_ns >= VERBS_CONTROL_NS) /* 3 */
        verbs_connect_poll(endpoint);
    verbs_resolve_poll(endpoint);
    if (!base->base.error)
        poll_completions(endpoint);
    if (now_ns - endpoint->checked_ns >= VERBS_CHECK_NS)
        check(endpoint);
    verbs_packets_push(endpoint); /* receive buffers that are free again */
    if (endpoint->zone && !base->base.error)
        count = verbs_zone_poll(endpoint->zone, now_ns, events, max);
    return count;
}

static bool is_drained(const struct conn *conn)
{
    return !((const struct verbs_conn *)conn)->stream->inbox;
}

static unsigned move(struct conn *base, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    if (!is_drained(base))
        count = verbs_inbox_poll((struct verbs_conn *)base, events, max);
    if (base->window)
        count += window_events(base, events + count, max - count);
    conn_list_add(base, LIST_DIRTY);
    return count;
}

static bool has_work(const struct conn *base)
{
    return !is_drained(base) || base->state == CONN_BREAKING ||
           (base->window && window_has_landed(base->window));
}

static void push(struct conn *base)
{
    struct verbs_conn *conn = (struct verbs_conn *)base;

    verbs_stream_push(conn);
    if (base->state == CONN_OPEN && base->window)
        verbs_rc_push(conn);
}

static void flush(struct endpoint *endpoint)
{
    verbs_packets_push((struct verbs_endpoint *)endpoint);
}

/* --- sleep --- */

static uint64_t interval_ns(const struct endpoint *base)
{
    const struct verbs_endpoint *endpoint = (const struct verbs_endpoint *)base;
    const struct conn_list *lists = base->lists;
    const uint64_t stream_ns = verbs_stream_wake_ns(endpoint);
    const struct conn *begun = lists[LIST_BEGUN].first; /* the longest */
    const uint64_t late_ns = begun ? begun->partial.begun_ns + PARTIAL_NS : UINT64_MAX;
    const uint64_t wake_ns = stream_ns < late_ns ? stream_ns : late_ns;
    uint64_t interval = UINT64_MAX;

    if (lists[LIST_ACTIVE].first || lists[LIST_DIRTY].first || endpoint->more_completions ||
        endpoint->more_control || (endpoint->packets->failed && !base->base.error))
        return 1;
    if (lists[LIST_HANDSHAKE].first || lists[LIST_DEAD].first || lists[LIST_NO_MEMORY].first)
        interval = PAUSE_NS;
    if (lists[LIST_DRAINING].first) /* its completion may have been taken since the last look */
        interval = VERBS_CHECK_NS;
    if (endpoint->zone && !base->base.error && verbs_zone_wait_ns(endpoint->zone) < interval)
        interval = verbs_zone_wait_ns(endpoint->zone);
    if (wake_ns != UINT64_MAX) {
        const uint64_t after = wake_ns > base->now_ns ? wake_ns - base->now_ns : 0;

        /* Deadlines are looked at every VERBS_CHECK_NS only. */
        if (after + VERBS_CHECK_NS < interval)
            interval = after + VERBS_CHECK_NS;
    }
    return interval > 0 ? interval : 1;
}

static void arm(struct endpoint *base)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    eventfd_t heard;

    eventfd_read(endpoint->wake_fd, &heard); /* whatever it was, the next poll finds it */
    endpoint->control_source.arm(endpoint->control_source.context);
    if (!base->base.error && ibv_req_notify_cq(endpoint->cq, 0) != 0) /* 4 */
        endpoint->more_completions = true;                            /* then the timer wakes */
}

static void disarm(struct endpoint *base)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    struct ibv_cq *cq;
    eventfd_t heard;
    void *context;

    endpoint->control_source.disarm(endpoint->control_source.context);
    while (ibv_get_cq_event(endpoint->channel, &cq, &context) == 0)
        ibv_ack_cq_events(cq, 1);
    eventfd_read(endpoint->wake_fd, &heard);
    endpoint->checked_ns = 0; /* the next poll looks at everything */
    endpoint->control_ns = 0;
}

/* --- endpoint --- */

static int watch(struct verbs_endpoint *endpoint, int fd)
{
    return endpoint_watch(&endpoint->base, fd, EPOLLIN, 0);
}

/* 2 */
static int open_completions(struct verbs_endpoint *endpoint)
{
    const struct verbs_device *device = endpoint->device;
    const int most = device->attributes.orig_attr.max_cqe;
    const int places = most > 0 && most < CQ_PLACES ? most : CQ_PLACES;
    const uint32_t datagrams = verbs_packets_places(device);
    int error;

    if ((uint32_t)places < datagrams)
        return ROWAN_EUNSUPPORTED;
    endpoint->channel = ibv_create_comp_channel(device->context);
    if (!endpoint->channel)
        return error_from_errno(errno);
    error = fd_set_nonblocking(endpoint->channel->fd);
    if (error)
        return error;
    endpoint->cq = ibv_create_cq(device->context, places, endpoint, endpoint->channel, 0);
    if (!endpoint->cq)
        return verbs_refused("completion_queue", errno);
    endpoint->cq_free = (uint32_t)places - datagrams;
    return watch(endpoint, endpoint->channel->fd);
}

static int open_endpoint_control(struct verbs_endpoint *endpoint)
{
    int error =
        fabric_endpoint_open(endpoint->fabric->control, endpoint->base.index, &endpoint->control);

    if (error)
        return error;
    fabric_endpoint_admit(endpoint->control, verbs_connect_admit, endpoint);
    fabric_endpoint_source(endpoint->control, &endpoint->control_source);
    return watch(endpoint, endpoint->control_source.fd);
}

static void verbs_endpoint_free(struct endpoint *base)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;

    verbs_packets_close(endpoint);
    verbs_slabs_fini(&endpoint->messages.out);
    verbs_slabs_fini(&endpoint->messages.in);
    if (endpoint->cq)
        ibv_destroy_cq(endpoint->cq);
    if (endpoint->channel)
        ibv_destroy_comp_channel(endpoint->channel);
    fabric_endpoint_close(endpoint->control);
    close_fd(endpoint->wake_fd);
}

static int verbs_endpoint_open(struct endpoint *base)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    int error;

    endpoint->fabric = (struct verbs_fabric *)base->fabric;
    endpoint->device = endpoint->fabric->device;
    endpoint->messages.out.device = endpoint->messages.in.device = endpoint->device;
    endpoint->messages.out.now_ns = endpoint->messages.in.now_ns = &base->now_ns;
    endpoint->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    error = watch(endpoint, endpoint->wake_fd); /* -1: EIO */
    if (!error)
        error = watch(endpoint, endpoint->device->context->async_fd);
    if (!error)
        error = open_completions(endpoint);
    if (!error)
        error = verbs_packets_open(endpoint);
    if (!error)
        error = open_endpoint_control(endpoint);
    if (!error)
        verbs_async_join(endpoint);
    return error;
}

static void verbs_endpoint_leave(struct endpoint *base)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;

    verbs_async_leave(endpoint);
    verbs_packets_stop(endpoint); /* so that nothing of a connection is read any more */
}

static const struct conn_backend backend = {
    .endpoint_bytes = sizeof(struct verbs_endpoint),
    .conn_bytes = sizeof(struct verbs_conn),
    .most_conns = VERBS_MAX_CONNS,
    .open = verbs_endpoint_open,
    .leave = verbs_endpoint_leave,
    .free = verbs_endpoint_free,
    .zone_bytes = sizeof(struct verbs_zone),
    .zone_open = verbs_zone_open,
    .zone_posted = verbs_zone_posted,
    .zone_close = verbs_zone_close,
    .close_segment = verbs_close_segment,
    .step = step,
    .move = move,
    .has_work = has_work,
    .is_drained = is_drained,
    .push = push,
    .flush = flush,
    .stop = verbs_conn_stop,
    .release = verbs_conn_release,
    .destroy = verbs_conn_destroy,
    .interval_ns = interval_ns,
    .arm = arm,
    .disarm = disarm,
};

/* --- fabric --- */

/* The host of "verbs:HOST:PORT", which tcp has found sound and looked up, as verbs_device_open wants it; HOST_BYTES with its end. */
static int find_host(const char *address, char host[HOST_BYTES])
{
    char name[ADDRESS_HOST_BYTES];
    bool bracketed;

    address_split(strchr(address, ':') + 1, name, &bracketed);
    return names_look(strcmp(name, "localhost") == 0 ? "127.0.0.1" : name, host);
}

static int open_control(struct verbs_fabric *fabric, const char *address, char host[HOST_BYTES])
{
    char text[VERBS_ADDRESS_BYTES];
    int error;

    if (!address)
        return fabric_open("tcp", NULL, &fabric->control);
    error = verbs_control_address(address, text);
    if (!error)
        error = fabric_open(NULL, text, &fabric->control);
    return error ? error : find_host(address, host);
}

static void set_caps(struct verbs_fabric *fabric)
{
    const struct verbs_device *device = fabric->device;
    const bool is_packed = device->receive == FABRIC_RECEIVE_MULTI_PACKET;

    fabric->base.base.caps = (struct fabric_caps){
        .backend = "verbs",
        .block_limit = is_packed ? device->mtu_bytes : device->slot_bytes,
        .landing_stride = is_packed ? FABRIC_STRIDE : device->slot_bytes,
        .max_batch_blocks = VERBS_BLOCKS,
    };
}

static void verbs_close(struct fabric *base)
{
    struct verbs_fabric *fabric = (struct verbs_fabric *)base;

    verbs_resolver_fini(fabric);
    verbs_unregister_all(fabric);
    pthread_mutex_destroy(&fabric->async_mutex);
    verbs_device_close(fabric->device);
    fabric_close(fabric->control);
    free(fabric);
}

static const struct fabric_ops verbs_ops = {
    ENDPOINT_OPS,
    .close = verbs_close,
    .register_memory = verbs_register,
    .connect = verbs_connect,
    .send = verbs_send,
    .message_release = verbs_message_release,
    .rowan_add = verbs_rowan_add,
};

int fabric_open_verbs(const char *address, const struct fabric_verbs_options *options,
                      struct fabric **out)
{
    struct verbs_fabric *fabric;
    char host[HOST_BYTES];
    int error;

    fabric = calloc(1, sizeof *fabric);
    if (!fabric)
        return ROWAN_ENOMEM;
    fabric->base.base.ops = &verbs_ops;
    fabric->base.backend = &backend;
    error = open_control(fabric, address, host);
    if (error)
        goto free_fabric;
    error = verbs_device_open(address ? host : NULL, options, &fabric->device);
    if (error)
        goto close_control;
    error = fd_set_nonblocking(fabric->device->context->async_fd);
    if (error)
        goto close_device;
    pthread_mutex_init(&fabric->async_mutex, NULL);
    pthread_mutex_init(&fabric->resolver.mutex, NULL);
    pthread_cond_init(&fabric->resolver.wanted, NULL);
    set_caps(fabric);
    *out = &fabric->base.base;
    return 0;

close_device:
    verbs_device_close(fabric->device);
close_control:
    fabric_close(fabric->control);
free_fabric:
    free(fabric);
    return error;
}
