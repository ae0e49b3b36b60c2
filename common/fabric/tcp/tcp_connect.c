/* tcp_connect.c - a connection's memory and sockets, and the handshake. Each side reads no more than the other's greeting before it answers,
 * so a refusal is never lost behind unread bytes:
 *
 *   active                                     passive
 *   connect, hello (who I am)           ->     admit, or refuse and close
 *                                       <-     welcome (who I am, error, zone, token)
 *   with a zone: connect, hello (token, ->     finds the connection by the token, checks the proof
 *                proof)                 <-     welcome on that socket (proof)
 *   CONNECTED                                  ACCEPTED
 *
 * 1. A handshake takes at most TCP_HANDSHAKE_NS. One that fails at the passive side ends silently.
 * 2. At most TCP_MAX_HALF_OPEN sockets have not said who they are, or that they are a server and not shown it on the second
 *    socket: before that they have no place in the landing zone. For one more the oldest is closed, if it had
 *    TCP_HALF_OPEN_NS; else the new one waits in the kernel's queue.
 * 3. The port of a server that is gone may be the one that the kernel gives our own socket: then it
 *    connects to itself and reads its own hello. That is nobody.
 * 4. A proof names both ends (tcp_wire.h): the address that was dialled, which the passive side knows as its own, and who answered
 *    there. So whoever got a dead server's address cannot pass on what it hears to a living one.
 * 5. While the secret changes (fabric_endpoint_secret) either is taken, and answered in kind. Who is refused signs with the other
 *    one the next time: his peers have not heard yet that it changes, or have heard that it has.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/fabric/tcp/tcp.h"

/* --- a connection's memory and sockets --- */

static int create(struct endpoint *endpoint, bool active, struct tcp_conn **out)
{
    struct conn *base;
    const int error = conn_create(endpoint, active, &base);

    if (error)
        return error;
    *out = (struct tcp_conn *)base;
    (*out)->endpoint = (struct tcp_endpoint *)endpoint;
    (*out)->messages.fd = (*out)->blocks.fd = -1;
    if (!active)
        conn_list_add(base, LIST_HALF_OPEN);
    return 0;
}

/* Watches a socket of the connection. Errors: ROWAN_ETOOMANY. */
static int conn_watch(struct tcp_conn *conn, int fd, enum tcp_socket_kind kind, bool again)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.u64 = (uint64_t)(uintptr_t)conn | kind};
    const int operation = again ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    return epoll_ctl(conn->endpoint->base.epoll_fd, operation, fd, &event) < 0 ? ROWAN_ETOOMANY : 0;
}

/* A forked process may hold copies of the socket and of the epoll. As long as copies live a close
 * tells the peer nothing and leaves the socket in the epoll: so both are done here. But not when the
 * whole endpoint is closed: it is the other process that goes on with it then. */
static void drop_socket(struct tcp_endpoint *endpoint, struct tcp_socket *socket)
{
    if (socket->fd >= 0 && !endpoint->base.closing) {
        epoll_ctl(endpoint->base.epoll_fd, EPOLL_CTL_DEL, socket->fd, NULL);
        shutdown(socket->fd, SHUT_RDWR);
    }
    close_fd(socket->fd);
    *socket = (struct tcp_socket){.fd = -1};
}

void tcp_conn_stop(struct conn *base)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;

    landing_end(conn);
    drop_socket(conn->endpoint, &conn->messages);
    drop_socket(conn->endpoint, &conn->blocks);
}

void tcp_conn_destroy(struct conn *base)
{
    struct tcp_conn *conn = (struct tcp_conn *)base;

    tcp_in_fini(conn);
    tcp_out_fini(conn);
    landing_destroy(conn);
    free(conn->guest);
}

/* --- greetings --- */

static const struct greeting_layouts LAYOUTS = {VERSION_TCP_LOWEST, VERSION_TCP_HIGHEST};

static struct tcp_greeting greeting_make(const struct tcp_conn *conn, enum tcp_greeting_kind kind)
{
    return (struct tcp_greeting){.magic = TCP_MAGIC,
                                 .layouts = LAYOUTS,
                                 .kind = kind,
                                 .token = conn->token,
                                 .identity = conn->endpoint->base.base.identity};
}

/* 4 */
static void name_acceptor(struct tcp_conn *conn, const union tcp_address *address,
                          const struct fabric_identity *who)
{
    struct fabric_acceptor *acceptor = &conn->base.base.acceptor;

    *acceptor = (struct fabric_acceptor){
        .incarnation = who->incarnation, .id = who->id, .kind = (uint16_t)who->kind};
    tcp_address_bytes(address, acceptor->host, &acceptor->port);
}

/* The code of a greeting in that layout, by the secret or the former one. False: without that (fabric_endpoint_secret), or memory. */
static bool code_of(const struct tcp_conn *conn, bool former, uint32_t layout,
                    const struct tcp_greeting *greeting, uint8_t mac[MAC_BYTES])
{
    const struct fabric_endpoint *endpoint = &conn->endpoint->base.base;
    const uint8_t *secret = former ? endpoint->former : endpoint->secret;
    struct tcp_proof proof = {*greeting, conn->base.base.acceptor};
    uint8_t key[MAC_BYTES];

    memset(proof.greeting.mac, 0, sizeof proof.greeting.mac);
    if (former ? !endpoint->has_former : !endpoint->has_secret)
        return false;
    if (layout < VERSION_TCP_ENDS)
        return mac_make(secret, FABRIC_SECRET_BYTES, &proof.greeting, sizeof proof.greeting, mac);
    return mac_subkey(secret, FABRIC_SECRET_BYTES, TCP_PROOF_LABEL, key) &&
           mac_make(key, sizeof key, &proof, sizeof proof, mac);
}

/* Without a code all zeros, which nobody takes for a proof. */
static void sign(const struct tcp_conn *conn, uint32_t layout, struct tcp_greeting *greeting)
{
    uint8_t mac[MAC_BYTES];

    memset(greeting->mac, 0, sizeof greeting->mac);
    if (code_of(conn, conn->former, layout, greeting, mac))
        memcpy(greeting->mac, mac, sizeof mac);
}

/* 5 */
static bool is_signed(struct tcp_conn *conn, uint32_t layout, const struct tcp_greeting *greeting)
{
    uint8_t mac[MAC_BYTES];

    for (unsigned former = 0; former < 2; former++) {
        if (!code_of(conn, former, layout, greeting, mac) || !mac_equal(mac, greeting->mac))
            continue;
        conn->former = former;
        return true;
    }
    return false;
}

/* With that nonce, and of the same one that spoke on the first socket. False: it must be, and is not. */
static bool prove(struct tcp_conn *conn, uint32_t layout, const struct tcp_greeting *greeting,
                  uint64_t nonce)
{
    const struct fabric_identity *who = &greeting->identity;
    const struct fabric_identity *first = &conn->base.peer;

    const bool right = who->kind == first->kind && who->id == first->id &&
                       who->role == first->role && who->incarnation == first->incarnation &&
                       greeting->nonce == nonce && is_signed(conn, layout, greeting);
    conn->base.base.unproved = !right;
    conn->base.base.shown = right ? conn->endpoint->base.base.secrets - conn->former : 0;
    return right || !conn->endpoint->base.base.demands_secret;
}

/* Whichever side asks for it. An attack that is refused looks to the operator like a dead peer, but for this line. */
static int refuse_proof(struct tcp_conn *conn)
{
    counter_add(&conn->endpoint->base.base.ended.unproved, 1);
    log_event(LOG_WARN, "peer_refused",
              "server=%u reason=\"it does not show the cluster's secret for this connection: it "
              "has another one, has dialled somebody else's address, or somebody is in between\"",
              conn->base.peer.id);
    return ROWAN_EUNREACHABLE;
}

bool tcp_proof_again(const struct fabric_conn *base, uint8_t code[MAC_BYTES])
{
    const struct tcp_conn *conn = (const struct tcp_conn *)base;
    const struct fabric_endpoint *endpoint = base->endpoint;
    const struct fabric_identity *who = conn->base.active ? &endpoint->identity : &conn->base.peer;
    const struct tcp_proof_again words = {conn->token, who->incarnation, who->id, who->role,
                                          base->acceptor};
    uint8_t key[MAC_BYTES];

    return conn->token != 0 && endpoint->has_secret &&
           mac_subkey(endpoint->secret, sizeof endpoint->secret, TCP_AGAIN_LABEL, key) &&
           mac_make(key, sizeof key, &words, sizeof words, code);
}

/* It is the first that the socket sends, so it fits, or the peer has gone. */
static bool greeting_send(int fd, const struct tcp_greeting *greeting)
{
    const struct iovec piece = {(void *)(uintptr_t)greeting, sizeof *greeting};

    return tcp_write(fd, &piece, 1) == (ssize_t)sizeof *greeting;
}

/* 0: all of a greeting in a layout of ours is there. Errors: ROWAN_EAGAIN ECLOSED, EFORMAT (the first
 * bytes are not right), EINCOMPATIBLE (all of it is there, and no common layout). */
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
    return greeting_choose("tcp", LAYOUTS, greeting->layouts, &conn->base.layout);
}

/* --- active --- */

/* Starts to connect one of the sockets. */
static int dial(struct tcp_conn *conn, struct tcp_socket *socket, enum tcp_socket_kind kind)
{
    const int error = tcp_start_connect(&conn->address, &socket->fd);

    if (error)
        return error;
    if (kind != SOCKET_MESSAGES)
        tcp_widen(socket->fd, kind);
    return conn_watch(conn, socket->fd, kind, false);
}

int tcp_connect(struct fabric_endpoint *base, const char *text, uint32_t index, uint64_t context,
                struct fabric_conn **out)
{
    struct endpoint *endpoint = (struct endpoint *)base;
    union tcp_address address;
    struct tcp_conn *conn;
    int error = tcp_address_parse(text, index, &address);

    if (error)
        return error;
    if (endpoint->counts[LIST_ALL] >= TCP_MAX_CONNS)
        return ROWAN_ETOOMANY;
    error = create(endpoint, true, &conn);
    if (error)
        return error;
    conn->address = address;
    conn->base.context = context;
    error = dial(conn, &conn->messages, SOCKET_MESSAGES);
    if (error == ROWAN_EUNREACHABLE) {
        conn_break(&conn->base, error, false);
    } else if (error) {
        conn_end(&conn->base);
        return error;
    }
    *out = &conn->base.base;
    return 0;
}

/* Says hello on a socket that has connected, or failed to, and reads the answer. 0: welcome. A refusal ends the
 * connection here, with the peer's reason, because that may be ROWAN_EAGAIN: the caller takes it for "no answer yet". */
static int greet(struct tcp_conn *conn, struct tcp_socket *socket, enum tcp_greeting_kind kind)
{
    struct tcp_greeting hello = greeting_make(conn, kind);
    int error = ROWAN_EAGAIN;

    if (!socket->said_hello && (socket->readable || socket->writable)) {
        if (kind == GREETING_BLOCKS) {
            random_entropy(&conn->nonce, sizeof conn->nonce);
            hello.nonce = conn->nonce;
            conn->former = conn->endpoint->base.base.signs_former;
            sign(conn, conn->base.layout, &hello);
        }
        if (!socket->writable || !greeting_send(socket->fd, &hello))
            return ROWAN_EUNREACHABLE;
        socket->said_hello = true;
    }
    if (socket->said_hello && socket->readable)
        error = greeting_read(conn, socket);
    if (error == ROWAN_ECLOSED || (!error && conn->greeting.kind != GREETING_WELCOME)) /* 3 */
        return ROWAN_EUNREACHABLE;
    if (error || conn->greeting.error == 0)
        return error;
    conn_break(&conn->base, greeting_refusal(conn->greeting.error), false);
    return ROWAN_EAGAIN;
}

static void step_active(struct tcp_conn *conn)
{
    struct fabric_endpoint *endpoint = &conn->endpoint->base.base;
    int error = 0;

    if (conn->base.state == CONN_CONNECTING) {
        error = greet(conn, &conn->messages, GREETING_MESSAGES);
        if (!error)
            error = greeting_unpack(endpoint, &conn->greeting.identity, &conn->base.peer);
        if (!error)
            name_acceptor(conn, &conn->address, &conn->base.peer);
        if (!error && conn->greeting.zone) {
            conn->token = conn->greeting.token;
            tcp_widen(conn->messages.fd, SOCKET_MESSAGES);
            conn->base.state = CONN_JOINING;
            error = dial(conn, &conn->blocks, SOCKET_BLOCKS);
            if (!error)
                error = window_open(&conn->base, sizeof(struct tcp_sender), TCP_BLOCKS);
        } else if (!error) {
            conn_opened(&conn->base);
        }
    }
    if (!error && conn->base.state == CONN_JOINING) {
        error = greet(conn, &conn->blocks, GREETING_BLOCKS);
        if (!error && !prove(conn, conn->base.layout, &conn->greeting, conn->nonce))
            error = refuse_proof(conn);
        if (!error) {
            conn->base.base.has_zone = true;
            conn_opened(&conn->base);
        }
    }
    if (!error || error == ROWAN_EAGAIN)
        return;
    if (conn->base.state == CONN_JOINING)
        endpoint->signs_former = endpoint->has_former && !conn->former; /* 5 */
    conn_break(&conn->base, error, false);
}

/* --- passive --- */

static int admit(struct tcp_conn *conn)
{
    const struct endpoint *endpoint = &conn->endpoint->base;

    if (endpoint->counts[LIST_ALL] - endpoint->counts[LIST_HALF_OPEN] >= TCP_MAX_CONNS)
        return ROWAN_ETOOMANY;
    return endpoint_admit(&conn->base);
}

static void answer_messages(struct tcp_conn *conn, int error)
{
    struct tcp_endpoint *endpoint = conn->endpoint;
    struct tcp_greeting welcome;
    bool joins;

    if (!error)
        error = greeting_unpack(&endpoint->base.base, &conn->greeting.identity, &conn->base.peer);
    if (!error)
        error = admit(conn);
    conn->base.base.unproved = conn->base.peer.kind == FABRIC_SERVER; /* until it has shown it */
    joins = !error && endpoint->zone && conn->base.base.unproved;
    if (joins) {
        random_entropy(&conn->token, sizeof conn->token);
        tcp_widen(conn->messages.fd, SOCKET_MESSAGES);
    } else {
        conn_list_remove(&conn->base, LIST_HALF_OPEN); /* 2 */
    }
    welcome = greeting_make(conn, GREETING_WELCOME);
    name_acceptor(conn, &endpoint->address, &welcome.identity);
    welcome.error = error;
    welcome.zone = joins;
    if (!greeting_send(conn->messages.fd, &welcome) || error) {
        conn_end(&conn->base);
    } else if (joins) {
        conn->base.state = CONN_JOINING;
    } else {
        conn_opened(&conn->base);
    }
}

/* The socket becomes the second one of the connection that its token names. F11: only who has proved that he is that server ends
 * its older connection. */
static void answer_blocks(struct tcp_conn *conn)
{
    struct tcp_greeting welcome;
    int error;

    for (CONN_EACH(tcp_conn, first, &conn->endpoint->base, LIST_HANDSHAKE)) {
        if (first->base.active || first->base.state != CONN_JOINING ||
            first->token != conn->greeting.token)
            continue;
        if (!prove(first, conn->base.layout, &conn->greeting, conn->greeting.nonce)) {
            refuse_proof(first);
            conn_end(&first->base);
            break;
        }
        conn_list_remove(&first->base, LIST_HALF_OPEN); /* 2 */
        conn_supersede(&first->base);
        error = landing_create(first);
        first->blocks = (struct tcp_socket){.fd = conn->messages.fd, .writable = true};
        conn->messages.fd = -1;
        tcp_widen(first->blocks.fd, SOCKET_BLOCKS);
        welcome = greeting_make(first, GREETING_WELCOME);
        welcome.nonce = conn->greeting.nonce;
        welcome.error = error;
        sign(first, conn->base.layout, &welcome);
        if (conn_watch(first, first->blocks.fd, SOCKET_BLOCKS, true) == 0 &&
            greeting_send(first->blocks.fd, &welcome) && !error)
            conn_opened(&first->base);
        else
            conn_end(&first->base);
        break;
    }
    conn_end(&conn->base);
}

static void step_passive(struct tcp_conn *conn)
{
    int error;

    if (conn->base.state != CONN_EXPECTING || !conn->messages.readable)
        return;
    error = greeting_read(conn, &conn->messages);
    if (error == ROWAN_EAGAIN)
        return;
    if (error == ROWAN_EINCOMPATIBLE)
        answer_messages(conn, error);
    else if (error)
        conn_end(&conn->base);
    else if (conn->greeting.kind == GREETING_BLOCKS)
        answer_blocks(conn);
    else
        answer_messages(conn, conn->greeting.kind == GREETING_MESSAGES ? 0 : ROWAN_EFORMAT);
}

void tcp_connect_step(struct tcp_conn *conn)
{
    if (conn->base.active)
        step_active(conn);
    else
        step_passive(conn);
}

/* --- accept --- */

/* 2 */
bool tcp_make_room(struct endpoint *endpoint)
{
    struct conn *oldest = endpoint->lists[LIST_HALF_OPEN].first;

    if (endpoint->counts[LIST_HALF_OPEN] < TCP_MAX_HALF_OPEN)
        return true;
    if (endpoint->now_ns - oldest->since_ns < TCP_HALF_OPEN_NS)
        return false;
    conn_end(oldest);
    return true;
}

int tcp_accepted(struct endpoint *base, int fd)
{
    struct tcp_conn *conn;
    int error = create(base, false, &conn);

    if (error) {
        close(fd);
        return error;
    }
    tcp_set_options(fd);
    conn->base.source = tcp_source(fd);
    conn->messages.fd = fd;
    conn->base.since_ns = base->now_ns;
    error = conn_watch(conn, fd, SOCKET_MESSAGES, false);
    if (error)
        conn_end(&conn->base);
    return error;
}
