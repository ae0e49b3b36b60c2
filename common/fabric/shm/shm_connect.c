/* shm_connect.c - the handshake. It runs inside fabric_poll, one step at a time.
 *
 *   connector                                      acceptor
 *   1 makes the channel, connects the socket
 *   2 hello: who I am, my doorbell and eventfd,
 *     the channel, my bit in the doorbell    --->  3 checks all of it, asks admit(), maps it
 *                                                  4 a server gets a sender slot of the zone
 *   6 checks and maps, CONNECTED             <---  5 welcome: who I am, my doorbell and eventfd, my
 *                                                    bit; the zone's control block and PM; ACCEPTED
 *   or: CLOSED with that error               <---  5'welcome with an error, and the socket's end
 *
 * The socket stays open for the connection's life: its end is how a side learns that the other is
 * gone, and nothing else ever travels over it.
 *
 * 1. A descriptor that came is either owned by the connection or closed when the step returns.
 * 2. Nonsense costs the peer its connection and us one log line.
 * 3. A handshake ends within SHM_HANDSHAKE_NS: a stopped peer leaves nothing behind.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/fabric/shm/shm.h"

/* What a hello or welcome brought; entries are set to -1 when somebody has taken them. */
struct gift {
    int fds[SHM_MAX_FDS];
    unsigned count;
};

static void gift_close(struct gift *gift)
{
    for (unsigned i = 0; i < gift->count; i++) {
        if (gift->fds[i] >= 0)
            close(gift->fds[i]);
    }
    gift->count = 0;
}

static const struct greeting_layouts LAYOUTS = {VERSION_SHM_LOWEST, VERSION_SHM_HIGHEST};

static uint64_t conn_tag(const struct shm_conn *conn)
{
    return conn->serial << 16 | conn->slot;
}

/* --- the active side --- */

static int channel_create(struct shm_conn *conn)
{
    void *memory;
    int error =
        memory_create("rowan-channel", channel_bytes(SHM_RING_BYTES), &conn->channel_fd, &memory);

    if (error)
        return error;
    conn->channel = memory;
    return conn_map_channel(conn, conn->channel_fd, SHM_RING_BYTES);
}

static int hello_send(struct shm_conn *conn)
{
    const struct shm_endpoint *endpoint = conn->endpoint;
    const int fds[HELLO_FDS] = {endpoint->door_fd, endpoint->event_fd, conn->channel_fd};
    const struct shm_hello hello = {.magic = SHM_MAGIC,
                                    .layouts = LAYOUTS,
                                    .ring_bytes = SHM_RING_BYTES,
                                    .slot = conn->slot,
                                    .identity = greeting_pack(&endpoint->base.base.identity)};

    return socket_send(conn->socket_fd, &hello, sizeof hello, fds, HELLO_FDS);
}

/* Steps 1 and 2. */
static void step_connect(struct shm_conn *conn)
{
    int error = 0;

    if (conn->socket_fd < 0)
        error = socket_connect(conn->directory, conn->name, conn->index, &conn->socket_fd);
    if (!error)
        error = hello_send(conn);
    if (error == ROWAN_EAGAIN)
        return;
    if (!error)
        error = endpoint_watch(&conn->endpoint->base, conn->socket_fd, SHM_WATCHED, conn_tag(conn));
    if (error) {
        conn_break(&conn->base, ROWAN_EUNREACHABLE, false);
        return;
    }
    close(conn->channel_fd);
    conn->channel_fd = -1;
    conn->base.state = CONN_GREETING;
}

static int welcome_zone(struct shm_conn *conn, const struct shm_welcome *welcome, struct gift *gift)
{
    void *control;
    struct pm *pm;
    int error;

    if (welcome->zone_depth < ZONE_MIN_DEPTH || welcome->zone_depth > ZONE_MAX_DEPTH ||
        welcome->zone_sender >= FABRIC_MAX_ZONE_SENDERS || welcome->durability > PM_NONE ||
        welcome->pm_bytes == 0)
        return ROWAN_EFORMAT;
    error = memory_map(gift->fds[2], zone_control_bytes(welcome->zone_depth), &control);
    if (error)
        return error;
    error = pm_open_peer(gift->fds[3], welcome->pm_offset, welcome->pm_bytes,
                         (enum pm_durability)welcome->durability, conn->endpoint->base.base.reactor,
                         &pm);
    if (error)
        goto fail_unmap;
    gift->fds[3] = -1;
    error = shm_rowan_create(conn, control, welcome->zone_depth, welcome->zone_sender, pm);
    if (error)
        goto fail_close;
    conn->base.base.has_zone = true;
    return 0;

fail_close:
    pm_close(pm);
fail_unmap:
    munmap(control, zone_control_bytes(welcome->zone_depth));
    return error;
}

static int welcome_take(struct shm_conn *conn, const struct shm_welcome *welcome, struct gift *gift)
{
    int error;

    if (welcome->magic != SHM_MAGIC)
        return ROWAN_EFORMAT;
    error = greeting_choose("shm", LAYOUTS, welcome->layouts, &conn->base.layout);
    if (error)
        return error;
    if (welcome->error)
        return greeting_refusal(welcome->error);
    if (gift->count != (welcome->has_zone ? WELCOME_ZONE_FDS : WELCOME_FDS))
        return ROWAN_EFORMAT;
    error = greeting_unpack(conn->base.base.endpoint, &welcome->identity, &conn->base.peer);
    if (!error)
        error = conn_attach(conn, gift->fds[0], gift->fds[1], welcome->slot);
    if (error)
        return error;
    gift->fds[0] = gift->fds[1] = -1;
    return welcome->has_zone ? welcome_zone(conn, welcome, gift) : 0;
}

/* Step 6. */
static void step_greet(struct shm_conn *conn)
{
    struct shm_welcome welcome;
    struct gift gift;
    int error;

    error = socket_receive(conn->socket_fd, &welcome, sizeof welcome, gift.fds, &gift.count);
    if (error == ROWAN_EAGAIN)
        return;
    if (!error) {
        error = welcome_take(conn, &welcome, &gift);
        gift_close(&gift);
    }
    if (error) {
        log_event(LOG_DEBUG, "shm_connect_failed", "name=%s.%u reason=\"%s\"", conn->name,
                  conn->index, error_sentence(error));
        conn_break(&conn->base, error == ROWAN_ECLOSED ? ROWAN_EUNREACHABLE : error, false);
        return;
    }
    conn_opened(&conn->base);
}

int shm_connect(struct fabric_endpoint *base, const char *address, uint32_t index, uint64_t context,
                struct fabric_conn **out)
{
    struct shm_endpoint *endpoint = (struct shm_endpoint *)base;
    struct shm_conn *conn;
    char name[SHM_NAME_BYTES];
    char *directory;
    int error;

    if (base->identity.kind == 0)
        return ROWAN_EINVALID;
    error = address_parse(address, &directory, name);
    if (error)
        return error;
    error = shm_conn_create(endpoint, true, &conn);
    if (error) {
        free(directory);
        return error;
    }
    conn->directory = directory;
    conn->index = index;
    conn->base.context = context;
    memcpy(conn->name, name, sizeof name);
    error = channel_create(conn);
    if (error) {
        conn_end(&conn->base);
        return error;
    }
    step_connect(conn);
    *out = &conn->base.base;
    return 0;
}

/* --- the passive side --- */

static int hello_take(struct shm_conn *conn, const struct shm_hello *hello, struct gift *gift)
{
    const struct fabric_endpoint *base = conn->base.base.endpoint;
    int error;

    if (hello->magic != SHM_MAGIC)
        return ROWAN_EFORMAT;
    error = greeting_choose("shm", LAYOUTS, hello->layouts, &conn->base.layout);
    if (error)
        return error;
    if (gift->count != HELLO_FDS || hello->identity.kind == 0)
        return ROWAN_EFORMAT;
    error = greeting_unpack(base, &hello->identity, &conn->base.peer);
    if (!error)
        error = fabric_admit_peer(base, &conn->base.peer);
    if (!error)
        error = conn_attach(conn, gift->fds[0], gift->fds[1], hello->slot);
    if (error)
        return error;
    gift->fds[0] = gift->fds[1] = -1;
    error = conn_map_channel(conn, gift->fds[2], hello->ring_bytes);
    if (error)
        return error;
    gift->fds[2] = -1;
    conn_supersede(&conn->base);
    if (conn->endpoint->zone && conn->base.peer.kind == FABRIC_SERVER)
        error = zone_join(conn->endpoint->zone, conn, &conn->zone_member);
    return error;
}

static int welcome_send(struct shm_conn *conn, int answer)
{
    const struct shm_endpoint *endpoint = conn->endpoint;
    int fds[WELCOME_ZONE_FDS] = {endpoint->door_fd, endpoint->event_fd};
    unsigned fd_count = answer ? 0 : WELCOME_FDS;
    struct shm_welcome welcome = {.magic = SHM_MAGIC,
                                  .layouts = LAYOUTS,
                                  .error = answer,
                                  .slot = conn->slot,
                                  .identity = greeting_pack(&endpoint->base.base.identity)};

    if (!answer && conn->zone_member >= 0) {
        welcome.has_zone = 1;
        welcome.zone_sender = (uint32_t)conn->zone_member;
        zone_describe(endpoint->zone, &welcome, &fds[WELCOME_FDS]);
        fd_count = WELCOME_ZONE_FDS;
    }
    return socket_send(conn->socket_fd, &welcome, sizeof welcome, fds, fd_count);
}

/* Steps 3 to 5. A welcome that cannot be sent at once (a fresh socket has room) ends it. */
static void step_expect(struct shm_conn *conn)
{
    struct shm_hello hello;
    struct gift gift;
    int error;

    error = socket_receive(conn->socket_fd, &hello, sizeof hello, gift.fds, &gift.count);
    if (error == ROWAN_EAGAIN)
        return;
    if (error == ROWAN_ECLOSED) { /* somebody only looked whether we live */
        conn_end(&conn->base);
        return;
    }
    if (!error) {
        error = hello_take(conn, &hello, &gift);
        gift_close(&gift);
    }
    if (error)
        log_event(LOG_WARN, "shm_peer_refused", "index=%u reason=\"%s\"",
                  conn->endpoint->base.index, error_sentence(error));
    if (welcome_send(conn, error) || error)
        conn_end(&conn->base);
    else
        conn_opened(&conn->base);
}

/* A connection that cannot be taken keeps the listener readable, and a sleeping reactor awake. */
static void pause_listening(struct shm_endpoint *endpoint, int system_errno)
{
    if (system_errno != EMFILE && system_errno != ENFILE && system_errno != ENOBUFS &&
        system_errno != ENOMEM)
        return;
    log_event(LOG_WARN, "shm_accept_failed", "index=%u reason=\"%s\"", endpoint->base.index,
              strerror(system_errno));
    epoll_ctl(endpoint->base.epoll_fd, EPOLL_CTL_DEL, endpoint->base.listen_fd, NULL);
    endpoint->listen_paused = true;
    endpoint->paused_ns = endpoint->base.now_ns;
}

void connect_resume(struct shm_endpoint *endpoint)
{
    if (endpoint->base.now_ns - endpoint->paused_ns >= SHM_PAUSE_NS)
        endpoint->listen_paused = endpoint_watch(&endpoint->base, endpoint->base.listen_fd,
                                                 SHM_WATCHED, ENDPOINT_LISTENER) != 0;
}

void connect_accept(struct shm_endpoint *endpoint)
{
    for (;;) {
        int fd = accept4(endpoint->base.listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct shm_conn *conn;

        if (fd < 0) {
            pause_listening(endpoint, errno);
            return;
        }
        if (shm_conn_create(endpoint, false, &conn)) {
            close(fd);
            continue;
        }
        conn->socket_fd = fd;
        if (endpoint_watch(&endpoint->base, fd, SHM_WATCHED, conn_tag(conn)))
            conn_end(&conn->base);
        else
            connect_step(conn);
    }
}

void connect_step(struct shm_conn *conn)
{
    if (conn->base.state == CONN_CONNECTING)
        step_connect(conn);
    else if (conn->base.state == CONN_GREETING)
        step_greet(conn);
    else if (conn->base.state == CONN_EXPECTING)
        step_expect(conn);
}
