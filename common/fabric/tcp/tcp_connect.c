/* tcp_connect.c - the handshake. Each side reads no more than the other's greeting before it answers,
 * so a refusal is never lost behind unread bytes:
 *
 *   active                                     passive
 *   connect, hello (who I am)           ->     admit, or refuse and close
 *                                       <-     welcome (who I am, error, zone, token)
 *   with a zone: connect, hello (token) ->     finds the connection by the token
 *                                       <-     welcome on that socket
 *   CONNECTED                                  ACCEPTED
 *
 * 1. A handshake takes at most TCP_HANDSHAKE_NS. One that fails at the passive side ends silently.
 * 2. At most TCP_MAX_HALF_OPEN sockets have not said who they are. For one more the oldest is closed,
 *    if it had TCP_HALF_OPEN_NS; else the new one waits in the kernel's queue.
 * 3. Without descriptors nobody is accepted for TCP_PAUSE_NS; the log says so at most every 10 s.
 * 4. The port of a server that is gone may be the one that the kernel gives our own socket: then it
 *    connects to itself and reads its own hello. That is nobody.
 * 5. The third socket, for bulk writes, is made like the second, but when the connection is open and something
 *    is to be written. If it cannot be made the connection ends.
 */
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/tcp/tcp.h"

enum { ACCEPTS = 64 };

#define SAY_AGAIN_NS (10 * NS_PER_S)

/* --- greetings --- */

static struct tcp_greeting greeting_make(const struct tcp_conn *conn, enum tcp_greeting_kind kind)
{
    const struct fabric_identity *self = &conn->endpoint->base.identity;

    return (struct tcp_greeting){.magic = TCP_MAGIC,
                                 .layout = TCP_LAYOUT,
                                 .kind = kind,
                                 .token = conn->token,
                                 .cluster = self->cluster,
                                 .term = self->term,
                                 .incarnation = self->incarnation,
                                 .id = self->id,
                                 .role = self->role,
                                 .peer_kind = self->kind};
}

/* It is the first that the socket sends, so it fits, or the peer has gone. */
static bool greeting_send(int fd, const struct tcp_greeting *greeting)
{
    const struct iovec piece = {(void *)(uintptr_t)greeting, sizeof *greeting};

    return tcp_write(fd, &piece, 1) == (ssize_t)sizeof *greeting;
}

/* 0: all of a greeting of our layout is there. Errors: ROWAN_EAGAIN ECLOSED, EFORMAT (not even the
 * first bytes are right, or another layout). */
static int greeting_read(struct tcp_conn *conn, struct tcp_socket *socket)
{
    struct tcp_greeting *greeting = &conn->greeting;
    const uint64_t magic = TCP_MAGIC;
    uint32_t known;

    while (conn->greeting_got < sizeof *greeting) {
        const struct iovec piece = {(uint8_t *)greeting + conn->greeting_got,
                                    sizeof *greeting - conn->greeting_got};
        const ssize_t got = tcp_read(socket->fd, &piece, 1);

        if (got < 0) {
            socket->readable = false;
            return (int)got;
        }
        conn->greeting_got += (uint32_t)got;
        known = conn->greeting_got < sizeof magic ? conn->greeting_got : sizeof magic;
        if (memcmp(greeting, &magic, known) != 0)
            return ROWAN_EFORMAT;
    }
    conn->greeting_got = 0;
    return greeting->layout == TCP_LAYOUT ? 0 : ROWAN_EFORMAT;
}

static void take_identity(struct tcp_conn *conn)
{
    const struct tcp_greeting *greeting = &conn->greeting;

    conn->peer = (struct fabric_identity){.cluster = greeting->cluster,
                                          .term = greeting->term,
                                          .incarnation = greeting->incarnation,
                                          .id = greeting->id,
                                          .role = greeting->role,
                                          .kind = (enum fabric_kind)greeting->peer_kind};
}

/* --- active --- */

int tcp_connect(struct fabric_endpoint *base, const char *text, uint32_t index, uint64_t context,
                struct fabric_conn **out)
{
    struct tcp_endpoint *endpoint = (struct tcp_endpoint *)base;
    union tcp_address address;
    struct tcp_conn *conn;
    int error = tcp_address_parse(text, index, &address);

    if (error)
        return error;
    if (endpoint->counts[LIST_ALL] >= TCP_MAX_CONNS)
        return ROWAN_ETOOMANY;
    error = tcp_conn_create(endpoint, true, &conn);
    if (error)
        return error;
    conn->address = address;
    conn->context = context;
    error = tcp_start_connect(&address, &conn->messages.fd);
    if (!error)
        error = tcp_conn_watch(conn, conn->messages.fd, SOCKET_MESSAGES, false);
    if (error == ROWAN_EUNREACHABLE) {
        tcp_conn_break(conn, error, false);
    } else if (error) {
        tcp_conn_bury(conn);
        return error;
    }
    *out = &conn->base;
    return 0;
}

/* A socket that has connected, or failed to, says its hello. False: nothing happened yet. */
static bool say_hello(struct tcp_conn *conn, struct tcp_socket *socket, enum tcp_greeting_kind kind)
{
    const struct tcp_greeting hello = greeting_make(conn, kind);

    if (!socket->readable && !socket->writable)
        return false;
    if (tcp_connect_result(socket->fd) || !socket->writable || !greeting_send(socket->fd, &hello))
        tcp_conn_break(conn, ROWAN_EUNREACHABLE, false);
    return conn->state < CONN_OPEN;
}

static void join(struct tcp_conn *conn)
{
    int error;

    conn->token = conn->greeting.token;
    conn->state = CONN_JOINING;
    error = tcp_start_connect(&conn->address, &conn->blocks.fd);
    if (!error) {
        tcp_widen(conn->blocks.fd);
        error = tcp_conn_watch(conn, conn->blocks.fd, SOCKET_BLOCKS, false);
    }
    if (error)
        tcp_conn_break(conn, error, false);
}

/* What the peer answered on `socket`; 0: welcome. A refusal ends the connection here, with the
 * peer's reason, because that may be ROWAN_EAGAIN: the caller takes it for "no answer yet". */
static int read_welcome(struct tcp_conn *conn, struct tcp_socket *socket)
{
    const int error = greeting_read(conn, socket);

    if (error == ROWAN_EAGAIN)
        return error;
    if (error == ROWAN_ECLOSED)
        return ROWAN_EUNREACHABLE;
    if (error)
        return error;
    if (conn->greeting.kind != GREETING_WELCOME) /* 4 */
        return ROWAN_EUNREACHABLE;
    if (conn->greeting.error == 0)
        return 0;
    tcp_conn_break(conn, conn->greeting.error > 0 ? ROWAN_EFORMAT : conn->greeting.error, false);
    return ROWAN_EAGAIN;
}

static void step_active(struct tcp_conn *conn)
{
    int error = 0;

    if (conn->state == CONN_CONNECTING && say_hello(conn, &conn->messages, GREETING_MESSAGES))
        conn->state = CONN_GREETING;
    if (conn->state == CONN_GREETING && conn->messages.readable) {
        error = read_welcome(conn, &conn->messages);
        if (!error) {
            take_identity(conn);
            if (conn->greeting.zone)
                join(conn);
            else
                tcp_conn_opened(conn);
        }
    }
    if (conn->state == CONN_JOINING && !conn->sender &&
        say_hello(conn, &conn->blocks, GREETING_BLOCKS))
        error = sender_create(conn);
    if (conn->state == CONN_JOINING && conn->sender && conn->blocks.readable) {
        error = read_welcome(conn, &conn->blocks);
        if (!error) {
            conn->base.has_zone = true;
            tcp_conn_opened(conn);
        }
    }
    if (error && error != ROWAN_EAGAIN)
        tcp_conn_break(conn, error, false);
}

/* 5 */
void tcp_bulk_connect(struct tcp_conn *conn)
{
    int error = tcp_start_connect(&conn->address, &conn->bulk.fd);

    if (!error) {
        tcp_widen(conn->bulk.fd);
        error = tcp_conn_watch(conn, conn->bulk.fd, SOCKET_BULK, false);
    }
    conn->since_ns = 0;
    list_add(conn, LIST_HANDSHAKE);
    if (error)
        tcp_conn_break(conn, ROWAN_ECLOSED, true);
}

bool tcp_bulk_step(struct tcp_conn *conn, bool *said_hello)
{
    const struct tcp_greeting hello = greeting_make(conn, GREETING_BULK);
    struct tcp_socket *socket = &conn->bulk;
    int error = ROWAN_EAGAIN;

    if (!*said_hello && (socket->readable || socket->writable)) {
        *said_hello = tcp_connect_result(socket->fd) == 0 && socket->writable &&
                      greeting_send(socket->fd, &hello);
        if (!*said_hello)
            error = ROWAN_ECLOSED;
    }
    if (*said_hello && socket->readable)
        error = read_welcome(conn, socket);
    if (conn->state == CONN_OPEN && error && error != ROWAN_EAGAIN)
        tcp_conn_break(conn, ROWAN_ECLOSED, true);
    if (error || conn->state != CONN_OPEN)
        return false;
    list_remove(conn, LIST_HANDSHAKE);
    return true;
}

/* --- passive --- */

static int admit(struct tcp_conn *conn)
{
    struct tcp_endpoint *endpoint = conn->endpoint;
    const struct fabric_endpoint *base = &endpoint->base;

    if (endpoint->counts[LIST_ALL] - endpoint->counts[LIST_HALF_OPEN] > TCP_MAX_CONNS)
        return ROWAN_ETOOMANY;
    return base->admit ? base->admit(base->admit_context, &conn->peer) : 0;
}

static void answer_messages(struct tcp_conn *conn, int error)
{
    struct tcp_endpoint *endpoint = conn->endpoint;
    struct tcp_greeting welcome;

    list_remove(conn, LIST_HALF_OPEN);
    take_identity(conn);
    if (!error)
        error = admit(conn);
    if (!error && endpoint->zone && conn->peer.kind == FABRIC_SERVER) {
        error = landing_create(conn);
        conn->token = random_u64(&endpoint->random);
    }
    welcome = greeting_make(conn, GREETING_WELCOME);
    welcome.error = error;
    welcome.zone = conn->landing != NULL;
    if (!greeting_send(conn->messages.fd, &welcome) || error) {
        tcp_conn_bury(conn);
    } else if (conn->landing) {
        conn->state = CONN_JOINING;
        list_add(conn, LIST_JOINING);
    } else {
        tcp_conn_opened(conn);
    }
}

/* The socket becomes the second one of the connection that its token names. */
static void answer_blocks(struct tcp_conn *conn)
{
    struct tcp_conn *first = conn->endpoint->lists[LIST_JOINING].first;
    struct tcp_greeting welcome;

    while (first && first->token != conn->greeting.token)
        first = first->links[LIST_JOINING].next;
    if (first) {
        first->blocks = (struct tcp_socket){.fd = conn->messages.fd, .writable = true};
        conn->messages.fd = -1;
        tcp_widen(first->blocks.fd);
        welcome = greeting_make(first, GREETING_WELCOME);
        if (tcp_conn_watch(first, first->blocks.fd, SOCKET_BLOCKS, true) == 0 &&
            greeting_send(first->blocks.fd, &welcome))
            tcp_conn_opened(first);
        else
            tcp_conn_bury(first);
    }
    tcp_conn_bury(conn);
}

/* The socket becomes the third one of a connection that is open. */
static void answer_bulk(struct tcp_conn *conn)
{
    struct tcp_conn *first = conn->endpoint->lists[LIST_ALL].first;
    struct tcp_greeting welcome;

    while (first &&
           !(first->state == CONN_OPEN && first->landing && first->token == conn->greeting.token))
        first = first->links[LIST_ALL].next;
    if (first && bulk_join(first) == 0) {
        first->bulk = (struct tcp_socket){.fd = conn->messages.fd, .writable = true};
        conn->messages.fd = -1;
        tcp_widen(first->bulk.fd);
        welcome = greeting_make(first, GREETING_WELCOME);
        if (tcp_conn_watch(first, first->bulk.fd, SOCKET_BULK, true) != 0 ||
            !greeting_send(first->bulk.fd, &welcome))
            tcp_conn_break(first, ROWAN_ECLOSED, true);
    }
    tcp_conn_bury(conn);
}

static void step_passive(struct tcp_conn *conn)
{
    int error;

    if (conn->state != CONN_EXPECTING || !conn->messages.readable)
        return;
    error = greeting_read(conn, &conn->messages);
    if (error == ROWAN_EAGAIN)
        return;
    if (error == ROWAN_EFORMAT && conn->greeting.magic == TCP_MAGIC) /* whole, of another layout */
        answer_messages(conn, ROWAN_EFORMAT);
    else if (error)
        tcp_conn_bury(conn);
    else if (conn->greeting.kind == GREETING_BLOCKS)
        answer_blocks(conn);
    else if (conn->greeting.kind == GREETING_BULK)
        answer_bulk(conn);
    else
        answer_messages(conn, conn->greeting.kind == GREETING_MESSAGES ? 0 : ROWAN_EFORMAT);
}

void tcp_connect_step(struct tcp_conn *conn)
{
    if (conn->active)
        step_active(conn);
    else
        step_passive(conn);
}

/* --- accept --- */

/* 3 */
static void pause_accepting(struct tcp_endpoint *endpoint)
{
    endpoint->listen_paused = true;
    endpoint->paused_ns = endpoint->now_ns;
    if (endpoint->logged_ns != 0 && endpoint->now_ns - endpoint->logged_ns < SAY_AGAIN_NS)
        return;
    endpoint->logged_ns = endpoint->now_ns;
    log_event(LOG_WARN, "connections_refused",
              "endpoint=%u reason=\"out of descriptors or memory\" connections=%u", endpoint->index,
              endpoint->counts[LIST_ALL]);
}

/* 2: true: one more may be accepted. */
static bool make_room(struct tcp_endpoint *endpoint)
{
    struct tcp_conn *oldest = endpoint->lists[LIST_HALF_OPEN].first;

    if (endpoint->counts[LIST_HALF_OPEN] < TCP_MAX_HALF_OPEN)
        return true;
    if (endpoint->now_ns - oldest->since_ns < TCP_HALF_OPEN_NS)
        return false;
    tcp_conn_bury(oldest);
    return true;
}

bool tcp_may_accept(const struct tcp_endpoint *endpoint)
{
    return endpoint->listen_ready && !endpoint->listen_paused &&
           endpoint->counts[LIST_HALF_OPEN] < TCP_MAX_HALF_OPEN;
}

void tcp_connect_accept(struct tcp_endpoint *endpoint)
{
    if (endpoint->listen_paused && endpoint->now_ns - endpoint->paused_ns < TCP_PAUSE_NS)
        return;
    endpoint->listen_paused = false;
    for (unsigned i = 0; i < ACCEPTS && endpoint->listen_ready && make_room(endpoint); i++) {
        struct tcp_conn *conn = NULL;
        int fd, error = tcp_accept(endpoint->listen_fd, &fd);

        if (error == ROWAN_EAGAIN) {
            endpoint->listen_ready = false;
            return;
        }
        if (!error) {
            error = tcp_conn_create(endpoint, false, &conn);
            if (error) {
                close(fd);
            } else {
                conn->messages.fd = fd;
                conn->since_ns = endpoint->now_ns;
                error = tcp_conn_watch(conn, fd, SOCKET_MESSAGES, false);
            }
        }
        if (error) {
            if (conn)
                tcp_conn_bury(conn);
            pause_accepting(endpoint);
            return;
        }
    }
}

void tcp_connect_check(struct tcp_endpoint *endpoint)
{
    for (struct tcp_conn *conn = endpoint->lists[LIST_HANDSHAKE].first, *next; conn; conn = next) {
        next = conn->links[LIST_HANDSHAKE].next;
        if (conn->since_ns == 0)
            conn->since_ns = endpoint->now_ns;
        else if (endpoint->now_ns - conn->since_ns > TCP_HANDSHAKE_NS) /* 1 */
            tcp_conn_break(conn, ROWAN_EUNREACHABLE, false);
    }
}
