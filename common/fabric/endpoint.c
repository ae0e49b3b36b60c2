/* endpoint.c - opening and closing of endpoints and landing zones, accepting; see endpoint.h. */
#include "common/fabric/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/shut_out.h"
#include "common/reactor/descriptors.h"

enum { ACCEPTS = 64 };

_Static_assert(DESCRIPTORS_WANTED >= DESCRIPTORS_KEPT + 4096 + FABRIC_MAX_GUESTS + 1024,
               "what the guide promises");

int fabric_register_regions(struct fabric *fabric, struct pm *pm)
{
    return regions_add(&((struct conn_fabric *)fabric)->regions, pm);
}

int endpoint_watch(struct endpoint *endpoint, int fd, uint32_t what, uint64_t tag)
{
    struct epoll_event event = {.events = what, .data.u64 = tag};

    return epoll_ctl(endpoint->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? ROWAN_EIO : 0;
}

void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

int fd_set_nonblocking(int fd)
{
    const int flags = fcntl(fd, F_GETFL);

    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? ROWAN_EIO : 0;
}

/* --- accept --- */

static void pause_accepting(struct endpoint *endpoint)
{
    endpoint->listen_paused = true;
    endpoint->paused_ns = endpoint->now_ns;
    log_event(LOG_WARN, "connections_refused",
              "endpoint=%u reason=\"out of descriptors or memory\" connections=%u", endpoint->index,
              endpoint->counts[LIST_ALL]);
}

/* Says that it is a server, and where nobody else can go it must have the time to show it. */
static bool is_server_to_be(const struct conn *conn)
{
    return conn->kept && conn->state == CONN_JOINING &&
           conn_endpoint(conn)->now_ns - conn->since_ns < NS_PER_S;
}

/* A place for one more: the oldest of those goes who have not said, or not shown, who they are; of whichever of the two there
 * are more. */
static void end_oldest(struct endpoint *endpoint)
{
    if (endpoint->counts[LIST_GUEST] > endpoint->counts[LIST_HANDSHAKE]) {
        guest_end(endpoint->lists[LIST_GUEST].first, ROWAN_ETOOMANY);
        return;
    }
    for (CONN_EACH(conn, conn, endpoint, LIST_HANDSHAKE)) {
        if (conn->active || is_server_to_be(conn))
            continue;
        counter_add(&endpoint->base.ended.crowded, 1);
        conn_end(conn);
        return;
    }
}

/* The socket has one of the descriptors that are kept: it takes that of who goes instead. The socket's, then. */
static int give_way(struct endpoint *endpoint, int fd)
{
    int lower;

    log_event(LOG_WARN, "connections_refused",
              "endpoint=%u reason=\"few descriptors are left, which are kept for servers and "
              "files\" connections=%u",
              endpoint->index, endpoint->counts[LIST_ALL]);
    end_oldest(endpoint);
    lower = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (lower < 0)
        return fd;
    close(lower < fd ? fd : lower);
    return lower < fd ? lower : fd;
}

int endpoint_admit(const struct conn *conn)
{
    struct endpoint *endpoint = conn_endpoint(conn);

    if (conn->kept && conn->peer.kind != FABRIC_SERVER) {
        counter_add(&endpoint->base.ended.crowded, 1);
        return ROWAN_ETOOMANY;
    }
    return fabric_admit_peer(&endpoint->base, &conn->peer);
}

void endpoint_accept(struct endpoint *endpoint)
{
    const struct conn_backend *backend = endpoint->backend;

    if (endpoint->listen_paused && endpoint->now_ns - endpoint->paused_ns < ACCEPT_PAUSE_NS)
        return;
    endpoint->listen_paused = false;
    for (unsigned i = 0; i < ACCEPTS && (!backend->make_room || backend->make_room(endpoint));
         i++) {
        int fd = accept4(endpoint->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && errno == EAGAIN) {
            endpoint->listen_ready = false;
            return;
        }
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO))
            continue;
        const bool crowded = fd >= 0 && descriptors_is_kept(fd);

        if (crowded)
            fd = give_way(endpoint, fd);
        endpoint->accepts_kept = descriptors_is_kept(fd);
        /* EMFILE and its kin: a pause helps, another try at once not. */
        if (fd < 0 || backend->accepted(endpoint, fd)) {
            pause_accepting(endpoint);
            return;
        }
        if (crowded) /* what came on the others is read first */
            return;
    }
}

/* --- open and close --- */

static void endpoint_free(struct endpoint *endpoint)
{
    close_fd(endpoint->listen_fd);
    close_fd(endpoint->timer_fd);
    close_fd(endpoint->epoll_fd);
    free(endpoint->conns);
    free(endpoint);
}

int endpoint_open(struct fabric *base, uint32_t index, struct fabric_endpoint **out)
{
    const struct conn_fabric *fabric = (const struct conn_fabric *)base;
    struct endpoint *endpoint = calloc(1, fabric->backend->endpoint_bytes);
    int error;

    if (!endpoint)
        return ROWAN_ENOMEM;
    endpoint->base.ops = base->ops;
    endpoint->fabric = fabric;
    endpoint->backend = fabric->backend;
    endpoint->block_limit = base->caps.block_limit;
    endpoint->index = index;
    endpoint->listen_fd = -1;
    endpoint->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    endpoint->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    endpoint->conns = calloc(fabric->backend->most_conns, sizeof *endpoint->conns);
    error = endpoint->conns ? endpoint_watch(endpoint, endpoint->timer_fd, EPOLLIN,
                                             ENDPOINT_TIMER) /* -1: EIO */
                            : ROWAN_ENOMEM;
    if (!error) {
        error = fabric->backend->open(endpoint);
        if (!error && endpoint->listen_fd >= 0)
            error =
                endpoint_watch(endpoint, endpoint->listen_fd, EPOLLIN | EPOLLET, ENDPOINT_LISTENER);
        if (error)
            fabric->backend->free(endpoint);
    }
    if (error) {
        endpoint_free(endpoint);
        return error;
    }
    *out = &endpoint->base;
    return 0;
}

void endpoint_close(struct fabric_endpoint *base)
{
    struct endpoint *endpoint = (struct endpoint *)base;

    if (endpoint->backend->leave)
        endpoint->backend->leave(endpoint);
    endpoint_end(endpoint);
    if (endpoint->zone && endpoint->backend->zone_close)
        endpoint->backend->zone_close(endpoint->zone);
    free(endpoint->zone);
    endpoint->backend->free(endpoint);
    endpoint_free(endpoint);
}

int zone_open(struct fabric_endpoint *base, struct pm *pm, uint32_t depth, struct fabric_zone **out)
{
    struct endpoint *endpoint = (struct endpoint *)base;
    const struct conn_backend *backend = endpoint->backend;
    const struct region *region = regions_find(&endpoint->fabric->regions, pm->base, pm->bytes);
    struct zone *zone;
    int error;

    if (depth < ZONE_MIN_DEPTH || depth > ZONE_MAX_DEPTH || endpoint->zone || !region)
        return ROWAN_EINVALID;
    zone = calloc(1, backend->zone_bytes + depth * sizeof zone->segments[0]);
    if (!zone)
        return ROWAN_ENOMEM;
    *zone = (struct zone){.base.ops = base->ops,
                          .endpoint = endpoint,
                          .pm = pm,
                          .region = region,
                          .depth = depth,
                          .segments = (void *)((uint8_t *)zone + backend->zone_bytes)};
    error = backend->zone_open(zone);
    if (error) {
        free(zone);
        return error;
    }
    endpoint->zone = zone;
    *out = &zone->base;
    return 0;
}

int zone_post(struct fabric_zone *base, uint64_t offset, uint64_t context)
{
    struct zone *zone = (struct zone *)base;

    if (zone->posted - zone->sealed == zone->depth)
        return ROWAN_EAGAIN;
    if (!window_range_fits(offset, FABRIC_SEGMENT_BYTES, zone->pm->bytes))
        return ROWAN_EINVALID;
    *zone_segment(zone, zone->posted++) =
        (struct zone_segment){.offset = offset, .context = context};
    zone->endpoint->backend->zone_posted(zone);
    return 0;
}

void zone_close_segment(struct fabric_zone *base)
{
    struct zone *zone = (struct zone *)base;

    if (zone->endpoint->backend->close_segment && zone->sealed < zone->posted)
        zone->endpoint->backend->close_segment(zone);
}

uint64_t zone_begun(const struct fabric_zone *base)
{
    const struct zone *zone = (const struct zone *)base;
    return zone->endpoint->backend->begun ? zone->endpoint->backend->begun(zone) : zone->posted;
}

/* --- F12 --- */

int zone_shut_out(struct fabric_zone *base, uint32_t server, uint64_t incarnation, uint64_t context)
{
    struct zone *zone = (struct zone *)base;
    struct endpoint *endpoint = zone->endpoint;
    struct fabric_shut_out *out =
        shut_out_begin(&endpoint->base, base, server, incarnation, context);

    if (!out)
        return ROWAN_ETOOMANY;
    for (CONN_EACH(conn, conn, endpoint, LIST_ALL)) {
        if (!conn->active && shut_out_is_of(out, &conn->peer))
            conn_break(conn, ROWAN_ECLOSED, false);
    }
    if (endpoint->backend->shut_out)
        out->sealed = endpoint->backend->shut_out(zone, out);
    return 0;
}
