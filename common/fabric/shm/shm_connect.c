/* shm_connect.c - a connection's slot and memory, the doorbell of its peer, and the handshake. It runs inside fabric_poll, one step at a time.
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
 * gone, and nothing else travels over it than rings (5).
 *
 * 1. A descriptor that came is either owned by the connection or closed when the step returns.
 * 2. Nonsense costs the peer its connection and us one log line.
 * 3. A handshake ends within SHM_HANDSHAKE_NS: a stopped peer leaves nothing behind.
 * 4. A dead connection's socket is closed at once. All else is given back by a later poll (conn.h), and not before a
 *    sync that is under way has ended, because nothing waits for it.
 * 5. A doorbell rung by one peer is never lost by another that was stopped in the middle: the one
 *    who wakes a sleeper rings first and only then takes the sleep's number away, and
 *    takes away no other sleep's number. A peer that finds the number rings, too. A ring is one byte over the socket, whose flags
 *    each end has for itself: an eventfd's are the peer's as well, and it could let us wait in a write for ever. Layouts before
 *    VERSION_SHM_RING have an eventfd; of these we look first whether it can be written, which a peer may change meanwhile.
 */
#include <errno.h>
#include <poll.h>
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
    return conn->serial << 16 | conn->base.number;
}

/* --- a connection's slot and memory --- */

static int create(struct endpoint *endpoint, bool active, struct shm_conn **out)
{
    struct conn *base;
    struct shm_conn *conn;
    const int error = conn_create(endpoint, active, &base);

    if (error)
        return error;
    *out = conn = (struct shm_conn *)base;
    conn->endpoint = (struct shm_endpoint *)endpoint;
    conn->zone_member = -1;
    conn->serial = conn->endpoint->serial++;
    conn->socket_fd = -1;
    conn->channel_fd = -1;
    conn->peer_event_fd = -1;
    return 0;
}

/* Maps the peer's doorbell. Errors: ROWAN_ENOMEM EFORMAT. */
static int attach(struct shm_conn *conn, struct gift *gift, uint32_t peer_slot)
{
    void *door;
    int error;

    const bool by_socket = conn->base.layout >= VERSION_SHM_RING;
    if (peer_slot >= SHM_MAX_CONNS || !(by_socket || is_eventfd(gift->fds[1])))
        return ROWAN_EFORMAT;
    error = memory_map(gift->fds[0], sizeof(struct shm_doorbell), &door);
    if (error)
        return error;
    conn->peer_door = door;
    conn->peer_slot = peer_slot;
    if (by_socket)
        return 0;
    conn->peer_event_fd = gift->fds[1];
    gift->fds[1] = -1;
    return 0;
}

/* Lays the rings over the channel. */
static void lay_rings(struct shm_conn *conn, struct shm_channel *channel)
{
    const unsigned out = conn->base.active ? 0 : 1, in = 1 - out;

    conn->channel = channel;
    conn->out.ring = &channel->ring[out];
    conn->out.data = channel->data[out];
    conn->in.ring = &channel->ring[in];
    conn->in.data = channel->data[in];
    conn->in.most_bytes = SHM_SMALL_BYTES;
}

int shm_guest_came(struct conn *base)
{
    ((struct shm_conn *)base)->in.most_bytes = FABRIC_GUEST_BYTES;
    return 0;
}

void shm_guest_went(struct conn *base)
{
    ((struct shm_conn *)base)->in.most_bytes = SHM_SMALL_BYTES;
}

/* A closed socket tells the peer that we store no more: the state has been set before. */
static void drop_socket(struct shm_conn *conn)
{
    struct shm_zone *zone = conn->endpoint->zone;

    if (conn->socket_fd < 0)
        return;
    if (zone && conn->zone_member >= 0) {
        epoll_ctl(conn->endpoint->base.epoll_fd, EPOLL_CTL_DEL, conn->socket_fd, NULL);
        zone_leave(zone, conn->zone_member, conn->socket_fd);
    } else {
        close(conn->socket_fd);
    }
    conn->zone_member = -1;
    conn->socket_fd = -1;
}

void shm_conn_stop(struct conn *base)
{
    drop_socket((struct shm_conn *)base);
}

/* 4 */
bool shm_conn_release(struct conn *base)
{
    struct shm_conn *conn = (struct shm_conn *)base;

    in_free_buffers(conn);
    return conn->endpoint->base.closing || !conn->rowan || !shm_rowan_is_syncing(conn->rowan);
}

void shm_conn_destroy(struct conn *base)
{
    struct shm_conn *conn = (struct shm_conn *)base;

    shm_rowan_destroy(conn->rowan);
    if (conn->channel)
        munmap(conn->channel, sizeof *conn->channel);
    close_fd(conn->channel_fd);
    if (conn->peer_door)
        munmap(conn->peer_door, sizeof *conn->peer_door);
    close_fd(conn->peer_event_fd);
    free(conn->out.staging);
    free(conn->directory);
}

/* 5. False: nothing was rung. */
static bool wake(struct shm_conn *conn)
{
    const uint64_t one = 1;
    struct pollfd wait = {.fd = conn->peer_event_fd, .events = POLLOUT};

    if (conn->base.layout >= VERSION_SHM_RING) {
        if (send(conn->socket_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 || errno == EAGAIN)
            return true;                             /* what is full is readable, too */
        if (errno != EPIPE && errno != ECONNRESET) { /* else its end is on its way */
            conn->unheard = true;                    /* we may be in the middle of a claim */
            conn_list_add(&conn->base, LIST_ACTIVE);
        }
        return false;
    }
    if (poll(&wait, 1, 0) == 1) {
        const ssize_t written = write(conn->peer_event_fd, &one, sizeof one);
        ASSERT(written == (ssize_t)sizeof one || errno == EAGAIN);
    }
    return true;
}

void conn_ring(struct shm_conn *conn)
{
    struct shm_doorbell *door = conn->peer_door;
    const uint32_t word = conn->peer_slot / 64;
    const uint64_t one = 1;
    uint32_t sleep;

    atomic_fetch_or_explicit(&door->ready[word], one << (conn->peer_slot % 64),
                             memory_order_seq_cst);
    if (!(atomic_load_explicit(&door->summary, memory_order_seq_cst) & one << word))
        atomic_fetch_or_explicit(&door->summary, one << word, memory_order_seq_cst);
    sleep = atomic_load_explicit(&door->sleeping, memory_order_seq_cst);
    if (sleep == 0 || !wake(conn))
        return;
    atomic_compare_exchange_strong_explicit(&door->sleeping, &sleep, 0, memory_order_seq_cst,
                                            memory_order_relaxed);
}

static void opened(struct shm_conn *conn)
{
    conn_list_add(&conn->base, LIST_SWEPT);
    if (!conn->base.active)
        shm_sweep(conn->endpoint, true);
    conn_opened(&conn->base);
}

/* --- the active side --- */

static int channel_create(struct shm_conn *conn)
{
    void *memory;
    int error = memory_create("rowan-channel", sizeof *conn->channel, &conn->channel_fd, &memory);

    if (!error)
        lay_rings(conn, memory);
    return error;
}

static int hello_send(struct shm_conn *conn)
{
    const struct shm_endpoint *endpoint = conn->endpoint;
    const int fds[HELLO_FDS] = {endpoint->door_fd, endpoint->event_fd, conn->channel_fd};
    const struct shm_hello hello = {.magic = SHM_MAGIC,
                                    .layouts = LAYOUTS,
                                    .ring_bytes = SHM_RING_BYTES,
                                    .slot = conn->base.number,
                                    .identity = endpoint->base.base.identity};

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

/* From now on the owner's ring tells of our stores. */
static int welcome_tap(struct shm_conn *conn, const struct shm_welcome *welcome, struct gift *gift,
                       struct pm **pm)
{
    const uint32_t sender = conn_tap_sender(&conn->endpoint->base.base.identity);
    void *ring;
    int error;

    if (welcome->tap_bytes != pm_tap_bytes())
        return ROWAN_EFORMAT;
    error = memory_map(gift->fds[WELCOME_ZONE_FDS], pm_tap_bytes(), &ring);
    if (error)
        return error;
    error = pm_tap_join(*pm, ring, sender, pm);
    if (error)
        munmap(ring, pm_tap_bytes());
    return error;
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
    if (welcome->tap_bytes > 0)
        error = welcome_tap(conn, welcome, gift, &pm);
    if (!error)
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

static unsigned welcome_fds(const struct shm_welcome *welcome)
{
    if (!welcome->has_zone)
        return WELCOME_FDS;
    return welcome->tap_bytes > 0 ? WELCOME_TAP_FDS : WELCOME_ZONE_FDS;
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
    if (gift->count != welcome_fds(welcome))
        return ROWAN_EFORMAT;
    error = greeting_unpack(conn->base.base.endpoint, &welcome->identity, &conn->base.peer);
    if (!error)
        error = attach(conn, gift, welcome->slot);
    if (error)
        return error;
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
    opened(conn);
}

int shm_connect(struct fabric_endpoint *base, const char *address, uint32_t index, uint64_t context,
                struct fabric_conn **out)
{
    struct shm_conn *conn;
    char name[SHM_NAME_BYTES];
    char *directory;
    int error;

    if (base->identity.kind == 0)
        return ROWAN_EINVALID;
    error = address_parse(address, &directory, name);
    if (error)
        return error;
    error = create((struct endpoint *)base, true, &conn);
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
    void *memory;
    int error;

    if (hello->magic != SHM_MAGIC)
        return ROWAN_EFORMAT;
    error = greeting_choose("shm", LAYOUTS, hello->layouts, &conn->base.layout);
    if (error)
        return error;
    if (gift->count != HELLO_FDS || hello->identity.kind == 0 ||
        hello->ring_bytes != SHM_RING_BYTES)
        return ROWAN_EFORMAT;
    error = greeting_unpack(base, &hello->identity, &conn->base.peer);
    if (!error)
        error = endpoint_admit(&conn->base);
    if (!error)
        error = attach(conn, gift, hello->slot);
    if (!error)
        error = memory_map(gift->fds[2], sizeof *conn->channel, &memory);
    if (error)
        return error;
    lay_rings(conn, memory);
    if (!conn->endpoint->zone || conn->base.peer.kind != FABRIC_SERVER)
        return 0;
    conn_supersede(&conn->base);
    return zone_join(conn->endpoint->zone, conn, &conn->zone_member);
}

static int welcome_send(struct shm_conn *conn, int answer)
{
    const struct shm_endpoint *endpoint = conn->endpoint;
    const bool by_socket = conn->base.layout >= VERSION_SHM_RING;
    int fds[SHM_MAX_FDS] = {endpoint->door_fd, by_socket ? endpoint->door_fd : endpoint->event_fd};
    unsigned fd_count = answer ? 0 : WELCOME_FDS;
    struct shm_welcome welcome = {.magic = SHM_MAGIC,
                                  .layouts = LAYOUTS,
                                  .error = answer,
                                  .slot = conn->base.number,
                                  .identity = endpoint->base.base.identity};

    if (!answer && conn->zone_member >= 0) {
        const struct pm *pm = endpoint->zone->base.pm;

        welcome.has_zone = 1;
        welcome.zone_sender = (uint32_t)conn->zone_member;
        welcome.zone_depth = endpoint->zone->base.depth;
        welcome.pm_offset = pm->offset;
        welcome.pm_bytes = pm->bytes;
        welcome.durability = (uint32_t)pm->durability;
        fds[WELCOME_FDS] = endpoint->zone->control_fd;
        fds[WELCOME_FDS + 1] = pm->fd;
        fd_count = WELCOME_ZONE_FDS;
        if (conn->base.layout >= VERSION_SHM_TAP && pm_tap_fd(pm) >= 0) {
            welcome.tap_bytes = pm_tap_bytes();
            fds[fd_count++] = pm_tap_fd(pm);
        }
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
        opened(conn);
}

int shm_accepted(struct endpoint *base, int fd)
{
    struct shm_conn *conn;

    if (create(base, false, &conn)) {
        close(fd);
        return 0;
    }
    conn->socket_fd = fd;
    if (endpoint_watch(base, fd, SHM_WATCHED, conn_tag(conn)))
        conn_end(&conn->base);
    else
        connect_step(conn);
    return 0;
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
