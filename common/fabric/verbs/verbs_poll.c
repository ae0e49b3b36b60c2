/* verbs_poll.c - poll and flush of an endpoint. A poll takes completions, tells each to its connection, and
 * works off the connections on the lists; one that has nothing costs nothing.
 *
 * 1. A connection is on the active list while it has work that no completion will announce again.
 * 2. Each poll starts with another connection and takes at most SHARE events from each.
 * 3. tcp, which sets connections up and says when they end, is looked at rarely while awake: it is a
 *    system call.
 * 4. Armed, the completion queue notifies once. What is left over from a poll, and what goes on by time
 *    alone, sets the timer.
 */
#include <string.h>
#include <sys/timerfd.h>

#include "common/base/assert.h"
#include "common/fabric/verbs/verbs_stream.h"

enum { SHARE = 32, COMPLETIONS = 64, MOST_COMPLETIONS = 512 };

#define PAUSE_NS (50 * NS_PER_MS)

/* --- completions --- */

static void dispatch(struct verbs_endpoint *endpoint, const struct ibv_wc *wc)
{
    struct verbs_conn *conn;

    switch (verbs_work_kind(wc->wr_id)) {
    case VERBS_WORK_UD_SEND:
    case VERBS_WORK_UD_RECEIVE:
        verbs_packet_completion(endpoint, wc);
        break;
    case VERBS_WORK_RC:
        conn = verbs_conn_of(endpoint, verbs_work_connection(wc->wr_id));
        if (conn)
            verbs_rc_completion(conn, wc);
        break;
    case VERBS_WORK_LANDING: /* never in this queue */
        break;
    }
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

void verbs_conn_close(struct fabric_conn *base)
{
    verbs_conn_end((struct verbs_conn *)base);
}

/* --- connections --- */

static void announce(struct verbs_conn *conn, struct fabric_event *event)
{
    conn->announced = true;
    *event = (struct fabric_event){.kind = conn->active ? FABRIC_CONNECTED : FABRIC_ACCEPTED,
                                   .conn = &conn->base,
                                   .context = conn->context,
                                   .peer = conn->peer};
}

static void say_closed(struct verbs_conn *conn, struct fabric_event *event)
{
    *event = (struct fabric_event){.kind = FABRIC_CLOSED,
                                   .error = conn->error,
                                   .conn = &conn->base,
                                   .context = conn->context,
                                   .peer = conn->peer};
    verbs_conn_end(conn);
}

static bool has_messages(const struct verbs_conn *conn)
{
    return conn->was_open && conn->stream->inbox_first;
}

static unsigned poll_conn(struct verbs_conn *conn, struct fabric_event *events, unsigned max)
{
    unsigned count = 0;

    ASSERT(max > 0);
    if (conn->was_open && !conn->announced) /* even if it broke since: its messages need a name */
        announce(conn, &events[count++]);
    if (has_messages(conn))
        count += verbs_inbox_poll(conn, events + count, max - count);
    if (conn->state == VCONN_OPEN && conn->rc)
        count += verbs_rc_poll(conn, events + count, max - count);
    if (conn->state == VCONN_OPEN)
        verbs_list_add(conn, VLIST_DIRTY);
    if (conn->state == VCONN_BREAKING && count < max && !has_messages(conn))
        say_closed(conn, &events[count++]);
    return count;
}

static bool has_work(const struct verbs_conn *conn)
{
    if (conn->state == VCONN_BREAKING)
        return true;
    if (conn->state != VCONN_OPEN)
        return false;
    return has_messages(conn) || (conn->rc && verbs_rc_has_events(conn));
}

static unsigned poll_active(struct verbs_endpoint *endpoint, struct fabric_event *events,
                            unsigned max)
{
    const struct verbs_conn *last = endpoint->lists[VLIST_ACTIVE].last;
    struct verbs_conn *conn;
    unsigned count = 0;
    bool is_last = false;

    while (!is_last && count < max && (conn = verbs_list_take(endpoint, VLIST_ACTIVE))) {
        const unsigned room = max - count;

        is_last = conn == last;
        if (conn->state != VCONN_DEAD)
            count += poll_conn(conn, events + count, room < SHARE ? room : SHARE);
        if (has_work(conn))
            verbs_list_add(conn, VLIST_ACTIVE);
    }
    return count;
}

/* --- poll and flush --- */

static void check(struct verbs_endpoint *endpoint)
{
    endpoint->checked_ns = endpoint->now_ns;
    verbs_async_drain(endpoint);
    verbs_connect_check(endpoint);
    verbs_stream_check(endpoint);
    verbs_inbox_check(endpoint);
    verbs_message_check(endpoint);
}

static void step(struct verbs_endpoint *endpoint)
{
    const uint64_t now_ns = endpoint->now_ns;

    if (endpoint->lists[VLIST_DEAD].first)
        verbs_conn_reap(endpoint);
    verbs_async_poll(endpoint);
    if (endpoint->armed || endpoint->more_control || now_ns == endpoint->control_ns ||
        now_ns - endpoint->control_ns >= VERBS_CONTROL_NS) /* 3 */
        verbs_connect_poll(endpoint);
    verbs_resolve_poll(endpoint);
    if (!endpoint->base.error)
        poll_completions(endpoint);
    if (now_ns - endpoint->checked_ns >= VERBS_CHECK_NS)
        check(endpoint);
}

unsigned verbs_poll(struct fabric_endpoint *base, uint64_t now_ns, struct fabric_event *events,
                    unsigned max)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    unsigned count = 0;

    endpoint->now_ns = now_ns;
    step(endpoint);
    if (endpoint->zone && !endpoint->base.error)
        count = verbs_zone_poll(endpoint->zone, now_ns, events, max);
    if (count < max && endpoint->grants)
        count += verbs_grants_poll(endpoint, events + count, max - count);
    if (endpoint->lists[VLIST_ACTIVE].first)
        count += poll_active(endpoint, events + count, max - count);
    verbs_flush(base);
    return count;
}

void verbs_flush(struct fabric_endpoint *base)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    uint32_t left = endpoint->counts[VLIST_DIRTY];
    struct verbs_conn *conn;

    while (left-- > 0 && (conn = verbs_list_take(endpoint, VLIST_DIRTY))) {
        if (conn->state == VCONN_OPEN)
            verbs_stream_push(conn);
        if (conn->state == VCONN_OPEN && conn->rc)
            verbs_rc_push(conn);
    }
    verbs_packets_push(endpoint);
    if (endpoint->armed) /* what was sent may need a look sooner than the timer says */
        verbs_timer_set(endpoint);
}

/* --- sleep --- */

static uint64_t interval_ns(const struct verbs_endpoint *endpoint)
{
    const struct verbs_list *lists = endpoint->lists;
    const uint64_t stream_ns = verbs_stream_wake_ns(endpoint);
    const uint64_t inbox_ns = verbs_inbox_wake_ns(endpoint);
    const uint64_t wake_ns = stream_ns < inbox_ns ? stream_ns : inbox_ns;
    uint64_t interval = UINT64_MAX;

    if (lists[VLIST_ACTIVE].first || lists[VLIST_DIRTY].first || endpoint->more_completions ||
        endpoint->more_control || (endpoint->packets->failed && !endpoint->base.error) ||
        (endpoint->grants && verbs_grants_has_events(endpoint)))
        return 1;
    if (lists[VLIST_HANDSHAKE].first || lists[VLIST_DEAD].first || lists[VLIST_WAITING].first)
        interval = PAUSE_NS;
    if (lists[VLIST_DRAINING].first) /* its completion may have been taken since the last look */
        interval = VERBS_CHECK_NS;
    if (endpoint->zone && !endpoint->base.error && verbs_zone_wait_ns(endpoint->zone) < interval)
        interval = verbs_zone_wait_ns(endpoint->zone);
    if (wake_ns != UINT64_MAX) {
        const uint64_t after = wake_ns > endpoint->now_ns ? wake_ns - endpoint->now_ns : 0;

        /* Deadlines are looked at every VERBS_CHECK_NS only. */
        if (after + VERBS_CHECK_NS < interval)
            interval = after + VERBS_CHECK_NS;
    }
    return interval > 0 ? interval : 1;
}

void verbs_timer_set(struct verbs_endpoint *endpoint)
{
    const uint64_t after_ns = interval_ns(endpoint);
    struct itimerspec spec = {0};

    if (after_ns == UINT64_MAX)
        return;
    endpoint->timer_on = true;
    spec.it_value.tv_sec = (time_t)(after_ns / NS_PER_S);
    spec.it_value.tv_nsec = (long)(after_ns % NS_PER_S);
    timerfd_settime(endpoint->timer_fd, 0, &spec, NULL);
}
