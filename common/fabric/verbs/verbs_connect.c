/* verbs_connect.c - a connection's memory and number, and the handshake: a connection of the tcp backend, then the
 * messages of verbs_hello.h over it. Who may connect, how many and how long it takes is decided there and by the same rules.
 *
 * 1. A handshake takes at most VERBS_HANDSHAKE_NS, tcp's part of it and ours each.
 * 2. The tcp connection's end is the connection's end, in any state. Nothing but the handshake comes over
 *    it.
 * 3. Between the peer's hello and what follows from it the address handle is made, on another thread, for the kernel
 *    may take a second to find that nobody answers (verbs_resolve.c). The handshake's time goes on meanwhile.
 * 4. Who cannot make what a connection needs says so before it closes: the active side learns why.
 * 5. What ends a connection destroys its RC queue pair and closes its tcp connection at once: nothing of it lands any
 *    more, and the peer learns of it. All else is given back by a later poll, when the device has done with what was
 *    sent: until then messages may be looked at, and its number is nobody else's.
 *
 *   active:  CONNECTING -> GREETING -> RESOLVING -> OPEN
 *   passive: EXPECTING -> RESOLVING -> JOINING -> OPEN
 *            EXPECTING, RESOLVING -> REFUSING
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/fabric/shut_out.h"
#include "common/fabric/verbs/verbs_stream.h"

enum { CONTROL_EVENTS = 64 };

/* --- a connection's memory and number --- */

static int create(struct verbs_endpoint *endpoint, bool active, struct verbs_conn **out)
{
    struct conn *base;
    const int error = conn_create(&endpoint->base, active, &base);

    if (error)
        return error;
    *out = (struct verbs_conn *)base;
    (*out)->endpoint = endpoint;
    random_entropy(&(*out)->token, sizeof(*out)->token);
    return 0;
}

void verbs_conn_stop(struct conn *base)
{
    struct verbs_conn *conn = (struct verbs_conn *)base;
    struct fabric_conn *control = conn->control;

    verbs_resolve_forget(conn);
    verbs_rc_close(conn);
    if (control) {
        conn->control = NULL;
        control->user = NULL;
        fabric_conn_close(control);
    }
}

bool verbs_conn_release(struct conn *base)
{
    const struct verbs_conn *conn = (const struct verbs_conn *)base;

    return !conn->stream || conn->stream->last_post <= conn->endpoint->packets->completed;
}

void verbs_conn_destroy(struct conn *base)
{
    verbs_stream_close((struct verbs_conn *)base);
}

/* --- hellos --- */

static int send_message(struct verbs_conn *conn, const struct verbs_hello *hello)
{
    const struct fabric_iov piece = {.data = hello, .bytes = sizeof *hello};

    return fabric_send(conn->control, &piece, 1);
}

static int say_hello(struct verbs_conn *conn, const struct verbs_rc_hello *rc)
{
    const struct verbs_device *device = conn->endpoint->device;
    const struct verbs_packets *packets = conn->endpoint->packets;
    struct verbs_hello hello = verbs_hello_make(VERBS_HELLO);

    hello.lid = device->is_ethernet ? 0 : device->port_attributes.lid;
    hello.mtu = device->mtu_bytes;
    hello.ud_number = packets->qp->qp_num;
    hello.ud_key = packets->key;
    hello.connection = conn->base.number;
    hello.token = conn->token;
    hello.rc = *rc;
    memcpy(hello.gid, device->gid.raw, sizeof hello.gid);
    return send_message(conn, &hello);
}

void verbs_connect_opened(struct verbs_conn *conn)
{
    conn->stream->progress_ns = conn->endpoint->base.now_ns;
    conn_opened(&conn->base);
}

/* --- active --- */

int verbs_control_address(const char *address, char out[VERBS_ADDRESS_BYTES])
{
    if (strncmp(address, "verbs:", 6) != 0 ||
        snprintf(out, VERBS_ADDRESS_BYTES, "tcp:%s", address + 6) >= VERBS_ADDRESS_BYTES)
        return ROWAN_EINVALID;
    return 0;
}

int verbs_connect(struct fabric_endpoint *base, const char *address, uint32_t index,
                  uint64_t context, struct fabric_conn **out)
{
    struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
    char control[VERBS_ADDRESS_BYTES];
    struct verbs_conn *conn;
    int error = verbs_control_address(address, control);

    if (error)
        return error;
    if (base->error)
        return base->error;
    error = create(endpoint, true, &conn);
    if (error)
        return error;
    conn->base.context = context;
    fabric_endpoint_identity(endpoint->control, &base->identity);
    error = fabric_connect(endpoint->control, control, index, 0, &conn->control);
    if (error) {
        conn_end(&conn->base);
        return error;
    }
    conn->control->user = conn;
    *out = &conn->base.base;
    return 0;
}

static void dialled(struct verbs_conn *conn, const struct fabric_event *event)
{
    struct verbs_rc_hello ours;
    int error;

    conn->base.peer = event->peer;
    conn->base.base.layout = event->conn->layout;
    conn->base.state = CONN_GREETING;
    conn->base.since_ns = conn->endpoint->base.now_ns; /* 1 */
    error = verbs_rc_open(conn, &ours);
    if (!error)
        error = say_hello(conn, &ours);
    if (error)
        conn_break(&conn->base, error, true);
}

static int finish(struct verbs_conn *conn)
{
    const struct verbs_hello ready = verbs_hello_make(VERBS_READY);
    int error = verbs_rc_connect(conn);

    if (!error)
        error = send_message(conn, &ready);
    if (!error)
        verbs_connect_opened(conn);
    return error;
}

/* 3 */
static int resolve(struct verbs_conn *conn, const struct verbs_hello *hello)
{
    conn->theirs = *hello;
    conn->base.state = CONN_RESOLVING;
    return verbs_resolve(conn);
}

static void hear_active(struct verbs_conn *conn, const struct verbs_hello *hello)
{
    int error = ROWAN_EFORMAT;

    if (conn->base.state == CONN_GREETING && hello->kind == VERBS_REFUSAL) {
        error = hello->error;
    } else if (conn->base.state == CONN_GREETING && hello->kind == VERBS_HELLO) {
        error = resolve(conn, hello);
    }
    if (error)
        conn_break(&conn->base, error, true);
}

/* --- passive --- */

int verbs_connect_admit(void *context, const struct fabric_identity *peer)
{
    const struct verbs_endpoint *endpoint = context;

    if (endpoint->base.base.error)
        return endpoint->base.base.error;
    if (endpoint->base.counts[LIST_ALL] >= VERBS_MAX_CONNS)
        return ROWAN_ETOOMANY;
    return fabric_admit_peer(&endpoint->base.base, peer);
}

static void accepted(struct verbs_endpoint *endpoint, const struct fabric_event *event)
{
    struct verbs_conn *conn;

    if (shut_out_forbids(&endpoint->base.base, &event->peer) || /* since tcp has admitted it */
        create(endpoint, false, &conn)) {
        fabric_conn_close(event->conn);
        return;
    }
    conn->base.peer = event->peer;
    conn->base.base.layout = event->conn->layout;
    conn->base.since_ns = endpoint->base.now_ns;
    conn->control = event->conn;
    conn->control->user = conn;
    if (endpoint->base.zone && event->peer.kind == FABRIC_SERVER)
        conn_supersede(&conn->base);
}

static int answer(struct verbs_conn *conn)
{
    struct verbs_rc_hello ours;
    int error = verbs_rc_open(conn, &ours);

    if (!error)
        error = verbs_rc_connect(conn);
    if (!error)
        error = say_hello(conn, &ours);
    return error;
}

/* 4 */
static void refuse(struct verbs_conn *conn, int error)
{
    struct verbs_hello refusal = verbs_hello_make(VERBS_REFUSAL);

    refusal.error = error;
    log_event(LOG_WARN, "verbs_refused_peer", "endpoint=%u peer=%u error=%s",
              conn->endpoint->base.index, conn->base.peer.id, error_name(error));
    verbs_rc_close(conn);
    conn->base.base.has_zone = false;
    conn->base.state = CONN_REFUSING;
    if (send_message(conn, &refusal))
        conn_end(&conn->base);
}

static void hear_passive(struct verbs_conn *conn, const struct verbs_hello *hello)
{
    int error;

    if (conn->base.state == CONN_EXPECTING && hello->kind == VERBS_HELLO) {
        error = resolve(conn, hello);
        if (error)
            refuse(conn, error);
    } else if (hello->kind == VERBS_READY && !conn->was_readied &&
               (conn->base.state == CONN_JOINING || conn->base.state == CONN_OPEN)) {
        conn->was_readied = true;
        if (conn->base.state == CONN_JOINING)
            verbs_connect_opened(conn);
    } else {
        conn_break(&conn->base, ROWAN_EFORMAT, true);
    }
}

/* 3 */
void verbs_connect_resolved(struct verbs_conn *conn, struct ibv_ah *ah)
{
    int error = ah ? verbs_stream_open(conn, ah) : ROWAN_EUNREACHABLE;

    if (!error)
        error = conn->base.active ? finish(conn) : answer(conn);
    if (error && conn->base.active)
        conn_break(&conn->base, error, true);
    else if (error)
        refuse(conn, error);
    else if (!conn->base.active)
        conn->base.state = CONN_JOINING;
}

/* --- tcp --- */

static void hear(struct verbs_conn *conn, const struct fabric_event *event)
{
    struct verbs_hello hello;
    const int error = verbs_hello_read(event->data, event->bytes, &hello, &conn->base.layout);

    fabric_message_release(event->conn, event->message);
    if (error == ROWAN_EINCOMPATIBLE && conn->base.state == CONN_EXPECTING) {
        refuse(conn, error);
    } else if (error) {
        if (error == ROWAN_EFORMAT)
            log_event(LOG_WARN, "connection_garbage", "endpoint=%u peer=%u handshake=1",
                      conn->endpoint->base.index, conn->base.peer.id);
        conn_break(&conn->base, error, true);
    } else if (conn->base.active) {
        hear_active(conn, &hello);
    } else {
        hear_passive(conn, &hello);
    }
}

/* 2 */
static void ended(struct verbs_conn *conn, int error)
{
    conn->control = NULL;
    if (conn->base.state < CONN_JOINING && error == ROWAN_ECLOSED)
        error = ROWAN_EUNREACHABLE;
    conn_break(&conn->base, error, true);
}

static void handle_event(struct verbs_endpoint *endpoint, const struct fabric_event *event)
{
    struct verbs_conn *conn = event->conn ? event->conn->user : NULL;

    if (event->kind == FABRIC_ACCEPTED)
        accepted(endpoint, event);
    else if (!conn) /* it was closed earlier in this batch */
        return;
    else if (event->kind == FABRIC_CONNECTED)
        dialled(conn, event);
    else if (event->kind == FABRIC_MESSAGE)
        hear(conn, event);
    else if (event->kind == FABRIC_CLOSED)
        ended(conn, event->error);
}

void verbs_connect_poll(struct verbs_endpoint *endpoint)
{
    struct fabric_event events[CONTROL_EVENTS];
    unsigned count;

    endpoint->control_ns = endpoint->base.now_ns;
    fabric_endpoint_identity(endpoint->control, &endpoint->base.base.identity);
    count = fabric_poll(endpoint->control, endpoint->base.now_ns, events, CONTROL_EVENTS);
    endpoint->more_control = count == CONTROL_EVENTS;
    for (unsigned i = 0; i < count; i++)
        handle_event(endpoint, &events[i]);
    if (count > 0)
        fabric_flush(endpoint->control);
}
